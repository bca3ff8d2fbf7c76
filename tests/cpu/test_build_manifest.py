"""kernels.toml: what it multiplies out to, which mistakes are named, and what C++ comes of it."""

import re
from pathlib import Path

import pytest

from ffpa_build import generate, manifest
from ffpa_build.errors import BuildError
from ffpa_build.sources import kernel_hashes, source_hash

ROOT = Path(__file__).parents[2]

HEADER = """
#include "kernels/toy_config.cuh"
"""
CONFIG_HEADER = """
struct ToyConfig {
  DType dtype;
  Acc acc;          // struct Decoy { int x; };
  int headdim, Br;
  bool swizzle = true;
  Order order = Order::rows;
};
"""
KERNEL = """
[[kernel]]
id = "toy-sm80"
header = "kernels/toy.cuh"
archs = ["80", "90"]
lesson = "one line"
sass = ["HMMA"]
"""
CONFIG = """
  [[kernel.config]]
  Br = 64
  headdim = [64, 128]
  dtype = ["fp16", "bf16"]
  acc = "f32"
  reason = "it fits"
"""


@pytest.fixture
def tree(tmp_path):
    """Writes kernels.toml beside a toy kernel and returns the tree's root."""
    kernels = tmp_path / "csrc/kernels"
    kernels.mkdir(parents=True)
    (kernels / "toy.cuh").write_text(HEADER)
    (kernels / "toy_config.cuh").write_text(CONFIG_HEADER)

    def write(text: str) -> Path:
        (tmp_path / "csrc/kernels.toml").write_text(text)
        return tmp_path

    return write


def test_lists_multiply_out(tree):
    instances = manifest.load(tree(KERNEL + CONFIG))
    assert [instance.name for instance in instances] == [
        "toy-sm80/d64/fp16/f32",
        "toy-sm80/d64/bf16/f32",
        "toy-sm80/d128/fp16/f32",
        "toy-sm80/d128/bf16/f32",
    ]
    assert instances[0].symbol == "toy_sm80__d64__fp16__f32"


def test_variants_and_enums(tree):
    extra = 'variant = "columns"\nfallback = true\nnarrow = true\nmasks = true\nmax_seqlen_k = 99\n'
    extra += 'order = "columns"\nswizzle = false\n'
    instance = manifest.load(tree(KERNEL + CONFIG + extra))[0]
    assert instance.name == "toy-sm80/d64/fp16/f32/columns"
    assert instance.fallback and instance.narrow and instance.masks
    assert instance.max_seqlen_k == 99
    assert instance.fields[-2:] == (("swizzle", "false"), ("order", "Order::columns"))


def test_kernels_may_share_a_config_struct(tree):
    root = tree(KERNEL + CONFIG)
    own = manifest.load(root)[0].fields
    header = root / "csrc/kernels/toy.cuh"
    header.write_text('#include "kernels/shared.cuh"\nusing ToyConfig = SharedConfig;\n')
    shared = CONFIG_HEADER.replace("ToyConfig", "SharedConfig")
    (root / "csrc/kernels/shared.cuh").write_text(shared)
    assert manifest.load(root)[0].fields == own


def test_source_of_an_instance_names_fields_in_the_structs_order(tree):
    instance = manifest.load(tree(KERNEL + CONFIG))[0]
    (unit,) = generate.units([(instance, ("80",))])
    source = unit.source
    assert '#include "kernels/toy.cuh"' in source
    assert "KernelInfo toy_sm80__d64__fp16__f32() {" in source
    fields = ".dtype = DType::fp16, .acc = Acc::f32, .headdim = 64, .Br = 64"
    assert f'kernel_info<Toy<ToyConfig{{{fields}}}>>("toy-sm80")' in source


def test_kernels_share_a_file_unless_company_changes_their_code(tree):
    for sass, files in (("HMMA", 2), ("HGMMA", 4)):
        text = KERNEL.replace('["HMMA"]', f'["{sass}"]')
        instances = manifest.load(tree(text + CONFIG))
        units = generate.units([(instance, ("80",)) for instance in instances])
        assert len(units) == files
        assert sum(unit.source.count("KernelInfo ") for unit in units) == len(instances) == 4


def test_the_registry_quotes_text(tree):
    text = KERNEL.replace("one line", 'QKᵀ, \\"so to say\\"')
    instances = manifest.load(tree(text + CONFIG))
    source = generate.registry_source([(instance, ("80",)) for instance in instances])
    assert r'.lesson = "QKᵀ, \"so to say\""' in source
    assert source.count("KernelInfo toy") == source.count('.archs = {"80"}') == 4


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (KERNEL + CONFIG + "Bq = 1", "kernel toy-sm80, config 1: unknown key Bq; known are Br, "),
        (KERNEL + CONFIG.replace("Br = 64", ""), "config 1: the key Br is missing"),
        (KERNEL + CONFIG.replace("64\n", '"64"\n'), "Br = '64' should be a whole number"),
        (KERNEL + CONFIG.replace("64\n", "true\n"), "Br = True should be a whole number"),
        (KERNEL + CONFIG + "swizzle = 1", "swizzle = 1 should be true or false"),
        (KERNEL + CONFIG + "order = 1", "order = 1 should be a name in Order"),
        (KERNEL + CONFIG.replace('"f32"', '"f16"'), "bf16 has no F16 accumulator"),
        (KERNEL + CONFIG.replace('"f32"', '["f32", "qk16_pv32"]'), "bf16 has no F16 accumulator"),
        (KERNEL + CONFIG.replace('"f32"', '"fp32"'), "acc 'fp32' is none of f16, f32, "),
        (KERNEL + CONFIG.replace('"bf16"', '"half"'), "dtype 'half' is none of fp16, bf16"),
        (KERNEL + CONFIG.replace("128", "100"), "headdim 100 is not a positive multiple of 8"),
        (KERNEL + CONFIG.replace("128", "64"), "lists toy-sm80/d64/fp16/f32 twice"),
        (KERNEL + "lessons = 1" + CONFIG, "toy-sm80: unknown key lessons; known are archs, "),
        (KERNEL.replace('sass = ["HMMA"]', "") + CONFIG, "toy-sm80: the key sass is missing"),
        (KERNEL.replace("toy.cuh", "top.cuh") + CONFIG, "csrc/kernels/top.cuh does not exist"),
        (KERNEL.replace("toy.cuh", "toy_config.cuh") + CONFIG, "struct ToyConfigConfig is neither"),
        ("[[kernel]", "kernels.toml is not valid TOML"),
    ],
)  # fmt: skip
def test_mistakes_are_named(tree, text, message):
    with pytest.raises(BuildError, match=re.escape(message)):
        manifest.load(tree(text))


