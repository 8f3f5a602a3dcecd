"""
What a program is told that asks fake tensors for values, copies or saves them, or sends objects.

No value is known but a number that the program wrote itself (`torch.tensor(0)`): every other one
is the stand-in of `mode.value_of`; the program waits for the GPU there, as it would. All ranks are
taken to have this rank's own numbers and objects. Nothing is written to checkpoints.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily
from torch.distributed import distributed_c10d

from commsim.traces.capture.mode import value_of
from commsim.traces.capture.recorder import recorder

__all__ = ["install_values"]

_OBJECTS = "collectives of Python objects take no time in a capture."
_WRITABLE = 2**20  # entries: a larger array takes no memory, and cannot be written


def install_values() -> None:
    """Let fake tensors answer, and object collectives return at once."""
    fake: Any = FakeTensor
    fake.__format__ = _formatted
    fake.__deepcopy__ = _copied
    fake.numpy = _array
    fake.tolist = lambda self: _array(self).tolist()
    answers = {
        "all_gather_object": _all_gather_object,
        "gather_object": _gather_object,
        "broadcast_object_list": _broadcast_object_list,
        "scatter_object_list": _scatter_object_list,
        "all_reduce": _known_sum(dist.all_reduce),
    }
    for module in (dist, distributed_c10d):
        for name, answer in answers.items():
            setattr(module, name, answer)
    checkpoint: Any = import_module("torch.distributed.checkpoint")
    torch.save = checkpoint.save = checkpoint.async_save = _saved


def _formatted(tensor: Tensor, how: str) -> str:
    return format(value_of(tensor), how) if not tensor.dim() else repr(tensor)


def _array(tensor: Tensor, *, force: bool = False) -> Any:
    """Return an array of a tensor's shape, filled with the stand-in."""
    value = value_of(tensor)
    shape = tuple(tensor.shape)
    filled = np.broadcast_to(np.asarray(value), shape)
    return filled.copy() if tensor.numel() <= _WRITABLE else filled


def _copied(tensor: Tensor, memo: dict[int, Any]) -> Tensor:
    """Copy a tensor or parameter without its values; `copy.deepcopy` would copy its storage."""
    if id(tensor) in memo:
        found: Tensor = memo[id(tensor)]
        return found
    with torch.no_grad():
        made = tensor.detach().clone()
    if isinstance(tensor, torch.nn.Parameter):
        made._is_param = True  # as Parameter.__new__ marks a tensor of another class
    memo[id(tensor)] = made.requires_grad_(tensor.requires_grad)
    return made


def _known_sum(all_reduce: Callable[..., Any]) -> Callable[..., Any]:
    """Let a known number become the sum of as many as there are ranks."""

    @functools.wraps(all_reduce)
    def reduce(
        tensor: Tensor, op: Any = dist.ReduceOp.SUM, group: Any = None, async_op: bool = False
    ) -> Any:
        known = getattr(tensor, "constant", None)
        with unset_fake_temporarily():
            before = None if known is None else known.clone()
        work = all_reduce(tensor, op, group, async_op)
        if known is not None and op == dist.ReduceOp.SUM:
            with unset_fake_temporarily():
                known.copy_(before * dist.get_world_size(group))
        return work

    return reduce


def _all_gather_object(object_list: list[Any], obj: Any, group: Any = None) -> None:
    recorder.note(_OBJECTS)
    object_list[:] = [copy.copy(obj) for _ in object_list]


def _gather_object(
    obj: Any, object_gather_list: list[Any] | None = None, *how: Any, **more: Any
) -> None:
    recorder.note(_OBJECTS)
    if object_gather_list is not None:
        object_gather_list[:] = [copy.copy(obj) for _ in object_gather_list]


def _broadcast_object_list(object_list: list[Any], *how: Any, **more: Any) -> None:
    recorder.note(_OBJECTS)


def _scatter_object_list(
    scatter_object_output_list: list[Any],
    scatter_object_input_list: list[Any] | None = None,
    *how: Any,
    **more: Any,
) -> None:
    recorder.note(_OBJECTS)
    if scatter_object_input_list:
        scatter_object_output_list[0] = scatter_object_input_list[0]


def _saved(*what: Any, **more: Any) -> None:
    recorder.note("checkpoints are not written in a capture.")
