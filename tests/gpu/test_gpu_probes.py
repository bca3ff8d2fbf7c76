"""Worked values: means of visible indexes, sums beyond the range of F16, and the logarithm."""

import pytest
import torch
from harness import DEVICE, DTYPES, INSTANCES, over, poisoned, sample

import ffpa

pytestmark = pytest.mark.gpu


def zeros(seqlen, headdim, dtype):
    return torch.zeros(1, 1, seqlen, headdim, device=DEVICE, dtype=DTYPES[dtype])


def indexes(seqlen, headdim, dtype):
    """V[n] = n."""
    return torch.arange(seqlen, device=DEVICE).to(DTYPES[dtype])[:, None].repeat(1, 1, 1, headdim)


def call(instance, q, k, v, **options):
    return ffpa.attention(q, k, v, acc=instance["acc"], kernel=instance["name"], **options)


def probe(instance, seqlen_q, seqlen_k, **options):
    """q = k = 0 and V[n] = n: each row is the mean of the key indexes that it sees.

    NaN lies behind the last key, where a tile loads beyond it.
    """
    headdim, dtype = instance["headdim"] - 8, instance["dtype"]
    q, k = zeros(seqlen_q, headdim, dtype), poisoned(zeros(seqlen_k, headdim, dtype))
    out = call(instance, q, k, poisoned(indexes(seqlen_k, headdim, dtype)), **options)
    # F16 sums round, and split_d-sm90 sums the halves of the columns in two orders of the keys.
    rounding = 0.0 if instance["acc"] == "f32" else 2**-8
    torch.testing.assert_close(out, out[..., :1].expand_as(out), rtol=rounding, atol=0)
    return out[0, 0, :, 0].tolist()


PROBES = {
    "N06 causal, scale -1": (3, 3, {"is_causal": True, "scale": -1.0}, [0, 0.5, 1]),
    "N06 scale 0": (1, 5, {"scale": 0.0}, [2]),
    "N09 upper left": (5, 2, {"is_causal": True}, [0, 0.5, 0.5, 0.5, 0.5]),
    "N09 lower right": (5, 2, {"is_causal": True, "causal_align": "lower_right"}, 4 * [0] + [0.5]),
    "S01 upper left": (2, 5, {"is_causal": True}, [0, 0.5]),
    "S01 lower right": (2, 5, {"is_causal": True, "causal_align": "lower_right"}, [1.5, 2]),
    "S02 upper left": (1, 8, {"is_causal": True}, [0]),
    "S02 lower right": (1, 8, {"is_causal": True, "causal_align": "lower_right"}, [3.5]),
    **{f"N12 {n} keys": (1, n, {}, [(n - 1) / 2]) for n in (1, 31, 33, 63, 65, 127)},
}


@pytest.mark.parametrize("seqlen_q, seqlen_k, options, means", PROBES.values(), ids=PROBES)
@over(sample(64, 320, 576, 1024))
def test_index_probe(instance, seqlen_q, seqlen_k, options, means):
    # Off by one position is off by 0.5; bf16 rounds 63 to within 0.25.
    assert probe(instance, seqlen_q, seqlen_k, **options) == pytest.approx(means, abs=0.3)


@pytest.mark.parametrize(
    "align, seqlen_q, first", [("upper_left", 257, 0), ("lower_right", 77, 180)]
)
@over(INSTANCES)
def test_every_causal_row_sees_its_own_keys(instance, align, seqlen_q, first):
    """All rows, over several tiles; row i is the mean of 0 to first + i."""
    means = probe(instance, seqlen_q, 257, is_causal=True, causal_align=align)
    want = [(first + row) / 2 for row in range(seqlen_q)]
    assert means == pytest.approx(want, abs=0.3, rel=2**-8)


@over(sample(512))
def test_pv_stays_in_range(instance):  # N01: a plain F16 sum is inf
    q, k = (zeros(n, instance["headdim"], instance["dtype"]) for n in (64, 4096))
    assert (call(instance, q, k, torch.full_like(k, 16.0)) == 16.0).all()


@over(sample(64, 512, 1024, acc=("f16", "qk32_pv16", "f16f32")))
def test_values_up_to_the_limit_that_is_told(instance):  # N01
    limit = 63 if instance["id"] == "split_d-sm90" else 1023
    q, k = (zeros(n, instance["headdim"], instance["dtype"]) for n in (64, 8192))
    out = call(instance, q, k, torch.full_like(k, limit))
    # No overflow; but what 16 equal keys add to an F16 sum that large is rounded to the same side
    # every time, by up to one part in 64 of it.
    torch.testing.assert_close(out, torch.full_like(out, limit), rtol=2**-6, atol=0)


@over(sample(64))
def test_pv_does_not_stall(instance):  # N02: a plain F16 sum stops at 32768 and gives 0.5
    longest = instance["max_seqlen_k"] or 65536
    q, k = (zeros(n, 64, instance["dtype"]) for n in (64, longest))
    assert (call(instance, q, k, torch.ones_like(k)) == 1.0).all()
    if longest < 65536:
        k = zeros(65536, 64, instance["dtype"])
        with pytest.raises(NotImplementedError, match="65536 is above"):
            call(instance, q, k, torch.ones_like(k))


@pytest.mark.parametrize("headdim", [248, 256, 512, 1024])
def test_scores_stay_in_range(headdim):  # N03: q·k is up to 262144 before scaling
    for instance in sample(headdim):
        q, k = (zeros(n, headdim, instance["dtype"]) + 16 for n in (3, 4))
        out = call(instance, q, k, indexes(4, headdim, instance["dtype"]))
        # All P are alike, so that their rounding to the dtype does not average out.
        rounding = torch.finfo(out.dtype).eps + 2e-3
        torch.testing.assert_close(out, torch.full_like(out, 1.5), rtol=rounding, atol=0)


@over(sample(64, 512))
def test_the_logarithm_is_natural(instance):  # N13
    headdim, dtype = instance["headdim"], instance["dtype"]
    q, k = (zeros(n, headdim, dtype) for n in (1, 1024))
    _, lse = call(instance, q, k, k, return_lse=True)
    assert lse.item() == pytest.approx(6.931472, abs=1e-5)
    _, lse = call(instance, q + 1, k + 1, k, scale=1 / headdim, return_lse=True)
    assert lse.item() == pytest.approx(7.931472, abs=1e-5)
