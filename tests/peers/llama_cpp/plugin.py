"""What pytest says of each case; cases that are not applicable do not run."""

from __future__ import annotations

import pytest

from tests.peers.llama_cpp.table import NOT_APPLICABLE, Table


class Plugin:
    """`cases`: all there are, by file, function and parameters; `passed`: of those that ran."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self.cases: list[str] = []
        self.passed: dict[str, bool] = {}

    def pytest_configure(self, config: pytest.Config) -> None:
        config.addinivalue_line("markers", "slow: needs a model from a hub")
        config.addinivalue_line("markers", "serial: runs alone")

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        left_out = []
        for item in list(items):
            skipped = item.get_closest_marker("slow") or item.get_closest_marker("skip") or _skips(item)
            if skipped:  # as in llama.cpp's own runs
                items.remove(item)
                continue
            self.cases.append(_case(item.nodeid))
            if self._table.expected(self.cases[-1]).outcome == NOT_APPLICABLE:
                left_out.append(item)
                items.remove(item)
        config.hook.pytest_deselected(items=left_out)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        case = _case(report.nodeid)
        self.passed[case] = self.passed.get(case, True) and report.passed


def _skips(item: pytest.Item) -> bool:
    marker = item.get_closest_marker("skipif")
    return marker is not None and bool(marker.args) and bool(marker.args[0])


def _case(nodeid: str) -> str:
    return nodeid.removeprefix("unit/")
