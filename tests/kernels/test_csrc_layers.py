"""The folders of csrc: which may include which, without cycles, and no file outside them."""

from __future__ import annotations

import re
from graphlib import TopologicalSorter
from pathlib import Path

CSRC = Path(__file__).parents[2] / "csrc"
ORDER = ("base", "simd", "weights", "matmul", "attention", "moe", "sample", "roof", "run")  # each includes earlier ones
APART = ("wheel",)  # linked into wheels only: includes nothing of csrc, and is included by nothing
MAX_FOLDERS = 10

INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)


def includes() -> dict[str, list[str]]:
    """The quoted includes of every source, both by path from csrc."""
    sources = sorted(p for p in CSRC.rglob("*") if p.suffix in (".h", ".cpp"))
    return {str(p.relative_to(CSRC)): INCLUDE.findall(p.read_text()) for p in sources}


def wrong_layers(included: dict[str, list[str]]) -> list[str]:
    """Includes of a later folder, or of one that stands apart."""
    rank = {folder: i for i, folder in enumerate(ORDER)}
    wrong: list[str] = []
    for source, targets in included.items():
        here = source.split("/")[0]
        for target in targets:
            there = target.split("/")[0]
            if here in APART or there not in rank or rank[there] > rank[here]:
                wrong.append(f"{source} includes {target}")
    return wrong


def test_folders() -> None:
    folders = sorted(p.name for p in CSRC.iterdir() if p.is_dir())
    assert folders == sorted((*ORDER, *APART))
    assert len(folders) <= MAX_FOLDERS
    assert [p.name for p in CSRC.iterdir() if p.is_file()] == []
    assert [p for folder in folders for p in (CSRC / folder).iterdir() if p.is_dir()] == []


def test_includes_are_by_path_from_csrc() -> None:
    missing = [f"{source} includes {t}" for source, targets in includes().items() for t in targets
               if not (CSRC / t).is_file() or t.startswith(".")]
    assert missing == []


def test_no_folder_includes_a_later_one() -> None:
    found = includes()
    assert len(found) > 40
    assert wrong_layers(found) == []
    assert wrong_layers({"base/pool.h": ["run/ops.h"], "wheel/a.h": ["base/abi.h"], "run/ops.h": ["wheel/a.h"]}) == \
        ["base/pool.h includes run/ops.h", "wheel/a.h includes base/abi.h", "run/ops.h includes wheel/a.h"]


def test_no_file_includes_itself_through_others() -> None:
    list(TopologicalSorter(includes()).static_order())  # CycleError names the cycle
