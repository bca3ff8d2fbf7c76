"""GPU tests are skipped where there is no GPU; --record keeps what a run found, as JSON.

--launches sets how many random launches of each kernel have to end. `-n 8` of pytest-xdist, where
that is installed, shares the tests out over processes.
"""

import json
import platform
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest
import torch

from ffpa import build_info, kernels
from ffpa_build.build_info import described
from ffpa_build.sources import checks_hash


def pytest_addoption(parser):
    parser.addoption(
        "--record", type=Path, metavar="PATH", help="write counts, failures and versions as JSON"
    )
    parser.addoption(
        "--launches", type=int, default=500, metavar="N", help="random launches of each kernel"
    )


def pytest_configure(config):
    worker = hasattr(config, "workerinput")  # of pytest-xdist: the first process records for all
    if (path := config.getoption("--record")) and not worker:
        config.pluginmanager.register(Recorder(path, config.getoption("--launches")))


def pytest_report_header():
    try:
        info = build_info()
    except ImportError as error:
        return f"ffpa: {error}"
    return f"ffpa: {described(info)}"


def pytest_collection_modifyitems(items):
    if torch.cuda.is_available():
        return
    skip = pytest.mark.skip(reason="no CUDA device visible")
    for item in items:
        if "gpu" in item.keywords:
            item.add_marker(skip)


class Recorder:
    """Counts outcomes, and names the code and the machine that they belong to.

    The file is written again and again, so that a run that is stopped, or hangs, leaves what it
    found: exit_status is null then, and what was not reached is counted.
    """

    WRITE_S = 2.0

    def __init__(self, path, launches):
        self.path, self.launches = path, launches
        self.counts = Counter(passed=0, failed=0, skipped=0)
        self.failures = []
        self.collected = 0
        self.reached = set()
        self.properties = {}
        self.started = self.written = time.monotonic()

    def pytest_collection_finish(self, session):
        self.collected = len(session.items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids):
        self.collected = len(ids)

    def pytest_runtest_logreport(self, report):
        # A test has three phases: only its call can pass, each can fail or skip it.
        if report.when == "call" or not report.passed:
            self.counts[report.outcome] += 1
        if report.failed:
            self.failures.append(report.nodeid)
        self.reached.add(report.nodeid)
        if report.user_properties:  # of record_property: the seed of a search
            self.properties[report.nodeid] = dict(report.user_properties)
        if time.monotonic() > self.written + self.WRITE_S:
            self.write(None)

    def pytest_collectreport(self, report):
        if report.failed:
            self.counts["failed"] += 1
            self.failures.append(report.nodeid)

    def pytest_sessionfinish(self, exitstatus):
        self.write(int(exitstatus))

    def write(self, exit_status):
        self.written = time.monotonic()
        record = {
            "schema_version": 3,
            "finished": datetime.now(UTC).isoformat(timespec="seconds"),
            "duration_s": round(self.written - self.started, 1),
            "exit_status": exit_status,
            "counts": {**self.counts, "not reached": self.collected - len(self.reached)},
            "failures": self.failures,
            "launches": self.launches,
            "properties": self.properties,
            "tests_hash": checks_hash(Path(__file__).parents[1], "gpu_tests"),
            "python": platform.python_version(),
            "torch": torch.__version__,
            "cuda": torch.version.cuda,
            **_device(),
            **_build(),
        }
        self.path.parent.mkdir(parents=True, exist_ok=True)
        partial = self.path.with_suffix(".part")
        partial.write_text(json.dumps(record, indent=1) + "\n")
        partial.replace(self.path)


def _device():
    if not torch.cuda.is_available():
        return {"gpu": None, "gpus": 0, "capability": None}
    return {
        "gpu": torch.cuda.get_device_name(),
        "gpus": torch.cuda.device_count(),
        "capability": "{}.{}".format(*torch.cuda.get_device_capability()),
    }


def _build():
    try:
        info = build_info()
    except ImportError:  # CPU tests run without the extension
        return {"source_hash": None, "archs": None, "instances": 0}
    return {
        "source_hash": info["source_hash"],
        "archs": info["archs"],
        "instances": len(kernels()),
    }
