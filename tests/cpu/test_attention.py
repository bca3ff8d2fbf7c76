"""The public call on the emulated extension: bad input, casts, and what reaches a kernel."""

import inspect
import sys
from itertools import product

import pytest
import torch

import ffpa
from ffpa import extension
from ffpa.reference import attention_reference

pytestmark = pytest.mark.usefixtures("emulator")


def tensors(q=(1, 4, 6, 64), k=None, v=None, dtype=torch.float16, **options):
    k = k or q
    return [torch.randn(shape, dtype=dtype, **options) for shape in (q, k, v or k)]


def other(index, change):
    """Three good tensors, with one of them changed."""
    inputs = tensors()
    inputs[index] = change(inputs[index])
    return inputs


def misaligned(tensor):
    """The same values one element, 2 bytes, behind a multiple of 16 bytes."""
    memory = torch.empty(tensor.numel() + 16, dtype=tensor.dtype)
    offset = (-memory.data_ptr() % 16) // 2 + 1
    return memory[offset:][: tensor.numel()].view(tensor.shape).copy_(tensor)


def columns_of(width, start):
    """(1, 4, 6, 64) cut out of rows of another width."""
    return lambda tensor: torch.zeros(1, 4, 6, width).half()[..., start : start + 64]


REFUSED = {
    "3-D": (other(0, lambda t: t[0]), {}, ValueError, ("query", "(4, 6, 64)", "unsqueeze")),
    "5-D": (other(2, lambda t: t[None]), {}, ValueError, ("value", "(1, 1, 4, 6, 64)", "flatten")),
    "mixed dtypes": (
        other(1, torch.Tensor.float),
        {},
        TypeError,
        ("query is float16", "key float32", "value float16"),
    ),
    "float32": (tensors(dtype=torch.float32), {}, TypeError, ("float32", "float16, bfloat16")),
    "float64": (tensors(dtype=torch.float64), {}, TypeError, ("float64", "float16, bfloat16")),
    "devices": (
        other(1, lambda t: t.to("meta")),
        {},
        ValueError,
        ("query is on cpu", "key on meta", "value on cpu"),
    ),
    "device": (tensors(device="meta"), {}, ValueError, ("meta", "CUDA")),
    "headdim 65": (tensors((1, 4, 6, 65)), {}, ValueError, ("65", "multiple of 8", "1024")),
    "headdim 1032": (tensors((1, 4, 6, 1032)), {}, ValueError, ("1032", "1024")),
    "a wider value": (
        tensors((1, 2, 6, 64), (1, 2, 6, 64), (1, 2, 6, 128)),
        {},
        NotImplementedError,
        ("value has headdim 128", "64 of query", "scale=1/sqrt(64)"),
    ),
    "headdim of value": (
        tensors((1, 2, 6, 64), (1, 2, 6, 64), (1, 2, 6, 60)),
        {},
        ValueError,
        ("value has headdim 60", "multiple of 8", "pad"),
    ),
    "headdim of key": (
        tensors((1, 2, 6, 64), (1, 2, 6, 72), (1, 2, 6, 64)),
        {},
        ValueError,
        ("(1, 2, 6, 72)", "headdim have to be equal"),
    ),
    "lengths of key and value": (
        tensors((1, 4, 6, 64), (1, 4, 6, 64), (1, 4, 7, 64)),
        {},
        ValueError,
        ("(1, 4, 6, 64)", "(1, 4, 7, 64)"),
    ),
    "batch": (tensors((2, 4, 6, 64), (1, 4, 6, 64)), {}, ValueError, ("(2, 4, 6, 64)", "expand")),
    "heads": (tensors(k=(1, 2, 6, 64)), {}, ValueError, ("4 heads", "2", "enable_gqa")),
    "6/4 heads": (
        tensors((1, 6, 6, 64), (1, 4, 6, 64)),
        {"enable_gqa": True},
        ValueError,
        ("6 query heads", "4 key/value"),
    ),
    "no key heads": (
        tensors(k=(1, 0, 6, 64)),
        {"enable_gqa": True},
        ValueError,
        ("4 query heads", "0 key/value"),
    ),
    "acc": (tensors(), {"acc": "fp32"}, ValueError, ("fp32", "f16, f32")),
    "acc of bf16": (tensors(dtype=torch.bfloat16), {"acc": "f16"}, ValueError, ("bf16", "f16")),
    "kernel": (tensors(), {"kernel": "flash"}, ValueError, ("flash", "split_d-sm80")),
    "align": (tensors(), {"causal_align": "bottom"}, ValueError, ("bottom", "lower_right")),
    "scale nan": (tensors(), {"scale": float("nan")}, ValueError, ("nan", "finite")),
    "scale inf": (tensors(), {"scale": float("-inf")}, ValueError, ("-inf", "finite")),
    "scale beyond F32": (tensors(), {"scale": 1e39}, ValueError, ("1e+39", "F32")),
    "last stride": (  # S11
        other(0, lambda t: t.mT.contiguous().mT),
        {},
        ValueError,
        ("query has stride 6", "contiguous"),
    ),
    "row stride": (other(0, columns_of(65, 1)), {}, ValueError, ("query", "65", "multiples of 8")),
    "address": (other(2, misaligned), {}, ValueError, ("value starts 2 bytes past", "16", "clone")),
    "address of a slice": (other(1, columns_of(72, 4)), {}, ValueError, ("key starts", "8 bytes")),
    "a mask that is no tensor": (
        tensors(),
        {"attn_mask": [[True]]},
        TypeError,
        ("attn_mask is a list", "Tensor"),
    ),
    "a mask of integers": (
        tensors(),
        {"attn_mask": torch.ones(6, 6, dtype=torch.int32)},
        TypeError,
        ("attn_mask is int32", "float16", "bool"),
    ),
    "a mask of other sizes": (
        tensors(),
        {"attn_mask": torch.ones(6, 7, dtype=torch.bool)},
        ValueError,
        ("(6, 7)", "(1, 4, 6, 6)"),
    ),
    "a mask of five dimensions": (
        tensors(),
        {"attn_mask": torch.ones(1, 1, 1, 6, 6, dtype=torch.bool)},
        ValueError,
        ("(1, 1, 1, 6, 6)", "(1, 4, 6, 6)"),
    ),
    "a mask elsewhere": (
        tensors(),
        {"attn_mask": torch.ones(6, 6, dtype=torch.bool, device="meta")},
        ValueError,
        ("attn_mask is on meta", "query on cpu"),
    ),
    "a mask, F16 sums and a kernel without": (
        tensors(),
        {"attn_mask": torch.ones(6, 6, dtype=torch.bool), "acc": "f16", "kernel": "split_d-sm90"},
        NotImplementedError,
        ("attn_mask is given", "acc=f16", "acc=f32"),
    ),
    "a mask and a kernel without": (
        tensors(),
        {"attn_mask": torch.ones(6, 6, dtype=torch.bool), "kernel": "naive"},
        NotImplementedError,
        ("attn_mask is given", "naive takes none"),
    ),
    "gradient of a mask": (
        tensors(),
        {"attn_mask": torch.zeros(6, 6, requires_grad=True)},
        NotImplementedError,
        ("forward only", "no_grad"),
    ),
    "gradient": (
        other(2, lambda t: t.requires_grad_()),
        {},
        NotImplementedError,
        ("forward only", "no_grad"),
    ),
    "no tensor": (other(0, torch.Tensor.numpy), {}, TypeError, ("query is a ndarray", "Tensor")),
}


