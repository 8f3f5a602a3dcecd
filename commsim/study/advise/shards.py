"""
How long an action takes if its parameters are sharded: gathers and reductions that overlap it.

A unit (the embedding, a layer, the head) is gathered while the unit before it runs, and its
gradient is reduced while the next one runs, in the order in which a rank issues them: reduce, then
gather (`workload.training.sharded`). The first gather of an action is exposed, and the last
reduction delays the first gather of the next action.

c  compute of a unit, with the copies out of and into flat buffers      g, r  its gather, reduction
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from commsim.models import ComputeModel, GpuWork, stack_constants
from commsim.units import to_picoseconds
from commsim.workload import Work
from commsim.workload.training import (
    LAYER,
    TrainingPlan,
    Unit,
    gathered,
    gathered_again,
    reduced,
)

__all__ = ["Pace", "Shards", "Share", "UnitTime", "beside"]


class Idle(Protocol):
    """Times an op of the group that shards dense parameters (or experts) on idle links."""

    def __call__(self, kind: str, size: int, *, expert: bool) -> int:
        """Return ps of an op of `size` bytes."""


class Share(NamedTuple):
    """The shares of a GPU's SMs and of its memory bandwidth that communication takes."""

    sms: float
    memory: float


class Pace(NamedTuple):
    """The time of an action in ps, and of the collectives around it.

    `lead`: the gather before its first op. `tail`: reductions after its last op. `late`: its time
    if the message it waits for comes after the second gather is done (both gathers are issued
    when the action is). `between`: the reductions between HSDP's copies, which delay no gather, and
    how long they go on after the last op.
    """

    takes: int
    lead: int = 0
    tail: int = 0
    late: int = 0
    between: tuple[int, int] = (0, 0)

    def end(self, issued: int, arrived: int) -> int:
        """Return when an action ends issued at `issued` that gets its message at `arrived`."""
        ready = issued + self.lead
        return max(ready + self.takes, max(ready, arrived) + self.late)


class UnitTime(NamedTuple):
    """The time of a unit in an action (ps), and its compute by what limits it."""

    chain: int
    arithmetic: int
    memory: int


Sizes = dict[bool, tuple[int, ...]]
"""Entries of each collective of a unit, by whether they are experts'."""


class GroupClock:
    """When the streams of two groups are free: of dense parameters (0) and of experts (1)."""

    def __init__(self) -> None:
        self.until = [0, 0]

    def add(self, ready: int, times: tuple[int, int]) -> int:
        """Queue an op on each group's stream, the second after the first; return when both end."""
        for group, took in enumerate(times):
            if took:
                ready = self.until[group] = max(ready, self.until[group]) + took
        return ready


def beside(unit: UnitTime, communicates: int, held: Share) -> int:
    """Return the time (ps) of a unit that overlaps `communicates` ps of communication.

    Communication first overlaps what it slows least: other communication, which it does not slow.
    """
    waits = unit.chain - unit.arithmetic - unit.memory
    left, took = float(max(communicates - waits, 0)), float(waits)
    for share, work in sorted(((held.sms, unit.arithmetic), (held.memory, unit.memory))):
        slow = min(left, work / (1 - share))
        left -= slow
        took += work + slow * share
    return round(took)


