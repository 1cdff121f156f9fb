"""`drut serve`: serves a model over HTTP."""

from __future__ import annotations

import argparse
import asyncio
import difflib
import gc
import logging
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, cast

import msgspec

from drut.cli.opening import add_model
from drut.cli.terminal import note
from drut.config import EngineConfig, add_flags
from drut.errors import RequestError
from drut.model.store import resolve
from drut.server.config import ServerConfig
from drut.server.http.gate import raise_open_files, with_connections

HELP = """Serve a model over HTTP with OpenAI's API: /v1/chat/completions, /v1/completions, /v1/models; GET /docs lists
all routes. By default it listens only on this machine."""
MAX_CONFIG_BYTES = 1 << 20
SECRET = ("api_key",)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the model and the flags of server and engine."""
    add_model(parser)
    parser.add_argument("--config", metavar="FILE", help="settings from a TOML or JSON file, with the flags' names and "
                                                         "_ for -; flags and variables have precedence")
    parser.add_argument("--dry-run", action="store_true", help="check settings and model, print what would be used, "
                                                               "without loading weights")
    add_flags(parser, ServerConfig)
    add_flags(parser)


def run(args: argparse.Namespace) -> int:
    """Serves until a signal; returns the server's exit code. Notes on standard error report the settings."""
    file = read_config(args.config) if args.config else {}
    check_names(file, args.config)
    config = ServerConfig.from_args(args, {k: v for k, v in file.items() if k in ServerConfig.names()})
    engine = EngineConfig.from_args(args, {k: v for k, v in file.items() if k in EngineConfig.names()})
    raise_open_files()
    config = with_connections(config)
    if args.dry_run:
        from drut.server.life.dry_run import report

        for line in report(args.model, config, engine):
            print(line)
        return 0
    from drut.server.life import RequestLog
    from drut.server.life.serve import Server

    logging.basicConfig(level=logging.WARNING, format="drut: %(levelname)s: %(message)s")
    for line in limits(config):
        note(line)
    log = RequestLog(unbuffered_output()) if config.request_log else None
    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            server = Server(model=args.model, path=resolve(args.model), config=config, engine=engine, print_line=note,
                            log=log, on_loaded=settle)
            return runner.run(server.run())
    finally:
        if log is not None:
            log.close()


def settle() -> None:
    """Freezes the loaded objects, which stay, so that the garbage collector does not traverse them during requests."""
    gc.collect()
    gc.freeze()


def unbuffered_output() -> BinaryIO:
    """Returns standard output without buffering."""
    return cast(BinaryIO, open(sys.stdout.fileno(), "wb", buffering=0, closefd=False))


def limits(config: ServerConfig) -> list[str]:
    """Returns the maximum sizes of requests, as flags."""
    flags = [f"--{name.replace('_', '-')} {getattr(config, name)}" for name in config.names()
             if (name.startswith("max_") or name.endswith("_s")) and getattr(config, name) is not None]
    return ["limits: " + " ".join(flags)]


def read_config(name: str) -> Mapping[str, Any]:
    """Returns a file of settings. Raises RequestError if it cannot be read or is not a table."""
    path = Path(name)
    try:
        with path.open("rb") as opened:
            raw = opened.read(MAX_CONFIG_BYTES + 1)
        if len(raw) > MAX_CONFIG_BYTES:
            raise RequestError(f"--config {name}: longer than {MAX_CONFIG_BYTES} bytes")
        data = msgspec.json.decode(raw) if path.suffix == ".json" else tomllib.loads(raw.decode())
    except OSError as error:
        raise RequestError(f"--config {name}: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise RequestError(f"--config {name}: {error}") from None
    if not isinstance(data, dict):
        raise RequestError(f"--config {name}: has no table of settings")
    return data


def check_names(file: Mapping[str, Any], name: str) -> None:
    """Raises RequestError for the first unknown setting, with the most similar known one."""
    known = [*ServerConfig.names(), *EngineConfig.names()]
    for key in file:
        if key not in known:
            near = difflib.get_close_matches(key, known, 1)
            raise RequestError(f"--config {name}: unknown setting {key!r}" + (f"; {near[0]!r} is one" if near else ""))


def loop_factory() -> Any:
    """Returns uvloop's event loop if it is installed, else the standard one."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