@pytest.mark.parametrize("inputs, options, error, words", REFUSED.values(), ids=REFUSED)
def test_bad_input_is_one_sentence_before_any_launch(emulator, inputs, options, error, words):
    with pytest.raises(error) as caught:
        ffpa.attention(*inputs, **options)
    reason = str(caught.value)
    assert all(word in reason for word in words), reason
    assert "\n" not in reason and ". " not in reason
    support = ffpa.supports(*inputs, **options)
    assert not support and support.reason == reason  # R13: one predicate
    assert not emulator.launches


def test_supports_has_the_signature_of_attention():
    signatures = [inspect.signature(f).parameters for f in (ffpa.attention, ffpa.supports)]
    assert signatures[0] == signatures[1]


@pytest.mark.parametrize("headdim", range(8, 1033, 8))
def test_supports_agrees_with_the_call(emulator, headdim):  # R13
    for dtype in (torch.float16, torch.bfloat16):
        inputs = tensors((1, 1, 1, headdim), dtype=dtype)
        masks = (None, *(torch.ones(1, 1, dtype=kind) for kind in (torch.bool, dtype, torch.float)))
        for acc, mask in product(("f32", "f16", "qk16_pv32"), masks):
            options = {"acc": acc, "attn_mask": mask}
            support = ffpa.supports(*inputs, **options)
            if support:
                ffpa.attention(*inputs, **options)
                assert emulator.launches.pop()[0] == support.instance["name"]
            else:
                with pytest.raises((ValueError, NotImplementedError)) as caught:
                    ffpa.attention(*inputs, **options)
                assert str(caught.value) == support.reason


def test_no_grad_takes_inputs_that_require_one():  # R08
    q, k, v = tensors()
    q.requires_grad_()
    with torch.no_grad():
        out = ffpa.attention(q, k, v)
    assert not out.requires_grad and ffpa.attention(q.detach(), k, v).equal(out)


def test_autocast_casts_to_its_dtype():  # R07
    q, k, v = (t.float() for t in tensors())
    half = ffpa.attention(q.half(), k.half(), v.half())
    with torch.autocast("cpu", torch.float16):
        assert ffpa.attention(q, k, v.half()).equal(half)
        assert ffpa.supports(q, k, v.half())
        with pytest.raises(TypeError, match="float64"):
            ffpa.attention(q.double(), k.double(), v.double())
    with torch.autocast("cpu", torch.bfloat16):
        assert ffpa.attention(q, k, v.half()).dtype == torch.bfloat16
    with pytest.raises(TypeError, match="float32"):
        ffpa.attention(q, k, v.half())


