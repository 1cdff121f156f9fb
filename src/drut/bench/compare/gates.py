"""What of a gate is worth showing, for summaries and reports."""

from __future__ import annotations

from collections.abc import Iterable

from drut.bench.compare.schema import GSM8K_TELLS, Gate


def gsm8k_tells(gates: Iterable[Gate]) -> bool:
    """Whether any contestant has enough sums right for their number to say anything of the model."""
    return any(gate.gsm8k is not None and gate.gsm8k > GSM8K_TELLS for gate in gates)


def perplexity(gate: Gate) -> str:
    """With what it is over the reference's."""
    if gate.perplexity is None:
        return "n/a"
    more = "" if gate.perplexity_increase is None else f" ({gate.perplexity_increase:+.1%})"
    return f"{gate.perplexity:.4g}{more}"
