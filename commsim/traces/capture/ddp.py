"""
DistributedDataParallel for a capture: the same buckets, copies and all-reduces, in Python.

torch's own reducer is C++ that reads gradients, which have no data here. Buckets follow its rules:
the first step has one bucket (or those of the reversed parameters with `find_unused_parameters`),
the next ones are rebuilt in the order in which the first backward made the gradients ready, the
first of 1 MiB and the others of 25 MiB (or all of `bucket_cap_mb`).
"""

# mypy: allow-subclassing-any, allow-untyped-calls

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd import Variable

from commsim.traces.capture.ddp_hooks import GradBucket, run_hook
from commsim.units import MIB

__all__ = ["DistributedDataParallel"]


class _Bucket:
    """Gradients that are reduced as one: views of one buffer."""

    def __init__(self, params: list[Tensor]) -> None:
        first = params[0]
        self.params = params
        self.buffer = torch.empty(
            sum(p.numel() for p in params), dtype=first.dtype, device=first.device
        )
        pieces = self.buffer.split([p.numel() for p in params])
        self.views = [v.view(p.shape) for v, p in zip(pieces, params, strict=True)]
        self.missing = len(params)
        self.work: Any = None


_IGNORED = "_ddp_params_and_buffers_to_ignore"  # where torch keeps the names too


