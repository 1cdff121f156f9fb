"""Converts a model to a GGUF file or a Hugging Face directory, with its weights unchanged or quantized."""

from drut.model.convert.convert import convert

__all__ = ["convert"]
