"""Some thousands of mutants, the same ones each time; `python -m tests.fuzz` reads as many as one likes."""

from __future__ import annotations

import pytest

from tests.fuzz.__main__ import fuzz
from tests.fuzz.mutate import mutant


def test_mutants_are_the_same_each_time() -> None:
    made = [mutant(1, i) for i in range(50)]
    assert made == [mutant(1, i) for i in range(50)]
    assert made != [mutant(2, i) for i in range(50)]
    assert sum(seed.files[name] != raw for seed, changed in made for name, raw in changed.items()) > 40


@pytest.mark.slow
def test_mutants_of_models_are_refused_or_read() -> None:
    result = fuzz(run=7, first=0, last=3000)
    assert not result.findings, "\n".join(result.findings)
    assert result.read == 3000
    assert 200 < result.opened < 2000  # both ways are taken


@pytest.mark.slow
def test_faults_of_every_kind_are_found() -> None:
    result = fuzz(run=7, first=0, last=7, reader="tests.fuzz.broken_reader")
    found = "\n".join(result.findings)
    for words in ("SIGSEGV", "MemoryError", "s of CPU time", "KeyError: 'a bug'", "files left open", "many lines"):
        assert words in found
    assert result.read == 7
    assert len(result.findings) == 6