class DistributedDataParallel(nn.Module):
    """Wraps a module as torch's class of that name does, as far as communication shows."""

    def __init__(
        self,
        module: nn.Module,
        device_ids: Any = None,
        output_device: Any = None,
        dim: int = 0,
        broadcast_buffers: bool = True,
        init_sync: bool = True,
        process_group: Any = None,
        bucket_cap_mb: float | None = None,
        find_unused_parameters: bool = False,
        check_reduction: bool = False,
        gradient_as_bucket_view: bool = False,
        static_graph: bool = False,
        device_mesh: Any = None,
        **more: Any,
    ) -> None:
        super().__init__()
        if more:
            raise ValueError(f"DistributedDataParallel: {', '.join(more)}: not captured.")
        self.module = module
        self.process_group = device_mesh.get_group() if device_mesh else process_group
        self.require_backward_grad_sync = True
        self._sends, self._reduces = True, False  # what the forward before asks for
        self._world = dist.get_world_size(self.process_group)
        self._as_view = gradient_as_bucket_view
        self._buffers_sent = broadcast_buffers
        self.find_unused_parameters, self.static_graph = find_unused_parameters, static_graph
        cap = int((25 if bucket_cap_mb is None else bucket_cap_mb) * MIB)
        self._limits = [MIB if bucket_cap_mb is None else cap, cap]
        ignored = set(getattr(module, _IGNORED, ()))
        self._params = [
            p for name, p in module.named_parameters() if p.requires_grad and name not in ignored
        ]
        self._sent = [b for name, b in module.named_buffers() if name not in ignored]
        self._hook: tuple[Any, Any] | None = None
        self._joining = False
        self._ready: list[int] = []
        self._rebuilt = self._queued = False
        backwards = list(reversed(range(len(self._params))))
        self._build(backwards, self._limits if self._unused() else [sys.maxsize])
        for index, param in enumerate(self._params):
            param.register_post_accumulate_grad_hook(lambda p, i=index: self._on_grad(i))

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """Run the module; send its buffers from the first rank before.

        Whether gradients are reduced is settled here, not where the backward runs
        (`_pre_forward`, `_post_forward` of torch, `Reducer::prepare_for_backward`).
        """
        if self._joining:
            # Who has inputs left (Join.notify_join_context), and who will reduce gradients.
            for _ in range(2):
                one = torch.ones(1, device=self._params[0].device)
                dist.all_reduce(one, group=self.process_group, async_op=True)
        if self._sends:
            self._send_buffers()
        found = self.module(*inputs, **kwargs)
        self._sends = torch.is_grad_enabled() and self.require_backward_grad_sync
        self._reduces |= self._sends
        return found

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Let gradients add up on the rank for a while."""
        before, self.require_backward_grad_sync = self.require_backward_grad_sync, False
        try:
            yield
        finally:
            self.require_backward_grad_sync = before

    @contextmanager
    def join(
        self,
        divide_by_initial_world_size: bool = True,
        enable: bool = True,
        throw_on_early_termination: bool = False,
    ) -> Iterator[None]:
        """Let ranks run out of inputs at different times; captured with as many on each."""
        self._joining = enable
        try:
            yield
        finally:
            if enable:
                none = torch.zeros(1, device=self._params[0].device)
                dist.all_reduce(none, group=self.process_group)
            self._joining = False

    def register_comm_hook(self, state: Any, hook: Any) -> None:
        """Let `hook(state, bucket)` reduce the buckets, in whatever bytes it makes of them."""
        if self._hook is not None:
            raise RuntimeError("register_comm_hook can only be called once.")
        self._hook = (state, hook)

    @staticmethod
    def _set_params_and_buffers_to_ignore_for_model(module: nn.Module, names: Any) -> None:
        setattr(module, _IGNORED, list(names))

    def _set_static_graph(self) -> None:
        self.static_graph = True

    def _get_ddp_logging_data(self) -> dict[str, Any]:
        return {}

    def _unused(self) -> bool:
        """Say whether every backward looks for parameters that got no gradient."""
        return self.find_unused_parameters and not self.static_graph

    def _send_buffers(self) -> None:
        if not self._buffers_sent:
            return
        by_type: dict[torch.dtype, list[Tensor]] = {}
        for buffer in self._sent:
            by_type.setdefault(buffer.dtype, []).append(buffer.detach().reshape(-1))
        for buffers in by_type.values():
            dist.broadcast(torch.cat(buffers), src=self._root(), group=self.process_group)

    def _root(self) -> int:
        return int(dist.get_process_group_ranks(self.process_group or dist.group.WORLD)[0])

    def _build(self, order: list[int], limits: list[int]) -> None:
        """Cut the parameters, in this order, into buckets of at most `limits` bytes."""
        chosen = [self._params[index] for index in order]
        parts, _ = dist._compute_bucket_assignment_by_size(
            chosen, limits, [False] * len(chosen), order
        )
        self._buckets = [_Bucket([self._params[index] for index in part]) for part in parts]
        self._place = {
            index: (bucket, part.index(index))
            for bucket, part in zip(self._buckets, parts, strict=True)
            for index in part
        }

    def _on_grad(self, index: int) -> None:
        if not self._reduces:
            return
        if not self._queued:
            self._queued = True
            Variable._execution_engine.queue_callback(self._finish)
        self._ready.append(index)
        bucket, at = self._place[index]
        grad = self._params[index].grad
        if self._hook is None:
            torch.mul(grad, 1.0 / self._world, out=bucket.views[at])
        else:
            bucket.views[at].copy_(grad)
        if self._as_view:
            self._params[index].grad = bucket.views[at]
        bucket.missing -= 1
        self._reduce_full()

    def _reduce_full(self) -> None:
        """Start the all-reduce of every bucket that is full, in the order of the buckets."""
        for bucket in self._buckets:
            if bucket.work is not None:
                continue
            if bucket.missing:
                return
            bucket.work = self._reduce(bucket)

    def _reduce(self, bucket: _Bucket) -> Any:
        if self._hook is None:
            return dist.all_reduce(bucket.buffer, group=self.process_group, async_op=True)
        state, hook = self._hook
        number = self._buckets.index(bucket)
        return run_hook(hook, state, GradBucket(bucket, number, len(self._buckets)))

    def _finish(self) -> None:
        """Wait for all buckets, and give the parameters what was reduced."""
        if self._unused():
            used = torch.ones(len(self._params), dtype=torch.int32, device=self._params[0].device)
            dist.all_reduce(used, group=self.process_group, async_op=True).wait()
            for bucket in self._buckets:
                bucket.missing = 0
            self._reduce_full()
        for bucket in self._buckets:
            if bucket.work is not None:
                bucket.work.wait()
            if not self._as_view:
                for param, view in zip(bucket.params, bucket.views, strict=True):
                    if param.grad is not None:
                        param.grad.copy_(view)
            bucket.work, bucket.missing = None, len(bucket.params)
        if not self._rebuilt and not self._unused():
            self._rebuilt = True
            self._build(self._ready, self._limits)
        self._ready, self._queued, self._reduces = [], False, False
