from __future__ import annotations

from itertools import permutations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from drut.bench.compare.ranking import groups, places
from drut.bench.stats.paired import paired


def rounds(*values: float) -> dict[int, float]:
    return dict(enumerate(values))


FAST, SLOW = rounds(10.0, 10.1, 9.9, 10.0), rounds(5.0, 5.1, 4.9, 5.0)
WIDE = rounds(4.0, 12.0, 5.0, 13.0)


def test_the_better_one_is_first_by_the_figures_own_direction() -> None:
    assert groups({"a": FAST, "b": SLOW}, "more") == [["a"], ["b"]]
    assert groups({"a": FAST, "b": SLOW}, "less") == [["b"], ["a"]]


def test_equals_share_a_group() -> None:
    assert groups({"a": FAST, "b": rounds(10.1, 10.0, 10.0, 9.9), "c": SLOW}, "more") == [["a", "b"], ["c"]]


def test_one_that_is_like_both_takes_them_together() -> None:
    assert groups({"a": FAST, "b": SLOW, "wide": WIDE}, "more") == [["a", "b", "wide"]]


def test_too_few_rounds_give_no_ranking() -> None:
    assert groups({"a": rounds(9.0, 9.0), "b": rounds(1.0, 1.0)}, "more") == [["a", "b"]]
    assert groups({"a": rounds(9.0), "b": {}}, "more") == [["a", "b"]]
    assert groups({}, "more") == []


figures = st.dictionaries(
    st.sampled_from("abcde"),
    st.dictionaries(st.integers(0, 4), st.floats(1.0, 1.5), max_size=5), max_size=5)


@given(figures)
def test_any_figures_give_groups_that_do_not_depend_on_the_order_and_that_all_pairs_support(
    given_figures: dict[str, dict[int, float]]
) -> None:
    found = groups(given_figures, "more")
    assert sorted(name for group in found for name in group) == sorted(given_figures)
    for names in list(permutations(given_figures))[:24]:
        assert groups({name: given_figures[name] for name in names}, "more") == found
    for i, group in enumerate(found):
        for a in group:
            for b in (name for later in found[i + 1:] for name in later):
                ratio = paired(given_figures[a], given_figures[b])
                assert ratio is not None
                assert ratio.apart
                assert ratio.value > 1


def test_equals_are_seldom_ranked() -> None:
    """Two are parted by chance in 5 of 100 comparisons, more of them less often."""
    rng = np.random.default_rng(1)
    for count, most in ((2, 0.08), (4, 0.05), (6, 0.04)):
        parted = 0
        for _ in range(200):
            noise = np.exp(rng.normal(0, 0.05, (count, 5)))
            parted += len(groups({str(i): dict(enumerate(row)) for i, row in enumerate(noise)}, "more")) > 1
        assert parted / 200 <= most, (count, parted)


def test_places() -> None:
    assert places([["a"], ["b", "c"], ["d"]]) == {"a": "1", "b": "2-3", "c": "2-3", "d": "4"}
