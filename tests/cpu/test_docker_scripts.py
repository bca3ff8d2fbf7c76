"""What the image's scripts do, run with programs that only note what they were called with."""

import platform
import runpy
import shutil
import subprocess
from pathlib import Path

import pytest

DOCKER = Path(__file__).parents[2] / "docker"
NO_DEVICE = "no CUDA device visible: add --gpus all\n"


class Machine:
    """A PATH with the usual tools, and fakes that append their arguments to a log."""

    def __init__(self, root: Path) -> None:
        self.bin, self.log = root / "bin", root / "log"
        self.bin.mkdir()
        self.log.touch()
        for name in (
            "bash", "cat", "dirname", "env", "git", "grep", "head", "id", "mktemp", "rm", "sed",
            "sh", "tail", "uname", "wc", "chmod",
        ):  # fmt: skip
            if path := shutil.which(name):
                (self.bin / name).symlink_to(path)

    def fake(self, name: str, script: str = "") -> None:
        path = self.bin / name
        path.unlink(missing_ok=True)
        path.write_text(f'#!/bin/sh\necho "{name} $*" >>"{self.log}"\n{script}\n')
        path.chmod(0o755)

    def run(self, script: str, *arguments: str, **environment: str):
        return subprocess.run(
            [DOCKER / script, *arguments],
            env={"PATH": str(self.bin), **environment},
            capture_output=True,
            text=True,
        )

    @property
    def calls(self) -> list[str]:
        return self.log.read_text().splitlines()


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


def test_an_image_with_a_part_of_the_kernels_says_so_without_a_gpu_too(machine):
    image = "ffpa 1.2, revision abc, only kernels naive;*/d512/*"
    done = machine.run("entrypoint.sh", "sh", "-c", ":", FFPA_IMAGE=image)
    assert done.stderr == f"{image}: {NO_DEVICE}"


@pytest.mark.parametrize(
    ("smi", "line"),
    [
        (None, NO_DEVICE),
        ("echo 'NVIDIA-SMI has failed'; exit 9", NO_DEVICE),
        (
            "echo 'NVIDIA H200, 560.35.03'; echo 'NVIDIA H200, 560.35.03'",
            "ffpa 1.2: 2 x NVIDIA H200, driver 560.35.03\n",
        ),
        (
            "echo 'NVIDIA A100-SXM4-80GB, 515.65.01'",
            "ffpa 1.2: 1 x NVIDIA A100-SXM4-80GB, driver 515.65.01, too old for CUDA 12: "
            "install driver 525 or newer on the host\n",
        ),
    ],
)
def test_the_entrypoint_says_one_line_and_becomes_the_command(machine, smi, line):
    if smi:
        machine.fake("nvidia-smi", smi)
    done = machine.run("entrypoint.sh", "sh", "-c", "echo out; exit 3", FFPA_IMAGE="ffpa 1.2")
    assert (done.returncode, done.stdout, done.stderr) == (3, "out\n", line)


def installing(machine, cpu: str, what: str, **environment: str) -> list[list[str]]:
    """The pip calls of install.sh on a machine with this processor, from the install on."""
    machine.fake("uname", f"echo {cpu}")
    machine.fake(
        "python",
        f"""
for argument; do
  case $argument in /*) cp "$argument" "{machine.log}.requirements" ;; esac
done""",
    )
    (machine.bin / "cp").symlink_to(shutil.which("cp"))
    done = machine.run("install.sh", what, **environment)
    assert done.returncode == 0, done.stderr
    return [call.split()[4:] for call in machine.calls if call.startswith("python")]


def test_tools_are_a_hashed_part_of_the_lock(machine):
    (call,) = installing(machine, "aarch64", "tools")
    assert {"--no-deps", "--require-hashes"} <= set(call)
    part = Path(f"{machine.log}.requirements").read_text()
    lines = [line for line in part.splitlines() if "==" in line]
    assert [line.split("==")[0] for line in lines] == [
        "ninja", "nvidia-cuda-cuobjdump", "nvidia-cuda-nvdisasm", "pybind11", "setuptools"
    ]  # fmt: skip
    assert part.count("--hash=sha256:") >= 5


@pytest.mark.parametrize(
    ("wanted", "cross"), [("amd64", None), ("arm64", "g++-aarch64-linux-gnu"), ("", None)]
)
def test_the_building_machine_gets_a_compiler_for_the_other(machine, wanted, cross):
    machine.fake("uname", "echo x86_64")
    for name in ("apt-get", "python3", "rm"):
        machine.fake(name)
    assert machine.run("install.sh", "system", wanted).returncode == 0
    (install,) = [call for call in machine.calls if "install --yes" in call]
    assert install.split()[-1] == (cross or "python3-venv")