def test_selection_by_architecture_and_name(tree):
    instances = manifest.load(tree(KERNEL + CONFIG))
    chosen = manifest.select(instances, ("90",), ("toy-sm80/d64/*",))
    assert [(instance.headdim, archs) for instance, archs in chosen] == [(64, ("90",))] * 2
    assert {archs for _, archs in manifest.select(instances, ())} == {("80", "90")}


def test_a_kernel_without_an_architecture_in_the_build_is_left_out(tree):
    other = KERNEL.replace("toy-sm80", "toy-sm90").replace('["80", "90"]', '["90a"]')
    instances = manifest.load(tree(KERNEL + CONFIG + other + CONFIG))
    assert {instance.id for instance, _ in manifest.select(instances, ("90a",))} == {"toy-sm90"}


def test_architectures_for_tests_are_compiled_on_request(tree):
    one = KERNEL.replace('["80", "90"]', '["80"]\ntest_archs = ["90"]')
    instances = manifest.load(tree(one + CONFIG))
    assert {archs for _, archs in manifest.select(instances, ())} == {("80",)}
    for archs in ((), ("80", "90")):
        chosen = manifest.select(instances, archs, for_tests=True)
        assert {archs for _, archs in chosen} == {("80", "90")}


def test_a_selection_of_nothing_is_an_error(tree):
    instances = manifest.load(tree(KERNEL + CONFIG))
    with pytest.raises(
        BuildError, match="has 120, for which no kernel is written: choose of 80, 90"
    ):
        manifest.select(instances, ("120",))
    with pytest.raises(BuildError, match="'nave' matches no kernel: ids are toy-sm80"):
        manifest.select(instances, (), ("nave",))


def test_files_are_rewritten_only_when_they_change(tmp_path):
    path = tmp_path / "new/file.cu"
    generate.write_if_changed(path, "a")
    before = path.stat().st_mtime_ns
    generate.write_if_changed(path, "a")
    assert path.stat().st_mtime_ns == before
    generate.write_if_changed(path, "b")
    assert path.read_text() == "b"


def test_the_source_hash_follows_paths_and_contents(tree):
    root = tree(KERNEL + CONFIG)
    first = source_hash(root)
    (root / "csrc/notes.md").write_text("not compiled")
    assert source_hash(root) == first
    header = root / "csrc/kernels/toy.cuh"
    header.write_text(header.read_text() + " ")
    second = source_hash(root)
    header.rename(header.with_name("yot.cuh"))
    assert len({first, second, source_hash(root)}) == 3


def test_a_kernels_hash_follows_its_own_sources_alone(tree):
    root = tree("")
    csrc = root / "csrc"
    for name in ("launch.cuh", "bindings.cpp"):
        (csrc / name).write_text("// what every launch needs\n")
    (csrc / "kernels/yot.cuh").write_text(HEADER + "using YotConfig = ToyConfig;\n")
    both = KERNEL + CONFIG + KERNEL.replace("toy", "yot") + CONFIG
    (csrc / "kernels.toml").write_text(both)

    def hashes():
        found = kernel_hashes(root, manifest.load(root))
        return found["toy-sm80/d64/fp16/f32"], found["yot-sm80/d64/fp16/f32"]

    toy, yot = hashes()
    assert toy != yot
    (csrc / "kernels/toy.cuh").write_text(HEADER + "// a change\n")
    changed, same = hashes()
    assert changed != toy and same == yot
    (csrc / "kernels.toml").write_text(both.replace("Br = 64", "Br = 32", 1))
    configured, same = hashes()
    assert configured not in (toy, changed) and same == yot
    (csrc / "launch.cuh").write_text("// another launch\n")
    assert configured != hashes()[0] and yot != hashes()[1]
    debug = kernel_hashes(root, manifest.load(root), debug_barriers=True)
    assert not set(debug.values()) & set(hashes())


def test_the_projects_own_list_is_valid():
    instances = manifest.load(ROOT)
    assert "naive" in {instance.id for instance in instances}
    assert all(instance.lesson for instance in instances)


def test_dtypes_and_accumulators_are_those_of_the_code():
    code = (ROOT / "csrc/config.cuh").read_text()
    for enum, names in (("DType", manifest.DTYPES), ("Acc", manifest.ACCS)):
        body = re.search(rf"enum class {enum} {{(.*?)}}", code)
        assert body and tuple(body[1].replace(" ", "").split(",")) == names
