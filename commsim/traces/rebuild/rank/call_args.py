"""
What the arguments of an event say about a call: kernels and record_param_comms of torch 2.2 on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from commsim.ops import op_of
from commsim.traces.formats import Args, Event, dtype_of, integer, numbers_of
from commsim.traces.rebuild.rank.calls import CollectiveCall

__all__ = ["elements_of", "even", "first", "inside", "ranks_of", "with_args"]

_MAX_RANKS = 1_000_000


def even(op: str, uneven: Any) -> str:
    """An all_to_all_v without splits is split evenly: that is what an empty list stands for."""
    return op if uneven or op != "all_to_all_v" else "all_to_all"


def elements_of(args: Args) -> int:
    """Return the elements of the first input, -1 where it is not a tensor of known shape."""
    shape = first(args.dims)
    if not isinstance(shape, list) or not shape:
        return -1
    count = 1
    for extent in shape:
        count *= integer(extent, -1) if not isinstance(extent, list) else -1
        if count < 0:
            return -1
    return count


def first(values: Any) -> Any:
    return values[0] if isinstance(values, list) and values else None


def with_args(
    call: CollectiveCall, args: Args, groups: dict[str, tuple[int, ...]]
) -> CollectiveCall:
    """Take what torch 2.2 and later write on the kernel itself."""
    dtype, itemsize = dtype_of(args.dtype)
    elements = max(integer(args.in_elements), integer(args.out_elements))
    op = even(op_of(args.collective), args.in_splits != "[]") or call.op
    if op == "all_to_all_v":
        elements = integer(args.in_elements)
    group = "" if args.group_name is None else str(args.group_name)
    return replace(
        call,
        op=op,
        size=elements * itemsize if elements >= 0 and itemsize > 0 else call.size,
        dtype=dtype or call.dtype,
        splits=tuple(n * itemsize for n in numbers_of(args.in_splits))
        if op == "all_to_all_v"
        else (),
        group=group or call.group,
        ranks=groups.get(group) or ranks_of(args) or call.ranks,
        sequence=integer(args.sequence),
    )


def ranks_of(args: Args) -> tuple[int, ...]:
    """Return a group's ranks: as listed, else (a list is cut at 30) by start, stride and size."""
    listed = numbers_of(args.group_ranks)
    if listed:
        return listed
    start, stride, size = (integer(v) for v in (args.rank_start, args.rank_stride, args.group_size))
    if start < 0 or stride < 1 or not 0 < size <= _MAX_RANKS:
        return ()
    return tuple(range(start, start + stride * size, stride))


def inside(events: tuple[Event, ...], index: int) -> Iterator[Event]:
    """Yield the events that event `index` encloses."""
    end = events[index].end
    for event in events[index + 1 :]:
        if event.start > end:
            return
        yield event
