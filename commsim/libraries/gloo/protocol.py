"""
When a message may leave: Gloo's rendezvous, added to a chunk program.

A member works through its steps in order with a few in flight: in step s it first waits for all
that it received up to step s - window, then posts its receives and sends of step s. Data leaves
when the sender has come that far, holds it, and has been told that the receiver posted its
receive; telling takes one message without payload. With no window everything is posted at once.
The older classes send into buffers that are registered beforehand: nothing is announced, only
that a buffer is free again; and their callers run them themselves, on no worker thread.
Source: github pytorch/gloo, gloo/transport/tcp/pair.cc (NOTIFY_RECV_READY), read at 5b46c34.
"""

from __future__ import annotations

import msgspec
import numpy as np

from commsim.arrays import Bools, Floats, Ints
from commsim.collectives import Program, dependencies
from commsim.libraries.gloo.constants import GlooConstants
from commsim.libraries.gloo.hosts import Hosts, Wakes
from commsim.libraries.plan import Delays, RoutedProgram

__all__ = ["Discipline", "lay"]


class Discipline(msgspec.Struct, frozen=True):
    """How an algorithm posts: steps in flight (0: all at once), and if receives are announced."""

    window: int
    announced: bool = True

    def overhead(self, constants: GlooConstants) -> int:
        """Return the ps that pass before an op begins: handing it to a worker thread."""
        return int(constants.op_overhead) if self.announced else 0


def lay(
    program: Program,
    size: float,
    ranks: tuple[int, ...],
    hosts: Hosts,
    constants: GlooConstants,
    discipline: Discipline,
) -> RoutedProgram:
    """Lay a program of S = `size` bytes onto routes between processes, with Gloo's delays."""
    source, target = program.source, program.target
    pairs, route = np.unique(np.stack((source, target)), axis=1, return_inverse=True)
    ends = [(ranks[a], ranks[b]) for a, b in pairs.T.tolist()]
    which = route.reshape(-1)
    wakes = Wakes.of([hosts.medium(a, b) for a, b in ends])[which]
    told = np.array([hosts.control(b, a) for a, b in ends], dtype=np.float64)[which]
    sizes = program.message_share * size
    adding = np.where(program.reduce, sizes / float(constants.reduce_rate) * 1e12, 0.0)
    if not discipline.window:
        # All are announced at once. A microsecond between near and far must not let each sender
        # serve all near ones before all far ones: sockets are written to in turns.
        told = np.full_like(told, told.max(initial=0.0))
    ptr, dep, delay, first = _waits(program, told, discipline)
    hold = discipline.overhead(constants) + np.where(first & discipline.announced, told, 0.0)
    return RoutedProgram(
        source,
        target,
        sizes,
        which,
        tuple(hosts.route(a, b) for a, b in ends),
        ptr,
        dep,
        Delays(hold, wakes.for_bytes(sizes) + adding, delay),
    )


def _waits(
    program: Program, told: Floats, discipline: Discipline
) -> tuple[Ints, Ints, Floats, Bools]:
    """Return CSR (ptr, messages, delays) of what each message waits for, and who is told first.

    The last says for which messages the receiver posts before it has received anything.
    """
    count = len(program)
    ptr, dep = dependencies(program)
    waiting = np.repeat(np.arange(count), np.diff(ptr))
    everyone = np.ones(count, dtype=np.bool_)
    if not discipline.window:
        return ptr, dep, np.zeros(len(dep)), everyone
    sender, by_sender, _ = _received(program, program.source, discipline.window)
    receiver, by_receiver, first = _received(program, program.target, discipline.window)
    rows = np.concatenate((waiting, sender, receiver))
    on = np.concatenate((dep, by_sender, by_receiver))
    delay = np.concatenate((np.zeros(len(dep) + len(sender)), told[receiver]))
    order = np.argsort(rows, kind="stable")
    ptr = np.concatenate(([0], np.cumsum(np.bincount(rows, minlength=count)))).astype(np.int64)
    return ptr, on[order], delay[order], first


def _received(program: Program, member: Ints, window: int) -> tuple[Ints, Ints, Bools]:
    """Return (message, what `member[message]` received in its latest step a window before).

    The third says for which messages there is no such step.
    """
    stride = int(program.step.max(initial=0)) + 1
    key = program.target * stride + program.step
    order = np.argsort(key, kind="stable")
    moments, begin = np.unique(key[order], return_index=True)
    end = np.append(begin[1:], len(order))
    wanted = member * stride + program.step - window
    at = np.searchsorted(moments, wanted, side="right") - 1
    none = (program.step < window) | (at < 0) | (moments[np.maximum(at, 0)] // stride != member)
    asking = np.flatnonzero(~none)
    counts = end[at[asking]] - begin[at[asking]]
    rows = np.repeat(asking, counts)
    skipped = np.repeat(np.cumsum(counts) - counts, counts)
    place = np.arange(len(rows)) - skipped + np.repeat(begin[at[asking]], counts)
    return rows, order[place], none
