"""Encodes text to token ids and decodes them, for vocabularies of any file format."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property

import tokenizers
from tokenizers import AddedToken, models

from drut.errors import ModelFileError, RequestError
from drut.model.tokenizer.detokenize import Detokenizer
from drut.model.tokenizer.pieces import ByteLevelPieces, Pieces
from drut.model.tokenizer.prefix import without_prefix
from drut.model.tokenizer.words import bound_words

LONG_TEXT = 4096  # characters; encoding so many takes some milliseconds


@dataclass(frozen=True)
class TextRules:
    """The text settings of a model file in addition to the vocabulary.

    `prefix` and `suffix` are the ids around a text with `add_special`: BOS and EOS in most models.
    """

    bos_id: int | None = None
    eos_ids: frozenset[int] = frozenset()
    eos_id: int | None = None  # `eos_token` of chat templates
    prefix: tuple[int, ...] = ()
    suffix: tuple[int, ...] = ()
    chat_template: str | None = None
    named_templates: Mapping[str, str] = field(default_factory=dict)  # further chat templates


class Tokenizer:
    """A vocabulary with its rules. Threads: safe to use from several threads.

    `name` is the model's name, for messages. `added` tokens are matched in text before all others; they are in order of
    id. Raises ModelFileError if `added` or `rules` do not fit the vocabulary.
    """

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        added: Iterable[tuple[int, AddedToken]],
        pieces: Pieces,
        rules: TextRules,
        name: str,
        *,
        literal: models.Model | None = None,
    ) -> None:
        """`literal`: the model for texts in which special tokens are ordinary text, if it differs."""
        added = list(added)
        bound_words(backend, name)
        self.name = name
        self.rules = rules
        self.special_ids = frozenset(i for i, token in added if token.special)
        self.stripped_spaces = pieces.stripped_spaces
        self._backend, self._added = backend, added
        self._literal = _literal_copy(backend, added, name, literal)
        self._pieces = pieces
        # The library's byte-level decoder would break some added tokens into bytes that are not text.
        spelled = isinstance(pieces, ByteLevelPieces)
        self._bytes = {i: token.content.encode() for i, token in added} if spelled else {}
        self.vocab_size = max([backend.get_vocab_size(with_added_tokens=True), *(i + 1 for i, _ in added)])
        for token_id in (rules.bos_id, rules.eos_id, *rules.eos_ids, *rules.prefix, *rules.suffix):
            if token_id is not None and not 0 <= token_id < self.vocab_size:
                raise ModelFileError(f"{name}: special token id {token_id} is outside the vocabulary")

    @property
    def special_texts(self) -> list[str]:
        """The texts of the special tokens."""
        return [token.content for _, token in self._added if token.special]

    @cached_property
    def normalizes_special(self) -> bool:
        """Whether a text that the normalizer changes may become a special token."""
        return self._backend.normalizer is not None and any(t.special and t.normalized for _, t in self._added)

    @property
    def bos_id(self) -> int | None:
        return self.rules.bos_id

    @property
    def eos_ids(self) -> frozenset[int]:
        """Every id that ends an output."""
        return self.rules.eos_ids

    @property
    def add_bos(self) -> bool:
        """Whether `encode` puts BOS in front of a text."""
        return self.rules.bos_id is not None and self.rules.bos_id in self.rules.prefix

    @cached_property
    def longest_piece(self) -> int:
        """The number of characters of the longest vocabulary entry; n tokens have at most n times as many."""
        return max(map(len, self._backend.get_vocab(with_added_tokens=True)), default=1)

    @property
    def chat_template(self) -> str | None:
        return self.rules.chat_template

    @property
    def chat_templates(self) -> dict[str, str]:
        """All chat templates by name; the one without a name is called `default`."""
        default = {} if self.rules.chat_template is None else {"default": self.rules.chat_template}
        return default | dict(self.rules.named_templates)

    @property
    def bos_token(self) -> str:
        """The text of BOS; empty if there is none."""
        return self._text_of(self.rules.bos_id)

    @property
    def eos_token(self) -> str:
        """The text of the main EOS; empty if there is none."""
        return self._text_of(self.rules.eos_id)

    def encode(self, text: str, *, add_special: bool = True, parse_special: bool = True) -> list[int]:
        """Returns the ids of `text`. Raises RequestError if it is not valid Unicode.

        `add_special` adds BOS and the like if the model's file has it so. Without `parse_special`, a special token
        spelled in the text is ordinary text.
        """
        _check_text(text)
        backend = self._backend if parse_special else self._literal
        ids = encode(backend, text, self.name)
        return [*self.rules.prefix, *ids, *self.rules.suffix] if add_special else ids

    def encode_more(self, text: str, *, parse_special: bool = True) -> list[int]:
        """Returns the ids of `text` that follows other text, without the space that some tokenizers put in front."""
        _check_text(text)
        parsing, literal = self._following
        return encode(parsing if parse_special else literal, text, self.name)

    @cached_property
    def _following(self) -> tuple[tokenizers.Tokenizer, tokenizers.Tokenizer]:
        """The backends of `encode_more`: for text with special tokens, and without."""
        parts = without_prefix(self._backend)
        if parts is None:
            return self._backend, self._literal
        made = tuple(_copy(backend, self._added, self.name) for backend in (self._backend, self._literal))
        for copy in made:
            copy.normalizer, copy.pre_tokenizer = parts
        made[1].encode_special_tokens = True
        return made[0], made[1]

    def encode_chat(self, rendered: str) -> list[int]:
        """Returns the ids of a rendered chat prompt, with one BOS (or the model's other prefix), whether or not the
        template writes it, and without an added EOS.

        A template writes BOS if it precedes all text that is not white space.
        """
        ids = self.encode(rendered, add_special=False)
        begin, first = rendered.lstrip(), self._text_of(next(iter(self.rules.prefix), None))
        written = any(text and begin.startswith(text) for text in (self.bos_token, first))
        return ids if written else [*self.rules.prefix, *ids]

    def decode(self, ids: Iterable[int], *, skip_special: bool = True) -> str:
        """Returns the text of a whole sequence, the same text as a Detokenizer at the start of a text gives."""
        stream = Detokenizer(self, skip_special=skip_special, at_start=True)
        return stream.push(ids) + stream.flush()

    def to_json(self) -> str:
        """Returns the contents of a tokenizer.json, for other libraries, without BOS and EOS, which `encode` adds."""
        return str(self._backend.to_str())

    def token_bytes(self, token_id: int) -> bytes:
        """Returns the bytes that a token adds to the text; none for an id outside the vocabulary."""
        found = self._bytes.get(token_id)
        if found is None:
            piece = self.piece(token_id)
            if piece is None:
                return b""
            found = self._bytes[token_id] = self._pieces.to_bytes(piece)
        return found

    def first_bytes(self, token_id: int) -> bytes | None:
        """Returns the bytes of the first token of a text; None for an id outside the vocabulary."""
        piece = self.piece(token_id)
        if piece is None or isinstance(self._pieces, ByteLevelPieces):
            return None if piece is None else self.token_bytes(token_id)
        return self._pieces.to_bytes(piece, first=True)

    def piece(self, token_id: int) -> str | None:
        """Returns a vocabulary entry in the file's spelling; None for an id outside the vocabulary."""
        piece: str | None = self._backend.id_to_token(token_id) if 0 <= token_id < 1 << 32 else None
        return piece

    def id_of(self, token: str) -> int | None:
        """Returns the id of a vocabulary entry in the file's spelling; None if there is none."""
        found: int | None = self._backend.token_to_id(token)
        return found

    def _text_of(self, token_id: int | None) -> str:
        return "" if token_id is None else self.token_bytes(token_id).decode(errors="replace")


def encode(
    backend: tokenizers.Tokenizer, text: str, name: str, *, add_special_tokens: bool = False
) -> list[int]:
    """Returns ids from the library. Raises ModelFileError if the vocabulary's own rules make it fail.

    Threads: a long text is encoded as a batch of one, because the library holds the interpreter's lock while it encodes
    a single text, and for a million characters no other thread would run for seconds.
    """
    with library(f"{name}: the tokenizer cannot encode this text"):
        if len(text) > LONG_TEXT:
            (encoding,) = backend.encode_batch([text], add_special_tokens=add_special_tokens)
        else:
            encoding = backend.encode(text, add_special_tokens=add_special_tokens)
        ids: list[int] = encoding.ids
        return ids


@contextmanager
def library(what: str) -> Iterator[None]:
    """Turns any error of the tokenizers library into a ModelFileError that begins with `what`.

    A panic of the library, for example by a regular expression that backtracks without end or a piece that is too
    short, is not an Exception.
    """
    try:
        yield
    except BaseException as error:
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":
            reason = " ".join(str(error).split())[:120]
            raise ModelFileError(f"{what}: {reason}") from None
        raise


def _check_text(text: str) -> None:
    if not isinstance(text, str):
        raise RequestError(f"text must be a string, not {type(text).__name__}")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        code = ord(text[error.start])
        raise RequestError(f"text has a lone surrogate, U+{code:04X}, at character {error.start}") from None


def _literal_copy(
    backend: tokenizers.Tokenizer, added: list[tuple[int, AddedToken]], name: str, model: models.Model | None
) -> tokenizers.Tokenizer:
    """Returns a tokenizer with the same vocabulary (shared, unless there is `model`), for which special tokens in a
    text are ordinary text.

    Threads: the library has this as a property of the tokenizer, and two threads may need both values at once.
    """
    copy = _copy(backend, added, name)
    for token_id, token in added:
        if not backend.token_to_id(token.content) == copy.token_to_id(token.content) == token_id:
            raise ModelFileError(f"{name}: added token {token.content[:40]!r} cannot have the id {token_id}")
    if model is not None:
        copy.model = model
    copy.encode_special_tokens = True
    return copy


def _copy(backend: tokenizers.Tokenizer, added: list[tuple[int, AddedToken]], name: str) -> tokenizers.Tokenizer:
    """Returns another tokenizer with the same parts and added tokens."""
    with library(f"{name}: added tokens"):
        copy = tokenizers.Tokenizer(backend.model)
        copy.normalizer = backend.normalizer
        copy.pre_tokenizer = backend.pre_tokenizer
        copy.add_tokens([token for _, token in added])
    return copy
