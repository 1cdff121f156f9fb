"""Tokenizers, incremental detokenization and stop strings."""

from drut.model.tokenizer.detokenize import Detokenizer, TextDelta, TextStream
from drut.model.tokenizer.gguf import from_gguf
from drut.model.tokenizer.hf import from_hf
from drut.model.tokenizer.open import open_tokenizer
from drut.model.tokenizer.stops import StopChecker, StopStrings
from drut.model.tokenizer.tokenizer import Tokenizer

__all__ = [
           "Detokenizer",
           "StopChecker",
           "StopStrings",
           "TextDelta",
           "TextStream",
           "Tokenizer",
           "from_gguf",
           "from_hf",
           "open_tokenizer",
]
