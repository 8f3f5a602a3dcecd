"""
Kernels that torch has for a GPU in one piece, and puts together from several ops on a CPU.

A captured program runs on a CPU: without this, RMSNorm would be nine kernels that keep fp32 copies
of its input, and dropout three. Here they are the ops that a GPU runs, with what those keep.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

__all__ = ["install_fused_kernels"]

_RMS_NORM = "aten::_fused_rms_norm"


def install_fused_kernels() -> None:
    """Let torch choose the kernels of a GPU for RMSNorm and dropout."""
    if not torch._C._dispatch_has_kernel_for_dispatch_key(_RMS_NORM, "CPU"):
        _library.impl("_fused_rms_norm", _fused_rms_norm, "CPU")
    compose = torch._VF.dropout

    def dropout(x: Tensor, p: float, train: bool) -> Tensor:
        if not train or not 0 < p < 1 or not x.numel():
            return compose(x, p, train)
        dropped: Tensor = torch.native_dropout(x, p, train)[0]
        return dropped

    torch._VF.dropout = torch.dropout = dropout


_library = torch.library.Library("aten", "IMPL")  # what it registers goes when it does


def _fused_rms_norm(x: Tensor, shape: Any, weight: Tensor | None, eps: float | None) -> Any:
    """Stand in for the kernel: with one for the device, torch records its own gradient.

    Fake tensors never come here; they are given shapes by torch's own decomposition.
    """
    raise NotImplementedError("a captured RMSNorm has no data")
