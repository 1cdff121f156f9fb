"""How much of the prompts may ride along with decoding streams, so that none of them stalls.

What a prompt token costs grows with the positions it attends to, so prompts are counted in *effort*: the cost of a
token at position 0 is 1, that at position `depth` is 2 (where layers have windows, of tokens whose windows are full).
`depth` follows from the model's operation counts; seconds per unit of effort, and those of a step without prompts, are
learned from the steps that ran.
"""

from __future__ import annotations

import math

from drut.kernels.cost import StepShape
from drut.kernels.plan import Plan

STALL = 1.7  # a step with prompt tokens may take this many times a step without
LEAST = 4.0  # effort that always may
PLAIN_EVERY = 16  # steps with prompts between two without, which tell what decoding costs now
WEIGHT = 0.2  # of a new measurement in the running means
FAR = 1 << 24  # positions, past any window
FLOAT_MAC = 5.0  # the cost of a float multiply-add of attention in integer ones of the matrices, at few rows


def attention_depth(plan: Plan) -> float:
    """The position at which attending to the whole context costs a prompt token as much as all else.

    That is its matrices and, in layers with a window, attending to a whole one.
    """
    near, far = (plan.cost(StepShape(1, 0, n, n, ((1, n),))) for n in (FAR, 2 * FAR))
    reading = (far.float_macs - near.float_macs) / FAR
    always = near.float_macs - FAR * reading
    fixed = near.macs - near.float_macs + FLOAT_MAC * always
    return fixed / (FLOAT_MAC * reading) if reading else math.inf


class Pacer:
    """Learns what decoding steps and prompts cost. Decoding is kept by the number of streams, in powers of two."""

    def __init__(self, depth: float = math.inf) -> None:
        self.depth = depth
        self._decode_s: dict[int, float] = {}
        self._effort_s: float | None = None
        self._since_plain = 0

    def effort(self, start: int, tokens: int) -> float:
        """Of `tokens` prompt tokens from position `start` on."""
        return tokens * (1.0 + (start + (tokens - 1) / 2) / self.depth)

    def tokens(self, start: int, effort: float) -> int:
        """The most prompt tokens from `start` on within `effort`."""
        if effort <= 0:
            return 0
        slope, each = 0.5 / self.depth, 1.0 + (start - 0.5) / self.depth  # effort = slope * n^2 + each * n
        exact = 2 * effort / (each + math.sqrt(each * each + 4 * slope * effort))
        return int(exact + 1e-9)

    def room(self, streams: int) -> float:
        """Effort that may be added to a step with so many decoding streams; 0 where the step is to have none."""
        decode_s = self._plain(streams)
        self._since_plain += 1
        if decode_s is None or self._since_plain > PLAIN_EVERY:
            self._since_plain = 0
            return 0.0
        if self._effort_s is None:
            return LEAST
        return max(LEAST, (STALL - 1.0) * decode_s / self._effort_s)

    def learn(self, streams: int, effort: float, seconds: float) -> None:
        """A step with so many streams and so much effort for prompts took `seconds`.

        What a step costs whatever it holds, reading the weights above all, is in that of one stream.
        """
        key = max(streams, 1).bit_length()
        if effort == 0:
            self._decode_s[key] = _mean(self._decode_s.get(key), seconds)
            return
        plain = self._plain(max(streams, 1)) or 0.0
        if seconds > plain:
            self._effort_s = _mean(self._effort_s, (seconds - plain) / effort)
        elif key in self._decode_s:  # a plain step cannot cost more than one with prompts
            self._decode_s[key] = _mean(plain, seconds)

    def _plain(self, streams: int) -> float | None:
        """Seconds of a step with so many streams and no prompt, or with the nearest number that was seen."""
        if not self._decode_s:
            return None
        key = streams.bit_length()
        return self._decode_s[min(self._decode_s, key=lambda k: (abs(k - key), k))]


def _mean(old: float | None, new: float) -> float:
    return new if old is None else old + WEIGHT * (new - old)
