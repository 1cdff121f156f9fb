from __future__ import annotations

import pytest
from benchmarks.serving.agreement import Pair, of_request

from drut.bench.result.schema import ReportRequest


@pytest.mark.parametrize(("mean", "p50", "means", "medians"), [
    (104.9, 52.4, True, True), (95.1, 19.1, True, True), (105.2, 30.0, False, True), (94.9, 52.6, False, False),
    (100.0, 18.9, True, False)])
def test_what_agrees(mean: float, p50: float, means: bool, medians: bool) -> None:
    pair = Pair(10, 10, mean, 100.0, p50, low=20.0, high=50.0)
    assert (pair.means_agree, pair.medians_agree) == (means, medians)


def test_all_that_came_of_a_request_counts_even_where_it_was_cut_off() -> None:
    cut = ReportRequest("s", 0, 0.0, False, sent_ms=2.0, arrivals_ms=[12.0, 20.0, 50.0], arrival_chars=[1, 1, 3],
                        arrival_reported=[1, 1, 3], failure="unfinished")
    values = of_request(cut)
    assert values["ttft"].tolist() == [10.0]
    assert values["itl"].tolist() == [8.0, 10.0, 10.0, 10.0]
    assert of_request(ReportRequest("s", 0, 0.0, True)) == {}