@pytest.mark.parametrize("seqlen_q", [1, 64])
@pytest.mark.parametrize("nheads_q, nheads_kv", [(5, 1), (6, 1), (7, 1), (6, 2), (16, 1), (24, 4)])
def test_gqa_reaches_the_kernel_unexpanded(nheads_q, nheads_kv, seqlen_q):  # S06
    q, k, v = tensors((2, nheads_q, seqlen_q, 512), (2, nheads_kv, 5, 512))
    out = ffpa.attention(q, k, v, enable_gqa=True)
    repeated = (t.repeat_interleave(nheads_q // nheads_kv, 1) for t in (k, v))
    assert out.equal(ffpa.attention(q, *repeated))


@pytest.mark.parametrize("headdim, headdim_v", [(192, 128), (576, 512), (64, 8), (1024, 1016)])
@pytest.mark.parametrize("seqlen_q", [1, 600])
def test_a_narrower_value(emulator, seqlen_q, headdim, headdim_v):  # S23
    q, k, v = tensors((1, 2, seqlen_q, headdim), (1, 1, 70, headdim), (1, 1, 70, headdim_v))
    q = q.transpose(1, 2).contiguous().transpose(1, 2)
    v = torch.cat([v, v + 1], -1)[..., :headdim_v]
    options = {"is_causal": True, "return_lse": True}
    out, lse = ffpa.attention(q, k, v, enable_gqa=True, **options)
    exact, exact_lse = attention_reference(q, k, v, **options)
    assert out.equal(exact.half()) and lse.equal(exact_lse.float())
    assert out.transpose(1, 2).is_contiguous()
    for empty in (q[:0], k[:0], v[:0]), (q, k[:, :, :0], v[:, :, :0]):
        out = ffpa.attention(*empty, enable_gqa=True)
        assert out.shape == (*empty[0].shape[:3], headdim_v) and not out.any()


def test_named_kernels_and_the_default(emulator):
    inputs = tensors((1, 1, 513, 500 // 8 * 8))
    for kernel in ("auto", "naive", "split_d-sm80", "split_d-sm80/d576/fp16/f32/stages1"):
        ffpa.attention(*inputs, kernel=kernel)
    assert [name for name, *_ in emulator.launches] == [
        "split_d-sm90/d512/fp16/f32",
        "naive/d1024/fp16/f32",
        "split_d-sm80/d512/fp16/f32",
        "split_d-sm80/d576/fp16/f32/stages1",
    ]


@pytest.mark.parametrize("align", ["upper_left", "lower_right"])
@pytest.mark.parametrize("seqlen_q, seqlen_k", [(2, 5), (5, 2), (1, 8), (4, 4)])
def test_causal_is_the_reference_with_both_alignments(seqlen_q, seqlen_k, align):  # N09, S01, S02
    q, k, v = tensors((1, 2, seqlen_q, 64), (1, 2, seqlen_k, 64))
    options = {"is_causal": True, "causal_align": align, "return_lse": True}
    out, lse = ffpa.attention(q, k, v, **options)
    exact, exact_lse = attention_reference(q, k, v, **options)
    assert out.equal(exact.half()) and lse.equal(exact_lse.float())


@pytest.mark.parametrize("layout", ["whole", "row", "column", "heads", "transposed", "odd"])
@pytest.mark.parametrize("dtype", [torch.bool, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("seqlen_q, kernel", [(1, "split_kv-sm80"), (40, "split_d-sm90")])
def test_masks_broadcast_and_may_lie_anyhow(emulator, dtype, layout, seqlen_q, kernel):  # S12, S13
    q, k, v = tensors((2, 4, seqlen_q, 64), (2, 2, 33, 64), dtype=torch.bfloat16)
    shape = {
        "row": (33,), "column": (seqlen_q, 1), "heads": (4, 1, 33), "transposed": (33, seqlen_q),
        "odd": (2, 1, seqlen_q, 35),
    }.get(layout, (2, 4, seqlen_q, 33))  # fmt: skip
    mask = torch.randn(shape)
    mask = mask > 0 if dtype == torch.bool else mask.to(dtype)
    mask = mask.mT if layout == "transposed" else mask
    mask = mask[..., 1:-1] if layout == "odd" else mask
    for options in ({}, {"is_causal": True, "causal_align": "lower_right"}):
        options |= {"attn_mask": mask, "return_lse": True}
        out, lse = ffpa.attention(q, k, v, enable_gqa=True, **options)
        exact, exact_lse = attention_reference(q, k, v, **options)
        torch.testing.assert_close(out, exact.bfloat16(), rtol=0, atol=0)
        assert lse.equal(exact_lse.float())
    assert {name.split("/")[0] for name, *_ in emulator.launches} == {kernel}
    ffpa.attention(q, k, v, enable_gqa=True, attn_mask=mask, kernel="split_d-sm80")
    assert emulator.launches[-1][0] == "split_d-sm80/d256/bf16/f32/masked"


def test_a_missing_extension_names_the_command(monkeypatch):
    monkeypatch.undo()  # the real import
    monkeypatch.setitem(sys.modules, "ffpa._C", None)
    extension.module.cache_clear()
    with pytest.raises(ImportError, match="pip install"):
        ffpa.kernels()
