"""Hardware counters of our kernels by Nsight Compute; see --help."""

import argparse
import os
import shutil
import subprocess
import sys
import time
from datetime import UTC, datetime

import torch

import ffpa
from ffpa.measure.contestants import Contestant, contestants_of, problem_of
from ffpa.measure.counters import ProfilerError, matched, ncu_options, read_ncu
from ffpa.measure.engines import GpuEngine
from ffpa.measure.identity import shape_of
from ffpa.measure.inputs import make_inputs
from ffpa.measure.preflight import no_device
from ffpa.measure.shape import Shape
from ffpa.record import remember, results_dir
from ffpa.record.profile import Profiles, save_profiles
from ffpa.settings import MeasureSettings, Settings
from ffpa.support import device_limits, find

NO_NCU = (
    "ncu is not installed: it comes with the CUDA toolkit as Nsight Compute; put it on the PATH, "
    "or name it with NCU=FILE"
)
Target = tuple[Contestant, Shape, str]
# What docs/ladder.md tells of the steps: enough CTAs for some waves, and little enough time.
LADDER = {"b": 4, "h": 32, "n": 2048, "d": 128, "acc": {"f32": True}, "kernels": {"ladder": True}}


def main(arguments: list[str]) -> int:
    options = parser().parse_args(arguments)
    if not torch.cuda.is_available():
        print(no_device(), file=sys.stderr)
        return 1
    wanted = targets(options)
    if options.launch:
        launch(wanted, options.seconds)
        return 0
    try:
        text = under_ncu(arguments)
        launches = read_ncu(text)
        profiles = matched(launches, wanted)
    except ProfilerError as error:
        print(error, file=sys.stderr)
        return 1
    engine = GpuEngine()
    folder = results_dir() / engine.slug
    environment = engine.environment()
    remember(folder, environment)
    record = Profiles(
        schema=1,
        started=f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
        tool=version(),
        env_hash=environment.env_hash,
        source_hash=engine.source_hash,
        profiles=profiles,
    )
    print(f"{len(profiles)} of {len(wanted)} launches profiled: {save_profiles(folder, record)}")
    return int(len(profiles) < len(wanted))


def targets(options: argparse.Namespace) -> list[Target]:
    """The instances of this build that run the shapes asked for, in the order of the launches."""
    limits = device_limits(torch.cuda.current_device())
    accs = dict.fromkeys(options.acc, True)
    kernels = dict.fromkeys(options.kernels, True)
    common = {"h": options.h, "n": options.n, "acc": accs, "kernels": kernels}
    points = [{**common, "d": headdim} for headdim in options.d]
    found = []
    for point in [*points, *([LADDER] if options.ladder else [])]:
        settings = Settings(**point, measure=MeasureSettings(ceiling=False))
        shape = shape_of(settings)
        for one in contestants_of(settings, [kernel["id"] for kernel in ffpa.kernels()]):
            support = find(problem_of(shape, one.acc), limits, one.kernel, one.variant)
            if support.instance:
                found.append((one, shape, support.instance["name"]))
    return found


def launch(wanted: list[Target], seconds: float) -> None:
    """Each target once to warm up and once for the profiler, which replays it for every counter.

    None is begun after `seconds`: the profiler tells of the launches before only once this ends.
    """
    inputs, end = None, time.monotonic() + seconds
    for one, shape, instance in wanted:
        if time.monotonic() > end:
            return
        if inputs is None or inputs.shape != shape:
            inputs = make_inputs(shape, torch.device("cuda"), seed=0)
        for recorded in (False, True):
            if recorded:
                torch.cuda.profiler.start()
            tensors = inputs.query, inputs.key, inputs.value
            ffpa.attention(*tensors, acc=one.acc, kernel=instance)
            torch.cuda.synchronize()
        torch.cuda.profiler.stop()


def under_ncu(arguments: list[str]) -> str:
    """Run this script's launches under the profiler; returns what it printed."""
    command = [ncu(), *ncu_options(), sys.executable, __file__, "--launch", *arguments]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True).stdout


def ncu() -> str:
    tool = os.environ.get("NCU") or shutil.which("ncu")
    if tool is None:
        raise ProfilerError(NO_NCU)
    return tool


def version() -> str:
    shown = subprocess.run([ncu(), "--version"], stdout=subprocess.PIPE, text=True).stdout
    return "Nsight Compute " + shown.strip().splitlines()[-1].removeprefix("Version ").split()[0]


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(prog="experiments/profile_kernels.py", description=__doc__)
    options.add_argument(
        "--d", type=int, nargs="+", default=[64, 128, 256, 320, 512, 576, 768, 1024]
    )
    options.add_argument("--h", type=int, default=32)
    options.add_argument("--n", type=int, default=8192)
    options.add_argument("--acc", nargs="+", default=["f16", "f32"])
    options.add_argument("--kernels", nargs="+", default=["split_d-sm80", "split_d-sm90"])
    options.add_argument(
        "--ladder", action="store_true", help="then each step of the ladder at [4, 2048, 32, 128]"
    )
    options.add_argument("--seconds", type=float, default=120, help="to begin launches in")
    options.add_argument("--launch", action="store_true", help=argparse.SUPPRESS)
    return options


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
