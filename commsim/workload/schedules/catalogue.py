"""The schedules by name: what each needs, and how it is made."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from commsim.errors import ScenarioError, did_you_mean
from commsim.workload.schedules.actions import Action, Schedule, loop, vee
from commsim.workload.schedules.classic import (
    breadth_first,
    gpipe,
    interleaved_1f1b,
    naive,
    one_f_one_b,
)
from commsim.workload.schedules.dualpipe import dualpipe, dualpipev
from commsim.workload.schedules.fill import UNIT, Cap
from commsim.workload.schedules.search import search
from commsim.workload.schedules.times import StageTimes, equal_times
from commsim.workload.schedules.vshape import V_CAPS, v_schedule
from commsim.workload.schedules.zero_bubble import zb_h1, zb_h2

__all__ = ["SCHEDULES", "check_name", "home_of", "is_laid_out", "make_schedule"]

PLAIN: dict[str, Callable[[int, int, int], Iterator[Action]]] = {
    "naive": naive,
    "gpipe": gpipe,
    "1f1b": one_f_one_b,
    "zb_h1": zb_h1,
    "zb_h2": zb_h2,
}
LOOPED: dict[str, Callable[[int, int, int, int], Iterator[Action]]] = {
    "interleaved_1f1b": interleaved_1f1b,
    "breadth_first": breadth_first,
}
SEARCHED = {"zb_1p": 1, "zb_2p": 2}
"""The cap of live microbatches, in multiples of p."""
V_SHAPED = (*V_CAPS, "dualpipev")

SCHEDULES = (
    "naive", "gpipe", "1f1b", "interleaved_1f1b", "breadth_first", "zb_h1", "zb_h2", "zb_1p",
    "zb_2p", "zb_v", "v_half", "v_min", "dualpipe", "dualpipev",
)  # fmt: skip

_MOST_CELLS = 1_000_000  # (stage, microbatch) pairs: some 2 GiB of graph


def check_name(name: str, *, where: str) -> None:
    """Raise ScenarioError for a schedule that is neither known nor a CSV file."""
    if name not in SCHEDULES and not name.endswith(".csv"):
        raise ScenarioError(
            f"{where}: no schedule {name!r}.{did_you_mean(name, SCHEDULES)} Available:"
            f" {', '.join(SCHEDULES)}, or a file of torch.distributed.pipelining actions (.csv)."
        )


def is_laid_out(name: str) -> bool:
    """Return whether the order of a schedule depends on the times of its stages."""
    return name in SEARCHED or name in V_CAPS


def home_of(name: str, devices: int, virtual: int, *, where: str) -> tuple[int, ...]:
    """Return the device of each stage of the schedule called `name`.

    Raises:
        ScenarioError: an unknown name, or virtual stages that it does not have.
    """
    check_name(name, where=where)
    if name == "interleaved_1f1b" and virtual == 1:
        raise ScenarioError(f"{where}: {name} needs virtual_stages above 1. With one it is 1f1b.")
    if name in LOOPED:
        return loop(devices, virtual)
    least = 2 if name in V_SHAPED else 1
    if virtual not in (1, least):
        raise ScenarioError(
            f"{where}: {name} has {least} stage{'s' * (least > 1)} per device, but virtual_stages"
            f" is {virtual}. Leave it out, or use interleaved_1f1b or breadth_first."
        )
    if name == "dualpipe":
        return (*range(devices), *reversed(range(devices)))
    return vee(devices) if name in V_SHAPED else loop(devices)


def make_schedule(
    name: str,
    devices: int,
    microbatches: int,
    *,
    where: str,
    virtual: int = 1,
    times: StageTimes | None = None,
    kept: float = 1.0,
) -> Schedule:
    """Return the schedule called `name` for `devices` devices.

    `times` are what the searched and the V-shaped ones are laid out for, F = B = W = 1 unless
    given; `kept` is the share of an activation that lives on from input to weight gradient.

    Raises:
        ScenarioError: an unknown name, microbatches or devices that the schedule cannot use,
            or more work than fits.
    """
    home = home_of(name, devices, virtual, where=where)
    if len(home) * microbatches > _MOST_CELLS:
        raise ScenarioError(
            f"{where}: {len(home)} stages x {microbatches} microbatches are more than commsim"
            f" simulates ({_MOST_CELLS:,} pairs). Take fewer microbatches: the steady state"
            " repeats."
        )
    _check_counts(name, devices, microbatches, where)
    times = times or equal_times(devices, len(home))
    pipe = (tuple(range(len(home))),)
    if name in PLAIN:
        rows = (tuple(PLAIN[name](i, devices, microbatches)) for i in range(devices))
        return Schedule(name, tuple(rows), home, pipe)
    if name in LOOPED:
        rows = (tuple(LOOPED[name](i, devices, microbatches, virtual)) for i in range(devices))
        return Schedule(name, tuple(rows), home, pipe)
    units = round(kept * UNIT)
    if name in SEARCHED:
        cap = Cap(SEARCHED[name] * devices * UNIT, units)
        return Schedule(name, search(microbatches, times, cap=cap).actions, home, pipe)
    if name in V_CAPS:
        return Schedule(name, v_schedule(name, microbatches, times, kept=units).actions, home, pipe)
    return _dual(name, devices, microbatches)


def _dual(name: str, devices: int, microbatches: int) -> Schedule:
    order = dualpipe if name == "dualpipe" else dualpipev
    made = [order(device, devices, microbatches) for device in range(devices)]
    actions, paired = tuple(one for one, _ in made), tuple(pairs for _, pairs in made)
    if name == "dualpipev":
        return Schedule(name, actions, vee(devices), (tuple(range(2 * devices)),), paired)
    there, back = tuple(range(devices)), tuple(range(devices, 2 * devices))
    return Schedule(name, actions, (*there, *reversed(there)), (there, back), paired)


def _check_counts(name: str, devices: int, microbatches: int, where: str) -> None:
    if name == "interleaved_1f1b" and microbatches % devices:
        raise ScenarioError(
            f"{where}: {name} takes microbatches {devices} at a time: {microbatches} microbatches"
            f" do not divide by {devices} stages. Give a multiple of {devices}."
        )
    if name in ("dualpipe", "dualpipev") and microbatches < 2 * devices:
        raise ScenarioError(
            f"{where}: {name} needs at least 2 x {devices} devices = {2 * devices} microbatches,"
            f" not {microbatches}."
        )
    if name == "dualpipe" and (devices % 2 or microbatches % 2):
        raise ScenarioError(
            f"{where}: {name} runs from both ends: {devices} devices and {microbatches}"
            " microbatches must both be even."
        )
