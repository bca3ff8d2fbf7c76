"""What is made from data in README.md and pages of docs/, between <!-- ffpa:NAME --> markers."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from pathlib import Path

import pandas as pd

from ffpa.record.provenance import tree_source_hash
from ffpa.record.store import PAPER_FOLDER, REPOSITORY
from ffpa_build import manifest

from .checks import checks_told
from .claims import load_claims
from .ladder import ladder_caption, ladder_panel, ladder_table
from .matrix import matrix_block
from .profiles import profile_caption, profile_table, steps_caption, steps_profile
from .results import NoRowsError, Results
from .tables import GAP, headdim_caption, headdim_table, to_markdown
from .verdicts import Verdict, judge_all, summary

README = REPOSITORY / "README.md"
PAGES = (
    README,
    *(REPOSITORY / "docs" / name for name in ("artifact.md", "hopper.md", "ladder.md")),
)
NOTES = REPOSITORY / "csrc" / "NOTES.md"
_BLOCK = re.compile(r"(<!-- ffpa:(?P<name>\w+) -->\n).*?(<!-- /ffpa:(?P=name) -->)", re.DOTALL)


def rewrite(text: str) -> str:
    """The README with every marked block made anew.

    Raises:
        ValueError: a block has a name that nothing makes, or no end; or there is none at all.
    """
    opened = re.findall(r"<!-- ffpa:(\w+) -->", text)
    if unknown := sorted(set(opened) - set(BLOCKS)):
        raise ValueError(f"README block {unknown[0]} is unknown: there are {', '.join(BLOCKS)}")
    if len(opened) != len(_BLOCK.findall(text)) or not opened:
        raise ValueError("a README block needs <!-- ffpa:NAME --> and, later, <!-- /ffpa:NAME -->")
    return _BLOCK.sub(lambda match: f"{match[1]}{BLOCKS[match['name']]()}{match[3]}", text)


def update(path: Path = README) -> bool:
    """Rewrite the file where its blocks are out of date; returns whether it changed."""
    text = path.read_text()
    fresh = rewrite(text)
    if fresh != text:
        path.write_text(fresh)
    return fresh != text


def results_block() -> str:
    """The table over D of the paper's device, and the verdicts counted."""
    results = Results.load(PAPER_FOLDER)
    try:
        frame = results.frame("headdim")
        table = to_markdown(headdim_table(frame))
        caption = headdim_caption(results, frame)
    except NoRowsError as error:
        return f"Not recorded yet: {error}.\n"
    verdicts = summary(judge_all(load_claims(), results))
    return f"{table}\n{caption}. In brackets: speed-up over SDPA EA. Claims: {verdicts}.\n"


# Of our claims that hold the README tells the speed-ups over D; the rest is in docs/artifact.md.
HEADLINE = ("headdim", "peers")


def verdicts_block() -> str:
    """Claims in short: the paper's, ours about the headline, and ours that do not hold."""
    verdicts = judge_all(load_claims(), Results.load(PAPER_FOLDER))
    shown = [one for one in verdicts if _is_told(one)]
    table = pd.DataFrame(
        {
            "claim": [one.claim.statement for one in shown],
            "of": [one.claim.source for one in shown],
            "measured": [one.measured or GAP for one in shown],
            "verdict": [one.name for one in shown],
        }
    )
    left = len(verdicts) - len(shown)
    return f"{to_markdown(table, 'left')}\nThe other {left} claims hold.\n"


def _is_told(verdict: Verdict) -> bool:
    claim = verdict.claim
    headline = claim.experiment in HEADLINE and claim.metric.of == "speedup"
    return claim.source == "paper" or headline or verdict.name != "holds"


def checks_block() -> str:
    """What the checks on the paper's device gave."""
    told = checks_told(PAPER_FOLDER, tree_source_hash())
    return "".join(f"* {line[0].upper()}{line[1:]}.\n" for line in told) or "Not recorded yet.\n"


