"""All pairs: few rows in which any two values of different factors meet at least once."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations, product

Factors = Mapping[str, Sequence[object]]
Row = dict[str, object]
Pair = frozenset[tuple[str, object]]

CANDIDATES = 30  # rows tried for each one kept


def pairs_of(row: Row) -> set[Pair]:
    """Every pair of settings that meets in `row`."""
    return {frozenset(pair) for pair in combinations(row.items(), 2)}


def wanted_pairs(factors: Factors) -> set[Pair]:
    """Every pair of values of different factors."""
    return {frozenset(((a, x), (b, y))) for a, b in combinations(factors, 2)
            for x, y in product(factors[a], factors[b])}


def all_pairs(factors: Factors, seed: int = 0) -> list[Row]:
    """Rows that cover `wanted_pairs`, built greedily; the same rows for the same `seed`."""
    dice, missing, rows = random.Random(seed), wanted_pairs(factors), []
    while missing:
        candidates = [_grow(factors, missing, dice) for _ in range(CANDIDATES)]
        best = max(candidates, key=lambda row: len(pairs_of(row) & missing))
        missing -= pairs_of(best)
        rows.append(best)
    return rows


def covering(rows: Sequence[Row], seed: int = 0) -> list[int]:
    """Places of few of `rows` in which all their pairs meet; others for another `seed`."""
    dice, missing = random.Random(seed), set[Pair]().union(*map(pairs_of, rows))
    left, kept = list(range(len(rows))), list[int]()
    while missing:
        best = max(dice.sample(left, min(CANDIDATES, len(left))), key=lambda i: len(pairs_of(rows[i]) & missing))
        left.remove(best)
        if new := pairs_of(rows[best]) & missing:
            missing -= new
            kept.append(best)
    return sorted(kept)


def _grow(factors: Factors, missing: set[Pair], dice: random.Random) -> Row:
    """A row around one missing pair; each further value is the one that adds the most missing pairs."""
    row: Row = dict(dice.choice(sorted(missing, key=lambda pair: sorted(map(repr, pair)))))
    for name in dice.sample(list(factors), len(factors)):
        if name not in row:
            values = dice.sample(list(factors[name]), len(factors[name]))
            row[name] = max(values, key=lambda v: sum(frozenset(((name, v), old)) in missing for old in row.items()))
    return {name: row[name] for name in factors}


def suspects(rows: Sequence[Row], failed: Sequence[Row]) -> list[str]:
    """The settings that go with failing: values that all failing rows have and no other does, if there are any; else
    the pairs in the most failing rows, and of those the ones in the fewest passing rows."""
    if not failed:
        return []
    passed = [row for row in rows if row not in failed]
    values = set.intersection(*(set(row.items()) for row in failed)) - {item for row in passed for item in row.items()}
    if values:
        return sorted(_shown(frozenset({value})) for value in values)
    bad, good = (Counter(pair for row in group for pair in pairs_of(row)) for group in (failed, passed))
    best = max((count, -good[pair]) for pair, count in bad.items())
    return sorted(_shown(pair) for pair, count in bad.items() if (count, -good[pair]) == best)


def _shown(settings: Pair) -> str:
    return " x ".join(f"{name}={value}" for name, value in sorted(settings, key=lambda item: item[0]))
