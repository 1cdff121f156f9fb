"""Describes a model from its file headers. No weight is read; unsupported items are listed, not refused."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from drut.errors import UnsupportedError
from drut.formats.encoding import find_encoding, title
from drut.kernels.kv import KV_DTYPES, PAGE_TOKENS
from drut.model.decoder import kv_layouts
from drut.model.model import ModelFiles
from drut.model.spec import ModelSpec
from drut.model.tokenizer import Tokenizer
from drut.model.tokenizer.chat import DEFAULT, gguf_templates
from drut.model.weights.gguf_split import part_paths
from drut.model.weights.json_file import read_json
from drut.model.weights.metadata import optional
from drut.model.weights.safetensors import INDEX, SINGLE, read_index


@dataclass(frozen=True)
class EncodingUse:
    """The tensors stored in one encoding."""

    encoding: str
    supported: bool
    tensors: int
    weights: int
    nbytes: int


@dataclass(frozen=True)
class LayerRun:
    """Layers with the same shape. `window`: positions that a row sees; 0 for all."""

    layers: int
    mixer: str
    heads: int
    kv_heads: int
    head_dim: int
    ffn: str
    ffn_width: int
    window: int


@dataclass(frozen=True)
class RopeUse:
    """Rotary positions: `elements` of each head are rotated."""

    base: float
    elements: int
    scaling: str  # "none", "factors" (stored, one per pair of elements), or the file's own name


@dataclass(frozen=True)
class SpecialToken:
    id: int
    text: str


@dataclass(frozen=True)
class KvUse:
    """Layers that keep keys and values for the same time: always (`window` 0), or while a row sees them.

    Bytes by format: of one token, and of a decoding sequence as long as the context.
    """

    layers: int
    window: int
    bytes_per_token: dict[str, int]
    bytes_per_sequence: dict[str, int]


@dataclass(frozen=True)
class TokenizerUse:
    """A tokenizer: `kind` and `pre` have the file's names; other fields are set only if the tokenizer is supported."""

    kind: str
    pre: str | None
    tokens: int | None
    bos: SpecialToken | None
    adds_bos: bool
    eos: tuple[SpecialToken, ...]


@dataclass(frozen=True)
class Description:
    """A model on disk. Sizes in bytes, context in tokens; KV bytes of a token over all layers, by format."""

    path: str
    name: str | None
    licence: str | None
    architecture: str
    family: str
    parameters: int
    quantization: str  # the encoding of most weights, by its title
    file_bytes: int
    bits_per_weight: float
    tensors: int
    encodings: tuple[EncodingUse, ...]  # most bytes first
    unsupported_tensors: tuple[str, ...]
    hidden: int
    layers: int
    layer_runs: tuple[LayerRun, ...]
    rope: RopeUse
    tied_head: bool
    vocabulary: int
    context: int
    kv_bytes_per_token: dict[str, int]
    kv_groups: tuple[KvUse, ...]
    tokenizer: TokenizerUse | None
    chat_template: str | None
    named_templates: dict[str, str]
    problems: tuple[str, ...]  # reasons why it cannot run here, a line each

    def to_json(self) -> dict[str, object]:
        return asdict(self)


def describe(files: ModelFiles) -> Description:
    """Returns the description of `files`; `problems` lists unsupported items. Raises ModelFileError if a file is
    damaged."""
    spec, path = files.spec, files.path
    tokenizer, problems = _usable(files)
    uses = _encodings(files)
    templates = _templates(files, tokenizer)
    names = [stored.name for stored in files.table.values() if stored.name in files.source.tensors]
    return Description(
        path=str(path),
        name=_text(files, "general.name", "name"),
        licence=_text(files, "general.license", "license"),
        architecture=spec.architecture,
        family=spec.family,
        parameters=spec.parameters(),
        quantization=title(max(uses, key=lambda use: use.weights).encoding),
        file_bytes=sum(file.stat().st_size for file in _weight_files(path)),
        bits_per_weight=8 * sum(use.nbytes for use in uses) / sum(use.weights for use in uses),
        tensors=len(files.source.tensors),
        encodings=uses,
        unsupported_tensors=tuple(n for n in names if not find_encoding(files.source.tensors[n].encoding)),
        hidden=spec.hidden,
        layers=len(spec.layers),
        layer_runs=_layer_runs(files),
        rope=_rope(files),
        tied_head=spec.tied_head,
        vocabulary=spec.vocab,
        context=spec.context,
        kv_bytes_per_token={dtype: sum(kv.token_bytes for kv in kv_layouts(spec, dtype)) for dtype in KV_DTYPES},
        kv_groups=_kv_groups(spec),
        tokenizer=_tokenizer(files, tokenizer),
        chat_template=templates.pop(DEFAULT, None),
        named_templates=templates,
        problems=problems,
    )


