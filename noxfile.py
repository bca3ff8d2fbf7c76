"""Every task of the project, one session each: `nox -l` is the manual, bare `nox` lints and tests.

Outside a container the sessions share one environment, `.nox/ffpa`, because torch alone is about a
gigabyte; inside one (`NOX_DEFAULT_VENV_BACKEND=none` or `--no-venv`) they install nothing and use
the interpreter that runs nox. Whatever follows `--` goes to the command underneath.
"""

from __future__ import annotations

import os
import shutil
import sys
import venv
from pathlib import Path

import nox

nox.needs_version = ">=2024.4.15"
nox.options.sessions = ["lint", "tests"]
nox.options.reuse_existing_virtualenvs = True
nox.options.error_on_external_run = True

ROOT = Path(__file__).parent
TORCH = "torch==2.13.0"
BUILD_REQUIREMENTS = ["setuptools>=77", "wheel", "pybind11>=3", "ninja"]
CPP_SUFFIXES = {".h", ".cuh", ".cu", ".cpp"}


def project_python(session: nox.Session) -> str:
    """The interpreter with FFPA built and installed in it, brought up to date first."""
    if session.venv_backend == "none":
        return sys.executable
    environment = ROOT / ".nox" / "ffpa"
    python = str(environment / "bin" / "python")
    if not Path(python).exists():
        venv.create(environment, with_pip=True)

    def install(*requirements: str) -> None:
        session.run(python, "-m", "pip", "install", "-q", *requirements, external=True)

    install(*BUILD_REQUIREMENTS)
    compiler = session.run(
        python, "-m", "ffpa_build.toolchain", "--requirements",
        env={"PYTHONPATH": str(ROOT / "src")}, external=True, silent=True,
    )  # fmt: skip
    if compiler and compiler.split():
        install(*compiler.split())
    install(TORCH)
    session.run(
        python, "-m", "pip", "install", "-v", "--no-build-isolation",
        "-e", ".[report,test,integrations]",
        external=True, silent=not session.interactive,
    )  # fmt: skip
    return python


def require_gpu(session: nox.Session, python: str) -> None:
    probe = (
        "import sys, torch\n"
        "from ffpa.measure.preflight import no_device\n"
        "torch.cuda.is_available() or sys.exit(no_device())"
    )
    session.run(python, "-c", probe, external=True)


def run(session: nox.Session, python: str, *arguments: str) -> None:
    session.run(python, *arguments, external=True)


# What claims ask for beside the sweeps of conf/experiment.
BESIDE = (
    ("experiment=causal", "n=16384", "d=64,128,192,256,320,384,448,512"),
    ("experiment=accuracy", "dtype=bf16", "acc=f32"),
    ("experiment=peers", "dtype=bf16", "acc=f32", "d=384,512"),
)


def measure_all(session: nox.Session, python: str) -> None:
    """What follows `--`; otherwise everything, the headline in three processes."""
    measure = ("experiments/run.py", "device=cuda")
    run(session, python, *measure, *(session.posargs or ["experiment=all"]))
    if not session.posargs:
        for beside in BESIDE:
            run(session, python, *measure, *beside)
        for _ in range(2):  # the intervals of the headline cover how processes differ
            run(session, python, *measure, "experiment=headdim")


@nox.session
def lint(session: nox.Session) -> None:
    """ruff, mypy, clang-format, shellcheck and hadolint over what they apply to (1 min, no GPU)."""
    tracked = [Path(name) for name in _tracked_files(session)]
    cpp = [str(path) for path in tracked if path.suffix in CPP_SUFFIXES]
    shell = [str(path) for path in tracked if path.suffix == ".sh" or path.parent.name == ".ci"]
    dockerfiles = [str(path) for path in tracked if path.name == "Dockerfile"]
    if session.venv_backend != "none":
        session.install("-r", "tests/lint-requirements.txt")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("mypy")
    session.run("clang-format", "--dry-run", "--Werror", *cpp)
    session.run("shellcheck", *shell)
    if dockerfiles:
        session.run("hadolint", *dockerfiles)


@nox.session
def tests(session: nox.Session) -> None:
    """Build, then the CPU tests: numerics, host logic, figures, claims (10 min, no GPU)."""
    python = project_python(session)
    run(session, python, "-m", "pytest", "tests/cpu", *session.posargs)


@nox.session(default=False)
def build(session: nox.Session) -> None:
    """Compile, tell registers, shared memory, occupancy; check the disassembly (8 min, no GPU)."""
    python = project_python(session)
    run(session, python, "-m", "ffpa.report", "build")
    run(session, python, "-m", "ffpa_build.check", *session.posargs)


@nox.session(default=False)
def smoke(session: nox.Session) -> None:
    """Build, run d=576 acc=f32, rebuild figures and the page (10 min; CPU model without a GPU)."""
    python = project_python(session)
    run(session, python, "experiments/run.py", "d=576", "acc=f32", *session.posargs)
    run(session, python, "-m", "paper_figures")
    run(session, python, "-m", "ffpa.report", "page")


