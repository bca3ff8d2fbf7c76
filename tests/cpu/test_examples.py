"""The examples' tables come from recorded rows, and without a GPU the examples say so."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(name, *arguments):
    command = [sys.executable, f"{name}.py", *arguments]
    return subprocess.run(command, cwd=EXAMPLES, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize(
    "name, library, shape",
    [("gemma", "transformers", "gemma4-32-4"), ("vae", "diffusers", "vae-128x128")],
)
def test_the_table_is_recorded(name, library, shape):
    pytest.importorskip(library, reason="needs the extra ffpa[integrations]")
    done = run(name, "--recorded")
    assert done.returncode == 0, done.stderr
    assert f"| {shape} | sdpa-efficient | " in done.stdout
    assert f"| {shape} | split_d-sm90 f32 | " in done.stdout
    assert "rows recorded by experiment=scenarios" in done.stdout


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
@pytest.mark.parametrize("name, library", [("gemma", "transformers"), ("vae", "diffusers")])
def test_without_a_gpu_it_is_one_sentence(name, library):
    pytest.importorskip(library, reason="needs the extra ffpa[integrations]")
    done = run(name)
    assert done.returncode == 2 and "no CUDA device visible" in done.stderr
    assert "Traceback" not in done.stderr
