"""Rendered answers: the same lines on the screen however the stream is cut, all of the text, and no escape codes but
those of the renderer."""

from __future__ import annotations

import io
import re

import pyte
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from drut.cli.chat.live import LiveRegion
from drut.cli.chat.markdown import MarkdownSplitter, PieceKind
from drut.cli.chat.terminal import FRAME_S, RenderedAnswer

WIDTH, HEIGHT = 40, 8
ANSWER = """\
Title
=====
A **bold** paragraph that is long enough to wrap at the width, with `code`
and a second line.

1. one
2. two

   still two
10. ten
- bullet
  - nested

```python
def f(x):
    \"\"\"Doc.\"\"\"
    return x + 1  # a long comment that is wider than the terminal
```
| a | b |
|---|--:|
| 1 | 2 |

> quoted
lazy

~~~
no language
"""
LINES = st.sampled_from(["a", "b *c* d", "", "", "- x", "  - y", "2. z", "   more", "```", "```py", "~~~", "---", "===",
                         "# h", "> q", "|a|b|", "|-|-|", "    code", "word " * 20, "x" * 100, "<b>", "[l]: /u",
                         "&#27;"])


class Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


def show(chunks: list[tuple[str, float]], *, height: int = HEIGHT, thoughts: str = "",
         no_color: bool = False) -> tuple[list[str], str]:
    """The lines that a terminal keeps, scrolled ones too, and what was written to it. Each chunk comes after a pause in
    seconds."""
    now = [0.0]
    out = Tty()
    console = Console(file=out, force_terminal=True, color_system="standard", width=WIDTH, height=height,
                      no_color=no_color)
    with RenderedAnswer(console, reasoning=True, clock=lambda: now[0]) as view:
        if thoughts:
            view.reasoning(thoughts)
        for text, pause in chunks:
            now[0] += pause
            view.content(text)
            view.refresh()
    screen = pyte.HistoryScreen(WIDTH, height, history=10_000)
    pyte.Stream(screen).feed(out.getvalue().replace("\n", "\r\n"))
    scrolled = ["".join(row[x].data for x in range(WIDTH)) for row in screen.history.top]
    return [line.rstrip() for line in [*scrolled, *screen.display]], out.getvalue()


def lines(text: str) -> list[str]:
    """The lines of an answer that comes at once, without empty ones at the end."""
    shown, _ = show([(text, 0.0)])
    return "\n".join(shown).rstrip("\n").split("\n")


def test_an_answer_as_it_is_shown():
    assert "\n".join(lines(ANSWER)) == """\
Title

A bold paragraph that is long enough to
wrap at the width, with code
and a second line.

 1. one
 2. two
    still two
10. ten

 • bullet
    • nested

── python ──────────────────────────────
def f(x):
    \"\"\"Doc.\"\"\"
    return x + 1  # a long comment that
is wider than the terminal
────────────────────────────────────────

 a  b
 ────
 1  2

▌ quoted
▌ lazy

────────────────────────────────────────
no language
────────────────────────────────────────"""


@settings(deadline=None, max_examples=60)
@given(st.one_of(st.just(ANSWER), st.lists(LINES, max_size=25).map("\n".join)), st.data())
def test_the_final_screen_does_not_depend_on_the_chunks(text, data):
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=40)))
    ends = [*cuts, len(text)]
    pauses = data.draw(st.lists(st.sampled_from([0.0, FRAME_S]), min_size=len(ends), max_size=len(ends)))
    chunks = [text[a:b] for a, b in zip([0, *cuts], ends, strict=True)]
    whole, _ = show([(text, 0.0)])
    pieces, _ = show(list(zip(chunks, pauses, strict=True)))
    assert "\n".join(pieces).rstrip() == "\n".join(whole).rstrip()


@given(st.lists(LINES, max_size=25))
def test_the_pieces_have_all_the_text(made):
    splitter = MarkdownSplitter()
    pieces = [*splitter.push("\n".join(made)), *splitter.finish()]
    kept = "\n".join(p.text for p in pieces)
    code = ("```", "~~~")
    assert [w for line in made if line.strip()[:3] not in code for w in line.split()] == [
        w for line in kept.split("\n") if line.strip()[:3] not in code for w in line.split()]


def test_pieces_come_as_soon_as_they_are_final():
    splitter = MarkdownSplitter()
    assert splitter.push("One\ntwo\n\n") == []
    assert [p.text for p in splitter.push("- three\n")] == ["One\ntwo"]
    assert [(p.text, p.gap) for p in splitter.push("- four\n\n- five")] == [("- three", True)]
    assert [(p.text, p.gap) for p in splitter.push("\n```c\nint a;\nint")] == [
        ("- four", False), ("- five", True), ("", True), ("int a;", False)]
    assert [p.kind for p in splitter.push(" b;\n```\n")] == [PieceKind.CODE, PieceKind.CODE_END]
    assert splitter.finish() == []


def test_a_block_higher_than_the_screen_is_whole_in_the_end():
    table = "|a|b|\n|-|-|\n" + "".join(f"|{i}|x|\n" for i in range(30))
    shown, _ = show([(line, FRAME_S) for line in table.splitlines(keepends=True)])
    assert [line.split()[0] for line in shown if line.strip()[:1].isdigit()] == [str(i) for i in range(30)]


def test_a_growing_line_is_not_written_again():
    _, written = show([(word, FRAME_S) for word in ("one ", "two ", "three")])
    assert written == "one two three\n"


@pytest.mark.parametrize("text", [
    "a\x1b[2Jb\x07\x9b5n", "`a\x1b]0;t\x07b`", "```\x1b[1m\na\x1b[2Jb\n```", "&#27;[2J &#155; &#x9b;5n &#7; &#12;",
    "[a](http://x/%1b[2J)", "![p](x 't\x1b[2J')", "|a\x1b[2J|\n|-|\n|b|", "<http://x/\x1b[2J>", "# \x1b[2J"])
def test_no_control_character_reaches_the_terminal(text):
    _, written = show([(text, FRAME_S)], thoughts=text)
    rest = re.sub(r"\x1b\[[0-9;]*m|\x1b\[\d*A|\r\x1b\[J", "", written)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", rest)


@pytest.mark.parametrize(("text", "shown"), [
    ("a <b>c</b> <!-- d -->", "a <b>c</b> <!-- d -->"), ("[x]: http://y", "[x]: http://y"),
    ("![alt](http://p.png)", "alt (http://p.png)"), ("<http://y>", "http://y"), ("[t](/u)", "t (/u)"),
    ("a\nb", "a\nb"), ("<div>\nx", "<div>\nx")])
def test_text_that_markdown_hides_is_shown(text, shown):
    assert "\n".join(lines(text)) == shown


def test_reasoning_is_dimmed_above_the_answer():
    shown, written = show([("Yes.", FRAME_S)], thoughts="First\nand then")
    assert shown[:4] == ["First", "and then", "", "Yes."]
    assert "\x1b[2mand then\x1b[0m" in written


def test_without_colours_there_are_none():
    for no_color in (False, True):
        _, written = show([(ANSWER, FRAME_S)], no_color=no_color)
        assert bool(re.search(r"\x1b\[([\d;]*;)?[349][0-7][;m]", written)) is not no_color


def test_lines_that_a_narrower_terminal_wrapped_are_replaced():
    out = io.StringIO()
    region = LiveRegion(out)
    region.draw([], ["x" * 30, "y"], 40, 10)
    region.draw([], ["z"], 10, 10)
    assert out.getvalue().endswith("y\x1b[3A\r\x1b[Jz")
