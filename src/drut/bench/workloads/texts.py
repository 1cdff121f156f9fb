"""Texts of exactly n tokens by the target's tokenizer, from lines of Shakespeare.

A text is a word of one token, whole lines, each preceded by a space, and words of one token that fill the rest.
Tokenizers split text at spaces before they merge, so the tokens of the parts add up; because that is not guaranteed,
every text is encoded once more and corrected if necessary.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache

import numpy as np
import numpy.typing as npt

from drut.bench.tokens import BenchTokenizer
from drut.bench.workloads.packed import read_text
from drut.errors import RequestError

_WORDS = 800  # tried as fillers
_REMOTE_WORDS, _REMOTE_LINES = 48, 256  # for a tokenizer behind a network, where counting a line is a request
_MENDS = 12
_BASE = "The"


def generator(seed: Sequence[int], key: Sequence[int]) -> np.random.Generator:
    """Returns a generator for a seed and a key; as a single list, [1] and [1, 0] would be the same to NumPy."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))


@cache
def _corpus() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns the lines, each preceded by a space, and the words, most frequent first."""
    text = read_text("shakespeare.txt")
    lines = (" " + " ".join(line.split()) for line in text.splitlines() if line.strip())
    words = Counter(word for word in text.split() if word.isascii() and word.isalpha())
    return tuple(lines), tuple(word for word, _ in words.most_common(_WORDS))


class WorkloadTexts:
    """A source of texts. The same `seed` (numbers) and key give the same text, independent of earlier calls.

    Raises RequestError if no text of a given length can be made with the tokenizer.
    """

    def __init__(self, tokenizer: BenchTokenizer, seed: Sequence[int]) -> None:
        self.tokenizer = tokenizer
        self._seed = seed
        lines, words = _corpus()
        self._lines = lines[:_REMOTE_LINES] if tokenizer.remote else lines
        self._counts = np.full(len(self._lines), -1, np.int64)  # tokens of each line, once known
        self._base = tokenizer.count(_BASE)
        tried = words[: _REMOTE_WORDS if tokenizer.remote else _WORDS]
        self._fillers = self._one_token_each([" " + word for word in tried]) or self._one_character()
        self._first = [word for word in tried if tokenizer.count(word) == 1] or [
            letter for letter in _LETTERS if tokenizer.count(letter) == 1]
        if not self._fillers or not self._first:
            raise RequestError(f"tokenizer {tokenizer.name}: no word or letter is one token; no text of a given length "
                               "can be made")

    def text(self, n: int, *key: int) -> str:
        """Returns a text of exactly `n` tokens."""
        return self.exact(lambda target: self.piece(target, *key), n)

    def piece(self, n: int, *key: int, inside: bool = False, label: tuple[int, int] | None = None) -> str:
        """Returns a text whose parts sum to `n` tokens; if `inside`, it begins with a space and follows another text.

        `label` (i, of how many) makes texts with different i differ within their first three tokens, or a few more if
        the vocabulary has no words.
        """
        rng = generator(self._seed, key)
        parts = [] if inside else [self._first[rng.integers(len(self._first))]]
        if label is not None:
            parts += self._digits(*label)
        left = n - len(parts)
        if left < 0:
            return "".join(parts[:n])
        return "".join([*parts, *self._fill(self._random_lines(rng, left), left, rng)])

    def passage(self, n: int, start: int, *key: int) -> str:
        """Returns `n` tokens of lines in their original order from line `start` on, to follow another text."""
        indices = (np.arange(at, at + 64) % len(self._lines) for at in range(start, start + (n << 3) + 64, 64))
        return "".join(self._fill(indices, n, generator(self._seed, key)))

    def added(self, text: str) -> int:
        """Returns the number of tokens that `text`, which begins with a space, adds to a text before it."""
        return self.tokenizer.count(_BASE + text) - self._base

    def exact(self, make: Callable[[int], str], n: int) -> str:
        """Returns the result of `make(target)` with exactly `n` tokens; `target` is n unless the tokens of the parts do
        not add up."""
        target = n
        for _ in range(_MENDS):
            text = make(target)
            count = self.tokenizer.count(text)
            if count == n:
                return text
            target += n - count
            if target < 1:
                break
        raise RequestError(f"tokenizer {self.tokenizer.name}: no text of exactly {n} tokens could be made")

    def _fill(self, batches: Iterable[npt.NDArray[np.int64]], n: int, rng: np.random.Generator) -> Iterator[str]:
        """Yields lines from `batches` of indices while they fit into `n` tokens, then words of one token."""
        for indices in batches:
            ends = np.cumsum(self._tokens_of(indices))
            fitting = int(np.searchsorted(ends, n, side="right"))
            yield from (self._lines[i] for i in indices[:fitting])
            n -= int(ends[fitting - 1]) if fitting else 0
            if fitting < len(indices):
                break
        yield from (self._fillers[i] for i in rng.integers(len(self._fillers), size=n))

    def _random_lines(self, rng: np.random.Generator, n: int) -> Iterator[npt.NDArray[np.int64]]:
        size = n // 8 + 4  # a line has about ten tokens
        while True:
            yield rng.integers(len(self._lines), size=size)

    def _tokens_of(self, indices: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        counts = self._counts[indices]
        if (counts < 0).any():
            for i in {int(i) for i in indices[counts < 0]}:
                self._counts[i] = max(1, self.added(self._lines[i]))
            counts = self._counts[indices]
        return counts

    def _digits(self, i: int, of: int) -> list[str]:
        """Returns `i` written with fillers (or letters, if there is only one filler) as digits, as many as `of`
        needs."""
        alphabet = self._fillers if len(self._fillers) > 1 else _LETTERS
        base, digits = len(alphabet), []
        while of > 1:
            digits.append(alphabet[i % base])
            i, of = i // base, -(-of // base)
        return digits

    def _one_token_each(self, candidates: list[str]) -> list[str]:
        return [c for c in candidates if self.added(c) == 1 and self.added(c + c) == 2]

    def _one_character(self) -> list[str]:
        """Returns fillers for vocabularies of single characters: letters of which repetitions, too, are one token
        each."""
        return [letter for letter in _LETTERS if self.added(letter * 16) == 16][:1]


_LETTERS = [chr(code) for code in range(ord("a"), ord("z") + 1)]
