"""Converts a model role by role: reads canonical rows, quantizes them if requested, and writes them to the other
container."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType

import numpy as np

from drut.errors import DrutError, UnsupportedError
from drut.formats.encode import ENCODERS, encode
from drut.formats.encoding import ENCODINGS, W8A8, Encoding, encoding, title
from drut.formats.planes import U8
from drut.model.convert import keys, vocabulary
from drut.model.convert.compressed import compressed, settings
from drut.model.convert.rows import canonical
from drut.model.convert.smooth import Fold, smoothing
from drut.model.convert.write import PendingTensor, write_gguf, write_safetensors
from drut.model.families import family_of_gguf, family_of_hf
from drut.model.families.table import Stored
from drut.model.model import ModelFiles
from drut.model.roles import expected_shapes

HF_DTYPES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16", W8A8.name: "bfloat16"}  # of the model
KEPT_APART = ("rope_freqs.weight",)  # GGUF tensors without a role, which are copied from file to file
DROPPED = ("general.file_type", "split.", "general.quantization_version", "general.alignment")


def convert(files: ModelFiles, out: Path, to: str | None = None, sample: Sequence[int] = ()) -> list[str]:
    """Writes `files` to `out`, a `.gguf` file or a directory, its matrices in encoding `to` or as they are.

    `sample`: token ids of a text. With it a model that becomes W8A8 is smoothed first, for activations like the text's.
    Returns notes about matrices that `to` cannot hold, a line each. A failure leaves no files, and existing files are
    never overwritten. Raises UnsupportedError, which names what cannot be converted.
    """
    if out.exists():
        raise DrutError(f"{out} exists already")
    files.check()
    is_gguf = out.suffix == ".gguf"
    wanted = encoding(to) if to is not None else None
    if wanted is not None:
        _check_container(out, wanted, is_gguf)
    out.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    try:
        made = scratch / out.name
        notes = _to_gguf(files, made, wanted) if is_gguf else _to_hf(files, made, wanted or _most(files), sample)
        os.rename(made, out)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return notes


def _check_container(out: Path, wanted: Encoding, is_gguf: bool) -> None:
    held = ENCODINGS if is_gguf else HF_DTYPES
    if wanted.name not in held:
        takes = ", ".join(title(name) for name in ENCODERS if name in held)
        here, other = ("a GGUF file", "a directory") if is_gguf else ("a directory", "a .gguf file")
        raise UnsupportedError(f"{out}: {here} takes {takes}, not {title(wanted.name)} ({other} does)")


def _to_gguf(files: ModelFiles, out: Path, wanted: Encoding | None) -> list[str]:
    architecture = keys.gguf_architecture(files)
    table = family_of_gguf(architecture).gguf_table(files.spec)
    notes: list[str] = []
    tensors = list(_pending(files, table, wanted, notes))
    if files.is_gguf:
        metadata = {k: v for k, v in files.metadata.items() if not k.startswith(DROPPED)}
        tensors += [_as_it_is(files, name) for name in KEPT_APART if name in files.source.tensors]
    else:
        metadata, factors = keys.gguf_keys(files, architecture)
        tokenizer = files.tokenizer()
        if tokenizer is None:
            raise UnsupportedError(f"{files.path}: there is no tokenizer.json, but a GGUF file must have the tokenizer")
        metadata |= vocabulary.gguf_keys(tokenizer, files.spec.vocab, files.path.name)
        if factors is not None:
            f32 = factors.astype(np.float32)
            tensors.append(PendingTensor.of("rope_freqs.weight", f32.shape, encoding("F32"),
                                            lambda: f32.view(np.uint8)))
    write_gguf(out, metadata | {"general.quantization_version": 2}, tensors)
    return notes


def _to_hf(files: ModelFiles, out: Path, wanted: Encoding, sample: Sequence[int]) -> list[str]:
    config = keys.hf_config(files, HF_DTYPES[wanted.name])
    table = family_of_hf(config["architectures"][0]).hf_table(files.spec)
    tokenizer = files.tokenizer()
    out.mkdir()
    notes: list[str] = []
    folds = smoothing(files, sample) if sample and wanted == W8A8 != _most(files) else {}
    tensors = list(_pending(files, table, wanted, notes, folds))
    if wanted == W8A8:
        tensors = compressed(tensors, files.spec.tied_head)
        config["quantization_config"] = settings(tensors)
    write_safetensors(out / "model.safetensors", tensors)
    if tokenizer is not None:
        vocabulary.write_hf(tokenizer, out)
        ends = sorted(tokenizer.eos_ids)
        config |= {"bos_token_id": tokenizer.bos_id, "eos_token_id": ends[0] if len(ends) == 1 else ends or None}
        generation = {key: config[key] for key in ("bos_token_id", "eos_token_id") if config[key] is not None}
        (out / "generation_config.json").write_text(json.dumps(generation, indent=1), encoding="utf-8")
    (out / "config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")
    return notes


def _most(files: ModelFiles) -> Encoding:
    """Returns the encoding of most matrices, if a directory takes it; else BF16."""
    names = [files.source.tensors[files.table[role].name].encoding for role, s in expected_shapes(files.spec).items()
             if len(s) == 2]
    most = max(set(names), key=names.count)
    return encoding(most if most in HF_DTYPES else "BF16")


def _pending(files: ModelFiles, table: Mapping[str, Stored], wanted: Encoding | None, notes: list[str],
             folds: Mapping[str, Fold] = MappingProxyType({})) -> Iterator[PendingTensor]:
    """Returns the tensors of every role, with the names and row order of `table` and the factors of `folds`. Vectors
    are float32."""
    for role, shape in expected_shapes(files.spec).items():
        source, target = files.table[role], table[role]
        stored = encoding(files.source.tensors[source.name].encoding)
        enc = encoding("F32") if len(shape) == 1 else _choose(files, role, stored, wanted, shape[1], notes)
        keeps = role not in folds and stored == enc and files.source.columns(source.name) is None
        make = (partial(_kept, files, source, target, shape) if keeps else
                partial(_rounded, files, role, folds.get(role, Fold()), target, enc, shape))
        yield PendingTensor.of(target.name, shape, enc, make)


def _choose(files: ModelFiles, role: str, stored: Encoding, wanted: Encoding | None, k: int,
            notes: list[str]) -> Encoding:
    if wanted is None:
        if stored.name not in ENCODINGS:
            raise UnsupportedError(f"{files.path.name}: {role} is stored as {title(stored.name)}, which a GGUF file "
                                   "cannot hold: name an encoding to convert it to")
        return stored
    if wanted == W8A8 != stored and role in ("embed", "head"):
        return stored if stored.name in HF_DTYPES else encoding("BF16")
    if k % wanted.block == 0:
        return wanted
    notes.append(f"{role}: rows of {k} are not whole blocks of {title(wanted.name)}; written as F16")
    return encoding("F16")


def _kept(files: ModelFiles, source: Stored, target: Stored, shape: tuple[int, ...]) -> U8:
    """Returns the stored rows, in the order of the target."""
    rows = files.source.raw(source.name).reshape(shape[0], -1)
    rows = _reordered(rows, source.row_order(len(rows)), target.row_order(len(rows)))
    files.source.release(source.name)
    return rows


def _rounded(files: ModelFiles, role: str, fold: Fold, target: Stored, enc: Encoding, shape: tuple[int, ...]) -> U8:
    """Returns a role's folded numbers in encoding `enc`, in the order of the target."""
    values = fold.of(canonical(files, role, shape))
    rows = encode(enc, values.reshape(-1, shape[-1])).reshape(shape[0], -1)
    return _reordered(rows, None, target.row_order(len(rows)))


def _reordered(rows: U8, source: np.ndarray | None, target: np.ndarray | None) -> U8:
    """Returns the rows in the order of the target file; the orders are relative to the canonical one."""
    if source is not None:
        rows = rows[source]
    if target is None:
        return rows
    out = np.empty_like(rows)
    out[target] = rows
    return out


def _as_it_is(files: ModelFiles, name: str) -> PendingTensor:
    info = files.source.tensors[name]
    return PendingTensor.of(name, info.shape, encoding(info.encoding), lambda: files.source.raw(name))
