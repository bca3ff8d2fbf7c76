"""The correctness gate: what it lets through, and what it must not."""

import pytest
import torch

from ffpa.measure.gate import Gate, error_of
from ffpa.measure.inputs import make_inputs
from ffpa.measure.shape import Shape
from ffpa.numerics import attention_model
from ffpa.reference import attention_reference

SHAPE = Shape(1, 4, 2, 96, 160, 64)


def gate_of(shape=SHAPE, rows=32, scale=1.0, mean=0.0):
    inputs = make_inputs(shape, torch.device("cpu"), 7, scale, mean)
    return inputs, Gate(inputs, rows, 7, scale, mean)


def exact(inputs):
    output = attention_reference(
        inputs.query, inputs.key, inputs.value, is_causal=inputs.shape.causal
    )
    return output.to(inputs.query.dtype)


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("causal", [False, True])
def test_the_rounded_reference_passes(dtype, causal):
    inputs, gate = gate_of(Shape(1, 4, 2, 96, 160, 64, causal, dtype))
    error = gate.error(exact(inputs))
    assert gate.fault(error, "f32") is None
    assert 0 < error.relative < gate.half_precision


@pytest.mark.parametrize("acc", ["f32", "f16", "qk32_pv16", "qk16_pv32", "f16f32"])
@pytest.mark.parametrize("headdim", [64, 576])
def test_the_model_of_every_accumulator_passes(acc, headdim):
    inputs, gate = gate_of(Shape(1, 2, 2, 64, 512, headdim))
    output = attention_model(inputs.query, inputs.key, inputs.value, acc=acc)
    assert gate.fault(gate.error(output), acc) is None


def test_f16_errors_do_not_pass_for_f32():
    inputs, gate = gate_of(Shape(1, 2, 2, 64, 512, 576))
    output = attention_model(inputs.query, inputs.key, inputs.value, acc="f16")
    assert "above the bound" in gate.fault(gate.error(output), "f32")


@pytest.mark.parametrize("row", [0, 95])
def test_the_first_and_the_last_row_are_always_compared(row):
    inputs, gate = gate_of(rows=8)
    output = exact(inputs)
    output[:, :, row] = 0
    assert gate.fault(gate.error(output), "f32")


def test_a_lost_key_tile_is_caught():
    inputs, gate = gate_of()
    output = attention_reference(inputs.query, inputs.key[:, :, 16:], inputs.value[:, :, 16:])
    assert gate.fault(gate.error(output), "f16")


def test_swapped_heads_are_caught():
    inputs, gate = gate_of()
    assert gate.fault(gate.error(exact(inputs).roll(1, 1)), "f16")


def test_one_nan_is_caught():
    inputs, gate = gate_of()
    output = exact(inputs)
    output[0, 0, 0, 0] = torch.nan
    assert gate.fault(gate.error(output), "f16") == "the output holds NaN or infinity"


def test_causal_output_fails_a_full_problem():
    inputs, gate = gate_of()
    output = attention_reference(inputs.query, inputs.key, inputs.value, is_causal=True)
    assert gate.fault(gate.error(output), "f16")


def test_error_is_relative_to_the_reference():
    reference = torch.full((1, 1, 2, 2), 2.0, dtype=torch.float64)
    error = error_of(reference + 0.5, reference)
    assert (error.relative, error.maximum) == (0.25, 0.5)


def test_f16_is_allowed_more_and_more_so_for_larger_inputs():
    _, gate = gate_of()
    assert gate.bound(None) == gate.bound("f32") < gate.bound("f16")
    _, large = gate_of(scale=4.0)
    assert large.bound("f16") - large.bound("f32") > 5 * (gate.bound("f16") - gate.bound("f32"))


def test_a_mean_is_that_of_value_only_and_changes_nothing_else():
    plain, _ = gate_of()
    moved, gate = gate_of(scale=1.0, mean=3.0)
    assert torch.equal(moved.query, plain.query) and torch.equal(moved.key, plain.key)
    assert abs(float(moved.value.float().mean()) - 3) < 0.05
    assert float((moved.value.float() - 3).std()) == pytest.approx(1, abs=0.05)
    torch.testing.assert_close(moved.value - plain.value, torch.full_like(plain.value, 3.0))
    assert gate.fault(gate.error(exact(moved)), "f32") is None


def test_f16_sums_are_allowed_to_stall_where_values_have_a_mean():
    shape = Shape(1, 1, 1, 2, 16384, 64)
    (_, plain), (_, gate) = gate_of(shape, 2, 0.001), gate_of(shape, 2, 0.001, mean=1.5)
    assert gate.bound("f32") < plain.bound("f32") + 1e-3
    assert gate.bound("f16") > 5 * plain.bound("f16")


@pytest.mark.parametrize("scale", [1.0, 16.0, 64.0])
@pytest.mark.parametrize("headdim", [64, 1024])
def test_no_input_scale_lets_a_wrong_output_through(headdim, scale):
    inputs, gate = gate_of(Shape(1, 2, 2, 64, 512, headdim), scale=scale)
    model = attention_model(inputs.query, inputs.key, inputs.value, acc="f16")
    assert gate.fault(gate.error(model), "f16") is None
    assert "above the bound" in gate.fault(gate.error(exact(inputs) * 0), "f16")
    assert "above the bound" in gate.fault(gate.error(exact(inputs).roll(1, 1)), "f16")
