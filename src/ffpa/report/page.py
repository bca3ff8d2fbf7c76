"""The report page: one HTML file that needs no network, and its Markdown twin."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd
from markupsafe import Markup

from ffpa.record.store import PAPER_FOLDER, REPOSITORY

from .checks import checks_told
from .claims import Claim, load_claims
from .compare import compare_results, comparison_table
from .compare import summary as compare_summary
from .results import Results, shown
from .tables import GAP, to_markdown
from .verdicts import Verdict, judge_all, summary

# Generated pages and figures; an image, whose project folder is read-only, sends them elsewhere.
REDIRECTED = os.environ.get("FFPA_SITE")
SITE = Path(REDIRECTED).resolve() if REDIRECTED else REPOSITORY / "site"
COMMITTED_FIGURES = REPOSITORY / "paper_figures" / "out"
PAPER_FIGURES = SITE / "figures" / "paper" if REDIRECTED else COMMITTED_FIGURES


# In which a reader wants the experiments; others follow by name.
ORDER = ("headdim", "dtypes", "causal", "gqa", "variants", "padding", "peers", "accumulation",
         "accuracy", "stalls", "seqlen", "scenarios", "ablation", "ladder", "roofline")  # fmt: skip
BESIDE = {
    "first ms": "authors' ms",
    "second ms": "ms here",
    "first / second": "times as fast",
    "second is": "here is",
}


@dataclass(frozen=True)
class Figure:
    """An entry of figures.json: a picture or a table, and where its files lie."""

    name: str
    title: str
    experiment: str
    caption: str
    files: dict[str, str]  # suffix: link from the page
    rebuild: str
    svg: Markup | None = None
    table: pd.DataFrame | None = None


@dataclass(frozen=True)
class Experiment:
    """The points of one experiment, and where their rows lie."""

    name: str
    table: pd.DataFrame
    link: str
    stale: bool
    figures: list[Figure]
    commands: list[str]


@dataclass(frozen=True)
class Device:
    """What the page shows of one results folder."""

    results: Results
    verdicts: list[Verdict]
    experiments: list[Experiment]
    beside_authors: pd.DataFrame | None  # times against those of the paper's folder
    beside_summary: str = ""

    @property
    def summary(self) -> str:
        """How the claims fared: this project's, then the paper's."""
        ours = [verdict for verdict in self.verdicts if verdict.claim.source == "ours"]
        papers = [verdict for verdict in self.verdicts if verdict.claim.source == "paper"]
        return f"this project's claims {summary(ours)}; the paper's {summary(papers)}"

    @property
    def checks(self) -> list[str]:
        """What the checks recorded beside the rows gave."""
        return checks_told(self.results.folder, self.results.source_hash)

    @property
    def is_authors(self) -> bool:
        return self.results.folder == PAPER_FOLDER

    @property
    def title(self) -> str:
        """Heads a column: the paper's rows are called the authors'."""
        return f"authors' rows ({self.results.name})" if self.is_authors else self.results.name

    @property
    def stale(self) -> str:
        """The experiments with rows of other sources, as a command line names them."""
        return ",".join(experiment.name for experiment in self.experiments if experiment.stale)


def write_page(
    folders: Sequence[Path], out: Path = SITE, source_hash: str | None = None
) -> list[Path]:
    """Write index.html and index.md into `out` from these results folders; returns their paths."""
    out.mkdir(parents=True, exist_ok=True)
    claims = load_claims()
    loaded = [Results.load(folder, source_hash) for folder in folders]
    authors = next((results for results in loaded if results.folder == PAPER_FOLDER), None)
    devices = [_device(results, judge_all(claims, results), authors, out) for results in loaded]
    # Claims are about GPUs: rows of the CPU model get no column of their own beside GPU rows.
    judged = [device for device in devices if device.results.capability] or devices
    context = {
        "devices": devices,
        "judged": judged,
        "claims": claims,
        "verdicts": _verdict_table(claims, judged),
        "drawn": {
            figure.name: f"{device.results.name}-{figure.name}"
            for device in reversed(judged)
            for experiment in device.experiments
            for figure in experiment.figures
        },
        "environment": _environment_table([device.results for device in devices]),
        "differing": _differing,
        "settings": list(dict.fromkeys(claim.setting for claim in claims if claim.setting)),
        "command": "nox -s bench -- experiment=headdim",
    }
    pages = []
    for name in ("index.html", "index.md"):
        path = out / name
        path.write_text(_templates().get_template(f"{name}.j2").render(context))
        pages.append(path)
    return pages


def figures_folder(rows: Path) -> Path:
    """Where the figures made of a results folder lie; those of the paper are committed."""
    return PAPER_FIGURES if rows == PAPER_FOLDER else SITE / "figures" / rows.name


def built_figures(rows: Path) -> Path:
    """Where they lie already: the committed ones of the paper serve until others are built."""
    folder = figures_folder(rows)
    return COMMITTED_FIGURES if folder == PAPER_FIGURES and not folder.exists() else folder


def experiment_table(frame: pd.DataFrame) -> pd.DataFrame:
    """All points of an experiment as text, empty columns left out."""
    table = pd.DataFrame(
        {
            "contestant": [contestant.label for contestant in frame["contestant"]],
            "D": frame["headdim"].map(str),
            "size": frame["size"],
            "status": frame["status"] + frame["stale"].map({True: " (stale)", False: ""}),
            "ms": _numbers(frame["median_ms"]),
            "TFLOP/s": _intervals(frame, "tflops"),
            "× SDPA EA": _intervals(frame, "speedup"),
            "relative error": _numbers(frame["err_rel"], ".2e"),
            "largest error": _numbers(frame["err_max"], ".2e"),
            "rounds": frame["samples"].map(str),
            "processes": frame["processes"].map(str),
            **{
                name: frame[name].map(lambda count: str(count) if count else GAP)
                for name in ("discarded", "requeued", "late")
            },
            "ran": frame["backend"],
            "reason": frame["reason"].replace("", GAP),
        }
    )
    return table.loc[:, (table != GAP).any()]


def _device(
    results: Results, verdicts: list[Verdict], authors: Results | None, out: Path
) -> Device:
    rebuild = "python -m paper_figures"
    if results.folder != PAPER_FOLDER:
        rebuild += f" --results {shown(results.folder)}"
    figures = _figures(built_figures(results.folder), out, rebuild, prefix=results.name)
    experiments = []
    for name in sorted(results.experiments, key=_reading_order):
        frame = results.frame(name)
        experiments.append(
            Experiment(
                name=name,
                table=experiment_table(frame),
                link=os.path.relpath(results.folder / f"{name}.jsonl", out),
                stale=bool(frame["stale"].any()),
                figures=[figure for figure in figures if figure.experiment == name],
                commands=results.commands(name),
            )
        )
    if authors is None or authors is results or results.capability is None:
        return Device(results, verdicts, experiments, None)
    comparisons, left_out = compare_results(authors, results)
    table = comparison_table(comparisons).rename(columns=BESIDE)
    told = f"{compare_summary(comparisons)}, {len(left_out)} not comparable"
    return Device(results, verdicts, experiments, table if len(table) else None, told)


def _reading_order(experiment: str) -> tuple[int, str]:
    place = ORDER.index(experiment) if experiment in ORDER else len(ORDER)
    return place, experiment


def _figures(folder: Path, out: Path, rebuild: str, prefix: str) -> list[Figure]:
    manifest = folder / "figures.json"
    entries = json.loads(manifest.read_text()) if manifest.exists() else []
    return [_figure(entry, folder, out, rebuild, prefix) for entry in entries]


def _figure(entry: dict[str, Any], folder: Path, out: Path, rebuild: str, prefix: str) -> Figure:
    name = entry["name"]
    files = {Path(file).suffix[1:]: os.path.relpath(folder / file, out) for file in entry["files"]}
    figure = Figure(name, entry["title"], entry["experiment"], entry["caption"], files, rebuild)
    if "svg" in files:
        svg = _inline_svg((folder / f"{name}.svg").read_text(), f"{prefix}-{name}")
        return replace(figure, svg=svg)
    return replace(figure, table=pd.read_csv(folder / f"{name}.csv", dtype=str))


def _inline_svg(text: str, prefix: str) -> Markup:
    """An SVG to be put into HTML: without prolog, its ids told apart from other pictures'."""
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'\bid="', f'id="{prefix}-', text)
    text = re.sub(r'(href="|url\()#', rf"\1#{prefix}-", text)
    return Markup(text)


