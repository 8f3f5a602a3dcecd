"""
Pipeline schedules as plain data: for each device, the actions it performs, in order.

p  devices    m  microbatches    i  device, 0..p-1

naive   one microbatch at a time goes down the stages and back up
gpipe   all m forwards, then all m backwards                        Huang et al., 2019
1f1b    min(p-1-i, m) forwards, then one forward and one backward in turn, then the backwards
        that are left                                Fan et al., Narayanan et al., 2021

With uniform stages gpipe and 1f1b span (m + p - 1) times one microbatch of one stage: bubble
(p-1)/(m+p-1). Naive: (p-1)/p. A schedule says nothing about times; pipeline and training
workloads turn the same one into a graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from commsim.errors import ScenarioError, did_you_mean
from commsim.graph import Phase

__all__ = ["SCHEDULES", "Action", "Schedule", "Step", "execution_order", "make_schedule"]

_PLANNED = (
    "interleaved_1f1b", "breadth_first", "zb_h1", "zb_h2", "zb_1p", "zb_2p", "zb_v",
    "v_half", "v_min", "dualpipe", "dualpipev",
)  # fmt: skip
_F, _B, _W = Phase.FORWARD, Phase.BACKWARD, Phase.WEIGHT


class Action(NamedTuple):
    """One phase of one microbatch on one of a device's chunks of the model."""

    phase: Phase
    microbatch: int
    chunk: int = 0


@dataclass(frozen=True, slots=True)
class Schedule:
    """The actions of each device in order, and which stage each of its chunks is.

    `placement[i][c]` is the stage that chunk c of device i holds. A schedule without WEIGHT
    actions is *fused*: its backward includes the weight gradient.
    """

    name: str
    actions: tuple[tuple[Action, ...], ...]
    placement: tuple[tuple[int, ...], ...]

    @property
    def devices(self) -> int:
        """The number of devices, p."""
        return len(self.actions)

    @property
    def stages(self) -> int:
        """The number of stages over all devices and chunks."""
        return 1 + max(stage for chunks in self.placement for stage in chunks)

    @property
    def fused(self) -> bool:
        """Whether the backward actions include the weight gradients."""
        return not any(a.phase == _W for actions in self.actions for a in actions)


class Step(NamedTuple):
    """An action in execution order; `producer` is (device, position) of what feeds it, or None.

    `position` counts the actions of its device.
    """

    device: int
    position: int
    action: Action
    stage: int
    producer: tuple[int, int] | None


_MOST_CELLS = 1_000_000  # (stage, microbatch) pairs: some 2 GiB of graph


def make_schedule(name: str, devices: int, microbatches: int, *, where: str) -> Schedule:
    """Return the schedule called `name` for `devices` stages.

    Raises:
        ScenarioError: an unknown name, one that is not built yet, or more work than fits.
    """
    if devices * microbatches > _MOST_CELLS:
        raise ScenarioError(
            f"{where}: {devices} stages x {microbatches} microbatches are more than commsim"
            f" simulates ({_MOST_CELLS:,} pairs). Take fewer microbatches: the steady state"
            " repeats."
        )
    if name in SCHEDULES:
        actions = tuple(
            tuple(SCHEDULES[name](device, devices, microbatches)) for device in range(devices)
        )
        return Schedule(name, actions, tuple((device,) for device in range(devices)))
    available = ", ".join(SCHEDULES)
    if name in _PLANNED:
        raise ScenarioError(f"{where}: {name!r} is not built yet; available: {available}.")
    hint = did_you_mean(name, (*SCHEDULES, *_PLANNED))
    raise ScenarioError(f"{where}: no schedule {name!r}.{hint} Available: {available}.")


def execution_order(schedule: Schedule) -> Iterator[Step]:
    """Yield every action after what it needs, devices in turn, each device in its own order.

    Forward of a stage needs the forward of the stage before; backward needs the backward of
    the stage after, and on the last stage its own forward.

    Raises:
        ScenarioError: the order of some device waits for itself.
    """
    done: dict[tuple[Phase, int, int], tuple[int, int]] = {}
    position = [0] * schedule.devices
    left = sum(len(actions) for actions in schedule.actions)
    while left:
        before = left
        for device, actions in enumerate(schedule.actions):
            while position[device] < len(actions):
                action = actions[position[device]]
                stage = schedule.placement[device][action.chunk]
                needs = _needs(action, stage, schedule.stages)
                if needs is not None and needs not in done:
                    break
                at = position[device]
                done[action.phase, action.microbatch, stage] = (device, at)
                yield Step(device, at, action, stage, done[needs] if needs else None)
                position[device] += 1
                left -= 1
        if left == before:
            raise ScenarioError(f"schedule {schedule.name!r}: {_stuck(schedule, position)}")


def _needs(action: Action, stage: int, stages: int) -> tuple[Phase, int, int] | None:
    if action.phase == _F:
        return (_F, action.microbatch, stage - 1) if stage > 0 else None
    if action.phase == _B and stage < stages - 1:
        return (_B, action.microbatch, stage + 1)
    return (_F if action.phase == _B else _B, action.microbatch, stage)


def _stuck(schedule: Schedule, position: list[int]) -> str:
    waiting = [
        f"device {device} at {_say(actions[at])}"
        for device, (actions, at) in enumerate(zip(schedule.actions, position, strict=True))
        if at < len(actions)
    ]
    return f"the devices wait for each other: {'; '.join(waiting[:4])}."


def _say(action: Action) -> str:
    return f"{action.phase.name.lower()} of microbatch {action.microbatch}"


def _naive(device: int, devices: int, microbatches: int) -> Iterator[Action]:
    for k in range(microbatches):
        yield Action(_F, k)
        yield Action(_B, k)


def _gpipe(device: int, devices: int, microbatches: int) -> Iterator[Action]:
    yield from (Action(_F, k) for k in range(microbatches))
    yield from (Action(_B, k) for k in range(microbatches))


def _1f1b(device: int, devices: int, microbatches: int) -> Iterator[Action]:
    ahead = min(devices - 1 - device, microbatches)
    yield from (Action(_F, k) for k in range(ahead))
    for k in range(microbatches - ahead):
        yield Action(_F, ahead + k)
        yield Action(_B, k)
    yield from (Action(_B, k) for k in range(microbatches - ahead, microbatches))


SCHEDULES: dict[str, Callable[[int, int, int], Iterator[Action]]] = {
    "naive": _naive,
    "gpipe": _gpipe,
    "1f1b": _1f1b,
}