@nox.session(default=False, tags=["gpu"])
def bench(session: nox.Session) -> None:
    """Measure all experiments, or what follows `--`, then figures and page (55 min, GPU)."""
    python = project_python(session)
    require_gpu(session, python)
    measure_all(session, python)
    run(session, python, "-m", "paper_figures")
    run(session, python, "-m", "ffpa.report", "page")


@nox.session(default=False, tags=["gpu"])
def reproduce(session: nox.Session) -> None:
    """Measure everything anew, into reproduced/, beside the authors' rows (55 min, GPU)."""
    python = project_python(session)
    require_gpu(session, python)
    session.env["FFPA_RESULTS"] = os.environ.get("FFPA_RESULTS", str(ROOT / "reproduced"))
    measure_all(session, python)
    run(session, python, "-m", "paper_figures")
    # A claim that does not hold here is a result, to be read on the page.
    session.run(python, "-m", "ffpa.report", "claims", external=True, success_codes=[0, 1])
    run(session, python, "-m", "ffpa.report", "page")


@nox.session(default=False, tags=["gpu"])
def accuracy(session: nox.Session) -> None:
    """Errors against float64 over N, D and input scale: experiment=accuracy (3 min, GPU)."""
    python = project_python(session)
    require_gpu(session, python)
    overrides = ["experiment=accuracy", *session.posargs]
    run(session, python, "experiments/run.py", "device=cuda", *overrides)


@nox.session(default=False, tags=["gpu"])
def profile(session: nox.Session) -> None:
    """Counters of the kernels by Nsight Compute; `-- --ladder`: steps too (3 min, GPU)."""
    python = project_python(session)
    require_gpu(session, python)
    run(session, python, "experiments/profile_kernels.py", *session.posargs)


@nox.session(default=False, tags=["gpu"])
def gpu_tests(session: nox.Session) -> None:
    """The GPU tests; `-- --record FILE` keeps the outcome, as JSON (3 min, GPU)."""
    python = project_python(session)
    require_gpu(session, python)
    run(session, python, "-m", "pytest", "tests/gpu", *session.posargs)


@nox.session(default=False)
def figures(session: nox.Session) -> None:
    """Rebuild figures and tables from the recorded rows, byte for byte (1 min, no GPU)."""
    run(session, project_python(session), "-m", "paper_figures", *session.posargs)


@nox.session(default=False)
def report(session: nox.Session) -> None:
    """Write the report page and the README's generated blocks (1 min, no GPU)."""
    python = project_python(session)
    run(session, python, "-m", "ffpa.report", "page", *session.posargs)
    run(session, python, "-m", "ffpa.report", "readme")


@nox.session(default=False)
def paper(session: nox.Session) -> None:
    """Set paper/sample.tex, every figure and table on two sheets, with pdflatex (1 min, no GPU)."""
    python = project_python(session)
    sample = session.run(python, "-m", "ffpa.report", "latex", external=True, silent=True)
    if shutil.which("pdflatex") is None:
        session.error(
            "paper/sample.tex is written, and pdflatex is missing: install it, on Debian as "
            "texlive-latex-recommended, texlive-fonts-recommended and lmodern"
        )
    with session.chdir(Path(str(sample).strip()).parent):
        for _ in range(2):  # the second time for the references
            told = session.run(
                "pdflatex", "-interaction=nonstopmode", "-halt-on-error", "sample.tex",
                external=True, silent=True,
            )  # fmt: skip
    session.log(next(line for line in str(told).splitlines() if line.startswith("Sheets:")))


@nox.session(default=False)
def claims(session: nox.Session) -> None:
    """Judge each claim by the rows: holds, unclear, does not hold, stale (1 min, no GPU)."""
    run(session, project_python(session), "-m", "ffpa.report", "claims", *session.posargs)


@nox.session(default=False)
def compare(session: nox.Session) -> None:
    """`-- A.jsonl B.jsonl`: per point faster, slower, same or unclear (1 min, no GPU)."""
    run(session, project_python(session), "-m", "ffpa.report", "compare", *session.posargs)


@nox.session(default=False, venv_backend="none")
def image(session: nox.Session) -> None:
    """Build the image and test it; `-- --platform linux/arm64 --standin` (20 min, no GPU)."""
    session.run("docker/image.sh", *session.posargs, external=True)


@nox.session(default=False)
def lock(session: nox.Session) -> None:
    """Pin docker/requirements.in with hashes, one lock file per architecture (1 min, no GPU)."""
    if session.venv_backend == "none":
        session.error("the lock files are made outside the image: run `nox -s lock` there")
    session.install("uv")
    for machine in ("x86_64", "aarch64"):
        session.run(
            "uv", "pip", "compile", "docker/requirements.in", "--quiet", "--generate-hashes",
            "--no-emit-index-url", "--python-version", "3.11",  # the oldest; newer ones fit too
            "--python-platform", f"{machine}-unknown-linux-gnu",
            "--custom-compile-command", "nox -s lock",
            "--output-file", f"docker/lock-{machine}.txt",
        )  # fmt: skip


def _tracked_files(session: nox.Session) -> list[str]:
    listing = session.run(
        "git", "ls-files", "--cached", "--others", "--exclude-standard", external=True, silent=True
    )
    return [name for name in str(listing).splitlines() if Path(name).exists()]
