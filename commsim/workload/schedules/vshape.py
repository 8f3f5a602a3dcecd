"""
Schedules on a V: device i holds stages i and 2p-1-i, so that each microbatch turns round.

zb_v     warm-up, a steady state of one F, I, W of each stage in turn, and a tail; no bubble
         if F = B = W, memory p on every device             Qi et al., ICLR 2024, section 6
v_half   a building block repeated every F+B+W of a device, whose microbatches live half as long
         as in 1F1B: (p+2)//2 at most
v_min    the block of the least memory: (p+4)//3 at most       Qi et al., NeurIPS 2024

Memory is counted in microbatches on a whole device, two stages each. Given is the order of
forwards and input gradients; weight gradients fill the gaps under that cap (`fill`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from commsim.workload.schedules.actions import Action, Work, vee
from commsim.workload.schedules.fill import UNIT, Cap, Filled, fill
from commsim.workload.schedules.search import PATIENCE
from commsim.workload.schedules.times import StageTimes

__all__ = ["V_CAPS", "v_order", "v_schedule"]

_F, _I = Work.F, Work.I

V_CAPS: dict[str, Callable[[int], int]] = {
    "zb_v": lambda p: p,
    "v_half": lambda p: (p + 2) // 2,
    "v_min": lambda p: (p + 4) // 3,
}
"""The most live microbatches per device of each schedule, as published."""


def v_schedule(name: str, microbatches: int, times: StageTimes, *, kept: int) -> Filled:
    """Return the best placement of weight gradients into the order called `name`."""
    devices = len(times.hops)
    orders = [v_order(name, device, devices, microbatches) for device in range(devices)]
    cap = Cap(2 * V_CAPS[name](devices) * UNIT, kept)
    found = [fill(orders, vee(devices), times, cap=cap, patience=share) for share in PATIENCE]
    return min((one for one in found if one is not None), key=lambda one: one.span)


def v_order(name: str, device: int, devices: int, microbatches: int) -> list[Action]:
    """Return the forwards and input gradients of a device in order."""
    if name == "zb_v":
        whole = _zero_bubble(device, devices, max(microbatches, 2 * devices - 1))
        return [action for action in whole if action.microbatch < microbatches]
    block = (_half_block if name == "v_half" else _min_block)(device, devices)
    return _repeated(block, device, devices, microbatches)


def _zero_bubble(device: int, devices: int, microbatches: int) -> Iterator[Action]:
    """Yield ZB-V's order for at least 2p-1 microbatches."""
    down, up = device, 2 * devices - 1 - device
    next_of = {
        (work, stage): iter(range(microbatches)) for work in (_F, _I) for stage in (down, up)
    }

    def take(work: Work, stage: int) -> Iterator[Action]:
        for k in next_of[work, stage]:
            yield Action(work, stage, k)
            return

    for _ in range(2 * (devices - device) - 1):
        yield from take(_F, down)
    for _ in range(device):
        yield from take(_F, up)
        yield from take(_F, down)
    for _ in range(devices - device):
        yield from take(_F, up)
        yield from take(_I, up)
    for _ in range(microbatches):
        yield from take(_F, down)
        yield from take(_I, down)
        yield from take(_F, up)
        yield from take(_I, up)


def _half_block(device: int, devices: int) -> tuple[int, int, int, int]:
    """Return the slots of F down, F up, I up, I down in V-Half's building block."""
    i, p, shift = device, devices, 3 if devices % 2 == 0 else 0
    return 2 * i, 3 * p - i - 2, 3 * p + shift + 2 * i - 1, 6 * p + shift - i - 2


def _min_block(device: int, devices: int) -> tuple[int, int, int, int]:
    """Return the slots of V-Min's building block."""
    i, p, shift = device, devices, 2 if devices % 3 == 0 else 0
    return i, 2 * p - i - 1, 2 * p + shift + i, 4 * p + shift - i - 1


def _repeated(
    block: tuple[int, int, int, int], device: int, devices: int, microbatches: int
) -> list[Action]:
    """Return a block repeated once per microbatch, every six slots: two each of F, I and W."""
    down, up = device, 2 * devices - 1 - device
    kinds = ((_F, down), (_F, up), (_I, up), (_I, down))
    slots = [
        (slot + 6 * k, number, Action(work, stage, k))
        for k in range(microbatches)
        for number, (slot, (work, stage)) in enumerate(zip(block, kinds, strict=True))
    ]
    return [action for _, _, action in sorted(slots)]
