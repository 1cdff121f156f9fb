"""Groups of prompts that begin alike."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from drut.bench.work import Session
from drut.bench.workloads.workload import Context, Workload
from drut.config import setting

_PREFIX, _SUFFIX = 0, 1  # keys of texts
_KEPT_PREFIXES = 64


@dataclass(frozen=True)
class SharedPrefix(Workload):
    name = "shared-prefix"
    help = "prompts of a prefix that is their group's and a suffix that is their own; endless"

    groups: int = setting(8, "how many prefixes; a prompt's group is drawn at random", type=int, least=1, most=1 << 20)
    prefix: int = setting(1024, "tokens of a prefix", type=int, least=1, most=1 << 20)
    suffix: str = setting("128", "tokens of a suffix, as a length or distribution (see synthetic)")
    output: str = setting("128", "tokens of an answer, in the same forms")

    def sessions(self, context: Context) -> Iterator[Session]:
        suffixes, outputs, texts = self.lengths("suffix"), self.lengths("output"), context.texts

        @lru_cache(_KEPT_PREFIXES)
        def prefix_of(group: int) -> str:
            def make(n: int) -> str:
                return texts.piece(n, _PREFIX, group, label=(group, self.groups))

            return texts.exact(make, self.prefix)

        def make() -> Iterator[Session]:
            i = 0
            while True:
                rng = context.rng(i)
                group, length, answer = int(rng.integers(self.groups)), suffixes.draw(rng), outputs.draw(rng)
                text = self._prompt(context, prefix_of(group), length, i)
                turn = context.ask(text, answer, tokens=self.prefix + length, exact=True)
                yield Session(f"{self.name}-{i}-group-{group}", [turn])
                i += 1

        return make()

    def _prompt(self, context: Context, prefix: str, length: int, i: int) -> str:
        def make(n: int) -> str:
            return prefix + context.texts.piece(n - self.prefix, _SUFFIX, i, inside=True)

        return context.texts.exact(make, self.prefix + length)
