"""Tokens and logprobs of 500 requests are the committed ones, bit for bit."""

from __future__ import annotations

import json

import pytest

from drut.kernels.native import library
from tests.golden import requests
from tests.golden.requests import SMOLLM2, Case, cases


def _parameters() -> list[object]:
    return [pytest.param(case, id=f"{case.name}-{case.kv_dtype}", marks=[pytest.mark.model] * (case.name == SMOLLM2))
            for case in cases()]


@pytest.mark.skipif(library.load() is None, reason="the native kernels are not built")
@pytest.mark.parametrize("case", _parameters())
def test_the_bits_are_the_committed_ones(case: Case) -> None:
    assert requests.differences(case) == []


def test_the_file_has_every_request() -> None:
    keys = {f"{case.name} {case.kv_dtype} {i}" for case in cases() for i in range(len(case.asks))}
    assert keys == set(json.loads(requests.FILE.read_text()))
    assert len(keys) >= 500
