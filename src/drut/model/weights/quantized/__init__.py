"""Quantized checkpoints in safetensors: a format's own tensors seen as the weights they stand for, row by row.

`open_quantized` wraps a source so that `X.weight` is there as one tensor in an encoding of `drut.formats.encoding`,
whatever the format calls its codes, scales and zero points. One file a format.
"""

from drut.model.weights.quantized.config import open_quantized

__all__ = ["open_quantized"]
