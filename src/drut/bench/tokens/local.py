"""A tokenizer on this machine, read without the model's weights."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from drut.errors import RequestError
from drut.model.store import entries, find, resolve
from drut.model.store.known import KNOWN
from drut.model.tokenizer import Tokenizer, open_tokenizer


class LocalTokenizer:
    """Drut's own tokenizer for the load client."""

    remote = False

    def __init__(self, tokenizer: Tokenizer, name: str) -> None:
        self._tokenizer = tokenizer
        self.name = name

    @classmethod
    def open(cls, reference: str) -> LocalTokenizer:
        """Opens the tokenizer of a model of the catalogue, a fetched `hf:` model, a GGUF file, a folder with a
        tokenizer.json, or that file.

        The default model is fetched if missing. Raises RequestError for a model of the hub that was not fetched,
        ModelFileError and UnsupportedError as `drut.model.tokenizer.open_tokenizer` does.
        """
        if reference in KNOWN:
            path = resolve(reference)
        elif reference.startswith("hf:") or reference in entries():
            found = find(reference)
            if found is None:
                raise RequestError(f"{reference} is not on this machine; `drut pull {reference}` fetches it with its "
                                   "weights; its tokenizer.json is enough")
            path = found
        else:
            try:
                path = Path(reference).expanduser()
                path.exists()
            except (OSError, RuntimeError) as error:  # the name is too long, or the home folder does not exist
                raise RequestError(f"{reference}: {error}") from None
        return cls(open_tokenizer(path), reference)

    def encode(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special=False, parse_special=False)

    def decode(self, ids: Sequence[int]) -> str:
        return self._tokenizer.decode(ids, skip_special=False)

    def count(self, text: str) -> int:
        return len(self.encode(text))
