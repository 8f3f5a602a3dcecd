"""
Communication as torch.distributed issues it, in the words of a workload graph.

Two dialects reach the dispatcher: `c10d` ops, which return a Work to wait for, and functional
collectives, whose result is waited for. Sizes are S of nccl-tests: the largest buffer of a rank.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import FakeWork, ProcessGroup, _resolve_process_group

from commsim.errors import TraceError
from commsim.ops import COLLECTIVES, REDUCING, op_of
from commsim.traces.capture.costs import tensors
from commsim.traces.capture.recorder import current_stream, recorder
from commsim.traces.capture.records import CapturedCall, CapturedMessage, GroupMade, Waited

__all__ = ["groups_made", "is_communication", "made_group", "record_communication", "wait_for_work"]

_NAMESPACES = frozenset({"c10d", "_c10d_functional", "_c10d_functional_autograd", "_dtensor"})
_SHARD_DIM = "shard_dim_alltoall"  # of DTensor: an all-to-all


def is_communication(namespace: str) -> bool:
    """Return whether ops of a namespace communicate."""
    return namespace in _NAMESPACES


def made_group(ranks: Any, description: str | None) -> None:
    """Take note of a process group that the program makes."""
    made = GroupMade(tuple(int(rank) for rank in ranks), description or "")
    _groups.append(made)


def groups_made() -> tuple[GroupMade, ...]:
    """Return all groups, in the order of `CapturedCall.group`."""
    return tuple(_groups)


def record_communication(
    func: Any, namespace: str, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Record one op, run it on fake tensors, and return what it gives with a Work of our own."""
    given = dict(zip((a.name for a in func._schema.arguments), args, strict=False)) | kwargs
    if name.startswith("wait_tensor"):
        _wait_for(given["tensor"])
        return func(*args, **kwargs)
    if name == "_wrap_tensor_autograd":
        return func(*args, **kwargs)
    group = _group_of(given)
    ranks = dist.get_process_group_ranks(group)
    number = recorder.number()
    if name in ("send", "recv_", "isend", "irecv"):
        _record_message(name, given, ranks, number)
        out = func(*args, **kwargs)
    else:
        kind = "all_to_all" if name == _SHARD_DIM else op_of(name)
        if kind not in COLLECTIVES:
            raise TraceError(f"{namespace}::{name}: this collective is not captured yet.")
        before = dict(given)
        out = func(*args, **kwargs)
        _record_call(kind, before, out, ranks, number, functional=namespace != "c10d")
    if namespace != "c10d":
        for tensor in tensors(out):
            _pending[id(tensor.untyped_storage())] = number
        return out
    return _with_work(out, number)


def wait_for_work(work: Any, *how: Any, **more: Any) -> bool:
    """Stand in for `Work.wait`: the current stream waits for the call."""
    number = getattr(work, "seq_id", -1)
    if number in _issued:
        recorder.add(Waited(number, current_stream().number))
    return True


def _wait_for(tensor: Tensor) -> None:
    number = _pending.get(id(tensor.untyped_storage()))
    if number is not None:
        recorder.add(Waited(number, current_stream().number))


def _with_work(out: Any, number: int) -> Any:
    work = FakeWork()
    work.seq_id = number
    _issued[number] = work
    boxed = work.boxed()
    if isinstance(out, tuple) and out and isinstance(out[-1], torch.ScriptObject):
        return (*out[:-1], boxed)
    return boxed if isinstance(out, torch.ScriptObject) else out


def _record_message(name: str, given: dict[str, Any], ranks: list[int], number: int) -> None:
    sends = "send" in name
    moved = tensors(given.get("tensors", given.get("tensor")))
    peer = given["dst"] if sends else given["src"]
    recorder.add(
        CapturedMessage(
            sends,
            ranks[peer],
            _place(ranks),
            sum(_size(t) for t in moved),
            current_stream().number,
            number,
            recorder.batch,
            given.get("tag", 0),
            **recorder.tags,
        )
    )


def _record_call(
    kind: str, given: dict[str, Any], out: Any, ranks: list[int], number: int, *, functional: bool
) -> None:
    size, splits = _size_of(kind, given, out, len(ranks))
    root = given.get("root_rank", given.get("src", -1)) if kind not in REDUCING - {"reduce"} else -1
    moved = tensors(list(given.values()))
    if len(ranks) == 1:
        return  # nothing leaves the rank
    recorder.add(
        CapturedCall(
            "all_to_all_v" if splits else kind,
            _place(ranks),
            size,
            current_stream().number,
            number,
            functional or bool(given.get("async_op", True)),
            str(moved[0].dtype).removeprefix("torch.") if moved else "",
            _redop(given) if kind in REDUCING else "",
            ranks[root] if root >= 0 else -1,
            splits,
            **recorder.tags,
        )
    )


def _size_of(
    kind: str, given: dict[str, Any], out: Any, members: int
) -> tuple[int, tuple[int, ...]]:
    """Return S in bytes, and what goes to each member if that is uneven."""
    outputs = tensors(
        next(
            (
                given[k]
                for k in (
                    "output_tensors",
                    "outputs",
                    "output_tensor",
                    "output",
                    "output_lists",
                    "out",
                )
                if k in given
            ),
            out,
        )
    )
    inputs = tensors(
        next(
            (
                given[k]
                for k in (
                    "input_tensors",
                    "inputs",
                    "input_tensor",
                    "input",
                    "input_list",
                    "tensors",
                    "tensor",
                )
                if k in given
            ),
            (),
        )
    )
    if kind == "barrier":
        return 0, ()
    if kind == "all_to_all":
        return _exchange(given, inputs, members)
    chosen = outputs if kind in ("all_gather", "gather") else inputs
    return max(sum(map(_size, chosen)), sum(map(_size, inputs))), ()


def _exchange(
    given: dict[str, Any], inputs: list[Tensor], members: int
) -> tuple[int, tuple[int, ...]]:
    total = sum(map(_size, inputs))
    if len(inputs) > 1:
        sizes = tuple(_size(t) for t in inputs)
    else:
        parts = given.get("input_split_sizes") or ()
        rows = sum(parts)
        sizes = tuple(total // rows * part for part in parts) if rows else ()
    even = not sizes or (len(set(sizes)) == 1 and len(sizes) == members)
    return total, () if even else sizes


def _redop(given: dict[str, Any]) -> str:
    """Return the reduction if it can be read: functional collectives name theirs."""
    named = given.get("reduce_op")
    return named.lower() if isinstance(named, str) else ""


def _size(tensor: Tensor) -> int:
    return int(tensor.numel() * tensor.element_size())


def _group_of(given: dict[str, Any]) -> Any:
    named = given.get("process_group", given.get("group_name"))
    if isinstance(named, str):
        return _resolve_process_group(named)
    return ProcessGroup.unbox(named) if isinstance(named, torch.ScriptObject) else named


def _place(ranks: list[int]) -> int:
    """Return the number of the last group made of these ranks."""
    wanted = tuple(ranks)
    for at in range(len(_groups) - 1, -1, -1):
        if _groups[at].ranks == wanted:
            return at
    _groups.append(GroupMade(wanted, ""))
    return len(_groups) - 1


_groups: list[GroupMade] = []
_issued: dict[int, Any] = {}
_pending: dict[int, int] = {}
