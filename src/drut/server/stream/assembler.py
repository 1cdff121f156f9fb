"""Assembles chunks of the engine to pieces of a reply. A whole reply is all pieces merged, so it equals the stream."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from drut.engine.request.output import Chunk, Completion
from drut.model.tokenizer import Detokenizer, Tokenizer
from drut.server.admission import RequestRecord
from drut.server.stream.logprob_bytes import ScoreRow
from drut.server.stream.prepared_request import PreparedPrompt, PreparedRequest

CHUNK_BYTES, TOKEN_BYTES, SCORE_BYTES = 64, 8, 64  # estimated sizes of buffered output


class LogprobEntry(NamedTuple):
    """A token with its logprobs; `offset`: characters of the choice's text before it."""

    token: int
    offset: int
    row: ScoreRow


@dataclass(frozen=True)
class ScoredPrompt:
    """A prompt's tokens and their logprobs, shared by all its choices. Their JSON is made when it is written."""

    prompt: PreparedPrompt
    rows: list[ScoreRow | None]
    tokenizer: Tokenizer | None

    def offsets(self) -> Iterator[int]:
        """Yields, for each token, the characters of the prompt's text before it."""
        spell = self.tokenizer and Detokenizer(self.tokenizer, skip_special=False, at_start=True)
        offset = 0
        for i, token in enumerate(self.prompt.ids):
            yield offset
            if spell and i >= self.prompt.unwritten:
                offset += len(spell.push((token,)))


@dataclass
class TextPiece:
    """New output of one choice. `index` counts the choices of all prompts. `entries` are the output tokens, `echoed`
    the prompt that the reply repeats."""

    index: int
    prompt: PreparedPrompt
    first: bool = False
    text: str = ""
    ids: list[int] = field(default_factory=list)
    entries: list[LogprobEntry] = field(default_factory=list)
    echoed: ScoredPrompt | None = None
    prompt_logprobs: list[ScoreRow | None] | None = None
    end: Completion | None = None
    tokens_so_far: int = 0

    def scores(self) -> Iterator[tuple[int, ScoreRow | None]]:
        """Yields each token with its logprobs, the prompt's first."""
        if self.echoed is not None:
            yield from zip(self.echoed.prompt.ids, self.echoed.rows, strict=True)
        for token, _, row in self.entries:
            yield token, row

    def offsets(self) -> Iterator[int]:
        """Yields the characters of the choice's text before each of these tokens."""
        if self.echoed is not None:
            yield from self.echoed.offsets()
        for entry in self.entries:
            yield entry.offset

    @property
    def scored(self) -> int:
        """The number of tokens with logprobs."""
        return len(self.entries) + len(self.echoed.rows if self.echoed else self.prompt_logprobs or ())


class ChoiceAssembler:
    """The output of one choice as it grows. A token's logprobs are sent with its text, so those of a stop string are
    never sent."""

    def __init__(self, index: int, prompt: PreparedPrompt, job: PreparedRequest, tokenizer: Tokenizer | None) -> None:
        self._index, self._prompt, self._job, self._tokenizer = index, prompt, job, tokenizer
        self._held: deque[LogprobEntry] = deque()  # entries whose text is not sent yet
        self._decoded = self._out = 0  # characters: of all tokens so far, of the text that was sent
        self._pending: TextPiece | None = None
        self._begun = False
        self.tokens = 0
        self.end: Completion | None = None

    def push(self, chunk: Chunk, prompt_logprobs: list[ScoreRow | None] | None) -> None:
        piece = self._pending = self._pending or TextPiece(self._index, self._prompt)
        if not self._begun:
            self._begin(piece, prompt_logprobs)
        self.end = piece.end = chunk.completion
        if self._job.scoring:
            return
        self.tokens += len(chunk.token_ids)
        piece.tokens_so_far = self.tokens
        piece.text += chunk.text
        piece.ids += chunk.token_ids
        if self._job.logprobs:
            self._out += len(chunk.text)
            for token, scores, length in zip(chunk.token_ids, chunk.logprobs or (), chunk.text_lengths or (),
                                             strict=True):
                self._held.append(LogprobEntry(token, self._decoded, ScoreRow.of(scores)))
                self._decoded += length
            piece.entries += self._released()

    def take(self) -> TextPiece | None:
        piece, self._pending = self._pending, None
        return piece

    def _begin(self, piece: TextPiece, prompt_logprobs: list[ScoreRow | None] | None) -> None:
        self._begun = piece.first = True
        piece.prompt_logprobs = prompt_logprobs if self._job.prompt_logprobs else None
        if not self._job.echo:
            return
        piece.text = self._prompt.text
        self._decoded = self._out = len(self._prompt.text)
        if self._job.echo_scores and prompt_logprobs is not None:
            piece.echoed = ScoredPrompt(self._prompt, prompt_logprobs, self._tokenizer)

    def _released(self) -> list[LogprobEntry]:
        """Removes and returns the entries whose text was sent; at the end all, except those of a stop string."""
        entries, stopped = [], self.end is not None and isinstance(self.end.stop_reason, str)
        while self._held:
            after = self._held[1].offset if len(self._held) > 1 else self._decoded
            if stopped and self._held[0].offset >= self._out:
                self._held.clear()
            elif self.end is not None or after <= self._out:
                entries.append(self._held.popleft())
            else:
                break
        return entries


