"""What pip is told of a build: with its isolation everything needed, without it nothing."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from ffpa_build import backend
from ffpa_build.nvcc import WHEELS

ROOT = Path(__file__).parents[2]


def test_the_build_requirements_are_declared():  # B07, B16
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    assert {Requirement(text).name for text in declared} == {"setuptools", "pybind11", "ninja"}


@pytest.mark.parametrize("artefact", ["wheel", "editable"])
def test_an_isolated_build_without_an_nvcc_gets_the_compiler(monkeypatch, artefact):  # B05
    name = f"get_requires_for_build_{artefact}"
    hook = getattr(backend, name)
    monkeypatch.setattr(backend.build_meta, name, lambda settings: [])  # setuptools' writes files
    monkeypatch.setattr(backend, "missing_requirements", lambda: list(WHEELS))
    assert set(WHEELS) <= set(hook())
    monkeypatch.setattr(backend, "missing_requirements", list)
    assert not set(WHEELS) & set(hook())


def test_a_build_sees_no_torch():  # B03, B05, B09
    script = "import sys; sys.modules['torch'] = None; import ffpa_build.extension"
    done = subprocess.run(
        [sys.executable, "-c", script], env={"PYTHONPATH": str(ROOT / "src")}, capture_output=True
    )
    assert done.returncode == 0, done.stderr.decode()
