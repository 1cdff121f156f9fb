"""The chat templates of a model: one for all conversations, or several by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from drut.errors import UnsupportedError
from drut.model.template.template import ChatTemplate
from drut.model.tokenizer import Tokenizer

DEFAULT, TOOL_USE = "default", "tool_use"


@dataclass(frozen=True)
class ChatTemplates:
    """The template for conversations without tools (`plain`) and with tools (`with_tools`), often the same."""

    plain: ChatTemplate
    with_tools: ChatTemplate

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> ChatTemplates:
        """Returns the templates of a tokenizer's model. Raises UnsupportedError if none fits, and ModelFileError for an
        invalid one."""
        sources = tokenizer.chat_templates
        if not sources:
            raise UnsupportedError(f"{tokenizer.name} has no chat template, so it can only continue text")
        plain, with_tools = _chosen(sources, (DEFAULT, TOOL_USE)), _chosen(sources, (TOOL_USE, DEFAULT))
        if plain is None or with_tools is None:
            raise UnsupportedError(f"{tokenizer.name} has chat templates called {', '.join(map(repr, sources))}, and "
                                   f"none called {DEFAULT!r} or {TOOL_USE!r}")
        made = {name: ChatTemplate(sources[name], bos_token=tokenizer.bos_token, eos_token=tokenizer.eos_token)
                for name in {plain, with_tools}}
        return cls(made[plain], made[with_tools])

    @property
    def source(self) -> str:
        """The concatenated sources of all templates."""
        return self.plain.source if self.plain is self.with_tools else f"{self.plain.source}\n{self.with_tools.source}"

    @property
    def literals(self) -> frozenset[str]:
        """The string literals of all templates, which are the texts that they may look for."""
        return self.plain.literals | self.with_tools.literals

    def offering(self, tools: object) -> ChatTemplate:
        """Returns the template for a conversation with these `tools`, which may be empty."""
        return self.with_tools if tools else self.plain

    def render(self, messages: Sequence[Mapping[str, object]], tools: Sequence[Mapping[str, object]] = ()) -> str:
        """Returns the prompt of a conversation up to the start of the answer (`ChatTemplate.render`)."""
        return self.offering(tools).render(messages, tools=tools)


def _chosen(names: Iterable[str], wanted: Iterable[str]) -> str | None:
    """Returns the first of `wanted` that exists, or the only name."""
    names = list(names)
    only = names if len(names) == 1 else []
    return next((name for name in (*wanted, *only) if name in names), None)
