"""Whole builds of a toy kernel in a copy of the tree, by the commands that people type."""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ffpa_build import build_info
from ffpa_build.sources import source_hash

ROOT = Path(__file__).parents[2]

KERNEL = """
#pragma once
#include "launch.cuh"
namespace ffpa {
struct ToyConfig { DType dtype; Acc acc; int headdim; int Br; };
template <class Kernel>
__global__ void toy_kernel(ForwardParams params) {
  extern __shared__ float lanes[];
  __shared__ float fixed[64];
  lanes[threadIdx.x] = fixed[threadIdx.x % 64] = params.scale_log2;
  __syncthreads();
  static_cast<Element<Kernel::dtype>*>(params.out)[threadIdx.x] = lanes[31] + fixed[1];
}
template <ToyConfig kConfig>
struct Toy {
  static constexpr DType dtype = kConfig.dtype;
  static constexpr Acc acc = kConfig.acc;
  static constexpr int headdim = kConfig.headdim, Br = kConfig.Br, Bc = 8, num_threads = 32;
  static constexpr int smem_bytes = 128;
  static cudaError_t launch(const ForwardParams& params, cudaStream_t stream) {
    return launch_kernel(toy_kernel<Toy>, dim3(1), num_threads, smem_bytes, stream, params);
  }
};
}
"""
LIST = """
[[kernel]]
id = "toy-sm80"
header = "kernels/toy.cuh"
archs = ["80", "90"]
lesson = "one line"
sass = ["STG"]
  [[kernel.config]]
  headdim = [64, 128]
  dtype = ["fp16", "bf16"]
  acc = "f32"
  Br = 16
  reason = "it builds fast"
"""


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A copy of what a build reads, with the toy as its only kernel, for sm_80."""
    root = tmp_path_factory.mktemp("tree with a space")
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, root)
    shutil.copytree(ROOT / "csrc", root / "csrc", ignore=shutil.ignore_patterns("kernels*"))
    shutil.copytree(ROOT / "src/ffpa_build", root / "src/ffpa_build")
    (root / "src/ffpa").mkdir()
    (root / "src/ffpa/__init__.py").write_text('__version__ = "1.2.3"\n')
    (root / "csrc/kernels").mkdir()
    (root / "csrc/kernels/toy.cuh").write_text(KERNEL)
    (root / "csrc/kernels.toml").write_text(LIST)
    return root


def build(root: Path, **options: str) -> subprocess.CompletedProcess[str]:
    environ = {key: value for key, value in os.environ.items() if not key.startswith("FFPA_")}
    return subprocess.run(
        [sys.executable, "setup.py", "build_ext", "--inplace"],
        cwd=root,
        env=environ | {"FFPA_CUDA_ARCHS": "80", "MAX_JOBS": "2"} | options,
        capture_output=True,
        text=True,
    )


@pytest.fixture(scope="module")
def extension(tree):
    """Path of the extension built from the tree."""
    done = build(tree)
    assert done.returncode == 0, done.stdout + done.stderr
    first = re.search(r"^ffpa: .*$", done.stdout, re.MULTILINE)
    assert first and re.search(r"nvcc \d+\.\d+.* architectures 80, 4 kernels, 2 at", first[0])
    (path,) = (tree / "src/ffpa").glob("_C*.so")
    return path


def load(path: Path):
    spec = importlib.util.spec_from_file_location("_C", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_module_tells_its_kernels(extension):
    first, *others = load(extension).kernels()
    assert first == {
        "name": "toy-sm80/d64/fp16/f32",
        "id": "toy-sm80",
        "dtype": "fp16",
        "acc": "f32",
        "headdim": 64,
        "variant": "",
        "fallback": False,
        "narrow": False,
        "masks": False,
        "max_seqlen_k": 0,
        "Br": 16,
        "Bc": 8,
        "num_threads": 32,
        "smem_bytes": 128,
        "archs": ["80"],
        "lesson": "one line",
        "reason": "it builds fast",
    }
    assert [kernel["name"].split("/")[1:3] for kernel in others] == [
        ["d64", "bf16"], ["d128", "fp16"], ["d128", "bf16"]
    ]  # fmt: skip


def test_kernels_of_one_file_are_told_apart(extension, tree):
    files = list((tree / "build/ffpa").glob("*/gen/*.cu"))
    assert sorted(path.stem for path in files) == ["toy_sm80__d128", "toy_sm80__d64"]
    kernels = build_info.read(extension)["kernels"]
    entries = [kernels[f"toy-sm80/d64/{dtype}/f32"]["80"]["entry"] for dtype in ("fp16", "bf16")]
    assert ["DTypeE0ELNS_3AccE1ELi64" in entries[0], "DTypeE1ELNS_3AccE1ELi64" in entries[1]] == [
        True, True
    ]  # fmt: skip


def test_the_module_tells_how_it_was_built(extension, tree):
    info = load(extension).build_info()
    assert info["archs"] == ["80"]
    assert info["version"] == "1.2.3"
    assert info["source_hash"] == source_hash(tree)
    assert re.fullmatch(r"1[23]\.\d+", info["cuda_runtime"])
    resources = info["kernels"]["toy-sm80/d64/fp16/f32"]["80"]
    assert resources["registers"] > 0
    assert resources["spill_bytes"] == 0
    assert resources["static_smem_bytes"] == 256
    assert {key: info[key] for key in build_info.read(extension)} == build_info.read(extension)
    assert str(tree) not in json.dumps(info)


def test_the_check_passes_and_fails(extension, tree):
    command = [sys.executable, "-m", "ffpa_build.check", str(extension)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    damaged = tree / "damaged.so"
    damaged.write_bytes(extension.read_bytes().replace(b'["STG"]', b'["STQ"]'))
    done = subprocess.run([*command[:-1], str(damaged)], capture_output=True, text=True)
    assert done.returncode == 1
    assert "error: toy-sm80/d64/fp16/f32 on sm_80 has no STQ instruction" in done.stderr


def test_loading_starts_no_cuda_and_links_neither_torch_nor_the_driver(extension):
    script = (
        "import importlib.util as u, sys\n"
        "spec = u.spec_from_file_location('_C', sys.argv[1])\n"
        "spec.loader.exec_module(u.module_from_spec(spec))\n"
        "print(open('/proc/self/maps').read())"
    )
    command = [sys.executable, "-c", script, str(extension)]
    maps = subprocess.check_output(command, text=True)
    assert extension.name in maps
    assert not re.search(r"libcuda|libcudart|libtorch|libstdc\+\+|/dev/nvidia", maps)


def test_launch_errors_are_exceptions(extension):  # R10, R15
    module = load(extension)
    strides = (64, 64, 64)
    arguments = (16, 16, 16, 16, 0, *[strides] * 4, 1, 1, 1, 1, 1, 64, 64, 1.0, 0)
    arguments += (0, 0, (0, 0, 0, 0), 1, 0, 0, 4096, 0)
    with pytest.raises(ValueError, match=r"no kernel named 'toy' in this build: ffpa\.kernels"):
        module.forward("toy", *arguments)
    with pytest.raises(
        RuntimeError, match=r"^toy-sm80/d64/fp16/f32: cudaError\w+, "
    ):  # no device 4096
        module.forward("toy-sm80/d64/fp16/f32", *arguments)


def test_a_second_build_compiles_only_what_changed(extension, tree):
    assert "ninja: no work to do" in build(tree).stdout
    text = (tree / "csrc/kernels.toml").read_text()
    (tree / "csrc/kernels.toml").write_text(text.replace("one line", "another"))
    stdout = build(tree).stdout
    assert "c++" in stdout and "] nvcc" not in stdout


def test_a_part_of_the_kernels_can_be_built(extension, tree):
    assert build(tree, FFPA_KERNELS="*/d128/*").returncode == 0
    info = build_info.read(extension)
    assert sorted(info["kernels"]) == ["toy-sm80/d128/bf16/f32", "toy-sm80/d128/fp16/f32"]
    assert info["kernel_filter"] == ["*/d128/*"]


def test_a_debug_build_can_be_told_from_others(extension, tree):
    """A wait on a barrier has its limit and its print in it, and its rows another hash."""
    plain = build_info.read(extension)
    waiting = KERNEL.replace(
        "  __syncthreads();",
        '  __shared__ Barrier full;\n  full.wait(0, "consumer for K");\n  __syncthreads();',
    )
    header = tree / "csrc/kernels/toy.cuh"
    header.write_text(waiting.replace("launch.cuh", 'launch.cuh"\n#include "prim/mbarrier.cuh'))
    try:
        assert build(tree).returncode == 0
        content, sources = extension.read_bytes(), source_hash(tree)
        assert b"hangs: %s" not in content and b"consumer for K" not in content
        done = build(tree, FFPA_DEBUG_BARRIERS="1")
    finally:
        header.write_text(KERNEL)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "kernels, for debugging: FFPA_DEBUG_BARRIERS=1, 2 at a time" in done.stdout
    content, info = extension.read_bytes(), build_info.read(extension)
    assert b"hangs: %s" in content and b"consumer for K" in content
    assert info["debug_barriers"] and not plain["debug_barriers"]
    assert info["flags"] == [*plain["flags"], "-DFFPA_DEBUG_BARRIERS"]
    assert info["source_hash"] != sources


def test_a_kernel_compiled_for_debugging_names_each_of_its_waits(tree, tmp_path):
    """The pair of split_d-sm90: a producer and consumers, and two CTAs that wait for each other."""
    root = tmp_path / "tree"
    shutil.copytree(tree, root, ignore=shutil.ignore_patterns("build", "csrc", "*.so"))
    shutil.copytree(ROOT / "csrc", root / "csrc")
    name = "split_d-sm90/d512/fp16/f32"
    done = build(root, FFPA_DEBUG_BARRIERS="1", FFPA_KERNELS=name, FFPA_CUDA_ARCHS="90a")
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = (root / "src/ffpa").glob("_C*.so")
    assert list(build_info.read(path)["kernels"]) == [name]
    content = path.read_bytes()
    for told in (b"hangs: %s", b"producer: ring slot free", b"consumer: K piece full"):
        assert told in content, told


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"FFPA_CUDA_ARCH": "80"}, "ffpa: unknown build option FFPA_CUDA_ARCH"),
        ({"FFPA_CUDA_ARCHS": "90a"}, "ffpa: FFPA_CUDA_ARCHS has 90a, for which no kernel is"),
        ({"NVCC": "/no/nvcc"}, "ffpa: NVCC=/no/nvcc is not an executable"),
        ({"FFPA_HOST_CXX": "/no/g++"}, "ffpa: the C++ compiler '/no/g++' is not an executable"),
    ],
)  # fmt: skip
def test_a_wrong_option_stops_the_build_with_one_sentence(tree, options, message):
    done = build(tree, **options)
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: {message}")
    assert "Traceback" not in done.stderr


def test_a_kernel_that_does_not_compile_fails_the_build(tree):
    header = tree / "csrc/kernels/toy.cuh"
    header.write_text(KERNEL + "static_assert(false);")
    try:
        done = build(tree)
    finally:
        header.write_text(KERNEL)
    assert done.returncode == 1
    assert "static assertion failed" in done.stdout
    assert done.stderr.startswith("error: ffpa: compiling failed")
