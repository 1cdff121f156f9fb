"""The remarks that a reader of a comparison needs in addition to its figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from statistics import median

from drut.bench.compare.cells import parse_cells
from drut.bench.compare.enough import answers, least_answers
from drut.bench.compare.gates import gsm8k_meaningful
from drut.bench.compare.schema import GSM8K_LEAST, Block, Contestant
from drut.bench.compare.settings import CompareSettings
from drut.bench.stats.paired import MIN_ROUNDS

BUSY_CLIENT = 0.4


def notes(settings: CompareSettings, contestants: Sequence[Contestant], blocks: Sequence[Block],
          base: str, against: str) -> list[str]:
    """Returns sentences. `base` is the requested base; ratios are `against` the actual one."""
    return list(_notes(settings, contestants, blocks, base, against))


def _notes(settings: CompareSettings, contestants: Sequence[Contestant], blocks: Sequence[Block],
           base: str, against: str) -> Iterator[str]:
    if base != against:
        yield f"Ratios are against {against}: the base, {base}, was not measured or did not pass the gate."
    if settings.gate != "full":
        yield "The gate judged the lengths of answers alone; agreement is reported, not judged."
    if settings.rounds < MIN_ROUNDS:
        yield f"{settings.rounds} rounds: too few for a ranking, which needs {MIN_ROUNDS}."
    yield from _void(blocks)
    yield from _few(blocks)
    yield from _cold(settings, blocks)
    used = [use for block in blocks if isinstance(use := block.figures.get("client_cpu"), float)]
    if used:
        busy = " Engines share the machine with it." if max(used) > BUSY_CLIENT else ""
        yield f"The load client's busiest process used {max(used):.0%} of a CPU at most.{busy}"
    if settings.restart:
        yield "Engines were ended after their turns, and started again for the next."
    weights = {c.weights for c in contestants if c.weights and c.outcome == "measured"}
    if len(weights) > 1:
        yield f"Not all engines read the same weights: {', '.join(sorted(weights))}."
    yield from _gates([c for c in contestants if c.gate is not None], settings)
    for contestant in contestants:
        if contestant.gate is not None and contestant.gate.schema_valid is None and settings.gate == "full":
            yield f"{contestant.name}: structured output is not supported."
        known = filter(None, map(_versions, [*contestant.earlier, contestant.versions]))
        versions = [name for name, _ in groupby(known)]
        if len(versions) > 1:
            yield f"{contestant.name}: its rounds were measured with several versions: {', then '.join(versions)}."


def _gates(contestants: Sequence[Contestant], settings: CompareSettings) -> Iterator[str]:
    """Yields what the gate could not judge."""
    if settings.gate != "full":
        return
    gates = [contestant.gate for contestant in contestants if contestant.gate is not None]
    blind = [c.name for c in contestants if c.gate is not None and c.gate.perplexity_increase is None]
    if blind:
        yield (f"{', '.join(blind)}: no logprobs of prompts that can be compared; greedy answers alone show that the "
               "model is computed as it should be.")
    if any(gate.sums for gate in gates) and not gsm8k_meaningful(gates):
        yield (f"GSM8K is neither shown nor judged: no engine has more than {GSM8K_LEAST:.0%} of it right, so it "
               "does not measure this model.")


def _versions(versions: Mapping[str, str]) -> str:
    return " ".join(f"{name} {version}" for name, version in versions.items())


def _few(blocks: Sequence[Block]) -> Iterator[str]:
    least = least_answers("e2e_ms_p99")
    if any(block.valid and answers(block) < least for block in blocks):
        yield (f"A turn with fewer than {least} responses has no p99 of TTFT, TPOT and E2E: it would be the "
               "slowest response.")


def _cold(settings: CompareSettings, blocks: Sequence[Block]) -> Iterator[str]:
    """Yields a note if, in an open loop, the window begins before the first responses of the load have ended."""
    for cell in (cell for cell in parse_cells(settings.cells) if cell.rate is not None):
        mine = [block for block in blocks if block.valid and block.cell == cell.name]
        for name in dict.fromkeys(block.contestant for block in mine):
            took = [ms for block in mine if block.contestant == name for ms in block.samples.get("e2e_ms", ())]
            if took and median(took) > settings.warmup * 1e3:
                yield (f"{name}, {cell.name}: its responses take {median(took) / 1e3:.3g} s, longer than the warm-up, "
                       "so that its turns begin with a lower load than later: its rates are underestimated, its waits "
                       "too short.")


def _void(blocks: Sequence[Block]) -> Iterator[str]:
    void = Counter((block.contestant, block.cell) for block in blocks if not block.valid)
    for (name, cell), count in void.items():
        mine = [block for block in blocks if (block.contestant, block.cell) == (name, cell)]
        again = sum(block.again for block in mine)
        what = f"turns (second tries: {again})" if again else "turns"
        yield (f"{name}, {cell}: {count} of {len(mine)} {what} are void and do not count, such as: "
               f"{next(reason for block in mine for reason in block.reasons)}.")
