"""Reads the chat templates of a model's files, by name, from either container."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from drut.errors import ModelFileError
from drut.model.notices import warn_once
from drut.model.tokenizer.small_files import read_object, read_text
from drut.model.weights.metadata import optional

DEFAULT = "default"
MAX_TEMPLATES = 64
_PREFIX = "tokenizer.chat_template."


def hf_templates(directory: Path, configured: object) -> dict[str, str]:
    """Returns the templates of a HF-style directory; `configured`: `chat_template` of its `tokenizer_config.json`.

    `chat_template.jinja` and `additional_chat_templates/NAME.jinja` have precedence, and a warning is logged if other
    templates are configured, except a `default` that they lack. `chat_template.json`, from processors of older models,
    comes last. Raises ModelFileError for an invalid template.
    """
    given = _configured(configured, f"{directory / 'tokenizer_config.json'}: chat_template")
    found = _files(directory)
    if not found and not given:
        older = directory / "chat_template.json"
        return _configured(read_object(older).get("chat_template"), f"{older}: chat_template")
    if not found:
        return given
    used = {DEFAULT: given[DEFAULT], **found} if DEFAULT in given else found
    unused = [name for name, text in given.items() if used.get(name) != text]
    if unused:
        warn_once(f"{directory}: the chat templates in files of their own are used, not "
                  f"{', '.join(map(repr, unused))} of tokenizer_config.json")
    return used


def _files(directory: Path) -> dict[str, str]:
    paths = {DEFAULT: directory / "chat_template.jinja"}
    paths |= {path.name.removesuffix(".jinja"): path
              for path in sorted((directory / "additional_chat_templates").glob("*.jinja"))}
    _check_count(len(paths), directory)
    return {name: text for name, path in paths.items() if (text := read_text(path)) is not None}


def gguf_templates(metadata: Mapping[str, Any], name: str) -> dict[str, str]:
    """Returns the templates of a GGUF file's metadata. Raises ModelFileError for an invalid template."""
    keys = {DEFAULT: "tokenizer.chat_template"}
    keys |= {key.removeprefix(_PREFIX): key for key in metadata if key.startswith(_PREFIX)}
    _check_count(len(keys), name)
    found = {label: optional(metadata, key, str, name) for label, key in keys.items()}
    return {label: text for label, text in found.items() if text is not None}


def gguf_keys(templates: Mapping[str, str]) -> dict[str, object]:
    """Returns the templates as keys of a GGUF file."""
    named = {name: text for name, text in templates.items() if name != DEFAULT}
    keys: dict[str, object] = {_PREFIX + name: text for name, text in named.items()}
    if DEFAULT in templates:
        keys["tokenizer.chat_template"] = templates[DEFAULT]
    return keys | ({"tokenizer.chat_templates": list(named)} if named else {})


def hf_value(templates: Mapping[str, str]) -> object:
    """Returns `chat_template` of `tokenizer_config.json`: the only template, or a list of named ones; None for none."""
    if templates.keys() <= {DEFAULT}:
        return templates.get(DEFAULT)
    return [{"name": name, "template": text} for name, text in templates.items()]


def _configured(value: object, where: str) -> dict[str, str]:
    if value is None:
        return {}
    if isinstance(value, str):
        return {DEFAULT: value}
    if isinstance(value, dict):
        value = [{"name": name, "template": text} for name, text in value.items()]
    if not isinstance(value, list):
        raise ModelFileError(f"{where} must be a string, a list or an object, not {type(value).__name__}")
    _check_count(len(value), where)
    made: dict[str, str] = {}
    for i, entry in enumerate(value):
        name, text = (entry.get("name"), entry.get("template")) if isinstance(entry, dict) else (None, None)
        if not (isinstance(name, str) and isinstance(text, str)):
            raise ModelFileError(f"{where}[{i}] must have a name and a template, both strings")
        made[name] = text
    return made


def _check_count(count: int, where: object) -> None:
    if count > MAX_TEMPLATES:
        raise ModelFileError(f"{where}: {count} chat templates are more than the {MAX_TEMPLATES} that are read")
