"""
`SyncBatchNorm` of a captured script, which torch has for tensors on a GPU alone.

Its kernels are stood for by ops that read and write as much; what it sends is what
`torch.nn.modules._functions.SyncBatchNorm` sends: an all-gather of mean, inverse deviation and
count on the way forward, an all-reduce of two sums of the gradient on the way back.
"""

# mypy: allow-subclassing-any, allow-untyped-calls

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

__all__ = ["install_sync_batch_norm"]


def install_sync_batch_norm() -> None:
    """Let `SyncBatchNorm` take the tensors of a capture."""
    torch.nn.SyncBatchNorm.forward = _forward


def _forward(self: Any, x: Tensor) -> Tensor:
    self._check_input_dim(x)
    self._check_non_zero_input_channels(x)
    if self.training and self.track_running_stats:
        self.num_batches_tracked.add_(1)
    if not self.training or _members(self.process_group) == 1:
        of_batch, kept = self.training or self.running_mean is None, (None, None)
        if not of_batch:
            kept = self.running_mean, self.running_var
        return torch.nn.functional.batch_norm(x, *kept, self.weight, self.bias, of_batch)
    normed: Tensor = _Synced.apply(x, self.weight, self.bias, self.process_group, self.eps)
    return normed


def _members(group: Any) -> int:
    return dist.get_world_size(group) if dist.is_initialized() else 1


class _Synced(torch.autograd.Function):
    @staticmethod
    def forward(
        at: Any, x: Tensor, weight: Tensor | None, bias: Tensor | None, group: Any, eps: float
    ) -> Tensor:
        x = x.contiguous()
        over = [dim for dim in range(x.dim()) if dim != 1]
        var, mean = (part.float() for part in torch.var_mean(x, over))
        own = torch.cat([mean, var, mean.new_ones(1)])
        everyone = own.new_empty(own.numel() * _members(group))
        dist.all_gather_into_tensor(everyone, own, group)
        normed: Tensor = torch.ops.aten.native_batch_norm(
            x, weight, bias, mean, var, False, 0.0, eps
        )[0]
        at.save_for_backward(x, weight, mean, var)
        at.group, at.eps = group, eps
        return normed

    @staticmethod
    def backward(at: Any, gradient: Tensor) -> Any:
        x, weight, mean, var = at.saved_tensors
        gradient = gradient.contiguous()

        def part(*wanted: bool) -> Any:
            return torch.ops.aten.native_batch_norm_backward(
                gradient, x, weight, mean, var, mean, var, False, at.eps, list(wanted)
            )

        _, of_weight, of_bias = part(False, True, True)
        of_x = None
        if at.needs_input_grad[0]:
            sums = torch.cat([mean, mean])
            dist.all_reduce(sums, group=at.group)
            of_x, _, _ = part(True, False, False)
        of_weight, of_bias = (
            found if needed else None
            for found, needed in zip((of_weight, of_bias), at.needs_input_grad[1:3], strict=True)
        )
        return of_x, of_weight, of_bias, None, None
