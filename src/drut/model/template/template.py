"""Chat templates render messages to the prompt format that a model was trained on."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import cached_property
from typing import Any, NoReturn

from jinja2 import TemplateError, TemplateSyntaxError, meta, nodes

from drut.errors import ModelFileError, RequestError
from drut.model.template import tool_text
from drut.model.template.sandbox import BoundedEnvironment
from drut.model.template.tool_text import Message

MAX_SOURCE_CHARS = 128 << 10  # compiling takes some seconds at most; real templates have up to 40,000
COMPILE_LIMIT_S = 10.0
# Names that `render` itself defines, which a caller may not set as variables.
_RESERVED = frozenset((
    "messages", "tools", "documents", "add_generation_prompt", "bos_token", "eos_token", "chat_template",
    "tokenize", "conversation",
))  # fmt: skip
_SYSTEM_PROBE = [{"role": "system", "content": "probing"}, {"role": "user", "content": "probe"}]
_FIELDS: dict[str, type] = {"role": str, "content": str, "name": str, "tool_call_id": str, "tool_calls": list,
                            "reasoning_content": str}  # fields of a message
_WITHOUT_CONTENT = ("tool_calls", "reasoning_content")  # with one of these an assistant's content may be missing
_STRFTIME = re.compile(r"(?:[^%]|%-?[A-Za-z%])*")


class ChatTemplate:
    """A compiled Jinja template. Threads: safe to use from several threads.

    The source is untrusted: it runs in a sandbox, for at most `time_limit_s` seconds of CPU time. Raises ModelFileError
    if it is not a template or too long.
    """

    def __init__(
        self, source: str, *, bos_token: str = "", eos_token: str = "", time_limit_s: float = 1.0
    ) -> None:
        if len(source) > MAX_SOURCE_CHARS:
            raise ModelFileError(f"chat template: longer than {MAX_SOURCE_CHARS} characters")
        self.source = source
        self._knows_developer = "developer" in source
        self._time_limit_s = time_limit_s
        self.variables: frozenset[str]  # names that a caller may set: the template reads them and `sets` excludes them
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
                self.variables = frozenset(name for name in looked_at if not self.sets(name))
                self.literals = frozenset(c.value for c in tree.find_all(nodes.Const) if isinstance(c.value, str))
        except TemplateSyntaxError as error:
            raise ModelFileError(f"chat template: line {error.lineno}: {_line(error)}") from None
        except Exception as error:  # for example, Python's compiler refuses deep nesting
            raise ModelFileError(f"chat template: {_line(error)}") from None

    def render(
        self,
        messages: Sequence[Mapping[str, object]],
        *,
        add_generation_prompt: bool = True,
        continue_final: bool = False,
        variables: Mapping[str, object] | None = None,
        tools: Sequence[Mapping[str, object]] = (),
        hide: Callable[[Any], Any] = lambda value: value,
    ) -> str:
        """Returns the prompt of a conversation. Each message is a mapping with strings `role` and `content`.

        With `continue_final` the prompt ends with the last message's content, so that the output continues it; white
        space at the end is removed if the template trims it. An assistant's content may be missing. `tools`,
        `tool_calls` of messages and messages of role `tool` have OpenAI's form; a template without support for them
        gets them as text (drut.model.template.tool_text).

        `variables` are further names for the template, such as `enable_thinking`. Role `developer` becomes `system` if
        the template does not know it. The template gets what `hide` makes of all that a caller gave
        (drut.model.special_tokens). Raises RequestError, which names the message or variable that is not
        acceptable, and for all errors in the template, including its limits.
        """
        for name in variables or ():
            if self.sets(name):
                raise RequestError(f"chat template variable {name[:40]!r} cannot be set")
        values = dict(variables or {})
        if tools and self.reads_tools:
            values["tools"] = list(tools)
        values = hide(values)
        checked = self._checked(messages)

        def shown(ready: list[Message]) -> str:
            ready = [{**hide(message), "role": message["role"]} for message in ready]
            return self._open_ended(ready, values) if continue_final else self._rendered(
                ready, add_generation_prompt, values)

        if not self._shows_calls(checked, bool(tools)):
            return shown(tool_text.as_text(checked, tools, takes_system=self._takes_system))
        ready = tool_text.with_arguments(checked, as_objects=self._takes_objects)
        try:
            return shown(ready)
        except RequestError as error:
            raise self._named(error, ready, shown) from None

    def _named(self, error: RequestError, ready: Sequence[Message],
               shown: Callable[[list[Message]], str]) -> RequestError:
        """Returns the error, or one that names a call's arguments if there would be no error without them."""
        field = tool_text.first_text(ready) if self._takes_objects else None
        if field is None:
            return error
        try:
            shown(tool_text.without_text(ready))
        except RequestError:
            return error
        return RequestError(f"{field} must be the text of a JSON object: this model's chat template requires it",
                            field=field)

    def sets(self, name: str) -> bool:
        """Whether `render` or the environment sets the name, so that no caller may."""
        return name in _RESERVED or name in self._environment.globals

    def _shows_calls(self, messages: Sequence[Message], offered: bool) -> bool:
        """Whether the template gets tools, calls and results as data, and not as text."""
        if self.reads_tools:
            return True
        has_calls = any(m["role"] == "tool" or m.get("tool_calls") for m in messages)
        return not offered and has_calls and self._knows_calls

    @cached_property
    def _knows_calls(self) -> bool:
        """Whether the prompt shows a call and its result if no tools are offered."""
        probe = tool_text.with_arguments(tool_text.PROBE, as_objects=self._takes_objects)
        with suppress(RequestError):
            text = self._rendered(probe, True, {})
            return tool_text.PROBE_VALUE in text and tool_text.PROBE_RESULT in text
        return False

    @cached_property
    def _takes_system(self) -> bool:
        """Whether the template shows a system message; some refuse it."""
        with suppress(RequestError):
            return "probing" in self._rendered(_SYSTEM_PROBE, True, {})
        return False

    @cached_property
    def _takes_objects(self) -> bool:
        """Whether the template expects a call's arguments as an object, not as JSON text; found by a trial rendering.

        A template that fails with an object, omits it or writes it in Python's syntax does not expect one.
        """
        for as_objects in (True, False):
            messages = tool_text.with_arguments(tool_text.PROBE, as_objects=as_objects)
            with suppress(RequestError):
                text = self._rendered(messages, True, {"tools": [tool_text.PROBE_TOOL]})
                if tool_text.PROBE_VALUE in text and tool_text.PROBE_AS_PYTHON not in text:
                    return as_objects
        return True

    def _open_ended(self, messages: list[Message], variables: Mapping[str, object]) -> str:
        mark, content = secrets.token_hex(16), messages[-1]["content"]  # a random mark shows where the content ends
        last = {**messages[-1], "content": f"{content}{mark} "}
        text = self._rendered([*messages[:-1], last], False, variables)
        before, found, after = text.rpartition(mark)
        if not found or content.strip() not in text:
            raise RequestError("chat template: it changes the last message's content, so the output cannot continue it")
        return before if after.startswith(" ") else before.rstrip()

    def _rendered(self, messages: Sequence[Message], generate: bool, variables: Mapping[str, object]) -> str:
        values = {**variables, "messages": messages}
        environment, template = self._environment, self._template
        try:
            with environment.metered(self._time_limit_s):
                for value in values.values():
                    environment.bounded(value)
                context = template.new_context(values | {"add_generation_prompt": generate})
                return environment.concat(template.root_render_func(context))
        except Exception as error:  # a template can raise any exception
            raise RequestError(f"chat template: {_line(error)}") from None

    def _checked(self, messages: Sequence[Mapping[str, object]]) -> list[Message]:
        if not isinstance(messages, (list, tuple)) or not messages:
            raise RequestError("messages must be a list of at least one message")
        return [self._message(i, message) for i, message in enumerate(messages)]

    def _message(self, index: int, message: Mapping[str, object]) -> Message:
        if not isinstance(message, Mapping):
            raise RequestError(f"messages[{index}] must be an object, not {type(message).__name__}")
        made: Message = {key: value for key, value in message.items() if value is not None}
        if made.get("role") == "assistant" and not made.keys().isdisjoint(_WITHOUT_CONTENT):
            made.setdefault("content", "")
        for key in ("role", "content"):
            if not isinstance(made.get(key), str):
                raise RequestError(f"messages[{index}].{key} must be a string")
        for key, value in made.items():
            if not isinstance(value, _FIELDS.get(key, ())):
                raise RequestError(f"messages[{index}].{str(key)[:40]} is not supported")
        tool_text.check_calls(made.get("tool_calls") or (), f"messages[{index}].tool_calls")
        if made["role"] == "developer" and not self._knows_developer:
            made["role"] = "system"
        if "reasoning_content" in made:
            made["thinking"] = made["reasoning_content"]  # the name in some templates
        return made


def _raise_exception(message: object) -> NoReturn:
    raise TemplateError(str(message))


def _strftime_now(form: str) -> str:
    if len(form) > 256 or not _STRFTIME.fullmatch(form):
        raise TemplateError("strftime_now: not a date format")
    return datetime.now().strftime(form)


def _line(error: Exception) -> str:
    """Returns an error as a short line."""
    text = " ".join(str(error).split())[:200]
    return text if isinstance(error, TemplateError) and text else f"{type(error).__name__}: {text}"