def _facts(results: Results) -> dict[str, str]:
    """The environment of the newest rows, flat; what is missing says why."""
    environment = results.environment
    if environment is None:
        return {"environment": "not recorded"}
    facts = {}
    for group in ("gpu", "software"):
        for name, value in (environment.model_dump()[group] or {}).items():
            reason = environment.missing.get(f"{group}.{name}") or environment.missing.get(group)
            facts[f"{group}: {name}"] = _fact(value, reason)
    run = environment.runs.get(results.rows[-1].run_id)
    if run:
        facts["run: started"] = run.started
        facts["run: commit"] = (run.git_commit or GAP) + (" with changes" if run.git_dirty else "")
        facts["run: command"] = run.command
    build = environment.builds.get(results.rows[-1].source_hash)
    if build:
        facts["build: architectures"] = ", ".join(f"sm_{arch}" for arch in build.archs)
        facts["build: flags"] = " ".join(build.flags)
        facts["build: compiler"] = f"nvcc {build.nvcc}, {build.host_compiler}"
    facts["rows: sources"] = results.rows[-1].source_hash[:16]
    facts["this tree: sources"] = results.source_hash[:16]
    return facts


def _fact(value: object, reason: str | None) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {entry}" for key, entry in sorted(value.items())) or GAP
    if value is None:
        return f"{GAP} ({reason})" if reason else GAP
    return str(value)


