"""Converts requests to token ids: tokenizer, chat template and parsers of a model, without its weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drut.engine.request.params import NEUTRAL, SamplingParams
from drut.errors import DrutError, RequestError, UnsupportedError
from drut.model.model import open_model
from drut.model.special_tokens import EscapedConversation, SpecialTokenEscaper, SpecialTokens
from drut.model.template.templates import ChatTemplates
from drut.model.tokenizer import Tokenizer
from drut.parse import choose
from drut.parse.formats import Format
from drut.parse.narrowing import FREE, Bounds
from drut.parse.reading import Reading
from drut.server.openai.protocol.errors import ApiError, too_long
from drut.server.stream.prepared_request import PreparedPrompt


@dataclass(frozen=True)
class RenderedChat:
    """The prompt of a conversation; in `text` the escapes of special tokens in messages are still there, if there is
    an `escape`."""

    text: str
    escape: EscapedConversation | None


class PromptProcessor:
    """The text processing of a model. Safe to use from several threads.

    `room`: the context length, tokens of a prompt and its output together; `max_chars`: characters of a text;
    `sampling`: defaults for fields that a request does not set.
    """

    def __init__(self, tokenizer: Tokenizer | None, vocab: int, room: int, max_chars: int,
                 *, tool_parser: str = choose.AUTO, reasoning_parser: str = choose.AUTO, tool_bounds: Bounds = FREE,
                 special_tokens: str = "text", sampling: SamplingParams = NEUTRAL) -> None:
        self.tokenizer, self.vocab, self.room, self._max_chars = tokenizer, vocab, room, max_chars
        self.sampling = sampling
        self.templates: ChatTemplates | None = None
        self._no_template: DrutError = UnsupportedError("this model has no chat template: it can continue text only")
        if tokenizer is not None and tokenizer.chat_templates:
            try:
                self.templates = ChatTemplates.of(tokenizer)
            except DrutError as error:
                self._no_template = UnsupportedError(f"this model's chat template is invalid: {error}")
        self.marks = choose.marks(reasoning_parser, self.templates)  # of reasoning; None if the model has none
        self._tool_parser, self.tool_bounds = tool_parser, tool_bounds
        self._special_tokens = special_tokens
        self._escaper = SpecialTokenEscaper(tokenizer, self.templates) if tokenizer and self.templates else None
        # A longer text has more tokens than the context length.
        self._max_prompt_chars = room * tokenizer.longest_piece if tokenizer is not None else 0

    @classmethod
    def open(cls, path: str | Path, room: int, max_chars: int, **settings: Any) -> PromptProcessor:
        """Opens the model's files. `settings`: keyword arguments of the constructor."""
        files = open_model(path)
        try:
            return cls(files.tokenizer(), files.spec.vocab, room, max_chars, **settings)
        finally:
            files.close()

    def prompt(self, prompt: str | Sequence[int], *, add_special: bool = True, echo: bool = False) -> PreparedPrompt:
        """Returns a prompt's ids. ApiError if they are outside the vocabulary or leave no room for output."""
        if isinstance(prompt, str):
            self._check_prompt(prompt, "prompt")
            ids = self.encode(prompt, add_special=add_special)
            if not ids:
                raise ApiError(400, "the prompt is empty", param="prompt")
            unwritten = len(self.encoder().rules.prefix) if add_special else 0
            return PreparedPrompt(self.checked(ids, "prompt"), prompt if echo else "", unwritten)
        ids = self.checked(list(prompt), "prompt")
        text = self.encoder().decode(ids, skip_special=False) if echo else ""
        return PreparedPrompt(ids, text)

    def chat_text(self, messages: Sequence[Mapping[str, object]], variables: Mapping[str, object],
                  tools: Sequence[Mapping[str, object]] = (), *, add_generation_prompt: bool = True,
                  continue_final: bool = False, special_tokens: SpecialTokens | None = None) -> RenderedChat:
        """Renders the prompt of a conversation, up to where the output starts. ApiError if the template refuses it.
        `special_tokens`: what texts that spell one become, by default as the server is set."""
        if self.templates is None:
            raise self._no_template
        if set_here := [name for name in variables if self.templates.plain.sets(name)]:
            raise ApiError(400, f"chat_template_kwargs: {set_here[0][:40]!r} cannot be set",
                           param="chat_template_kwargs")
        escape: EscapedConversation | None = None
        try:
            if (special_tokens or self._special_tokens) == "text" and self._escaper is not None:
                escape = self._escaper.begin(messages, tools, variables)
            return RenderedChat(self.templates.offering(tools).render(
                messages, add_generation_prompt=add_generation_prompt, tools=tools, continue_final=continue_final,
                variables=variables, **({"hide": escape.hide} if escape else {})), escape)
        except RequestError as error:
            text = str(error) if escape is None else escape.reveal(str(error))
            raise ApiError(400, text, param=error.field or "messages") from None

    def chat_ids(self, prompt: RenderedChat, *, fit: bool = True) -> list[int]:
        """Returns the ids of a rendered conversation; with `fit`, ApiError if they leave no room for output."""
        if fit:
            self._check_prompt(prompt.text, "messages")
        self._check_text(prompt.text, "messages")
        ids = (prompt.escape.encode if prompt.escape else self.encoder().encode_chat)(prompt.text)
        return self.checked(ids, "messages") if fit else ids

    def tool_format(self) -> Format:
        """Returns the format of the model's tool calls. ApiError if it is not known."""
        if self.templates is None:
            raise self._no_template
        try:
            return choose.tool_format(self._tool_parser, self.templates.with_tools)
        except UnsupportedError as error:
            raise ApiError(400, f"tools: {error}", code="unsupported_parameter", param="tools") from None

    @property
    def wants_short_ids(self) -> bool:
        """Whether the template requires ids of nine letters and digits."""
        return self.templates is not None and "[TOOL_CALLS]" in self.templates.source

    def variables(self, tools: object) -> frozenset[str]:
        """Returns the template's variables that a request with `tools`, possibly none, may set."""
        return self.templates.offering(tools).variables if self.templates is not None else frozenset()

    def spells(self, word: str) -> bool:
        """Returns whether the template has `word` as a string literal."""
        source = self.templates.source if self.templates is not None else ""
        return f'"{word}"' in source or f"'{word}'" in source

    def special_marks(self, reading: Reading) -> tuple[int, ...]:
        """Returns the special tokens among the marks of reasoning and tool calls; the output's text must have them."""
        reasoning, form = reading.reasoning, reading.form
        marks = [*((reasoning.opens, reasoning.closes) if reasoning else ()), *(form.marks if form else ())]
        ids = (self.tokenizer.id_of(mark) for mark in marks) if self.tokenizer is not None else ()
        return tuple(i for i in ids if i is not None and self.tokenizer and i in self.tokenizer.special_ids)

    def encode(self, text: str, *, add_special: bool) -> list[int]:
        """Returns the ids of a text, without a check against the context length."""
        self._check_text(text, "prompt")
        return self.encoder().encode(text, add_special=add_special)

    @property
    def why_no_chat(self) -> str:
        return str(self._no_template)

    def encoder(self) -> Tokenizer:
        if self.tokenizer is None:
            raise UnsupportedError("this model has no tokenizer: give prompts as token ids")
        return self.tokenizer

    def checked(self, ids: list[int], name: str) -> list[int]:
        if not ids:
            raise ApiError(400, f"{name} is empty", param=name)
        self.in_vocabulary(ids, name)
        if len(ids) >= self.room:
            raise too_long(len(ids), self.room, name)
        return ids

    def in_vocabulary(self, ids: Sequence[int], name: str) -> None:
        for worst in (min(ids, default=0), max(ids, default=0)):
            if not 0 <= worst < self.vocab:
                raise ApiError(400, f"{name}: token id {worst} is outside the vocabulary of {self.vocab}", param=name)

    def _check_prompt(self, text: str, field: str) -> None:
        if self.tokenizer is not None and len(text) > self._max_prompt_chars:
            raise ApiError(400, f"the prompt has {len(text)} characters; no text of more than "
                                f"{self._max_prompt_chars} fits this server's context length of {self.room} tokens",
                           code="context_length_exceeded", param=field)

    def _check_text(self, text: str, field: str) -> None:
        if len(text) > self._max_chars:
            raise ApiError(400, f"the text has {len(text)} characters; at most {self._max_chars} are tokenized "
                                "(--max-text-chars)", param=field)
