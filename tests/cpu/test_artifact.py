"""The artifact appendix: its commands exist, its claims are all there, its minutes agree."""

import re
import shlex
from pathlib import Path

import pytest
import yaml

from ffpa.record.store import REPOSITORY
from ffpa.report import readme
from ffpa.report.claims import load_claims

ARTIFACT = REPOSITORY / "docs" / "artifact.md"
TEXT = ARTIFACT.read_text()
HEADINGS = (
    "Abstract", "Check-list", "Description", "Installation", "Experiment workflow",
    "Evaluation and expected results", "The badges' requirements", "Experiment customisation",
    "Notes", "Methodology",
)  # fmt: skip
TOOLS = ("nox", "python", "docker", "pip")


def commands() -> list[str]:
    """Every command line of the page: from its blocks of shell, and quoted in its text."""
    blocks = re.findall(r"```sh\n(.*?)```", TEXT, flags=re.DOTALL)
    lines = [line.split("  #")[0].strip() for block in blocks for line in block.splitlines()]
    quoted = re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", TEXT, flags=re.DOTALL))
    return sorted(
        {line for line in (*lines, *quoted) if line.split(" ")[0] in TOOLS and " " in line}
    )


def sessions() -> dict[str, str]:
    """The docstring of each nox session."""
    text = (REPOSITORY / "noxfile.py").read_text()
    return dict(re.findall(r'@nox.session.*\ndef (\w+)\(.*\n    """(.+?)"""', text))


def check_settings(words: list[str]) -> None:
    groups = {path.name for path in (REPOSITORY / "conf").iterdir() if path.is_dir()}
    for word in words:
        key, _, value = word.partition("=")
        if key in groups and (key, value) != ("experiment", "all"):
            assert (REPOSITORY / "conf" / key / f"{value}.yaml").exists(), word


@pytest.mark.parametrize("command", commands())
def test_every_command_exists(command: str) -> None:
    words = shlex.split(command)
    match words:
        case ["nox", "-l"]:
            pass
        case ["nox", "-s", session, *rest]:
            assert session in sessions()
            check_settings(rest)
        case ["python", "-m", "ffpa", command]:
            assert f'"{command}"' in (REPOSITORY / "src/ffpa/__main__.py").read_text()
        case ["python", script, *rest]:
            assert (REPOSITORY / script).exists()
            check_settings(rest)
        case ["docker", "run", *rest]:
            assert "ffpa" in rest
        case ["docker", "buildx", "build", "--file", dockerfile, *_]:
            assert (REPOSITORY / dockerfile).exists()
        case ["pip", "install", "nox"]:
            pass
        case _:
            pytest.fail(f"nobody knows how to check {command}")


def test_there_are_commands_to_check() -> None:
    assert len(commands()) > 15


def test_it_has_the_usual_headings_in_their_order() -> None:
    assert re.findall(r"^## (.+)$", TEXT, flags=re.MULTILINE) == list(HEADINGS)


def test_every_claim_is_in_it_with_its_command() -> None:
    assert readme.rewrite(TEXT) == TEXT, "docs/artifact.md is out of date: run `nox -s report`"
    for claim in load_claims():
        line = next(line for line in TEXT.splitlines() if f"(`{claim.id}`)" in line)
        assert f"`{claim.command}`" in line and f" {claim.minutes:g} " in line


def test_its_minutes_are_those_of_the_sessions() -> None:
    quoted = re.findall(r"`nox -s (\w+)` \((\d+) minutes, (GPU|no GPU|GPU or not)\)", TEXT)
    assert len(quoted) >= 4
    for session, minutes, _ in quoted:
        assert f"({minutes} min" in sessions()[session], session


def test_files_that_it_names_exist() -> None:
    for name in re.findall(r"`([\w./-]+/[\w./-]*|[A-Z]\w+\.\w+)`", TEXT):
        if not name.startswith(("reproduced/", "site/", "/results")):
            assert (REPOSITORY / name).exists(), name
    for link in re.findall(r"\]\((\w[\w./-]*)\)", TEXT):
        assert (ARTIFACT.parent / link).exists(), link


def test_every_experiment_has_a_claim() -> None:
    files = {path.stem for path in Path(REPOSITORY / "conf" / "experiment").glob("*.yaml")}
    claimed = {claim.experiment for claim in load_claims()}
    assert files <= claimed, files - claimed
    for path in (REPOSITORY / "conf" / "experiment").glob("*.yaml"):
        assert yaml.safe_load(path.read_text())["name"] == path.stem


def test_the_appendix_has_the_minutes_of_the_sessions() -> None:
    sessions = (REPOSITORY / "noxfile.py").read_text()
    minutes = {
        name: re.search(rf'def {name}\(.*?\n    """.*?\((\d+) min', sessions)[1]
        for name in ("bench", "reproduce")
    }
    text = (REPOSITORY / "docs" / "artifact.md").read_text()
    assert f"| {minutes['bench']} minutes on an H200 for everything" in text
    assert f"`nox -s reproduce` ({minutes['reproduce']} minutes, GPU)" in text
