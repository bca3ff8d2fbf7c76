"""Baselines: right where the CPU can run them, refused in words where it cannot."""

import time

import pytest
import torch

from ffpa.baselines import BASELINES, fastest
from ffpa.measure.inputs import make_inputs
from ffpa.measure.shape import Shape
from ffpa.reference import attention_reference

CPU = torch.device("cpu")


def inputs_of(**changes):
    sizes = {"batch": 2, "nheads_q": 4, "nheads_kv": 4, "seqlen_q": 40, "seqlen_k": 56}
    return make_inputs(Shape(**{**sizes, "headdim": 64, **changes}), CPU, seed=3)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("nheads_kv", [4, 2, 1])
def test_math_computes_the_same_attention(causal, nheads_kv):
    inputs = inputs_of(nheads_kv=nheads_kv, causal=causal)
    prepared = BASELINES["sdpa-math"].prepare(inputs)
    reference = attention_reference(inputs.query, inputs.key, inputs.value, is_causal=causal)
    torch.testing.assert_close(prepared.launch().double(), reference, atol=5e-3, rtol=5e-3)


def test_the_backend_says_what_was_done_beforehand():  # M09
    prepare = BASELINES["sdpa-math"].prepare
    assert prepare(inputs_of()).backend == "torch math"
    assert "repeated beforehand" in prepare(inputs_of(nheads_kv=2)).backend


def test_repeated_heads_are_not_part_of_the_launch(monkeypatch):  # M09
    prepared = BASELINES["sdpa-efficient"].prepare(inputs_of(nheads_kv=2))
    monkeypatch.setattr(torch.Tensor, "repeat_interleave", None, raising=False)
    seen = {}
    monkeypatch.setattr(
        "ffpa.baselines.scaled_dot_product_attention",
        lambda query, key, value, **options: seen.update(options, heads=key.shape[1]),
    )
    prepared.launch()
    assert seen == {"heads": 4, "is_causal": False, "enable_gqa": False}


@pytest.mark.parametrize("name", sorted(set(BASELINES) - {"sdpa-math"}))
def test_the_cpu_is_refused_in_words(name):
    assert BASELINES[name].refuse(inputs_of(headdim=320)) == "runs on CUDA devices only"


def test_ffpa_attn_is_not_timed_where_it_falls_back_to_torch():
    reason = BASELINES["ffpa-attn"].refuse(inputs_of(headdim=256))
    assert reason == "ffpa-attn hands head dimensions up to 256 on to torch"


def test_the_fastest_backend_that_runs_is_taken(monkeypatch):
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)

    def broken():
        raise RuntimeError("does not compile")

    calls = {"slow": lambda: time.sleep(0.02), "broken": broken, "fast": lambda: time.sleep(0.001)}
    assert fastest(calls, CPU) == ("fast", calls["fast"])
    with pytest.raises(RuntimeError, match="does not compile"):
        fastest({"broken": broken}, CPU)


def test_math_needs_room_for_its_scores():
    # Case M10: 32 heads of 32768 squared in float32, and their softmax.
    inputs = inputs_of()
    scores = 2 * 4 * 40 * 56
    assert BASELINES["sdpa-math"].memory(inputs) > 3 * 4 * scores


def test_only_repeated_heads_cost_memory_in_the_efficient_backend():
    memory = BASELINES["sdpa-efficient"].memory
    assert memory(inputs_of()) == 0
    assert memory(inputs_of(nheads_kv=2)) == 2 * 2 * (2 * 4 * 56 * 64)


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_inputs_are_normal_seeded_and_scaled(dtype):  # M07
    shape = Shape(1, 8, 8, 128, 128, 64, dtype=dtype)
    first, second = (make_inputs(shape, CPU, seed=5, scale=4.0) for _ in range(2))
    assert torch.equal(first.query, second.query)
    assert not torch.equal(first.query, first.key)
    assert first.query.float().std() == pytest.approx(4.0, rel=0.02)
    assert first.value.float().std() == pytest.approx(1.0, rel=0.02)
    assert not torch.equal(first.query, make_inputs(shape, CPU, seed=6, scale=4.0).query)
