"""What a request says about thinking, in the terms of the model at hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from drut.constrain import Thought
from drut.parse import choose
from drut.parse.choose import Marks
from drut.server.protocol.chat import ChatRequest
from drut.server.protocol.errors import ApiError, unsupported
from drut.server.texts import Texts

BUDGETS = ("thinking_budget", "thinking_token_budget", "max_thinking_tokens")
SWITCHES = ("enable_thinking", "thinking")  # variables by which templates switch thoughts on and off
EFFORTS = ("reasoning_effort", "thinking_effort")  # and by which they say how much to think


def effort_variables(effort: str | None, texts: Texts, tools: object) -> dict[str, object] | None:
    """`reasoning_effort` as variables of the template; None where it has no use for it.

    `tools`: those that the request offers. A template may switch thoughts on and off, and have levels too.
    """
    if effort is None or (effort == "none" and texts.marks is None):  # a model that never thinks
        return {}
    known = texts.variables(tools)
    made: dict[str, object] = {name: effort != "none" for name in SWITCHES if name in known}
    if effort != "none" or (not made and texts.spells("none")):
        made |= {name: effort for name in EFFORTS if name in known}
    return made or None


def budget_of(request: ChatRequest) -> int | None:
    """The one that is given; -1 is none. ApiError for two that differ."""
    given = {name: value for name in BUDGETS if (value := getattr(request, name)) is not None and value >= 0}
    if len(set(given.values())) > 1:
        raise ApiError(400, f"{' and '.join(given)} say the same, and differ", param=next(iter(given)))
    return next(iter(given.values()), None)


def thought_of(request: ChatRequest, texts: Texts, prompt: str,
               messages: Sequence[Mapping[str, Any]]) -> Thought | None:
    """How the answer to `prompt` may begin; None where the model does not think.

    ApiError for a budget where the model does not think at all.
    """
    budget, marks = budget_of(request), texts.marks
    if marks is None:
        if budget is not None:
            name = next(name for name in BUDGETS if getattr(request, name) == budget)
            raise unsupported(name, "this model does not think (--reasoning-parser names what it thinks between)")
        return None
    if request.continue_final_message:
        begun = True if _open_ended(marks, messages[-1]["content"]) else None
    else:
        begun = choose.begun(marks, prompt)
    closing = f"\n{marks.closes}\n\n" if budget is not None else ""
    return Thought(marks.opens, marks.closes, begun, budget, closing)


def _open_ended(marks: Marks, content: str) -> bool:
    """Whether an answer that is to be continued ends in a thought."""
    return content.rfind(marks.opens) > content.rfind(marks.closes)
