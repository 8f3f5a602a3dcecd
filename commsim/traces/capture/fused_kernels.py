"""
Kernels that torch has for a GPU in one piece, and puts together from several ops on a CPU.

A captured program runs on a CPU: without this, RMSNorm would be nine kernels that keep fp32 copies
of its input, dropout three, and attention with dropout all of its scores in fp32. Here they are the
ops that a GPU runs, with what those keep.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

__all__ = ["install_fused_kernels"]

_RMS_NORM = "aten::_fused_rms_norm"


def install_fused_kernels() -> None:
    """Let torch choose the kernels of a GPU for RMSNorm, dropout and attention."""
    if not torch._C._dispatch_has_kernel_for_dispatch_key(_RMS_NORM, "CPU"):
        _library.impl("_fused_rms_norm", _fused_rms_norm, "CPU")
    compose = torch._VF.dropout

    def dropout(x: Tensor, p: float, train: bool) -> Tensor:
        if not train or not 0 < p < 1 or not x.numel():
            return compose(x, p, train)
        dropped: Tensor = torch.native_dropout(x, p, train)[0]
        return dropped

    torch._VF.dropout = torch.dropout = dropout
    attend = functional.scaled_dot_product_attention

    def attention(
        query: Tensor, key: Tensor, value: Tensor, attn_mask: Any = None,
        dropout_p: float = 0.0, is_causal: bool = False, **more: Any,
    ) -> Tensor:  # fmt: skip
        """Fused kernels of a GPU drop scores as they go; that of a CPU cannot."""
        found: Tensor = attend(query, key, value, attn_mask, 0.0, is_causal, **more)
        return found

    functional.scaled_dot_product_attention = attention


_library = torch.library.Library("aten", "IMPL")  # what it registers goes when it does


def _fused_rms_norm(x: Tensor, shape: Any, weight: Tensor | None, eps: float | None) -> Any:
    """Stand in for the kernel: with one for the device, torch records its own gradient.

    Fake tensors never come here; they are given shapes by torch's own decomposition.
    """
    raise NotImplementedError("a captured RMSNorm has no data")