class Assembler:
    """The output of all choices of one request. `backlog`: estimated bytes since the last `take`."""

    def __init__(self, job: PreparedRequest, tokenizer: Tokenizer | None) -> None:
        self._job, self._n = job, job.params.n
        self._choices = [ChoiceAssembler(p * self._n + i, prompt, job, tokenizer)
                         for p, prompt in enumerate(job.prompts) for i in range(self._n)]
        self._wants_prompt = job.params.prompt_logprobs is not None
        self._scored: dict[int, list[ScoreRow | None]] = {}  # by prompt
        self._early: dict[int, list[Chunk]] = {}  # by prompt: output that waits for the prompt's logprobs
        self._news: dict[ChoiceAssembler, None] = {}  # an ordered set
        self.backlog = 0
        self.records: list[RequestRecord] = []  # of the prompts, if the reply has timings

    def push(self, prompt: int, chunk: Chunk) -> bool:
        """Adds a chunk; returns whether there is new output.

        If prompt logprobs are wanted, output of a prompt waits until all of them have come. The prompt's first choice
        has them, in one chunk or several.
        """
        scores = len(chunk.logprobs[0]) if chunk.logprobs else 0
        self.backlog += CHUNK_BYTES + len(chunk.text) + len(chunk.token_ids) * (TOKEN_BYTES + scores * SCORE_BYTES)
        if self._wants_prompt:
            rows = self._scored.setdefault(prompt, [])
            rows += [None if scores is None else ScoreRow.of(scores) for scores in chunk.prompt_logprobs or ()]
            if len(rows) < len(self._job.prompts[prompt].ids):
                if chunk.token_ids:
                    self._early.setdefault(prompt, []).append(chunk)
                return False
            for early in self._early.pop(prompt, ()):
                self._push(prompt, early)
        self._push(prompt, chunk)
        return True

    def _push(self, prompt: int, chunk: Chunk) -> None:
        choice = self._choices[prompt * self._n + chunk.index]
        choice.push(chunk, self._scored.get(prompt))
        self._news[choice] = None

    def take(self) -> list[TextPiece]:
        """Removes and returns the new output, one piece for each choice, in the order of their first chunks."""
        pieces = [piece for choice in self._news if (piece := choice.take()) is not None]
        self._news.clear()
        self.backlog = 0
        return pieces

    @property
    def completion_tokens(self) -> int:
        return sum(c.tokens for c in self._choices)

    @property
    def reasoning_tokens(self) -> int:
        return sum(c.end.reasoning_tokens or 0 for c in self._choices if c.end is not None)

    @property
    def cached_tokens(self) -> int:
        """Prompt tokens found in the prefix cache: those of each prompt's first choice, which computes it."""
        return sum(c.end.cached_tokens for c in self._choices[:: self._n] if c.end is not None)
