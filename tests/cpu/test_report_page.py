"""The report page, its Markdown twin, and the README's generated blocks."""

import json
import re
import shutil
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import pytest
import synthetic

from ffpa.record import Environment, remember
from ffpa.record.store import PAPER_FOLDER, REPOSITORY
from ffpa.report import page, readme
from ffpa.report.__main__ import main
from ffpa.report.checks import checks_told
from ffpa.report.claims import load_claims
from ffpa.report.results import Results
from ffpa.report.verdicts import judge_all
from ffpa_build import manifest
from ffpa_build.sources import CHECKS, checks_hash
from paper_figures.build import build_all

VOID = {"meta", "br", "path", "use", "rect", "stop"}


class Page(HTMLParser):
    """Collects ids, references and text, and checks that tags are closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(text)
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        if "id" in values:
            self.ids.append(values["id"])
        if tag == "a":
            self.links.append(values["href"])
        self.loaded += [values[name] for name in ("src", "data", "xlink:href") if name in values]
        if tag == "link":
            self.loaded.append(values["href"])
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self._open.pop()

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of two devices, one current and one stale."""
    root = tmp_path_factory.mktemp("project")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page, "SITE", root / "site")
        stale = synthetic.headdim_rows(source_hash=synthetic.OTHER_SOURCES)
        folders = [
            synthetic.write(root / "results" / "gpu-a", synthetic.headdim_rows()),
            synthetic.write(root / "results" / "gpu-b", stale),
        ]
        for folder in folders:
            results = Results.load(folder, synthetic.SOURCES)
            build_all(results, root / "site" / "figures" / folder.name)
        page.write_page(folders, root / "site", synthetic.SOURCES)
    return root / "site"


@pytest.fixture(scope="module")
def html(site: Path) -> str:
    return (site / "index.html").read_text()


def test_page_loads_nothing(html: str) -> None:
    parsed = Page(html)
    assert all(reference.startswith("#") for reference in parsed.loaded)
    assert not re.search(r"url\((?!#)|@import|fetch\(|XMLHttp", html)
    assert "<script>" in html and "<style>" in html


def test_links_lead_to_files_and_anchors_that_exist(html: str, site: Path) -> None:
    parsed = Page(html)
    assert len(parsed.links) > 20
    for link in parsed.links:
        assert link[1:] in parsed.ids if link.startswith("#") else (site / link).exists(), link


def test_inlined_pictures_keep_their_references_apart(html: str) -> None:
    parsed = Page(html)
    pictures = re.findall(r"<svg.*?</svg>", html, flags=re.DOTALL)
    assert len(pictures) == 6
    for picture in pictures:
        used = set(re.findall(r'(?:href="|url\()#([^")]+)', picture))
        assert used and used <= set(re.findall(r'\bid="([^"]+)"', picture))
    repeated = {name for name in parsed.ids if parsed.ids.count(name) > 1}
    assert not repeated


def test_verdicts_come_first_then_figures_then_rows_then_environment(html: str) -> None:
    parts = ["Verdicts</h2>", "<svg", "Rows of headdim", "Environment</h2>"]
    places = [html.index(part) for part in parts]
    assert places == sorted(places)
    for claim in load_claims():
        assert f'id="claim-{claim.id}"' in html


@pytest.mark.parametrize("name", ["index.html", "index.md"])
def test_both_forms_tell_verdicts_gaps_commands_and_staleness(name: str, site: Path) -> None:
    text = (site / name).read_text()
    for word in (
        "does not hold", "holds", "stale", "about 90 to 110",
        "wrong_result", "relative error 0.5 is above the bound", "scores take 64 GiB", "refuses",
        "sm_80 kernel compiled for sm_90", "python -m paper_figures",
        "nox -s bench -- experiment=headdim", "Test GPU", "headdim.jsonl", "255 + 16 B",
    ):  # fmt: skip
        assert word in text, word


