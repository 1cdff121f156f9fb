"""Reads and writes `EngineFiles` as JSON: paths are strings, relative to the file's folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from drut.bench.engines.engine import EngineFiles
from drut.errors import RequestError

MAX_BYTES = 1 << 20
LAYOUTS = ("gguf", "hf", "openvino", "mlx")


def load_model_files(path: Path) -> EngineFiles:
    """Reads a file. Raises RequestError if it cannot be read, is invalid, or names a path that does not exist."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise RequestError(f"{path} has more than {MAX_BYTES} bytes")
        given = msgspec.json.decode(data, type=dict[str, str | None])
        known = msgspec.structs.fields(EngineFiles)
        if unknown := sorted(given.keys() - {field.name for field in known}):
            raise RequestError(f"{path}: unknown field {unknown[0]!r}")
        files = msgspec.convert({name: value for name, value in given.items() if value is not None or name in LAYOUTS},
                                EngineFiles, dec_hook=lambda _, value: path.parent / Path(value).expanduser())
    except OSError as error:
        raise RequestError(f"{path}: {error.strerror or error}") from None
    except msgspec.MsgspecError as error:
        raise RequestError(f"{path}: {error}") from None
    for layout in LAYOUTS:
        found: Path | None = getattr(files, layout)
        if found is not None and not found.exists():
            raise RequestError(f"{path}: {layout}: {found} does not exist")
    return files


def save_model_files(files: EngineFiles, path: Path) -> None:
    """Writes a file that `load_model_files` reads."""
    def as_text(value: Any) -> str:
        return str(value)

    path.write_bytes(msgspec.json.format(msgspec.json.encode(files, enc_hook=as_text)))
