"""Reasoning fields of a request, translated for the loaded model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from drut.constrain import ReasoningSpec
from drut.parse import choose
from drut.parse.choose import Marks
from drut.server.openai.prompts import PromptProcessor
from drut.server.openai.protocol.chat import ChatRequest
from drut.server.openai.protocol.errors import ApiError, unsupported

BUDGETS = ("thinking_budget", "thinking_token_budget", "max_thinking_tokens")
SWITCHES = ("enable_thinking", "thinking")  # template variables that switch reasoning on and off
EFFORTS = ("reasoning_effort", "thinking_effort")  # template variables that set the amount of reasoning


def effort_variables(effort: str | None, texts: PromptProcessor, tools: object) -> dict[str, object] | None:
    """Returns `reasoning_effort` as template variables; None if the template uses none of them.

    `tools`: those that the request offers. A template may have both a switch and levels.
    """
    if effort is None or (effort == "none" and texts.marks is None):  # a model without reasoning
        return {}
    known = texts.variables(tools)
    made: dict[str, object] = {name: effort != "none" for name in SWITCHES if name in known}
    if effort != "none" or (not made and texts.spells("none")):
        made |= {name: effort for name in EFFORTS if name in known}
    return made or None


def budget_of(request: ChatRequest) -> int | None:
    """Returns the reasoning budget of a request, in tokens; -1 counts as none. ApiError for two that differ."""
    given = {name: value for name in BUDGETS if (value := getattr(request, name)) is not None and value >= 0}
    if len(set(given.values())) > 1:
        raise ApiError(400, f"{' and '.join(given)} mean the same, but differ", param=next(iter(given)))
    return next(iter(given.values()), None)


def reasoning_of(request: ChatRequest, texts: PromptProcessor, prompt: str,
                 messages: Sequence[Mapping[str, Any]]) -> ReasoningSpec | None:
    """Returns the reasoning marks and budget of the response to `prompt`; None if the model has no reasoning.

    ApiError for a budget if the model has no reasoning.
    """
    budget, marks = budget_of(request), texts.marks
    if marks is None:
        if budget is not None:
            name = next(name for name in BUDGETS if getattr(request, name) == budget)
            raise unsupported(name, "this model has no reasoning (--reasoning-parser sets its marks)")
        return None
    if request.continue_final_message:
        begun = True if _open_ended(marks, messages[-1]["content"]) else None
    else:
        begun = choose.begun(marks, prompt)
    closing = f"\n{marks.closes}\n\n" if budget is not None else ""
    return ReasoningSpec(marks.opens, marks.closes, begun, budget, closing)


def _open_ended(marks: Marks, content: str) -> bool:
    """Returns whether `content`, a message to be continued, ends inside reasoning."""
    return content.rfind(marks.opens) > content.rfind(marks.closes)
