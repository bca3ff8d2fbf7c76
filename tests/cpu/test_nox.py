"""The sessions: what plain nox runs, what each says of itself, and none that passes by skipping."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from ffpa.record.store import REPRODUCED
from ffpa.report.claims import load_claims

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


class Session:
    """Stands in for nox's: notes what would run."""

    venv_backend = "none"

    def __init__(self, *posargs):
        self.posargs = list(posargs)
        self.env = {}
        self.ran = []

    def run(self, python, *arguments, **options):
        assert python == sys.executable
        self.ran.append((arguments, options.get("success_codes")))


@pytest.fixture(scope="module")
def noxfile():
    spec = importlib.util.spec_from_file_location("noxfile", ROOT / "noxfile.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


MEASURE = ("experiments/run.py", "device=cuda")
HEADLINE = [(*MEASURE, f"experiment={name}") for name in ("headdim", "headdim")]


class Reused(Session):
    """In an environment of its own, made by an earlier run."""

    venv_backend = "virtualenv"
    interactive = False

    def run(self, python, *arguments, **options):
        self.ran.append((python, arguments))


def test_a_new_pin_reaches_an_environment_that_is_reused(noxfile, monkeypatch, tmp_path):  # X04
    python = tmp_path / ".nox" / "ffpa" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.touch()
    monkeypatch.setattr(noxfile, "ROOT", tmp_path)
    for pin in ("torch==2.12.0", "torch==2.13.0"):
        monkeypatch.setattr(noxfile, "TORCH", pin)
        session = Reused()
        assert noxfile.project_python(session) == str(python)
        assert (str(python), ("-m", "pip", "install", "-q", pin)) in session.ran
        assert any(arguments[-2:] == ("-e", EXTRAS) for _, arguments in session.ran)


EXTRAS = ".[report,test,integrations]"


def everything(noxfile):
    beside = [(*MEASURE, *arguments) for arguments in noxfile.BESIDE]
    return [(*MEASURE, "experiment=all"), *beside, *HEADLINE]


def test_what_is_measured_beside_the_sweeps_is_what_claims_name(noxfile):
    commands = {claim.command for claim in load_claims()}
    named = {"nox -s bench -- " + " ".join(arguments) for arguments in noxfile.BESIDE}
    assert named == {command for command in commands if len(command.split()) > 5}


def test_reproduce_measures_all_into_its_own_folder_and_ends_with_the_page(noxfile, monkeypatch):
    monkeypatch.delenv("FFPA_RESULTS", raising=False)
    session = Session()
    noxfile.reproduce.func(session)
    (probe, *ran) = [arguments for arguments, _ in session.ran]
    assert probe[0] == "-c" and "no_device" in probe[1]
    assert ran == [
        *everything(noxfile),
        ("-m", "paper_figures"),
        ("-m", "ffpa.report", "claims"),
        ("-m", "ffpa.report", "page"),
    ]
    assert session.ran[-2][1] == [0, 1]  # a claim that does not hold there is a result
    assert session.env == {"FFPA_RESULTS": str(REPRODUCED)}


def test_reproduce_takes_another_folder_from_the_environment(noxfile, monkeypatch):
    monkeypatch.setenv("FFPA_RESULTS", "/results")  # as the image does
    session = Session("experiment=ladder", "measure=smoke")
    noxfile.reproduce.func(session)
    assert session.env == {"FFPA_RESULTS": "/results"}
    measured = [arguments for arguments, _ in session.ran if arguments[0] == MEASURE[0]]
    assert measured == [(*MEASURE, "experiment=ladder", "measure=smoke")]


def test_bench_ends_with_figures_and_page(noxfile):
    session = Session()
    noxfile.bench.func(session)
    assert [arguments for arguments, _ in session.ran[1:]] == [
        *everything(noxfile),
        ("-m", "paper_figures"),
        ("-m", "ffpa.report", "page"),
    ]


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("profile", ("experiments/profile_kernels.py",)),
        ("gpu_tests", ("-m", "pytest", "tests/gpu")),
        ("compare", ("-m", "ffpa.report", "compare")),
    ],
)
def test_what_follows_the_dashes_reaches_the_command(noxfile, name, command):
    session = Session("one", "two")
    getattr(noxfile, name).func(session)
    assert session.ran[-1][0] == (*command, "one", "two")
