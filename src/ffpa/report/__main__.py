"""Verdicts, page and README blocks of recorded rows, and the build: `python -m ffpa.report -h`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ffpa import extension
from ffpa.record.store import PAPER_FOLDER

from . import build, compare, latex, matrix, page, readme
from .claims import CLAIMS_FILE, load_claims
from .results import Results, recorded_folders
from .tables import to_markdown
from .verdicts import Verdict, judge_all, summary


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        status: int = options.run(options)
    except (ImportError, OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    return status


def _build(_: argparse.Namespace) -> int:
    print(*build.build_report(extension.kernels(), extension.build_info()), sep="\n")
    return 0


def _claims(options: argparse.Namespace) -> int:
    claims = load_claims(options.claims)
    failed = []
    for folder in _folders(options):
        results = Results.load(folder)
        if results.rows and results.capability is None:
            print(f"{results.name}: recorded without a GPU, and claims are about GPUs\n")
            continue
        verdicts = judge_all(claims, results)
        print(f"{results.device} ({results.name}): {summary(verdicts)}\n")
        for verdict in verdicts:
            print(_verdict_text(verdict, results.setting))
        failed += [f"{folder.name}: {verdict.claim.id}" for verdict in verdicts if verdict.fails]
        print()
    if failed:
        print(f"does not hold: {', '.join(failed)}", file=sys.stderr)
    return int(bool(failed))


def _page(options: argparse.Namespace) -> int:
    for path in page.write_page(_folders(options), options.out):
        print(path)
    return 0


def _compare(options: argparse.Namespace) -> int:
    comparisons, left_out = compare.compare_files(options.first, options.second, options.margin)
    if comparisons:
        print(to_markdown(compare.comparison_table(comparisons)))
    print("\n".join(left_out))
    print(f"{compare.summary(comparisons)}, {len(left_out)} not comparable")
    return 0


def _readme(options: argparse.Namespace) -> int:
    stale = 0
    if not options.check and matrix.remember_smem_bytes():
        print(f"{matrix.SMEM}: rewritten from this build")
    for path in [options.readme] if options.readme else readme.PAGES:
        text = path.read_text()
        if not options.check:
            if readme.update(path):
                print(f"{path}: generated blocks rewritten")
        elif readme.rewrite(text) != text:
            print(f"{path} is out of date: run `nox -s report`", file=sys.stderr)
            stale = 1
    return stale


def _latex(options: argparse.Namespace) -> int:
    folder = options.results or PAPER_FOLDER
    figures = options.figures or page.built_figures(folder)
    print(latex.write_sample(Results.load(folder), figures, options.out))
    return 0


def _folders(options: argparse.Namespace) -> list[Path]:
    return [options.results] if options.results else recorded_folders() or [PAPER_FOLDER]


def _verdict_text(verdict: Verdict, here: str) -> str:
    claim = verdict.claim
    lines = [f"{verdict.name:<15}  {claim.id}: {claim.statement}"]
    values = [f"expected {claim.expected}"]
    if verdict.measured:
        values.insert(0, f"measured {verdict.measured}")
    if claim.authors:
        values.append(f"authors: {claim.authors}")
    lines.append(" " * 17 + "; ".join(values))
    if verdict.why:
        lines.append(" " * 17 + verdict.why)
    if verdict.explanation:
        settings = f"there {claim.setting}; here {here}. " if claim.setting else ""
        lines.append(" " * 17 + settings + verdict.explanation)
    if verdict.name in ("stale", "not tested here"):
        lines.append(" " * 17 + f"to test it: {claim.command}")
    return "\n".join(lines)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m ffpa.report", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    compiled = commands.add_parser(
        "build", help="registers, shared memory and occupancy of each compiled configuration"
    )
    compiled.set_defaults(run=_build)

    claims = commands.add_parser("claims", help="judge every claim; 1 when one of ours fails")
    claims.add_argument("--claims", type=Path, default=CLAIMS_FILE, help="the claims' file")
    claims.set_defaults(run=_claims)

    html = commands.add_parser("page", help="write the report page and its Markdown twin")
    html.add_argument("--out", type=Path, default=page.SITE, help="folder to write into")
    html.set_defaults(run=_page)
    sample = commands.add_parser("latex", help="write a LaTeX sample with every figure and table")
    sample.add_argument("--figures", type=Path, help="folder of the figures; by default the rows'")
    sample.add_argument("--out", type=Path, default=latex.PAPER, help="folder to write into")
    sample.set_defaults(run=_latex)
    for command in (claims, html, sample):
        command.add_argument("--results", type=Path, help="one folder of rows; otherwise all")

    files = commands.add_parser("compare", help="two result files, point by point")
    files.add_argument("first", type=Path)
    files.add_argument("second", type=Path)
    files.add_argument(
        "--margin", type=float, default=compare.MARGIN, help="relative change that is no news"
    )
    files.set_defaults(run=_compare)

    blocks = commands.add_parser("readme", help="rewrite the generated blocks of README and docs")
    blocks.add_argument("--readme", type=Path, help="one page; otherwise all that have blocks")
    blocks.add_argument("--check", action="store_true", help="only tell whether it is up to date")
    blocks.set_defaults(run=_readme)
    return parser


if __name__ == "__main__":
    sys.exit(main())
