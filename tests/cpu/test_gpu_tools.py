"""tests/gpu/fuzz.py and sanitize.py without a GPU: on the emulator, and what they choose."""

import json
import random
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch

from ffpa.record.store import REPOSITORY
from ffpa_build import manifest

sys.path.append(str(Path(__file__).parents[1] / "gpu"))

import fuzz
import harness
import sanitize

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


@pytest.mark.parametrize("mask", [None, *fuzz.MASKS])
@pytest.mark.parametrize("fault", fuzz.FAULTS)
def test_each_broken_rule_is_refused_whatever_the_mask(fuzzed, fault, mask):
    """In each of the three tensors. On the CPU no device is another one; empty is no fault."""
    outcomes = Counter()
    for number in range(12):
        call = fuzz.Call(random.Random(f"2 {number}"), False)
        call.fault, call.mask, call.kernel, call.acc, call.blind = fault, mask, "auto", "f32", False
        call.seqlen_q, call.seqlen_k = 5, 9
        outcomes[call.run(set())] += 1
    if fault == "empty":
        assert set(outcomes) == {"right, and empty"}
    elif fault == "device" or (fault == "mask" and mask is None):
        assert set(outcomes) == {"right"}
    else:
        assert set(outcomes) == {"refused"}


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


INSTANCES = {instance.name: instance for instance in manifest.load(REPOSITORY)}


def sorts(names):
    """What has code of its own: kernel, variant and accumulator, and on Hopper the structure."""
    return {
        (one.id, one.variant, one.acc, dict(one.fields).get("ctas"))
        for one in map(INSTANCES.get, names)
    }


def test_the_sanitizer_sees_every_sort_of_kernel_that_auto_may_take():
    assert set(sanitize.KERNELS) <= set(INSTANCES) and len(set(sanitize.KERNELS)) > 40
    offered = [
        one.name for one in INSTANCES.values()
        if not one.variant or one.masks or one.narrow or one.fallback or one.splits
    ]  # fmt: skip
    steps = {name for name in offered if name.startswith("ladder-")}
    assert not sorts(set(offered) - steps) - sorts(sanitize.KERNELS)
    seen = {name.split("-")[1] for name in sanitize.KERNELS if name.startswith("ladder-")}
    assert seen == {"1", "4", "9", "10"}
    dtypes = {(INSTANCES[name].id, INSTANCES[name].dtype) for name in sanitize.KERNELS}
    assert {("split_d-sm80", "bf16"), ("split_d-sm90", "bf16"), ("split_kv-sm80", "bf16")} < dtypes


def test_kernels_to_look_at_are_the_list_or_a_pattern():
    names = list(INSTANCES)
    assert sanitize.chosen(names, None) == list(sanitize.KERNELS)
    assert sanitize.chosen([names[0]], None) == [names[0]]
    assert sanitize.chosen(names, ["*/masked99"]) == [n for n in names if n.endswith("/masked99")]


@pytest.mark.parametrize(
    "kernel", ["split_d-sm80/d256/fp16/f32/masked", "split_kv-sm80/d512/bf16/f32"]
)
def test_every_case_of_a_kernel_is_launched(fuzzed, emulator, monkeypatch, capsys, kernel):
    monkeypatch.setattr(sanitize, "INSTANCES", emulator.kernels())
    sanitize.launch(kernel)
    assert [name for name, *_ in emulator.launches] == [kernel] * 9
    assert f"{kernel}: all right" in capsys.readouterr().out
    assert (2 in emulator.splits) == kernel.startswith("split_kv")


@pytest.fixture
def sanitizer(monkeypatch, tmp_path):
    """sanitize.py with two kernels and a compute-sanitizer that finds what the test says."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(sanitize, "INSTANCES", [{"name": name} for name in sanitize.KERNELS[:2]])
    monkeypatch.setattr(sanitize, "build_info", lambda: {"source_hash": "a" * 64})
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")

    def run(found, *arguments):
        tool = tmp_path / "compute-sanitizer"
        tool.write_text(
            f'#!/bin/sh\necho "$PYTORCH_NO_CUDA_MEMORY_CACHING $@" >> {tmp_path}/asked\n'
            'case "$*" in *fuzz.py*) echo "30 calls: all right";; *) echo "x: all right";; esac\n'
            f'echo "========= ERROR SUMMARY: {found} errors"\n'
        )
        tool.chmod(0o755)
        path = tmp_path / "sanitizer.json"
        monkeypatch.setattr(sys, "argv", ["sanitize.py", *arguments, "--record", str(path)])
        code = sanitize.main()
        asked = tmp_path / "asked"
        return code, json.loads(path.read_text()), asked.read_text() if asked.exists() else ""

    return run


@pytest.mark.parametrize("found", [0, 3])
def test_each_tool_looks_at_each_kernel_and_the_random_calls(sanitizer, found):
    code, record, asked = sanitizer(found, "--fuzz", "30")
    assert code == (found > 0) and not record["not_reached"]
    runs = [(run["tool"], run["kernel"], run["found"]) for run in record["runs"]]
    names = ["fuzz", *sanitize.KERNELS[:2]]
    assert runs == [(tool, name, found) for name in names for tool in sanitize.TOOLS]
    assert [run.get("calls") for run in record["runs"]] == [30] * 3 + [None] * 6
    assert asked.count("1 --tool memcheck") == 3 and "--tight" in asked


def test_what_the_time_does_not_reach_is_told(sanitizer, capsys):
    code, record, asked = sanitizer(0, "--total", "-1", "--kernels", "*/d512/*")
    assert code == 0 and not record["runs"] and not asked
    assert record["not_reached"] == [f"{tool} {sanitize.KERNELS[1]}" for tool in sanitize.TOOLS]
    assert f"not reached: memcheck {sanitize.KERNELS[1]}" in capsys.readouterr().out


def test_a_pattern_that_names_nothing_is_refused(sanitizer, capsys):
    with pytest.raises(SystemExit):
        sanitizer(0, "--kernels", "nothing*")
    assert "no kernel that runs here is called like nothing*" in capsys.readouterr().err
