"""Quantized checkpoints in safetensors: assembles a format's own tensors to weights, row by row.

`open_quantized` wraps a source so that `X.weight` is one tensor in an encoding of `drut.formats.encoding`, for any
format's names of codes, scales and zero points. Each format has a file.
"""

from drut.model.weights.quantized.config import open_quantized

__all__ = ["open_quantized"]
