"""Renders sections as one HTML file."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from hashlib import sha256
from importlib.resources import files

from drut import __version__
from drut.bench.render.page.forest import forest
from drut.bench.render.page.html import Html, el, shorten
from drut.bench.render.page.marks import COLOURS, Palette, key
from drut.bench.render.page.plot import plot
from drut.bench.render.section import Facts, Forest, Note, Part, Plot, ReportGroup, Section, Table, Tile, Tiles

_MANY = 4  # columns that fit a narrow screen
_NUMBER = re.compile(r"[-+<]?[\d.,]+(e[-+]?\d+)?( ?(%|s|ms|MB|GB))?( \[.*\]| \(.*%\)| \.\. .*)?|[\d., ]+|n/a|failed|")


def page(sections: Sequence[Section]) -> str:
    """Renders the whole file. Its content security policy forbids all requests and scripts, and all styles except its
    own."""
    style = _style()
    policy = (f"default-src 'none'; style-src 'sha256-{b64encode(sha256(style.encode()).digest()).decode()}'; "
              "img-src data:; base-uri 'none'; form-action 'none'")
    palette = Palette(sections)
    title = shorten(sections[0].title, 80) if len(sections) == 1 else f"{len(sections)} measurements"
    head = el("head", el("meta", charset="utf-8"), el("meta", http_equiv="Content-Security-Policy", content=policy),
              el("meta", name="viewport", content="width=device-width, initial-scale=1"),
              el("meta", name="color-scheme", content="light dark"), el("meta", name="referrer", content="no-referrer"),
              el("link", rel="icon", href="data:,"), el("title", f"{title} · drut bench"), el("style", Html(style)))
    body = el("body", el("a", "Skip to the figures", class_="skip", href="#main"),
              el("header", el("p", "drut bench", class_="brand"), _theme()),
              _contents(sections),
              el("main", *(_section(section, i, palette) for i, section in enumerate(sections)), id="main"),
              el("footer", el("p", f"Made by drut {__version__}. This file is complete: it fetches nothing and runs no "
                              "script.")))
    return "<!DOCTYPE html>\n" + el("html", head, body, lang="en") + "\n"


def _style() -> str:
    colours = "\n".join(f".c{i} {{ --colour: light-dark({light}, {dark}); }}"
                        for i, (light, dark) in enumerate(COLOURS))
    return files("drut.bench.render.page").joinpath("style.css").read_text(encoding="utf-8") + colours + "\n"


def _theme() -> Html:
    """Returns radio buttons that the style sheet evaluates; no script is needed."""
    choices = [el("label", el("input", type="radio", name="theme", id=f"theme-{name}", checked=name == "auto"),
                  el("span", name)) for name in ("auto", "light", "dark")]
    return el("fieldset", el("legend", "Colours"), *choices, class_="theme")


def _contents(sections: Sequence[Section]) -> Html | None:
    if len(sections) < 2:
        return None
    links = (el("li", el("a", shorten(s.title, 80), href=f"#s{i}")) for i, s in enumerate(sections))
    return el("nav", el("ul", *links), aria_label="Contents")


def _section(section: Section, number: int, palette: Palette) -> Html:
    heading = "h1" if number == 0 else "h2"
    return el("section", el("p", section.kind, class_="kind"), el(heading, section.title, id=f"h{number}"),
              *(_part(part, palette) for part in section.parts), id=f"s{number}", aria_labelledby=f"h{number}")


def _part(part: Part, palette: Palette) -> Html:
    if isinstance(part, Note):
        return _note(part)
    if isinstance(part, Facts):
        return el("dl", *(el("div", el("dt", name), el("dd", value)) for name, value in part.rows), class_="facts")
    if isinstance(part, Tiles):
        return el("ul", *map(_tile, part.tiles), class_="tiles")
    return _group(part, palette) if isinstance(part, ReportGroup) else _table(part)


def _note(note: Note) -> Html:
    """Folds the points of a warning: its first line states what is wrong."""
    listed = el("ul", *(el("li", point) for point in note.points)) if note.points else None
    if note.warning and listed is not None:
        return el("details", el("summary", note.text), listed, class_="note warning")
    return el("div", el("p", note.text), listed, class_="note warning" if note.warning else "note")


def _tile(t: Tile) -> Html:
    sign = {"pass": "✓", "fail": "✗", "": ""}[t.mark]
    held = el("span", el("span", sign, class_="sign", aria_label=t.mark, role="img"), " " + t.limit,
              class_=f"limit {t.mark}") if t.mark else None
    unit = el("small", " " + t.unit) if t.unit else None
    return el("li", el("span", t.title, class_="tile"), el("strong", t.value, unit), held,
              *(el("span", line, class_="about") for line in t.about))


def _group(group: ReportGroup, palette: Palette) -> Html:
    figures, numbers = [], _numbers(group)
    for p in group.plots:
        drawn = forest(p, palette) if isinstance(p, Forest) else plot(p, palette, numbers)
        twin = el("details", el("summary", "Table"), _scroll(p.twin))
        figures.append(el("figure", el("figcaption", p.caption), drawn, twin))
    return el("section", el("h3", group.title), el("p", group.text, class_="text") if group.text else None,
              _legend(group, palette, numbers),
              el("div", *figures, class_="panels" if len(figures) % 3 == 0 else "panels even"), class_="group")


def _numbers(group: ReportGroup) -> dict[str, int]:
    """Numbers the marks of a group's plots, the same in all of them."""
    names = dict.fromkeys(m.name for p in group.plots if isinstance(p, Plot) for m in p.marks
                          if not m.limit)
    return {name: i for i, name in enumerate(names, 1)}


