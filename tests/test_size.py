"""Bounds on size that keep the engine readable: two classes that must not grow again."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import drut

SOURCE = Path(drut.__file__).parent
CLASS_LINES = 200


@pytest.mark.parametrize(("file", "name"), [("engine/engine.py", "Engine"), ("engine/scheduler.py", "Scheduler")])
def test_a_class_stays_within_a_few_screens(file: str, name: str) -> None:
    (found,) = (node for node in ast.parse((SOURCE / file).read_text()).body
                if isinstance(node, ast.ClassDef) and node.name == name)
    assert found.end_lineno is not None
    assert found.end_lineno - found.lineno < CLASS_LINES
