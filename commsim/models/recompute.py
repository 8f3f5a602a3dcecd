"""
What of a layer runs again before its backward: by one word, or by Megatron's list of modules.

    core_attn      scores and values again; where attention is fused that drops next to nothing
    layernorm      the two norms in front of the blocks; drops what the first products took in
    moe_act        the activation function of experts; drops what their second product took in
    mla_up_proj    the products out of the latents; drops queries, keys and values
    mlp            the MLP of dense layers as a whole
    moe            router and experts as a whole, with their all-to-alls

Megatron-Core's recompute_modules, for recompute_granularity selective
(transformer_config.py of github NVIDIA/Megatron-LM).
"""

from __future__ import annotations

from typing import Literal

__all__ = ["RECOMPUTE", "RECOMPUTE_MODULES", "Module", "Recompute", "modules_of"]

Module = Literal["core_attn", "layernorm", "moe_act", "mla_up_proj", "mlp", "moe"]
Recompute = str | tuple[Module, ...]
"""One of the words of `RECOMPUTE`, or modules."""
RECOMPUTE = ("none", "selective", "selective_op", "full")
RECOMPUTE_MODULES = ("core_attn", "layernorm", "moe_act", "mla_up_proj", "mlp", "moe")


def modules_of(recompute: Recompute) -> frozenset[str]:
    """Return the modules of a list; none of a word."""
    return frozenset() if isinstance(recompute, str) else frozenset(recompute)