def test_text_from_rows_is_escaped(tmp_path: Path) -> None:
    bad = synthetic.row("sdpa-flash", None, 512, reason="needs <b>D & E</b> | less")
    folder = synthetic.write(tmp_path / "gpu", [bad])
    page.write_page([folder], tmp_path / "site")
    assert "needs &lt;b&gt;D &amp; E&lt;/b&gt; | less" in (tmp_path / "site/index.html").read_text()
    assert r"</b> \| less" in (tmp_path / "site/index.md").read_text()


def test_page_is_the_same_on_every_rebuild(site: Path, tmp_path: Path) -> None:
    folder = site.parent / "results" / "gpu-a"
    first, second = (
        [path.read_bytes() for path in page.write_page([folder], tmp_path, synthetic.SOURCES)]
        for _ in range(2)
    )
    assert first == second


def test_page_of_nothing_says_what_to_run(tmp_path: Path) -> None:
    for path in page.write_page([], tmp_path):
        assert "nox -s bench -- experiment=headdim" in path.read_text()
        assert "nox -s smoke" in path.read_text()


def test_rows_of_the_cpu_model_are_shown_without_times(tmp_path: Path) -> None:
    row = synthetic.row("numerics-cpu", "f32", 576, status="ok", reason=None, err_rel=2e-4)
    folder = synthetic.write(tmp_path / "cpu", [row.model_copy(update={"experiment": "adhoc"})])
    page.write_page([folder], tmp_path / "site")
    text = (tmp_path / "site/index.html").read_text()
    assert "CPU model F32" in text and "2.00e-04" in text and "No figure yet" in text


@pytest.mark.parametrize("name", ["index.html", "index.md"])
def test_the_profile_is_shown_with_the_roofline(
    name: str, recorded: Path, built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page, "SITE", tmp_path)
    shutil.copytree(built, tmp_path / "figures" / recorded.name)
    page.write_page([recorded], tmp_path, synthetic.SOURCES)
    text = (tmp_path / name).read_text()
    roofline = text.index("Rows of roofline")
    assert (
        text.index("Rate over that of the same products, not fused")
        < text.index("tensor busy")
        < roofline
    )
    assert "Nsight Compute 1, one launch each" in text and "wait 60%" in text


def test_the_profile_in_the_docs(results: Results, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readme.Results, "load", lambda folder: results)
    block = readme.profile_block()
    assert "split_d-sm90 F32" in block and "61 %" in block and "STALE" not in block
    monkeypatch.setattr(readme.Results, "load", lambda folder: replace(results, profiles=None))
    assert "`nox -s profile` on a machine with a GPU" in readme.profile_block()


def test_readme_blocks_are_current() -> None:
    text = readme.README.read_text()
    assert readme.rewrite(text) == text, "README is out of date: run `nox -s report`"
    assert {"results", "support"} <= set(re.findall(r"<!-- ffpa:(\w+) -->", text))


def test_the_readme_tells_every_verdict_that_is_not_holds() -> None:
    verdicts = judge_all(load_claims(), Results.load(PAPER_FOLDER))
    told = readme.verdicts_block()
    lines = told.splitlines()
    for verdict in verdicts:
        mine = [line for line in lines if line.startswith(f"| {verdict.claim.statement} ")]
        if verdict.claim.source == "paper" or verdict.name != "holds":
            assert len(mine) == 1 and f"| {verdict.name}" in mine[0], verdict.claim.id
    count = int(re.search(r"The other (\d+) claims hold", told)[1])
    assert count == len(verdicts) - (len(lines) - 4)


def test_a_stale_block_is_found_and_rewritten(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "README.md"
    path.write_text(
        "Before\n<!-- ffpa:support -->\nnot made from data\n<!-- /ffpa:support -->\nAfter\n"
    )
    assert main(["readme", "--check", "--readme", str(path)]) == 1
    assert "out of date" in capsys.readouterr().err
    assert main(["readme", "--readme", str(path)]) == 0
    assert main(["readme", "--check", "--readme", str(path)]) == 0
    text = path.read_text()
    assert (
        text.startswith("Before\n")
        and text.endswith("After\n")
        and "not made from data" not in text
    )


@pytest.mark.parametrize(
    "text",
    [
        "no block at all\n",
        "<!-- ffpa:weather -->\n<!-- /ffpa:weather -->\n",
        "<!-- ffpa:support -->\nno end\n",
    ],
)
def test_a_readme_without_proper_blocks_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="README block"):
        readme.rewrite(text)


