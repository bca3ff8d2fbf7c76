"""tests/gpu/fuzz.py and sanitize.py without a GPU: on the emulator, and what they choose."""

import json
import random
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch

sys.path.append(str(Path(__file__).parents[1] / "gpu"))

import fuzz
import harness

DEVICE = torch.device("cpu")
ADDRESS = {"key": 2, "out": 4, "mask": 20}  # places among the arguments of the extension's forward
MASK_KIND = 19


@pytest.fixture
def fuzzed(emulator, monkeypatch):
    """The module, with the emulated build on the CPU; runs it and returns what it recorded."""
    emulator.build_info = lambda: {"source_hash": "a" * 64}
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    for module in (fuzz, harness):
        monkeypatch.setattr(module, "DEVICE", DEVICE)
        monkeypatch.setattr(module, "INSTANCES", emulator.kernels())
    monkeypatch.setattr(fuzz, "LENGTHS", [1, 2, 3, 17, 33])
    return fuzz


def run(module, monkeypatch, folder, *arguments):
    path = folder / "fuzz.json"
    monkeypatch.setattr(sys, "argv", ["fuzz.py", *arguments, "--record", str(path)])
    code = module.main()
    return code, json.loads(path.read_text())


@pytest.mark.parametrize("tight", [[], ["--tight"]])
def test_random_calls_are_right_or_refused(fuzzed, monkeypatch, tmp_path, capsys, tight):
    code, record = run(
        fuzzed, monkeypatch, tmp_path, "--calls", "60", "--seed", "5", "--seconds", "300", *tight
    )
    assert not record["failures"] and code == 0
    assert record["calls"] == 60 == sum(record["counts"].values())
    assert record["counts"]["right"] > 20 and record["instances"] > 15
    assert "60 calls: all right" in capsys.readouterr().out


def test_three_quarters_of_the_valid_calls_run(fuzzed):
    counts = Counter()
    for number in range(300):
        call = fuzz.Call(random.Random(f"1 {number}"), False)
        if call.fault in (None, "empty"):
            call.seqlen_q = call.seqlen_k = call.batch = call.nheads_kv = call.nheads_q = 1
            q, k, v = call.tensors()
            support = fuzz.ffpa.supports(
                q, k, v, acc=call.acc, kernel=call.kernel, attn_mask=call.make_mask(q, k, True)
            )
            counts[bool(support)] += 1
            assert support or call.blind, (support.reason, str(call))
    assert 0.7 < counts[True] / counts.total() < 0.9


def test_a_seed_and_a_number_make_the_call_again(fuzzed):
    first, again = (fuzz.Call(random.Random("3 7"), False) for _ in range(2))
    assert str(first) == str(again)
    for one, two in zip(first.tensors(), again.tensors(), strict=True):
        assert one.equal(two) and one.stride() == two.stride()


@pytest.mark.parametrize("where", ["key", "mask", "out"])
def test_what_lies_beside_a_tensor_is_noticed(fuzzed, emulator, monkeypatch, tmp_path, where):
    forward = emulator.forward

    def one_too_many(*arguments):
        arguments = list(arguments)
        element = {0: 0, 1: 1, 2: 2, 3: 4}[arguments[MASK_KIND]] if where == "mask" else 2
        arguments[ADDRESS[where]] += element
        forward(*arguments)

    monkeypatch.setattr(emulator, "forward", one_too_many)
    code, record = run(
        fuzzed, monkeypatch, tmp_path, "--calls", "40", "--seed", "5", "--seconds", "300"
    )
    assert code == 1 and record["failures"]
