"""The report page in a browser: without a network, at the width of a desk and of a phone."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import synthetic

from ffpa.record.store import PAPER_FOLDER
from ffpa.report import page

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(BROWSER is None, reason="there is no Chromium")

# Sorts the first table by its second column, twice, and writes down what a reader would see.
PROBE = """<script>
const table = document.querySelector("table.sortable");
const button = table.querySelectorAll("button")[1];
document.querySelectorAll("details").forEach(one => one.open = true);
const column = () => [...table.tBodies[0].rows].map(row => row.cells[1].textContent).join(" ");
button.click(); const up = column(); button.click(); const down = column();
document.body.dataset.up = up; document.body.dataset.down = down;
document.body.dataset.overflow = document.documentElement.scrollWidth - innerWidth;
document.body.dataset.width = innerWidth;
document.body.dataset.loaded = performance.getEntriesByType("resource").length;
parent.postMessage({...document.body.dataset}, "*");
</script>"""

# A window is at least 500 pixels wide, a frame as wide as it is told; it tells what the probe told.
FRAME = """<!DOCTYPE html><body style="margin: 0">
<script>onmessage = event => Object.assign(document.body.dataset, event.data);</script>
<iframe src="probe.html" style="width: {width}px; height: 1200px; border: 0"></iframe></body>"""
WIDTHS = (1280, 390)  # of a desk and of a phone


@pytest.fixture(scope="module", params=["made-up rows", "the paper's rows"])
def site(
    request: pytest.FixtureRequest,
    recorded: Path,
    built: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """The page, with a probe in it, in frames of these widths."""
    root = tmp_path_factory.mktemp("browser") / "site"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page, "SITE", root)
        if request.param == "made-up rows":
            shutil.copytree(built, root / "figures" / recorded.name)
            page.write_page([recorded], root, synthetic.SOURCES)
        else:
            page.write_page([PAPER_FOLDER], root)
    text = (root / "index.html").read_text()
    (root / "probe.html").write_text(text.replace("</body>", f"{PROBE}</body>"))
    for width in WIDTHS:
        (root / f"frame{width}.html").write_text(FRAME.format(width=width))
    return root


def browse(file: Path, width: int, *options: str) -> str:
    command = [
        str(BROWSER), "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run",
        "--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={file.parent / 'profile'}",
        f"--window-size={width},1200", *options, file.as_uri(),
    ]  # fmt: skip
    return subprocess.run(command, capture_output=True, text=True, timeout=120).stdout


def seen(dom: str, name: str) -> str:
    found = re.search(rf'<body[^>]* data-{name}="([^"]*)"', dom)
    assert found, f"the page's script did not run to its end: no {name}"
    return found[1]


@pytest.mark.parametrize("width", WIDTHS)
def test_it_opens_alone_fits_and_sorts(site: Path, width: int) -> None:
    dom = browse(site / f"frame{width}.html", 1400, "--dump-dom", "--virtual-time-budget=5000")
    assert seen(dom, "width") == str(width)
    assert seen(dom, "loaded") == "0"
    assert int(seen(dom, "overflow")) <= 0  # wide tables scroll inside their own boxes
    up, down = seen(dom, "up").split(), seen(dom, "down").split()
    assert len(set(up)) > 1 and up != down and sorted(up) == sorted(down)


def test_a_screenshot_is_no_blank_sheet(site: Path) -> None:
    shot = site / "shot.png"
    browse(site / "index.html", 500, f"--screenshot={shot}")
    assert shot.stat().st_size > 20_000
