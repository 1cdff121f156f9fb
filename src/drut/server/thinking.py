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


def effort_variables(effort: str | None, texts: Texts) -> dict[str, object]:
    """`reasoning_effort` as variables of the template. ApiError where it looks at nothing of the kind."""
    if effort is None:
        return {}
    known = texts.variables(())
    if "reasoning_effort" in known and effort != "none":
        return {"reasoning_effort": effort}
    for name in SWITCHES:
        if name in known:
            return {name: effort != "none"}
    if effort == "none" and texts.marks is None:
        return {}  # it never thinks
    raise unsupported("reasoning_effort", "this model's template does not look at it")


def budget_of(request: ChatRequest) -> int | None:
    """The one that is given. ApiError for two that differ."""
    given = {name: value for name in BUDGETS if (value := getattr(request, name)) is not None}
    if len(set(given.values())) > 1:
        raise ApiError(400, f"{' and '.join(given)} say the same, and differ", param=next(iter(given)))
    return next(iter(given.values()), None)


def thought_of(request: ChatRequest, texts: Texts, prompt: str,
               messages: Sequence[Mapping[str, Any]]) -> Thought | None:
    """How the answer to `prompt` may begin; None where the model does not think, or has done so already.

    ApiError for a budget where the model does not think at all.
    """
    budget, marks = budget_of(request), texts.marks
    if marks is None:
        if budget is not None:
            name = next(name for name in BUDGETS if getattr(request, name) is not None)
            raise unsupported(name, "this model does not think (--reasoning-parser names what it thinks between)")
        return None
    if request.continue_final_message:
        begun = True if _open_ended(marks, messages[-1]["content"]) else None
    else:
        begun = choose.begun(marks, prompt)
    if begun is None:
        return None
    closing = f"\n{marks.closes}\n\n" if budget is not None else ""
    return Thought(marks.opens, marks.closes, begun, budget, closing)


def _open_ended(marks: Marks, content: str) -> bool:
    """Whether an answer that is to be continued ends in a thought."""
    return content.rfind(marks.opens) > content.rfind(marks.closes)
