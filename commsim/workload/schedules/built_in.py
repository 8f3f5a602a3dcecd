"""The schedules that come with commsim, registered by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from commsim.workload.schedules.actions import Action, Schedule, loop, vee
from commsim.workload.schedules.catalogue import SCHEDULES, ScheduleAsk, ScheduleKind, by_order
from commsim.workload.schedules.classic import (
    breadth_first,
    gpipe,
    interleaved_1f1b,
    naive,
    one_f_one_b,
)
from commsim.workload.schedules.dualpipe import dualpipe, dualpipev
from commsim.workload.schedules.fill import UNIT, Cap, Filled
from commsim.workload.schedules.search import search
from commsim.workload.schedules.vshape import V_CAPS, v_schedule
from commsim.workload.schedules.zero_bubble import zb_h1, zb_h2

__all__: list[str] = []

_V_TITLES = {"zb_v": "ZB-V", "v_half": "V-Half", "v_min": "V-Min"}

Plain = Callable[[int, int, int], Iterator[Action]]
Looped = Callable[[int, int, int, int], Iterator[Action]]


def _plain(name: str, title: str, order: Plain) -> ScheduleKind:
    """Return a schedule of one stage per device."""

    def of_device(device: int, ask: ScheduleAsk) -> Iterator[Action]:
        return order(device, ask.devices, ask.microbatches)

    return ScheduleKind(name, title, lambda ask: by_order(name, of_device, ask))


def _looped(name: str, title: str, order: Looped) -> ScheduleKind:
    """Return a schedule whose stages go round the devices as often as `virtual_stages` says."""

    def of_device(device: int, ask: ScheduleAsk) -> Iterator[Action]:
        return order(device, ask.devices, ask.microbatches, ask.virtual)

    interleaved = name == "interleaved_1f1b"
    return ScheduleKind(
        name,
        title,
        lambda ask: by_order(name, of_device, ask),
        stages=None,
        needs=_rounds_of_devices if interleaved else _nothing,
        least_virtual=1 + interleaved,
    )


def _searched(name: str, title: str, live: int) -> ScheduleKind:
    """Return a schedule that is searched within a cap of live microbatches: `live` x devices."""

    def make(ask: ScheduleAsk) -> Schedule:
        cap = Cap(live * ask.devices * UNIT, round(ask.kept * UNIT))
        return _laid(name, search(ask.microbatches, ask.times, cap=cap), loop(ask.devices))

    return ScheduleKind(name, title, make, is_laid_out=True)


def _v_shaped(name: str) -> ScheduleKind:
    """Return a schedule whose stages go down the devices and back up."""

    def make(ask: ScheduleAsk) -> Schedule:
        found = v_schedule(name, ask.microbatches, ask.times, kept=round(ask.kept * UNIT))
        return _laid(name, found, vee(ask.devices))

    return ScheduleKind(name, _V_TITLES[name], make, stages=2, home=_vee, is_laid_out=True)


def _laid(name: str, found: Filled, home: tuple[int, ...]) -> Schedule:
    return Schedule(name, found.actions, home, (tuple(range(len(home))),))


def _dualpipe(ask: ScheduleAsk) -> Schedule:
    devices = ask.devices
    made = [dualpipe(device, devices, ask.microbatches) for device in range(devices)]
    pipes = (tuple(range(devices)), tuple(range(devices, 2 * devices)))
    actions, paired = tuple(one for one, _ in made), tuple(pairs for _, pairs in made)
    return Schedule("dualpipe", actions, vee(devices), pipes, paired)


def _dualpipev(ask: ScheduleAsk) -> Schedule:
    devices = ask.devices
    made = [dualpipev(device, devices, ask.microbatches) for device in range(devices)]
    actions, paired = tuple(one for one, _ in made), tuple(pairs for _, pairs in made)
    return Schedule("dualpipev", actions, vee(devices), (tuple(range(2 * devices)),), paired)


def _vee(devices: int, stages: int) -> tuple[int, ...]:
    return vee(devices)


def _nothing(devices: int, microbatches: int) -> str:
    return ""


def _rounds_of_devices(devices: int, microbatches: int) -> str:
    if microbatches % devices == 0:
        return ""
    return (
        f"takes microbatches {devices} at a time: {microbatches} microbatches do not divide by"
        f" {devices} stages. Give a multiple of {devices}."
    )


def _twice_the_devices(devices: int, microbatches: int) -> str:
    if microbatches >= 2 * devices:
        return ""
    return f"needs at least 2 x {devices} devices = {2 * devices} microbatches, not {microbatches}."


def _even_halves(devices: int, microbatches: int) -> str:
    few = _twice_the_devices(devices, microbatches)
    if few or not (devices % 2 or microbatches % 2):
        return few
    return (
        f"runs from both ends: {devices} devices and {microbatches} microbatches must both be even."
    )


for _kind in (
    _plain("naive", "Naive model parallelism", naive),
    _plain("gpipe", "GPipe", gpipe),
    _plain("1f1b", "1F1B", one_f_one_b),
    _looped("interleaved_1f1b", "Interleaved 1F1B", interleaved_1f1b),
    _looped("breadth_first", "Breadth-first", breadth_first),
    _plain("zb_h1", "ZB-H1", zb_h1),
    _plain("zb_h2", "ZB-H2", zb_h2),
    _searched("zb_1p", "ZB-1p", 1),
    _searched("zb_2p", "ZB-2p", 2),
    *(_v_shaped(name) for name in V_CAPS),
    ScheduleKind("dualpipe", "DualPipe", _dualpipe, 2, _vee, _even_halves),
    ScheduleKind("dualpipev", "DualPipeV", _dualpipev, 2, _vee, _twice_the_devices),
):
    SCHEDULES.add(_kind.name, _kind)
