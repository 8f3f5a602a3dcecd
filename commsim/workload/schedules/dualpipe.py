"""
DualPipe and DualPipeV: forwards of one direction run as one with backwards of the other.

dualpipe    p devices, p even, m even and at least 2p. Stages 0..p-1 are the pipe of the first
            half of the microbatches, stages p..2p-1 a copy of it for the others, entered from
            the far end: device i holds part i and part p-1-i.        DeepSeek-V3 report, 2024
dualpipev   the same folded into a V: device i holds stages i and 2p-1-i of one pipe;
            m at least 2p                                              deepseek-ai/DualPipe

Both consist of eight steps; n is a device's number counted from its end, h the devices from
there to the turning point, and a, b the stages by which microbatches arrive early and late:

    1  2(h-n-1)  Fa                        5  h-n-1  Bb, (Fb, Ba) as one
    2  n+1       Fa, Fb                    6  n+1    Bb, Ba; the weight gradients of the second
    3  h-n-1     Ib, W, Fb                           half are deferred
    4  rest      (Fa, Bb) and (Fb, Ba)     7  h-n-1  W, Ia
                                           8  n+1    W

Bubble (h-1)(FB + B - 3W) where FB is the time of a pair, B that of a whole backward, and F as
long as the input gradient.
"""

from __future__ import annotations

from collections import deque

from commsim.workload.schedules.actions import Action, Work

__all__ = ["dualpipe", "dualpipev"]

Order = tuple[tuple[Action, ...], frozenset[int]]


def dualpipe(device: int, devices: int, microbatches: int) -> Order:
    """Return the actions of a device of DualPipe, and which forwards begin a pair."""
    half = microbatches // 2
    ends = (device, 2 * devices - 1 - device)
    near, far = ends if device < devices // 2 else ends[::-1]
    first = {stage: 0 if stage < devices else half for stage in ends}
    number = min(device, devices - 1 - device)
    return _DualDevice(near, far, first).run(number, devices // 2, half - devices)


def dualpipev(device: int, devices: int, microbatches: int) -> Order:
    """Return the actions of a device of DualPipeV, and which forwards begin a pair."""
    down, up = device, 2 * devices - 1 - device
    return _DualDevice(down, up, {down: 0, up: 0}).run(device, devices, microbatches - 2 * devices)


class _DualDevice:
    """Writes the actions of one device; `near` and `far` are the stages a and b."""

    def __init__(self, near: int, far: int, first: dict[int, int]) -> None:
        self.near, self.far = near, far
        self.next = {(work, stage): k for stage, k in first.items() for work in (Work.F, Work.B)}
        self.due: deque[Action] = deque()
        self.actions: list[Action] = []
        self.paired: list[int] = []

    def run(self, number: int, devices: int, surplus: int) -> Order:
        """Return the eight steps of a device, for `surplus` microbatches beyond the least."""
        near, far, beyond = self.near, self.far, devices - number - 1
        for _ in range(2 * beyond):
            self.forward(near)
        for _ in range(number + 1):
            self.forward(near)
            self.forward(far)
        for _ in range(beyond):
            self.backward(far, split=True)
            self.weight()
            self.forward(far)
        for turn in range(surplus + number + 1):
            self.pair(near, far, apart=turn == 0 and beyond == 0)
            self.pair(far, near)
        for _ in range(beyond):
            self.backward(far)
            self.pair(far, near)
        self._drain(number)
        for _ in range(beyond):
            self.weight()
            self.backward(near, split=True)
        while self.due:
            self.weight()
        return tuple(self.actions), frozenset(self.paired)

    def _drain(self, number: int) -> None:
        """Write step 6; from its middle on, every weight gradient is deferred."""
        middle = number + 1
        for turn in range(2 * middle):
            self.backward(self.near if turn % 2 else self.far, split=turn >= middle)

    def forward(self, stage: int) -> None:
        self.actions.append(Action(Work.F, stage, self._take(Work.F, stage)))

    def backward(self, stage: int, *, split: bool = False) -> None:
        k = self._take(Work.B, stage)
        self.actions.append(Action(Work.I if split else Work.B, stage, k))
        if split:
            self.due.append(Action(Work.W, stage, k))

    def weight(self) -> None:
        self.actions.append(self.due.popleft())

    def pair(self, forward: int, backward: int, *, apart: bool = False) -> None:
        """Write a forward and a backward as one; the first at the turning point are apart."""
        if not apart:
            self.paired.append(len(self.actions))
        self.forward(forward)
        self.backward(backward)

    def _take(self, work: Work, stage: int) -> int:
        k = self.next[work, stage]
        self.next[work, stage] = k + 1
        return k
