"""Measure one shape, or a recorded experiment: `python experiments/run.py --help`."""

import os
import sys
from pathlib import Path

import hydra
from omegaconf import DictConfig, OmegaConf

from ffpa.measure.launch import Launch
from ffpa.settings import advise, keep_text, register

ROOT = Path(__file__).resolve().parent.parent
GROUPS = [folder.name for folder in (ROOT / "conf").iterdir() if folder.is_dir()]


def main(arguments: list[str]) -> int:
    """Compose the settings with Hydra, then run the points; returns the exit code."""
    if advice := advise(arguments, GROUPS):
        print("\n".join(advice), file=sys.stderr)
        return 1
    register()
    outputs = os.environ.get("FFPA_OUTPUTS", str(ROOT / "outputs"))
    OmegaConf.register_new_resolver("ffpa_outputs", lambda: outputs)
    OmegaConf.register_new_resolver("ffpa_pid", os.getpid)
    launch = Launch(arguments)

    @hydra.main(version_base="1.3", config_path="../conf", config_name="config")
    def collect(config: DictConfig) -> None:
        launch.add(config)

    sys.argv[1:] = keep_text(arguments)
    collect()
    return launch.finish()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
