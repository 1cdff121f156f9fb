"""Decodes requests. A field is supported, refused by name, or ignored and reported, by one rule at every depth."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

import msgspec

from drut.server.openai.protocol.errors import ApiError, unsupported
from drut.server.openai.protocol.forms import Unknown, allowed_at, form_of, unknown_fields

R = TypeVar("R", bound=msgspec.Struct)

# Fields that are known but not supported, by path. The values listed are neutral: they cause no error.
UNSUPPORTED: Mapping[str, tuple[object, ...]] = {
    "tools": ([],), "tool_choice": ("none", "auto"), "functions": ([],), "function_call": ("none", "auto"),
    "grammar": ("",), "json_schema": ({},),
    "guided_json": (), "guided_regex": (), "guided_choice": (), "guided_grammar": (), "regex": (), "ebnf": (),
    "reasoning_effort": (), "reasoning": (), "thinking": (), "include_reasoning": (True,), "thinking_budget": (),
    "thinking_token_budget": (), "max_thinking_tokens": (), "audio": (),
    "modalities": (["text"],), "web_search_options": (), "best_of": (1,), "suffix": ("",), "use_beam_search": (False,),
    "length_penalty": (1, 1.0), "truncate_prompt_tokens": (), "allowed_token_ids": (), "bad_words": ([],),
    "logits_processors": ([],), "prompt_embeds": (), "mm_processor_kwargs": (), "chat_template": (), "documents": ([],),
    "spaces_between_special_tokens": (True,), "return_tokens_as_token_ids": (False,), "kv_transfer_params": (),
    "vllm_xargs": (), "add_special_tokens": (False,), "typical_p": (1, 1.0), "mirostat": (0,), "top_a": (0, 0.0),
    "tfs_z": (1, 1.0), "dry_multiplier": (0, 0.0), "xtc_probability": (0, 0.0), "dynatemp_range": (0, 0.0),
    "logprob_token_ids": (),
    "n_predict": (-1,), "n_probs": (0,), "max_new_tokens": (), "random_seed": (), "samplers": (), "lora": ([],),
    "multimodal_data": ([],), "image_data": ([],), "stop_regex": ([],), "return_hidden_states": (False,),
    "messages[].content[].image_url": (), "messages[].content[].input_image": (),
    "messages[].content[].image_embeds": (), "messages[].content[].input_audio": (),
    "messages[].content[].audio_url": (), "messages[].content[].video_url": (), "messages[].content[].file": (),
    "messages[].content[].thinking": (),
    "messages[].function_call": (), "messages[].audio": (), "messages[].images": ([],), "messages[].prefix": (False,),
    "messages[].partial": (False,), "messages[].tool_calls[].custom": (),
    "tools[].custom": (), "tools[].parameters": (), "tools[].input_schema": (), "tools[].function.input_schema": (),
    "tools[].function.schema": (), "tool_choice.allowed_tools": (), "tool_choice.custom": (),
    "tool_choice.disable_parallel_tool_use": (False,),
    "response_format.format": (), "response_format.grammar": (), "response_format.regex": (),
    "response_format.pattern": (), "structured_outputs.ebnf": (), "structured_outputs.schema": (),
    "structured_outputs.whitespace_pattern": (), "structured_outputs.disable_any_whitespace": (False,),
    "structured_outputs.disable_additional_properties": (False,), "structured_outputs.disable_fallback": (False, True),
    "structured_outputs.structural_tag.format": (),
}  # fmt: skip
_STRUCTURED, _PARAMETERS = "use structured_outputs", "use function.parameters"
HINTS = {
    "guided_json": _STRUCTURED, "guided_regex": _STRUCTURED, "guided_choice": _STRUCTURED,
    "guided_grammar": _STRUCTURED, "grammar": _STRUCTURED, "json_schema": _STRUCTURED, "regex": _STRUCTURED,
    "ebnf": _STRUCTURED,
    "functions": "it is deprecated; use tools",
    "messages[].function_call": "it is deprecated; use tool_calls",
    "chat_template": "the model's own template is used",
    "n_predict": "use max_tokens", "max_new_tokens": "use max_tokens", "n_probs": "use logprobs",
    "random_seed": "use seed",
    "messages[].prefix": "use continue_final_message", "messages[].partial": "use continue_final_message",
    "tools[].parameters": _PARAMETERS, "tools[].input_schema": _PARAMETERS,
    "tools[].function.input_schema": _PARAMETERS, "tools[].function.schema": _PARAMETERS,
    "response_format.grammar": _STRUCTURED, "response_format.regex": _STRUCTURED,
    "response_format.pattern": _STRUCTURED,
    "structured_outputs.ebnf": "use structured_outputs.grammar",
    "structured_outputs.schema": "use structured_outputs.json",
}
MAX_NAMED = 2000  # characters of all reported names of ignored fields


def decode(body: bytes, form: type[R], *, strict: bool = False) -> tuple[R, tuple[str, ...]]:
    """Returns the request in `body` and the paths of ignored fields; with `strict` an ignored field is an error.

    ApiError 400 if the body is not JSON or does not match the struct `form`, with code `unsupported_parameter` for a
    field that is known but not supported.
    """
    given, request = _read(body, form)
    ignored = check_unknown(unknown_fields(given, form_of(form)))
    if ignored and strict:
        raise ApiError(400, f"unknown field {ignored[0]!r}", code="unknown_parameter", param=ignored[0])
    return request, ignored


def check_unused(paths: tuple[str, ...], *, strict: bool) -> tuple[str, ...]:
    """Returns the paths of known fields that this model does not use. ApiError 400 with `strict` names the first."""
    if paths and strict:
        raise ApiError(400, f"{paths[0]} has no effect: this model's chat template does not use it",
                       code="unknown_parameter", param=paths[0])
    return paths


def check_unknown(fields: Iterable[Unknown]) -> tuple[str, ...]:
    """Returns the paths of ignored fields, short enough for a header. ApiError for a field that is not supported."""
    named: list[str] = []
    length = more = 0
    for unknown in fields:
        if (neutral := UNSUPPORTED.get(unknown.kind)) is not None:
            if not any(_same(unknown.value, value) for value in neutral):
                raise unsupported(unknown.path, HINTS.get(unknown.kind, ""))
        elif length + len(unknown.path) <= MAX_NAMED:
            named.append(unknown.path)
            length += len(unknown.path) + 2
        else:
            more += 1
    return (*named, f"and {more} more") if more else tuple(named)


def _read(body: bytes, form: type[R]) -> tuple[object, R]:
    """Decodes the body once; returns plain data and the request converted from it."""
    try:
        try:
            given = msgspec.json.decode(body)
        except msgspec.ValidationError:  # a number out of range: decoding by type names its field
            msgspec.json.decode(body, type=form)
            raise
        return given, msgspec.convert(given, form)
    except msgspec.ValidationError as error:
        raise misfit(error, form) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ApiError(400, f"the body is not valid JSON: {error}", code="invalid_json") from None
    except RecursionError:
        raise ApiError(400, "the JSON is nested too deeply", code="invalid_json") from None


def _same(value: object, neutral: object) -> bool:
    """Compares as JSON: true is not 1."""
    return type(value) is type(neutral) and value == neutral


def misfit(error: msgspec.ValidationError, form: type[msgspec.Struct]) -> ApiError:
    """Returns the error for msgspec's one line, with the path as `param` and the values that an enum allows."""
    text, _, at = str(error).partition(" - at ")
    path = at.rpartition("$")[2].strip("`").lstrip(".").partition("[...]")[0]
    if text.startswith("Object missing required field"):
        path = f"{path}.{text.partition('`')[2].partition('`')[0]}".lstrip(".")
        return ApiError(400, f"{path} is missing", param=path)
    if allowed := allowed_at(form_of(form), path):
        given = text.removeprefix("Invalid enum value ")[:60]
        given = f", not {given}" if given != text[:60] else ""
        return ApiError(400, f"{path} must be one of {', '.join(map(str, allowed))}{given}", param=path)
    return ApiError(400, f"{path or 'the body'}: {text[0].lower()}{text[1:]}", param=path or None)
