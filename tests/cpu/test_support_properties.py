"""Whatever is asked, the predicate answers: a kernel that really serves it, or one sentence."""

from emulator import H200, build
from hypothesis import given, settings
from hypothesis import strategies as st

from ffpa.problem import ACCUMULATORS, Problem
from ffpa.support import DeviceLimits, find

BUILD = build()
SIZES = st.integers(0, 2**20)
PROBLEMS = st.builds(
    Problem,
    dtype=st.sampled_from(["fp16", "bf16", "fp32"]),
    batch=SIZES,
    nheads_q=st.integers(0, 128),
    nheads_kv=st.integers(0, 128),
    seqlen_q=SIZES,
    seqlen_k=SIZES,
    headdim=st.integers(-8, 1100),
    headdim_v=st.none() | st.integers(-8, 1100),
    causal=st.booleans(),
    causal_align=st.sampled_from(["upper_left", "lower_right", "centre"]),
    acc=st.sampled_from([*ACCUMULATORS, "fp32"]),
)
DEVICES = st.one_of(
    st.just(H200),
    st.builds(
        DeviceLimits,
        st.tuples(st.integers(7, 12), st.integers(0, 9)),
        st.sampled_from([49152, 101376, 166912, 232448]),
    ),
)
KERNELS = st.sampled_from(["auto", "naive", "split_d-sm80", "split_d-sm90", "flash"])


@settings(derandomize=True, max_examples=500)
@given(PROBLEMS, DEVICES, KERNELS)
def test_the_answer_is_a_kernel_or_a_sentence(problem, device, kernel):
    support = find(problem, device, kernel, instances=BUILD)
    assert (support.instance is None) != (support.reason is None)
    if not support:
        assert support.reason and "\n" not in support.reason
        return
    chosen = support.instance
    assert kernel in ("auto", chosen["id"])
    assert (chosen["dtype"], chosen["acc"]) == (problem.dtype, problem.acc)
    assert 8 <= problem.headdim <= chosen["headdim"] and problem.headdim % 8 == 0
    assert problem.headdim_v is None or problem.headdim_v in range(8, problem.headdim + 1, 8)
    assert chosen["smem_bytes"] <= device.smem_bytes
    assert not chosen["max_seqlen_k"] or problem.seqlen_k <= chosen["max_seqlen_k"]
