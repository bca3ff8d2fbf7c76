"""Finding nvcc, the host compiler, headers and ninja, on machines made of small scripts."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from ffpa_build import host, nvcc, toolchain
from ffpa_build.errors import BuildError
from ffpa_build.options import Options

ROOT = Path(__file__).parents[2]

HOST_CONFIG = """
#if (__clang_major__ >= 21) || (__clang_major__ < 3)
#error -- unsupported clang version!
#endif
#if __GNUC__ > 15
#error -- unsupported GNU version!
#endif
"""


def program(path: Path, script: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def toolkit(root: Path, version: str = "13.0.88", lib: str = "lib64") -> Path:
    """A CUDA toolkit with the files that the build looks at; its nvcc."""
    for file, text in {
        "include/cuda_runtime_api.h": "",
        "include/crt/host_config.h": HOST_CONFIG,
        f"{lib}/libcudart_static.a": "",
    }.items():
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_text(text)
    plan = f"#$ TOP={root}/bin/.."
    return program(root / "bin/nvcc", f"echo 'release 1, V{version}'; echo '{plan}' >&2")


def compiler(path: Path, version: str, *, clang: bool = False, target: str = "") -> Path:
    """A C++ compiler that knows its version and its target."""
    numbers = version.split(".")
    names = ("__clang_major__", "__clang_minor__", "__clang_patchlevel__")
    if not clang:
        names = ("__GNUC__", "__GNUC_MINOR__", "__GNUC_PATCHLEVEL__")
    macros = "".join(map("#define {} {}\n".format, names, numbers))
    macros += "#define __clang__ 1\n" if clang else ""
    target = target or f"{os.uname().machine}-linux-gnu"
    return program(path, f"case $1 in -dumpmachine) echo {target};; *) echo '{macros}';; esac")


@pytest.fixture(autouse=True)
def nothing_installed(monkeypatch):
    """No toolkit in the usual places of this very machine."""
    monkeypatch.setattr(nvcc, "SYSTEM_NVCC", Path("/nowhere/nvcc"))
    monkeypatch.setattr(nvcc, "sys", SimpleNamespace(path=[]))


def test_the_order_in_which_an_nvcc_is_looked_for(tmp_path, monkeypatch):
    environ = {}

    def expect(name: str) -> None:
        assert nvcc.find_nvcc(environ).path == tmp_path / name / "bin/nvcc"

    toolkit(tmp_path / "system")
    monkeypatch.setattr(nvcc, "SYSTEM_NVCC", tmp_path / "system/bin/nvcc")
    expect("system")
    for variable in ("PATH", "CUDA_PATH", "CUDA_HOME", "NVCC"):
        found = toolkit(tmp_path / variable)
        values = {"PATH": found.parent, "NVCC": found}
        environ[variable] = str(values.get(variable, tmp_path / variable))
        expect(variable)


def test_a_cuda_home_without_a_compiler_is_passed_over(tmp_path):  # B04
    found = toolkit(tmp_path / "good")
    environ = {"CUDA_HOME": str(tmp_path / "runtime_only"), "PATH": str(found.parent)}
    assert nvcc.find_nvcc(environ).path == found


def test_no_nvcc_is_one_sentence_with_the_fix():  # B04
    with pytest.raises(
        BuildError, match=r"^no nvcc in .*: install .* pip install nvidia-cuda-nvcc=="
    ):
        nvcc.find_nvcc({"PATH": ""})


def test_a_wrong_nvcc_is_named(tmp_path):
    with pytest.raises(BuildError, match="NVCC=/no/nvcc is not an executable"):
        nvcc.find_nvcc({"NVCC": "/no/nvcc"})
    broken = program(tmp_path / "nvcc", "exit 1")
    with pytest.raises(BuildError, match=f"{broken} does not run"):
        nvcc.find_nvcc({"NVCC": str(broken)})


def test_too_old_an_nvcc_is_refused_or_passed_over(tmp_path):
    old, new = toolkit(tmp_path / "old", "11.8.89"), toolkit(tmp_path / "new", "12.4.131")
    for environ in ({"NVCC": str(old)}, {"PATH": str(old.parent)}):
        with pytest.raises(BuildError, match=r"nvcc 11.8.89 \(.*\) is too old, 12.4 is the oldest"):
            nvcc.find_nvcc(environ)
    environ = {"PATH": str(old.parent), "CUDA_PATH": str(tmp_path / "new")}
    assert nvcc.find_nvcc(environ).path == new


def test_the_toolkit_is_found_through_a_script(tmp_path):
    real = toolkit(tmp_path / "toolkit")
    script = program(tmp_path / "bin/nvcc", f'exec {real} "$@"')
    found = nvcc.find_nvcc({"PATH": str(script.parent)})
    assert (found.version, found.include) == ("13.0.88", tmp_path / "toolkit/include")


@pytest.mark.parametrize("lib", ["lib64", "lib"])
def test_the_library_folder_of_toolkits_and_of_wheels(tmp_path, lib):
    assert nvcc.Nvcc(toolkit(tmp_path, lib=lib)).lib == tmp_path / lib


def test_a_toolkit_without_the_static_runtime_is_named(tmp_path, monkeypatch):
    path = toolkit(tmp_path)
    (tmp_path / "lib64/libcudart_static.a").unlink()
    monkeypatch.setattr(nvcc, "SYSTEM_LIBS", tmp_path / "none")
    with pytest.raises(
        BuildError, match=r"libcudart_static.a is not in the toolkit of .*: install"
    ):
        _ = nvcc.Nvcc(path).lib


def test_compiler_wheels_count_only_when_complete(tmp_path, monkeypatch):
    monkeypatch.setattr(nvcc, "sys", SimpleNamespace(path=[str(tmp_path)]))
    for variable in ("NVCC", "CUDA_HOME", "CUDA_PATH", "PATH"):
        monkeypatch.delenv(variable, raising=False)
    root = tmp_path / "nvidia/cu13"
    found = toolkit(root, lib="lib")
    assert toolchain.missing_requirements() == list(nvcc.WHEELS)
    for proof in nvcc.WHEELS.values():
        (root / proof).parent.mkdir(parents=True, exist_ok=True)
        (root / proof).touch()
    assert nvcc.find_nvcc({"PATH": ""}).path == found
    assert toolchain.missing_requirements() == []


def test_requirements_are_nothing_where_there_is_an_nvcc(tmp_path):
    found = toolkit(tmp_path)
    command = [sys.executable, "-m", "ffpa_build.toolchain", "--requirements"]
    environ = {"NVCC": str(found), "PYTHONPATH": str(ROOT / "src")}
    assert subprocess.check_output(command, env=environ, text=True) == "\n"


def test_the_host_compiler_is_asked_in_order(tmp_path):
    for name in ("g++", "cxx", "ccbin", "chosen"):
        compiler(tmp_path / name, "12.2.0")
    environ = {"PATH": str(tmp_path)}
    assert host.find_compiler(None, environ).path == str(tmp_path / "g++")
    assert host.find_compiler(None, environ | {"CXX": "cxx"}).path.endswith("cxx")
    environ |= {"CXX": "cxx", "NVCC_CCBIN": "ccbin"}
    assert host.find_compiler(None, environ).path.endswith("ccbin")
    assert host.find_compiler("chosen", environ).path.endswith("chosen")


def test_no_host_compiler_is_named():
    with pytest.raises(BuildError, match=r"'ccache g\+\+' is not an executable: .*FFPA_HOST_CXX"):
        host.find_compiler(None, {"PATH": "", "CXX": "ccache g++"})


@pytest.mark.parametrize(
    ("version", "clang", "message"),
    [
        ("16.1.0", False, r"gcc 16.1.0, newer than nvcc 13.0.88 accepts: install g\+\+-15 \(the"),
        ("9.4.0", False, r"gcc 9.4.0, which lacks C\+\+20: install one from g\+\+-10 to g\+\+-15"),
        ("21.0.0", True, r"clang 21.0.0, newer .* install clang\+\+-20"),
    ],
)  # fmt: skip
def test_a_host_compiler_that_nvcc_refuses_is_caught_first(
    tmp_path, version, clang, message
):  # B08
    cxx = host.find_compiler(str(compiler(tmp_path / "cxx", version, clang=clang)))
    with pytest.raises(BuildError, match=message):
        host.require_accepted(cxx, nvcc.Nvcc(toolkit(tmp_path / "cuda")))


@pytest.mark.parametrize(("version", "clang"), [("15.2.0", False), ("20.1.0", True)])
def test_the_newest_accepted_host_compilers_pass(tmp_path, version, clang):
    cxx = host.find_compiler(str(compiler(tmp_path / "cxx", version, clang=clang)))
    host.require_accepted(cxx, nvcc.Nvcc(toolkit(tmp_path / "cuda")))


def test_a_cross_build_asks_for_the_other_machines_files(tmp_path, monkeypatch):
    cxx = compiler(tmp_path / "cross-g++", "12.2.0", target="riscv64-linux-gnu")
    monkeypatch.setenv("NVCC", str(toolkit(tmp_path / "cuda")))
    with pytest.raises(BuildError, match="compiles for riscv64: set FFPA_CUDA_LIB and FFPA_PYTHON"):
        toolchain.find_toolchain(Options(host_cxx=str(cxx)))


def test_a_missing_python_h_is_named(tmp_path):
    with pytest.raises(BuildError, match=r"Python.h is not in .*: install .*python3\.\d+-dev"):
        host.python_include(str(tmp_path))


@pytest.mark.parametrize(
    ("module", "find"),
    [("pybind11", lambda: host.python_include(None)), ("ninja", host.find_ninja)],
)
def test_missing_build_requirements_are_named(monkeypatch, module, find):
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(BuildError, match=f"{module} is not installed: pip install {module}"):
        find()
