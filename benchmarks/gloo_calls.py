"""
What a program tells torch.distributed: every call, with its group and its bytes.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import ProcessGroup, _resolve_process_group
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

__all__ = ["Calls"]

_TWO_ENDS = ("_allgather_base_", "_reduce_scatter_base_", "alltoall_base_")
_FUNCTIONAL = {
    "all_reduce": "allreduce_",
    "all_gather_into_tensor": "_allgather_base_",
    "reduce_scatter_tensor": "_reduce_scatter_base_",
    "all_to_all_single": "alltoall_base_",
    "broadcast": "broadcast_",
}
"""The c10d op that a functional collective runs."""


class Calls(TorchDispatchMode):
    """Notes the c10d ops that run under it, in order, also those that functional ones run."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[dict[str, Any]] = []

    def to_json(self) -> str:
        """Return the calls, one per line."""
        return "[\n" + ",\n".join(json.dumps(call) for call in self.calls) + "\n]\n"

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented  # so that its ops on the rank's own shard are seen
        out = func(*args, **(kwargs or {}))
        name = func._schema.name.rpartition("::")[2]
        if func.namespace == "c10d":
            ends = (args[:1], args[1:2]) if name in _TWO_ENDS else (args, args)
            self.calls.append(_call(name, args, *ends))
        elif func.namespace == "_c10d_functional" and name in _FUNCTIONAL:
            self.calls.append(_call(_FUNCTIONAL[name], args, out, args))
        return out


def _call(op: str, args: tuple[Any, ...], outputs: Any, inputs: Any) -> dict[str, Any]:
    ranks = dist.get_process_group_ranks(_group(args))
    out, into = _tensors(outputs), _tensors(inputs)
    found: dict[str, Any] = {
        "op": op,
        "ranks": ranks,
        "in": sum(t.nbytes for t in into),
        "out": sum(t.nbytes for t in out),
        "dtype": str(into[0].dtype).removeprefix("torch."),
    }
    if op in ("send", "recv_"):
        peer, tag = (a for a in args if isinstance(a, int) and not isinstance(a, bool))
        found |= {"peer": ranks[peer], "tag": tag}
    return found


def _group(args: tuple[Any, ...]) -> Any:
    for value in args:
        if isinstance(value, torch.ScriptObject):
            with suppress(RuntimeError):
                return ProcessGroup.unbox(value)
    last = args[-1]  # of a functional collective: its group, or the name of it
    return _resolve_process_group(last) if isinstance(last, str) else last


def _tensors(values: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor)]
