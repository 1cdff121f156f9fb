"""Finds the quantization format of a checkpoint and its settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from drut.errors import ModelFileError, UnsupportedError
from drut.model.weights.json_file import read_json
from drut.model.weights.mapping import quote
from drut.model.weights.metadata import require
from drut.model.weights.quantized import awq, compressed, fp8, gptq, modelopt, mxfp4
from drut.model.weights.quantized.recipe import Parts, QuantizationRecipe, QuantizedSource
from drut.model.weights.source import TensorSource

Config = Mapping[str, object]
Format = Callable[[Parts, Config], Iterator[QuantizationRecipe]]

FORMATS: dict[str, Format] = {
    "awq": awq.recipes, "gptq": gptq.recipes, "compressed-tensors": compressed.recipes, "fp8": fp8.recipes,
    "fbgemm_fp8": fp8.recipes, "modelopt": modelopt.recipes, "mxfp4": mxfp4.recipes,
}


def open_quantized(source: TensorSource, config: Config, folder: Path) -> TensorSource:
    """Returns `source` with assembled weights if the model at `folder` is quantized, else `source` itself.

    Raises UnsupportedError, which names the format or setting, and ModelFileError if tensors and settings do not match.
    """
    found = quantization(config, folder)
    if found is None:
        return source
    method, settings, where = found
    if method not in FORMATS:
        raise UnsupportedError(f"{where}: quant_method {quote(method)} is not supported "
                               f"(supported: {', '.join(FORMATS)})")
    recipes = list(FORMATS[method](Parts(source, where), settings))
    if not recipes:
        raise ModelFileError(f"{where}: quant_method is {quote(method)}, but no tensor has that format")
    return QuantizedSource(source, recipes, where)


def quantization(config: Config, folder: Path) -> tuple[str, Config, str] | None:
    """Returns method, settings and their file: `config.json`, or ModelOpt's file next to it."""
    where = f"{folder.name}/config.json"
    settings = config.get("quantization_config") or config.get("compression_config")
    if settings is not None:
        if not isinstance(settings, Mapping):
            raise ModelFileError(f"{where}: quantization_config must be an object")
        return require(settings, "quant_method", str, f"{where}: quantization_config"), settings, where
    modelopt = folder / "hf_quant_config.json"
    if not modelopt.is_file():
        return None
    where = f"{folder.name}/{modelopt.name}"
    settings = read_json(modelopt).get("quantization")
    if not isinstance(settings, Mapping):
        raise ModelFileError(f"{where}: quantization must be an object")
    return "modelopt", settings, where
