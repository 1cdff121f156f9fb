from __future__ import annotations

import os
import platform
import signal
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from tests import rows

THREADS = {"DRUT_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # of a test beside others; the bits are the same


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rows", metavar="N", type=int, help="run at most N rows of each test's parameters, chosen by "
                     f"{rows.SEED}, which is by default the commit; {rows.SEED}=all runs every row all the same")
    parser.addoption("--budget", metavar="RUN", help="hold the whole run to this budget of tests/budget.toml")


def pytest_configure(config: pytest.Config) -> None:
    os.environ["XDG_CONFIG_HOME"] = os.devnull  # the user's own settings do not count
    for name in ("DRUT_CONFIG", "DRUT_MODEL", "DRUT_HOST", "DRUT_PORT"):
        os.environ.pop(name, None)
    # A run started in the background inherits interrupts that are ignored, and tests of Ctrl-C send them.
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if hasattr(config, "workerinput"):
        os.environ.update(THREADS)
    else:
        os.environ[rows.SEED] = rows.seed()  # for the workers too
    if platform.machine() == "x86_64":  # budgets mean nothing on an emulated processor
        _count_seconds(config)


def _count_seconds(config: pytest.Config) -> None:
    from tests.budget import Budget, Judge, Meter, WorkerMeter

    budget = Budget.load()
    if hasattr(config, "workerinput"):
        config.pluginmanager.register(WorkerMeter(budget, config.workeroutput))
        return
    meter = Meter(budget)
    config.pluginmanager.register(meter)
    config.pluginmanager.register(Judge(budget, meter, config.getoption("budget")))


def pytest_report_header(config: pytest.Config) -> str:
    most = config.getoption("rows")
    bound = f", at most {most} rows of a test" if most else ""
    return f"products of parameters: all pairs{bound}, {rows.SEED}={os.environ[rows.SEED]}"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of large products of parameters a part is run. Serial tests come last."""
    items[:], left_out = rows.choose(items, os.environ[rows.SEED], config.getoption("rows"))
    if left_out:
        config.hook.pytest_deselected(items=left_out)
    items.sort(key=is_serial)


@pytest.hookimpl(wrapper=True)
def pytest_collection_finish(session: pytest.Session) -> Iterator[None]:
    """Has the workers, which collect, mark serial tests for the scheduler, which sees ids alone."""
    if not hasattr(session.config, "workerinput"):
        return (yield)
    from tests.phases import SERIAL

    items = session.items
    session.items = [SimpleNamespace(nodeid=item.nodeid + SERIAL * is_serial(item)) for item in items]
    try:
        return (yield)
    finally:
        session.items = items


def is_serial(item: pytest.Item) -> bool:
    return item.get_closest_marker("serial") is not None


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Serial tests have all CPUs."""
    if is_serial(item) and hasattr(item.config, "workerinput"):
        os.environ.pop("DRUT_THREADS", None)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from tests.phases import Phases

    return Phases(config, log)
