"""docs/models.md says what families are and what proves them. `python -m tests.model.test_models_docs` writes it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path

from drut.model.families import FAMILIES, Family, family_of_hf
from drut.model.families.architecture import TYPES
from tests.golden.as_gguf import GGUF_NAMES, architecture
from tests.golden.weights import HERE, config
from tests.model.test_text_part import SEEING

PAGE = Path(__file__).parents[2] / "docs" / "models.md"
HEAD = "family | such as | Hugging Face | GGUF\n---|---|---|---\n"
RESAVED = json.loads((HERE / "resaved.json").read_text())


def quoted(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def of_family(family: Family, names: Iterable[str]) -> list[str]:
    return [name for name in names if family_of_hf(config(name)["architectures"][0]) is family]


def table() -> str:
    rows = []
    for family in FAMILIES:
        files = sorted({architecture(name) for name in of_family(family, GGUF_NAMES)})
        cells = (f"`{family.NAME}`", family.EXAMPLES, quoted(family.HF_ARCHITECTURES), quoted(files))
        rows.append(" | ".join(cells) + "\n")
    return HEAD + "".join(rows)


def test_the_table_is_what_the_code_says() -> None:
    assert table() in PAGE.read_text(), "run python -m tests.model.test_models_docs"


def test_every_architecture_of_a_config_is_proven() -> None:
    """By logits, and by its config saved again; what also sees, by its text part."""
    proven = {config(name)["architectures"][0] for name in RESAVED} | {outer for outer, _, _ in SEEING}
    assert proven == {name for family in FAMILIES for name in family.HF_ARCHITECTURES} == set(TYPES)


def test_every_architecture_of_a_gguf_file_is_proven() -> None:
    claimed = {name for family in FAMILIES for name in family.GGUF_ARCHITECTURES}
    assert {architecture(name) for name in GGUF_NAMES} == claimed


def test_every_architecture_that_the_page_names_is_in_the_code() -> None:
    named = set(re.findall(r"`(\w+For(?:CausalLM|ConditionalGeneration))`", PAGE.read_text()))
    assert named == {name for family in FAMILIES for name in family.HF_ARCHITECTURES}


if __name__ == "__main__":
    PAGE.write_text(re.sub(r"family \|.*?\n(?=\n)", lambda _: table(), PAGE.read_text(), flags=re.S))
