"""The build report: occupancy from registers, threads and shared memory, per configuration."""

import pytest
from emulator import instance

from ffpa.report.__main__ import main
from ffpa.report.build import build_report, resident_ctas


@pytest.mark.parametrize(
    "arch, num_threads, registers, smem_bytes, ctas",
    [
        ("80", 256, 255, 163 * 1024, 1),
        ("80", 128, 255, 64 * 1024, 2),  # eight warps of 8192 registers
        ("80", 128, 255, 99 * 1024, 1),  # twice as much is more than 164 KiB
        ("90", 128, 255, 99 * 1024, 2),  # and less than 228
        ("90a", 384, 168, 227 * 1024, 1),  # all of the shared memory that a CTA may have
        ("90a", 384, 168, 0, 1),  # 12 warps of 5376 registers fill each partition but 256
        ("90a", 640, 96, 0, 1),
        ("80", 32, 8, 0, 32),
        ("80", 1024, 32, 0, 2),  # 64 warps
        ("80", 1024, 33, 0, 1),  # registers come in units of eight a thread
    ],
)
def test_what_fits_at_once(arch, num_threads, registers, smem_bytes, ctas):
    assert resident_ctas(arch, num_threads, registers, smem_bytes) == ctas


def test_an_architecture_without_an_entry_is_named():
    with pytest.raises(ValueError, match="sm_120 has no entry: choose from 80, 90, 90a"):
        resident_ctas("120", 128, 32, 0)


def test_a_line_for_each_configuration_and_architecture():
    compiled = instance("split_d-sm80", 128, "fp16", "f32", ["80", "120"], smem_bytes=64 * 1024)
    used = {"registers": 255, "spill_bytes": 8, "static_smem_bytes": 16}
    info = {"kernels": {compiled["name"]: {"80": used, "120": used}}}
    header, unknown, known = build_report([compiled], info)
    assert header.split()[2:] == ["threads", "registers", "spills", "smem", "CTAs/SM", "occupancy"]
    facts = ["128", "255", "8", "65552"]
    assert unknown.split() == ["split_d-sm80/d128/fp16/f32", "120", *facts]
    assert known.split() == ["split_d-sm80/d128/fp16/f32", "80", *facts, "2", "12%"]


def test_the_command_reports_this_build(capsys):
    extension = pytest.importorskip("ffpa._C", reason="the extension is not built")
    assert main(["build"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + sum(len(by) for by in extension.build_info()["kernels"].values())
    assert all(line.endswith("%") for line in lines[1:])


def test_without_an_extension_it_is_one_sentence(monkeypatch, capsys):
    def missing():
        raise ImportError("the extension ffpa._C is not built: run `pip install -e .`")

    monkeypatch.setattr("ffpa.extension.module", missing)
    assert main(["build"]) == 2
    assert "is not built" in capsys.readouterr().err
