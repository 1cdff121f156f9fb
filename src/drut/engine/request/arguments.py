"""The arguments of calls: one or several prompts, conversations and parameters. Errors name the type that was given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any, cast

from drut.engine.request.params import SamplingParams, checked_params
from drut.errors import RequestError

Prompt = str | Sequence[int]
Messages = Sequence[Mapping[str, object]]


def each_prompt(prompts: Prompt | Sequence[Prompt]) -> Sequence[Prompt]:
    """Returns a list of prompts; a single prompt, a text or a list of ids, becomes a list of one."""
    if isinstance(prompts, str):
        return [prompts]
    if not _is_list(prompts):
        raise _no_prompt(prompts)
    if len(prompts) == 0:
        raise RequestError("there is no prompt")
    if all(isinstance(item, Integral) for item in prompts):
        return [cast(Prompt, prompts)]
    for item in prompts:
        if not (isinstance(item, str) or _is_list_of_ids(item)):
            raise _no_prompt(item)
    return cast(Sequence[Prompt], prompts)


def each_conversation(messages: Messages | Sequence[Messages]) -> Sequence[Messages]:
    """Returns a list of conversations; a single one becomes a list of one."""
    if not _is_list(messages):
        raise RequestError(f"messages must be a list of dicts with role and content, not {type(messages).__name__}")
    if len(messages) == 0:
        raise RequestError("messages is empty")
    if all(isinstance(item, Mapping) for item in messages):
        return [cast(Messages, messages)]
    for item in messages:
        if not _is_list(item):
            raise RequestError(f"messages must be a conversation or a list of them, not a list of {_kind(item)}")
        if len(item) == 0:
            raise RequestError("a conversation in messages is empty")
    return cast(Sequence[Messages], messages)


def each_params(params: SamplingParams | Sequence[SamplingParams] | None, count: int) -> list[SamplingParams]:
    """Returns `count` parameters: those of a list, or the same for all."""
    if not isinstance(params, list | tuple):
        return [checked_params(cast(SamplingParams | None, params))] * count
    if len(params) != count:
        raise RequestError(f"params has {len(params)} entries for {count} prompts")
    return [checked_params(item) for item in params]


def checked_tools(tools: Sequence[Mapping[str, object]]) -> Sequence[Mapping[str, object]]:
    """Returns `tools`. Raises RequestError if it is no list of dicts."""
    if not _is_list(tools):
        raise RequestError(f"tools must be a list of dicts, not {_kind(tools)}")
    for i, tool in enumerate(tools):
        if not isinstance(tool, Mapping):
            raise RequestError(f"tools[{i}] must be a dict, not {_kind(tool)}")
    return tools


def _is_list(value: object) -> bool:
    """True for lists, tuples, ranges and arrays: what has a length and an order, and is neither text nor a mapping."""
    return hasattr(value, "__len__") and hasattr(value, "__getitem__") and not isinstance(value, str | bytes | Mapping)


def _is_list_of_ids(value: Any) -> bool:
    return _is_list(value) and all(isinstance(item, Integral) for item in value)


def _no_prompt(value: object) -> RequestError:
    hint = "; a conversation is for chat()" if isinstance(value, Mapping) else ""
    if _is_list(value):
        wrong = next(item for item in cast(Sequence[object], value) if not isinstance(item, Integral))
        return RequestError(f"prompts must be text or token ids, not a list with {_kind(wrong)}")
    return RequestError(f"prompts must be text or token ids, not {_kind(value)}{hint}")


def _kind(value: object) -> str:
    return type(value).__name__
