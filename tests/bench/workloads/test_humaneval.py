"""What an answer to HumanEval becomes: prompt, code and tests, whatever the model wrote around the code."""

from __future__ import annotations

import ast

import pytest

from drut.bench.workloads.humaneval import Problem, problems, program, question

PROMPT = 'import math\n\n\ndef area(r):\n    """Of a circle."""\n'
PROBLEM = Problem(PROMPT, "area", "def check(candidate):\n    assert candidate(0) == 0\n")
BODY = "    return math.pi * r * r\n"
WHOLE = "def area(r):\n" + BODY


def code_of(answer: str) -> str:
    """What stands between the prompt and the tests."""
    text = program(PROBLEM, answer)
    assert text.startswith(PROMPT)
    assert text.endswith(PROBLEM.test + "\ncheck(area)\n")
    return text.removeprefix(PROMPT).removesuffix(PROBLEM.test + "\ncheck(area)\n").strip("\n")


@pytest.mark.parametrize("answer", [
    WHOLE, f"```python\n{WHOLE}```", f"Sure, here it is:\n\n```py\n{WHOLE}```\nIt works:\n```\nprint(1)\n```",
    f"```\n{WHOLE}", f"  ```python\n{WHOLE}  ```"])
def test_a_whole_function(answer: str) -> None:
    assert code_of(answer) == WHOLE.strip("\n")


@pytest.mark.parametrize("after", ["def other():\n    pass\n", "class A: ...\n", "print(area(1))\n", "# Tests\n",
                                   "if __name__ == '__main__':\n    area(1)\n", "assert area(0) == 0\n", "@cache\n",
                                   "```\nSo it is.", ""])
def test_a_body_ends_where_the_next_thing_begins(after: str) -> None:
    assert code_of(BODY + "\n" + after) == BODY.strip("\n")


def test_names_that_begin_like_keywords_are_of_the_body() -> None:
    body = "    x = '''\ndefault\nprinted\n'''\n    return x"
    assert code_of(body) == body


def test_helpers_before_the_function_stay() -> None:
    assert code_of(f"def square(x):\n    return x * x\n\n{WHOLE}print(area(1))") == (
        f"def square(x):\n    return x * x\n\n{WHOLE}print(area(1))")


def test_every_problem_is_whole() -> None:
    found = problems()
    assert len(found) == 164
    for problem in found:
        names = [node.name for node in ast.parse(problem.prompt).body if isinstance(node, ast.FunctionDef)]
        assert names[-1] == problem.entry_point
        tests = ast.parse(program(problem, "    return None"))
        assert "check" in [node.name for node in tests.body if isinstance(node, ast.FunctionDef)]
        assert problem.prompt in question(problem)
