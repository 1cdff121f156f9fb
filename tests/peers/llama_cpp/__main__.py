"""Runs llama.cpp's own server tests against `drut serve` and compares the outcomes with a table.

    python -m tests.peers.llama_cpp [pytest's arguments, as -k test_logprobs]

The tests come from the source package of llama-cpp-python (pip fetches it once, into build/). `expected.toml` has each
case that differs or is not applicable, with the reason. Exit code 1 where a case fails without one, or passes in spite
of one.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "build" / "peers" / "llama_cpp_suite"


def main(arguments: list[str]) -> int:
    os.environ["DRUT_PEERS_WORK"] = str(FOLDER)
    import pytest

    from tests.peers.llama_cpp import utils
    from tests.peers.llama_cpp.plugin import Plugin
    from tests.peers.llama_cpp.process import Live
    from tests.peers.llama_cpp.source import unpacked
    from tests.peers.llama_cpp.table import Table, counts, faults

    suite = unpacked(FOLDER) / "tools" / "server" / "tests"
    sys.modules["utils"] = utils
    sys.path.insert(0, str(suite))  # a test imports from another
    table = Table.read(Path(__file__).with_name("expected.toml"))
    plugin = Plugin(table)
    os.chdir(suite)
    try:
        code = pytest.main(["unit", "--noconftest", "-c", os.devnull, "--rootdir", str(suite), "-p", "no:cacheprovider",
                            "-p", "no:xdist", "-q", "--tb=short", *arguments], plugins=[plugin])
    finally:
        Live.end()
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED):
        return 1
    cases = list(plugin.passed) if arguments else plugin.cases  # a part, or all
    found = faults(table, cases, plugin.passed)
    found += [] if arguments else [f"no such case: {line}" for line in table.unused]
    print(f"\n{len(cases)} cases: {counts(table, cases)}")
    print("\n".join(found) or "all is as the table says")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
