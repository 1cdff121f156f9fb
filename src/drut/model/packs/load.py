"""Loads a model through the pack cache: maps the pack if there is one, else packs the weights and stores the pack."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from drut.formats.encoding import encoding
from drut.kernels.backend import PackingBackend
from drut.kernels.weight import Matrix, Stack
from drut.model.families.table import Stored
from drut.model.packs.cache import PackCache
from drut.model.packs.file import PackForm
from drut.model.roles import expected_shapes
from drut.model.spec import ModelSpec
from drut.model.store import model_digest
from drut.model.weights.loader import Weights, check_tensors, load_weights
from drut.model.weights.outline import outline_weights
from drut.model.weights.source import TensorSource

MIN_BYTES = 256_000_000  # minimum of matrix bytes; packing less is fast enough without a copy on disk

Table = Mapping[str, Stored]


def load_through(cache: PackCache, spec: ModelSpec, source: TensorSource, table: Table, backend: PackingBackend,
                 path: Path) -> Weights:
    """Returns the weights of the model at `path`; they have the same bytes with and without a pack."""
    check_tensors(spec, source, table, path.name)
    forms = _forms(spec, outline_weights(spec, source, table, backend))
    if sum(form.nbytes for form in forms) < MIN_BYTES or not cache.ready():
        return load_weights(spec, source, table, backend, path.name)
    key = pack_key(forms, table, backend, path)
    found = cache.get(key, forms)
    if found is not None:
        kept = {form.role: data for form, data in zip(forms, found, strict=True)}
        return load_weights(spec, source, table, backend, path.name, kept=kept)
    weights = load_weights(spec, source, table, backend, path.name)
    packed: dict[str, Matrix | Stack] = {**weights.matrices, **weights.stacks}
    cache.put(key, path.name, [(form, backend.packed(packed[form.role])) for form in forms])
    return weights


def pack_key(forms: Sequence[PackForm], table: Table, backend: PackingBackend, path: Path) -> str:
    """Returns a hash of everything that fixes the packed bytes: the files, the backend's packing, and the order of rows
    in each role."""
    packing = backend.packing(encoding(form.encoding) for form in forms)
    rows = [(repr(table[form.role]), _order(table[form.role], form.n)) for form in forms]
    return hashlib.sha256(json.dumps([model_digest(path), packing, forms, rows]).encode()).hexdigest()


def _forms(spec: ModelSpec, outline: Weights) -> list[PackForm]:
    """Returns the form of every matrix, in the order of their roles. The matrices of experts are concatenated."""
    forms = {role: PackForm(role, m.encoding.name, m.n, m.k, m.nbytes) for role, m in outline.matrices.items()}
    forms |= {role: PackForm(role, s.encoding.name, s.count * s.n, s.k, s.nbytes) for role, s in outline.stacks.items()}
    return [forms[role] for role in expected_shapes(spec) if role in forms]


def _order(stored: Stored, rows: int) -> int:
    order = stored.row_order(rows)
    return 0 if order is None else zlib.crc32(order.data)
