"""The environment of a Python process that imports from a folder before all else."""

import os
from pathlib import Path


def importing_first(folder: Path) -> dict[str, str]:
    """This process's environment with `folder` in front of what PYTHONPATH has."""
    path = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(path)}