def _environment_table(all_results: Sequence[Results]) -> pd.DataFrame:
    """One line per fact, a column per results folder."""
    columns = {results.name: _facts(results) for results in all_results}
    names = list(dict.fromkeys(name for facts in columns.values() for name in facts))
    cells = {key: [facts.get(name, GAP) for name in names] for key, facts in columns.items()}
    return pd.DataFrame({"fact": names, **cells})


def _differing(cells: Sequence[str]) -> bool:
    """Whether the facts of a line (after its name) are not all the same."""
    return len(set(cells[1:])) > 1


def _verdict_table(claims: Sequence[Claim], devices: Sequence[Device]) -> pd.DataFrame:
    """One line per claim, a column per results folder: what the HTML page shows as cards."""
    table = {
        "claim": [claim.statement for claim in claims],
        "source": [claim.source for claim in claims],
        "paper": [claim.authors or GAP for claim in claims],
        "expected": [claim.expected for claim in claims],
    }
    for device in devices:
        table[device.title] = [
            "; ".join(
                part
                for part in (verdict.name, verdict.measured, verdict.why, verdict.explanation)
                if part
            )
            for verdict in device.verdicts
        ]
    table["command"] = [f"`{claim.command}`" for claim in claims]
    return pd.DataFrame(table)


def _numbers(values: pd.Series[Any], form: str = ".4g") -> list[str]:
    return [GAP if pd.isna(value) else f"{value:{form}}" for value in values]


def _intervals(frame: pd.DataFrame, name: str) -> list[str]:
    columns = zip(frame[name], frame[f"{name}_low"], frame[f"{name}_high"], strict=True)
    return [
        GAP if pd.isna(value) else f"{value:.4g} [{low:.4g}, {high:.4g}]"
        for value, low, high in columns
    ]


def _templates() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=jinja2.select_autoescape(["html.j2"]),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["markdown"] = to_markdown
    return environment
