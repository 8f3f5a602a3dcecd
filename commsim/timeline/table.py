"""
The columns of a timeline.

Every result, simulated or measured, becomes one `Timeline`: spans as columns, the use of
links as segments, memory as steps. What an op *is* (its kind, name, tags, group, bytes) stays
in the graph; a span adds only when it happened and what released it. Times are integer
picoseconds from the timeline's own zero; -1 means unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from functools import cached_property
from types import MappingProxyType
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from commsim.arrays import Bools, Floats, Ints
from commsim.errors import CommsimError
from commsim.graph import Device, Graph, OpKind, Phase
from commsim.units import format_time

__all__ = ["Cause", "LinkUse", "Memory", "Timeline"]

_SECONDS = 1e-12  # per picosecond


class Cause(IntEnum):
    """Why a span began to move when it did."""

    NONE = 0  # nothing held it: the first op of its lane, or unknown
    STREAM = 1  # the op before it on its stream
    DEPENDENCY = 2  # an op it depends on
    RENDEZVOUS = 3  # the last member to arrive at the collective, or the peer of a message
    QUEUE = 4  # an earlier op of the same group: a library runs only so many at once


class LinkUse(msgspec.Struct, frozen=True, eq=False):
    """Traffic on links. A segment says that a flow moved at one rate for a while.

    Links: `names`, `kinds` (nvlink, pcie, network, ...), `bandwidth` (payload bytes/s).
    Loads: the bytes that flow template f puts on links are
    `load_bytes[load_ptr[f]:load_ptr[f + 1]]` on `load_link[...]`.
    Segments: from `start` to `end` (ps), template `flow` progressed at `rate` (share per ps),
    so link l carried `load * rate * 1e12` bytes/s. Progress over all segments of one flow
    adds up to 1. `op` is an op that each segment moves data for, any member of its collective;
    -1 for none known, and empty if no segment knows. A folded run moves equivalent traffic
    over one of the links that carry it: `like[l]` is the link whose use is that of link l too;
    empty if every link speaks for itself.
    """

    names: tuple[str, ...]
    kinds: tuple[str, ...]
    bandwidth: Floats
    load_ptr: Ints
    load_link: Ints
    load_bytes: Floats
    flow: Ints
    start: Ints
    end: Ints
    rate: Floats
    op: Ints = msgspec.field(default_factory=lambda: np.zeros(0, np.int64))
    like: Ints = msgspec.field(default_factory=lambda: np.zeros(0, np.int64))

    @staticmethod
    def nothing() -> LinkUse:
        """Return the use of no links at all (a run without a cluster)."""
        none, zero = np.zeros(0, np.int64), np.zeros(0, np.float64)
        return LinkUse((), (), zero, np.zeros(1, np.int64), none, zero, none, none, none, zero)

    def link_bytes(self) -> Floats:
        """Return the bytes that each link carried in all."""
        progress = (self.end - self.start) * self.rate
        per_flow = np.bincount(self.flow, weights=progress, minlength=len(self.load_ptr) - 1)
        entries = np.repeat(per_flow, np.diff(self.load_ptr)) * self.load_bytes
        per_link = np.bincount(self.load_link, weights=entries, minlength=len(self.names))
        return per_link.astype(np.float64)

    def segments(self, link: int) -> tuple[Ints, Ints, Floats]:
        """Return (start, end, bytes/s) of every piece of traffic on `link`; pieces may overlap."""
        flow_of = np.repeat(np.arange(len(self.load_ptr) - 1), np.diff(self.load_ptr))
        on_link = self.load_link == link
        load = np.bincount(
            flow_of[on_link], weights=self.load_bytes[on_link], minlength=len(self.load_ptr) - 1
        )
        chosen = np.flatnonzero(load[self.flow] > 0)
        rate = load[self.flow[chosen]] * self.rate[chosen] * 1e12
        return self.start[chosen], self.end[chosen], rate


class Memory(msgspec.Struct, frozen=True, eq=False):
    """Bytes held per lane as steps: from `time` on, `lane` holds `held` bytes."""

    lane: Ints
    time: Ints
    held: Ints


class Timeline(msgspec.Struct, frozen=True, eq=False, dict=True, weakref=True):
    """Spans of a run over the ops of `graph`.

    Columns over spans: `op` (index into the graph), `arrive <= start <= end` (ps; a span waits
    from arrive to start and moves or works from start to end), `cause` (the span that released
    it, -1 for none) and `cause_kind` (Cause). `source` is "simulated" or "measured".
    """

    graph: Graph
    op: Ints
    arrive: Ints
    start: Ints
    end: Ints
    cause: Ints
    cause_kind: npt.NDArray[np.uint8]
    links: LinkUse
    memory: Memory
    source: str = "simulated"
    notes: tuple[str, ...] = ()
    choices: Mapping[int, str] = msgspec.field(default_factory=lambda: MappingProxyType({}))
    """What the library chose per collective row: "ring, 8 channels"."""

    def __len__(self) -> int:
        return len(self.op)

    def __repr__(self) -> str:
        lanes = len(self.graph.lane_rank)
        return f"Timeline({lanes} lanes, {len(self)} spans, {format_time(self.end_time)})"

    def _repr_html_(self) -> str:
        """Return what a notebook shows: how many spans of each kind, and how long together."""
        from html import escape

        length = (self.end - self.start).astype(np.float64)  # 64 bits may not hold their sum
        rows = "".join(
            f"<tr><td>{kind.name.lower()}</td><td>{int(mine.sum()):,} spans</td>"
            f"<td>{format_time(length[mine].sum())} in all</td></tr>"
            for kind in OpKind
            if (mine := self.kind == kind).any()
        )
        head = f"{escape(self.source)} timeline: {len(self.graph.lane_rank):,} lanes, "
        return f"<div><b>{head}{format_time(self.end_time)}</b><table>{rows}</table></div>"

    def to_pandas(self) -> Any:
        """Return the spans as a pandas DataFrame, one row each, times in seconds.

        `ranks` is how many ranks the row stands for; -1 is unknown or none. Needs pandas.
        """
        try:
            import pandas
        except ImportError:
            raise CommsimError("a table needs pandas: pip install pandas") from None
        graph, op = self.graph, self.op
        kinds = np.array([kind.name.lower() for kind in OpKind])
        phases = np.array([phase.name.lower() for phase in Phase])
        streams = np.array(graph.streams, dtype=object)
        unknown = self.arrive < 0
        return pandas.DataFrame(
            {
                "rank": graph.lane_rank[self.lane],
                "ranks": graph.multiplicity[self.lane],
                "stream": streams[graph.stream[op]] if len(streams) else "",
                "op": [graph.op_name(one) for one in op.tolist()],
                "kind": kinds[self.kind],
                "phase": phases[graph.phase[op]],
                "step": graph.step[op],
                "microbatch": graph.microbatch[op],
                "stage": graph.stage[op],
                "bytes": graph.size[op],
                "arrive_s": np.where(unknown, self.start, self.arrive) * _SECONDS,
                "start_s": self.start * _SECONDS,
                "end_s": self.end * _SECONDS,
            }
        )

    @cached_property
    def lane(self) -> Ints:
        """The lane of each span."""
        return self.graph.lane[self.op]

    @cached_property
    def kind(self) -> npt.NDArray[np.uint8]:
        """The OpKind of each span."""
        return self.graph.kind[self.op]

    @cached_property
    def communicates(self) -> Bools:
        """Whether each span is a collective, a send or a receive."""
        return (self.kind >= OpKind.COLLECTIVE) & (self.kind <= OpKind.RECV)

    @cached_property
    def on_gpu(self) -> Bools:
        """Whether each span is no work of a CPU that stands next to a GPU."""
        compute = self.kind == OpKind.COMPUTE
        cuda: Bools = compute & (self.graph.device[self.op] == Device.CUDA)
        has_gpu = np.zeros(len(self.graph.lane_rank), dtype=np.bool_)
        has_gpu[self.lane[cuda]] = True
        found: Bools = ~compute | cuda | ~has_gpu[self.lane]
        return found

    @property
    def end_time(self) -> int:
        """The end of the last span, in ps from zero; 0 for an empty timeline."""
        return int(self.end.max()) if len(self) else 0

    @property
    def begin_time(self) -> int:
        """The arrival of the first span."""
        return int(self.arrive.min()) if len(self) else 0
