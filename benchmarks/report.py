"""Common parts of the scripts: flags, the line with machine and versions, medians with their range."""

from __future__ import annotations

import argparse
import dataclasses
import json
import platform
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import drut
from drut.machine import cpu_model, usable_cpus

BUSY = 0.1  # CPUs used by others above which figures are doubtful


@dataclass(frozen=True)
class Spread:
    """A figure over several rounds."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(statistics.median(values), min(values), max(values))

    def scaled(self, factor: float) -> Spread:
        return Spread(self.median * factor, self.low * factor, self.high * factor)

    def text(self, digits: int, scale: float = 1.0) -> str:
        """Formats the median and, in parentheses, the range; all times `scale`."""
        median, low, high = (f"{value * scale:.{digits}f}" for value in (self.median, self.low, self.high))
        return f"{median} ({low} .. {high})"


def arguments(doc: str, rounds: int) -> argparse.ArgumentParser:
    """Returns a parser with the flags of every script. `doc`: the script's docstring; `rounds`: the default number."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("model", nargs="?", default="smollm2-135m-instruct", help="known name or GGUF file")
    parser.add_argument("--rounds", type=_count, default=rounds, help=f"measured rounds (default: {rounds})")
    parser.add_argument("--threads", type=_count, default=len(usable_cpus()),
                        help="threads of each engine (default: the CPUs this process may use)")
    parser.add_argument("--json", action="store_true", help="print every round and the summary as JSON")
    return parser


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text)):
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number")
    return int(text)


def about(llm: drut.LLM) -> str:
    """Describes the engine and the machine."""
    cpus = len(usable_cpus())
    return (f"drut {drut.__version__}, {llm.backend.describe()}, {llm.files.path.name}; "
            f"{cpu_model()}, {cpus} CPUs; Python {platform.python_version()}")


def others(rounds: Sequence[dict[str, Any]]) -> str:
    """Describes the CPU use of other processes, from each round's `others_cpus`."""
    busy = Spread.of([record["others_cpus"] for record in rounds])
    advice = ": repeat this when idle" if busy.median > BUSY else ""
    return f"other processes used {busy.text(2)} CPUs{advice}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Formats columns, the first aligned left, the others right."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    lines = ("  ".join(f"{cell:{'<' if i == 0 else '>'}{width}}" for i, (cell, width)
                       in enumerate(zip(row, widths, strict=True))) for row in (head, *rows))
    return "\n".join(lines)


def conclude(args: argparse.Namespace, llms: Iterable[drut.LLM], records: Sequence[dict[str, Any]], summary: Any,
             show: Callable[[str, Any, Any], None]) -> None:
    """Closes the engines and prints the results: as JSON, or by `show` of engine, rounds and summary."""
    llms = list(llms)
    engine = about(llms[0])
    for llm in llms:
        llm.close()
    if args.json:
        print(to_json(engine=engine, threads=args.threads, summary=summary, rounds=records))
    else:
        show(engine, records, summary)


def to_json(**data: Any) -> str:
    """Returns one JSON object, including spreads."""
    return json.dumps(data, default=dataclasses.asdict)
