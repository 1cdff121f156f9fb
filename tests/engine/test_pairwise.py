"""The generator covers what it promises, in few rows, and names what failing rows have in common."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.pairwise import all_pairs, covering, pairs_of, suspects, wanted_pairs

FACTORS = {"a": (1, 2, 3), "b": ("x", "y"), "c": (False, True), "d": (None, 0, 7, 9)}


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 4), min_size=2, max_size=6), st.integers(0, 99))
def test_every_pair_is_covered_by_whole_rows(sizes: list[int], seed: int) -> None:
    factors = {f"f{i}": tuple(range(size)) for i, size in enumerate(sizes)}
    rows = all_pairs(factors, seed)
    assert set().union(*map(pairs_of, rows)) == wanted_pairs(factors)
    assert all(list(row) == list(factors) for row in rows)


def test_rows_are_few_and_the_same_each_time() -> None:
    rows = all_pairs(FACTORS)
    assert 12 <= len(rows) <= 15  # 3 x 4 at least, of 48 combinations
    assert rows == all_pairs(FACTORS)
    assert rows != all_pairs(FACTORS, seed=1)


def test_a_failing_pair_is_named() -> None:
    rows = all_pairs(FACTORS)
    failed = [row for row in rows if row["a"] == 2 and row["d"] == 7]
    assert failed
    assert "a=2 x d=7" in suspects(rows, failed)


def test_a_failing_value_is_named_alone() -> None:
    rows = all_pairs(FACTORS)
    assert suspects(rows, [row for row in rows if row["d"] == 9]) == ["d=9"]
    assert suspects(rows, []) == []


def test_a_pair_that_fails_only_with_a_third_setting_is_named() -> None:
    rows = all_pairs(FACTORS)
    failed = [row for row in rows if row["b"] == "x" and row["c"] and row["a"] != 3]
    assert 1 < len(failed) < len([row for row in rows if row["b"] == "x" and row["c"]])
    assert suspects(rows, failed) == ["b=x x c=True"]


def test_some_of_given_rows_have_all_their_pairs() -> None:
    rows = [{"a": a, "b": b, "c": c} for a in range(4) for b in range(4) for c in range(4) if (a, b) != (0, 0)]
    wanted = set().union(*map(pairs_of, rows))
    chosen = {seed: covering(rows, seed) for seed in range(40)}
    for places in chosen.values():
        assert set().union(*(pairs_of(rows[i]) for i in places)) == wanted
        assert len(places) < len(rows) // 2
    assert chosen[0] == covering(rows, 0) != chosen[1]
    assert set().union(*chosen.values()) == set(range(len(rows)))  # each is run with one seed or another


def test_nothing_is_chosen_of_nothing() -> None:
    assert covering([]) == []
