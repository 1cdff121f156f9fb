"""`POST /v1/chat/completions`."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from drut.constrain import ReasoningSpec
from drut.engine.request.params import FilledParams
from drut.errors import RequestError
from drut.parse.calling import constraint
from drut.parse.offer import OfferedTools
from drut.parse.reading import Reading
from drut.server.http.auth import salt_of
from drut.server.openai.prompts import PromptProcessor, RenderedChat
from drut.server.openai.protocol.chat import ChatRequest
from drut.server.openai.protocol.errors import ApiError
from drut.server.openai.protocol.fields import check_unused, decode
from drut.server.openai.protocol.forms import shown_name
from drut.server.openai.protocol.models import TokenizeRequest
from drut.server.openai.protocol.sampling import check_stream, engine_params, first_max_tokens, wants_timings
from drut.server.openai.protocol.structured import RequestedFormat, constraint_of, may_contain_calls
from drut.server.openai.protocol.tools import Function, as_tools, check_tools, chosen, for_template
from drut.server.openai.reasoning import effort_variables, reasoning_of
from drut.server.openai.routes.chat_messages import plain_messages
from drut.server.service import Loaded, Service
from drut.server.stream.prepared_request import PreparedPrompt, PreparedRequest


def prepare(body: bytes, service: Service, loaded: Loaded, caller: str) -> PreparedRequest:
    """Parses, checks and tokenizes a request. ApiError for every invalid field."""
    request, ignored = decode(body, ChatRequest, strict=service.config.strict_fields)
    service.check_model(request.model)
    check_stream(request)
    service.limits.check_choices(1, request.n or 1, "n")
    texts, logprobs = loaded.texts, _logprobs(request)
    functions = check_tools(request.tools, service.limits.tools)
    choice = chosen(request.tool_choice, functions)
    offered = functions if choice != "none" else []
    messages = plain_messages(request.messages, service, short_ids=texts.wants_short_ids)
    effort = effort_variables(request.reasoning_effort, texts, offered)
    variables = {**(effort or {}), **(request.chat_template_kwargs or {})}
    prompt, unused = chat_text(texts, messages, variables, offered, request)
    ignored += check_unused((*(("reasoning_effort",) if effort is None else ()), *unused),
                            strict=service.config.strict_fields)
    own_text = may_contain_calls(request.response_format, request.structured_outputs)
    max_tokens = _max_tokens(request)
    asked = constraint_of(request.response_format, request.structured_outputs)
    params = engine_params(request, asked, max_tokens=max_tokens, logprobs=logprobs,
                           prompt_logprobs=request.prompt_logprobs, limits=service.limits, texts=texts)
    reading = _reading(request, texts, offered, choice, reasoning_of(request, texts, prompt.text, messages),
                       formatted=params.constraint is not None and not own_text)
    params = replace(params, shown_special_ids=texts.special_marks(reading))
    calls = _calls(params, texts, reading, offered, choice, own_text=own_text)
    if calls is not None:
        params = replace(params, constraint=calls.constraint)
    reading = replace(reading, bound=params.constraint is not None)
    params = replace(params, reasoning=reading.watched)
    ids = texts.chat_ids(prompt)
    echo = bool(request.echo) and messages[-1]["role"] == "assistant"
    return PreparedRequest(
        id=f"chatcmpl-{secrets.token_hex(12)}", model=service.name, fingerprint=loaded.fingerprint,
        prompts=[PreparedPrompt(ids, messages[-1]["content"] if echo else "", len(ids))], params=params,
        priority=request.priority or 0, salt=salt_of(caller, request.cache_salt),
        deadline_s=request.deadline_s, stream=bool(request.stream),
        include_usage=bool(request.stream_options and request.stream_options.include_usage),
        continuous_usage=bool(request.stream_options and request.stream_options.continuous_usage_stats),
        echo=echo, logprobs=logprobs is not None, prompt_logprobs=request.prompt_logprobs is not None,
        return_token_ids=bool(request.return_token_ids), operation="chat", ignored=ignored, reading=reading,
        include_reasoning=request.include_reasoning is not False,
        constraints=tuple(one for one in (asked, calls) if one is not None), timings=wants_timings(request))


def _max_tokens(request: ChatRequest) -> int:
    for name in ("max_completion_tokens", "max_tokens"):
        if getattr(request, name) == 0:
            raise ApiError(400, f"{name} must be at least 1, or -1 for no limit", param=name)
    return first_max_tokens(request.max_completion_tokens, request.max_tokens, -1)


def _logprobs(request: ChatRequest) -> int | None:
    if request.logprobs:
        return request.top_logprobs or 0
    if request.top_logprobs:
        raise ApiError(400, "top_logprobs needs logprobs true", param="top_logprobs")
    return None


def _reading(request: ChatRequest, texts: PromptProcessor, offered: list[Function], choice: str | Function,
             reasoning: ReasoningSpec | None, *, formatted: bool) -> Reading:
    """Returns how the output is parsed. `formatted`: its text must match a format."""
    if not offered:
        return Reading(reasoning)
    form, named = texts.tool_format(), isinstance(choice, Function)
    most = 1 if named or request.parallel_tool_calls is False else None
    either = formatted and choice == "auto"
    guarded = choice != "auto" or (any(function.strict for function in offered) and not either)
    names = [choice.name] if isinstance(choice, Function) else [function.name for function in offered]
    reasoning = reasoning and replace(reasoning, calls=form.around)
    offer = OfferedTools(frozenset(names), whole=not guarded, most=most, new_id=form.new_id)
    return Reading(reasoning, form, offer, only_calls=choice != "auto", named=named, either=either)


def _calls(params: FilledParams, texts: PromptProcessor, reading: Reading, offered: list[Function],
           choice: str | Function, *, own_text: bool) -> RequestedFormat | None:
    """Returns the constraint for the tool calls, or None. ApiError 400 names the tool whose schema is invalid.

    Required calls exclude a format. If the model chooses, its output is either calls or text in the format.
    """
    if reading.form is None or reading.offer is None:
        return None
    if choice == "auto" and own_text:
        if any(function.strict for function in offered):
            raise ApiError(400, "tools: a strict tool cannot be combined with structural tags, a choice or a grammar",
                           param="tools")
        return None
    tools = as_tools(offered, choice)
    try:
        made = constraint(reading.form, tools, "auto" if choice == "auto" else "required",
                          texts.encoder(), parallel=reading.offer.most is None, bounds=texts.tool_bounds,
                          answer=params.constraint if reading.either else None)
    except RequestError as error:
        path = str(error).partition(":")[0]
        raise ApiError(400, str(error), param=path if path.startswith("tools[") else "tools") from None
    if made is None:
        return None
    bound = [tool for tool in tools if tool.strict or choice != "auto"]
    return RequestedFormat(made, "tools", tuple((f"tools[{tool.place}].function.parameters",
                                                 tool.parameters) for tool in bound))


def chat_text(texts: PromptProcessor, messages: list[dict[str, Any]], variables: Mapping[str, object],
              tools: list[Function],
              request: ChatRequest | TokenizeRequest) -> tuple[RenderedChat, tuple[str, ...]]:
    """Returns the prompt of a conversation, and the paths of the variables that the model's template does not use."""
    if request.continue_final_message and request.add_generation_prompt:
        raise ApiError(400, "continue_final_message and add_generation_prompt cannot both be true",
                       param="continue_final_message")
    known, continues = texts.variables(tools), bool(request.continue_final_message)
    prompt = texts.chat_text(messages, variables, [for_template(function) for function in tools],
                             continue_final=continues,
                             add_generation_prompt=request.add_generation_prompt is not False and not continues,
                             special_tokens=request.special_tokens_in_messages)
    return prompt, tuple(f"chat_template_kwargs.{shown_name(name)}" for name in variables if name not in known)
