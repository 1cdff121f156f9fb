"""Chat templates: messages to the one prompt text a model was trained on."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import cached_property
from typing import NoReturn

from jinja2 import TemplateError, TemplateSyntaxError, meta, nodes

from drut.errors import ModelFileError, RequestError, UnsupportedError
from drut.model import tool_text
from drut.model.sandbox import BoundedEnvironment
from drut.model.tokenizer import Tokenizer

MAX_SOURCE_CHARS = 128 << 10  # some seconds of compiling, at worst; real ones have up to 40,000
COMPILE_LIMIT_S = 10.0
# What render itself defines, and what a caller may not smuggle in under the name of a variable.
_RESERVED = frozenset((
    "messages", "tools", "documents", "add_generation_prompt", "bos_token", "eos_token", "chat_template",
    "tokenize", "conversation",
))  # fmt: skip
_FIELDS: dict[str, type] = {"role": str, "content": str, "name": str, "tool_call_id": str, "tool_calls": list,
                            "reasoning_content": str}  # of a message
_STRFTIME = re.compile(r"(?:[^%]|%-?[A-Za-z%])*")


class ChatTemplate:
    """A compiled Jinja template. Safe to use from several threads.

    The source may come from anybody: it runs in a sandbox, for `time_limit_s` seconds of CPU time at most.
    ModelFileError where it is no template or too long.
    """

    def __init__(
        self, source: str, *, bos_token: str = "", eos_token: str = "", time_limit_s: float = 1.0
    ) -> None:
        if len(source) > MAX_SOURCE_CHARS:
            raise ModelFileError(f"chat template: longer than {MAX_SOURCE_CHARS} characters")
        self.source = source
        self._knows_developer = "developer" in source
        self._time_limit_s = time_limit_s
        self.variables: frozenset[str]  # what a caller may set: names the template looks at and nobody else sets
        self._environment = environment = BoundedEnvironment()
        environment.globals |= {
            "bos_token": bos_token,
            "eos_token": eos_token,
            "tools": None,
            "documents": None,
            "raise_exception": _raise_exception,
            "strftime_now": _strftime_now,
        }
        try:
            with environment.metered(COMPILE_LIMIT_S):
                self._template = environment.from_string(source)
                tree = environment.parse(source)
                looked_at = meta.find_undeclared_variables(tree)
                self.reads_tools = any(name.name == "tools" for name in tree.find_all(nodes.Name))
                self.variables = frozenset(looked_at) - _RESERVED - set(environment.globals)
        except TemplateSyntaxError as error:
            raise ModelFileError(f"chat template: line {error.lineno}: {_line(error)}") from None
        except Exception as error:  # what Python's compiler says of too deep a nesting, for one
            raise ModelFileError(f"chat template: {_line(error)}") from None

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> ChatTemplate:
        """The template of a tokenizer's model. UnsupportedError where it has none."""
        if tokenizer.chat_template is None:
            raise UnsupportedError(f"{tokenizer.name} has no chat template, so it can continue text only")
        return cls(tokenizer.chat_template, bos_token=tokenizer.bos_token, eos_token=tokenizer.eos_token)

    def render(
        self,
        messages: Sequence[Mapping[str, object]],
        *,
        add_generation_prompt: bool = True,
        continue_final: bool = False,
        variables: Mapping[str, object] | None = None,
        tools: Sequence[Mapping[str, object]] = (),
    ) -> str:
        """The prompt of a conversation, each message a mapping with strings `role` and `content`.

        With `continue_final` it ends where the last message's content does, so that an answer continues that.
        `tools`, `tool_calls` of messages and messages of role `tool` have OpenAI's form; a template that knows nothing
        of them gets them as text (drut.model.tool_text).

        `variables` are further names the template may look at, such as `enable_thinking`. Role `developer`
        becomes `system` where the template does not know it. Raises RequestError naming the message or
        variable that is not acceptable, and for all that goes wrong in the template, its limits included.
        """
        for name in variables or ():
            if name in _RESERVED or name in self._environment.globals:
                raise RequestError(f"chat template variable {name[:40]!r} cannot be set")
        checked = self._checked(messages)
        values = dict(variables or {})
        if not self.reads_tools:
            checked = tool_text.told(checked, tools)
        else:
            checked = tool_text.with_arguments(checked, as_objects=self._takes_objects)
            if tools:
                values["tools"] = list(tools)
        if continue_final:
            return self._open_ended(checked, values)
        return self._rendered(checked, add_generation_prompt, values)

    @cached_property
    def _takes_objects(self) -> bool:
        """Whether the template wants a call's arguments as an object, not as the JSON text of one: it is tried out."""
        for as_objects in (True, False):
            messages = tool_text.with_arguments(tool_text.PROBE, as_objects=as_objects)
            with suppress(RequestError):
                text = self._rendered(messages, True, {"tools": [tool_text.PROBE_TOOL]})
                if tool_text.PROBE_SHOWN.search(text):
                    return as_objects
        return True

    def _open_ended(self, messages: list[dict[str, object]], variables: Mapping[str, object]) -> str:
        mark = secrets.token_hex(16)  # a word no message holds shows where the content went
        last = {**messages[-1], "content": f"{messages[-1]['content']}{mark}"}
        before, found, _ = self._rendered([*messages[:-1], last], False, variables).rpartition(mark)
        if not found:
            raise RequestError("chat template: it does not show the last message as it is, so nothing can continue it")
        return before

    def _rendered(self, messages: list[dict[str, object]], generate: bool, variables: Mapping[str, object]) -> str:
        values = {**variables, "messages": messages}
        environment, template = self._environment, self._template
        try:
            with environment.metered(self._time_limit_s):
                for value in values.values():
                    environment.bounded(value)
                context = template.new_context(values | {"add_generation_prompt": generate})
                return environment.concat(template.root_render_func(context))
        except Exception as error:  # a template can raise whatever Python can
            raise RequestError(f"chat template: {_line(error)}") from None

    def _checked(self, messages: Sequence[Mapping[str, object]]) -> list[dict[str, object]]:
        if not isinstance(messages, (list, tuple)) or not messages:
            raise RequestError("messages must be a list of at least one message")
        return [self._message(i, message) for i, message in enumerate(messages)]

    def _message(self, index: int, message: Mapping[str, object]) -> dict[str, object]:
        if not isinstance(message, Mapping):
            raise RequestError(f"messages[{index}] must be an object, not {type(message).__name__}")
        for key in ("role", "content"):
            if not isinstance(message.get(key), str):
                raise RequestError(f"messages[{index}].{key} must be a string")
        for key, value in message.items():
            if not isinstance(value, _FIELDS.get(key, ())):
                raise RequestError(f"messages[{index}].{str(key)[:40]} is not supported")
        tool_text.check_calls(message.get("tool_calls") or (), f"messages[{index}].tool_calls")
        if message["role"] == "developer" and not self._knows_developer:
            return {**message, "role": "system"}
        return dict(message)


def _raise_exception(message: object) -> NoReturn:
    raise TemplateError(str(message))


def _strftime_now(form: str) -> str:
    if len(form) > 256 or not _STRFTIME.fullmatch(form):
        raise TemplateError("strftime_now: not a date format")
    return datetime.now().strftime(form)


def _line(error: Exception) -> str:
    """An error as a short line."""
    text = " ".join(str(error).split())[:200]
    return text if isinstance(error, TemplateError) and text else f"{type(error).__name__}: {text}"
