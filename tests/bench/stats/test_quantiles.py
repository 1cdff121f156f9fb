from __future__ import annotations

import pytest

from drut.bench.stats.quantiles import t_quantile


@pytest.mark.parametrize(("p", "df", "value"), [
    (0.975, 1, 12.7062), (0.975, 2, 4.30265), (0.975, 3, 3.18245), (0.975, 4, 2.77645), (0.975, 5, 2.57058),
    (0.995, 2, 9.92484), (0.95, 7, 1.89458), (0.975, 9, 2.26216), (0.975, 30, 2.04227), (0.975, 1000, 1.96234)])
def test_quantiles_are_those_of_the_tables(p: float, df: int, value: float) -> None:
    assert t_quantile(p, df) == pytest.approx(value, rel=1e-5)
