"""`drut rm`: removes fetched models."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from drut.cli.table import size
from drut.cli.terminal import note, one_line
from drut.errors import DrutError, RequestError, did_you_mean
from drut.model.store import find
from drut.model.store.disk import StoredModel, remove, stored

HELP = """Remove models that drut has fetched; files of yours are never touched. On a terminal it asks first, elsewhere
-y is needed."""
EXAMPLES = (
    ("drut rm qwen3-4b", "ask, then remove"),
    ("drut rm -y qwen3-4b smollm2-135m-instruct", "two models, without a question"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the models."""
    parser.add_argument("models", metavar="MODEL", nargs="+", help="a name as `drut list` prints it, or hf:ORG/REPO")
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask")


def run(args: argparse.Namespace) -> int:
    """Finds all models before it removes one; prints the freed bytes. Exit code 1 if the answer is no."""
    chosen = list(dict.fromkeys(model for name in args.models for model in _find(name)))
    if not args.yes:
        if not sys.stdin.isatty():
            raise RequestError("there is no terminal to ask on: give -y to remove without a question")
        for model in chosen:
            note(f"{one_line(model.name)}, {size(model.nbytes)}, in {model.folder}")
        print("remove? [y/N] ", end="", file=sys.stderr, flush=True)
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            note("nothing was removed")
            return 1
    for model in chosen:
        print(f"removed {one_line(model.name)}, {size(remove(model))} freed")
    return 0


def _find(name: str) -> list[StoredModel]:
    models = stored()
    found = [model for model in models if model.name == name]
    if found:
        return found
    try:
        path = find(name)
    except DrutError:
        path = None
    found = [model for model in models if path is not None and model.path == path.absolute()]
    if found:
        return found
    if path is not None and Path(name).expanduser().exists():
        raise RequestError(f"{name} is a file of yours: drut removes only models that it has fetched")
    raise RequestError(f"no fetched model {name!r}{did_you_mean(name, [m.name for m in models])} (drut list)")
