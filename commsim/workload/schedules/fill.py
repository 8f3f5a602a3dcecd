"""
Place weight gradients: given each device's forwards and input gradients in order, and times.

A weight gradient goes where the device would be idle, where memory is needed for the next
forward, and what is left to the end. A gap shorter than a weight gradient is taken when it is
at least `patience` of one, or when it would make this device the idlest of all (the rule of
Qi et al., ICLR 2024, section 3.1).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from commsim.workload.schedules.actions import Action, Work
from commsim.workload.schedules.times import StageTimes

__all__ = ["UNIT", "Cap", "Filled", "StepWindow", "fill", "walk"]

UNIT = 10_000
"""Memory of one microbatch on one stage, in which caps are counted."""


class Cap(NamedTuple):
    """`limit` of live activations per device in units; `kept` of each unit lives on until W."""

    limit: int
    kept: int = UNIT


class Filled(NamedTuple):
    """Actions per device, and the largest span of a device in ps."""

    actions: tuple[tuple[Action, ...], ...]
    span: int


class _FillingDevice:
    """A device on its way through its order: its clock, its memory and what is due."""

    def __init__(self, order: Sequence[Action]) -> None:
        self.order = order
        self.at = 0
        self.clock = 0
        self.first = -1
        self.idle = 0
        self.live = 0
        self.due: deque[Action] = deque()
        self.done: list[Action] = []


def fill(
    orders: Sequence[Sequence[Action]],
    home: Sequence[int],
    times: StageTimes,
    *,
    cap: Cap,
    patience: float,
) -> Filled | None:
    """Return the orders with weight gradients, for one pipe through all stages in their order.

    None if the cap does not allow an order: a forward finds no room and nothing is due.
    """
    ends: dict[tuple[bool, int, int], int] = {}
    devices = [_FillingDevice(order) for order in orders]
    left = sum(len(order) for order in orders)
    last = len(home) - 1
    while left:
        before = left
        for device in devices:
            while device.at < len(device.order):
                work, stage, k = action = device.order[device.at]
                ready = _ready(ends, action, last, home, times)
                if ready is None:
                    break
                if work == Work.F and not _make_room(device, times, cap):
                    return None
                _use_gap(device, ready, devices, times, cap, patience)
                _run(device, action, max(ready, device.clock), times, cap)
                ends[work == Work.F, stage, k] = device.clock
                device.at += 1
                left -= 1
        if left == before:
            return None
    for device in devices:
        while device.due:
            _weight(device, times, cap)
    span = max(device.clock - device.first for device in devices)
    return Filled(tuple(tuple(device.done) for device in devices), span)


class StepWindow(NamedTuple):
    """When each device begins and ends a step, in ps."""

    begins: tuple[int, ...]
    ends: tuple[int, ...]

    @property
    def span(self) -> int:
        """The largest time of a device from its begin to its end."""
        return max(end - begin for begin, end in zip(self.begins, self.ends, strict=True))


def walk(
    actions: Sequence[Sequence[Action]],
    home: Sequence[int],
    times: StageTimes,
    *,
    free: Sequence[int] = (),
) -> StepWindow:
    """Return when devices that are `free` from then on (0 unless given) run complete orders.

    Of one pipe through all stages in their order, with weight gradients apart.
    """
    ends: dict[tuple[bool, int, int], int] = {}
    took = {Work.F: times.forward, Work.I: times.backward, Work.W: times.weight}
    clock, begins = list(free or (0,) * len(actions)), [-1] * len(actions)
    at, left = [0] * len(actions), sum(len(row) for row in actions)
    while left:
        for device, row in enumerate(actions):
            while at[device] < len(row):
                work, stage, k = action = row[at[device]]
                ready = 0 if work == Work.W else _ready(ends, action, len(home) - 1, home, times)
                if ready is None:
                    break
                start = max(ready, clock[device])
                begins[device] = start if begins[device] < 0 else begins[device]
                clock[device] = start + took[work][stage]
                if work != Work.W:
                    ends[work == Work.F, stage, k] = clock[device]
                at[device] += 1
                left -= 1
    return StepWindow(tuple(begins), tuple(clock))


def _ready(
    ends: dict[tuple[bool, int, int], int],
    action: Action,
    last: int,
    home: Sequence[int],
    times: StageTimes,
) -> int | None:
    """Return when the input of an action is on its device, None if that is not known yet."""
    work, stage, k = action
    forward = work == Work.F
    source = stage - 1 if forward else stage + 1
    if source < 0:
        return 0
    if source > last:
        return ends.get((True, stage, k))
    end = ends.get((forward, source, k))
    return None if end is None else end + times.hop(home[source], home[stage])


def _make_room(device: _FillingDevice, times: StageTimes, cap: Cap) -> bool:
    while device.live + UNIT > cap.limit and device.due:
        _weight(device, times, cap)
    return device.live + UNIT <= cap.limit


def _use_gap(
    device: _FillingDevice,
    ready: int,
    devices: Sequence[_FillingDevice],
    times: StageTimes,
    cap: Cap,
    patience: float,
) -> None:
    if device.first < 0:
        return
    while device.due and device.clock < ready:
        gap, need = ready - device.clock, times.weight[device.due[0].stage]
        idlest = max(other.idle for other in devices)
        if gap < patience * need and device.idle + gap <= idlest:
            break
        _weight(device, times, cap)
    device.idle += max(0, ready - device.clock)


def _run(device: _FillingDevice, action: Action, start: int, times: StageTimes, cap: Cap) -> None:
    if device.first < 0:
        device.first = start
    if action.work == Work.F:
        device.live += UNIT
        device.clock = start + times.forward[action.stage]
    else:
        device.live -= UNIT - cap.kept
        device.clock = start + times.backward[action.stage]
        device.due.append(Action(Work.W, action.stage, action.microbatch))
    device.done.append(action)


def _weight(device: _FillingDevice, times: StageTimes, cap: Cap) -> None:
    action = device.due.popleft()
    device.live -= cap.kept
    device.clock += times.weight[action.stage]
    device.done.append(action)
