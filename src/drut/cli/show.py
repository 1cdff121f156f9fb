"""`drut show`: describes a model."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator

from drut.cli.opening import add_model
from drut.cli.terminal import one_line
from drut.model.describe import Description, TokenizerUse, describe
from drut.model.model import open_model
from drut.model.store import resolve

HELP = "Describe a model and whether it runs here, without reading its weights."
EXAMPLES = (
    ("drut show smollm2-135m-instruct", "whether a model runs here, and its sizes"),
    ("drut show ./model.gguf --json", "the same as JSON, of a file"),
)
TEMPLATE_LINES, LINE_CHARS, NAMES = 3, 100, 4


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the model and the output format."""
    add_model(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Describes and prints. The parts of a model that are not supported are listed."""
    files = open_model(resolve(args.model))
    try:
        description = describe(files)
    finally:
        files.close()
    if args.json:
        print(json.dumps(description.to_json()))
    else:
        for label, text in _rows(description):
            print(f"{label:<14} {one_line(text)}")
    return 0


def _rows(d: Description) -> Iterator[tuple[str, str]]:
    """Yields label and text of each line. Text from the file is escaped when it is printed."""
    yield "model", d.path
    yield "name", d.name or "none"
    yield "licence", d.licence or "none"
    yield "architecture", f"{d.architecture} (family {d.family})"
    yield "parameters", f"{d.parameters:,}"
    yield "file", f"{_size(d.file_bytes)}, {d.tensors} tensors, {d.bits_per_weight:.2f} bits per weight"
    yield "quantization", d.quantization
    for use in d.encodings:
        tensors = f"{use.tensors} tensor{'s' * (use.tensors != 1)}"
        supported = "" if use.supported else ", not supported"
        yield f"  {use.encoding}", f"{_size(use.nbytes)}, {tensors}, {use.weights:,} weights{supported}"
    yield "hidden", str(d.hidden)
    for run in d.layer_runs:
        heads = f"{run.heads} query and {run.kv_heads} key/value heads of {run.head_dim}"
        window = f" over the last {run.window}" if run.window else ""
        yield "layers", f"{run.layers}: {run.mixer}{window}, {heads}; {run.ffn} feed-forward of {run.ffn_width}"
    yield "rope", f"base {d.rope.base:g}, {d.rope.elements} elements per head, scaling: {d.rope.scaling}"
    yield "head", "tied to the embedding" if d.tied_head else "separate"
    yield "context", f"{d.context:,} tokens"
    each = (f"{count:,} bytes per token in {dtype}" for dtype, count in d.kv_bytes_per_token.items())
    yield "KV cache", ", ".join(each)
    yield from _kv_groups(d)
    yield "vocabulary", f"{d.vocabulary:,}"
    yield "tokenizer", "none" if d.tokenizer is None else _tokenizer(d.tokenizer)
    if d.chat_template is not None or not d.named_templates:
        yield from _template(d.chat_template)
    for name, template in d.named_templates.items():
        yield from _template(template, f"{name!r}: ")
    if d.unsupported_tensors:
        more = len(d.unsupported_tensors) - NAMES
        names = ", ".join(d.unsupported_tensors[:NAMES]) + (f" and {more} more" if more > 0 else "")
        yield "not supported", f"the encodings of {names}"
    for problem in d.problems:
        yield "cannot run", problem
    if not d.problems and not d.unsupported_tensors:
        yield "runs here", "yes"


def _kv_groups(d: Description) -> Iterator[tuple[str, str]]:
    """Yields the bytes of each KV group if layers differ in how long they keep a token, and of a whole sequence."""
    for group in d.kv_groups if len(d.kv_groups) > 1 else ():
        kept = f"the last {group.window:,} tokens" if group.window else "all tokens"
        each = (f"{count:,} bytes in {dtype}" for dtype, count in group.bytes_per_token.items())
        yield "", f"{group.layers} layers keep {kept}: {', '.join(each)} per token"
    whole = {dtype: sum(group.bytes_per_sequence[dtype] for group in d.kv_groups) for dtype in d.kv_bytes_per_token}
    sizes = ", ".join(f"{_size(count)} in {dtype}" for dtype, count in whole.items())
    yield "", f"a sequence of {d.context:,} tokens: {sizes}"


def _tokenizer(use: TokenizerUse) -> str:
    kind = use.kind + (f", pre {use.pre}" if use.pre else "")
    if use.tokens is None:
        return f"{kind} (not supported)"
    bos = f"BOS {use.bos.id} {use.bos.text}" if use.bos else "no BOS"
    put = " (put first)" if use.adds_bos else ""
    eos = "EOS " + ", ".join(f"{token.id} {token.text}" for token in use.eos) if use.eos else "no EOS"
    return f"{kind}, {use.tokens:,} tokens, {bos}{put}, {eos}"


def _template(template: str | None, name: str = "") -> Iterator[tuple[str, str]]:
    """Yields the size and the first lines of a chat template."""
    if template is None:
        yield "chat template", "none"
        return
    lines = template.splitlines()
    yield "chat template", f"{name}{len(template):,} characters, {len(lines)} lines"
    for line in lines[:TEMPLATE_LINES]:
        yield "", line if len(line) <= LINE_CHARS else line[: LINE_CHARS - 1] + "…"
    if len(lines) > TEMPLATE_LINES:
        yield "", "…"


def _size(nbytes: int) -> str:
    return f"{nbytes:,} bytes" if nbytes < 1_000_000 else f"{nbytes / 1e6:,.1f} MB"
