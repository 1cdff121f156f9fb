"""`drut list`: lists the models on this machine, or the catalogue."""

from __future__ import annotations

import argparse
import dataclasses
import json

from drut.cli.table import date, size, table
from drut.cli.terminal import note
from drut.errors import DrutError
from drut.model.store import entries
from drut.model.store.disk import StoredModel, stored

HELP = """List the models that pulls have stored on this machine, or with --catalogue all models that have a short name.
DRUT_HOME/models.toml adds names to the catalogue."""
EXAMPLES = (
    ("drut list", "name, size, quantization and date"),
    ("drut list -v", "where each is, too"),
    ("drut list --catalogue", "what `drut pull NAME` can fetch"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what to list, and the format."""
    parser.add_argument("--catalogue", action="store_true", help="list the models with short names")
    parser.add_argument("-v", "--verbose", action="store_true", help="paths; of the catalogue sources and sampling")
    parser.add_argument("--json", action="store_true", help="print one JSON array")


def run(args: argparse.Namespace) -> int:
    """Prints a table; notes on standard error help if there is nothing to list."""
    if args.catalogue:
        _catalogue(args)
        return 0
    models = stored()
    if args.json:
        print(json.dumps([_fields(model) for model in models]))
        return 0
    if not models:
        note("no models yet: `drut pull smollm2-135m-instruct` fetches a small one, `drut list --catalogue` lists more")
        return 0
    rows = [[model.name, size(model.nbytes), _quantization(model), date(model.folder.stat().st_mtime)]
            + ([str(model.path)] if args.verbose else []) for model in models]
    print(table(["NAME", "SIZE", "QUANTIZATION", "MODIFIED", "PATH"][:4 + args.verbose], rows, right=[1]))
    return 0


def _fields(model: StoredModel) -> dict[str, object]:
    return {"name": model.name, "bytes": model.nbytes, "quantization": _quantization(model),
            "modified": model.folder.stat().st_mtime, "path": str(model.path), "partial": model.partial}


def _quantization(model: StoredModel) -> str:
    """Returns the catalogue's word, else that of the file's tensors."""
    if model.partial:
        return "partial download"
    entry = entries().get(model.name)
    if entry is not None and entry.quantization:
        return entry.quantization
    from drut.model.describe import describe
    from drut.model.model import open_model

    try:
        files = open_model(model.path)
        try:
            return describe(files).quantization
        finally:
            files.close()
    except DrutError:
        return "unknown"


def _catalogue(args: argparse.Namespace) -> None:
    here = {model.name for model in stored() if not model.partial}
    if args.json:
        print(json.dumps([dataclasses.asdict(e) | {"on_disk": e.name in here} for e in entries().values()]))
        return
    rows = []
    for e in entries().values():
        state = ("verified" if e.verified else "not verified here") + (", on disk" if e.name in here else "")
        sampling = ", ".join(f"{key} {value:g}" for key, value in e.sampling.items()) or "-"
        rows.append([e.name, e.parameters or "-", e.quantization or "-", size(e.bytes), e.licence or "-", state]
                    + ([sampling, e.source or e.repo or str(e.path)] if args.verbose else []))
    titles = ["NAME", "PARAMS", "QUANT", "SIZE", "LICENCE", "STATE", "SAMPLING", "SOURCE"]
    print(table(titles[:8 if args.verbose else 6], rows, right=[3]))
