"""What is read from ptxas's report, and how it travels inside the extension."""

import json
import re
import sys
from pathlib import Path

import pytest

from ffpa_build import build_info, compile, resources
from ffpa_build.errors import BuildError
from ffpa_build.manifest import ACCS, DTYPES

LOG = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_ZN4ffpa3oneEv' for 'sm_80'
ptxas info    : Function properties for _ZN4ffpa3oneEv
    64 bytes stack frame, 12 bytes spill stores, 20 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 64 bytes cumulative stack size, 1024 bytes smem
ptxas info    : Compile time = 131.022 ms
ptxas warning : Registers are spilled to local memory in function '_ZN4ffpa3oneEv', 12 bytes spill
ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized \
due to insufficient register resources for the wgmma pipeline in function '_ZN4ffpa3twoEv'
ptxas info    : Compiling entry function '_ZN4ffpa3twoEv' for 'sm_90a'
ptxas info    : Function properties for _ZN4ffpa3twoEv
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 168 registers, used 16 barriers, 400 bytes cmem[0]
"""


def test_registers_spills_stack_and_shared_memory_per_architecture():
    assert resources.parse(LOG) == {
        "80": {
            "entry": "_ZN4ffpa3oneEv",
            "registers": 255,
            "spill_bytes": 32,
            "stack_bytes": 64,
            "static_smem_bytes": 1024,
        },
        "90a": {
            "entry": "_ZN4ffpa3twoEv",
            "registers": 168,
            "spill_bytes": 0,
            "stack_bytes": 0,
            "static_smem_bytes": 0,
        },
    }


def test_of_two_kernels_in_one_file_the_hungrier_one_counts():
    twice = LOG.replace("sm_90a", "sm_80")
    for log in (twice, "\n".join(reversed(re.split(r"\n(?=ptxas info    : Compiling)", twice)))):
        assert resources.parse(log)["80"]["registers"] == 255


def test_warnings_are_kept_without_mangled_names():
    spill, serialised = resources.warnings(LOG + LOG)
    assert spill == "Registers are spilled to local memory in function the kernel, 12 bytes spill"
    assert serialised.startswith("(C7510) Potential Performance Loss: wgmma.mma_async")
    assert serialised.endswith("in function the kernel")


def test_build_info_is_found_in_a_binary_of_any_kind(tmp_path):
    (tmp_path / "one.log").write_text(LOG)
    many = [f"kernel {number}" for number in range(4000)]  # longer than one string literal may be
    logs = {"one/d64/fp16/f32": str(tmp_path / "one.log")}
    facts = {"archs": ["80"], "many": many, "logs": logs}
    source = build_info.source(facts)
    text = "".join(re.findall(r'R"info\((.*?)\)info"', source))
    binary = tmp_path / "_C.so"
    binary.write_bytes(b"\x7fELF\0" + text.encode() + b"\0more")
    info = build_info.read(binary)
    assert info == json.loads(text)
    assert info["many"] == many
    assert info["kernels"]["one/d64/fp16/f32"] == resources.parse(LOG)
    assert len(info["warnings"]["one/d64/fp16/f32"]) == 2
    assert "logs" not in info


def test_kernels_that_share_a_file_are_told_apart_by_their_types():
    def named(dtype, acc):
        return f"_ZN4ffpa3oneINS_3OneIXtlNS_9OneConfigELNS_5DTypeE{dtype}ELNS_3AccE{acc}ELi64EEEEvv"

    fp16, bf16 = (LOG.replace("_ZN4ffpa3oneEv", named(dtype, 1)) for dtype in (0, 1))
    bf16 = bf16.replace("Used 255", "Used 99").replace("12 bytes", "0 bytes")
    log = bf16.split("ptxas warning")[0] + fp16.split("ptxas info    : (C7510)")[0]
    found = {dtype: resources.about(log, dtype, "f32") for dtype in ("fp16", "bf16")}
    assert resources.parse(found["fp16"])["80"]["registers"] == 255
    assert resources.parse(found["bf16"])["80"]["registers"] == 99
    assert [len(resources.warnings(found[dtype])) for dtype in ("fp16", "bf16")] == [1, 0]
    assert not resources.parse(resources.about(log, "fp16", "f16"))


def test_types_are_numbered_as_in_cpp():
    code = (Path(__file__).parents[2] / "csrc/config.cuh").read_text()
    for enum, names in (("DType", DTYPES), ("Acc", ACCS)):
        (listed,) = re.findall(rf"enum class {enum} {{ (.*?) }}", code)
        assert tuple(listed.split(", ")) == names


def test_a_kernel_that_ptxas_says_nothing_of_stops_the_build(tmp_path):
    (tmp_path / "one.log").write_text("")
    facts = {"logs": {"one/d64/fp16/f32": str(tmp_path / "one.log")}}
    with pytest.raises(BuildError, match=r"has no word of ptxas on one/d64/fp16/f32"):
        build_info.source(facts)


def test_a_binary_without_build_info_is_refused(tmp_path):
    (tmp_path / "other.so").write_bytes(b"\x7fELF")
    with pytest.raises(ValueError, match=r"other\.so holds no build info"):
        build_info.read(tmp_path / "other.so")


def run_compiler(tmp_path, script: str) -> int:
    return compile.main(str(tmp_path / "log"), sys.executable, "-c", script)


def test_the_compilers_report_goes_to_the_log_and_the_rest_to_the_terminal(tmp_path, capfd):
    assert run_compiler(tmp_path, f"print({LOG!r} + 'file.cu(3): warning: odd')") == 0
    assert (tmp_path / "log").read_text().startswith(LOG)
    printed = capfd.readouterr().out
    assert "file.cu(3): warning: odd" in printed
    assert "ptxas warning : Registers are spilled" in printed
    assert "Used 255 registers" not in printed


@pytest.mark.parametrize(
    "script",
    [
        "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
        "import sys; print(\"nvcc error   : 'cicc' died due to signal 9\"); sys.exit(255)",
        "import sys; print('g++: fatal error: Killed signal terminated cc1plus'); sys.exit(1)",
    ],
)
def test_a_killed_compiler_is_explained(tmp_path, capfd, script):  # B06
    assert run_compiler(tmp_path, script) != 0
    assert re.search(r"memory ran out: .* so set MAX_JOBS lower", capfd.readouterr().out)


def test_an_ordinary_error_is_not_explained_away(tmp_path, capfd):
    assert run_compiler(tmp_path, "print('file.cu(3): error: no'); raise SystemExit(2)") == 2
    assert "MAX_JOBS" not in capfd.readouterr().out