def test_support_block_lists_every_kernel() -> None:
    block = readme.support_block()
    for instance in manifest.load(readme.REPOSITORY):
        assert f"| `{instance.id}` |" in block
        assert instance.lesson in block


@pytest.mark.parametrize(
    ("dims", "text"),
    [
        ([1024], "up to 1024"),
        ([64, 128, 192], "64 to 192 in steps of 64"),
        ([64, 128, 256], "64, 128, 256"),
        ([256, 512], "256, 512"),
    ],
)
def test_head_dimensions_in_short(dims: list[int], text: str) -> None:
    assert readme._ranges(dims) == text


@pytest.fixture(scope="module")
def reproduced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of the authors' rows and a reviewer's, whose F16 kernel is faster and EA the same."""
    root = tmp_path_factory.mktemp("reproduced")
    theirs = [
        entry
        for dim in (320, 512, 576)
        for entry in (
            synthetic.row("sdpa-efficient", None, dim, 130.0, run_id="other", process=7),
            synthetic.row("split_d-sm80", "f16", dim, 260.0, run_id="other", process=7),
        )
    ]
    folders = [
        synthetic.write(root / "authors" / "gpu", synthetic.headdim_rows()),
        synthetic.write(root / "reproduced" / "gpu", theirs),
    ]
    remember(folders[1], other_environment())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page, "SITE", root / "site")
        patch.setattr(page, "PAPER_FOLDER", folders[0])
        page.write_page(folders, root / "site", synthetic.SOURCES)
    return root / "site"


def other_environment() -> Environment:
    """That of the synthetic rows; it only says which run they come from."""
    environment = synthetic.environment()
    run = environment.runs["run"].model_copy(update={"started": "2026-02-02T00:00:00Z"})
    return environment.model_copy(update={"runs": {"other": run}})


@pytest.mark.parametrize("name", ["index.html", "index.md"])
def test_a_reviewers_rows_lie_beside_the_authors(name: str, reproduced: Path) -> None:
    text = unescape((reproduced / name).read_text())
    heads = [text.index(head) for head in ("authors' rows (authors-gpu)", "reproduced-gpu")]
    assert heads == sorted(heads)
    assert "3 faster, 0 slower" in text and "not comparable" in text
    assert "times as fast" in text


def test_each_claim_has_a_verdict_of_either_side(reproduced: Path) -> None:
    html = (reproduced / "index.html").read_text()
    for claim in load_claims():
        row = html[html.index(f'id="claim-{claim.id}"') :].split("</tr>")[0]
        assert row.count('class="verdict ') == 2, claim.id
    assert 'data-label="reproduced-gpu"' in html
    # What differs is told beside a claim of the paper that does not hold.
    assert "A baseline of torch" in html and "GH200, CUDA 12.8, torch 2.5.1" in html


def test_facts_that_differ_are_shaded(reproduced: Path, html: str) -> None:
    marked = re.findall(
        r'<tr class="differs"><td>(.*?)</td>', (reproduced / "index.html").read_text()
    )
    assert "run: started" in marked and "software: torch" not in marked


def test_each_experiment_names_the_commands_that_recorded_it(html: str) -> None:
    assert "python run.py experiment=headdim  # 2026-01-01" in html


@pytest.mark.parametrize(
    "tests_hash, told",
    [
        (None, "GPU tests of 2026-01-01: 7 passed, 0 failed; of tests that the record does not"),
        ("0" * 64, "GPU tests of 2026-01-01: 7 passed, 0 failed; STALE, by other tests"),
        ("current", "GPU tests of 2026-01-01: 7 passed, 0 failed"),
    ],
)
def test_a_record_goes_stale_when_its_tests_change(
    tests_hash: str | None, told: str, tmp_path: Path
) -> None:
    record = {"finished": "2026-01-01T00:00:00+00:00", "source_hash": synthetic.SOURCES}
    record |= {"counts": {"passed": 7, "failed": 0}, "launches": 0}
    if tests_hash:
        current = checks_hash(REPOSITORY, "gpu_tests")
        record["tests_hash"] = current if tests_hash == "current" else tests_hash
    (tmp_path / "gpu_tests.json").write_text(json.dumps(record))
    (line,) = checks_told(tmp_path, synthetic.SOURCES)
    assert line.startswith(told) and (tests_hash != "current" or line == told)
    (line,) = checks_told(tmp_path, synthetic.OTHER_SOURCES)
    assert line.endswith("STALE, of other sources")
    newer = json.dumps(record | {"source_hash": synthetic.OTHER_SOURCES})
    (tmp_path / "gpu_tests_stress.json").write_text(newer)
    (line,) = checks_told(tmp_path, synthetic.OTHER_SOURCES)
    assert line.endswith("STALE, of other sources: gpu_tests")


@pytest.mark.parametrize("kind", CHECKS)
def test_the_hash_of_tests_is_that_of_their_files(kind: str, tmp_path: Path) -> None:
    for folder in ("tests", "tests/gpu"):
        (tmp_path / folder).mkdir()
        for file in (REPOSITORY / folder).glob("*.py"):
            (tmp_path / folder / file.name).write_bytes(file.read_bytes())
    first = checks_hash(tmp_path, kind)
    assert first == checks_hash(REPOSITORY, kind)
    with (tmp_path / "tests/gpu/harness.py").open("a") as file:
        file.write("# changed\n")
    assert checks_hash(tmp_path, kind) != first


@pytest.mark.parametrize("sources", [synthetic.SOURCES, synthetic.OTHER_SOURCES])
def test_recorded_checks_are_told_and_go_stale(sources: str, tmp_path: Path) -> None:
    folder = synthetic.write(tmp_path / "gpu", [synthetic.row("naive", "f32", 512, 1.0)])
    common = {"finished": "2026-01-01T00:00:00+00:00", "source_hash": synthetic.SOURCES}
    runs = [{"tool": "memcheck", "found": 0}, {"tool": "memcheck", "found": 2}]
    runs += [{"tool": "memcheck", "kernel": "fuzz", "found": 0, "calls": 1200}]
    runs += [{"tool": "racecheck", "found": None}]
    records = {
        "gpu_tests": {"counts": {"passed": 7, "failed": 0, "not reached": 2}, "launches": 500},
        "gpu_tests_stress": {"counts": {"passed": 3, "failed": 1}, "launches": 10_000},
        "gpu_fuzz_1": {
            "calls": 900,
            "counts": {"right": 899},
            "failures": ["call 3"],
            "seconds": 60,
        },
        "gpu_fuzz_2": {
            "calls": 1100,
            "counts": {"refused": 600, "right": 500},
            "failures": [],
            "seconds": 60,
        },
        "gpu_sanitizer": {"runs": runs, "not_reached": ["synccheck naive/d1024/fp16/f32"]},
    }
    for name, record in records.items():
        (folder / f"{name}.json").write_text(json.dumps(common | record))
    page.write_page([folder], tmp_path / "site", sources)
    for name in ("index.html", "index.md"):
        text = (tmp_path / "site" / name).read_text()
        for told in (
            "GPU tests of 2026-01-01: 10 passed, 1 failed, 2 not reached; 10,000 random launches",
            "2,000 in 2 process-minutes, 1,399 right, 600 refused in words, 1 wrong",
            "memcheck 2 faults in 2 kernels and 1,200 random calls, "
            "racecheck 0 faults in 0 kernels and no end in 1; not reached: 1",
        ):
            assert told in text
        assert ("STALE, of other sources" in text) == (sources != synthetic.SOURCES)
