"""
Plans: what an op does to the links, and when. Libraries make them, the engine runs them.

A plan has parts that run at the same time, a part has phases one after another, and a phase is
one **coupled flow**: all its transfers progress together at one rate x (share of the phase per
picosecond), loading link l with `load` bytes over `conns` connections. x never exceeds 1/T0,
T0 being the time that the chunk program takes on the idle cluster; under contention the flow
slows with the links it uses.

`joins` and `leaves` place the members on that idle clock, in picoseconds of unhindered progress:
member i must be there after joins[i], so that it has done what software does before its first
message when the data reaches it, and it is done after leaves[i].
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum

import msgspec
import numpy as np

from commsim.arrays import Floats, Ints
from commsim.cluster import Route

__all__ = [
    "Copy",
    "Delays",
    "Plan",
    "PlanPart",
    "PlanPhase",
    "Request",
    "RoutedProgram",
    "Start",
    "empty_phase",
]  # fmt: skip


class Start(IntEnum):
    """When a plan may begin to move."""

    ALL = 0  # every member has arrived
    PATH = 1  # members join as the data reaches them
    PAIR = 2  # both ends of a message have been posted
    EAGER = 3  # the send has been posted: the data waits in a buffer of the receiver
    EACH = 4  # one member is there: each leaves `stays` after those that it `awaits` have come


class Request(msgspec.Struct, frozen=True):
    """One op for a library to plan; hashable, so that plans can be kept.

    `kind` is a collective or "send_recv" (ranks = source, target). `size` is S of nccl-tests in
    bytes, `root` a member index, `splits[i][j]` bytes from member i to j, `recorded` a measured
    transfer time in ps; -1 for none. `late[i]`: how long after it member i was recorded to leave;
    `eager`: 1 if members were recorded to wait for the root alone, 2 for those that Gloo's program
    has them exchange with.
    `dtype` and `redop` are "" if not stated; `on_host`:
    the data is in host memory, not in the GPU's. `communicator`: the ranks of the one that a send
    goes over; () if it has one of its own, of the two ends, as torch makes it.
    """

    kind: str
    size: int
    ranks: tuple[int, ...]
    root: int = -1
    splits: tuple[tuple[int, ...], ...] | None = None
    recorded: int = -1
    dtype: str = ""
    redop: str = ""
    on_host: bool = False
    late: tuple[int, ...] = ()
    eager: int = 0
    communicator: tuple[int, ...] = ()


class Delays(msgspec.Struct, frozen=True, eq=False):
    """Times in software that the messages of a program add to those on the links, in ps.

    `hold[i]`: from the start (or from when an absent member joins) until message i may leave.
    `after[i]`: from when its last byte is there until it counts as arrived (waking up, adding).
    `dep[j]` belongs to `RoutedProgram.dep[j]`: from that arrival until the waiting message may
    leave.
    `pace[i]`: what the sender at least takes to hand message i out, one after another on a
    connection; None if only the links limit it.
    """

    hold: Floats
    after: Floats
    dep: Floats
    pace: Floats | None = None


class RoutedProgram(msgspec.Struct, frozen=True, eq=False):
    """A chunk program laid onto routes: what `network: steps` sends, one message at a time.

    Message i carries `size[i]` bytes from member `source[i]` to `target[i]` along
    `routes[route[i]]`, after all of `dep[dep_ptr[i]:dep_ptr[i + 1]]` have arrived.
    """

    source: Ints
    target: Ints
    size: Floats
    route: Ints
    routes: tuple[Route, ...]
    dep_ptr: Ints
    dep: Ints
    delays: Delays | None = None


class PlanPhase(msgspec.Struct, frozen=True, eq=False):
    """A coupled flow: `lead` ps of launch, then bytes on links, then `tail` ps of propagation.

    `idle` is T0 in ps. `link` ascends; `load` in bytes and `conns` belong to it.
    """

    idle: int
    link: Ints
    load: Floats
    conns: Floats
    lead: int = 0
    tail: int = 0


class PlanPart(msgspec.Struct, frozen=True, eq=False):
    """Phases one after another, for the members for which `leaves` is not -1."""

    phases: tuple[PlanPhase, ...]
    joins: Ints
    leaves: Ints

    @property
    def idle(self) -> int:
        """The time that the part takes on an idle cluster, in ps."""
        return sum(p.lead + p.idle + p.tail for p in self.phases)


class Copy(msgspec.Struct, frozen=True):
    """A copy of one member between GPU and host memory: `lead` ps of software, then bytes."""

    route: Route
    size: int
    lead: int = 0


class Plan(msgspec.Struct, frozen=True, eq=False):
    """What one op does: its parts, its start rule, and for the record how it was chosen.

    `programs` expand it for `network: steps`; they run at the same time. None of them if a
    plan has nothing to expand: then its parts run as they are. `copies_in[i]` is what member i
    copies from when it arrives, before it takes part; `copies_out[i]` what it copies once it may
    leave. Empty if nothing is staged. Its kernel holds `sms` of each member's GPU and reads and
    writes `touched` bytes of its memory. Of a plan that starts by EACH, member i leaves
    `stays[i]` after the last of the members `awaits[i]` came.
    """

    parts: tuple[PlanPart, ...]
    start: Start
    members: int
    programs: tuple[Callable[[], RoutedProgram], ...] = ()
    algorithm: str = ""
    channels: int = 1
    notes: tuple[str, ...] = msgspec.field(default=())
    copies_in: tuple[Copy | None, ...] = ()
    copies_out: tuple[Copy | None, ...] = ()
    sms: int = 0
    touched: float = 0.0
    stays: tuple[int, ...] = ()
    awaits: tuple[frozenset[int], ...] = ()

    @property
    def idle(self) -> int:
        """The time that its parts take if nothing hinders them, in ps; no copies."""
        return max((part.idle for part in self.parts), default=0)


def empty_phase(idle: int) -> PlanPhase:
    """Return a phase of a known duration that uses no link."""
    none, zero = np.zeros(0, np.int64), np.zeros(0, np.float64)
    return PlanPhase(idle, none, zero, zero)
