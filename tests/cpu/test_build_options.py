"""Build options: the environment variables FFPA_* and MAX_JOBS."""

import pytest

from ffpa_build.errors import BuildError
from ffpa_build.jobs import GIB, JOB_BYTES, available_memory, job_count
from ffpa_build.options import KNOWN, Options, parse_archs


def test_unset_and_empty_options_are_the_defaults():  # B13
    empty = dict.fromkeys(KNOWN, "")
    assert Options.from_environ({}) == Options.from_environ(empty) == Options()


def test_options_are_read():
    options = Options.from_environ(
        {"FFPA_CUDA_ARCHS": "90a;80", "FFPA_KERNELS": "naive,split_d-sm80/d64/*", "HOME": "/root"}
    )
    assert options.archs == ("90a", "80")
    assert options.kernels == ("naive", "split_d-sm80/d64/*")


def test_the_debug_build_is_switched_on_and_off():
    for value, on in (("1", True), ("0", False), ("", False)):
        assert Options.from_environ({"FFPA_DEBUG_BARRIERS": value}).debug_barriers is on
    with pytest.raises(BuildError, match="FFPA_DEBUG_BARRIERS='yes' is neither 1 nor 0: set it"):
        Options.from_environ({"FFPA_DEBUG_BARRIERS": "yes"})


@pytest.mark.parametrize(
    ("text", "archs"),
    [("80;90;90a", ("80", "90", "90a")), ("8.0, 9.0a", ("80", "90a")), ("80 80;", ("80",))],
)
def test_architectures_in_any_usual_spelling(text, archs):
    assert parse_archs(text) == archs


@pytest.mark.parametrize("text", ["sm_80", "all", "8", "80;ninety", "-1", "90b"])
def test_malformed_architectures_are_refused(text):
    with pytest.raises(BuildError, match="no compute capability: write them like 80;90;90a"):
        parse_archs(text)


def test_a_misspelt_option_is_an_error_that_lists_the_known_ones():  # B15
    with pytest.raises(BuildError) as caught:
        Options.from_environ({"FFPA_CUDA_ARCH": "80"})
    assert "unknown build option FFPA_CUDA_ARCH (did you mean FFPA_CUDA_ARCHS?)" in str(
        caught.value
    )
    assert all(name in str(caught.value) for name in KNOWN)


def test_variables_of_the_run_time_do_not_stop_a_build():
    assert Options.from_environ({"FFPA_RESULTS": "/results", "FFPA_IMAGE": "sha256:0"}) == Options()


def test_max_jobs_is_honoured_and_checked():  # B06
    assert job_count({"MAX_JOBS": "7"}) == 7
    assert job_count({"MAX_JOBS": ""}) >= 1
    for wrong in ("0", "-2", "many", "1.5"):
        with pytest.raises(BuildError, match="not a positive whole number: try MAX_JOBS=1"):
            job_count({"MAX_JOBS": wrong})


def test_jobs_are_bounded_by_cores_and_memory(monkeypatch):  # B06
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(64)))
    monkeypatch.setattr("ffpa_build.jobs.available_memory", lambda: 16 * GIB)
    assert job_count({}) == 16 * GIB // JOB_BYTES < 64
    monkeypatch.setattr("ffpa_build.jobs.available_memory", lambda: 1024)
    assert job_count({}) == 1


@pytest.fixture
def machine(tmp_path):
    """A /proc with 64 GiB free and a /sys/fs/cgroup without limits, to be given some."""

    def write(own_cgroup: str, limits: dict[str, str]):
        proc, cgroup = tmp_path / "proc", tmp_path / "cgroup"
        (proc / "self").mkdir(parents=True)
        (proc / "meminfo").write_text(f"MemTotal: 99 kB\nMemAvailable: {64 * 1024**2} kB\n")
        (proc / "self/cgroup").write_text(own_cgroup)
        for file, limit in limits.items():
            (cgroup / file).parent.mkdir(parents=True, exist_ok=True)
            (cgroup / file).write_text(f"{limit}\n")
        return proc, cgroup

    return write


@pytest.mark.parametrize(
    ("own_cgroup", "limits", "expected"),
    [
        ("0::/\n", {}, 64 * GIB),
        ("0::/\n", {"memory.max": str(16 * GIB)}, 16 * GIB),
        ("0::/a/b\n", {"a/b/memory.max": "max", "a/memory.max": str(8 * GIB)}, 8 * GIB),
        ("0::/host/name\n", {"memory.max": str(4 * GIB)}, 4 * GIB),  # as seen inside a container
        ("4:memory:/x\n", {"memory/x/memory.limit_in_bytes": str(2 * GIB)}, 2 * GIB),
        ("4:memory:/x\n", {"memory/memory.limit_in_bytes": str(2**63 - 4096)}, 64 * GIB),
    ],
)
def test_memory_is_what_is_free_or_the_containers_limit(machine, own_cgroup, limits, expected):
    assert available_memory(*machine(own_cgroup, limits)) == expected
