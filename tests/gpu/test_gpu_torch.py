"""Inside torch: streams, CUDA graphs, torch.compile, autocast, several GPUs, repeated runs."""

import itertools
import shutil
from importlib.util import find_spec

import pytest
import torch
from harness import DEVICE, DTYPES, INSTANCES, normal, over, sample

import ffpa
from ffpa.support import FEW_QUERIES, FEW_ROWS

pytestmark = pytest.mark.gpu


def qkv(seqlen=130, headdim=320, heads=2, dtype="fp16"):
    return [normal(2, heads, seqlen, headdim, dtype=dtype, seed=seed) for seed in range(3)]


@over(sample(64, 320, 576, 1024))
def test_thirty_runs_give_the_same_bits(instance):  # N17
    q, k, v = qkv(1000, instance["headdim"], dtype=instance["dtype"])
    options = {"is_causal": True, "acc": instance["acc"], "kernel": instance["name"]}
    first = ffpa.attention(q, k, v, **options)
    assert all(ffpa.attention(q, k, v, **options).equal(first) for _ in range(29))


def test_the_callers_stream_is_used():  # R02
    q, k, v = qkv()
    expected = ffpa.attention(q, k, v)
    stream = torch.cuda.Stream(DEVICE)
    late = torch.full_like(q, torch.nan)
    torch.cuda.synchronize(DEVICE)
    with torch.cuda.stream(stream):
        for _ in range(100):
            late.fill_(torch.nan)
            torch.cuda._sleep(200_000)  # cycles: q arrives well after the launch was queued
            late.copy_(q)
            out = ffpa.attention(late, k, v)
            assert out.equal(expected)


@over(sample(320, 1024))
def test_cuda_graph_replay(instance):
    q, k, v = qkv(headdim=instance["headdim"], dtype=instance["dtype"])
    options = {"is_causal": True, "acc": instance["acc"], "kernel": instance["name"]}
    ffpa.attention(q, k, v, **options)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out, lse = ffpa.attention(q, k, v, return_lse=True, **options)
    for _ in range(2):
        q.mul_(-0.5)
        out.fill_(torch.nan)
        graph.replay()
        expected = ffpa.attention(q, k, v, return_lse=True, **options)
        assert out.equal(expected[0]) and lse.equal(expected[1])


@pytest.mark.parametrize("return_lse", [False, True])
def test_opcheck(return_lse):  # R04
    q, k, v = (normal(2, 100, 3, 320, seed=seed).transpose(1, 2) for seed in range(3))
    options = (True, None, False, "f32", "auto", "upper_left", None, return_lse)
    torch.library.opcheck(torch.ops.ffpa.forward.default, (q, k, v, *options))


def has_inductor():
    return bool(find_spec("triton") and (shutil.which("cc") or shutil.which("gcc")))


@pytest.mark.parametrize(
    "backend",
    [
        "aot_eager",
        pytest.param(
            "inductor",
            marks=pytest.mark.skipif(not has_inductor(), reason="needs triton and a C compiler"),
        ),
    ],
)
def test_compiled_in_one_graph_with_dynamic_shapes(backend):  # R06
    def layer(q, k, v):
        return ffpa.attention(q * 2, k, v, is_causal=True, enable_gqa=True) + 1

    compiled = torch.compile(layer, fullgraph=True, dynamic=True, backend=backend)
    for batch, seqlen in [(2, 33), (3, 130), (1, 1), (0, 20)]:
        q = normal(batch, 6, seqlen, 320)
        k, v = (normal(batch, 2, seqlen, 320, seed=seed) for seed in (1, 2))
        assert compiled(q, k, v).equal(layer(q, k, v))


def test_autocast():  # R07
    q, k, v = (t.float() for t in qkv())
    with torch.autocast("cuda", torch.float16):
        out = ffpa.attention(q, k, v.half())
    assert out.equal(ffpa.attention(q.half(), k.half(), v.half()))
    with pytest.raises(TypeError, match="query is float32, key float32 and value float16"):
        ffpa.attention(q, k, v.half())


def test_a_gradient_raises_at_the_call():  # R08
    q, k, v = qkv()
    q.requires_grad_()
    with pytest.raises(NotImplementedError, match="forward only"):
        ffpa.attention(q, k, v)
    with torch.no_grad():
        assert not ffpa.attention(q, k, v).requires_grad


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_the_tensors_choose_the_device():  # R01
    here, there = qkv(), [t.to("cuda:1") for t in qkv()]
    assert torch.cuda.current_device() == 0
    out = ffpa.attention(*there)
    assert out.device == there[0].device and torch.cuda.current_device() == 0
    assert out.cpu().equal(ffpa.attention(*here).cpu())
    with pytest.raises(ValueError, match="key on cuda:1"):
        ffpa.attention(here[0], there[1], there[2])


@pytest.mark.parametrize("seqlen", [FEW_QUERIES, FEW_ROWS + 88])
@pytest.mark.parametrize("acc", ["f32", "f16", "qk32_pv16", "qk16_pv32", "f16f32"])
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_supports_agrees_with_the_call(dtype, acc, seqlen):  # R13
    """On the answer and on the instance, by the name of each kernel and without, masked or not."""
    kinds = (torch.bool, DTYPES[dtype], torch.float32)
    masks = [None, *(torch.ones(seqlen, seqlen, dtype=kind, device=DEVICE) for kind in kinds)]
    kernels = ("auto", *dict.fromkeys(i["id"] for i in INSTANCES))
    ran = set()
    for headdim in (4, 12, *range(8, 1041, 8)):
        q = normal(1, 1, seqlen, headdim, dtype=dtype)
        for kernel, mask in itertools.product(kernels, masks):
            call = {"acc": acc, "kernel": kernel, "attn_mask": mask}
            support = ffpa.supports(q, q, q, **call)
            try:
                ffpa.attention(q, q, q, **call)
            except (ValueError, NotImplementedError, RuntimeError) as error:
                assert not support and support.reason == str(error)
            else:
                assert support and support.instance["headdim"] >= headdim
                assert ffpa.last_kernel() == support.instance["name"]
                ran.add((support.kernel, mask is not None))
    own = [i for i in INSTANCES if (i["dtype"], i["acc"]) == (dtype, acc)]
    assert {kernel for kernel, masked in ran if masked} == {i["id"] for i in own if i["masks"]}
    assert {kernel for kernel, masked in ran if not masked} == {i["id"] for i in own}


def test_empty_inputs_launch_nothing():  # S15
    for batch, heads, seqlen_q, seqlen_k in [
        (0, 2, 3, 3),
        (1, 0, 3, 3),
        (1, 2, 0, 3),
        (1, 2, 3, 0),
    ]:
        q, k = (normal(batch, heads, n, 64) for n in (seqlen_q, seqlen_k))
        out, lse = ffpa.attention(q, k, k, return_lse=True)
        assert out.shape == q.shape and not out.any() and (lse == -torch.inf).all()


def test_cpu_tensors_are_refused():  # R14
    q = torch.zeros(1, 1, 4, 512).half()
    with pytest.raises(ValueError, match="CUDA"):
        ffpa.attention(q, q, q)
