"""The page as text: its elements, escaping, and distinguishable colours."""

from __future__ import annotations

import math
import re
from base64 import b64encode
from collections import Counter
from hashlib import sha256
from html.parser import HTMLParser
from importlib.resources import files
from itertools import combinations
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from drut.bench.render.page.html import MAX_CHARS, el, text
from drut.bench.render.page.marks import COLOURS, Palette
from drut.bench.render.page.render import page
from drut.bench.render.section import ChartAxis, Forest, Mark, Plot, ReportGroup, ReportLine, ReportRow, Section, Table
from drut.bench.report.assemble import section_of, sections
from drut.bench.report.documents import DocumentSource
from tests.bench.report import samples
from tests.bench.report.hostile import hostile

VOID = {"meta", "link", "input"}


class Reader(HTMLParser):
    """Counts elements, keeps attributes, and fails on what is not closed in its order."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: Counter[str] = Counter()
        self.attributes: list[tuple[str, str, str | None]] = []
        self.words = ""
        self.feed(source)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += [(tag, name, value) for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += [(tag, name, value) for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data


DOCUMENTS: list[Any] = [samples.comparison(), samples.a_search(), samples.ablation(), samples.result(seconds=20.0),
                        samples.result(slow=1.3, seed=1, seconds=20.0)]


@pytest.fixture(scope="module")
def made() -> str:
    return page(sections([DocumentSource(f"run {i}", Path(), d) for i, d in enumerate(DOCUMENTS)]))


def test_the_policy_allows_its_own_style_alone(made: str) -> None:
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', made)
    style = re.search(r"<style>(.*?)</style>", made, re.DOTALL)
    assert policy is not None
    assert style is not None
    digest = b64encode(sha256(style[1].encode()).digest()).decode()
    assert policy[1].replace("&#x27;", "'") == (f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; "
                                                "base-uri 'none'; form-action 'none'")


def test_it_asks_for_nothing_and_runs_nothing(made: str) -> None:
    reader = Reader(made)
    assert not {"script", "img", "iframe", "object", "form", "base"} & reader.tags.keys()
    for tag, name, value in reader.attributes:
        assert name not in ("src", "style", "srcset", "action"), tag
        assert not name.startswith("on"), tag
        assert name != "href" or value == "data:," or (value or "").startswith("#"), value
    ids = Counter(value for _, name, value in reader.attributes if name == "id")
    assert max(ids.values()) == 1
    assert {value[1:] for _, name, value in reader.attributes if name == "href" and value and value[0] == "#"} <= {
        i for i in ids if i}


def test_hostile_words_stay_words(made: str) -> None:
    bad = Reader(page(sections([DocumentSource(f"run {i}", Path(), hostile(d)) for i, d in enumerate(DOCUMENTS)])))
    assert bad.tags == Reader(made).tags
    assert "<script>window.bad=1</script>" in bad.words
    assert not {"\u202e", "\x1b"} & set(bad.words)


def test_text_is_escaped_and_has_an_end() -> None:
    assert el("p", "<b>&\"'", title='"><i>') == '<p title="&quot;&gt;&lt;i&gt;">&lt;b&gt;&amp;&quot;&#x27;</p>'
    assert len(text("x" * 10**6)) == MAX_CHARS + 2


def test_an_engine_has_one_colour_throughout(made: str) -> None:
    found = [section_of(samples.comparison()), section_of(samples.comparison(seed=3))]
    palette = Palette(found)
    assert palette.number("drut") == 0  # the base comes first
    of: dict[str, set[str]] = {}
    for legend in re.findall(r'<svg class="key (c\d)".*?</svg><span>([^<]*)</span>', page(found)):
        of.setdefault(legend[1], set()).add(legend[0])
    assert len(of) == 4
    assert all(len(colours) == 1 for colours in of.values())
    assert len({next(iter(colours)) for colours in of.values()}) == 4


def test_many_engines_differ_in_colour_or_mark() -> None:
    palette = Palette([])
    looks = {(palette.css_class(f"e{i}"), palette.shape(f"e{i}") % 8) for i in range(64)}
    assert len(looks) == 64


def test_each_plot_has_its_figures_as_a_table_and_in_words(made: str) -> None:
    reader = Reader(made)
    plots = [p for s in sections([DocumentSource(f"run {i}", Path(), d) for i, d in enumerate(DOCUMENTS)]) for part
             in s.parts if isinstance(part, ReportGroup) for p in part.plots]
    assert reader.tags["figure"] == len(plots) > 40
    assert all(p.twin.rows for p in plots)
    labels = [value for tag, name, value in reader.attributes if tag == "svg" and name == "aria-label"]
    assert len(labels) == len(plots)
    search = next(p for p in plots if isinstance(p, Plot) and p.marks)
    assert "Knee at 5.6" in labels[plots.index(search)]


def test_places_have_one_number_throughout_a_group_and_a_band() -> None:
    marks = [Mark(2.0, "one", 1.5, 2.5), Mark(2.01, "two"), Mark(30.0, "three", None, 40.0, "y")]
    line = ReportLine("x", "x", [(0.0, 10.0), (4.0, 20.0)])
    plots = [Plot(caption=f"plot {i}", x=ChartAxis("s"), y=ChartAxis("ms"), lines=[line], twin=Table("", [], []),
                  marks=of)
             for i, of in enumerate((marks, marks[2:]))]
    made = page([Section("search", "s", [ReportGroup("g", plots)])])
    assert re.findall(r'<span class="place">(\d)</span><span>(\w+)</span>', made) == [
        ("1", "one"), ("2", "two"), ("3", "three")]
    first, second = re.findall(r'<svg class="plot".*?</svg>', made)
    assert second.count('class="pointer"') == 1
    assert re.search(r'class="band" x="48" width="340" y="[\d.]+" height="[\d.]+', second)
    numbers = {n: float(x) for x, n in re.findall(r'class="tick" x="([\d.]+)" y="28" text-anchor="middle">(\d)<',
                                                  first)}
    assert numbers["2"] - numbers["1"] >= 10  # both can be read
    bands = [tuple(map(float, found)) for found in re.findall(r'class="band" x="([\d.]+)" width="([\d.]+)"', first)]
    width = 340 / (4.0 * 1.06)
    assert len(bands) == 2  # one has no interval
    assert bands[0] == pytest.approx((48 + 1.5 * width, width), rel=1e-3)


def test_rounds_are_dots_with_an_upright() -> None:
    rows = [ReportRow(name="off", who="off", value=20.0, low=10.0, high=30.0, text="20", dots=[10.0, 20.0, 30.0]),
            ReportRow(
        name="on", who="on", value=4.0, low=4.0, high=4.0, text="4")]
    made = page([Section("ablation", "a", [ReportGroup("g", [Forest("f", "ms", rows, Table("", [], []))])])])
    drawn = re.findall(r"<g class=.*?<title>(o\w+): .*?</g>(?=<g class|</svg>)", made)
    assert drawn == ["off", "on"]
    assert made.count('class="mark"') == 3 + 1
    places = [float(x) for x in re.findall(r'<title>[123]0</title><path class="mark" d="M([\d.]+)', made)]
    assert places == sorted(places)
    assert places[1] - places[0] > 50  # a logarithmic scale of values far from 1


@pytest.mark.parametrize("document", [
    msgspec.structs.replace(samples.comparison(), blocks=[], ratios=[], contestants=[], cells=[], rankings=[]),
    msgspec.structs.replace(samples.a_search(), points=[]),
    msgspec.structs.replace(samples.ablation(), effects=[], blocks=[], techniques=[]),
    samples.result(seconds=5.0, lost=40)])
def test_little_or_nothing_measured_is_a_page_too(document: Any) -> None:
    Reader(page([section_of(document)]))


def test_absurd_figures_do_not_break_it() -> None:
    c = samples.comparison(rounds=2)
    blocks = [msgspec.structs.replace(b, figures=dict.fromkeys(b.figures, value), samples={"ttft_ms": [value, 0.0]},
                                      timeline=[value, -value])
              for b, value in zip(c.blocks, [1e308, 0.0, 1e-300, -1.0, 5.0] * 99, strict=False)]
    ratios = [msgspec.structs.replace(r, value=v, low=v / 1e9, high=1e308)
              for r, v in zip(c.ratios, [1e300, 1e-300, 1.0] * 99, strict=False)]
    made = page([section_of(msgspec.structs.replace(c, blocks=blocks, ratios=ratios))])
    Reader(made)
    assert not re.search(r'(x|y|x1|x2|y1|y2|d)="[^"]*(nan|inf)', made)


def luminance(colour: str) -> float:
    return float(np.array([0.2126, 0.7152, 0.0722]) @ linear(colour))


def linear(colour: str) -> np.ndarray:
    c = np.array([int(colour[i:i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)


def contrast(a: str, b: str) -> float:
    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


def variables() -> dict[str, tuple[str, str]]:
    css = files("drut.bench.render.page").joinpath("style.css").read_text()
    return {name: (light, dark) for name, light, dark in re.findall(r"--([\w-]+): light-dark\((#\w+), (#\w+)\)", css)}


@pytest.mark.parametrize("mode", [0, 1])
def test_words_and_lines_stand_out_from_what_is_behind_them(mode: int) -> None:
    """WCAG 2.2: 4.5 to 1 for words, 3 to 1 for what figures are drawn with."""
    known = variables()
    for name in ("ink", "soft", "link"):
        assert min(contrast(known[name][mode], known[behind][mode]) for behind in ("paper", "panel")) >= 4.5, name
    assert contrast(known["alert"][mode], known["alert-paper"][mode]) >= 4.5
    assert contrast(known["ink"][mode], known["alert-paper"][mode]) >= 4.5
    assert all(contrast(pair[mode], known["panel"][mode]) >= 3 for pair in COLOURS)


# Vienot, Brettel and Mollon (1999): what a dichromat sees, on linear RGB.
_SEES = {"all": np.eye(3),
         "no red": np.array([[0.11238, 0.88762, 0], [0.11238, 0.88762, 0], [0.00401, -0.00401, 1]]),
         "no green": np.array([[0.29275, 0.70725, 0], [0.29275, 0.70725, 0], [-0.02234, 0.02234, 1]])}
_LMS = np.array([[0.4122214708, 0.5363325363, 0.0514459929], [0.2119034982, 0.6806995451, 0.1073969566],
                 [0.0883024619, 0.2817188376, 0.6299787005]])
_LAB = np.array([[0.2104542553, 0.7936177850, -0.0040720468], [1.9779984951, -2.4285922050, 0.4505937099],
                 [0.0259040371, 0.7827717662, -0.8086757660]])


def seen(colour: str, eyes: str) -> np.ndarray:
    """In OKLab."""
    return _LAB @ np.cbrt(_LMS @ np.clip(_SEES[eyes] @ linear(colour), 0, 1))


@pytest.mark.parametrize("mode", [0, 1])
@pytest.mark.parametrize("eyes", list(_SEES))
def test_colours_differ_for_all_eyes_the_first_ones_most(mode: int, eyes: str) -> None:
    """0.02 is about the smallest visible difference side by side. Engines also differ by their marks."""
    for first, apart in ((4, 0.14), (6, 0.1), (8, 0.07)):
        colours = [seen(pair[mode], eyes) for pair in COLOURS[:first]]
        assert min(math.dist(a, b) for a, b in combinations(colours, 2)) > apart
