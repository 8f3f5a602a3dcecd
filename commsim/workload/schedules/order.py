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

from commsim.errors import ScenarioError
from commsim.workload.schedules.actions import Action, Schedule, Work

__all__ = ["ScheduleStep", "check_schedule", "execution_order"]

_FORWARD, _WEIGHT = Work.F, Work.W


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
    for _ in execution_order(schedule, where=where):
        pass


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
    results = _Results.of(schedule)
    ends: list[dict[int, tuple[int, int]]] = [{} for _ in results.needs]
    pairs, position = bool(schedule.paired), [0] * schedule.devices
    made: list[dict[int, tuple[int, int]]] = [{} for _ in ends] if pairs else ends
    waiting: dict[tuple[int, int], list[int]] = {}
    turn, next_turn = list(range(schedule.devices)), list[int]()  # heaps: ready devices only
    while turn:
        device = heappop(turn)
        actions, at = schedule.actions[device], position[device]
        while at < len(actions):
            last = at + schedule.is_paired(device, at) if pairs else at
            together = [results.around(action) for action in actions[at : last + 1]]
            missing = [(need, k) for _, need, k, _ in together if need >= 0 and k not in ends[need]]
            if missing:
                waiting.setdefault(missing[0], []).append(device)
                break
            waited = [ends[need][k] for _, need, k, _ in together if need >= 0]
            sources = tuple([end for end in waited if end[0] != device])
            end = (device, last)
            for result, need, k, feeds in together:
                if result >= 0:
                    ends[result][k], made[result][k] = end, (device, at)
                    for ready in waiting.pop((result, k), ()):
                        heappush(turn if ready > device else next_turn, ready)
                maker = made[need][k] if need >= 0 else None
                producer = None if maker is None or maker[0] == device else maker
                yield ScheduleStep(device, at, actions[at], sources, producer, feeds)
                sources = ()
                at += 1
            position[device] = at
        if not turn:
            turn, next_turn = next_turn, turn
    if any(at < len(row) for at, row in zip(position, schedule.actions, strict=True)):
        raise ScenarioError(f"{where or schedule.name}: {_stuck(schedule, position)}")


class _Results(msgspec.Struct, frozen=True):
    """What actions make and need, by number: forwards of stage s are 2 s + 1, backwards 2 s.

    `needs` is the result that must be there before, -1 for none; `feeds` the device that a
    result goes to, -1 if it stays.
    """

    needs: list[int]
    feeds: list[int]

    @classmethod
    def of(cls, schedule: Schedule) -> _Results:
        """Return those of a schedule's stages: forwards go down a pipe, backwards up."""
        home = schedule.home
        needs = [2 * stage + 1 for stage in range(schedule.stages) for _ in range(2)]
        needs[1::2] = [-1] * schedule.stages
        feeds = [-1] * len(needs)
        for pipe in schedule.pipes:
            for first, second in zip(pipe, pipe[1:], strict=False):
                needs[2 * second + 1], needs[2 * first] = 2 * first + 1, 2 * second
                if home[first] != home[second]:
                    feeds[2 * first + 1], feeds[2 * second] = home[second], home[first]
        return cls(needs, feeds)

    def around(self, action: Action) -> tuple[int, int, int, int]:
        """Return (result, result that it needs, microbatch, device that it feeds); -1 for none."""
        work, stage, k = action
        if work == _WEIGHT:
            return -1, 2 * stage, k, -1
        result = 2 * stage + (work == _FORWARD)
        return result, self.needs[result], k, self.feeds[result]


def _stuck(schedule: Schedule, position: list[int]) -> str:
    waiting = [
        f"device {device} at {actions[at]}"
        for device, (actions, at) in enumerate(zip(schedule.actions, position, strict=True))
        if at < len(actions)
    ]
    return f"the devices wait for each other: {'; '.join(waiting[:4])}."
