"""How many prompt tokens may ride along with decoding streams, so that none of them stalls."""

from __future__ import annotations

STALL = 1.7  # a step with prompt tokens may take this many times a step without
LEAST = 4  # prompt tokens that always may
WEIGHT = 0.2  # of a new measurement in the running means


class Pacer:
    """Learns what a decoding step and a prompt token cost, from the steps that ran."""

    def __init__(self) -> None:
        self._decode_s: float | None = None
        self._prompt_token_s: float | None = None

    def prompt_tokens(self, most: int) -> int:
        """Prompt tokens to add to a step with decoding rows; `most` if nothing is known yet to be too slow."""
        if self._decode_s is None or self._prompt_token_s is None:
            return min(most, LEAST)
        room = (STALL - 1.0) * self._decode_s
        return max(min(most, LEAST), min(most, int(room / self._prompt_token_s)))

    def learn(self, decode_rows: int, prompt_rows: int, seconds: float) -> None:
        """A step of so many rows took `seconds`."""
        if prompt_rows == 0:
            self._decode_s = _mean(self._decode_s, seconds)
        elif decode_rows == 0:
            self._prompt_token_s = _mean(self._prompt_token_s, seconds / prompt_rows)
        elif self._decode_s is not None and seconds > self._decode_s:
            self._prompt_token_s = _mean(self._prompt_token_s, (seconds - self._decode_s) / prompt_rows)


def _mean(old: float | None, new: float) -> float:
    return new if old is None else old + WEIGHT * (new - old)
