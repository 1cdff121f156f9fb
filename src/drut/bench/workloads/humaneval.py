"""How HumanEval is asked, and how an answer becomes a program that ends well only where the answer is right.

Nothing here runs one: drut.quality.sandbox does.
"""

from __future__ import annotations

import re

import msgspec

from drut.bench.workloads.packed import read_jsonl

_BLOCK = re.compile(r"^[ \t]*```[^\n]*\n(.*?)(?:^[ \t]*```|\Z)", re.DOTALL | re.MULTILINE)
_INDENTED = re.compile(r"\n*(?: {4}|\t)\s*[^\s`]")
# A completion goes on with what the next function would be.
_NEXT = re.compile(r"^(?:def|class|async def|print|if|assert|#|@|```)(?=\W|$)|^(?:#|@|```)", re.MULTILINE)


class Problem(msgspec.Struct, frozen=True):
    """`prompt` ends with the docstring of the function `entry_point`; `test` defines `check(candidate)`."""

    prompt: str
    entry_point: str
    test: str


def problems() -> list[Problem]:
    """All 164, in their order."""
    return msgspec.convert(read_jsonl("humaneval"), list[Problem])


def question(problem: Problem) -> str:
    """As it is put to a model that chats; one that does not goes on with the prompt itself."""
    return f"Complete this Python function.\n\n```python\n{problem.prompt}```"


def program(problem: Problem, answer: str) -> str:
    """Prompt, answer and tests, in this order: an assertion fails where the answer is wrong.

    Of an answer its first code block counts; all of it where there is none or it begins with indented code. Where that
    defines the function, it stands after the prompt, whose imports and helpers it may use. Else it is the function's
    body, and ends at the next statement of the outermost level that a model goes on with: def, class, print and such.
    """
    block = None if _INDENTED.match(answer) else _BLOCK.search(answer)
    code = block[1] if block else answer
    if not re.search(rf"^(?:async )?def {re.escape(problem.entry_point)}\b", code, re.MULTILINE):
        code = _body(code)
    return f"{problem.prompt}\n{code}\n{problem.test}\ncheck({problem.entry_point})\n"


def _body(code: str) -> str:
    end = _NEXT.search(code)
    return code[: end.start()] if end else code