class Shards:
    """Times the actions of a plan whose parameters are sharded."""

    def __init__(
        self,
        plan: TrainingPlan,
        model: ComputeModel,
        *,
        shards: int,
        held: Share,
        within: Idle,
        between: Callable[[int], int],
    ) -> None:
        self._plan, self._model = plan, model
        self._sizes = {False: shards, True: shards // plan.section.parallel.ep}
        self._held = held
        self._within, self._between = within, between
        self._stack = stack_constants(str(plan.section.compute.stack))

    def pace(
        self, work: Work, units: Sequence[tuple[Unit, UnitTime]], *, at_the_ends: bool = False
    ) -> Pace:
        """Return the times of an action of `units`, which run in this order.

        `at_the_ends`: the stage's first forward of the step, or its last gradient, which gather
        and reduce what the other microbatches leave.
        """
        gathers = [(0, 0)] * len(units)
        reductions = [(0, 0, 0)] * len(units)
        times = [time for _, time in units]
        once = at_the_ends and work == Work.F
        if work != Work.W and (once or not self._plan.reshards_once):
            own = {unit: self._gathers(unit, forward=work == Work.F) for unit in dict(units)}
            each = {unit: self._gather(unit, sizes) for unit, sizes in own.items()}
            gathers = [each[unit] for unit, _ in units]
            times = self._all_copied(units, times, own, self._model.gather_copy)
        if work in (Work.B, Work.W) and (at_the_ends or not self._plan.adds_up_whole):
            own = {unit: self._reductions(unit) for unit in dict(units)}
            summed = {unit: self._reduce(sizes) for unit, sizes in own.items()}
            reductions = [summed[unit] for unit, _ in units]
            times = self._all_copied(units, times, own, self._model.scatter_copy)
        ahead = self._plan.gathers_ahead(forward=work == Work.F)
        lead = sum(gathers[0])
        takes, tail, copies = self._run(times, gathers, reductions, ahead)
        done = [(0, 0)] * (ahead + 1)
        late, _, _ = self._run(times, [*done, *gathers[len(done) :]], reductions, ahead)
        every = sum(between for _, _, between in reductions)
        return Pace(takes - lead, lead, tail, late, (every, copies))

    def _run(
        self,
        times: Sequence[UnitTime],
        gathers: Sequence[tuple[int, int]],
        reductions: Sequence[tuple[int, int, int]],
        ahead: int,
    ) -> tuple[int, int, int]:
        """Return when the last unit ends, and how long its group, and HSDP's, go on."""
        queue, end, issued, copied = GroupClock(), 0, 0, 0
        there: list[int] = []
        for at, time in enumerate(times):
            while issued < min(len(times), at + ahead + 1):
                there.append(queue.add(max(end, *there[-1:], 0), gathers[issued]))
                issued += 1
            start = max(end, there[at])
            end = start + beside(time, max(*queue.until, copied) - start, self._held)
            dense, experts, copies = reductions[at]
            reduced = queue.add(end, (dense, experts))
            copied = max(copied, reduced) + copies
        return end, max(*queue.until, end) - end, max(*queue.until, copied, end) - end

    def _gathers(self, unit: Unit, *, forward: bool) -> Sizes:
        """Return the entries of each gather of a unit in a pass, dense and experts'."""
        whole = self._plan.section.recompute == "full" and unit.again
        again = not forward and whole and unit.kind == LAYER
        return {
            expert: self._padded(
                gathered(unit, self._stack, expert=expert)
                + (gathered_again(unit, self._stack, expert=expert) if again else ()),
                expert=expert,
            )
            for expert in self._sizes
        }

    def _reductions(self, unit: Unit) -> Sizes:
        """Return the entries of each reduction of a unit's gradients, dense and experts'."""
        return {
            expert: self._padded(reduced(unit, self._stack, expert=expert), expert=expert)
            for expert in self._sizes
        }

    def _gather(self, unit: Unit, sizes: Sizes) -> tuple[int, int]:
        fp8 = unit.kind == LAYER and self._model.gathers_fp8
        width = 1 if fp8 else self._plan.width
        dense, experts = (
            sum(self._within("all_gather", size * width, expert=expert) for size in sizes[expert])
            for expert in (False, True)
        )
        return dense, experts

    def _reduce(self, sizes: Sizes) -> tuple[int, int, int]:
        """Return the times to reduce gradients: dense, of experts, between HSDP's copies."""
        width = self._plan.gradient_width
        dense, experts = (
            sum(
                self._within("reduce_scatter", size * width, expert=expert)
                for size in sizes[expert]
            )
            for expert in (False, True)
        )
        shards = self._sizes[False]
        return dense, experts, sum(self._between(size * width // shards) for size in sizes[False])

    def _all_copied(
        self,
        units: Sequence[tuple[Unit, UnitTime]],
        times: Sequence[UnitTime],
        sizes: Mapping[Unit, Sizes],
        copy: Callable[[int], GpuWork],
    ) -> list[UnitTime]:
        """Return the times of units with their copies; equal units copy equally long."""
        known: dict[tuple[Unit, UnitTime], UnitTime] = {}
        for (unit, _), time in zip(units, times, strict=True):
            if (unit, time) not in known:
                known[unit, time] = self._copied(time, sizes[unit], copy)
        return [known[unit, time] for (unit, _), time in zip(units, times, strict=True)]

    def _copied(self, time: UnitTime, sizes: Sizes, copy: Callable[[int], GpuWork]) -> UnitTime:
        """Return a unit's time with the copies between its tensors and flat buffers."""
        seconds = sum(
            (copy(size) + self._model.list_copies(self._sizes[expert])).seconds
            for expert, own in sizes.items()
            for size in own
        )
        took = to_picoseconds(seconds, "copies between tensors and flat buffers")
        return UnitTime(time.chain + took, time.arithmetic, time.memory + took)

    def _padded(self, sizes: tuple[int, ...], *, expert: bool) -> tuple[int, ...]:
        """Return the entries padded to a multiple of the shards; nothing if there is one shard."""
        shards = self._sizes[expert]
        return tuple(-(-size // shards) * shards for size in sizes) if shards > 1 else ()
