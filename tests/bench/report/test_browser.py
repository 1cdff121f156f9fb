"""The page in a real browser: nothing is fetched or run, all plots are drawn, and it fits each screen."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from drut.bench.report.documents import DocumentSource
from drut.bench.report.write import write_report
from tests.bench.report import samples
from tests.bench.report.chromium import Page, installed
from tests.bench.report.hostile import hostile

pytestmark = [pytest.mark.slow, pytest.mark.skipif(installed() is None, reason="there is no Chromium here")]

PLOTS = """[...document.querySelectorAll('svg.plot')].map(svg => {
  const box = svg.getBoundingClientRect(), mark = svg.querySelector('path, .bar, .fill').getBoundingClientRect();
  return [box.width, box.height, mark.width + mark.height, svg.getAttribute('aria-label').length]; })"""
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
OUTSIDE = """[...document.querySelectorAll('svg.plot text')].filter(text => {
  const box = text.getBoundingClientRect(), svg = text.ownerSVGElement.getBoundingClientRect();
  return box.left < svg.left - 1 || box.right > svg.right + 1 || box.bottom > svg.bottom + 1;
}).map(text => text.textContent)"""
COLOURS = """[document.body, document.querySelector('.line')].map(element => {
  const style = getComputedStyle(element); return style.backgroundColor + style.color + style.stroke; }).join()"""
SMALLEST = """Math.min(...[...document.querySelectorAll('svg.plot')].flatMap(svg =>
  [...svg.querySelectorAll('text')].map(text => parseFloat(getComputedStyle(text).fontSize) *
    svg.getBoundingClientRect().width / svg.viewBox.baseVal.width)))"""

CLIPPED = """[...document.querySelectorAll('.scroll')].filter(area => area.checkVisibility() &&
  area.scrollWidth > area.clientWidth + 1).map(area => area.getAttribute('aria-label'))"""
FOLDED = "document.querySelector('.fold table').checkVisibility()"


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with Page() as opened:
        yield opened


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A report of all kinds of file, and one in which every word is hostile."""
    documents: list[Any] = [samples.comparison(), samples.a_search(), samples.ablation(), samples.result(),
                            samples.result(slow=1.3, seed=1)]
    found = {}
    for name, change in (("plain", lambda d: d), ("hostile", hostile)):
        sources = [DocumentSource(f"run {i}", Path(), change(d)) for i, d in enumerate(documents)]
        found[name] = tmp_path_factory.mktemp("page") / f"{name}.html"
        write_report(sources, found[name])
    return found


def asked(page: Page) -> list[str]:
    """What went over the network, data: URLs apart."""
    urls = [e["params"]["request"]["url"] for e in page.events if e.get("method") == "Network.requestWillBeSent"]
    return [url for url in urls if not url.startswith("data:")]


def complaints(page: Page) -> list[Any]:
    names = ("Log.entryAdded", "Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Page.javascriptDialogOpening")
    return [e for e in page.events if e.get("method") in names]


@pytest.mark.parametrize("name", ["plain", "hostile"])
@pytest.mark.parametrize("width", [360, 1440])
def test_it_fits_the_screen_and_all_plots_are_there(page: Page, files: dict[str, Path], name: str, width: int) -> None:
    page.events.clear()
    page.open(files[name], width=width)
    assert page.evaluate(OVERFLOW) <= 0
    plots = page.evaluate(PLOTS)
    assert len(plots) > 40
    assert all(w >= 290 and h > 60 and mark > 0 and words > 20 for w, h, mark, words in plots)
    assert page.evaluate(SMALLEST) >= 9
    if name == "plain":
        assert page.evaluate(OUTSIDE) == []
    assert asked(page) == [files[name].resolve().as_uri()]
    assert complaints(page) == []
    assert page.evaluate("document.scripts.length + document.images.length") == 0


def test_no_table_of_a_run_is_clipped_on_a_narrow_screen(page: Page, tmp_path: Path) -> None:
    path = tmp_path / "run.html"
    write_report([DocumentSource("run", Path(), samples.result(seconds=20.0, slo="ttft=80,tpot=13"))], path)
    page.open(path, width=400)
    page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert page.evaluate(CLIPPED) == []
    assert page.evaluate(OVERFLOW) <= 0
    assert page.evaluate(OUTSIDE) == []


def test_no_word_of_others_becomes_an_element(page: Page, files: dict[str, Path]) -> None:
    count = "JSON.stringify([...new Set([...document.querySelectorAll('*')].map(e => e.localName))].sort())"
    found = {}
    for name, path in files.items():
        page.open(path, width=1440)
        found[name] = page.evaluate(count)
    assert found["plain"] == found["hostile"]
    assert page.evaluate("document.body.textContent.includes('<script>')")
    assert page.evaluate("window.bad") is None


def test_light_and_dark_by_the_system_and_by_hand(page: Page, files: dict[str, Path]) -> None:
    page.open(files["plain"], width=1440, scheme="light")
    light = page.evaluate(COLOURS)
    page.screen(1440, scheme="dark")
    dark = page.evaluate(COLOURS)
    assert light != dark
    page.evaluate("document.getElementById('theme-light').click()")
    assert page.evaluate(COLOURS) == light
    page.screen(1440, scheme="light")
    page.evaluate("document.getElementById('theme-dark').click()")
    assert page.evaluate(COLOURS) == dark


def test_paper_is_white_and_shows_folded_tables(page: Page, files: dict[str, Path]) -> None:
    page.open(files["plain"], width=800, scheme="dark")
    page.evaluate("document.getElementById('theme-dark').click()")
    assert not page.evaluate(FOLDED)
    page.screen(800, scheme="dark", media="print")
    assert "rgb(255, 255, 255)" in page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert page.evaluate(FOLDED)


def test_all_can_be_reached_by_keys_and_has_a_name(page: Page, files: dict[str, Path]) -> None:
    """As a screen reader has it: every plot is an image with a name, every table has one too."""
    page.open(files["plain"], width=1440)
    nodes = page.call("Accessibility.getFullAXTree")["nodes"]
    for role in ("image", "table", "region", "radio", "link"):
        mine = [n for n in nodes if n.get("role", {}).get("value") == role and not n.get("ignored")]
        assert mine, role
        assert all(n.get("name", {}).get("value") for n in mine), role
    for _ in range(2):
        page.call("Input.dispatchKeyEvent", type="rawKeyDown", key="Tab", code="Tab", windowsVirtualKeyCode=9)
    assert page.evaluate("document.activeElement.localName") != "body"
    page.evaluate("[...document.querySelectorAll('.scroll')].find(area => area.checkVisibility()).focus()")
    assert page.evaluate("document.activeElement.className") == "scroll"


def test_it_opens_without_its_style_being_blocked(page: Page, files: dict[str, Path], tmp_path: Path) -> None:
    """The policy bites: the same file with one more style or script is refused, with a report."""
    text = files["plain"].read_text()
    bad = tmp_path / "bad.html"
    bad.write_text(text.replace("</main>", "<style>body{color:red}</style><script>window.bad=1</script></main>"))
    page.events.clear()
    page.open(bad, width=1440)
    assert page.evaluate("window.bad") is None
    assert len(complaints(page)) == 2
    assert msgspec.json.encode(complaints(page)).count(b"Content Security Policy") >= 2
