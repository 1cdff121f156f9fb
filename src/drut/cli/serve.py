"""`drut serve`: serves a model over HTTP."""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, BinaryIO, TextIO, cast

from drut.cli.opening import add_choice
from drut.cli.settings import engine_config, model_of, part, read
from drut.config import add_flags
from drut.model.store import resolve
from drut.server.config import ServerConfig
from drut.server.http.gate import raise_open_files, with_connections

if TYPE_CHECKING:
    from drut.server.http.failures import FailureLog

HELP = """Serve a model over HTTP with OpenAI's API: /v1/chat/completions, /v1/completions, /v1/models; GET /docs lists
all routes. By default it listens only on this machine."""
EXAMPLES = (
    ("drut serve smollm2-135m-instruct", "on http://127.0.0.1:8000"),
    ("DRUT_API_KEY=change-me drut serve qwen3-4b --host 0.0.0.0", "for other machines, with a key"),
    ("drut serve qwen3-4b --config server.toml --dry-run", "check settings and model"),
)
SECRET = ("api_key",)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the model and the flags of server and engine."""
    add_choice(parser)
    parser.add_argument("--config", metavar="FILE", help="settings from this TOML or JSON file instead of the user's "
                                                         "(drut help config)")
    parser.add_argument("--dry-run", action="store_true", help="check settings and model, print what would be used, "
                                                               "without loading weights")
    add_flags(parser, ServerConfig)
    add_flags(parser)


def run(args: argparse.Namespace) -> int:
    """Serves until a signal; returns the server's exit code. Notes on standard error report the settings."""
    file = read(args.config)
    config = ServerConfig.from_args(args, part(file, ServerConfig))
    engine = engine_config(args, file)
    model = model_of(args, file)
    raise_open_files()
    config = with_connections(config)
    if args.dry_run:
        from drut.server.life.dry_run import report

        for line in report(model, config, engine):
            print(line)
        return 0
    from drut.server.life import RequestLog
    from drut.server.life.serve import Server

    logging.basicConfig(level=logging.WARNING, format="drut: %(levelname)s: %(message)s")
    with ExitStack() as ending:
        log = RequestLog(unbuffered(sys.stdout)) if config.request_log else None
        if log is not None:
            ending.callback(log.close)
        runner = ending.enter_context(asyncio.Runner(loop_factory=loop_factory()))
        server = Server(model=model, path=resolve(model), config=config, engine=engine, print_line=show,
                        log=log, failures=failure_log(config, ending), on_loaded=settle)
        return runner.run(server.run())


def show(text: str) -> None:
    """Prints a line about the server on standard error."""
    print(text, file=sys.stderr, flush=True)


def failure_log(config: ServerConfig, ending: ExitStack) -> FailureLog:
    """Returns the log of failed requests, whose thread ends with `ending`."""
    from drut.server.http.failures import FailureLog
    from drut.server.life.lines import LineWriter

    if config.failure_log == "none":
        return FailureLog(None)
    lines = LineWriter(unbuffered(sys.stderr), lambda lost: b"drut: %d lines were dropped\n" % lost)
    ending.callback(lines.close)
    return FailureLog(lambda line: lines.put(f"drut: {line}\n".encode()), aborts=config.failure_log == "all")


def settle() -> None:
    """Freezes the loaded objects, which stay, so that the garbage collector does not traverse them during requests."""
    gc.collect()
    gc.freeze()


def unbuffered(stream: TextIO) -> BinaryIO:
    """Returns a standard stream without buffering."""
    return cast(BinaryIO, open(stream.fileno(), "wb", buffering=0, closefd=False))


def loop_factory() -> Any:
    """Returns uvloop's event loop if it is installed, else the standard one."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
