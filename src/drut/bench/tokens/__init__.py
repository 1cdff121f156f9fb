"""The target's tokenizer: one on disk, or the server's own."""

from drut.bench.tokens.local import LocalTokenizer
from drut.bench.tokens.open import open_tokenizer
from drut.bench.tokens.protocol import BenchTokenizer, counting
from drut.bench.tokens.remote import ServerTokenizer

__all__ = ["BenchTokenizer", "LocalTokenizer", "ServerTokenizer", "counting", "open_tokenizer"]
