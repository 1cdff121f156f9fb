"""The method `auto`: asks several drafters, and proposes for each sequence the drafts of the one that is expected to
have the most accepted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from drut.speculate.acceptance import Acceptance, DraftLog
from drut.speculate.drafter import Drafter, DraftInput, VerifiedDrafts


class ChoosingDrafter:
    """Compares the drafts of each drafter with the tokens that came, also of those that were not verified."""

    def __init__(self, drafters: Mapping[str, Drafter], positions: int) -> None:
        """`drafters`: by method, in the order of preference; `positions`: maximum drafts of a sequence."""
        self._drafters, self._positions = dict(drafters), positions
        self._all = {name: Acceptance(positions) for name in drafters}
        self._logs = {name: DraftLog() for name in drafters}
        self._sequences: dict[int, dict[str, Acceptance]] = {}
        self._chosen: dict[int, str] = {}  # by sequence

    def propose(self, inputs: Sequence[DraftInput]) -> list[Sequence[int]]:
        made = {name: drafter.propose(inputs) for name, drafter in self._drafters.items()}
        return [self._choose(given, {name: drafts[i] for name, drafts in made.items()})
                for i, given in enumerate(inputs)]

    def _choose(self, given: DraftInput, drafts: Mapping[str, Sequence[int]]) -> Sequence[int]:
        rates = self._sequences.get(given.sequence)
        if rates is None:
            rates = {name: Acceptance(self._positions, parent) for name, parent in self._all.items()}
            self._sequences[given.sequence] = rates
        for name, log in self._logs.items():
            if outcome := log.settle(given.sequence, given.tokens):
                rates[name].observe(*outcome)
            log.add(given.sequence, len(given.tokens), drafts[name])
        chosen = max(drafts, key=lambda name: sum(rates[name].survival(len(drafts[name]))))
        self._chosen[given.sequence] = chosen
        return drafts[chosen]

    def commit(self, verified: Sequence[VerifiedDrafts]) -> None:
        for drafter in self._drafters.values():
            drafter.commit(verified)

    def method(self, sequence: int) -> str:
        return self._drafters[self._chosen[sequence]].method(sequence)

    def forget(self, sequence: int) -> None:
        self._sequences.pop(sequence, None)
        self._chosen.pop(sequence, None)
        for log in self._logs.values():
            log.forget(sequence)
        for drafter in self._drafters.values():
            drafter.forget(sequence)
