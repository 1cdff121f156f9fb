from __future__ import annotations

from drut.bench.compare.order import order, turns


def test_rounds_come_in_pairs_that_mirror_each_other() -> None:
    for count in (1, 2, 3, 5):
        items = list(range(count))
        for pair in range(6):
            first, second = order(items, 2 * pair), order(items, 2 * pair + 1)
            assert second == first[::-1]
            assert sorted(first) == items
        assert {order(items, 2 * pair)[0] for pair in range(count)} == set(items)
    assert order([], 3) == []
    assert [order("AB", n) for n in range(4)] == [list("AB"), list("BA"), list("BA"), list("AB")]


def test_every_contestant_has_one_turn_at_every_cell_of_a_round() -> None:
    for by_contestant in (False, True):
        found = turns(4, ["x", "y"], ["a", "b", "c"], by_contestant)
        assert len(found) == len({(t.round, t.cell, t.contestant) for t in found}) == 4 * 2 * 3
        assert [t.place for t in found] == list(range(6)) * 4


def test_those_that_are_compared_follow_each_other_unless_changing_over_is_dear() -> None:
    near = [(t.cell, t.contestant) for t in turns(2, ["x", "y"], ["a", "b"])]
    assert near == [("x", "a"), ("x", "b"), ("y", "a"), ("y", "b"), ("x", "b"), ("x", "a"), ("y", "b"), ("y", "a")]
    dear = [t.contestant for t in turns(2, ["x", "y"], ["a", "b"], by_contestant=True)]
    assert dear == ["a", "a", "b", "b", "b", "b", "a", "a"]
