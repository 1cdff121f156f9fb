"""One model as another file: GGUF or a Hugging Face directory, its weights as they are or rounded to an encoding."""

from drut.model.convert.convert import convert

__all__ = ["convert"]
