"""
Arguments of kernels and record_param_comms (torch 2.2 and later) in the record of a call.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec.structs import replace

from commsim.traces.formats import Event, EventArgs, Events, in_bytes, splits_in_bytes
from commsim.traces.rebuild.rank.calls import CollectiveCall

__all__ = ["inside", "with_args"]


def with_args(
    call: CollectiveCall, args: EventArgs, groups: dict[str, tuple[int, ...]]
) -> CollectiveCall:
    """Take what torch 2.2 and later write on the kernel itself."""
    op = args.op or call.op
    uneven = op == "all_to_all_v"
    size = in_bytes(args.elements if uneven else args.most_elements, args.itemsize)
    return replace(
        call,
        op=op,
        size=call.size if size < 0 else size,
        dtype=args.dtype or call.dtype,
        splits=splits_in_bytes(args.splits, args.itemsize) if uneven else (),
        group=args.group or call.group,
        ranks=groups.get(args.group) or args.ranks or call.ranks,
        sequence=args.sequence,
    )


def inside(events: Events, index: int) -> Iterator[Event]:
    """Yield the events that event `index` encloses."""
    until = np.searchsorted(events.start, events.end[index], side="right")
    for at in range(index + 1, int(until)):
        yield events[at]
