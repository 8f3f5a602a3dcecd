"""
Checks of a schedule, and an order in which all its actions can run.

Forward of a stage needs the forward of the stage before in its pipe; backward needs the
backward of the stage after, and on the last stage its own forward; a weight gradient needs its
own input gradient. One check for every schedule, made here or brought in.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from typing import NamedTuple

import msgspec
import numpy as np

from commsim.arrays import Ints
from commsim.errors import ScenarioError
from commsim.workload.schedules.actions import Action, Schedule, Work

__all__ = ["OrderColumns", "ScheduleStep", "check_schedule", "execution_order"]

_CODE = {Work.F: 1, Work.B: 0, Work.I: 0, Work.W: -1}  # forwards, backwards, neither


class ScheduleStep(NamedTuple):
    """An action in execution order; `position` counts the actions of its device.

    `sources` are the (device, position) whose ends it waits for on other devices: its
    producer's, and for the first of a pair also the partner's. `producer` is the action whose
    result it takes from another device, None for one that takes none. `feeds` is the device
    that its own result goes to, -1 if it stays.
    """

    device: int
    position: int
    action: Action
    sources: tuple[tuple[int, int], ...]
    producer: tuple[int, int] | None
    feeds: int


def check_schedule(schedule: Schedule, *, where: str) -> None:
    """Check that every microbatch passes every stage of its pipe once, and no deadlock.

    Raises:
        ScenarioError: an action that is missing, there twice or on the wrong device, a weight
            gradient before its input gradient, or devices that wait for each other.
    """
    seen: dict[tuple[str, int, int], tuple[int, int]] = {}
    for device, actions in enumerate(schedule.actions):
        for position, action in enumerate(actions):
            _check_place(schedule, device, action, where)
            for kind in _kinds(action.work):
                key = (kind, action.stage, action.microbatch)
                if key in seen:
                    raise ScenarioError(f"{where}: device {device}: {action} is there twice.")
                seen[key] = (device, position)
    _check_complete(schedule, seen, where)
    for device, actions in enumerate(schedule.actions):
        _check_local_order(actions, seen, f"{where}: device {device}")
    OrderColumns.of(schedule, where=where)


def _kinds(work: Work) -> tuple[str, ...]:
    """Return what an action provides: a whole backward is both gradients."""
    return ("I", "W") if work == Work.B else (str(work),)


def _check_place(schedule: Schedule, device: int, action: Action, where: str) -> None:
    if not 0 <= action.stage < schedule.stages or action.microbatch < 0:
        raise ScenarioError(f"{where}: device {device}: {action}: no such stage or microbatch.")
    if schedule.home[action.stage] != device:
        raise ScenarioError(
            f"{where}: device {device}: {action}: stage {action.stage} is on device"
            f" {schedule.home[action.stage]}."
        )


def _check_complete(
    schedule: Schedule, seen: dict[tuple[str, int, int], tuple[int, int]], where: str
) -> None:
    names = {"F": "forward", "I": "backward", "W": "weight gradient"}
    for pipe in schedule.pipes:
        inside = frozenset(pipe)
        microbatches = sorted({k for _, stage, k in seen if stage in inside})
        if not microbatches:
            raise ScenarioError(f"{where}: no microbatch passes stage {pipe[0]}.")
        for stage in pipe:
            for k in microbatches:
                for kind, name in names.items():
                    if (kind, stage, k) not in seen:
                        raise ScenarioError(
                            f"{where}: stage {stage} (device {schedule.home[stage]}) has no {name}"
                            f" of microbatch {k}."
                        )


def _check_local_order(
    actions: tuple[Action, ...], seen: dict[tuple[str, int, int], tuple[int, int]], where: str
) -> None:
    for position, (work, stage, k) in enumerate(actions):
        if work in (Work.B, Work.I) and seen["F", stage, k][1] > position:
            raise ScenarioError(f"{where}: {stage}{work}{k} comes before its forward {stage}F{k}.")
        if work == Work.W and seen["I", stage, k][1] > position:
            raise ScenarioError(
                f"{where}: {stage}W{k} comes before its input gradient {stage}I{k}."
            )


def execution_order(schedule: Schedule, *, where: str = "") -> Iterator[ScheduleStep]:
    """Yield every action after what it needs, devices in turn, each device in its own order.

    Raises:
        ScenarioError: the devices wait for each other; names what each is at.
    """
    found = OrderColumns.of(schedule, where=where)
    rows = [action for row in schedule.actions for action in row]
    device, position, producer, feeds = (
        column.tolist() for column in (found.device, found.position, found.producer, found.feeds)
    )
    sources: dict[int, list[tuple[int, int]]] = {}
    for at, source in zip(found.waits.tolist(), found.source.tolist(), strict=True):
        sources.setdefault(at, []).append((device[source], position[source]))
    for at in found.order.tolist():
        by = producer[at]
        yield ScheduleStep(
            device[at],
            position[at],
            rows[at],
            tuple(sources.get(at, ())),
            (device[by], position[by]) if by >= 0 else None,
            feeds[at],
        )


class OrderColumns(msgspec.Struct, frozen=True, eq=False):
    """The order of a schedule as columns; its actions are numbered device by device.

    `order` has the numbers in execution order. By number: `device`, `position` on it, `stage`,
    `producer` (the number of the action whose result it takes from another device, or -1) and
    `feeds`, as in `ScheduleStep`. Action `waits[i]` waits for the end of `source[i]`.
    """

    order: Ints
    device: Ints
    position: Ints
    stage: Ints
    producer: Ints
    feeds: Ints
    waits: Ints
    source: Ints

    @classmethod
    def of(cls, schedule: Schedule, *, where: str = "") -> OrderColumns:
        """Return those of a schedule.

        Raises:
            ScenarioError: the devices wait for each other; names what each is at.
        """
        counts = np.array([len(actions) for actions in schedule.actions], dtype=np.int64)
        first = np.cumsum(counts) - counts
        device = np.repeat(np.arange(len(counts)), counts)
        stage, result, need, feeds = _results(schedule, len(device))
        maker = _makers(result, need)
        pairs = [int(first[at]) + one for at, row in enumerate(schedule.paired) for one in row]
        last = np.arange(len(device))  # the action with which each ends: of a pair the second
        last[pairs] += 1
        bounds = (*first.tolist(), len(device))
        order = _sequence(bounds, frozenset(pairs), need.tolist(), result.tolist())
        position = np.arange(len(device)) - first[device]
        if len(order) < len(device):
            done = np.bincount(device[order], minlength=len(counts)).tolist()
            raise ScenarioError(f"{where or schedule.name}: {_stuck(schedule, done)}")
        apart = np.flatnonzero((maker >= 0) & (device[maker] != device))
        producer = np.full(len(device), -1)
        producer[apart] = maker[apart]
        begins = np.arange(len(device))  # the action with which each starts: of a pair the first
        begins[np.array(pairs, dtype=np.int64) + 1] -= 1
        return cls(
            np.array(order, dtype=np.int64),
            device,
            position,
            stage,
            producer,
            feeds,
            begins[apart],
            last[maker[apart]],
        )


def _results(schedule: Schedule, count: int) -> tuple[Ints, Ints, Ints, Ints]:
    """Return, per action, its stage, what it makes and needs (-1: nothing), and what it feeds.

    Results have numbers: of stage s and the k-th microbatch that is met, forwards
    `(2 s + 1) K + k`, backwards `2 s K + k`. Forwards go down a pipe, backwards up.
    """
    home = np.array(schedule.home, dtype=np.int64)
    needs = np.repeat(2 * np.arange(schedule.stages) + 1, 2)  # a backward: its own forward
    needs[1::2] = -1
    feeds = np.full(len(needs), -1)
    for pipe in schedule.pipes:
        one, other = np.array(pipe[:-1], dtype=np.int64), np.array(pipe[1:], dtype=np.int64)
        needs[2 * other + 1], needs[2 * one] = 2 * one + 1, 2 * other
        away = home[one] != home[other]
        feeds[2 * one[away] + 1], feeds[2 * other[away]] = home[other[away]], home[one[away]]
    number: dict[int, int] = {}
    work, stage, place = (
        np.fromiter(column, np.int64, count)
        for column in (
            (_CODE[action[0]] for row in schedule.actions for action in row),
            (action[1] for row in schedule.actions for action in row),
            (
                number.setdefault(action[2], len(number))
                for row in schedule.actions
                for action in row
            ),
        )
    )
    weighs, size = work < 0, max(1, len(number))
    kind = 2 * stage + np.maximum(work, 0)
    wanted = np.where(weighs, kind, needs[kind])  # a weight gradient: its input gradient
    return (
        stage,
        np.where(weighs, -1, kind * size + place),
        np.where(wanted < 0, -1, wanted * size + place),
        np.where(weighs, -1, feeds[kind]),
    )


def _makers(result: Ints, need: Ints) -> Ints:
    """Return, per action, the number of the one that makes what it needs, -1 for none."""
    by_result = np.argsort(result, kind="stable")
    made = result[by_result]
    at = np.minimum(np.searchsorted(made, need), max(0, len(made) - 1))
    return np.where((need >= 0) & (made[at] == need), by_result[at], -1) if len(made) else need


def _sequence(
    bounds: tuple[int, ...], pairs: frozenset[int], need: list[int], result: list[int]
) -> list[int]:
    """Return the numbers of the actions in execution order, as far as it goes.

    Device d has those from `bounds[d]` on; one in `pairs` runs with the one after it.
    """
    position = list(bounds[:-1])
    turn, next_turn = list(range(len(position))), list[int]()  # heaps: ready devices only
    ended, order = {-1}, list[int]()
    waiting: dict[int, list[int]] = {}
    while turn:
        device = heappop(turn)
        at, end = position[device], bounds[device + 1]
        while at < end:
            wanted = need[at]
            if at in pairs and wanted in ended:
                wanted = need[at + 1]
            if wanted not in ended:
                waiting.setdefault(wanted, []).append(device)
                break
            for one in (at, at + 1) if at in pairs else (at,):
                made = result[one]
                ended.add(made)
                for ready in waiting.pop(made, ()) if waiting else ():
                    heappush(turn if ready > device else next_turn, ready)
                order.append(one)
            at = order[-1] + 1
        position[device] = at
        if not turn:
            turn, next_turn = next_turn, turn
    return order


def _stuck(schedule: Schedule, position: list[int]) -> str:
    waiting = [
        f"device {device} at {actions[at]}"
        for device, (actions, at) in enumerate(zip(schedule.actions, position, strict=True))
        if at < len(actions)
    ]
    return f"the devices wait for each other: {'; '.join(waiting[:4])}."
