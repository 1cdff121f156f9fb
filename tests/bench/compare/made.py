"""Blocks and comparisons as tests want them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from drut.bench.compare.comparing import Comparing
from drut.bench.compare.schema import Block, Comparison
from drut.bench.compare.settings import settings
from drut.bench.result.figures import FIGURES

FAST: dict[str, Any] = {"slots": 4, "ttft": {"kind": "constant", "ms": 20}, "itl": {"kind": "constant", "ms": 10}}
SLOW: dict[str, Any] = {"slots": 4, "ttft": {"kind": "constant", "ms": 40}, "itl": {"kind": "constant", "ms": 20}}


def block(number: int, contestant: str, cell: str = "c@1", valid: bool = True, **figures: Any) -> Block:
    reasons = [] if valid else ["the client sent late"]
    return Block(round=number, turn=0, contestant=contestant, cell=cell, valid=valid, reasons=reasons,
                 figures={**dict.fromkeys(FIGURES), **figures}, samples={})


def work(folder: Path) -> str:
    """A workload that needs no tokenizer: a hello, answered in 8 tokens, again and again."""
    path = folder / "hello.jsonl"
    path.write_text('{"messages": [{"role": "user", "content": "hello"}], "max_tokens": 8, "exact": true}\n')
    return f"jsonl:path={path}"


def script(folder: Path, name: str, what: dict[str, Any]) -> str:
    """A contestant of that name: the scripted server."""
    path = folder / f"{name}.json"
    path.write_text(json.dumps(what))
    return f"{name}=mock --script {path}"


def comparing(folder: Path, engines: list[str], before: Comparison | None = None, **more: Any) -> Comparing:
    given = {"engines": engines, "cells": [f"{work(folder)}@2"], "rounds": 1, "warmup": 0.1, "duration": 0.5,
             "grace": 20.0, "gate": "lengths", "gate_prompts": 1, "gate_tokens": 4, "sequences": 2, "timeout": 60.0}
    out = folder / "out"
    out.mkdir(exist_ok=True)
    return Comparing.of(settings({**given, **more}), out, before)


def run(what: Comparing, report: Callable[[str], None] = lambda text: None) -> Comparison:
    what.run(report)
    return what.comparison()
