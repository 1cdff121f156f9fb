"""Loading a model through the cache of packs: read if it is there, else pack and keep."""

from __future__ import annotations

import hashlib
import json
import math
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from drut.formats.encoding import encoding
from drut.kernels.backend import PackingBackend
from drut.kernels.weight import Matrix, Stack
from drut.model.families.table import Stored
from drut.model.packs.cache import PackCache
from drut.model.packs.file import Form
from drut.model.roles import expected_shapes
from drut.model.spec import ModelSpec
from drut.model.store import model_digest
from drut.model.weights.loader import Weights, check_tensors, load_weights, packed_encoding
from drut.model.weights.source import TensorSource

LEAST_BYTES = 256_000_000  # of matrices; packing fewer takes too little for a copy on disk

Table = Mapping[str, Stored]


def load_through(cache: PackCache, spec: ModelSpec, source: TensorSource, table: Table, backend: PackingBackend,
                 path: Path) -> Weights:
    """The weights of the model at `path`; the same bytes whether they were kept or not."""
    check_tensors(spec, source, table, path.name)
    forms = [_form(role, shape, source, table, backend) for role, shape in expected_shapes(spec).items()
             if len(shape) > 1 and not role.endswith("_bias")]
    if sum(form.nbytes for form in forms) < LEAST_BYTES or not cache.ready():
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


def pack_key(forms: Sequence[Form], table: Table, backend: PackingBackend, path: Path) -> str:
    """Of all that decides the packed bytes: the files, how the backend packs, and which rows go where in each role."""
    packing = backend.packing(encoding(form.encoding) for form in forms)
    rows = [(repr(table[form.role]), _order(table[form.role], form.n)) for form in forms]
    return hashlib.sha256(json.dumps([model_digest(path), packing, forms, rows]).encode()).hexdigest()


def _form(role: str, shape: tuple[int, ...], source: TensorSource, table: Table, backend: PackingBackend) -> Form:
    (*count, n, k), enc = shape, packed_encoding(role, table[role], source)
    experts = math.prod(count)  # 1 without any; their matrices lie one after another
    return Form(role, enc.name, experts * n, k, experts * backend.packed_bytes(enc, n, k))


def _order(stored: Stored, rows: int) -> int:
    order = stored.row_order(rows)
    return 0 if order is None else zlib.crc32(order.data)
