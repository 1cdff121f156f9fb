"""Fusion: rewrites several operations of a recorded plan into one, by rules."""

from __future__ import annotations

from collections.abc import Sequence

from drut.kernels.fusion.place import Place, Rule
from drut.kernels.ops import Op
from drut.kernels.plan import Plan, Segment

__all__ = ["Rule", "fused"]


def fused(plan: Plan, rules: Sequence[Rule]) -> Plan:
    """Returns an equivalent plan after one pass of each rule, in their order. A rule works within one segment."""
    for rule in rules:
        later: list[Op] = []
        segments: list[Segment] = []
        for segment in reversed(plan.segments):
            ops = _pass(rule, list(segment.ops), later)
            segments.insert(0, Segment(tuple(ops), segment.stop))
            later = ops + later
        plan = Plan(tuple(segments))
    return plan


def _pass(rule: Rule, ops: list[Op], later: Sequence[Op]) -> list[Op]:
    """Returns the rewritten operations of a segment; `later`: the operations of the segments after it."""
    at = 0
    while at < len(ops):
        rest = rule(Place(ops[at:], later))
        if rest is None:
            at += 1
        else:
            ops[at:] = rest
    return ops
