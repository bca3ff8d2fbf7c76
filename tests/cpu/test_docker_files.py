"""The image's files agree: Dockerfile, requirements, locks, pyproject.toml, sessions, pages."""

import ast
import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "docker/Dockerfile").read_text()
LOCKS = [ROOT / f"docker/lock-{machine}.txt" for machine in ("x86_64", "aarch64")]
PAGES = [ROOT / name for name in ("README.md", "docker/README.md", "docs/cloud.md")]


def requirements() -> dict[str, Requirement]:
    lines = (ROOT / "docker/requirements.in").read_text().splitlines()
    found = [Requirement(text) for line in lines if (text := line.split("#")[0].strip())]
    return {canonicalize_name(entry.name): entry for entry in found}


def locked(lock: Path) -> dict[str, str]:
    """Versions by name."""
    return dict(re.findall(r"^([a-z0-9-]+)==(\S+)", lock.read_text(), re.MULTILINE))


def instructions(name: str) -> list[str]:
    """Arguments of a Dockerfile instruction, lines joined."""
    joined = re.sub(r"\\\n\s*", "", DOCKERFILE)
    return re.findall(rf"^{name} (.*)$", joined, re.MULTILINE)


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.stem)
def test_locks_pin_what_is_required(lock):
    versions = locked(lock)
    for name, requirement in requirements().items():
        assert requirement.specifier.contains(versions[name]), name


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.stem)
def test_locks_are_whole_hashed_and_free_of_addresses(lock):
    text = lock.read_text()
    assert "nox -s lock" in text.splitlines()[1]
    assert "://" not in text and "index-url" not in text
    entries = re.split(r"^(?=\S+==)", text, flags=re.MULTILINE)[1:]
    assert len(entries) == len(locked(lock)) > 40
    for entry in entries:
        assert re.search(r"--hash=sha256:[0-9a-f]{64}\b", entry), entry.splitlines()[0]


def test_locks_differ_only_in_cuda():
    first, second = map(locked, LOCKS)
    differing = set(first.items()) ^ set(second.items())
    assert {name for name, _ in differing if not name.startswith(("nvidia-", "cuda-"))} == {
        "triton"
    }


def test_the_image_has_what_the_package_asks_for():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"]
    build = project["build-system"]["requires"]
    wanted = [*project["project"]["dependencies"], *extras["report"], *extras["test"], *build]
    for text in wanted:
        requirement = Requirement(text)
        ours = requirements()[canonicalize_name(requirement.name)]
        if ours.name != "torch":  # pinned here, a range there
            assert ours.specifier == requirement.specifier, text
    assert str(requirements()["matplotlib"].specifier).startswith("==")


def test_the_base_is_pinned_in_one_place():
    (base,) = re.findall(r"^ARG BASE_IMAGE=(.*)$", DOCKERFILE, re.MULTILINE)
    assert re.fullmatch(r"\S+:12\.\d+\.\d+-devel-\S+@sha256:[0-9a-f]{64}", base)
    assert DOCKERFILE.count("sha256:") == 1
    assert "ARG COMPILER_IMAGE=${BASE_IMAGE}\n" in DOCKERFILE
    assert instructions("FROM") == [
        "${BASE_IMAGE} AS base",
        "base AS headers",
        "--platform=${BUILDPLATFORM} ${COMPILER_IMAGE} AS build",
        "base AS dependencies",
        "dependencies AS final",
    ]


def test_the_dockerfile_keeps_to_what_every_builder_reads():
    assert not re.search(r"^# *syntax=", DOCKERFILE, re.MULTILINE)
    assert "--link" not in DOCKERFILE and "<<" not in DOCKERFILE
    ids = re.findall(r"--mount=type=cache,id=([^,]+)", DOCKERFILE)
    assert ids and all(name.endswith("-${TARGETARCH}") for name in ids)


def test_the_image_runs_as_somebody_and_says_what_it_is():
    (user,) = instructions("USER")
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", user)
    assert instructions("ENTRYPOINT") == ['["/opt/ffpa/docker/entrypoint.sh"]']
    assert instructions("CMD") == ['["nox", "--list"]']
    (labels,) = instructions("LABEL")
    for name in ("title", "description", "licenses", "version", "revision"):
        assert f"org.opencontainers.image.{name}=" in labels
    assert "ffpa.kernels()" in instructions("HEALTHCHECK")[0]


def test_torch_and_the_extension_are_tried_after_the_last_installation():  # B10, B11, B12, B17
    (trial,) = [run for run in instructions("RUN") if "docker/check_torch.py" in run]
    assert "import ffpa; print(len(ffpa.kernels())" in trial
    assert "install" not in DOCKERFILE.split("docker/check_torch.py")[1]


def test_a_part_of_the_kernels_is_built_only_where_asked_for_and_then_named():
    assert DOCKERFILE.count("ARG FFPA_KERNELS=\n") == 2  # where they are compiled, and in the name
    (image,) = [text for text in instructions("ENV") if text.startswith("FFPA_IMAGE=")]
    assert "${FFPA_KERNELS:+, only kernels $FFPA_KERNELS}" in image
    for name in ("entrypoint.sh", "check.sh"):
        assert "*', only kernels '*)" in (ROOT / "docker" / name).read_text()


def test_a_host_without_the_container_toolkit_is_explained():  # C01
    page = " ".join((ROOT / "docs/cloud.md").read_text().split())
    assert "could not select device driver" in page
    assert "nvidia-ctk runtime configure --runtime=docker" in page


def test_both_platforms_are_baked_with_their_provenance():
    bake = (ROOT / "docker/docker-bake.hcl").read_text()
    assert '["linux/amd64", "linux/arm64"]' in bake
    assert "type=sbom" in bake and "type=provenance" in bake


def sessions() -> set[str]:
    tree = ast.parse((ROOT / "noxfile.py").read_text())
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    return {
        function.name
        for function in functions
        if any("nox.session" in ast.unparse(mark) for mark in function.decorator_list)
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_sessions_named_in_pages_exist(page):
    named = set(re.findall(r"nox -s ([a-z_]+)", page.read_text()))
    assert named and named <= sessions()


def test_every_message_that_the_cloud_page_quotes_is_ours():
    # Adjacent string literals joined, so that a message that is broken over lines is found whole.
    folders = ("src", "csrc", "docker")
    files = [path for name in folders for path in (ROOT / name).rglob("*.*") if path.is_file()]
    code = " ".join(path.read_text() for path in files if path.suffix in (".py", ".cpp", ".sh"))
    code = re.sub(r'"\s*\+?\s*f?"', "", code)
    quoted = re.findall(r"^> (.*)$", (ROOT / "docs/cloud.md").read_text(), re.MULTILINE)
    assert len(quoted) >= 6
    for message in quoted:
        for part in message.split("…"):
            assert part.strip() in code, message
