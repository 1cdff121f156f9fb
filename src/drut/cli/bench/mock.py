"""`drut bench mock`: a server with scripted service times."""

from __future__ import annotations

import argparse

from drut.errors import RequestError

SUMMARY = "an OpenAI-compatible server with scripted service times"
DESCRIPTION = "Serves OpenAI's API with times and faults by a script, until it is interrupted."
EXAMPLES = (
    ("drut bench mock --script eight.toml --port 8001", "a server at http://127.0.0.1:8001"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the address and the script."""
    parser.add_argument("--script", required=True, metavar="FILE", help="the script, in TOML or JSON (docs/mock.md)")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1)")
    parser.add_argument("--port", type=int, default=8000, metavar="P", help="port (default: 8000; 0: any)")


def run(args: argparse.Namespace) -> int:
    """Serves until it is interrupted."""
    from drut.bench.mock import serve_script

    if not 0 <= args.port <= 65535:
        raise RequestError(f"--port must be from 0 to 65535, not {args.port}")
    serve_script(args.script, args.host, args.port)
    return 0
