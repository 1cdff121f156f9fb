"""Results of the gate for summaries and reports."""

from __future__ import annotations

from collections.abc import Iterable

from drut.bench.compare.schema import GSM8K_LEAST, GateRecord


def gsm8k_meaningful(gates: Iterable[GateRecord]) -> bool:
    """Returns whether any contestant has enough right GSM8K answers for a meaningful number."""
    return any(gate.gsm8k is not None and gate.gsm8k > GSM8K_LEAST for gate in gates)


def perplexity(gate: GateRecord) -> str:
    """Formats the perplexity, with its increase over the reference's."""
    if gate.perplexity is None:
        return "n/a"
    more = "" if gate.perplexity_increase is None else f" ({gate.perplexity_increase:+.1%})"
    return f"{gate.perplexity:.4g}{more}"
