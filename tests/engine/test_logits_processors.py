"""Counting a token into edits that are known gives what making them anew gives."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from drut.engine.request.logits_processors import LogitsProcessors
from drut.engine.request.params import FilledParams

IDS = st.lists(st.integers(0, 30), max_size=20)


@given(IDS, IDS, st.dictionaries(st.integers(0, 30), st.floats(-100, 100), max_size=5), st.integers(0, 4))
def test_edits_follow_the_output(prompt: list[int], output: list[int], bias: dict[int, float], least: int) -> None:
    params = FilledParams(repetition_penalty=1.5, frequency_penalty=0.5, logit_bias=bias, min_tokens=least,
                            max_tokens=100, temperature=0)
    table, before = LogitsProcessors(params, prompt, (2, 7)), None
    for count in range(len(output) + 1):
        fresh = LogitsProcessors(params, prompt, (2, 7))
        for token in output[:count]:
            fresh.push(token)
        got, wanted = table.edits(count), fresh.edits(count)
        assert (got is None) == (wanted is None)
        for a, b in zip(got or (), wanted or (), strict=True):
            assert a.dtype == b.dtype
            np.testing.assert_array_equal(a, b)
        if before is not None:  # what a step still reads is left as it was
            for a, kept in zip(*before, strict=True):
                np.testing.assert_array_equal(a, kept)
        before = (got, [a.copy() for a in got]) if got is not None else None
        if count < len(output):
            table.push(output[count])