def ladder_block() -> str:
    """The ladder on the paper's device."""
    results = Results.load(PAPER_FOLDER)
    try:
        panel = ladder_panel(results)
    except NoRowsError as error:
        return f"Not recorded yet: {error}.\n"
    return f"{to_markdown(ladder_table(panel))}\n{ladder_caption(results, panel)}.\n"


def profile_block() -> str:
    """The counters of the kernels on the paper's device."""
    results = Results.load(PAPER_FOLDER)
    try:
        table = to_markdown(profile_table(results))
    except NoRowsError as error:
        return f"Not recorded yet: {error}.\n"
    return f"\n{table}\n{profile_caption(results)}.\n"


def ladder_profile_block() -> str:
    """Counters of the steps: as profiled on the paper's device, else the table of the notes.

    Raises:
        ValueError: the notes have none.
    """
    results = Results.load(PAPER_FOLDER)
    if len(table := steps_profile(results)):
        return f"\n{to_markdown(table)}\n{steps_caption(results)}.\n"
    return f"{_noted_steps()}\n{NOTED_STEPS}\n"


NOTED_STEPS = (
    "From [the notes](../csrc/NOTES.md), not a recorded profile: H200, fp16 at [4, 2048, 32, 128], "
    "one launch each, of an older form of the steps (3 to 7 then had two slots for K)."
)


def _noted_steps() -> str:
    table = r"^## ladder$.*?^(\| step \| .*?)\n\n"
    found = re.search(table, NOTES.read_text(), re.DOTALL | re.MULTILINE)
    if not found:
        raise ValueError(f"{NOTES.name} has no table of steps under the heading ladder: restore it")
    return f"{found[1]}\n"


def support_block() -> str:
    """What is compiled, by kernel: architectures, head dimensions, types and accumulators."""
    lines = [
        "| kernel | compiled for | D | accumulators | |",
        "| --- | --- | --- | --- | --- |",
    ]
    instances = manifest.load(REPOSITORY)
    for name in dict.fromkeys(instance.id for instance in instances):
        own = [instance for instance in instances if instance.id == name]
        archs = ", ".join(f"sm_{arch}" for arch in own[0].archs)
        dims = _ranges(sorted({instance.headdim for instance in own}))
        modes = ", ".join(
            f"{dtype}: {'/'.join(accs)}"
            for dtype in manifest.DTYPES
            if (accs := [acc for acc in manifest.ACCS if _offers(own, dtype, acc)])
        )
        lines.append(f"| `{name}` | {archs} | {dims} | {modes} | {own[0].lesson} |")
    return "\n".join(lines) + "\n"


def claims_block() -> str:
    """Each claim with the command, minutes and hardware that test it."""
    claims = load_claims()
    table = pd.DataFrame(
        {
            "claim": [f"{claim.statement} (`{claim.id}`)" for claim in claims],
            "of": [claim.source for claim in claims],
            "shown in": [f"`{claim.where}`" for claim in claims],
            "command": [f"`{claim.command}`" for claim in claims],
            "minutes": [f"{claim.minutes:g}" for claim in claims],
            "GPU": [" or ".join(claim.hardware) or "any" for claim in claims],
        }
    )
    return "\n" + to_markdown(table, "left") + "\n"


BLOCKS: dict[str, Callable[[], str]] = {
    "results": results_block,
    "verdicts": verdicts_block,
    "checks": checks_block,
    "support": support_block,
    "claims": claims_block,
    "matrix": matrix_block,
    "ladder": ladder_block,
    "profile": profile_block,
    "ladder_profile": ladder_profile_block,
}


def _offers(instances: list[manifest.Instance], dtype: str, acc: str) -> bool:
    return any((instance.dtype, instance.acc) == (dtype, acc) for instance in instances)


def _ranges(dims: list[int]) -> str:
    """The head dimensions in short: "up to 1024", or "64 to 1024 in steps of 64"."""
    if len(dims) == 1:
        return f"up to {dims[0]}"
    steps = {after - before for before, after in itertools.pairwise(dims)}
    if len(dims) > 2 and len(steps) == 1:
        return f"{dims[0]} to {dims[-1]} in steps of {steps.pop()}"
    return ", ".join(map(str, dims))
