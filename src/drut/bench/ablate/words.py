"""Texts about the figures of a technique, generated from the figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from drut.bench.ablate.schema import Effect
from drut.bench.compare.schema import Block
from drut.bench.render.tables import cell
from drut.bench.result.figures import FIGURES
from drut.bench.stats.paired import MIN_ROUNDS

LITTLE = 1.1
"""A factor in both directions: a ratio whose whole interval lies within is no relevant effect. A wider interval that
contains 1 shows nothing, not even that there is no effect."""

Found = Literal["helps", "costs", "little", "uncertain"]
SHORT: dict[Found, str] = {"helps": "helps", "costs": "costs", "little": "under 10 %", "uncertain": "uncertain"}
JUDGED: dict[tuple[str, Found], str] = {
    ("helps", "helps"): "it helps, as it should",
    ("helps", "little"): "that is less than 10 % either way, though it should help",
    ("helps", "uncertain"): "no gain is visible, though there should be one",
    ("helps", "costs"): "it costs, where it should help",
    ("no effect", "helps"): "it helps even where nothing was expected",
    ("no effect", "little"): "that is less than 10 % either way, and no effect was expected",
    ("no effect", "uncertain"): "no effect is visible, and none was expected",
    ("no effect", "costs"): "it costs, where nothing was expected",
    ("costs", "helps"): "it helps, where it should cost",
    ("costs", "little"): "that is less than 10 % either way, though a cost was expected",
    ("costs", "uncertain"): "the expected cost is not visible",
    ("costs", "costs"): "that is its price, as expected",
}


def found(effect: Effect) -> Found:
    """Classifies an interval. An interval that contains 1 does not prove that there is no effect."""
    if effect.verdict != "none":
        return effect.verdict
    narrow = 1 / LITTLE <= effect.low <= effect.high <= LITTLE
    return "little" if narrow and effect.rounds >= MIN_ROUNDS else "uncertain"


def as_expected(effect: Effect) -> str:
    """Returns whether the effect is as theory predicts; empty if the interval does not show it."""
    verdict = found(effect)
    if verdict == "uncertain":
        return ""
    expected = effect.expected == ("no effect" if verdict == "little" else verdict)
    return "as expected" if expected else "not as expected"


def shows(effects: Sequence[Effect], blocks: Sequence[Block]) -> str:
    """Returns one paragraph: each judged figure with both sides, their ratio and its interval, compared with the
    prediction; then the blocks that do not count. `effects` and `blocks` are those of one technique."""
    if not effects:
        return _not_measured(blocks)
    sentences = [_sentence(effect) for effect in effects]
    void = [block for block in blocks if not block.valid]
    if void:
        sentences.append(f"{len(void)} of {len(blocks)} blocks are void and do not count ({void[0].reasons[0]}).")
    return " ".join(sentences)


def interval(effect: Effect) -> str:
    """Formats on/off with its 95 % interval, for tables."""
    return f"{effect.ratio:.2f} ({effect.low:.2f} .. {effect.high:.2f})"


def _sentence(effect: Effect) -> str:
    kind = FIGURES[effect.figure]
    unit = "" if kind.unit == "share" else f" {kind.unit}"
    text = (f"With {effect.cell}, {_small(kind.title)} is {cell(effect.on)}{unit} on and {cell(effect.off)} off, "
            f"{effect.ratio:.2f} times ({effect.low:.2f} to {effect.high:.2f}, {effect.rounds} rounds)")
    return f"{text}: {JUDGED[effect.expected, found(effect)]}."


def _small(title: str) -> str:
    """Returns a title within a sentence: `the p99 of ITL`, `output`."""
    what, comma, which = title.partition(", ")
    return f"the {which} of {what}" if comma else what[0].lower() + what[1:]


def _not_measured(blocks: Sequence[Block]) -> str:
    if not blocks:
        return "Not measured."
    void = [block for block in blocks if not block.valid]
    lost = f", and {len(void)} of {len(blocks)} blocks are void ({void[0].reasons[0]})" if void else ""
    return f"No result: two rounds of both sides are needed{lost}."
