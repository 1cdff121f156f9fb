"""`drut bench mock`: a server with scripted service times."""

from __future__ import annotations

import argparse

from drut.errors import RequestError

SUMMARY = "an OpenAI-compatible server with scripted service times"
DESCRIPTION = "Serves OpenAI's API with times and faults by a script, until it is interrupted."
EXAMPLES = (
    ("drut bench mock --script eight.toml --port 8001", "a server at http://127.0.0.1:8001"),
    ("drut bench mock --fields", "what a script may have"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the address and the script."""
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--script", metavar="FILE", help="the script, in TOML or JSON")
    what.add_argument("--fields", action="store_true", help="print the fields of a script with their meaning")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1)")
    parser.add_argument("--port", type=int, default=8000, metavar="P", help="port (default: 8000; 0: any)")


def run(args: argparse.Namespace) -> int:
    """Serves until it is interrupted, or prints the fields of a script."""
    from drut.bench.mock import serve_script
    from drut.bench.mock.fields import fields_text

    if args.fields:
        print(fields_text())
        return 0
    if not 0 <= args.port <= 65535:
        raise RequestError(f"--port must be from 0 to 65535, not {args.port}")
    serve_script(args.script, args.host, args.port)
    return 0
