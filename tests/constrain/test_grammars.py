"""Compiling: once for all who ask, within bounds of memory and time, and by itself."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from llguidance import LLMatcher

from drut.constrain import Constraint
from drut.constrain.grammar_compiler import GrammarCompiler
from drut.constrain.kept import BASE_BYTES
from drut.errors import RequestError
from tests.constrain.walking import Walker


@pytest.fixture
def grammars(walker: Walker) -> Iterator[GrammarCompiler]:
    made = Walker(walker.tokenizer, walker.vocab, cache_bytes=3 * BASE_BYTES + 3000).grammars
    yield made
    made.close()


def test_it_is_compiled_once_for_all(grammars: GrammarCompiler) -> None:
    constraint = Constraint.regex("[a-z]+")
    threads = [threading.Thread(target=grammars.check, args=(constraint,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    grammars.check(Constraint.regex("[a-z]+"))
    assert grammars.compiled == 1


def test_what_is_kept_has_a_bound_and_the_oldest_goes(grammars: GrammarCompiler) -> None:
    def check(*letters: str) -> None:
        for letter in letters:
            grammars.check(Constraint.regex(letter))

    check("a", "b", "c")
    assert grammars.compiled == 3
    check("a", "b", "c", "a")
    assert grammars.compiled == 3
    check("d")  # in the place of b
    assert grammars.bytes <= 3 * BASE_BYTES + 3000
    check("c", "a", "d")
    assert grammars.compiled == 4
    check("b")
    assert grammars.compiled == 5


@pytest.mark.slow
def test_what_is_forced_at_once_is_found_out_here_and_not_between_two_steps(walker: Walker) -> None:
    with pytest.raises(RequestError, match="regex: lexer error: too many"):
        walker.grammars.check(Constraint.regex("((a{99}){99}){99}"))


def test_a_schema_inside_a_grammar_is_refused_without_the_grammar(walker: Walker) -> None:
    """Which may be one that the client never saw."""
    never = {"type": "object", "properties": {"a": {"minimum": 2, "maximum": 1, "type": "number"}}, "required": ["a"]}
    with pytest.raises(RequestError) as error:
        walker.grammars.check(Constraint.structural_tags([("<f>", never, "</f>")], ["<f>"]))
    assert str(error.value) == "lark: no value fits: required property 'a' is unsatisfiable, at #"


def test_one_larger_than_the_room_serves_those_who_wait(grammars: GrammarCompiler) -> None:
    grammars.check(Constraint.choice([f"choice number {i}" for i in range(2000)]))
    grammars.check(Constraint.regex("a"))
    assert grammars.bytes <= 3 * BASE_BYTES + 3000


def test_a_bad_one_is_refused_every_time(grammars: GrammarCompiler) -> None:
    for _ in range(2):
        with pytest.raises(RequestError, match="unclosed character class"):
            grammars.check(Constraint.regex("(["))
    assert grammars.compiled == 1


def test_one_that_takes_too_long_is_refused(walker: Walker, monkeypatch: pytest.MonkeyPatch) -> None:
    grammars = Walker(walker.tokenizer, walker.vocab, seconds=0.2).grammars
    go_on = threading.Event()
    real = grammars.build

    def build(constraint: Constraint) -> LLMatcher:
        go_on.wait(30)
        return real(constraint)

    monkeypatch.setattr(grammars, "build", build)
    guide = grammars.guide(Constraint.regex("a"))
    assert not guide.ready
    guide.open()
    assert guide.ready
    assert "takes longer than 0.2 s" in str(guide.failure)
    go_on.set()
    grammars.close()


LIMITS = """
import json, sys
from drut.constrain import Constraint
from drut.errors import RequestError
from drut.model.model import open_model
from tests.constrain.walking import Walker
from tests.engine.models import write_bytes_model

def chain(link):
    defs = {str(i): link({"$ref": f"#/$defs/{i + 1}"}) for i in range(1990)}
    return Constraint.json_schema({"$defs": defs | {"1990": {"type": "null"}}, "$ref": "#/$defs/0"})

def number(**bounds):
    return Constraint.json_schema({"type": "integer", **bounds})

rules = "\\n".join(f"a{i}: a{i + 1}" for i in range(3990))
files = open_model(write_bytes_model(__import__("pathlib").Path(sys.argv[1])))
walker = Walker(files.tokenizer(), files.spec.vocab)
for constraint in (chain(lambda ref: {"properties": {"x": ref}}), chain(lambda ref: {"allOf": [ref]}),
                   chain(lambda ref: {"anyOf": [ref, {"type": "string"}]}), chain(lambda ref: {"items": ref}),
                   number(minimum=-(2**63), maximum=10_000 - 2**63), number(minimum=-(2**63), maximum=2**63 - 1),
                   Constraint.lark(f"start: a0\\n{rules}\\na3990: \\"x\\"")):
    try:
        walker.allowed(walker.guide(constraint))
        print("taken")
    except RequestError as error:
        print("refused", error)
"""


@pytest.mark.slow
def test_what_is_let_through_does_not_end_the_process(tmp_path: Path) -> None:
    """As a stack that overflows would: so another process is asked."""
    ended = subprocess.run([sys.executable, "-c", LIMITS, tmp_path], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("taken") >= 6, ended.stdout


@pytest.mark.parametrize("constraint", [
    Constraint.regex("((a{0,1000}){0,1000}){0,1000}"), Constraint.regex("(x+x+)+y"), Constraint.regex("[ab]*a[ab]{40}"),
    Constraint.regex("|".join(f"w{i}" for i in range(4000))), Constraint.lark("start: start start | "),
    Constraint.lark('start: ("a"{0,1000}){0,1000}\n'), Constraint.json_schema({"minItems": 10**9, "type": "array"}),
    Constraint.json_schema({"type": "string", "pattern": "^(a|b|ab)*$", "maxLength": 100_000}),
    Constraint.json_schema({"type": "integer", "multipleOf": 997}),
    Constraint.json_schema({"properties": {f"p{i}": {"type": "string"} for i in range(512)}}),
], ids=lambda c: c.source[:30])
def test_bombs_end_soon(walker: Walker, constraint: Constraint) -> None:
    """Taken or refused: within the library's limits, and so in a fraction of a second of work."""
    started = time.process_time()
    try:
        guide = walker.guide(constraint)
        for _ in range(20):
            if guide.over or guide.failure is not None:
                break
            guide.advance(walker.allowed(guide)[0])
    except RequestError:
        pass
    assert time.process_time() - started < 5


def test_the_library_is_loaded_by_the_first_constraint() -> None:
    """It takes a moment, and most starts need none of it."""
    program = ("import sys\nimport drut.engine.service.process, drut.engine.llm, drut.server.life.serve\n"
               "assert 'llguidance' not in sys.modules")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.serial
def test_the_interpreter_is_free_while_a_long_forced_text_is_found_out(walker: Walker) -> None:
    """Of what one thread takes for it, another has most."""
    grammars, times, over = walker.grammars, [time.perf_counter()], threading.Event()

    def tick() -> None:
        while not over.wait(0.001):
            times.append(time.perf_counter())

    ticker = threading.Thread(target=tick)
    ticker.start()
    started = time.perf_counter()
    grammars.build(Constraint.choice(["ab" * 120_000]))
    took = time.perf_counter() - started
    over.set()
    ticker.join()
    times.append(time.perf_counter())
    longest = max(after - before for before, after in pairwise(times))
    assert longest < 0.6 * took, (longest, took)
