"""Finds the architecture of a `config.json`: `transformers` reads `model_type`, most other programs `architectures`."""

from __future__ import annotations

from collections.abc import Mapping

from drut.errors import ModelFileError, UnsupportedError
from drut.model.weights.mapping import quote
from drut.model.weights.metadata import optional, require_list

# Architecture: the `model_type` of its configs.
TYPES: Mapping[str, str] = {
    "LlamaForCausalLM": "llama", "MistralForCausalLM": "mistral", "MinistralForCausalLM": "ministral",
    "Ministral3ForCausalLM": "ministral3", "Mistral3ForConditionalGeneration": "mistral3", "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3", "Gemma2ForCausalLM": "gemma2", "Gemma3ForCausalLM": "gemma3_text",
    "Gemma3ForConditionalGeneration": "gemma3", "Phi3ForCausalLM": "phi3", "Olmo2ForCausalLM": "olmo2",
    "Olmo3ForCausalLM": "olmo3", "GraniteForCausalLM": "granite", "SmolLM3ForCausalLM": "smollm3",
    "Glm4ForCausalLM": "glm4", "Starcoder2ForCausalLM": "starcoder2", "Cohere2ForCausalLM": "cohere2",
    "MixtralForCausalLM": "mixtral", "Qwen2MoeForCausalLM": "qwen2_moe", "Qwen3MoeForCausalLM": "qwen3_moe",
    "Glm4MoeForCausalLM": "glm4_moe", "GptOssForCausalLM": "gpt_oss",
}
# Of the text part within a config of that type.
TEXT_TYPES: Mapping[str, tuple[str, ...]] = {"gemma3": ("gemma3_text",), "mistral3": ("mistral", "ministral3")}


def architecture(config: Mapping[str, object], where: str) -> str:
    """Returns the first of `architectures`, else the one of `model_type`. Raises UnsupportedError if the two differ."""
    kind = optional(config, "model_type", str, where)
    if config.get("architectures") is None:
        named = next((name for name, own in TYPES.items() if own == kind), None)
        if named is None:
            raise ModelFileError(f"{where}: key 'architectures' is missing")
        return named
    names = require_list(config, "architectures", str, where)
    if not names:
        raise ModelFileError(f"{where}: key 'architectures' is empty")
    own = TYPES.get(names[0])
    if own is not None and kind not in (None, own):
        raise UnsupportedError(f"{where}: model_type {quote(str(kind))} is not that of {names[0]} ({own})")
    return names[0]


def check_text_part(config: Mapping[str, object], text: Mapping[str, object], where: str) -> None:
    """Raises UnsupportedError if the type of the text part does not belong to the type of the whole model."""
    kind, allowed = text.get("model_type"), TEXT_TYPES.get(str(config.get("model_type")), ())
    if kind is not None and allowed and kind not in allowed:
        raise UnsupportedError(f"{where}: text_config: model_type {quote(str(kind))} is not supported (supported: "
                               f"{', '.join(allowed)})")
