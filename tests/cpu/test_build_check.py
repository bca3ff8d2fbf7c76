"""The disassembly check: what it reads and what it objects to."""

import pytest

from ffpa_build import check

LISTING = """\
Fatbin elf code:
================
arch = sm_80
host = linux

	code for sm_80
	.target	sm_80

		Function : _Zmma
	.headerflags	@"EF_CUDA_SM80 EF_CUDA_VIRTUAL_SM(EF_CUDA_SM80)"
        /*0000*/                   IMAD.MOV.U32 R1, RZ, RZ, c[0x0][0x28] ;  /* 0x00000a00ff017624 */
                                                                            /* 0x000fe400078e00ff */
        /*0010*/              @!P0 LDGSTS.E.BYPASS.LTC128B.128 [R1], [R2.64] ; /* 0x0 */
        /*0020*/              @P1  LDSM.16.MT88.4 R4, [R8] ;                /* 0x0 */
        /*0030*/                   HMMA.16816.F32.BF16 R4, R8, R10, R4 ;    /* 0x0 */

	code for sm_90a

		Function : _Zwgmma
        /*0000*/             @!UP0 UTMALDG.2D [UR4], [UR6] ;                /* 0x0 */
        /*1a010*/                  HGMMA.64x128x16.F16 R24, gdesc[UR8] ;    /* 0x0 */
"""  # fmt: skip
code = check.parse(LISTING.splitlines())

SM80 = "split_d-sm80/d64/bf16/f32"
SM90 = "split_d-sm90/d64/fp16/f16"


def resources(entry: str, spill_bytes: int = 0) -> dict[str, object]:
    return {"entry": entry, "registers": 128, "spill_bytes": spill_bytes, "stack_bytes": 0}


def info(**changes):
    """The build info that fits LISTING."""
    return {
        "archs": ["80", "90a"],
        "kernels": {SM80: {"80": resources("_Zmma")}, SM90: {"90a": resources("_Zwgmma")}},
        "sass": {SM80: ["HMMA", "LDGSTS", "LDSM"], SM90: ["HGMMA", "UTMALDG"]},
    } | changes


def test_instructions_are_read_per_architecture_and_kernel():
    assert code == {
        ("80", "_Zmma"): {
            "IMAD.MOV.U32",
            "LDGSTS.E.BYPASS.LTC128B.128",
            "LDSM.16.MT88.4",
            "HMMA.16816.F32.BF16",
        },
        ("90a", "_Zwgmma"): {"UTMALDG.2D", "HGMMA.64x128x16.F16"},
    }


def test_what_is_as_meant_passes():
    assert list(check.problems(info(), code)) == []


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"archs": ["80", "90", "90a"]}, "sm_90 was asked for, but no machine code for it is in"),
        ({"kernels": {SM80: {"80": resources("_Zgone")}}}, "sm_80 has no machine code in the"),
        ({"kernels": {SM80: {"90": resources("_Zmma")}}}, "sm_90 has no machine code in the"),
        ({"sass": {SM80: ["HMMA", "ATOM"], SM90: ["HGMMA"]}}, "sm_80 has no ATOM instruction"),
        ({"sass": {SM80: ["HMMA"], SM90: ["UTMALDG"]}}, "sm_90a has HGMMA instructions, which"),
    ],
)  # fmt: skip
def test_each_deviation_is_one_sentence(changes, problem):  # B02
    (found,) = check.problems(info(**changes), code)
    assert problem in found


@pytest.mark.parametrize(
    ("acc", "instructions", "ok"),
    [
        ("f32", {"HMMA.16816.F32"}, True),
        ("f32", {"HMMA.16816.F16"}, False),
        ("f32", {"HMMA.16816.F32", "HMMA.16816.F16"}, False),
        ("f16", {"HMMA.16816.F16"}, True),
        ("f16", {"HGMMA.64x64x16.F32"}, False),
        ("f16f32", {"HMMA.16816.F16"}, True),
        ("qk32_pv16", {"HGMMA.64x64x16.F32", "HGMMA.64x256x16.F16"}, True),
        ("qk32_pv16", {"HGMMA.64x64x16.F32"}, False),
    ],
)  # fmt: skip
def test_accumulators_are_those_that_the_name_promises(acc, instructions, ok):
    name = f"kernel/d64/fp16/{acc}"
    meant = [next(iter(instructions)).split(".")[0]]
    one = info(archs=[], kernels={name: {"80": resources("_Z")}}, sass={name: meant})
    found = list(check.problems(one, {("80", "_Z"): instructions}))
    assert found == [] if ok else "accumulates in" in found[0]


@pytest.mark.parametrize(
    ("family", "variant", "found", "ok"),
    [
        ("HGMMA", "/masked", {"HGMMA.64x64x16.F32", "HGMMA.64x256x16.F16"}, True),
        ("HGMMA", "/masked", {"HGMMA.64x64x16.F16"}, False),
        ("HGMMA", "", {"HGMMA.64x64x16.F32", "HGMMA.64x256x16.F16"}, False),
        ("HMMA", "/masked", {"HMMA.16816.F16"}, True),
        ("HMMA", "/masked", {"HMMA.16816.F32", "HMMA.16816.F16"}, False),
    ],
)  # fmt: skip
def test_a_mask_means_scores_in_f32_on_hopper(family, variant, found, ok):
    name = f"kernel/d64/fp16/f16{variant}"
    one = info(archs=[], kernels={name: {"90a": resources("_Z")}}, sass={name: [family]})
    told = list(check.problems(one, {("90a", "_Z"): found}))
    assert told == [] if ok else "accumulates in" in told[0]


def test_a_spill_is_named():
    spilling = info(kernels={SM80: {"80": resources("_Zmma", 8)}})
    assert list(check.spills(spilling)) == [f"{SM80} on sm_80 spills 8 bytes of registers"]
    assert list(check.spills(info())) == []


def test_the_table_sums_up_kernels_of_a_kind():
    lines = list(check.table(info()))
    assert lines[1].split() == ["split_d-sm80", "bf16", "f32", "80", "1", "128-128", "0"]
