"""
Handcrafted zero-bubble schedules: the backward in two, the weight gradient deferred.

zb_h1   1F1B's forwards and backwards; at most i weight gradients wait on device i
zb_h2   min(2(p-i)-1, m) forwards first; at most 2i wait            Qi et al., ICLR 2024

With uniform stages and no delay they span m(F+B+W) + (p-1)(F+B-W), and (p-1)(F+B-2W): nothing
but work when F = B = W. An activation lives until its weight gradient is done, so that at most
p, and 2p-1, live on every device.
"""

from __future__ import annotations

from collections.abc import Iterator

from commsim.workload.schedules.actions import Action, Work

__all__ = ["zb_h1", "zb_h2"]


def zb_h1(device: int, devices: int, microbatches: int) -> Iterator[Action]:
    """Yield the actions of ZB-H1."""
    return _deferred(device, microbatches, ahead=devices - device, waiting=device)


def zb_h2(device: int, devices: int, microbatches: int) -> Iterator[Action]:
    """Yield the actions of ZB-H2."""
    return _deferred(device, microbatches, ahead=2 * (devices - device) - 1, waiting=2 * device)


def _deferred(device: int, microbatches: int, *, ahead: int, waiting: int) -> Iterator[Action]:
    """Yield `ahead` forwards, then backward and forward in turn, then backwards.

    A weight gradient follows as soon as more than `waiting` are due.
    """
    ahead, done = min(ahead, microbatches), 0
    yield from (Action(Work.F, device, k) for k in range(ahead))
    for k in range(microbatches):
        yield Action(Work.I, device, k)
        if k + 1 - done > waiting:
            yield Action(Work.W, device, done)
            done += 1
        if ahead + k < microbatches:
            yield Action(Work.F, device, ahead + k)
    yield from (Action(Work.W, device, k) for k in range(done, microbatches))
