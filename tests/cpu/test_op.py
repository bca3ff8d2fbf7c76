"""The custom op: layouts, empties, scales, and what torch's compiler is told about it."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import ffpa
from ffpa.reference import attention_reference

pytestmark = pytest.mark.usefixtures("emulator")


def heads_first(batch, heads, seqlen, headdim):
    return torch.randn(batch, heads, seqlen, headdim).half()


def heads_second(batch, heads, seqlen, headdim):
    """(B, N, H, D) in memory."""
    return torch.randn(batch, seqlen, heads, headdim).half().transpose(1, 2)


def fused(batch, heads, seqlen, headdim):
    """One of three, from one projection."""
    return torch.randn(batch, seqlen, heads, 3, headdim).half()[:, :, :, 1].transpose(1, 2)


def padded(batch, heads, seqlen, headdim):
    return torch.randn(batch, heads, seqlen + 3, headdim + 8).half()[:, :, 1:-2, :headdim]


def expanded(batch, heads, seqlen, headdim):
    """One head, seen as many."""
    return torch.randn(batch, 1, seqlen, headdim).half().expand(batch, heads, seqlen, headdim)


def odd_single_head(batch, heads, seqlen, headdim):
    """A dimension of size 1 may have any stride, even one that is not a multiple of 8."""
    tensor = torch.randn(batch, 1, seqlen, headdim).half()
    return tensor.as_strided(tensor.shape, (seqlen * headdim, 3, headdim, 1))


LAYOUTS = [heads_first, heads_second, fused, padded, expanded]


@pytest.mark.parametrize("layout_kv", LAYOUTS)
@pytest.mark.parametrize("layout_q", LAYOUTS)
def test_layouts_give_the_bits_of_contiguous_inputs(layout_q, layout_kv):  # S10
    q, k, v = layout_q(2, 3, 7, 72), layout_kv(2, 3, 9, 72), layout_kv(2, 3, 9, 72)
    out, lse = ffpa.attention(q, k, v, is_causal=True, return_lse=True)
    plain = ffpa.attention(*(t.contiguous() for t in (q, k, v)), is_causal=True, return_lse=True)
    assert out.equal(plain[0]) and lse.equal(plain[1])
    assert out.stride() == torch.empty_like(q).stride() and lse.is_contiguous()


def test_a_dimension_of_one_may_have_any_stride():
    q, k, v = (odd_single_head(2, 1, n, 64) for n in (3, 5, 5))
    assert ffpa.attention(q, k, v).equal(ffpa.attention(*(t.clone() for t in (q, k, v))))


@pytest.mark.parametrize(
    "q, kv",
    [
        ((0, 2, 3, 64), (0, 2, 5, 64)),
        ((1, 0, 3, 64), (1, 0, 5, 64)),
        ((1, 2, 0, 64), (1, 2, 5, 64)),
    ],
)
def test_empty_outputs(emulator, q, kv):  # S15
    inputs = [torch.randn(shape).half() for shape in (q, kv, kv)]
    out, lse = ffpa.attention(*inputs, return_lse=True)
    assert out.shape == q and lse.shape == q[:3] and not emulator.launches


def test_no_keys_give_zeros_and_no_mass(emulator):  # S15
    q, none = torch.randn(1, 2, 3, 64).half(), torch.randn(1, 2, 0, 64).half()
    for causal in (False, True):
        out, lse = ffpa.attention(q, none, none, is_causal=causal, return_lse=True)
        assert out.shape == q.shape and not out.any() and (lse == -torch.inf).all()
    assert not emulator.launches


@pytest.mark.parametrize("scale", [-1.0, -1e-3, 0.0, -0.0, 1e-42, 0.25, None])
def test_any_finite_scale(scale):  # N06
    q, k, v = (heads_second(2, 2, n, 64) for n in (6, 9, 9))
    before = q.clone()
    out, lse = ffpa.attention(q, k, v, scale=scale, is_causal=True, return_lse=True)
    exact = attention_reference(q, k, v, scale=scale, is_causal=True, return_lse=True)
    assert out.equal(exact[0].half())
    torch.testing.assert_close(lse, exact[1].float(), rtol=1e-6, atol=1e-30)
    assert q.equal(before) and out.stride() == q.stride()


@pytest.mark.parametrize("return_lse", [False, True])
@pytest.mark.parametrize("layout", [heads_first, heads_second, fused, padded])
def test_opcheck(layout, return_lse):  # R04
    inputs = [layout(2, 3, n, 320) for n in (10, 12, 12)]
    options = (True, None, False, "f32", "auto", "upper_left", None, return_lse)
    torch.library.opcheck(torch.ops.ffpa.forward.default, (*inputs, *options))


def test_the_fake_needs_no_gpu(monkeypatch):
    monkeypatch.undo()  # the real device type
    with FakeTensorMode():
        q, k = (torch.empty(2, n, 3, 320, device="cuda:0").bfloat16() for n in (100, 70))
        q, k = q.transpose(1, 2), k.transpose(1, 2)
        out, lse = ffpa.attention(q, k, k, return_lse=True)
        assert (out.shape, out.stride(), out.dtype) == (q.shape, q.stride(), q.dtype)
        assert lse.shape == (2, 3, 100) and lse.dtype == torch.float32 and out.device == q.device
        with pytest.raises(ValueError, match="multiple of 8"):
            narrow = torch.empty(1, 1, 4, 60, device="cuda:0").half()
            ffpa.attention(narrow, narrow, narrow)


def test_compiled_with_dynamic_shapes_in_one_graph(emulator):  # R06
    def layer(q, k, v):
        return ffpa.attention(q + 1, k, v, is_causal=True, enable_gqa=True) * 2

    compiled = torch.compile(layer, fullgraph=True, dynamic=True, backend="aot_eager")
    for batch, seqlen_q, seqlen_k in [(2, 10, 12), (3, 7, 30), (1, 1, 5), (0, 4, 4), (2, 5, 0)]:
        q = heads_second(batch, 6, seqlen_q, 64)
        k, v = (heads_first(batch, 2, seqlen_k, 64) for _ in range(2))
        out, expected = compiled(q, k, v), layer(q, k, v)
        assert out.equal(expected) and out.stride() == expected.stride()


def test_compiled_under_autocast():  # R07
    def layer(q, k, v):
        with torch.autocast("cpu", torch.bfloat16):
            return ffpa.attention(q, k, v)

    inputs = [torch.randn(1, 2, 4, 64) for _ in range(3)]
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    assert compiled(*inputs).equal(layer(*inputs))


def test_compiled_calls_that_ask_for_a_gradient_raise():  # R08
    compiled = torch.compile(ffpa.attention, fullgraph=True, backend="aot_eager")
    q, k, v = (heads_first(1, 2, 4, 64) for _ in range(3))
    with pytest.raises(Exception, match=r"forward only|Observed exception"):
        compiled(q.requires_grad_(), k, v)
