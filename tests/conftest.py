"""GPU tests are skipped where there is no GPU; --record keeps what a run found, as JSON.

--launches sets how many random launches of each kernel have to end.
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
from ffpa_build.build_info import counted


def pytest_addoption(parser):
    parser.addoption(
        "--record", type=Path, metavar="PATH", help="write counts, failures and versions as JSON"
    )
    parser.addoption(
        "--launches", type=int, default=500, metavar="N", help="random launches of each kernel"
    )


def pytest_configure(config):
    if path := config.getoption("--record"):
        config.pluginmanager.register(Recorder(path))


def pytest_report_header():
    try:
        info = build_info()
    except ImportError as error:
        return f"ffpa: {error}"
    return f"ffpa: {counted(len(info['kernels']), info['kernel_filter'])}"


def pytest_collection_modifyitems(items):
    if torch.cuda.is_available():
        return
    skip = pytest.mark.skip(reason="no CUDA device visible")
    for item in items:
        if "gpu" in item.keywords:
            item.add_marker(skip)


class Recorder:
    """Counts outcomes, and names the code and the machine that they belong to."""

    def __init__(self, path):
        self.path = path
        self.counts = Counter(passed=0, failed=0, skipped=0)
        self.failures = []
        self.started = time.monotonic()

    def pytest_runtest_logreport(self, report):
        # A test has three phases: only its call can pass, each can fail or skip it.
        if report.when == "call" or not report.passed:
            self.counts[report.outcome] += 1
        if report.failed:
            self.failures.append(report.nodeid)

    def pytest_collectreport(self, report):
        if report.failed:
            self.counts["failed"] += 1
            self.failures.append(report.nodeid)

    def pytest_sessionfinish(self, exitstatus):
        record = {
            "schema_version": 1,
            "finished": datetime.now(UTC).isoformat(timespec="seconds"),
            "duration_s": round(time.monotonic() - self.started, 1),
            "exit_status": int(exitstatus),
            "counts": dict(self.counts),
            "failures": self.failures,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "cuda": torch.version.cuda,
            **_device(),
            **_build(),
        }
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps(record, indent=1) + "\n")


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
