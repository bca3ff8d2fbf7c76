"""The CPU model of the accumulators: exact where it has to be, as wrong as F16 is elsewhere."""

import math
import re
from pathlib import Path

import pytest
import torch

from ffpa.numerics import MAX_ADDENDS, MAX_BD, ROUNDINGS, STEP, attention_model, error_bound
from ffpa.reference import attention_reference
from ffpa_build import manifest

ROOT = Path(__file__).parents[2]

DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}


def normal(*shape, dtype="fp16", seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator).to(DTYPES[dtype])


def relative_rms(out, exact):
    return ((out.double() - exact).norm() / exact.norm()).item()


def model_error(seqlen_k, headdim, acc="f32", dtype="fp16", mean=0.0, input_scale=1.0):
    q = normal(1, 1, 32, headdim, dtype=dtype) * input_scale
    k, v = (normal(1, 1, seqlen_k, headdim, dtype=dtype, seed=seed) for seed in (1, 2))
    k, v = k * input_scale, v + mean
    return relative_rms(attention_model(q, k, v, acc=acc), attention_reference(q, k, v))


def in_half_precision(q, k, v, hidden):
    """Textbook attention in torch, each intermediate result stored in the input dtype."""
    scores = (q @ k.mT) * q.shape[-1] ** -0.5
    return scores.masked_fill(hidden, -torch.inf).softmax(-1) @ v


