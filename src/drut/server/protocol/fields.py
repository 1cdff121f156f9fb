"""Which fields of a request are honoured, refused by name, or ignored and said to be. Never silently."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from drut.server.protocol.errors import ApiError, unsupported

R = TypeVar("R", bound=msgspec.Struct)

# Known and not built. The values are those that ask for nothing, as JSON.
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
}  # fmt: skip
_STRUCTURED = "structured_outputs has it"
HINTS = {
    "guided_json": _STRUCTURED, "guided_regex": _STRUCTURED, "guided_choice": _STRUCTURED,
    "guided_grammar": _STRUCTURED, "grammar": _STRUCTURED, "json_schema": _STRUCTURED, "regex": _STRUCTURED,
    "ebnf": _STRUCTURED,
    "functions": "this older form has made way for tools",
    "chat_template": "the model's own is used",
}
# Change nothing of an answer. All other unknown fields are treated alike.
HARMLESS = frozenset((
    "user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention",
    "verbosity", "prediction", "request_id",
))  # fmt: skip
_NULL = b"null"


def decode(body: bytes, form: type[R], *, strict: bool = False) -> tuple[R, tuple[str, ...]]:
    """The request in `body`, and the names of fields that were ignored; with `strict` these are an error too.

    ApiError 400 for what is no JSON or does not fit the form, `unsupported_parameter` for what is known and not built.
    """
    try:
        given = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
        request = msgspec.json.decode(body, type=form)
    except msgspec.ValidationError as error:
        raise _misfit(error) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ApiError(400, f"the body is not valid JSON: {error}", code="invalid_json") from None
    except RecursionError:
        raise ApiError(400, "the JSON is nested too deeply", code="invalid_json") from None
    ignored = ignored_fields(given, frozenset(form.__struct_encode_fields__))
    if ignored and strict:
        raise ApiError(400, f"unknown field {ignored[0]!r}", code="unknown_parameter", param=ignored[0])
    return request, ignored


def ignored_fields(given: Mapping[str, msgspec.Raw], known: frozenset[str]) -> tuple[str, ...]:
    """Names that are neither known nor refused. A field that is null is as good as absent."""
    ignored = []
    for name, raw in given.items():
        if name in known or bytes(raw) == _NULL:
            continue
        if name in UNSUPPORTED:
            _refuse_unless_neutral(name, raw)
        else:
            ignored.append(_shown(name))
    return tuple(ignored)


def _refuse_unless_neutral(name: str, raw: msgspec.Raw) -> None:
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        value = ...  # whatever it is, it asks for something
    if not any(type(value) is type(neutral) and value == neutral for neutral in UNSUPPORTED[name]):
        raise unsupported(name, HINTS.get(name, ""))


def _misfit(error: msgspec.ValidationError) -> ApiError:
    """msgspec's one line, with the field as `param`: it ends with a path like `$.stop[...]`."""
    text, _, path = str(error).partition(" - at ")
    where = path.rpartition("$")[2].strip("`").lstrip(".")
    field = where.partition("[")[0].partition(".")[0]
    if text.startswith("Object missing required field"):
        field = field or text.partition("`")[2].partition("`")[0]
        return ApiError(400, f"{text[0].lower()}{text[1:]}" + (f" at {where}" if where else ""), param=field or None)
    return ApiError(400, f"{where or 'the body'}: {text[0].lower()}{text[1:]}", param=field or None)


def _shown(name: str) -> str:
    """A client's name for a field, fit for a header."""
    return "".join(c if c.isascii() and c.isprintable() and c not in ",\"" else "?" for c in name[:64])
