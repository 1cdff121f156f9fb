"""Golden digests of the ids that llama.cpp gives texts, with 19 published vocabularies and each way to cut text.

    python tests/golden/make_tokenizers.py --write    write tokenizers.json beside this file
    python tests/golden/make_tokenizers.py --check    tokenize and compare; exit code 1 if a digest differs
    python tests/golden/make_tokenizers.py --drut     compare Drut's ids with llama.cpp's, and show what differs

Needs llama-cpp-python 0.3.36, compiled, and Drut's own dependencies; what it writes is read without it. 2,000 texts
each, in and with special tokens and without: `tests/model/tokenizer_texts.py` says what is left out of them, and why.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import llama_cpp
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[2] / "src"))
from drut.model.tokenizer import from_gguf
from drut.model.tokenizer.splitting import SPLITTINGS
from tests.llama_sources import llama_models
from tests.model.tokenizer_texts import MARKS, texts
from tests.model.tokenizer_vocabularies import (
    GOLDEN,
    OWN,
    PUBLISHED,
    Encode,
    chunks,
    composed,
    digest,
    own_file,
    own_metadata,
    published_metadata,
)


def subjects(folder: Path) -> Iterator[tuple[str, str, dict[str, Any], Path]]:
    """Group, name, metadata and file of each vocabulary."""
    models_folder = llama_models()
    for name in PUBLISHED:
        yield "published", name, published_metadata(models_folder, name), models_folder / f"ggml-vocab-{name}.gguf"
    for pre in SPLITTINGS:
        path = folder / "own.gguf"
        path.write_bytes(own_file(pre))
        yield "own", pre, own_metadata(pre), path


def theirs(name: str, metadata: dict[str, Any], path: Path) -> Encode:
    model = llama_cpp.Llama(str(path), vocab_only=True, verbose=False)
    prepare = composed(name, metadata)
    return lambda text, add, parse: model.tokenize(prepare(text).encode(), add_bos=add, special=parse)


def ours(name: str, metadata: dict[str, Any]) -> Encode:
    tokenizer = from_gguf(metadata, name)
    return lambda text, add, parse: tokenizer.encode(text, add_special=add, parse_special=parse)


def own_vocabularies() -> dict[str, dict[str, list[str]]]:
    """Trained on texts of the same kind, uncut, so that merges cross every place where a text may be cut."""
    given = [text for text in texts(500, 3) if not any(mark in text for mark in MARKS)]
    out = {}
    for kind in ("bytes", "text"):
        made = Tokenizer(models.BPE())
        alphabet = sorted(pre_tokenizers.ByteLevel.alphabet()) if kind == "bytes" else []
        if kind == "bytes":
            made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        else:
            made.normalizer = normalizers.Replace(" ", "\u2581")
            given = [text for text in given if "\0" not in text]  # where llama.cpp ends a piece
        made.train_from_iterator(given, trainers.BpeTrainer(vocab_size=1500, initial_alphabet=alphabet,
                                                            max_token_length=24, show_progress=False))
        model = json.loads(made.to_str())["model"]
        fallback = [f"<0x{byte:02X}>" for byte in range(256)] if kind == "text" else []
        out[kind] = {"tokens": fallback + sorted(model["vocab"], key=model["vocab"].get),
                     "merges": [" ".join(merge) for merge in model["merges"]]}
    return out


def lines(groups: dict[str, dict[str, str]]) -> str:
    """An object of objects, whose values are JSON already, a line each."""
    made = (f"{json.dumps(group)}: {{\n" + ",\n".join(f"{json.dumps(name)}: {value}" for name, value in values.items())
            + "\n}" for group, values in groups.items())
    return "{" + ",\n".join(made) + "}\n"


def show(name: str, metadata: dict[str, Any], path: Path, most: int = 3) -> int:
    """The number of texts in which Drut and llama.cpp differ; prints the first of them."""
    their, our, differ = theirs(name, metadata, path), ours(name, metadata), 0
    for text in (text for chunk in chunks(name, metadata) for text in chunk):
        for add, parse in ((True, True), (False, False), (False, True), (True, False)):
            if (one := our(text, add, parse)) != (two := their(text, add, parse)):
                differ += 1
                if differ <= most:
                    print(f"  {text!r} {add=} {parse=}\n    drut {one}\n    llama.cpp {two}")
                break
    print(f"{name}: {differ} texts differ", flush=True)
    return differ


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    action = parser.add_mutually_exclusive_group(required=True)
    for name in ("--write", "--check", "--drut"):
        action.add_argument(name, action="store_true")
    parser.add_argument("names", nargs="*", help="vocabularies or splittings, all by default")
    arguments = parser.parse_args()
    if arguments.write and not OWN.exists():
        OWN.write_text(lines({kind: {key: json.dumps(values, ensure_ascii=False) for key, values in lists.items()}
                              for kind, lists in own_vocabularies().items()}), encoding="utf-8")
    known = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
    found: dict[str, dict[str, list[str]]] = {group: known.get(group, {}) if arguments.names else {}
                                              for group in ("published", "own")}
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        for group, name, metadata, path in subjects(Path(folder)):
            if arguments.names and name not in arguments.names:
                continue
            if arguments.drut:
                wrong += bool(show(name, metadata, path))
                continue
            encode = theirs(name, metadata, path)
            made = [digest(encode, chunk) for chunk in chunks(name, metadata)]
            wrong += arguments.check and made != known[group][name]
            found[group][name] = made
            if arguments.write:
                GOLDEN.write_text(lines({group: {name: json.dumps(digests) for name, digests in names.items()}
                                         for group, names in found.items()}))
            print(name, flush=True)
    print(f"{wrong} of {len(SPLITTINGS) + len(PUBLISHED)} differ" if not arguments.write else "written")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
