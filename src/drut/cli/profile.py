"""`drut profile`: measures the time of a step's operations against the machine's roof."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from drut.cli.opening import add_model, open_llm
from drut.cli.settings import engine_config
from drut.config import add_flags
from drut.errors import RequestError
from drut.observe.ledger import StepLedger

HELP = """Measure prefill and decoding steps: bytes and multiply-adds of each kind of operation, their roofline time on
this machine, and their measured time."""
ROWS = (1, 2, 4, 8, 16)  # of a verification
EXAMPLES = (
    ("drut profile smollm2-135m-instruct", "a prompt of 512 tokens, then batches of 1 and 8"),
    ("drut profile smollm2-135m-instruct --batch 1,32 --json", "other batches, as JSON"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    parser.add_argument("--prompt-tokens", type=int, default=512, metavar="N", help="prefill length (default: 512)")
    parser.add_argument("--batch", default="1,8", metavar="LIST", help="batch sizes of decoding steps (default: 1,8)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_flags(parser)


def run(args: argparse.Namespace) -> int:
    from drut.engine.profile import Profiler, warm_up
    from drut.home import home
    from drut.kernels.native.library import load
    from drut.plan.peaks import peaks
    from drut.plan.probe import measure
    from drut.plan.roof import FILE, keep

    config = replace(engine_config(args), overlap=False)  # only a step that runs alone can be timed exactly
    batches = _batches(args.batch, config.max_seqs)
    with open_llm(args.model, config) as llm:
        most = min(llm.room - 1, llm.config.max_batch_tokens)
        if not 1 <= args.prompt_tokens <= most:
            raise RequestError(f"--prompt-tokens must be from 1 to {most}, not {args.prompt_tokens}")
        roof = keep(measure(load()), home() / FILE)
        profiler = Profiler(llm, peaks(roof, getattr(llm.backend, "threads", 1)))
        warm_up(llm)
        ledgers = {f"prefill {args.prompt_tokens}": profiler.prefill(args.prompt_tokens)}
        ledgers |= {f"decode {n}": profiler.decode(n) for n in batches}
        verified = {n: profiler.verify(n) for n in ROWS if n <= config.max_seqs}
    if args.json:
        ledgers |= {f"verify {n}": ledger for n, ledger in verified.items()}
        print(json.dumps({name: to_json(ledger) for name, ledger in ledgers.items()}))
    else:
        for name, ledger in ledgers.items():
            print(f"\n{name}\n{text(ledger)}")
        print(f"\nverify drafts of one sequence\n{rows_text(verified)}")
    return 0


def _batches(value: str, most: int) -> list[int]:
    try:
        sizes = [int(part) for part in value.split(",")]
    except ValueError:
        sizes = [0]
    if not all(1 <= size <= most for size in sizes):
        raise RequestError(f"--batch must be numbers from 1 to {most} (--max-seqs) with commas between, not {value!r}")
    return sizes


def text(ledger: StepLedger) -> str:
    """Returns a table: a line for each kind of operation, then the whole step."""
    lines = [f"{'':<12}{'calls':>6}{'MB':>10}{'GMAC':>9}{'floor us':>10}{'actual us':>11}{'of roof':>9}  roof"]
    for line in ledger.lines:
        lines.append(f"{line.name:<12}{line.calls:>6}{line.nbytes / 1e6:>10.2f}{line.macs / 1e9:>9.3f}"
                     f"{line.floor_s * 1e6:>10.1f}{line.actual_s * 1e6:>11.1f}{line.share:>9.0%}  {line.roof}".rstrip())
    lines.append(f"{'between':<12}{'':>6}{'':>10}{'':>9}{'':>10}{ledger.gap_s * 1e6:>11.1f}")
    lines.append(f"{'step':<12}{'':>6}{sum(x.nbytes for x in ledger.lines) / 1e6:>10.2f}"
                 f"{sum(x.macs for x in ledger.lines) / 1e9:>9.3f}{ledger.floor_s * 1e6:>10.1f}"
                 f"{ledger.wall_s * 1e6:>11.1f}{ledger.share:>9.0%}  {ledger.rows / ledger.wall_s:.0f} tokens/s")
    return "\n".join(lines)


def rows_text(verified: Mapping[int, StepLedger]) -> str:
    """Returns a table of the time of a step by its rows, absolute and in times of the step with one row."""
    one = verified[1].wall_s
    lines = [f"{'rows':<12}{'us':>10}{'of one row':>12}"]
    lines += [f"{n:<12}{ledger.wall_s * 1e6:>10.1f}{ledger.wall_s / one:>12.2f}" for n, ledger in verified.items()]
    return "\n".join(lines)


def to_json(ledger: StepLedger) -> dict[str, Any]:
    lines = [{**line._asdict(), "floor_s": line.floor_s} for line in ledger.lines]
    return {**asdict(ledger), "lines": lines, "floor_s": ledger.floor_s, "share_of_roof": ledger.share}
