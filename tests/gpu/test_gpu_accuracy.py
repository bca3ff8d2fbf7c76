"""Every compiled instance against float64: ragged lengths, head-dimension tails, masks, groups."""

import pytest
import torch
from harness import (
    DEVICE,
    INSTANCES,
    Case,
    assert_accurate,
    normal,
    over,
    poisoned,
    relative_rms,
    run_guarded,
    sample,
)

import ffpa
from ffpa.numerics import attention_model
from ffpa.reference import attention_reference

pytestmark = pytest.mark.gpu

CASES = [
    Case(200, 1000, 3, 3, "upper_left"),
    Case(1, 1, 1, 1),
    Case(1, 129, 16, 1),
    Case(15, 17, 2, 1, "upper_left", batch=2),
    Case(17, 63, 3, 1, "lower_right"),
    Case(63, 65, 5, 1),
    Case(65, 127, 2, 2, "lower_right", batch=2),
    Case(127, 1000, 4, 2),
    Case(129, 15, 2, 1, "lower_right"),  # the first 114 rows see no key
    Case(1000, 129, 6, 2, "upper_left"),
    Case(1000, 1000, 1, 1, "upper_left"),
]


def headdim_of(instance, turn):
    """A head dimension that this instance serves: tails take turns, the first is none."""
    narrower = [
        other["headdim"]
        for other in INSTANCES
        if all(other[key] == instance[key] for key in ("id", "dtype", "acc", "variant"))
        and other["headdim"] < instance["headdim"]
    ]
    served = (instance["headdim"] - max(narrower, default=0)) // 8
    return instance["headdim"] - 8 * (turn * 37 % served)


def inputs_of(case, headdim, dtype):
    shapes = [(case.nheads_q, case.seqlen_q)] + 2 * [(case.nheads_kv, case.seqlen_k)]
    for seed, (heads, seqlen) in enumerate(shapes):
        yield normal(case.batch, heads, seqlen, headdim, dtype=dtype, seed=seed)


@pytest.mark.parametrize("turn", range(len(CASES)), ids=[str(case) for case in CASES])
@over(INSTANCES)
def test_error_and_memory(instance, turn):  # N12, N15, S06, S20, S22, S28
    case = CASES[turn]
    q, k, v = inputs_of(case, headdim_of(instance, turn), instance["dtype"])
    guarded = [poisoned(t) for t in (q, k, v)]
    out, lse = run_guarded(instance, *guarded, case.diagonal)
    assert_accurate(instance, out, lse, q, k, v, case.diagonal)
    options = {} if case.mask == "full" else {"is_causal": True, "causal_align": case.mask}
    called = ffpa.attention(
        q, k, v, enable_gqa=True, acc=instance["acc"], kernel=instance["name"],
        return_lse=True, **options,
    )  # fmt: skip
    assert called[0].equal(out) and called[1].equal(lse)  # S10, S12


@pytest.mark.parametrize("seqlen_q", [1, 64])
@pytest.mark.parametrize("nheads_q, nheads_kv", [(5, 1), (6, 1), (7, 1), (16, 1), (24, 4)])
@over(sample(512, acc=("f32",)))
@pytest.mark.usefixtures("poisoned_workspace")
def test_any_ratio_of_heads(instance, nheads_q, nheads_kv, seqlen_q):  # S06
    q, k, v = inputs_of(Case(seqlen_q, 300, nheads_q, nheads_kv), 512, instance["dtype"])
    out, lse = run_guarded(instance, q, k, v, 299)
    assert_accurate(instance, out, lse, q, k, v, 299)


@over(sample(512, 1024))
def test_long_and_ragged(instance):  # S20
    q, k, v = inputs_of(Case(300, 8191, 2, 1), instance["headdim"], instance["dtype"])
    out, lse = run_guarded(instance, q, k, v, 8190)
    assert_accurate(instance, out, lse, q, k, v, 8190)


@pytest.mark.parametrize("seqlen_k", [200, 2000])
@over(sample(64, 512, 1024, acc=("f16", "qk32_pv16", "qk16_pv32", "f16f32")))
def test_the_cpu_model_predicts_the_error(instance, seqlen_k):
    if instance["id"] != "split_d-sm80":
        pytest.skip("the model rounds where split_d-sm80 does")
    q, k, v = inputs_of(Case(64, seqlen_k, 2, 1), instance["headdim"], instance["dtype"])
    out, _ = run_guarded(instance, q, k, v, seqlen_k - 1)
    exact = attention_reference(q, k, v)

    def unexplained(Bk, Bd):
        """What a model with these lengths of F16 chains leaves of the error, as a part of it."""
        with DEVICE:  # where it takes milliseconds, and on the CPU seconds
            model = attention_model(q, k, v, acc=instance["acc"], Bc=instance["Bc"], Bk=Bk, Bd=Bd)
        return ((out - model).double().norm() / (model - exact).norm()).item()

    # The same roundings give the same errors; independent ones would leave 1.4.
    chains = [(Bk, Bd) for Bk in (16, 32, 64, 128) if Bk <= instance["Bc"] for Bd in (64, 128, 192)]
    assert min(unexplained(*chain) for chain in chains) < 0.5


@pytest.mark.parametrize("scale", [-0.3, 0.0, 1.0, 1e-4])
@over(sample(320))
def test_any_scale(instance, scale):  # N06
    q, k, v = inputs_of(Case(70, 90, 2, 2), instance["headdim"], instance["dtype"])
    q = q / 8
    out, lse = ffpa.attention(
        q, k, v, scale=scale, is_causal=True, acc=instance["acc"], kernel=instance["name"],
        return_lse=True,
    )  # fmt: skip
    exact, exact_lse = attention_reference(q, k, v, scale=scale, is_causal=True, return_lse=True)
    assert relative_rms(out, exact) < (8e-3 if instance["dtype"] == "bf16" else 4e-3)
    torch.testing.assert_close(lse.double(), exact_lse, rtol=0, atol=2e-2)
