"""Measure one shape, or recorded experiments: `python experiments/run.py --help`."""

import os
import sys
from pathlib import Path

import hydra
from omegaconf import DictConfig, OmegaConf

from ffpa.measure.launch import Launch, run_all
from ffpa.settings import advise, keep_text, register, separate

ROOT = Path(__file__).resolve().parent.parent
GROUPS = [folder.name for folder in (ROOT / "conf").iterdir() if folder.is_dir()]
EXPERIMENTS = sorted(file.stem for file in (ROOT / "conf" / "experiment").glob("*.yaml"))


def main(arguments: list[str]) -> int:
    """Compose the settings with Hydra, then run all points; returns the exit code."""
    if advice := advise(arguments, GROUPS):
        print("\n".join(advice), file=sys.stderr)
        return 1
    register()
    outputs = os.environ.get("FFPA_OUTPUTS", str(ROOT / "outputs"))
    OmegaConf.register_new_resolver("ffpa_outputs", lambda: outputs)
    OmegaConf.register_new_resolver("ffpa_pid", os.getpid)
    return run_all([compose(one) for one in separate(arguments, EXPERIMENTS)])


def compose(arguments: list[str]) -> Launch:
    """The points that a command line names."""
    launch = Launch(arguments)

    @hydra.main(version_base="1.3", config_path="../conf", config_name="config")
    def collect(config: DictConfig) -> None:
        launch.add(config)

    sys.argv[1:] = keep_text(arguments)
    collect()
    return launch


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