MASKS = {
    "full": {},
    "upper_left": {"is_causal": True},
    "lower_right": {"is_causal": True, "causal_align": "lower_right"},
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "seqlen_q, seqlen_k, nheads_q, nheads_kv, headdim",
    [(1, 1, 1, 1, 8), (17, 129, 4, 4, 72), (65, 63, 6, 2, 320), (33, 200, 5, 1, 64)],
)
def test_f32_is_exact_to_the_rounding_of_p_and_out(
    seqlen_q, seqlen_k, nheads_q, nheads_kv, headdim, dtype, mask
):
    q = normal(2, nheads_q, seqlen_q, headdim, dtype=dtype)
    k, v = (normal(2, nheads_kv, seqlen_k, headdim, dtype=dtype, seed=s) for s in (1, 2))
    out, lse = attention_model(q, k, v, return_lse=True, **MASKS[mask])
    exact, exact_lse = attention_reference(q, k, v, return_lse=True, **MASKS[mask])
    assert out.dtype == q.dtype and out.shape == q.shape and lse.dtype == torch.float32
    assert relative_rms(out, exact) < error_bound("f32", dtype, seqlen_k, headdim)
    torch.testing.assert_close(lse.double(), exact_lse, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("headdim", [64, 320, 512, 1024])
@pytest.mark.parametrize("causal", [False, True])
def test_f32_is_within_twice_the_error_of_half_precision(headdim, dtype, causal):  # N15
    q, k, v = (normal(1, 2, 256, headdim, dtype=dtype, seed=seed) for seed in range(3))
    hidden = torch.ones(256, 256).triu(1).bool() if causal else torch.zeros(256, 256).bool()
    exact = attention_reference(q, k, v, is_causal=causal)
    error = (attention_model(q, k, v, is_causal=causal).double() - exact).abs().max()
    usual = (in_half_precision(q, k, v, hidden).double() - exact).abs().max()
    assert error <= 2 * usual


def with_exact_maximum(q, k, v, hidden):
    """F32 softmax whose P is rounded relative to the row's own maximum, as in torch's kernels."""
    scores = (q.float() @ k.float().mT * q.shape[-1] ** -0.5).masked_fill(hidden, -torch.inf)
    p = (scores - scores.amax(-1, keepdim=True)).exp()
    return ((p.to(v.dtype).float() @ v.float()) / p.sum(-1, keepdim=True)).to(v.dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_of_few_keys_round_as_torch_does(dtype):
    q, k, v = (normal(64, 1, 16, 64, dtype=dtype, seed=seed) for seed in range(3))
    hidden = torch.ones(16, 16).triu(1).bool()
    out, lse = attention_model(q, k, v, is_causal=True, return_lse=True)
    assert out[:, :, 0].equal(v[:, :, 0])
    score = (q[:, :, 0].double() * k[:, :, 0].double()).sum(-1) / 8
    torch.testing.assert_close(lse[:, :, 0].double(), score, rtol=1e-6, atol=1e-6)
    exact = attention_reference(q, k, v, is_causal=True)
    usual = with_exact_maximum(q, k, v, hidden)
    for row in range(1, 16):
        error = relative_rms(out[:, :, row], exact[:, :, row])
        assert error <= 1.1 * relative_rms(usual[:, :, row], exact[:, :, row])


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("acc, dtype", [("f32", "fp16"), ("f32", "bf16"), ("qk32_pv16", "fp16")])
@pytest.mark.parametrize("factor", [16, 64, 256])
def test_one_key_that_outweighs_all_others(factor, acc, dtype, causal):
    q, k, v = (normal(1, 8, 300, 64, dtype=dtype, seed=seed) for seed in range(3))
    q, k = factor * q, factor * k
    hidden = torch.ones(300, 300).triu(1).bool() if causal else torch.zeros(300, 300).bool()
    exact, exact_lse = attention_reference(q, k, v, is_causal=causal, return_lse=True)
    out, lse = attention_model(q, k, v, acc=acc, is_causal=causal, return_lse=True)
    usual = relative_rms(with_exact_maximum(q, k, v, hidden), exact)
    assert relative_rms(out, exact) <= 2 * usual + 1e-7
    assert (lse - exact_lse).abs().max() <= 1e-6 * exact_lse.abs().max()


@pytest.mark.parametrize("acc", ["qk16_pv32", "f16f32"])
def test_one_key_gives_v(acc):
    q, k, v = (normal(1, 4, 1, 512, seed=seed) for seed in range(3))
    assert attention_model(q, k, v, acc=acc).equal(v)


# Relative RMS of the output for normal inputs, 32 rows. Rounding F16 sums to nearest at each step
# gives these orders; truncating, or never merging PV, gives 5 to 50 times as much.
@pytest.mark.parametrize(
    "acc, seqlen_k, headdim, low, high",
    [
        ("f32", 1024, 512, 2e-4, 4e-4),
        ("f32", 8192, 64, 2e-4, 4e-4),
        ("qk16_pv32", 8192, 64, 5e-4, 1e-3),
        ("qk16_pv32", 8192, 512, 1.2e-3, 2.3e-3),
        ("qk16_pv32", 8192, 1024, 1.7e-3, 3.2e-3),
        ("qk32_pv16", 1024, 512, 7e-4, 1.4e-3),
        ("qk32_pv16", 8192, 512, 1.7e-3, 3.4e-3),
        ("qk32_pv16", 32768, 512, 3.3e-3, 6.7e-3),
        ("f16", 1024, 512, 1.4e-3, 2.4e-3),
        ("f16", 8192, 64, 1.8e-3, 3.4e-3),
        ("f16", 8192, 1024, 2.4e-3, 4.1e-3),
        ("f16f32", 8192, 512, 4e-4, 8e-4),
    ],
)
def test_error_by_accumulator(acc, seqlen_k, headdim, low, high):
    error = model_error(seqlen_k, headdim, acc)
    assert low < error < high
    assert error < error_bound(acc, "fp16", seqlen_k, headdim)


# Beyond 16 a few rows, in which two keys nearly tie, make all of the error.
@pytest.mark.parametrize("input_scale", [2, 4, 16])
@pytest.mark.parametrize("headdim", [64, 512])
def test_the_bound_holds_for_larger_inputs_with_room_but_not_much(headdim, input_scale):
    bound = error_bound("qk16_pv32", "fp16", 1024, headdim, input_scale)
    error = model_error(1024, headdim, "qk16_pv32", input_scale=input_scale)
    assert bound / 5 < error < bound


@pytest.mark.parametrize("seqlen_k", [128, 4096])
@pytest.mark.parametrize("acc", ROUNDINGS)
def test_the_bound_holds_with_room_but_not_much(acc, seqlen_k):
    bound = error_bound(acc, "fp16", seqlen_k, 256)
    assert bound / 4 < model_error(seqlen_k, 256, acc) < bound


def test_no_shipped_chain_is_longer_than_the_bound_allows():
    instances = manifest.load(ROOT)
    lengths = {int(dict(i.fields)["Bd"]) for i in instances if i.acc == "f16f32"}
    assert max(lengths) == MAX_BD


def test_short_chains_flushed_into_f32_do_not_drift():
    drift = model_error(16384, 64, "f16f32", mean=1.0) / model_error(1024, 64, "f16f32", mean=1.0)
    assert drift < 1.5 < model_error(16384, 64, "f16", mean=1.0) / model_error(1024, 64, "f16")


def stalled(mean, acc, seqlen_k, chain, tile=64):
    """Errors for equal weights of values with means of 8 mantissas from `mean` on, and these."""
    means = mean * (1 + torch.arange(8) / 8)
    v = normal(1, 2, seqlen_k, 64) + means.repeat_interleave(8).half()
    q, k = torch.zeros(1, 2, 1, 64).half(), torch.zeros_like(v)
    out = attention_model(q, k, v, acc=acc, Bk=chain, Bc=tile).double()
    exact = v.double().mean(2, keepdim=True)
    errors, sizes = (x.square().reshape(2, 8, 8).mean((0, 2)) for x in (out - exact, exact))
    return (errors / sizes).sqrt(), means


@pytest.mark.parametrize(
    "mean, seqlen_k, chain, tile",
    [
        (0.25, 65536, 32, 64),
        (1.0, 65536, 32, 64),
        (1.0, 65536, 64, 64),
        (4.0, 16384, 32, 64),
        (1.0, 16384, 16384, 16384),  # as in split_d-sm90: one chain over all keys
    ],
)
def test_equal_addends_of_an_f16_sum_stall_within_the_bound(mean, seqlen_k, chain, tile):
    errors, means = stalled(mean, "qk32_pv16", seqlen_k, chain, tile)
    bounds = [error_bound("qk32_pv16", "fp16", seqlen_k, 64, value_mean=m) for m in means.tolist()]
    assert (errors < torch.tensor(bounds)).all()


def test_stalling_grows_with_the_mean_and_reaches_a_large_part_of_the_bound():
    errors, _ = stalled(16.0, "qk32_pv16", 65536, 32)
    bound = error_bound("qk32_pv16", "fp16", 65536, 64, value_mean=16.0)
    assert bound / 2 < errors.max() < bound
    assert errors.max() > 10 * error_bound("qk32_pv16", "fp16", 65536, 64)


@pytest.mark.parametrize("acc", ["f32", "f16f32"])
def test_sums_kept_in_f32_do_not_stall(acc):
    errors, _ = stalled(1.0, acc, 65536, 32)
    assert errors.max() < error_bound("f32", "fp16", 65536, 64)


def test_a_mean_of_either_sign_raises_the_bound_of_long_f16_sums_only():
    def added(acc, seqlen_k, mean):
        return error_bound(acc, "fp16", seqlen_k, 64, 1.0, mean) / error_bound(
            acc, "fp16", seqlen_k, 64
        )

    assert added("f16", 65536, 1.0) == added("f16", 65536, -1.0) > 5
    assert added("f16", 1024, 1.0) == pytest.approx(1)
    assert added("f32", 65536, 1.0) == added("f16f32", 65536, 1.0) == 1


def test_no_shipped_f16_sum_has_more_addends_than_the_bound_allows():
    f16 = [i for i in manifest.load(ROOT) if i.acc in ("f16", "qk32_pv16")]
    most = {
        i.max_seqlen_k // (int(dict(i.fields)["Bk"]) if i.id == "split_d-sm80" else STEP)
        for i in f16
    }
    assert max(most) == MAX_ADDENDS


def uniform(seqlen_k, headdim, value, acc):
    """q = k = 0: every key has the same weight, and the output is the mean of V."""
    q, k = torch.zeros(1, 1, 1, headdim).half(), torch.zeros(1, 1, seqlen_k, headdim).half()
    return attention_model(q, k, torch.full_like(k, value), acc=acc)


@pytest.mark.parametrize("acc", ROUNDINGS)
def test_pv_stays_in_range(acc):  # N01: a plain F16 sum is inf
    assert (uniform(4096, 512, 16.0, acc) == 16.0).all()


@pytest.mark.parametrize("acc", ROUNDINGS)
def test_pv_stays_in_range_when_later_keys_weigh_more(acc):
    """The second tile's P would be 2^7.9 on the first one's base, and overflow an F16 chain."""
    q = torch.full((1, 1, 1, 64), 7.9 / math.log2(math.e) / 8).half()
    k = torch.cat([torch.zeros(64, 64), torch.ones(64, 64)]).half()[None, None]
    v = torch.full_like(k, 16.0)
    assert (attention_model(q, k, v, acc=acc, Bc=64) == 16.0).all()


@pytest.mark.parametrize("acc", ROUNDINGS)
def test_pv_does_not_stall(acc):  # N02: a plain F16 sum in steps of 16 stops at 32768 and gives 0.5
    assert (uniform(65536, 64, 1.0, acc) == 1.0).all()


@pytest.mark.parametrize("Bk", [32, 64])
@pytest.mark.parametrize("acc", ["f16", "qk32_pv16", "f16f32"])
def test_values_up_to_the_limit_that_is_told(acc, Bk):
    """A chain of Bk keys of equal weight sums to Bk times V."""
    limit = 65504 // Bk
    q, k = torch.zeros(1, 1, 1, 64).half(), torch.zeros(1, 1, 8192, 64).half()

    def mean_of(value):
        return attention_model(q, k, torch.full_like(k, value), acc=acc, Bk=Bk)

    torch.testing.assert_close(mean_of(limit), torch.full_like(q, limit), rtol=1e-3, atol=0)
    assert mean_of(1.01 * limit).isinf().all()


@pytest.mark.parametrize(
    "path", ["README.md", "conf/acc/f16.yaml", "docs/accumulation.md", "src/ffpa/attention.py"]
)
def test_the_limits_are_told_beside_the_flag(path):  # N01, N02, N03
    """With the numbers that the kernels have."""
    f16 = [i for i in manifest.load(ROOT) if i.acc in ("f16", "qk32_pv16")]
    lengths = {instance.max_seqlen_k for instance in f16}
    chains = {int(dict(i.fields)["Bk"]) for i in f16 if i.id == "split_d-sm80"}
    overflow = int(torch.finfo(torch.float16).max)
    numbers = {overflow, overflow // max(chains), 63, *lengths}
    assert numbers == {65504, 1023, 63, 16384, 65536, 131072}
    text = (ROOT / path).read_text()
    assert not [number for number in numbers if not re.search(rf"\b{number}\b", text)]


@pytest.mark.parametrize("acc", ROUNDINGS)
@pytest.mark.parametrize("headdim", [248, 256, 512, 1024])
def test_scores_stay_in_range(headdim, acc):  # N03: q·k is up to 262144 before scaling
    q, k = torch.full((1, 1, 2, headdim), 16.0).half(), torch.full((1, 1, 4, headdim), 16.0).half()
    v = torch.arange(4.0).half()[:, None].expand(1, 1, 4, headdim)
    out = attention_model(q, k, v, acc=acc)
    torch.testing.assert_close(out, torch.full_like(out, 1.5), rtol=1e-3, atol=0)


def test_f16_does_overflow_beyond_its_range():
    q, k = torch.full((1, 1, 1, 64), 240.0).half(), torch.full((1, 1, 16, 64), 240.0).half()
    v = torch.ones(1, 1, 16, 64).half()
    assert attention_model(q, k, v, acc="f16").isnan().all()
    assert (attention_model(q, k, v, acc="f32") == 1.0).all()


@pytest.mark.parametrize("acc", ROUNDINGS)
@pytest.mark.parametrize("scale", [-1.0, 0.0, 0.7, 1e-3])
def test_any_scale(scale, acc):  # N06
    q, k, v = (normal(1, 2, 40, 64, seed=seed) / 4 for seed in range(3))
    out, lse = attention_model(q, k, v, acc=acc, scale=scale, is_causal=True, return_lse=True)
    exact, exact_lse = attention_reference(q, k, v, scale=scale, is_causal=True, return_lse=True)
    assert relative_rms(out, exact) < error_bound(acc, "fp16", 40, 64)
    torch.testing.assert_close(lse.double(), exact_lse, rtol=0, atol=5e-3)


def test_rows_without_keys_are_zero():  # N09
    q, k, v = normal(1, 1, 5, 64), normal(1, 1, 2, 64), normal(1, 1, 2, 64)
    for acc in ROUNDINGS:
        out, lse = attention_model(
            q, k, v, acc=acc, is_causal=True, causal_align="lower_right", return_lse=True
        )
        assert not out[:, :, :3].any() and (lse[:, :, :3] == -torch.inf).all()
        assert out[:, :, 3:].abs().min() > 0 and lse[:, :, 3:].isfinite().all()


def test_a_sample_of_rows_is_those_rows():
    q, k, v = (normal(1, 4, 70, 64, seed=seed) for seed in range(3))
    rows = torch.tensor([69, 0, 33])
    for acc in ROUNDINGS:
        whole = attention_model(q, k[:, :2], v[:, :2], acc=acc, is_causal=True)
        sample = attention_model(q, k[:, :2], v[:, :2], acc=acc, is_causal=True, rows=rows)
        # F32 products of other sizes may sum in another order: an ulp of F16, once in a while.
        torch.testing.assert_close(sample, whole[:, :, rows], rtol=2e-3, atol=2e-3)
