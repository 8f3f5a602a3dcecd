"""
Schedules whose backward is one piece: the order of each device, as published.

p  devices    m  microbatches    v  virtual stages per device    i  device, 0..p-1

naive             one microbatch at a time goes down the stages and back up
gpipe             all m forwards, then all m backwards               Huang et al., 2019
1f1b              min(p-1-i, m) forwards, then one forward and one backward in turn, then the
                  backwards that are left         Fan et al. 2021, Narayanan et al. 2021
interleaved_1f1b  1f1b over m v virtual microbatches, p at a time through each virtual stage;
                  2(p-i-1) + (v-1)p forwards first            Narayanan et al., SC'21
breadth_first     all m forwards of a virtual stage before the next one; backwards likewise
                                                             Lamy-Poirier, MLSys 2023

With uniform stages gpipe and 1f1b span (m + p - 1) times one microbatch of one stage; the
looped ones m + (p-1)/v times; naive m p.
"""

from __future__ import annotations

from collections.abc import Iterator

from commsim.workload.schedules.actions import Action, Work

__all__ = ["breadth_first", "gpipe", "interleaved_1f1b", "naive", "one_f_one_b"]

_F, _B = Work.F, Work.B


def naive(device: int, devices: int, microbatches: int) -> Iterator[Action]:
    """Yield the actions of naive model parallelism."""
    for k in range(microbatches):
        yield Action(_F, device, k)
        yield Action(_B, device, k)


def gpipe(device: int, devices: int, microbatches: int) -> Iterator[Action]:
    """Yield all forwards, then all backwards."""
    yield from (Action(_F, device, k) for k in range(microbatches))
    yield from (Action(_B, device, k) for k in range(microbatches))


def one_f_one_b(device: int, devices: int, microbatches: int) -> Iterator[Action]:
    """Yield the actions of 1F1B."""
    ahead = min(devices - 1 - device, microbatches)
    yield from (Action(_F, device, k) for k in range(ahead))
    for k in range(microbatches - ahead):
        yield Action(_F, device, ahead + k)
        yield Action(_B, device, k)
    yield from (Action(_B, device, k) for k in range(microbatches - ahead, microbatches))


def interleaved_1f1b(
    device: int, devices: int, microbatches: int, virtual: int
) -> Iterator[Action]:
    """Yield the actions of Megatron's interleaved 1F1B; `microbatches` is a multiple of p."""
    total = microbatches * virtual
    ahead = min(total, 2 * (devices - device - 1) + (virtual - 1) * devices)

    def nth(work: Work, k: int) -> Action:
        chunk = k % (devices * virtual) // devices
        chunk = virtual - 1 - chunk if work == _B else chunk
        microbatch = k // (devices * virtual) * devices + k % devices
        return Action(work, chunk * devices + device, microbatch)

    yield from (nth(_F, k) for k in range(ahead))
    for k in range(total - ahead):
        yield nth(_F, ahead + k)
        yield nth(_B, k)
    yield from (nth(_B, k) for k in range(total - ahead, total))


def breadth_first(device: int, devices: int, microbatches: int, virtual: int) -> Iterator[Action]:
    """Yield all forwards of each virtual stage in turn, then the backwards in reverse."""
    for chunk in range(virtual):
        yield from (Action(_F, chunk * devices + device, k) for k in range(microbatches))
    for chunk in reversed(range(virtual)):
        yield from (Action(_B, chunk * devices + device, k) for k in range(microbatches))
