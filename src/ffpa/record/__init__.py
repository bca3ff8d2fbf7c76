"""Results on disk: rows, the environments they came from, and their provenance."""

from .environment import Environment, Run, load_environments, remember
from .row import AccName, DTypeName, Row, Status, inputs_in_short, iqr_of, median_of
from .store import append_rows, gpu_slug, load_rows, results_dir, results_path

__all__ = [
    "AccName",
    "DTypeName",
    "Environment",
    "Row",
    "Run",
    "Status",
    "append_rows",
    "gpu_slug",
    "inputs_in_short",
    "iqr_of",
    "load_environments",
    "load_rows",
    "median_of",
    "remember",
    "results_dir",
    "results_path",
]
