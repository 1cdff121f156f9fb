"""Groups of prompts with a common prefix."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from drut.bench.work import ConversationTurn, Session
from drut.bench.workloads.texts import WorkloadTexts
from drut.bench.workloads.workload import Workload, WorkloadContext
from drut.config import setting

_PREFIX, _SUFFIX, _PRIMER = 0, 1, 2  # keys of texts
_KEPT_PREFIXES = 64


@dataclass(frozen=True)
class SharedPrefix(Workload):
    name = "shared-prefix"
    help = "prompts with the prefix of their group and a suffix of their own; endless"

    groups: int = setting(8, "number of prefixes; a prompt's group is drawn at random", type=int, least=1, most=1 << 20)
    prefix: int = setting(1024, "tokens of a prefix", type=int, least=1, most=1 << 20)
    suffix: str = setting("128", "tokens of a suffix, as a length or distribution (see synthetic)")
    output: str = setting("128", "tokens of an answer, in the same forms")

    def sessions(self, context: WorkloadContext) -> Iterator[Session]:
        suffixes, outputs, texts = self.lengths("suffix"), self.lengths("output"), context.texts

        @lru_cache(_KEPT_PREFIXES)
        def prefix_of(group: int) -> str:
            return self._prefix(texts, group)

        def make() -> Iterator[Session]:
            i = 0
            while True:
                rng = context.rng(i)
                group, length, answer = int(rng.integers(self.groups)), suffixes.draw(rng), outputs.draw(rng)
                text = self._prompt(texts, prefix_of(group), length, _SUFFIX, i)
                turn = context.ask(text, answer, tokens=self.prefix + length, exact=True)
                yield Session(f"{self.name}-{i}-group-{group}", [turn])
                i += 1

        return make()

    def primers(self, context: WorkloadContext) -> list[ConversationTurn]:
        """Returns each group's prefix with a suffix that no session has; none if there are more groups than a cache is
        likely to hold."""
        if self.groups > _KEPT_PREFIXES:
            return []
        suffixes, texts, found = self.lengths("suffix"), context.texts, []
        for group in range(self.groups):
            length = suffixes.draw(context.rng(group, _PRIMER))
            text = self._prompt(texts, self._prefix(texts, group), length, _PRIMER, group)
            found.append(context.ask(text, 1, tokens=self.prefix + length))
        return found

    def _prefix(self, texts: WorkloadTexts, group: int) -> str:
        def make(n: int) -> str:
            return texts.piece(n, _PREFIX, group, label=(group, self.groups))

        return texts.exact(make, self.prefix)

    def _prompt(self, texts: WorkloadTexts, prefix: str, length: int, *key: int) -> str:
        def make(n: int) -> str:
            return prefix + texts.piece(n - self.prefix, *key, inside=True)

        return texts.exact(make, self.prefix + length)
