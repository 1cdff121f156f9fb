"""Names of a transformer's tensors in files. A family passes the names that differ from the common ones."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from drut.model.families.table import Stored, StoredExperts
from drut.model.roles import expected_shapes, layer_role
from drut.model.spec import ModelSpec

# Role -> tensor; names of a layer's tensors follow the layer's prefix.
HF = {
    "embed": "model.embed_tokens.weight", "final_norm": "model.norm.weight", "head": "lm_head.weight",
    "attn_norm": "input_layernorm.weight", "ffn_norm": "post_attention_layernorm.weight",
    "q": "self_attn.q_proj.weight", "k": "self_attn.k_proj.weight", "v": "self_attn.v_proj.weight",
    "q_norm": "self_attn.q_norm.weight", "k_norm": "self_attn.k_norm.weight", "o": "self_attn.o_proj.weight",
    "sinks": "self_attn.sinks",
    "gate": "mlp.gate_proj.weight", "up": "mlp.up_proj.weight", "down": "mlp.down_proj.weight",
}
GGUF: Mapping[str, str | Stored] = {
    "embed": "token_embd.weight", "final_norm": "output_norm.weight", "head": "output.weight",
    "attn_norm": "attn_norm.weight", "ffn_norm": "ffn_norm.weight",
    "attn_post_norm": "post_attention_norm.weight", "ffn_post_norm": "post_ffw_norm.weight",
    "q": "attn_q.weight", "k": "attn_k.weight", "v": "attn_v.weight",
    "q_norm": "attn_q_norm.weight", "k_norm": "attn_k_norm.weight", "o": "attn_output.weight",
    "sinks": "attn_sinks.weight",
    "gate": "ffn_gate.weight", "up": "ffn_up.weight", "down": "ffn_down.weight",
    "router": "ffn_gate_inp.weight", "score_bias": "exp_probs_b.bias", "shared_router": "ffn_gate_inp_shexp.weight",
    "shared_gate": "ffn_gate_shexp.weight", "shared_up": "ffn_up_shexp.weight", "shared_down": "ffn_down_shexp.weight",
    **{f"{part}_experts": StoredExperts(f"ffn_{part}_exps.weight") for part in ("gate", "up", "down")},
    **{f"{part}_experts_bias": StoredExperts(f"ffn_{part}_exps.bias") for part in ("gate", "up", "down")},
}
# Post norms with Gemma's names; its `post_attention_layernorm` is not the norm before the feed-forward.
HF_POST_NORMS = {
    "attn_post_norm": "post_attention_layernorm.weight", "ffn_norm": "pre_feedforward_layernorm.weight",
    "ffn_post_norm": "post_feedforward_layernorm.weight",
}


def hf_table(spec: ModelSpec, own: Mapping[str, str | Stored] = MappingProxyType({})) -> dict[str, Stored]:
    """Maps each role to its tensor in a safetensors checkpoint; `own` names replace the common ones."""
    return _table(spec, {**HF, **own}, "model.layers.{}.")


def gguf_table(spec: ModelSpec, own: Mapping[str, str | Stored] = MappingProxyType({}), *,
               pairs: bool = False) -> dict[str, Stored]:
    """Maps each role to its tensor in a GGUF file. `pairs`: rope pairs are adjacent in its rows of q and k."""
    table = _table(spec, {**GGUF, **own}, "blk.{}.")
    return interleaved(spec, table) if pairs else table


def _table(spec: ModelSpec, names: Mapping[str, str | Stored], layer_prefix: str) -> dict[str, Stored]:
    table = {}
    for role in expected_shapes(spec):
        *layer, short = role.split(".")  # "layers", its number, the role in it; or the role alone
        name = names.get(short) or _bias_of(names[short.removesuffix("_bias")])
        stored = Stored(name) if isinstance(name, str) else name
        table[role] = stored.under(layer_prefix.format(layer[1]) if layer else "")
    return table


def _bias_of(matrix: str | Stored) -> str:
    assert isinstance(matrix, str), "a family names the biases of experts itself"
    return matrix.removesuffix(".weight") + ".bias"


def interleaved(spec: ModelSpec, table: dict[str, Stored]) -> dict[str, Stored]:
    """Returns the table with adjacent rope pairs in the rows of q and k, in all layers with rope."""
    for i, layer in enumerate(spec.layers):
        for role, (heads, rotated) in layer.mixer.paired_rows().items():
            name = layer_role(i, role)
            if name in table:
                table[name] = Stored(table[name].name, interleaved_heads=heads, rotated=rotated)
    return table


def fused(spec: ModelSpec, table: dict[str, Stored], tensor: str, roles: tuple[str, ...]) -> dict[str, Stored]:
    """Returns the table with the rows of `roles` concatenated in each layer's `tensor`."""
    shapes = expected_shapes(spec)
    for i in range(len(spec.layers)):
        names = [layer_role(i, role) for role in roles]
        rows, first = sum(shapes[name][0] for name in names), 0
        for name in names:
            old = table[name]
            table[name] = Stored(tensor.format(i), old.interleaved_heads, old.rotated, first, rows)
            first += shapes[name][0]
    return table


def offset_norms(table: dict[str, Stored], offset: float) -> dict[str, Stored]:
    """Returns the table with `offset` added to the weights of all norms."""
    return {role: Stored(s.name, offset=offset) if role.endswith("norm") else s for role, s in table.items()}
