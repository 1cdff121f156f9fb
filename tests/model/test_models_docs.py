"""docs/models.md says what families and tiny checkpoints say. `python -m tests.model.test_models_docs` writes it."""

from __future__ import annotations

import re
from pathlib import Path

from drut.model.families import FAMILIES, family_of_hf
from tests.golden.weights import NAMES, config

PAGE = Path(__file__).parents[2] / "docs" / "models.md"
HEAD = "| family | such as | Hugging Face | GGUF | held to `transformers` by |\n|---|---|---|---|---|\n"


def quoted(names: tuple[str, ...] | list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def table() -> str:
    rows = []
    for family in FAMILIES:
        tests = [name for name in NAMES if family_of_hf(config(name)["architectures"][0]) is family]
        rows.append(f"| `{family.NAME}` | {family.EXAMPLES} | {quoted(family.HF_ARCHITECTURES)} | "
                    f"{quoted(family.GGUF_ARCHITECTURES)} | {quoted(tests)} |\n")
    return HEAD + "".join(rows)


def test_the_table_is_what_the_code_says() -> None:
    assert table() in PAGE.read_text(), "run python -m tests.model.test_models_docs"


def test_every_family_is_held_to_a_reference() -> None:
    assert {family_of_hf(config(name)["architectures"][0]).NAME for name in NAMES} == {f.NAME for f in FAMILIES}


if __name__ == "__main__":
    PAGE.write_text(re.sub(r"\| family \|.*?\n(?=\n)", lambda _: table(), PAGE.read_text(), flags=re.S))
