"""Rope as a `config.json` describes it: `rope_parameters`, or the older `rope_scaling` with the base beside it.

What a file leaves out, and which of two places counts where both speak, is what `transformers` 5.24 takes.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from drut.errors import ModelFileError, UnsupportedError
from drut.model import rope as ropes
from drut.model.families.hf import Metadata, Sizes
from drut.model.spec import Rope
from drut.model.weights.mapping import quote
from drut.model.weights.metadata import optional

FULL, WINDOW = "full_attention", "sliding_attention"
NOTHING: Metadata = MappingProxyType({})


def rope(config: Metadata, sizes: Sizes, family: str, path: str, *, theta: float = 10000.0,
         partial: float | None = None, default: Metadata = NOTHING) -> Rope:
    """The rope of a model whose layers all turn alike (`table`, `turned`)."""
    return turned(table(config, path, default), sizes, family, path, theta=theta, partial=partial)


def table(config: Metadata, path: str, default: Metadata = NOTHING) -> Metadata:
    """The settings of a model whose layers all turn alike; `default` where the file has no table.

    `rope_scaling` counts before `rope_parameters`. In a table, the base and the turned part count before those beside
    it, while of two original context lengths the one beside it does.
    """
    found = _object(config, "rope_scaling", path) or _object(config, "rope_parameters", path) or default
    if FULL in found or WINDOW in found:
        raise UnsupportedError(f"{path}: rope_parameters: a table for each kind of layer is not supported, as all "
                               "layers of the architecture turn alike")
    beside = _set({key: config.get(key) for key in ("rope_theta", "partial_rotary_factor")})
    original = _set({key: config.get(key) for key in ("original_max_position_embeddings",)})
    return {**beside, **_set(found), **original}


def tables(config: Metadata, path: str, *, full: float, window: float, local: str = "") -> dict[str, Metadata]:
    """The settings of each kind of layer, for layers that see all and layers with a window.

    `full` and `window` are their bases where the file has none; `local` is the older key of the second one.
    `rope_scaling` and `rope_theta` speak of the layers that see all.
    """
    found, scaling = _object(config, "rope_parameters", path), _object(config, "rope_scaling", path)
    if found and not (FULL in found or WINDOW in found):
        raise UnsupportedError(f"{path}: rope_parameters without {FULL} and {WINDOW} is not supported, as the kinds of "
                               "layers turn by tables of their own")
    if "type" in scaling and "rope_type" not in scaling:
        raise UnsupportedError(f"{path}: rope_scaling with type and without rope_type is not supported")
    partial = _set({"partial_rotary_factor": config.get("partial_rotary_factor")})
    bases = {FULL: optional(config, "rope_theta", float, path, full),
             WINDOW: optional(config, local, float, path, window) if local else window}
    own = {kind: {**partial, "rope_theta": bases[kind], **_set(_object(found, kind, path))} for kind in (FULL, WINDOW)}
    own[FULL] |= _set(scaling)
    for kind, settings in own.items():
        if settings.get("truncate") is False:
            raise UnsupportedError(f"{path}: truncate false is not supported in a rope table of {kind}")
    return dict(own)


def turned(table: Metadata, sizes: Sizes, family: str, path: str, *, theta: float = 10000.0,
           partial: float | None = None) -> Rope:
    """The rope that a table describes, with base `theta` where it names none.

    `partial`: the part of a head that turns, for a family whose files may name another; None: heads turn whole, and
    what a file names counts for nothing, unless its scaling would use it.
    """
    kind = optional(table, "rope_type", str, path) or optional(table, "type", str, path, "default")
    part = optional(table, "partial_rotary_factor", float, path, 1.0 if partial is None else partial)
    if partial is None and part != 1 and kind != "default":
        raise UnsupportedError(f"{path}: partial_rotary_factor {part} with rope scaling {quote(kind)} is not supported "
                               f"by family {family}")
    if not 0 < part <= 1:
        raise ModelFileError(f"{path}: partial_rotary_factor is {part}")
    width = sizes.head_dim if partial is None else int(sizes.head_dim * part)
    base = ropes.Base(optional(table, "rope_theta", float, path, theta), width, path)
    return ropes.scaled(kind, base, table, sizes.context, path)


def _object(config: Metadata, key: str, path: str) -> Metadata:
    value = config.get(key)
    if value is not None and not isinstance(value, Mapping):
        raise ModelFileError(f"{path}: {key} must be an object")
    return value or {}


def _set(settings: Metadata) -> dict[str, object]:
    return {key: value for key, value in settings.items() if value is not None}
