"""AArch64 under emulation: its instruction sets give the bits that this machine's give, and pass the tests there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kernels.conftest import Native
from tests.kernels.digests import digests

ROOT = Path(__file__).parents[2]
TOOLS = ROOT / "tests/aarch64"
# Processors by what they have: DotProd and I8MM, DotProd alone, neither.
CPUS = {"max": ["neoni8mm", "neon", "portable"], "neoverse-n1": ["neon", "portable"], "cortex-a57": ["portable"]}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def built() -> None:
    done = subprocess.run([TOOLS / "prepare"], env={**os.environ, "PYTHON": sys.executable}, stderr=subprocess.PIPE,
                          text=True)
    if done.returncode == 3:
        pytest.skip(f"AArch64 cannot be emulated here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr


def emulated(cpu: str, *arguments: str) -> str:
    done = subprocess.run([TOOLS / "python", *arguments], cwd=ROOT, env={**os.environ, "CPU": cpu},
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def here(native: Native) -> dict[str, str]:
    plain, best = digests(native("portable")), digests(native())
    assert plain == best
    return best


@pytest.mark.parametrize("cpu", CPUS)
def test_a_processor_has_the_instruction_sets_it_offers(cpu: str) -> None:
    code = ("from drut.kernels.native.library import isas, load\n"
            "print(*(isa.name for isa in isas(load()) if isa.supported))")
    assert emulated(cpu, "-c", code).split() == CPUS[cpu]


@pytest.mark.parametrize(("cpu", "isa"), [("max", "neoni8mm"), ("neoverse-n1", "neon"), ("cortex-a57", "portable")])
def test_the_same_bits_as_here(here: dict[str, str], cpu: str, isa: str) -> None:
    assert json.loads(emulated(cpu, "-m", "tests.kernels.digests", isa)) == here


def test_layers_and_threads_pass_their_tests() -> None:
    """But for one of memory, which the emulator keeps for every thread that ended. `tests/aarch64/python -m pytest
    tests/kernels` runs all the others, in a quarter of an hour."""
    emulated("max", "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/kernels/test_pool_threads.py",
             "tests/kernels/test_layer.py", "-k", "numerics_version or pool_threads and not without_a_trace")
