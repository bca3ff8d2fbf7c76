"""The drop-in on the GPU, against torch's own: meaning, strides, gradients, graphs, compilation."""

import shutil
import warnings
from importlib.util import find_spec

import pytest
import torch
from harness import DEVICE, normal
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

import ffpa
from ffpa import FallbackWarning

pytestmark = pytest.mark.gpu


def qkv(seqlen_q=70, seqlen_k=70, headdim=256, nheads_kv=4, dtype="fp16"):
    shapes = ((4, seqlen_q), (nheads_kv, seqlen_k), (nheads_kv, seqlen_k))
    return [
        normal(2, heads, seqlen, headdim, dtype=dtype, seed=seed)
        for seed, (heads, seqlen) in enumerate(shapes)
    ]


def torch_math(q, k, v, **options):
    """torch's textbook path in float64."""
    with sdpa_kernel(SDPBackend.MATH):
        return functional.scaled_dot_product_attention(*(t.double() for t in (q, k, v)), **options)


@pytest.fixture(autouse=True)
def no_fallback():
    """A call that goes to torch fails the test, unless the test asks for the warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", FallbackWarning)
        yield


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    "seqlen_q, seqlen_k, nheads_kv", [(70, 70, 4), (70, 133, 2), (133, 70, 1), (1, 70, 1)]
)
def test_it_is_torchs(seqlen_q, seqlen_k, nheads_kv, causal, dtype):
    q, k, v = qkv(seqlen_q, seqlen_k, nheads_kv=nheads_kv, dtype=dtype)
    options = {"is_causal": causal, "scale": 0.1, "enable_gqa": True}
    out = ffpa.sdpa(q, k, v, **options)
    exact = torch_math(q, k, v, **options)
    tolerance = 2e-2 if dtype == "bf16" else 3e-3
    torch.testing.assert_close(out.double(), exact, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("kind", ["bool", "additive", "F32"])
@pytest.mark.parametrize("seqlen_q", [1, 70])
@pytest.mark.parametrize("shape", [(2, 4, 1, 70), (1, 1, 1, 70), (70,)])
def test_masks_are_torchs(shape, seqlen_q, kind):  # S13
    q, k, v = qkv(seqlen_q)
    hidden = torch.rand(shape, device=DEVICE) < 0.3
    mask = ~hidden
    if kind != "bool":
        dtype = q.dtype if kind == "additive" else torch.float32
        mask = torch.randn(shape, device=DEVICE).to(dtype).masked_fill_(hidden, -torch.inf)
    out = ffpa.sdpa(q, k, v, mask)
    exact = torch_math(q, k, v, attn_mask=mask if kind == "bool" else mask.double())
    torch.testing.assert_close(out.double(), exact, rtol=3e-3, atol=3e-3)


def test_strides_are_those_of_torchs_flash_kernel():
    for layout in (lambda t: t, lambda t: t.transpose(1, 2).contiguous().transpose(1, 2)):
        tensors = [layout(t) for t in qkv()]
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            theirs = functional.scaled_dot_product_attention(*tensors)
        assert ffpa.sdpa(*tensors).stride() == theirs.stride()


@pytest.mark.parametrize("shape", [(33, 64), (3, 33, 64), (2, 2, 3, 33, 64)])
def test_any_rank(shape):  # S24
    q, k, v = (torch.randn(shape, device=DEVICE).half() for _ in range(3))
    out = ffpa.sdpa(q, k, v, is_causal=True)
    exact = torch_math(q, k, v, is_causal=True)
    assert out.shape == exact.shape
    torch.testing.assert_close(out.double(), exact, rtol=3e-3, atol=3e-3)


@pytest.mark.parametrize("headdim, value_headdim", [(576, 512), (192, 128)])
def test_a_narrower_value(headdim, value_headdim):  # S23
    q, k, v = qkv(headdim=headdim)
    out = ffpa.sdpa(q, k, v[..., :value_headdim])
    exact = torch_math(q, k, v[..., :value_headdim])
    assert out.shape == exact.shape
    torch.testing.assert_close(out.double(), exact, rtol=3e-3, atol=3e-3)


def test_what_no_kernel_takes_goes_to_torch():  # R12
    q, k, v = qkv()
    for options, tensors in (
        ({"dropout_p": 0.5}, (q, k, v)),
        ({}, (q[..., :64], k[..., :64], v)),
        ({}, (q.float(), k.float(), v.float())),
    ):
        with pytest.warns(FallbackWarning):
            out = ffpa.sdpa(*tensors, **options)
        assert out.shape == (*q.shape[:3], tensors[2].shape[3])
        assert ffpa.last_kernel() == "torch"
        with pytest.raises((NotImplementedError, TypeError)):
            ffpa.sdpa(*tensors, **options, strict=True)


def test_gradients_are_torchs():  # R08
    q, k, v = (t.requires_grad_() for t in qkv())
    with pytest.warns(FallbackWarning, match="forward only"):
        ffpa.sdpa(q, k, v, is_causal=True).float().square().sum().backward()
    assert all(t.grad.isfinite().all() and t.grad.any() for t in (q, k, v))


def test_use():
    q, k, v = qkv()
    with ffpa.use(strict=True):
        out = functional.scaled_dot_product_attention(q, k, v)
    assert ffpa.last_kernel() != "torch" and out.equal(ffpa.sdpa(q, k, v))


def test_autocast():  # R07
    q, k, v = (t.float() for t in qkv())
    mask = torch.randn(70, 70, device=DEVICE)
    with torch.autocast("cuda", torch.bfloat16):
        out = ffpa.sdpa(q, k, v, mask)
    assert out.equal(ffpa.sdpa(*(t.bfloat16() for t in (q, k, v)), mask))


@pytest.mark.parametrize("seqlen_q", [1, 70])
def test_cuda_graph_replay(seqlen_q):
    q, k, v = qkv(seqlen_q, 1000)
    ffpa.sdpa(q, k, v)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = ffpa.sdpa(q, k, v)
    for _ in range(2):
        q.mul_(-0.5)
        out.fill_(torch.nan)
        graph.replay()
        assert out.equal(ffpa.sdpa(q, k, v))


@pytest.mark.parametrize("masked", [False, True])
def test_opcheck(masked):  # R04
    q, k, v = (normal(2, 100, 3, 320, seed=seed).transpose(1, 2) for seed in range(3))
    mask = torch.randn(100, 1, device=DEVICE).expand(100, 100) if masked else None
    torch.library.opcheck(torch.ops.ffpa.sdpa.default, (q, k, v, mask, True, None, False, True))


def has_inductor():
    return bool(find_spec("triton") and (shutil.which("cc") or shutil.which("gcc")))


@pytest.mark.skipif(not has_inductor(), reason="needs triton and a C compiler")
def test_compiled_in_one_graph_with_dynamic_shapes():  # R06
    def layer(q, k, v, mask):
        out = ffpa.sdpa(q * 2, k, v, is_causal=True, enable_gqa=True)
        return ffpa.sdpa(out, k, v, mask, enable_gqa=True) + 1

    compiled = torch.compile(layer, fullgraph=True, dynamic=True)
    for batch, seqlen_q, seqlen_k in [(2, 33, 40), (3, 130, 33), (0, 20, 20)]:
        q = normal(batch, 6, seqlen_q, 320)
        k, v = (normal(batch, 2, seqlen_k, 320, seed=seed) for seed in (1, 2))
        mask = torch.rand(seqlen_q, seqlen_k, device=DEVICE) > 0.3
        assert compiled(q, k, v, mask).equal(layer(q, k, v, mask))


def test_a_compiled_batch_broadcasts_as_in_torch():
    q, k = normal(1, 4, 70, 256), normal(2, 4, 80, 256, seed=1)
    compiled = torch.compile(ffpa.sdpa, fullgraph=True, dynamic=True, backend="aot_eager")
    with pytest.warns(FallbackWarning, match="expand"):
        out = compiled(q, k, k)
    assert out.shape == (2, 4, 70, 256)
    assert out.equal(functional.scaled_dot_product_attention(q, k, k))


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_the_tensors_choose_the_device():  # R01
    here, there = qkv(1, 1000), [t.to("cuda:1") for t in qkv(1, 1000)]
    out = ffpa.sdpa(*there)
    assert out.device == there[0].device and torch.cuda.current_device() == 0
    assert out.cpu().equal(ffpa.sdpa(*here).cpu())
