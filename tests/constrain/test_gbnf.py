"""Grammars in GBNF and Lark: groups and escapes, places of faults in the client's text, rules that never end."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections import Counter
from pathlib import Path

import pytest

from drut.constrain import Constraint
from drut.errors import RequestError
from tests.constrain.walking import Walker, at_random

SQL = (Path(__file__).parents[2] / "docs" / "grammars" / "sql.gbnf").read_text()
JSON = r'''
root   ::= object
value  ::= object | array | string | ("true" | "null") ws   # no numbers
object ::= "{" ws ( string ":" ws value ("," ws string ":" ws value)* )? "}" ws
array  ::= "[" ws ( value ("," ws value)* )? "]" ws
string ::= "\"" ( [^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) )* "\"" ws
ws     ::= | " " | "\n" [ \t]{0,20}
'''
TAKEN = [
    ('root ::= ("a"*)+', ["", "a", "aaa"], ["b"]), ("root ::= ([a-z]*)*", ["", "ab"], ["A"]),
    ('root ::= ("a"+)?', ["", "aa"], ["b"]), ('root ::= ("a"{2}){2}', ["aaaa"], ["aa", "aaa", "aaaaa"]),
    ('root ::= "a"{0} "b"', ["b"], ["ab"]), (r'root ::= "\x41\u00e9"', ["Aé"], ["A"]), (r"root ::= [\-]", ["-"], ["a"]),
    (r"root ::= [^\]a-c] [-x] [x-]", ["d-x", "zx-"], ["a-x", "]-x", "d-y"]),
    ("root ::= .", ["\n", "é"], ["", "ab"]),
    ('root ::= "a"\n  | "b" # or\n  | (\n"c"\n|\n"d"\n)\n', ["a", "b", "c", "d"], ["ab"]),
    ('root ::= "a" |', ["", "a"], ["b"]), ('root ::= "x"{2,3} "y"{,2}', ["xx", "xxxyy"], ["x", "xxyyy"]),
    ('root ::= root "a" | "b"', ["b", "baa"], ["a"]),
    ('root ::= fooBar foo-bar\nfooBar ::= "1"\nfoo-bar ::= "2"', ["12"], []),
    ('root ::= e\ne ::= t ("+" t)*\nt ::= [0-9]+ | "(" e ")"', ["1+(2+34)", "12"], ["1+", "()"]),
    (JSON, ['{"a": [true, {"b": "x\\n"}]}', "{}"], ['{"a"}', "[]", '{"a":1}']),
]  # fmt: skip


@pytest.mark.parametrize(("grammar", "fit", "others"), TAKEN, ids=[grammar[:40] for grammar, _, _ in TAKEN])
def test_what_gbnf_means(walker: Walker, grammar: str, fit: list[str], others: list[str]) -> None:
    constraint = Constraint.lark(grammar)
    assert [text for text in fit if not walker.accepts(constraint, text)] == []
    assert [text for text in others if walker.accepts(constraint, text)] == []


FAULTS = [
    ('root ::= "a"\nroot ::= "b"', "the rule 'root' is defined already, line 1, column 1 (line 2, column 1)"),
    ('root ::= "a"\n\n  x ::= "b" y', "there is no rule 'y' (line 3, column 13)"),
    ('x ::= "a"', "there is no rule 'root'"),
    ('root ::= "a', "this is not closed (line 1, column 10)"), ("root ::=\n  [z-a]", "out of order (line 2, column 4)"),
    ('root ::= ("a"', "this bracket is not closed (line 1, column 10)"),
    ('root ::= "a" )', "')' is not expected (line 1, col"),
    (r'root ::= "\q"', r"the escape \q is not known (line 1, column 11)"),
    ("root ::= []", "a set of no characters (line 1"),
    ('root ::= "a"{2,1}', "numbers of repetitions must be in order"),
    ('root ::= "a"{x}', "a number of repetitions is expected"),
    ("root ::= <think>", "tokens in a grammar are not supported (line 1, column 10)"),
    ("root := x\nx ::= y", "'::=' must"),
    ("root ::= root", "the rule 'root' never ends, "),
    ('root ::= "a" x | "b"\nx ::= "c" x', "the rule 'x' never ends, "),
    ('root ::= x*\nx ::= "c" x', "does not (line 2, column 1)"),
    ("root ::= x | y\nx ::= y\ny ::= (x | y){2}", "never ends"),
    ("start: start", "the rule 'start' never ends, "), ('start: a | "x"\n\na: "b" a', "does not (line 3)"),
    ("start: (a)?\na: b\nb: a | b", "the rule 'a' never ends"),
    ('start: "a"\nstart: "b"', "is defined already, line 1 (line 2)"),
    ('start: "x" %json {\n"type": "object"} a\na[lazy]: /a/ a', "the rule 'start' never ends"),
]  # fmt: skip


@pytest.mark.parametrize(("grammar", "why"), FAULTS, ids=[grammar[:30] for grammar, _ in FAULTS])
def test_a_fault_has_its_place_in_the_clients_text(grammar: str, why: str) -> None:
    with pytest.raises(RequestError) as error:
        Constraint.lark(grammar)
    assert why in str(error.value)


def test_a_fault_behind_a_schema_of_many_lines_has_its_line(walker: Walker) -> None:
    with pytest.raises(RequestError, match=r"\(line 5\)") as error:
        walker.grammars.check(Constraint.lark('start: %json {\n"type":\n"object"\n}\n?? x'))
    assert str(error.value).startswith("lark:")


def test_what_the_library_finds_in_gbnf_has_the_clients_line(walker: Walker) -> None:
    rules = [f"r{i} ::= r{i + 1} r{i + 1} | r{i + 1}" for i in range(1000)]
    with pytest.raises(RequestError, match=r"too big.*\(line (2|3)\d\d\)"):
        walker.grammars.check(Constraint.lark("\n".join(["root ::= r0", *rules, 'r1000 ::= "a"'])))


@pytest.mark.parametrize("grammar", [
    'start: start "a" | "b"', 'start: a{0,2} "b"\na: "y"', "start: (a | b)? \na: /x/i\nb: <|end|> a",
    'start: A -> x\nA: "b" & /b/',
    'start: "b" t\nt: %json {"const": 1}\n%import common.INT', 'start: ("a" | "b") ~ 1..2', '?start: !a\n!a.2: "b"i\n'])
def test_lark_that_ends_is_let_through(grammar: str) -> None:
    Constraint.lark(grammar)


@pytest.mark.parametrize("grammar", [
    "\n".join(["root ::= r0", *(f"r{i} ::= r{i + 1} r{i + 1} | r{i + 1}" for i in range(1000)), 'r1000 ::= "a"']),
    "root ::= " + '("a" | "b") ' * 5000, "root ::= " + "(x | y) " * 3000 + '\nx ::= "(" root ")" | "a"\ny ::= "b"',
    'root ::= "x" root | "y"\nroot2 ::= ' + '"a" ' * 9000, 'root ::= root "x" ' + '"a" ' * 9000 + '| "b"',
    'start: "a"\n' + 'a: %lark {start: "b"}\n' * 3000, 'root ::= "a"{1000000}',
    "root ::= " + "(" * 60 + '"a"{100}' + "){100}" * 60, 'start: %lark {' + r'\"' * 120_000 + "}",
    "start: %lark {" + r"\/" * 120_000 + "}"],
    ids=["doubling", "long", "wide", "unused", "run", "blocks", "times", "deep", "quotes", "slashes"])
def test_hostile_grammars_end_soon(walker: Walker, grammar: str) -> None:
    started = time.process_time()
    with contextlib.suppress(RequestError):
        walker.guide(Constraint.lark(grammar))
    assert time.process_time() - started < 10


def test_sql_of_the_example_is_parsed_by_sqlite(walker: Walker) -> None:
    base = sqlite3.connect(":memory:")
    base.execute("CREATE TABLE users (id, name, age, city)")
    constraint, found = Constraint.lark(SQL), Counter[str]()
    for seed in range(250):
        walk = walker.walk(constraint, at_random(seed, walker.eos), most=600)
        if walk.over:  # and not given up in the middle
            base.execute(f"EXPLAIN {walk.text}")  # the parser's OK
            found.update(word for word in ("WHERE", "GROUP", " IN (", "NOT", "COUNT") if word in walk.text)
    assert min(found[word] for word in ("WHERE", "GROUP", " IN (", "NOT", "COUNT")) > 0
    base.close()


def test_a_grammar_within_another_is_checked_too() -> None:
    Constraint.lark('start: "x" a | b\na: %lark {\nstart: /[{]/ c\nc: "{"\n}\nb: %lark {\nstart: "b"\n}')
    with pytest.raises(RequestError, match=r"the rule 'start' never ends.*\(line 3\)"):
        Constraint.lark('start: "x" a\na: %lark {\n  start: "}" start\n}')