def _legend(group: ReportGroup, palette: Palette, numbers: Mapping[str, int]) -> Html | None:
    """Returns the legend of the lines of plots that have several, and of the marks. Rows have their names in the
    plot."""
    entries: dict[object, Html] = {}
    for p in group.plots:
        lines = [line for line in p.lines if not line.faint] if isinstance(p, Plot) else []
        for line in lines if len(lines) > 1 else ():
            entries.setdefault((line.name, line.who, line.dash), el("li", key(
                palette.shape(line.who), palette.css_class(line.who), dash=line.dash), el("span", line.name)))
    places = [el("li", el("span", str(number), class_="place"), el("span", name)) for name, number in numbers.items()]
    return el("ul", *entries.values(), *places, class_="legend") if entries or places else None


def _table(t: Table) -> Html:
    note = el("p", t.note, class_="text") if t.note else None
    if t.folded:
        return el("details", el("summary", t.caption), note, _scroll(t), class_="fold")
    return el("section", el("h3", t.caption), note, _scroll(t), class_="group")


def _scroll(t: Table) -> Html:
    """Makes a wide table scrollable, also by keyboard; the page itself never scrolls sideways. On a narrow screen each
    row of a table of many columns is a list of its cells with their names."""
    numeric = [all(_NUMBER.fullmatch(row[i]) for row in t.rows) and i > 0 for i in range(len(t.head))]
    many = len(t.head) > _MANY
    classes = ["number" if is_number else None for is_number in numeric]
    def classes_of(value: str, fixed: str | None) -> str | None:
        return fixed or ("short" if len(value) <= 22 else "long" if len(value) > 60 else "some")

    head = el("tr", *(el("th", name, scope="col", class_=c) for name, c in zip(t.head, classes, strict=True)))
    rows = [el("tr", el("th", row[0], scope="row", class_=classes_of(row[0], None)),
                     *(el("td", value, class_=classes_of(value, c), data_name=name if many else None)
                       for value, c, name in zip(row[1:], classes[1:], t.head[1:], strict=True))) for row in t.rows]
    table = el("table", el("caption", t.caption), el("thead", head), el("tbody", *rows),
               class_="many" if many else None)
    return el("div", table, class_="scroll", tabindex=0, role="region", aria_label=t.caption)
