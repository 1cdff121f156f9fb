"""Sampling values are checked where they are made, and an error names the field in one line."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drut.engine.request.params import FilledParams, SamplingParams
from drut.errors import RequestError

GOOD = [
    {}, {"max_tokens": 1}, {"temperature": 0}, {"temperature": 100}, {"top_p": 1e-9}, {"top_k": 1 << 30},
    {"min_p": 1.0}, {"seed": -(1 << 63)}, {"seed": (1 << 64) - 1}, {"n": 1}, {"n": 128}, {"stop": ["a", "b"]},
    {"stop_token_ids": [0, 2**31 - 1]}, {"stop_token_ids": range(1024)}, {"max_tokens": 5, "min_tokens": 5},
    {"repetition_penalty": 0.01}, {"repetition_penalty": 100}, {"presence_penalty": -2}, {"presence_penalty": 2.0},
    {"frequency_penalty": -2.0}, {"frequency_penalty": 2}, {"logit_bias": {}}, {"logit_bias": {0: -100, 7: 100.0}},
    {"logit_bias": dict.fromkeys(range(1024), 0.5)}, {"logprobs": 0}, {"logprobs": 20}, {"prompt_logprobs": 0},
    {"prompt_logprobs": 20},
]
BAD = [
    ("max_tokens", 0), ("max_tokens", 1.5), ("max_tokens", True), ("temperature", -0.1),
    ("temperature", float("nan")), ("temperature", float("inf")), ("temperature", "1"),
    ("temperature", 100.5), ("temperature", 10**400), ("temperature", [10**5000]),
    ("temperature", "x" * 10**6), ("top_p", 0.0), ("top_p", 1.01), ("top_k", -1), ("min_p", 1.5),
    ("seed", 1 << 64), ("seed", 0.5), ("seed", -(10**5000)), ("n", 0), ("n", 129), ("n", None),
    ("stop", [""]), ("stop", 3), ("stop", ["a", 3]), ("stop", None), ("stop_token_ids", [-1]),
    ("stop_token_ids", ["a"]), ("stop_token_ids", "ab"), ("stop_token_ids", 5), ("stop_token_ids", [2**31]),
    ("stop_token_ids", range(1025)), ("min_tokens", -1), ("min_tokens", 1 << 31), ("ignore_eos", 1),
    ("ignore_eos", "no"), ("repetition_penalty", 0.0), ("repetition_penalty", -1.0),
    ("repetition_penalty", float("inf")), ("presence_penalty", 2.5), ("presence_penalty", float("nan")),
    ("frequency_penalty", -2.5), ("logit_bias", [1, 2]), ("logit_bias", {1: 100.5}),
    ("logit_bias", {1: float("nan")}), ("logit_bias", {1: None}), ("logit_bias", {-1: 0.0}),
    ("logit_bias", {"7": 1.0}), ("logit_bias", dict.fromkeys(range(1025), 0.5)), ("logprobs", -1),
    ("logprobs", 21), ("logprobs", True), ("prompt_logprobs", 21), ("prompt_logprobs", 1.0),
]


@pytest.mark.parametrize("values", GOOD, ids=range(len(GOOD)))
def test_what_is_allowed(values: dict) -> None:
    params = SamplingParams(**values)
    for name, value in values.items():
        assert getattr(params, name) == (tuple(value) if name in ("stop", "stop_token_ids") else value)


@pytest.mark.parametrize(("name", "value"), BAD, ids=[f"{name}{i}" for i, (name, _) in enumerate(BAD)])
def test_what_is_not_is_one_line_that_names_the_field(name: str, value: object) -> None:
    with pytest.raises(RequestError, match=name) as error:
        SamplingParams(**{name: value})
    assert len(str(error.value).splitlines()) == 1
    assert len(str(error.value)) < 160


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary()


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(list(SamplingParams.__dataclass_fields__)),
       SCALARS | st.lists(SCALARS, max_size=3) | st.dictionaries(st.integers() | st.text(), SCALARS, max_size=3))
def test_any_value_is_taken_or_refused(name: str, value: object) -> None:
    try:
        SamplingParams(**{name: value})
    except RequestError as error:
        assert name in str(error)  # noqa: PT017


def test_the_error_shows_the_value() -> None:
    for values, message in [
        ({"top_p": 1.5}, "top_p must be from 0 to 1, not 1.5"),
        ({"logit_bias": {12: 200}}, "logit_bias of 12 must be from -100 to 100, not 200"),
        ({"stop_token_ids": [3, -4]}, "an id of stop_token_ids must be from 0 to 2147483647, not -4"),
        ({"seed": 1 << 20000}, "seed must be from -9223372036854775808 to 18446744073709551615, "
                               "not an integer of 20001 bits"),
    ]:
        with pytest.raises(RequestError) as error:
            SamplingParams(**values)
        assert str(error.value) == message


def test_a_stop_string_alone_is_one_string() -> None:
    assert SamplingParams(stop="ab").stop == ("ab",)


def test_top_logprobs_is_what_a_step_is_asked_for() -> None:
    assert [FilledParams(logprobs=n).top_logprobs for n in (None, 0, 5)] == [-1, 0, 5]


def test_they_keep_values_of_their_own_and_travel() -> None:
    bias = {3: 1.0}
    params = SamplingParams(logit_bias=bias, stop_token_ids=[4])
    bias[3] = 50.0
    assert params.logit_bias == {3: 1.0}
    assert pickle.loads(pickle.dumps(params)) == params
    assert hash(params) == hash(SamplingParams(logit_bias={3: 1.0}, stop_token_ids=[4]))
