"""
Pipeline schedules as plain data: for each device, the actions it performs, in order.

An action is one piece of work of one microbatch on one stage, written as
torch.distributed.pipelining writes it, stage first: "2F0", "2B0" (whole backward), "2I0"
(input gradient), "2W0" (weight gradient).

A *stage* is a piece of the model on a device; with several pieces per device they are the
virtual stages. A *pipe* is the chain of stages that a microbatch passes. Most schedules have
one; DualPipe has two, one from each end, so that each part of the model stands twice.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

import msgspec

from commsim.graph import Phase

__all__ = ["PHASE", "Action", "Pair", "Schedule", "Work", "loop", "vee"]


class Work(StrEnum):
    """What an action does, by the letters of torch.distributed.pipelining."""

    F = "F"
    B = "B"
    I = "I"  # noqa: E741  (torch's letter for the input gradient)
    W = "W"


PHASE = {
    Work.F: Phase.FORWARD,
    Work.B: Phase.BACKWARD,
    Work.I: Phase.BACKWARD,
    Work.W: Phase.WEIGHT,
}


class Action(NamedTuple):
    """One piece of work of one microbatch on one stage."""

    work: Work
    stage: int
    microbatch: int

    def __str__(self) -> str:
        return f"{self.stage}{self.work}{self.microbatch}"


class Pair(NamedTuple):
    """A forward and a backward that run as one, so that each hides the other's communication.

    Both inputs must be there before either starts; both results come when both have ended.
    """

    forward: Action
    backward: Action

    def __str__(self) -> str:
        return f"({self.forward};{self.backward})OVERLAP_F_B"


class Schedule(msgspec.Struct, frozen=True):
    """The actions of each device in order; `home[s]` is the device of stage s.

    `pipes` are chains of stages, all of one length; the place of a stage in its pipe is the
    part of the model that it holds. `paired[d]` are the positions in `actions[d]` of forwards
    that run as one with the action after them.
    """

    name: str
    actions: tuple[tuple[Action, ...], ...]
    home: tuple[int, ...]
    pipes: tuple[tuple[int, ...], ...]
    paired: tuple[frozenset[int], ...] = ()

    @property
    def devices(self) -> int:
        """The number of devices, p."""
        return len(self.actions)

    @property
    def stages(self) -> int:
        """The number of stages over all devices, virtual ones and copies counted."""
        return len(self.home)

    @property
    def parts(self) -> int:
        """The number of pieces that the model is cut into."""
        return len(self.pipes[0])

    def part(self, stage: int) -> int:
        """Return which piece of the model a stage holds."""
        return next(pipe.index(stage) for pipe in self.pipes if stage in pipe)

    def held(self, device: int) -> tuple[int, ...]:
        """Return the stages of a device, in order."""
        return tuple(stage for stage, home in enumerate(self.home) if home == device)

    def is_paired(self, device: int, position: int) -> bool:
        """Return whether the action runs as one with the one after it."""
        return bool(self.paired) and position in self.paired[device]

    @property
    def splits_backward(self) -> bool:
        """Whether some weight gradient is an action of its own."""
        return any(action.work == Work.W for row in self.actions for action in row)


def loop(devices: int, virtual: int = 1) -> tuple[int, ...]:
    """Return the homes of stages that go round the devices: stage s on device s mod p."""
    return tuple(range(devices)) * virtual


def vee(devices: int) -> tuple[int, ...]:
    """Return the homes of stages that go down the devices and back up: a V."""
    return (*range(devices), *reversed(range(devices)))