def _kv_groups(spec: ModelSpec) -> tuple[KvUse, ...]:
    by_dtype = {dtype: kv_layouts(spec, dtype) for dtype in KV_DTYPES}
    uses = []
    for i, kv in enumerate(by_dtype[KV_DTYPES[0]]):
        gone = max(0, spec.context - kv.window) // PAGE_TOKENS if kv.window else 0
        pages = -(-spec.context // PAGE_TOKENS) - gone
        uses.append(KvUse(kv.layers, kv.window, {dtype: each[i].token_bytes for dtype, each in by_dtype.items()},
                          {dtype: pages * each[i].page_bytes for dtype, each in by_dtype.items()}))
    return tuple(uses)


def _usable(files: ModelFiles) -> tuple[Tokenizer | None, tuple[str, ...]]:
    """Returns the tokenizer, if there is a supported one, and the problems of tokenizer and weights."""
    tokenizer, problems = None, []
    try:
        tokenizer = files.tokenizer()
    except UnsupportedError as error:
        problems.append(str(error))
    try:
        files.check()
    except UnsupportedError as error:
        problems.append(str(error))
    return tokenizer, tuple(problems)


def _weight_files(path: Path) -> Sequence[Path]:
    if not path.is_dir():
        return part_paths(path)
    if (path / SINGLE).is_file():
        return [path / SINGLE]
    return [path / name for name in sorted(set(read_index(path / INDEX).values()))]


def _encodings(files: ModelFiles) -> tuple[EncodingUse, ...]:
    tensors = sorted(files.source.tensors.values(), key=lambda t: t.encoding)
    uses = []
    for name, group in itertools.groupby(tensors, key=lambda t: t.encoding):
        held = list(group)
        weights = sum(math.prod(t.shape) for t in held)
        uses.append(EncodingUse(name, find_encoding(name) is not None, len(held), weights, sum(t.nbytes for t in held)))
    return tuple(sorted(uses, key=lambda use: -use.nbytes))


def weights_in_words(files: ModelFiles) -> str:
    """Returns the number of weights and the encodings of more than 1 % of them, such as `135M weights in Q4_1`."""
    uses, count = _encodings(files), files.spec.parameters()
    shown = next((f"{count / size:.3g}{unit}" for size, unit in ((1e9, "B"), (1e6, "M"), (1e3, "k"))
                  if count >= size), str(count))
    least = 0.01 * sum(use.weights for use in uses)
    return f"{shown} weights in {', '.join(title(use.encoding) for use in uses if use.weights > least)}"


def _layer_runs(files: ModelFiles) -> tuple[LayerRun, ...]:
    kinds = Counter((layer.mixer, layer.ffn) for layer in files.spec.layers)
    outlines = [(count, mixer.outline(), ffn) for (mixer, ffn), count in kinds.items()]
    return tuple(LayerRun(layers=count, mixer=m.kind, heads=m.heads, kv_heads=m.kv_heads, head_dim=m.head_dim,
                          ffn=ffn.kind, ffn_width=ffn.width, window=m.window)
                 for count, m, ffn in outlines)


def _rope(files: ModelFiles) -> RopeUse:
    elements = max((rope.width for rope in files.spec.ropes), default=0)
    where, metadata = files.path.name, files.metadata
    if files.is_gguf:
        key = f"{files.spec.architecture}.rope"
        base = optional(metadata, f"{key}.freq_base", float, where, 10000.0)
        factors = "factors" if "rope_freqs.weight" in files.source.tensors else "none"
        return RopeUse(base, elements, optional(metadata, f"{key}.scaling.type", str, where, factors))
    scaling = metadata.get("rope_scaling") or metadata.get("rope_parameters")
    table = scaling if isinstance(scaling, dict) else {}
    table = table.get("full_attention") or table  # some files have a table for each kind of layer
    older = optional(metadata, "rope_theta", float, where, 10000.0)
    base = optional(table, "rope_theta", float, where, older)
    kind = optional(table, "rope_type", str, where) or optional(table, "type", str, where, "default")
    return RopeUse(base, elements, "none" if kind == "default" else kind)


def _tokenizer(files: ModelFiles, tokenizer: Tokenizer | None) -> TokenizerUse | None:
    pre = _text(files, "tokenizer.ggml.pre", "")
    if files.is_gguf:
        kind = _text(files, "tokenizer.ggml.model", "")
    elif tokenizer:
        model = read_json(files.path / "tokenizer.json").get("model")
        kind = str(model.get("type")) if isinstance(model, dict) else None
    else:
        kind = None
    if kind is None:
        return None
    if tokenizer is None:
        return TokenizerUse(kind=kind, pre=pre, tokens=None, bos=None, adds_bos=False, eos=())

    def special(token_id: int) -> SpecialToken:
        return SpecialToken(token_id, tokenizer.token_bytes(token_id).decode(errors="replace"))

    bos = None if tokenizer.bos_id is None else special(tokenizer.bos_id)
    eos = tuple(special(i) for i in sorted(tokenizer.eos_ids))
    return TokenizerUse(kind=kind, pre=pre, tokens=tokenizer.vocab_size, bos=bos, adds_bos=tokenizer.add_bos, eos=eos)


def _templates(files: ModelFiles, tokenizer: Tokenizer | None) -> dict[str, str]:
    """Returns the chat templates by name."""
    if tokenizer is not None:
        return tokenizer.chat_templates
    return gguf_templates(files.metadata, files.path.name) if files.is_gguf else {}


def _text(files: ModelFiles, gguf_key: str, config_key: str) -> str | None:
    """Returns a string of the metadata; None if it is missing."""
    value = files.metadata.get(gguf_key if files.is_gguf else config_key)
    return value if isinstance(value, str) else None
