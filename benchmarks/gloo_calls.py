"""
What a program tells torch.distributed: every call, with its group and its bytes.
"""

from __future__ import annotations

import json
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import ProcessGroup
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

__all__ = ["Calls"]

_TWO_ENDS = ("_allgather_base_", "_reduce_scatter_base_", "alltoall_base_")


class Calls(TorchDispatchMode):
    """Notes the c10d ops that run under it, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[dict[str, Any]] = []

    def to_json(self) -> str:
        """Return the calls, one per line."""
        return "[\n" + ",\n".join(json.dumps(call) for call in self.calls) + "\n]\n"

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func.namespace == "c10d":
            self.calls.append(_call(func._schema.name.removeprefix("c10d::"), args))
        return func(*args, **(kwargs or {}))


def _call(op: str, args: tuple[Any, ...]) -> dict[str, Any]:
    group = next(ProcessGroup.unbox(a) for a in args if isinstance(a, torch.ScriptObject))
    ranks = dist.get_process_group_ranks(group)
    if op in _TWO_ENDS:
        outputs, inputs = [args[0]], [args[1]]
    else:
        outputs = inputs = [t for t in tree_leaves(args) if isinstance(t, torch.Tensor)]
    found: dict[str, Any] = {
        "op": op,
        "ranks": ranks,
        "in": sum(t.nbytes for t in inputs),
        "out": sum(t.nbytes for t in outputs),
        "dtype": str(inputs[0].dtype).removeprefix("torch.") if inputs else "",
    }
    numbers = [a for a in args if isinstance(a, int) and not isinstance(a, bool)]
    if op in ("send", "recv_"):
        found |= {"peer": ranks[numbers[0]], "tag": numbers[1]}
    return found