@pytest.mark.parametrize("cpu", ["aarch64", "x86_64"])
def test_the_extension_is_compiled_for_the_image(machine, cpu):
    machine.fake("uname", f"echo {cpu}")
    variables = "${FFPA_HOST_CXX:-},${FFPA_CUDA_LIB:-}"
    machine.fake("python", f'echo "cross={variables}" >>"{machine.log}"')
    done = machine.run("compile.sh", "arm64")
    assert done.returncode == 0, done.stderr
    cross = "aarch64-linux-gnu-g++,/target" if cpu == "x86_64" else ","
    build, building, check, _ = (call for call in machine.calls if call != "uname -m")
    assert build == "python setup.py --quiet build_ext --inplace"
    assert building == f"cross={cross}"
    assert check.startswith("python -m ffpa_build.check --allow-spills src/ffpa/_C.")


INDEX = "https://index.example/whl/cu128"


def test_only_arm64_asks_the_other_index(machine):
    (call,) = installing(machine, "x86_64", "all", PYTORCH_INDEX=INDEX)
    assert call[-3:] == ["--require-hashes", "-r", "lock-x86_64.txt"]


def test_arm64_gets_torch_with_cuda_last(machine):
    first, second = installing(machine, "aarch64", "all", PYTORCH_INDEX=INDEX)
    assert first[-3:] == ["--require-hashes", "-r", "lock-aarch64.txt"]
    assert second[-3:] == ["--index-url", INDEX, "torch==2.10.0+cu128"]


def test_arm64_without_an_index_keeps_the_lock(machine):
    assert len(installing(machine, "aarch64", "all", PYTORCH_INDEX="")) == 1


@pytest.mark.parametrize(
    ("wanted", "found", "ok"),
    [
        ("12", "12.8", True),
        ("12", "13.0", False),
        ("12", None, False),
        ("none", None, True),
        ("none", "12.8", False),
    ],
)
def test_a_torch_of_another_cuda_stops_the_build(wanted, found, ok):
    fault = runpy.run_path(str(DOCKER / "check_torch.py"))["fault"](wanted, found)
    assert fault is None if ok else "but the image is to have CUDA" in fault


def with_docker(machine) -> None:
    machine.fake("docker", 'case "$*" in *" --format"*) exit 1 ;; esac')


def test_the_image_is_built_and_tested_strictly(machine):
    with_docker(machine)
    platform_name = {"x86_64": "linux/amd64", "aarch64": "linux/arm64"}[platform.machine()]
    done = machine.run("image.sh", BASE_IMAGE="base:1", PYTORCH_INDEX="")
    assert done.returncode == 0, done.stderr
    build, run = machine.calls[-2:]
    for part in (
        f"buildx build --load --platform {platform_name}",
        "--build-arg=BASE_IMAGE=base:1",
        "--build-arg=PYTORCH_INDEX= ",
        "--build-arg=VERSION=",
        "--build-arg=REVISION=",
    ):
        assert part in build
    assert "TORCH_CUDA" not in build  # not given, so the Dockerfile's
    assert f"run --rm --platform {platform_name} --user 12345:12345 --read-only" in run
    assert "--network none" in run and run.endswith("docker/check.sh")


def test_a_build_alone_runs_nothing(machine):
    with_docker(machine)
    assert machine.run("image.sh", "--no-tests").returncode == 0
    assert machine.calls[-1].startswith("docker buildx build")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--platform", "linux/riscv64"], "--platform linux/riscv64 is not one of linux/amd64, "),
        (["--platform"], "--platform (nothing) is not one of"),
        (["--what"], "docker/image.sh [--platform linux/amd64|linux/arm64]"),
        ([], "neither a Docker daemon with buildx nor buildah is here: apt-get install buildah"),
    ],
)
def test_what_cannot_be_built_is_one_sentence(machine, arguments, message):
    done = machine.run("image.sh", *arguments)
    assert done.returncode != 0 and message in done.stderr
    assert len(done.stderr.splitlines()) <= 2


def test_another_architecture_needs_its_emulator(machine):
    machine.fake("grep", "exit 1")
    other = {"x86_64": "linux/arm64", "aarch64": "linux/amd64"}[platform.machine()]
    done = machine.run("image.sh", "--platform", other)
    assert done.returncode == 1 and "install qemu-user-static and binfmt-support" in done.stderr


def test_buildah_and_standins_are_for_root(machine):
    machine.fake("buildah")
    machine.fake("id", "echo 1000")
    for script, *arguments in (("image.sh",), ("standin.sh", "amd64")):
        done = machine.run(script, *arguments)
        assert done.returncode == 1 and "needs root to run" in done.stderr


@pytest.mark.parametrize("script", ["cross.sh", "standin.sh"])
def test_a_missing_program_is_named_with_its_package(machine, script):
    machine.fake("id", "echo 0")
    done = machine.run(script, "amd64")
    assert done.returncode == 1
    assert "is not installed here: apt-get install" in done.stderr
