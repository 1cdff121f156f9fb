"""The ledger names the roof that each kind of operation is compared with."""

from __future__ import annotations

import pytest

from drut.cli.profile import text, to_json
from drut.observe.ledger import LedgerEntry, Macs, Peaks, StepLedger, account

PEAKS = Peaks(lambda working_set: 100.0, Macs(int4=40.0, int8=20.0, floats=10.0))


def ledger() -> StepLedger:
    entries = [LedgerEntry("Embed", 0, 1000, Macs(), 20.0), LedgerEntry("Add", 0, 0, Macs(), 1.0),
               LedgerEntry("GateUp", 0, 100, Macs(int4=80), 4.0),
               LedgerEntry("GateUp", 1, 100, Macs(int4=40, int8=60), 8.0),
               LedgerEntry("Attention", 0, 10, Macs(floats=50), 10.0)]
    return account(2, entries, 50.0, PEAKS)


def test_each_class_has_its_own_peak() -> None:
    embed, add, gate_up, attention = ledger().lines
    assert (embed.floors, embed.floor_s, embed.roof) == ({"read": 10.0}, 10.0, "read")
    assert (add.floors, add.floor_s, add.roof) == ({}, 0.0, "")
    # Of the second, a part at each of two peaks: 40 / 40 + 60 / 20.
    assert (gate_up.floors, gate_up.macs) == ({"int4": 2.0 + 1.0, "int8": 3.0}, 180)
    assert (gate_up.floor_s, gate_up.share, gate_up.roof) == (6.0, 0.5, "int4+int8")
    assert (attention.floors, attention.share) == ({"floats": 5.0}, 0.5)


def test_the_longest_time_is_named_first() -> None:
    entries = [LedgerEntry("Head", 0, 100, Macs(int8=10), 1.0), LedgerEntry("Head", 0, 100, Macs(int8=100), 1.0)]
    assert account(1, entries, 1.0, PEAKS).lines[0].roof == "int8+read"


def test_the_profile_names_them() -> None:
    table = text(ledger()).splitlines()
    assert table[0].endswith("roof")
    assert [line.split()[-1] for line in table[1:5]] == ["read", "0%", "int4+int8", "floats"]
    lines = to_json(ledger())["lines"]
    assert [(line["floors"], line["floor_s"]) for line in lines[2:]] == [
        ({"int4": 3.0, "int8": 3.0}, 6.0), ({"floats": 5.0}, 5.0)]
    assert to_json(ledger())["floor_s"] == pytest.approx(10.0 + 6.0 + 5.0)
