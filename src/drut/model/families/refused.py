"""Architectures that are known and not supported, and why."""

from __future__ import annotations

from collections.abc import Mapping

LATENT, MAMBA, DELTA, KDA = "latent attention", "Mamba layers", "gated delta layers", "KDA layers"
CONV, SPARSE, ADAPTERS = "short convolutions", "block-sparse attention", "an adapter is no model by itself"

HF: Mapping[str, str] = {
    "DeepseekV2ForCausalLM": LATENT, "DeepseekV3ForCausalLM": LATENT, "DeepseekV32ForCausalLM": LATENT,
    "MiniCPM3ForCausalLM": LATENT, "KimiK2ForCausalLM": LATENT, "LongcatFlashForCausalLM": LATENT,
    "Glm4MoeLiteForCausalLM": LATENT, "MambaForCausalLM": MAMBA, "Mamba2ForCausalLM": MAMBA,
    "FalconMambaForCausalLM": MAMBA, "FalconH1ForCausalLM": MAMBA, "JambaForCausalLM": MAMBA, "BambaForCausalLM": MAMBA,
    "Zamba2ForCausalLM": MAMBA, "GraniteMoeHybridForCausalLM": MAMBA, "NemotronHForCausalLM": MAMBA,
    "Qwen3NextForCausalLM": DELTA, "Qwen3_5ForCausalLM": DELTA, "Qwen3_5ForConditionalGeneration": DELTA,
    "OlmoHybridForCausalLM": DELTA, "KimiLinearForCausalLM": KDA, "Lfm2ForCausalLM": CONV, "Lfm2MoeForCausalLM": CONV,
    "Phi3SmallForCausalLM": SPARSE, "MiniCPM4ForCausalLM": SPARSE, "PeftModelForCausalLM": ADAPTERS,
}
GGUF: Mapping[str, str] = {
    "deepseek2": LATENT, "minicpm3": LATENT, "plm": LATENT, "mamba": MAMBA, "mamba2": MAMBA, "falcon-h1": MAMBA,
    "jamba": MAMBA, "granitehybrid": MAMBA, "nemotron_h": MAMBA, "plamo2": MAMBA, "qwen3next": DELTA,
    "kimi-linear": KDA, "lfm2": CONV, "lfm2moe": CONV,
}


def by_reason() -> dict[str, list[str]]:
    """Maps each reason to the architectures that are refused for it."""
    reasons: dict[str, list[str]] = {}
    for name, why in (*HF.items(), *GGUF.items()):
        reasons.setdefault(why, []).append(name)
    return reasons
