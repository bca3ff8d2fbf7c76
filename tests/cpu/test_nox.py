"""The sessions: what plain nox runs, what each says of itself, and none that passes by skipping."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]
LIST = re.compile(r"^([*-]) (\w+)(?: \[\w+\])? -> (.+)$", re.MULTILINE)


def nox(*arguments):
    command = [sys.executable, "-m", "nox", "--no-venv", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)


@pytest.fixture(scope="module")
def sessions():
    """(default, description) by name, as `nox --list` shows them."""
    listed = nox("--list")
    assert listed.returncode == 0, listed.stderr
    return {name: (mark == "*", text) for mark, name, text in LIST.findall(listed.stdout)}


def test_plain_nox_lints_and_tests(sessions):  # X03
    assert {name for name, (default, _) in sessions.items() if default} == {"lint", "tests"}


def test_each_session_says_how_long_it_takes_and_whether_it_needs_a_gpu(sessions):
    for name, (_, text) in sessions.items():
        assert re.search(r"\(\d+ min\b", text) and "GPU" in text, name


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
@pytest.mark.parametrize("session", ["bench", "accuracy", "gpu_tests", "profile", "reproduce"])
def test_a_gpu_session_fails_without_a_gpu(session):  # X02, X03, C02
    done = nox("-s", session)
    output = done.stdout + done.stderr
    assert done.returncode == 1
    assert "no CUDA device visible" in output and "Traceback" not in output
