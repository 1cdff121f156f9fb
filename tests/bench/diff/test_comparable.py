"""What stands against comparing two files."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from drut.bench.diff.comparable import differences
from drut.bench.result.schema import Validity
from tests.bench.report import samples

RESULT, COMPARISON, SEARCH = samples.result(seconds=12.0, lost=0), samples.comparison(rounds=2), samples.a_search()


def with_(document: Any, field: str, **changed: Any) -> Any:
    return msgspec.structs.replace(document, **{field: {**getattr(document, field), **changed}})


@pytest.mark.parametrize(("a", "b", "words"), [
    (RESULT, COMPARISON, "A is a result, B a comparison"),
    (RESULT, with_(RESULT, "settings", rate=20.0), "work, rate: 10.0 in A, 20.0 in B"),
    (RESULT, with_(RESULT, "settings", workload="other"), "work, workload: synthetic in A, other in B"),
    (RESULT, with_(RESULT, "settings", model="m2"), "work, model: tiny in A, m2 in B"),
    (RESULT, with_(RESULT, "settings", slo=None), "work, slo: ttft=200 in A, null in B"),
    (RESULT, with_(RESULT, "environment", cpu="Other"), "machine, cpu: Example CPU in A, Other in B"),
    (RESULT, with_(RESULT, "environment", cpus=4), "machine, cpus: 2 in A, 4 in B"),
    (RESULT, msgspec.structs.replace(RESULT, validity=Validity(False, ["too late"])), "B is void: too late"),
    (COMPARISON, msgspec.structs.replace(COMPARISON, model="other"), "work, model: tiny-135m in A, other in B"),
    (COMPARISON, msgspec.structs.replace(COMPARISON, cells=[]), "no cell is in both"),
    (COMPARISON, msgspec.structs.replace(COMPARISON, cells=[
        msgspec.structs.replace(COMPARISON.cells[0], concurrency=2), *COMPARISON.cells[1:]]),
     'work, cell chat, 1 user: {"name"'),
    (COMPARISON, msgspec.structs.replace(COMPARISON, contestants=[
        msgspec.structs.replace(COMPARISON.contestants[0], weights="GGUF Q8_0"), *COMPARISON.contestants[1:]]),
     "drut, weights: bf16 in A, GGUF Q8_0 in B"),
    (SEARCH, with_(SEARCH, "settings", workload="x"), "work, workload: chat in A, x in B"),
])
def test_reasons(a: Any, b: Any, words: str) -> None:
    assert any(reason.startswith(words) for reason in differences(a, b).reasons), differences(a, b)


def test_the_same_has_none_and_another_version_is_only_reported() -> None:
    assert differences(RESULT, RESULT) == ([], [])
    newer = msgspec.structs.replace(COMPARISON, contestants=[
        msgspec.structs.replace(COMPARISON.contestants[0], versions={"drut": "2"}), *COMPARISON.contestants[1:4]])
    found = differences(COMPARISON, newer)
    assert found.reasons == []
    assert "drut, versions: {\"drut\":\"1.2.3\"} in A, {\"drut\":\"2\"} in B" in found.notes
    assert "contestant mlx is in A alone" in found.notes
    assert differences(RESULT, with_(RESULT, "settings", seed=1, url="http://other")) == (
        [], ["setting, seed: 0 in A, 1 in B"])


def test_long_settings_are_cut() -> None:
    reason, = differences(RESULT, with_(RESULT, "settings", workload="y" * 10_000)).reasons
    assert len(reason) < 600
