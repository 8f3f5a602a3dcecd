"""What advise tells of a layout, of runs and bounds made by hand; which layouts there are."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from commsim.metrics import CollectiveMetrics
from commsim.models import MemoryUse
from commsim.study.advise.judge import Judged
from commsim.study.advise.kinds import best_of_kinds
from commsim.study.advise.layouts import (
    Candidate,
    Degrees,
    degrees_of,
    relaxed,
    shapes,
    shardings,
    variants_of,
)
from commsim.study.advise.reasons import parts_of, reasons, waits_for

GIB = 2**30
ONE = Degrees(1, 1, 1, 1, 1)


def layout(
    shard: str = "ddp", micro: int = 2, recompute: Any = "none", **degrees: int
) -> Candidate:
    return Candidate(ONE._replace(**degrees), "1f1b", 1, micro, recompute, shard)


def judged(one: Candidate, need: int = 40, floor: float = 1.0, *, capacity: int = 80) -> Judged:
    """A layout that needs so many GiB, 2 of them outside of the allocator."""
    use = MemoryUse((need - 2) * GIB, 0, 0, 0, runtime=2 * GIB)
    return Judged(one, use, 0, capacity * GIB, floor)


class Found:
    """What a search found: steps of runs, floors of what was not run, what needs how much."""

    def __init__(
        self, steps: dict[Candidate, float], floors: Any = (), judged: tuple[Judged, ...] = (),
        batch: int = 64,
    ) -> None:  # fmt: skip
        self.ran = {one: ran(one, step) for one, step in steps.items()}
        self._floors = dict(floors)
        self.judged = {one.candidate: one for one in judged}
        section = SimpleNamespace(batch=SimpleNamespace(global_=batch))
        self.judge = SimpleNamespace(
            section=lambda _one: section, shardings=lambda _: ["ddp", "zero-1", "zero-2", "fsdp"]
        )

    def known(self, one: Candidate) -> Judged | None:
        return self.judged.get(one)

    def floor(self, allowed: Callable[[Candidate], bool]) -> float:
        return min((s for one, s in self._floors.items() if allowed(one)), default=float("inf"))

    def least(self, allowed: Callable[[Candidate], bool]) -> Judged | None:
        found = [one for one in self.judged.values() if allowed(one.candidate)]
        return min(found, key=lambda one: one.use.total, default=None)


def ran(one: Candidate, step: float) -> Any:
    return SimpleNamespace(candidate=one, metrics=SimpleNamespace(step_time_s=step))


def told(winner: Candidate, found: Found) -> list[str]:
    found.judged.setdefault(winner, judged(winner))
    return reasons(ran(winner, 10.0), found)  # type: ignore[arg-type]


def test_a_layout_in_one_line() -> None:
    assert layout(micro=1).name == "micro 1"
    assert layout(dp=8).name == "dp 8 · ddp · micro 2"
    assert layout(cp=2).name == "cp 2 · ddp · micro 2"
    assert layout(tp=2).name == "tp 2 · micro 2"
    assert layout("zero-1", tp=2, pp=4).name == "tp 2 · pp 4 · zero-1 · 1f1b · micro 2"
    deep = layout(pp=4)._replace(virtual=2, overlap="ring", recompute=("mlp", "moe"))
    assert deep.name == "pp 4 · tp overlap ring · 1f1b v2 · micro 2 · recompute mlp+moe"


def test_all_degrees_of_a_cluster() -> None:
    """8 is 2 * 2 * 2, dealt to four axes: C(6, 3) ways; with cp of at most 2, 10 and 6 of them."""
    assert len(list(degrees_of(8, experts=False, seq=2048))) == 20
    assert len(list(degrees_of(8, experts=False, seq=512))) == 16
    assert len(list(degrees_of(8, experts=False, seq=511))) == 10
    assert list(degrees_of(2, experts=True, seq=512)) == [
        Degrees(2, 1, 1, 1, 1), Degrees(2, 1, 1, 1, 2), Degrees(1, 1, 1, 2, 1),
        Degrees(1, 1, 1, 2, 2), Degrees(1, 1, 2, 1, 1), Degrees(1, 2, 1, 1, 1),
    ]  # fmt: skip


def test_schedules_and_microbatches_that_divide_the_batch() -> None:
    def found(batch: int, **degrees: int) -> list[tuple[str, int, int]]:
        section: Any = SimpleNamespace(batch=SimpleNamespace(global_=batch))
        made = shapes(ONE._replace(**degrees), section)
        return [(one.schedule, one.virtual, one.micro) for one in made]

    assert found(12, dp=2) == [("1f1b", 1, 1), ("1f1b", 1, 2)]
    assert found(9, dp=2) == found(1, dp=2) == []
    assert [micro for _, _, micro in found(128)] == [1, 2, 4, 8, 16, 32, 64]
    flat = ["gpipe", "1f1b", "zb_h1"]
    deep = [("interleaved_1f1b", 2), ("interleaved_1f1b", 4)]  # of whole rounds of microbatches
    assert found(8, pp=4) == [
        (*schedule, micro)
        for micro in (1, 2, 4, 8)
        for schedule in [*((name, 1) for name in flat), *(deep if micro < 4 else ())]
    ]


def test_a_relaxed_layout_stands_for_its_variants() -> None:
    for one, overlaps in ((layout(dp=2), ["none"]), (layout(tp=2), ["none", "weight", "ring"])):
        loose = relaxed(one._replace(recompute="full"))
        assert (loose.recompute, loose.overlap) == ("none", "full" if len(overlaps) > 1 else "none")
        variants = list(variants_of(loose, ("none", "full")))
        assert [(each.recompute, each.overlap) for each in variants] == [
            (recompute, overlap) for recompute in ("none", "full") for overlap in overlaps
        ]


@pytest.mark.parametrize(
    ("degrees", "hsdp"),
    [
        ({"dp": 16}, "hsdp-8"), ({"dp": 8}, ""), ({"dp": 12}, ""), ({"dp": 16, "tp": 2}, "hsdp-4"),
        ({"dp": 16, "tp": 4}, "hsdp-2"),
        ({"dp": 16, "tp": 8}, ""), ({"dp": 16, "tp": 16}, ""), ({"dp": 16, "ep": 2}, ""),
        ({"dp": 8, "cp": 2}, "hsdp-8"),
    ],
)  # fmt: skip
def test_replicas_share_whole_or_within_a_node(degrees: dict[str, int], hsdp: str) -> None:
    found = shardings(ONE._replace(**degrees), node=8)
    assert found == ["ddp", "zero-1", "zero-2", "fsdp", *([hsdp] if hsdp else [])]
    assert shardings(ONE._replace(tp=2, pp=2), node=8) == ["ddp"]


def metrics(step: float = 10.0, collectives: Any = (), **parts: float) -> Any:
    names = ("exposed_transfer_s", "exposed_copy_s", "waiting_s", "host_s", "idle_s")
    times = dict.fromkeys(names, 0.0) | parts
    breakdown = SimpleNamespace(**times)
    return SimpleNamespace(step_time_s=step, breakdown=breakdown, collectives=collectives)


def test_what_a_step_waits_for_the_largest_first_and_nothing_below_half_a_percent() -> None:
    assert waits_for(metrics(exposed_copy_s=0.05)) == ["hardly anything: it computes"]
    lines = waits_for(metrics(exposed_copy_s=0.06, waiting_s=1, host_s=2, idle_s=3,
                              exposed_transfer_s=0.5))  # fmt: skip
    assert lines == [
        "30.0% nothing to do", "20.0% waiting for the host", "10.0% waiting for peers",
        "5.0% communication", "0.6% copies",
    ]  # fmt: skip


def test_transfers_are_named_by_what_is_exposed_most() -> None:
    def use(op: str, group: str, exposed: float) -> CollectiveMetrics:
        return CollectiveMetrics(op, group, 1, 1, 1.0, 0.0, exposed, None)

    several = [use("all_reduce", "dp0.1", 0.3), use("all_reduce", "dp2 of 4", 0.3),
               use("all_gather", "tp0", 0.5), use("all_gather", "odd1", 0.1)]  # fmt: skip
    assert waits_for(metrics(collectives=several, exposed_transfer_s=1.0)) == [
        "10.0% transfers of data-parallel traffic (all_reduce)"
    ]
    assert waits_for(metrics(collectives=several[2:], exposed_transfer_s=1.0)) == [
        "10.0% transfers of tensor-parallel collectives (all_gather)"
    ]
    assert waits_for(metrics(collectives=several[3:], exposed_transfer_s=1.0)) == [
        "10.0% transfers of odd (all_gather)"
    ]


def test_the_parts_of_a_layout() -> None:
    whole = Candidate(Degrees(2, 3, 4, 5, 6), "1f1b", 1, 1, "full", "fsdp", "ring")
    assert [part.name for part in parts_of(whole)] == [
        "tp 3", "pp 4", "cp 5", "ep 6", "fsdp", "tp overlap ring", "recompute full",
    ]  # fmt: skip
    assert list(parts_of(layout(dp=8))) == []
    tp = next(parts_of(whole))
    assert (tp.none, tp.other) == ("without tp", "with other tp")
    assert [tp.without(layout(tp=n)) for n in (1, 2, 3)] == [True, False, False]
    assert [tp.otherwise(layout(tp=n)) for n in (1, 2, 3)] == [True, True, False]


def test_why_each_part_is_there() -> None:
    """Without tp: a run of 12 s for 10, and what was not run takes at least 11.5."""
    best = layout("zero-1", dp=2, tp=4)
    found = Found(
        {best: 10.0, layout(dp=8): 12.0, layout("zero-1", dp=4, tp=2): 11.0},
        {layout(dp=8, micro=1): 11.5},
    )
    assert told(best, found)[:2] == [
        "tp 4: best without tp +15.0% to +20.0%, with other tp +10.0%",
        "zero-1: best without sharding +15.0% to +20.0%",
    ]
    assert told(best, Found({best: 10.0}, {layout(dp=8): 11.5}))[0] == (
        "tp 4: best without tp at least +15.0%"
    )
    assert told(best, Found({best: 10.0}, {layout(dp=8): 9.5}))[0] == (
        "tp 4: best without tp at least +0.0%"
    )
    assert told(best, Found({best: 10.0}))[0] == "tp 4: best without tp cannot run"
    full = Found({best: 10.0}, judged=(judged(layout(dp=8), 90), judged(layout(dp=8, micro=1), 85)))
    assert told(best, full)[0] == "tp 4: best without tp does not fit (at least 85 of 80 GiB)"
    even = Found({best: 10.0, layout(dp=8): 12.0}, {layout(dp=8, micro=1): 12.0})
    assert told(best, even)[0] == "tp 4: best without tp +20.0%"


def test_half_and_twice_the_microbatch() -> None:
    best, half, twice = (layout(dp=2, micro=micro) for micro in (2, 1, 4))

    def line(**settings: Any) -> list[str]:
        return told(best, Found(**{"steps": {best: 10.0}} | settings))

    known = (judged(half), judged(twice, floor=12.0))
    assert line(steps={best: 10.0, half: 10.5}, judged=known) == [
        "micro 2: 1 takes +5.0%, 4 at least +20.0%"
    ]
    assert line(judged=(judged(twice, 90),)) == ["micro 2: 4 does not fit (90 of 80 GiB)"]
    assert line(judged=(judged(twice, floor=10.0),)) == []
    assert line(judged=known, batch=4) == []  # of which each replica has two sequences
    assert told(half, Found({half: 10.0}, judged=(judged(half._replace(micro=0), 90),))) == []


def test_which_sharding_is_needed_to_fit() -> None:
    ways = ("ddp", "zero-1", "zero-2", "fsdp")
    less = [layout(way, dp=2) for way in ways]

    def line(place: int, *needs: int) -> list[str]:
        known = tuple(judged(one, need) for one, need in zip(less, needs, strict=False))
        return told(less[place], Found({}, dict.fromkeys(less, 10.0), judged=known))[1:]

    assert line(1, 90) == ["zero-1 is needed, all else equal: ddp 90 of 80 GiB without it"]
    assert line(3, 95, 90) == [
        "fsdp is needed, all else equal: ddp 95 of 80 GiB, zero-1 90 of 80 GiB without it"
    ]
    assert line(3, 95, 70) == ["all else equal does not fit: ddp 95 of 80 GiB"]
    assert line(3, 75, 70) == line(3) == []


def test_which_recomputing_is_needed_to_fit() -> None:
    best, without = layout(recompute="full"), layout()
    lacking = Found({}, {without: 10.0}, (judged(without, 90),))
    assert told(best, lacking)[1] == (
        "recompute full is needed, all else equal: 90 of 80 GiB without it"
    )
    assert len(told(best, Found({}, {without: 10.0}, (judged(without, 70),)))) == 1
    assert len(told(best, Found({}, {without: 10.0}))) == 1


def test_a_tenth_of_the_memory_is_little_room() -> None:
    """54 of 60 GiB, 2 of them of CUDA and NCCL, are as full as is said; of 61 they are not."""
    best = layout()
    assert told(best, Found({}, judged=(judged(best, 54, capacity=60),))) == [
        "memory is nearly full: 54 of 60 GiB; of it 2 for CUDA and NCCL and 0 for the allocator's"
        " slack are estimates: try it before you rely on it"
    ]
    assert told(best, Found({}, judged=(judged(best, 54, capacity=61),))) == []


def test_the_best_of_each_kind() -> None:
    best = layout("zero-1", dp=2, tp=4)
    steps = {
        best: 10.0, layout(dp=8): 12.0, layout("zero-2", dp=8): 11.0, layout("hsdp-4", dp=8): 13.0,
        layout("zero-1", dp=2, tp=2, pp=2): 14.0,
    }  # fmt: skip
    floors = {layout("fsdp", dp=8): 12.5, layout(tp=8): 11.5}
    needs = (judged(layout(pp=8), 90),)
    found = {one.kind: one.says for one in best_of_kinds(Found(steps, floors, needs), best)}  # type: ignore[arg-type]
    assert found == {
        "data parallel (ddp)": "+20.0%: dp 8 · ddp · micro 2",
        "zero-1 or zero-2 alone": "+10.0%: dp 8 · zero-2 · micro 2",
        "zero-3 (fsdp, hsdp) alone": "+25.0% to +30.0%: dp 8 · hsdp-4 · micro 2",
        "pipeline alone": "does not fit: at least 90 of 80 GiB",
        "tensor alone": "at least +15.0%",
        "dp + pp + tp": "+40.0%: dp 2 · tp 2 · pp 2 · zero-1 · 1f1b · micro 2",
    }
    alone = Found({layout(dp=8): 10.0}, {layout(dp=2, tp=4): 9.0, layout(dp=2, pp=4): 20.0})
    found = {one.kind: one.says for one in best_of_kinds(alone, layout(dp=8))}  # type: ignore[arg-type]
    assert found == {"dp + tp": "at least +0.0%", "dp + pp": "at least +100.0%"}
