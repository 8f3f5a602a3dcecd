"""
The GPU work of one rank as columns, each with the call that launched it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import msgspec
import numpy as np

from commsim.arrays import Bools, Ints
from commsim.traces.formats import Event, EventKind, Events
from commsim.traces.rebuild.rank.calls import Thread, ThreadCall
from commsim.traces.rebuild.rank.communication_kernels import KernelFamily, family_of, is_nccl
from commsim.traces.rebuild.rank.gloo_work import GLOO, GroupsOf, gloo_work

__all__ = ["GpuOp", "GpuOps", "LaunchCalls", "gpu_ops"]


class GpuOp(msgspec.Struct, frozen=True):
    """A kernel, copy or fill, with the call that launched it (None if not recorded)."""

    event: Event
    launch: ThreadCall | None

    @property
    def is_collective(self) -> bool:
        """Whether this communicates: a kernel of NCCL or RCCL, or what Gloo does on the CPU."""
        return _is_collective(self.event.name)

    @property
    def family(self) -> KernelFamily | None:
        """The library outside torch.distributed whose kernel this is, None for all others."""
        return None if self.is_collective else family_of(self.event.name)

    @property
    def is_gloo(self) -> bool:
        """Whether Gloo does this, on threads of its own."""
        return _is_gloo(self.event.name)


def _is_gloo(name: str) -> bool:
    return name.startswith(GLOO)


def _is_collective(name: str) -> bool:
    return is_nccl(name) or _is_gloo(name)


class LaunchCalls:
    """The calls of the CUDA runtime by correlation number; of equal numbers the last call."""

    def __init__(self, threads: Mapping[tuple[str, str], Thread]) -> None:
        found = [
            (np.flatnonzero(of.events.kind == EventKind.RUNTIME), number, of.events)
            for number, of in enumerate(threads.values())
        ]
        place = np.concatenate([places for places, _, _ in found])
        thread = np.concatenate([np.full(len(places), number) for places, number, _ in found])
        numbers = np.concatenate([events.correlation[places] for places, _, events in found])
        order = np.argsort(numbers, kind="stable")
        order = order[numbers[order] > 0]
        self._numbers, self._thread, self._place = numbers[order], thread[order], place[order]
        self._names = tuple(threads)

    def find(self, numbers: Ints) -> tuple[Ints, Ints]:
        """Return the thread and the index there of the call of each number, -1 without one."""
        if not self._numbers.size:
            return np.full(len(numbers), -1), np.full(len(numbers), -1)
        at = np.searchsorted(self._numbers, numbers, side="right") - 1
        known = (at >= 0) & (self._numbers[at] == numbers)
        return np.where(known, self._thread[at], -1), np.where(known, self._place[at], -1)

    def get(self, number: int) -> ThreadCall | None:
        """Return the call of a correlation number, None without one."""
        thread, place = self.find(np.array([number]))
        return ThreadCall(self._names[thread[0]], int(place[0])) if thread[0] >= 0 else None


@dataclass(frozen=True, eq=False)
class GpuOps(Sequence[GpuOp]):
    """Kernels, copies, fills and what Gloo did, by start.

    `thread` and `place` say which call launched each (a thread of `threads`, and an event of it),
    -1 if that is not recorded; `launched` when, and when it began itself if it is not.
    """

    events: Events
    thread: Ints
    place: Ints
    launched: Ints
    threads: tuple[tuple[str, str], ...]

    def __len__(self) -> int:
        return len(self.thread)

    def __getitem__(self, at: int) -> GpuOp:  # type: ignore[override]
        return GpuOp(self.events[at], self.launch(at))

    def __iter__(self) -> Iterator[GpuOp]:
        return (self[at] for at in range(len(self)))

    def launch(self, at: int) -> ThreadCall | None:
        """Return the call that launched some work, None if it is not recorded."""
        thread = int(self.thread[at])
        return ThreadCall(self.threads[thread], int(self.place[at])) if thread >= 0 else None

    @cached_property
    def starts(self) -> list[int]:
        """When each began."""
        found: list[int] = self.events.start.tolist()
        return found

    @cached_property
    def ends(self) -> list[int]:
        """When each ended."""
        found: list[int] = self.events.end.tolist()
        return found

    @cached_property
    def streams(self) -> list[int]:
        """What each ran on."""
        found: list[int] = self.events.stream.tolist()
        return found

    @cached_property
    def has_launch(self) -> Bools:
        """Whether the launch of each is recorded."""
        known: Bools = self.thread >= 0
        return known

    @cached_property
    def is_gloo(self) -> Bools:
        """Whether each is Gloo's."""
        return self.events.named(_is_gloo)

    @cached_property
    def is_collective(self) -> Bools:
        """Whether each is a kernel of NCCL or RCCL, or Gloo's."""
        return self.events.named(_is_collective)

    @cached_property
    def communicates(self) -> Bools:
        """Whether each moves data between ranks, by whatever library."""
        return self.events.named(lambda name: _is_collective(name) or family_of(name) is not None)

    def counts(self, fits: Callable[[str], object]) -> dict[str, int]:
        """Return how often each name that fits is there, in the order of their first."""
        found, first, count = np.unique(self.events.name, return_index=True, return_counts=True)
        names = ((self.events.names[found[at]], int(count[at])) for at in np.argsort(first))
        return {name: times for name, times in names if fits(name)}


def gpu_ops(
    events: Events,
    threads: Mapping[tuple[str, str], Thread],
    calls: LaunchCalls,
    groups_of: GroupsOf,
) -> GpuOps:
    """Return what GPUs and Gloo did, with the calls that launched it."""
    found = events.take(events.on_gpu)
    thread, place = calls.find(found.correlation)
    gloo = list(gloo_work(events, threads, groups_of))
    names = tuple(threads)
    if gloo:
        thread = np.append(thread, [names.index(call.thread) for _, call in gloo])
        place = np.append(place, [call.index for _, call in gloo])
        found = Events.of([*found, *(event for event, _ in gloo)])
        order = np.argsort(found.start, kind="stable")
        found, thread, place = found.take(order), thread[order], place[order]
    launched = found.start.copy()
    for number, of in enumerate(threads.values()):
        own = thread == number
        launched[own] = of.events.start[place[own]]
    return GpuOps(found, thread, place, launched, names)
