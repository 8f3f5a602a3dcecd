"""Schedules by name: one record each, ours (`built_in`) and those that users register."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from commsim.errors import ScenarioError, did_you_mean
from commsim.limits import check_size, op_bytes
from commsim.registry import Registry
from commsim.workload.schedules.actions import Action, Schedule, loop
from commsim.workload.schedules.csv_file import is_schedule_file
from commsim.workload.schedules.order import check_schedule
from commsim.workload.schedules.times import StageTimes, equal_times

__all__ = [
    "SCHEDULES",
    "ScheduleAsk",
    "ScheduleKind",
    "by_order",
    "check_name",
    "home_of",
    "is_laid_out",
    "make_schedule",
    "register_schedule",
    "title_of",
    "usual_schedule",
]

_MOST_CELLS = 1_000_000  # (stage, microbatch) pairs: some 2 GiB of graph


class ScheduleAsk(msgspec.Struct, frozen=True):
    """The request for a schedule.

    `virtual`: stages per device, if it is free. `times`: what schedules that depend on the
    times of their stages are laid out for. `kept`: the share of an activation that lives on from
    the input gradient to the weight gradient.
    """

    devices: int
    microbatches: int
    virtual: int
    times: StageTimes
    kept: float


Order = Callable[[int, ScheduleAsk], Iterable[Action]]
"""The actions of a device, in order."""
Home = Callable[[int, int], tuple[int, ...]]
"""The device of each stage, from the number of devices and of stages per device."""


def _needs_nothing(devices: int, microbatches: int) -> str:
    return ""


class ScheduleKind(msgspec.Struct, frozen=True):
    """A schedule that scenarios can name.

    `make` lays it out. `stages` are its stages per device, None as `virtual_stages` says (2 or
    more for `interleaved`). `home` places them. `needs` says what is wrong with so many devices
    and microbatches, "" if nothing is. `is_laid_out`: its order depends on the times of stages.
    """

    name: str
    title: str
    make: Callable[[ScheduleAsk], Schedule]
    stages: int | None = 1
    home: Home = loop
    needs: Callable[[int, int], str] = msgspec.field(default=_needs_nothing)
    is_laid_out: bool = False
    least_virtual: int = 1


SCHEDULES: Registry[str, ScheduleKind] = Registry("schedule")
"""Every schedule by its name."""


def register_schedule(
    name: str,
    title: str = "",
    *,
    stages: int | None = 1,
    needs: Callable[[int, int], str] = _needs_nothing,
) -> Callable[[Order], Order]:
    """Return a decorator that registers a pipeline schedule.

    The function gets a device and a `ScheduleAsk` (devices, microbatches, virtual, ...) and
    returns the actions of that device in order: `Action(Work.F, stage, microbatch)`. Stages
    stand on devices round by round. Each schedule that it gives is checked: every action once,
    and none that waits for itself. `needs(devices, microbatches)` says what is wrong, "" if
    nothing is.

    Raises:
        ScenarioError: the name is taken.
    """

    def register(order: Order) -> Order:
        def make(ask: ScheduleAsk) -> Schedule:
            made = by_order(name, order, ask, 1 if stages is None else stages)
            check_schedule(made, where=f"schedule {name}")
            return made

        SCHEDULES.add(name, ScheduleKind(name, title or name, make, stages, needs=needs))
        return order

    return register


def by_order(name: str, order: Order, ask: ScheduleAsk, stages: int = 1) -> Schedule:
    """Return the schedule in which each device does what `order` says, stages round by round."""
    home = loop(ask.devices, max(ask.virtual, stages))
    rows = tuple(tuple(order(device, ask)) for device in range(ask.devices))
    return Schedule(name, rows, home, (tuple(range(len(home))),))


def check_name(name: str, *, where: str) -> None:
    """Raise ScenarioError for a schedule that is neither known nor a CSV file."""
    if name not in SCHEDULES and not is_schedule_file(name):
        raise ScenarioError(
            f"{where}: no schedule {name!r}.{did_you_mean(name, SCHEDULES)} Available:"
            f" {', '.join(SCHEDULES)}, or a file of torch.distributed.pipelining actions (.csv)."
        )


def is_laid_out(name: str) -> bool:
    """Return whether the order of a schedule depends on the times of its stages."""
    kind = SCHEDULES.find(name)
    return kind is not None and kind.is_laid_out


def title_of(name: str) -> str:
    """Return a schedule's name for headlines ("1F1B"); its own if it is in no catalogue."""
    kind = SCHEDULES.find(name)
    return name if kind is None else kind.title


def usual_schedule(virtual: int) -> str:
    """Return the schedule that frameworks take for so many stages per device."""
    return "1f1b" if virtual == 1 else "interleaved_1f1b"


def home_of(name: str, devices: int, virtual: int, *, where: str) -> tuple[int, ...]:
    """Return the device of each stage of the schedule called `name`.

    Raises:
        ScenarioError: an unknown name, or virtual stages that it does not have.
    """
    check_name(name, where=where)
    kind = SCHEDULES.get(name, where)
    if devices * virtual > _MOST_CELLS:
        raise ScenarioError(
            f"{where}: {devices:,} x {virtual:,} stages are more than commsim simulates"
            f" ({_MOST_CELLS:,}). Take fewer stages."
        )
    if virtual < kind.least_virtual:
        raise ScenarioError(
            f"{where}: {name} needs virtual_stages above {kind.least_virtual - 1}."
            " With one it is 1f1b."
        )
    if kind.stages is None:
        return kind.home(devices, virtual)
    if virtual not in (1, kind.stages):
        raise ScenarioError(
            f"{where}: {name} has {kind.stages} stage{'s' * (kind.stages > 1)} per device, but"
            f" virtual_stages is {virtual}. Leave it out, or use interleaved_1f1b or breadth_first."
        )
    return kind.home(devices, kind.stages)


def make_schedule(
    name: str,
    devices: int,
    microbatches: int,
    *,
    where: str,
    virtual: int = 1,
    times: StageTimes | None = None,
    kept: float = 1.0,
) -> Schedule:
    """Return the schedule called `name` for `devices` devices.

    `times` are what the searched and the V-shaped ones are laid out for, F = B = W = 1 unless
    given; `kept` is the share of an activation that lives on from input to weight gradient.

    Raises:
        ScenarioError: an unknown name, microbatches or devices that the schedule cannot use,
            or more work than fits.
    """
    home = home_of(name, devices, virtual, where=where)
    if len(home) * microbatches > _MOST_CELLS:
        raise ScenarioError(
            f"{where}: {len(home)} stages x {microbatches} microbatches are more than commsim"
            f" simulates ({_MOST_CELLS:,} pairs). Take fewer microbatches: the steady state"
            " repeats."
        )
    cells = len(home) * microbatches
    check_size(
        2 * cells, op_bytes(2 * cells, copied=True),
        f"{where}: {len(home):,} stages x {microbatches:,} microbatches, forward and backward",
        "Take fewer microbatches: the steady state repeats.",
    )  # fmt: skip
    kind = SCHEDULES.get(name, where)
    wrong = kind.needs(devices, microbatches)
    if wrong:
        raise ScenarioError(f"{where}: {name} {wrong}")
    times = times or equal_times(devices, len(home))
    return kind.make(ScheduleAsk(devices, microbatches, virtual, times, kept))
