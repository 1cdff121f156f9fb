"""Reads rope settings from a `config.json`: `rope_parameters`, or the older `rope_scaling` with a base outside of it.

Defaults, and the precedence of duplicate settings, are as in `transformers` 5.24.
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
    """Returns the rope of a model whose layers have the same rope (`table`, `from_table`)."""
    return from_table(table(config, path, default), sizes, family, path, theta=theta, partial=partial)


def table(config: Metadata, path: str, default: Metadata = NOTHING) -> Metadata:
    """Returns the settings of a model whose layers have the same rope; `default` if the file has no table.

    `rope_scaling` precedes `rope_parameters`. Base and rotated part inside a table precede the ones outside; the
    original context length outside precedes the one inside.
    """
    found = _object(config, "rope_scaling", path) or _object(config, "rope_parameters", path) or default
    if FULL in found or WINDOW in found:
        raise UnsupportedError(f"{path}: rope_parameters: a table for each kind of layer is not supported, as all "
                               "layers of the architecture have the same rope")
    outside = _set({key: config.get(key) for key in ("rope_theta", "partial_rotary_factor")})
    original = _set({key: config.get(key) for key in ("original_max_position_embeddings",)})
    return {**outside, **_set(found), **original}


def tables(config: Metadata, path: str, *, full: float, window: float, local: str = "") -> dict[str, Metadata]:
    """Returns the settings of each kind of layer: full attention, and attention with a window.

    `full` and `window` are their default bases; `local` is the older key of the second one. `rope_scaling` and
    `rope_theta` apply to layers with full attention.
    """
    found, scaling = _object(config, "rope_parameters", path), _object(config, "rope_scaling", path)
    if found and not (FULL in found or WINDOW in found):
        raise UnsupportedError(f"{path}: rope_parameters without {FULL} and {WINDOW} is not supported, as each kind of "
                               "layers has a table of its own")
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


def from_table(table: Metadata, sizes: Sizes, family: str, path: str, *, theta: float = 10000.0,
               partial: float | None = None) -> Rope:
    """Returns the rope that a table describes; `theta` is the default base.

    `partial`: default of the rotated part of a head, for a family whose files may have another; None: whole heads are
    rotated, and a partial_rotary_factor in the file is ignored, or refused if the file's scaling would use it.
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
