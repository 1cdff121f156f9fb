"""Bounds that keep the code readable: the size of two classes, and of a constructor call without names."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import drut

SOURCE = Path(drut.__file__).parent
CLASS_LINES = 200
POSITIONAL = 5  # arguments of a constructor call


@pytest.mark.parametrize(("file", "name"), [("engine/engine.py", "Engine"),
                                            ("engine/schedule/scheduler.py", "Scheduler")])
def test_a_class_stays_within_a_few_screens(file: str, name: str) -> None:
    (found,) = (node for node in ast.parse((SOURCE / file).read_text()).body
                if isinstance(node, ast.ClassDef) and node.name == name)
    assert found.end_lineno is not None
    assert found.end_lineno - found.lineno < CLASS_LINES


def test_a_constructor_of_many_fields_is_called_by_their_names() -> None:
    """A field that is put in between would else shift all that follow, silently."""
    trees = {path: ast.parse(path.read_text()) for path in SOURCE.glob("**/*.py")}
    classes = {node.name for tree in trees.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    found = [f"{path.relative_to(SOURCE)}:{node.lineno} {ast.unparse(node.func)}" for path, tree in trees.items()
             for node in ast.walk(tree) if isinstance(node, ast.Call) and len(node.args) > POSITIONAL
             and ast.unparse(node.func).rpartition(".")[2] in classes]
    assert found == []
