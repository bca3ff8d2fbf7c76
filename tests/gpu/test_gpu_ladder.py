"""The ladder: steps that only move data otherwise compute the same bits."""

import pytest
import torch
from harness import DEVICE, INSTANCES, assert_accurate, normal, over, run_guarded

import ffpa
from ffpa.errors import UnsupportedFeatureError

pytestmark = pytest.mark.gpu

STEPS = [instance for instance in INSTANCES if instance["id"].startswith("ladder-")]
WIDE_TILES = 4  # from this step on tiles have 128 keys, up to the next
SOFTMAX = 7  # from this step on exponents have another base, so the bits differ from those before


def number_of(instance):
    return int(instance["id"].split("-")[1])


def first_alike(instance):
    """The first step with the same arithmetic: tiles of as many keys, and the same softmax."""
    number = number_of(instance)
    first = max(step for step in (1, 2, WIDE_TILES, SOFTMAX) if step <= number)
    return next(
        other
        for other in STEPS
        if number_of(other) == first and other["dtype"] == instance["dtype"]
    )


@over(STEPS)
def test_the_shape_of_the_experiment(instance):
    q, k, v = (normal(2, 4, 1024, 128, dtype=instance["dtype"], seed=seed) for seed in range(3))
    out, lse = run_guarded(instance, q, k, v, 1023)
    assert_accurate(instance, out, lse, q, k, v, 1023)


@over(STEPS)
def test_steps_that_move_data_otherwise_give_the_same_bits(instance):
    q, k, v = (normal(1, 3, n, 128, dtype=instance["dtype"], seed=n) for n in (333, 555, 555))
    out, lse = run_guarded(instance, q, k, v, 554)
    same_out, same_lse = run_guarded(first_alike(instance), q, k, v, 554)
    assert out.equal(same_out) and lse.equal(same_lse)


@over(STEPS)
def test_a_wider_head_is_refused_in_words(instance):
    q = torch.zeros(1, 1, 64, 136, dtype=torch.float16, device=DEVICE)
    with pytest.raises(UnsupportedFeatureError, match="headdim 136 is above 128"):
        ffpa.attention(q, q, q, kernel=instance["id"])
