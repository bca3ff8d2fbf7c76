"""Views give the bits of contiguous tensors; offsets are 64-bit; memory is the output's own."""

import pytest
import torch
from harness import DEVICE, normal, over, sample

import ffpa
from ffpa.reference import attention_reference

pytestmark = pytest.mark.gpu

GIB = 2**30


def heads_second(tensor):
    """(B, N, H, D) in memory."""
    return tensor.transpose(1, 2).contiguous().transpose(1, 2)


def fused(tensor):
    """One of three along the head dimension of one projection."""
    return torch.cat([tensor, tensor + 1, tensor - 1], -1)[..., : tensor.shape[3]]


def view_transpose(tensor):
    """(B, N, H·D), viewed and transposed."""
    batch, heads, seqlen, headdim = tensor.shape
    flat = tensor.transpose(1, 2).reshape(batch, seqlen, heads * headdim)
    return flat.view(batch, seqlen, heads, headdim).transpose(1, 2)


def sliced(tensor):
    """The middle of a larger buffer of NaN, so that nothing starts at its begin."""
    batch, heads, seqlen, headdim = tensor.shape
    memory = tensor.new_full((batch + 1, heads + 1, seqlen + 5, headdim + 16), torch.nan)
    view = memory[1:, 1:, 2:-3, 8:-8]
    return view.copy_(tensor)


LAYOUTS = [heads_second, fused, view_transpose, sliced]


@pytest.mark.parametrize("layout", LAYOUTS)
@over(sample(64, 320, 512, 1024))
def test_views_give_the_bits_of_contiguous_tensors(instance, layout):  # S10, S12
    headdim = instance["headdim"] - 8
    tensors = [
        normal(2, heads, seqlen, headdim, dtype=instance["dtype"], seed=heads + seqlen)
        for heads, seqlen in ((4, 62), (2, 131), (2, 132))
    ]
    tensors[2] = tensors[2][:, :, :131].contiguous()
    options = {
        "is_causal": True, "enable_gqa": True, "return_lse": True,
        "acc": instance["acc"], "kernel": instance["name"],
    }  # fmt: skip
    expected = ffpa.attention(*tensors, **options)
    for turn in range(4):  # each argument on its own, then all
        views = [layout(t) if turn in (i, 3) else t for i, t in enumerate(tensors)]
        out, lse = ffpa.attention(*views, **options)
        assert out.equal(expected[0]) and lse.equal(expected[1])
        assert out.stride() == torch.empty_like(views[0]).stride()


@over(sample(512))
def test_expanded_keys(instance):
    """A stride of 0: one head, or one batch, seen as many."""
    q = normal(3, 4, 33, 512, dtype=instance["dtype"])
    k = normal(1, 1, 70, 512, dtype=instance["dtype"], seed=1).expand(3, 4, 70, 512)
    options = {"acc": instance["acc"], "kernel": instance["name"]}
    expected = ffpa.attention(q, k.contiguous(), k.contiguous(), **options)
    assert ffpa.attention(q, k, k, **options).equal(expected)


def needs_memory(gib):
    size = torch.cuda.get_device_properties(DEVICE).total_memory if torch.cuda.is_available() else 0
    return pytest.mark.skipif(size < gib * GIB, reason=f"needs {gib} GiB of device memory")


@needs_memory(24)
def test_query_offsets_beyond_32_bits():  # S17
    seqlen = 65600  # 64 heads of 512 columns: 2,149,580,800 elements
    k, v = (normal(1, 64, 64, 512, seed=seed) for seed in (1, 2))
    q = torch.empty(1, 64, seqlen, 512, device=DEVICE, dtype=k.dtype).normal_()
    out, lse = ffpa.attention(q, k, v, return_lse=True)
    tail = ffpa.attention(q[:, :, -64:].contiguous(), k, v, return_lse=True)
    assert out[:, :, -64:].equal(tail[0]) and lse[:, :, -64:].equal(tail[1])


@needs_memory(24)
def test_key_offsets_beyond_32_bits():  # S17, for key and value
    seqlen = 4_194_400  # of 512 columns: 2,147,532,800 elements
    q = normal(1, 1, 16, 512)
    k = torch.empty(1, 1, seqlen, 512, device=DEVICE, dtype=q.dtype).normal_()
    half = seqlen // 2
    (left, left_lse), (right, right_lse) = (
        ffpa.attention(q, part, part, return_lse=True) for part in (k[:, :, :half], k[:, :, half:])
    )
    out, lse = ffpa.attention(q, k, k, return_lse=True)
    total = torch.logaddexp(left_lse, right_lse)
    merged = sum(
        part * (part_lse - total).exp()[..., None]
        for part, part_lse in ((left, left_lse), (right, right_lse))
    )
    torch.testing.assert_close(lse, total, rtol=0, atol=1e-4)
    torch.testing.assert_close(out.float(), merged, rtol=1e-2, atol=1e-5)


@pytest.mark.parametrize(
    "batch, nheads_q, nheads_kv, seqlen_q, seqlen_k",
    [(1, 32, 4, 8192, 8192), (24, 16, 2, 256, 12288)],
    ids=["S07", "S08"],
)
@needs_memory(12)
def test_memory_is_that_of_the_output(batch, nheads_q, nheads_kv, seqlen_q, seqlen_k):
    q = normal(batch, nheads_q, seqlen_q, 512, dtype="bf16")
    k, v = (normal(batch, nheads_kv, seqlen_k, 512, dtype="bf16", seed=seed) for seed in (1, 2))
    torch.cuda.reset_peak_memory_stats(DEVICE)
    before = torch.cuda.memory_allocated(DEVICE)
    out = ffpa.attention(q, k, v, enable_gqa=True)
    extra = torch.cuda.max_memory_allocated(DEVICE) - before
    assert extra <= out.numel() * out.element_size() + 2**20
    rows = torch.tensor([0, seqlen_q // 2, seqlen_q - 1], device=DEVICE)
    exact = attention_reference(q, k, v, rows=rows)
    torch.testing.assert_close(out[:, :, rows].double(), exact, rtol=2e-2, atol=5e-4)
