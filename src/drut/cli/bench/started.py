"""The server of a command, which may start it."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from drut.cli.bench.flags import target_of, with_model
from drut.errors import RequestError


def add_engine(parser: argparse.ArgumentParser) -> None:
    """Adds the flags that replace --url and --model."""
    group = parser.add_argument_group("or an engine that the command starts")
    group.add_argument("--engine", metavar="E", help="'ENGINE [gguf=FILE ...] [--flag ...]', as in `drut bench "
                       "compare` (docs/engines.md)")
    group.add_argument("--model-files", metavar="FILE", help="the model in the layouts that engines read, as JSON "
                       "(docs/compare.md)")
    group.add_argument("--context", type=int, default=2048, metavar="N", help="tokens of a prompt and its answer, at "
                       "most (default: 2048)")
    group.add_argument("--sequences", type=int, default=16, metavar="N", help="requests that it computes at a time, at "
                       "most (default: 16)")


@contextmanager
def target_for(args: argparse.Namespace, folder: Path) -> Iterator[tuple[Any, argparse.Namespace]]:
    """Yields the `Target`, and the flags with_modeld with the server's properties. The server runs until the end of
    `with`; an engine's log is in `folder`. Raises RequestError, CannotRunError, EngineFailedError."""
    if args.engine is None:
        if args.url is None:
            raise RequestError("--url is needed, or --engine")
        known = with_model(args)
        yield target_of(known), known
        return
    for name in ("url", "endpoint"):
        if getattr(args, name) is not None:
            raise RequestError(f"--{name} is for a running server; --engine starts one")
    import msgspec

    from drut.bench.engines.process import start
    from drut.errors import DrutError

    entry, launch = _launch(args)
    try:
        running = start(launch, folder / f"{entry.name}.log")
    except DrutError as error:
        raise type(error)(f"{entry.name}: {error}") from error
    with running:
        known = argparse.Namespace(**{**vars(args), "url": launch.url, "model": args.model or launch.model,
                                      "server_pid": running.pid, "tokenizer": args.tokenizer or entry.files.get(
                                          "tokenizer") or _tokenizer(args)})
        target = target_of(known)
        yield msgspec.structs.replace(target, exact=launch.exact, body={**launch.body, **target.body}), known


def _launch(args: argparse.Namespace) -> Any:
    from drut.bench.compare.entries import parse_entries
    from drut.bench.engines.engine import EngineFiles, Options
    from drut.bench.engines.files import load_model_files
    from drut.bench.engines.process import free_port
    from drut.bench.engines.registry import find
    from drut.machine import usable_cpus

    entries = parse_entries([args.engine])
    if len(entries) > 1:
        raise RequestError(f"--engine takes one engine, not {args.engine!r}")
    entry = entries[0]
    files = load_model_files(Path(args.model_files)) if args.model_files else EngineFiles(args.model or entry.name, "")
    options = Options(len(usable_cpus()), args.context, args.sequences, entry.flags)
    return entry, find(entry.engine).launch(entry.of(files), options, entry.port or free_port())


def _tokenizer(args: argparse.Namespace) -> str | None:
    from drut.bench.engines.files import load_model_files

    return load_model_files(Path(args.model_files)).tokenizer or None if args.model_files else None
