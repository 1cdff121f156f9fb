"""The shape of the source: no import cycle, few layers in the engine, and a budget of lines for each part."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import drut

SOURCE = Path(drut.__file__).parent
ENGINE_ROOMS = 12  # folders and files directly in engine/
ENGINE_LAYERS = 7
# Lines of Python. The core is what computes: a step passes through it. Readers turn the formats of others into its
# terms: metadata, checkpoints, tokenizers, templates, schemas.
READERS = ("model/families", "model/tokenizer", "model/template", "model/store", "model/convert", "model/packs",
           "constrain/schema")
CORE = ("kernels", "model", "cache", "constrain", "speculate", "engine")
CORE_LINES = 20_000
READER_LINES = 8_700


def name_of(path: Path) -> str:
    parts = ("drut", *path.relative_to(SOURCE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(tree: ast.Module, known: set[str]) -> set[str]:
    """Modules of this package that are imported when the module is: not in functions, not for types alone."""
    found = set()
    for node in _run_at_import(tree.body):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.update(full if (full := f"{node.module}.{alias.name}") in known else node.module
                         for alias in node.names)
    return found & known


def _run_at_import(body: Iterable[ast.stmt]) -> Iterable[ast.stmt]:
    for node in body:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        yield node
        for part in ("body", "orelse", "finalbody"):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield from _run_at_import(getattr(node, part, []))


@pytest.fixture(scope="module")
def imports() -> dict[str, set[str]]:
    """What each module imports."""
    paths = {name_of(path): path for path in SOURCE.rglob("*.py")}
    return {name: imports_of(ast.parse(path.read_text()), set(paths)) - {name} for name, path in paths.items()}


def layers(graph: Mapping[str, Iterable[str]]) -> int:
    """Length of the longest chain of imports. CycleError where there is a circle."""
    depth: dict[str, int] = {}
    for name in TopologicalSorter(graph).static_order():
        depth[name] = 1 + max((depth[below] for below in graph.get(name, ())), default=0)
    return max(depth.values())


def test_no_module_imports_itself_by_way_of_others(imports: dict[str, set[str]]) -> None:
    layers(imports)


def test_a_circle_is_found() -> None:
    with pytest.raises(CycleError):
        layers({"a": {"b"}, "b": {"a"}})


def test_the_engine_has_few_rooms_in_few_layers(imports: dict[str, set[str]]) -> None:
    def room(module: str) -> str | None:
        parts = module.split(".")
        return parts[2] if parts[1:2] == ["engine"] and len(parts) > 2 else None

    rooms: dict[str, set[str]] = {}
    for module, below in imports.items():
        if here := room(module):
            rooms.setdefault(here, set()).update(r for b in below if (r := room(b)) and r != here)
    assert len(rooms) <= ENGINE_ROOMS
    assert layers(rooms) <= ENGINE_LAYERS


def lines(folder: str) -> int:
    return sum(len(path.read_text().splitlines()) for path in (SOURCE / folder).rglob("*.py"))


def test_core_and_readers_stay_within_their_lines() -> None:
    readers = sum(lines(folder) for folder in READERS)
    assert readers <= READER_LINES
    assert sum(lines(folder) for folder in CORE) - readers <= CORE_LINES
