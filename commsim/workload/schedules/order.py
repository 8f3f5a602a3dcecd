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

from commsim.errors import ScenarioError
from commsim.workload.schedules.actions import Action, Schedule, Work

__all__ = ["ScheduleStep", "check_schedule", "execution_order"]


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
    before, after = _neighbours(schedule)
    done: dict[tuple[bool, int, int], tuple[int, int]] = {}
    made: dict[tuple[bool, int, int], tuple[int, int]] = {}
    position = [0] * schedule.devices
    waiting: dict[tuple[bool, int, int], list[int]] = {}
    turn, next_turn = list(range(schedule.devices)), list[int]()  # heaps: ready devices only
    while turn:
        device = heappop(turn)
        actions = schedule.actions[device]
        while position[device] < len(actions):
            at = position[device]
            together = actions[at : at + 1 + schedule.is_paired(device, at)]
            needs = [_needs(action, before, after) for action in together]
            missing = next((need for need in needs if need is not None and need not in done), None)
            if missing is not None:
                waiting.setdefault(missing, []).append(device)
                break
            sources = _elsewhere(device, (done[need] for need in needs if need is not None))
            end = (device, at + len(together) - 1)
            for offset, (action, need) in enumerate(zip(together, needs, strict=True)):
                if action.work != Work.W:
                    key = (action.work == Work.F, action.stage, action.microbatch)
                    done[key], made[key] = end, (device, at + offset)
                    for ready in waiting.pop(key, ()):
                        heappush(turn if ready > device else next_turn, ready)
                maker = made[need] if need is not None else None
                yield ScheduleStep(
                    device,
                    at + offset,
                    action,
                    () if offset else sources,
                    maker if maker is not None and maker[0] != device else None,
                    _feeds(action, device, schedule, before, after),
                )
            position[device] += len(together)
        if not turn:
            turn, next_turn = next_turn, turn
    if any(at < len(row) for at, row in zip(position, schedule.actions, strict=True)):
        raise ScenarioError(f"{where or schedule.name}: {_stuck(schedule, position)}")


def _neighbours(schedule: Schedule) -> tuple[list[int], list[int]]:
    """Return the stage before and after each stage, -1 at the ends of its pipe."""
    before, after = [-1] * schedule.stages, [-1] * schedule.stages
    for pipe in schedule.pipes:
        for first, second in zip(pipe, pipe[1:], strict=False):
            before[second], after[first] = first, second
    return before, after


def _needs(action: Action, before: list[int], after: list[int]) -> tuple[bool, int, int] | None:
    """Return (is a forward, stage, microbatch) of the action that must have ended."""
    work, stage, k = action
    if work == Work.F:
        return (True, before[stage], k) if before[stage] >= 0 else None
    if work == Work.W:
        return (False, stage, k)
    return (False, after[stage], k) if after[stage] >= 0 else (True, stage, k)


def _elsewhere(device: int, ends: Iterator[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    return tuple(end for end in ends if end[0] != device)


def _feeds(
    action: Action, device: int, schedule: Schedule, before: list[int], after: list[int]
) -> int:
    if action.work == Work.W:
        return -1
    target = (after if action.work == Work.F else before)[action.stage]
    return -1 if target < 0 or schedule.home[target] == device else schedule.home[target]


def _stuck(schedule: Schedule, position: list[int]) -> str:
    waiting = [
        f"device {device} at {actions[at]}"
        for device, (actions, at) in enumerate(zip(schedule.actions, position, strict=True))
        if at < len(actions)
    ]
    return f"the devices wait for each other: {'; '.join(waiting[:4])}."
