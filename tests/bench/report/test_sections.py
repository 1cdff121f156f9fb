"""What a report says of each kind of file, as Markdown."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from drut.bench.report.assemble import sections, summary
from drut.bench.report.documents import Source
from drut.bench.report.markdown import report
from tests.bench.report import samples
from tests.bench.report.hostile import hostile


def test_a_comparison_says_who_is_not_in_it_and_why() -> None:
    text = summary(samples.comparison())
    assert text.startswith("# tiny-135m: engines side by side\n")
    for words in ("- sglang: failed, ended with 1 in round 2: out of memory",
                  "- tensorrt-llm: cannot run, needs an NVIDIA GPU", "- mlx: not through the gate, agreement 0.41",
                  "**1 of 96 blocks are void and in no figure:**", "the client sent late: p99 is 9.1 ms",
                  "1-2: drut, openvino; 3: llama.cpp; 4: vllm", "not verified", "98.0% of 640",
                  "drut serve --port 8000",
                  "USD per million output tokens", "Example CPU", "openvino reads int8 weights"):
        assert words in text, words
    cost = text[text.index("## Cost"):]
    assert cost.index("| drut") < cost.index("0.409") < cost.index("| vllm")  # 0.12 an hour at 81.5 tokens/s


def test_an_unfinished_comparison_says_so() -> None:
    assert "Not finished" in summary(msgspec.structs.replace(samples.comparison(rounds=1), finished=False))
    assert "Not finished" not in summary(samples.comparison(rounds=1))


def test_a_search_says_what_it_found_and_what_it_did_not() -> None:
    found = samples.a_search()
    text = summary(found)
    assert re.search(r"\| Highest rate that holds the limits, sessions/s +\| +6.48 \|", text)
    assert "1 of 15 runs are void" in text
    lost = msgspec.structs.replace(found, knee=msgspec.structs.replace(found.knee, value=None, low=None, high=None,
                                                                       why="the rates were too few"))
    assert "not found" in summary(lost)
    assert "the rates were too few" in summary(lost)


def test_an_ablation_says_where_theory_is_wrong() -> None:
    rows = [line for line in summary(samples.ablation()).split("\n") if "as expected" in line]
    assert len(rows) == 8
    assert sum("not as expected" in row for row in rows) == 2
    assert all("Chunked prefill" in row for row in rows if "not as expected" in row)


def test_several_runs_are_put_beside_each_other() -> None:
    runs = [Source("first", Path(), samples.result(seconds=12.0)), Source("second", Path(), samples.a_search()),
            Source("third", Path(), samples.result(seconds=12.0, slow=2.0))]
    found = sections(runs)
    assert [s.kind for s in found] == ["results", "result", "search", "result"]
    assert "not interleaved" in report(found)
    assert [s.kind for s in sections(runs[:2])] == ["result", "search"]


def test_markdown_of_others_words_is_no_markup() -> None:
    bad = "![x](http://127.0.0.1/y) <script>"
    c = msgspec.structs.replace(hostile(samples.comparison(rounds=1)), notes=[bad], model=bad)
    text = summary(c)
    assert "<script" not in text
    assert "](" not in text
    assert all(char.isprintable() or char == "\n" for char in text)
