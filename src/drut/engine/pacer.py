"""How much of the prompts may ride along with decoding streams, so that none of them stalls.

A step with prompt tokens may take so many times what it would without them. What a token adds grows with the positions
it attends to, so chunks shrink along a prompt. What steps take is the predictor's to say; so that it can tell what
decoding takes from what prompts add, now and then a step has none.
"""

from __future__ import annotations

from collections.abc import Collection

from drut.engine.work import Work
from drut.kernels.cost import StepShape
from drut.kernels.predictor import Predictor

STALL = 1.7  # a step with prompt tokens may take this many times a step without
LEAST = 4  # prompt tokens that else always may
PLAIN_EVERY = 16  # steps with prompts between two without, which tell what decoding takes now


class Pacer:
    """Rations the rows of prompts in a step."""

    def __init__(self, predictor: Predictor) -> None:
        self.predictor = predictor
        self._mixed = 0  # steps with prompts beside streams in a row

    def scheduled(self, *, mixed: bool) -> None:
        """The step that was put together has prompts beside streams, or has not."""
        self._mixed = self._mixed + 1 if mixed else 0

    def tokens(self, work: Collection[Work], start: int, most: int) -> int:
        """How many prompt tokens from `start` on, of at most `most`, a step with this work may take."""
        if self._mixed >= PLAIN_EVERY:
            return 0
        streams = [w for w in work if w.decodes]
        usual_s = self.predictor.seconds(StepShape.of(streams))
        fit = self.predictor.rows_within(StepShape.of(work), start, STALL * usual_s, most)
        least = LEAST - sum(w.rows for w in work if not w.decodes)
        return max(fit, min(least, most), 0)
