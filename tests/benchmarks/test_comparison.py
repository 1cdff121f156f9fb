"""The page of comparisons."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import msgspec
import pytest
from benchmarks.peers.serving import __main__ as comparison
from benchmarks.peers.serving.document import TITLES, chart, document, slim

from drut.bench.compare.schema import SCHEMA, Comparison
from drut.bench.files import read_file
from tests.bench.report import samples


@pytest.mark.parametrize(("page", "shown"), [
    ("/somewhere/else/build/peers/x/bin/python /a/b.c/src/drut/w.py", "build/peers/x/bin/python src/drut/w.py"),
    (f"{comparison.ROOT}/benchmarks/x", "benchmarks/x"), ("a=/elsewhere/build/compare/models/m.gguf",
                                                          "a=build/compare/models/m.gguf"),
    ("http://127.0.0.1:8000/v1/src/drut/", "http://127.0.0.1:8000/v1/src/drut/"), ("its build/peers/ here",) * 2,
    (f"X={comparison.home()}/bench", "X=$DRUT_HOME/bench"),
])
def test_no_path_of_a_machine_is_shown(page: str, shown: str) -> None:
    assert comparison._without_paths(page) == shown


def test_what_is_stored_has_only_what_the_page_needs() -> None:
    whole = samples.comparison()
    kept = slim(whole, "abc1234")
    assert kept.environment["commit"] == "abc1234"
    assert slim(kept, "other").environment["commit"] == "abc1234"
    assert not any(block.samples or block.timeline for block in kept.blocks)
    assert "ttft_ms_p99" not in kept.blocks[0].figures  # 40 requests have no p99
    assert kept.blocks[0].figures["ttft_ms_p50"] == pytest.approx(whole.blocks[0].figures["ttft_ms_p50"], rel=1e-3)
    assert len(msgspec.json.encode(kept)) < len(msgspec.json.encode(whole)) / 4


def test_the_page_begins_with_the_chart_and_ends_with_what_was_excluded() -> None:
    page = document({"smollm2": slim(samples.comparison(), "abc1234")})
    assert page.index("](comparison.svg)") < page.index("commit abc1234") < page.index("## SmolLM2-135M\n")
    row = next(line for line in page.splitlines() if line.startswith("| chat, 1 user | output"))
    drut, other = [text.strip() for text in row.split("|")][3:5]
    assert re.fullmatch(r"\d+\.\d", drut)
    assert re.fullmatch(r"\d+\.\d: \*\*0\.\d+\*\* \(0\.\d+–0\.\d+\)", other)
    appendix = page[page.index("## Appendix"):]
    for words in ("excluded: 1 of 6 turns of llama.cpp at chat, 4 users", "mlx: gate", "sglang: failed, ended with 1",
                  "tensorrt-llm: cannot run, needs an NVIDIA GPU", "torch_native is not its fast path"):
        assert words in appendix, words


def test_the_chart_is_a_picture_of_its_own() -> None:
    svg = chart(samples.comparison())
    root = ElementTree.fromstring(svg)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    tags = [element.tag.rpartition("}")[2] for element in root.iter()]
    assert tags.count("rect") == 1 + 16  # the background, and a bar for each engine at each kind of work
    assert not {"script", "image", "foreignObject", "a"} & set(tags)
    widths = [float(e.get("width", "0")) for e in root.iter() if e.get("class") == "fill"][:4]
    values = [float(t.text or "") for t in root.iter() if t.get("class") == "value"][:4]
    assert [w / widths[0] for w in widths] == pytest.approx([v / values[0] for v in values], rel=0.01)


def test_the_committed_page_and_chart_are_those_of_the_stored_results() -> None:
    found = {name: read_file(comparison.stored(name), Comparison, SCHEMA, "a comparison") for name in TITLES}
    assert comparison.PAGE.read_text() == document(found)
    assert comparison.PAGE.with_suffix(".svg").read_text() == chart(found["smollm2"])
