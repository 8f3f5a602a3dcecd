"""How long an action of sharded parameters takes: of two or three units, by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from commsim.study.advise.shards import GroupClock, Pace, Shards, Share, UnitTime, beside
from commsim.workload import Work
from commsim.workload.training import LAYER

FREE = Share(0.0, 0.0)
UNIT = UnitTime(100, 100, 0)


class Plain(Shards):
    """Units of 100 ps, each gathered in so many and reduced in 7, and 3 between HSDP's copies."""

    def __init__(self, gather: int = 10, *, ahead: int = 1, back: int = 1, once: bool = False,
                 whole: bool = False) -> None:  # fmt: skip
        self._plan: Any = SimpleNamespace(
            reshards_once=once,
            adds_up_whole=whole,
            gathers_ahead=lambda forward: ahead if forward else back,
        )
        self._model: Any = SimpleNamespace(gather_copy=None, scatter_copy=None)
        self._held, self.took = FREE, gather

    def _gathers(self, unit: Any, *, forward: bool) -> Any:
        return forward

    def _gather(self, unit: Any, sizes: Any) -> tuple[int, int]:
        return self.took + (0 if sizes else 1), 0  # a backward gathers for one ps more

    def _reductions(self, unit: Any) -> Any:
        return ()

    def _reduce(self, sizes: Any) -> tuple[int, int, int]:
        return 7, 0, 3

    def _all_copied(self, units: Any, times: Any, sizes: Any, copy: Any) -> Any:
        return times


def pace(shards: Shards, work: Work, count: int = 2, *, ends: bool = False) -> Pace:
    units: Any = [(f"unit {at}", UNIT) for at in range(count)]
    return shards.pace(work, units, at_the_ends=ends)


def test_a_forward_gathers_a_backward_also_reduces_and_weight_gradients_only_reduce() -> None:
    """The second gather hides; the last reduction goes on for 7 ps, and between copies for 3."""
    plain = Plain()
    assert pace(plain, Work.F) == Pace(200, 10, 0, 200, (0, 0))
    assert pace(plain, Work.B) == Pace(200, 11, 7, 200, (6, 10))
    assert pace(plain, Work.I) == Pace(200, 11, 0, 200, (0, 0))
    assert pace(plain, Work.W) == Pace(200, 0, 7, 200, (6, 10))


@pytest.mark.parametrize("work", [Work.F, Work.B, Work.I, Work.W])
@pytest.mark.parametrize("ends", [False, True])
@pytest.mark.parametrize("once", [False, True])
@pytest.mark.parametrize("whole", [False, True])
def test_what_is_gathered_once_and_reduced_whole_is_so_at_the_ends(
    work: Work, ends: bool, once: bool, whole: bool
) -> None:
    """Once: by the first forward alone. Whole: by the last gradient alone."""
    found = pace(Plain(once=once, whole=whole), work, ends=ends)
    gathers = work != Work.W and (not once or (ends and work == Work.F))
    reduces = work in (Work.B, Work.W) and (not whole or ends)
    assert (found.lead > 0, found.tail > 0) == (gathers, reduces)


@pytest.mark.parametrize(("ahead", "takes", "late"), [(1, 400, 350), (0, 600, 600), (2, 400, 300)])
def test_gathers_longer_than_units(ahead: int, takes: int, late: int) -> None:
    """Of 150 ps each. One ahead: they end at 150, 300 and 450, and the last unit at 550."""
    found = pace(Plain(150, ahead=ahead), Work.F, 3)
    assert (found.takes, found.lead, found.late) == (takes, 150, late)


def test_a_backward_gathers_as_far_ahead_as_backwards_do() -> None:
    """Of 151 ps, none ahead: 151 to 251, 402 to 502; with the second there already 251 to 351."""
    found = pace(Plain(150, back=0), Work.I)
    assert (found.takes, found.lead, found.late) == (502 - 151, 151, 351)


def test_the_first_units_gather_leads() -> None:
    made: Any = Plain()
    made._gathers = lambda unit, forward: unit
    made._gather = lambda unit, sizes: (10 if sizes == "unit 0" else 30, 0)
    assert pace(made, Work.F).lead == 10


def test_when_an_action_ends() -> None:
    """Its message may come before its gather is done, between, or after the second one is."""
    one = Pace(takes=200, lead=10, late=150)
    assert [one.end(1000, arrived) for arrived in (0, 1010, 1060, 1061, 2000)] == [
        1210, 1210, 1210, 1211, 2150,
    ]  # fmt: skip


def test_streams_of_two_groups() -> None:
    """The second group's op begins when the first one's has ended, on a stream of its own."""
    assert GroupClock().add(0, (10, 0)) == 10
    assert GroupClock().add(0, (0, 4)) == 4
    clock = GroupClock()
    assert clock.add(5, (10, 0)) == 15
    assert clock.add(5, (0, 4)) == 9
    assert clock.add(0, (1, 2)) == 18
    assert clock.add(30, (0, 0)) == 30
    assert clock.until == [16, 18]
    assert clock.add(20, (0, 0)) == 20


@pytest.mark.parametrize(
    ("communicates", "took"), [(0, 100), (30, 100), (50, 104), (100, 124), (10_000, 148)]
)
def test_a_unit_beside_communication_slows_what_slows_least_first(
    communicates: int, took: int
) -> None:
    """30 ps of waits, 30 by memory at 0.8 of the pace (37.5), 40 by arithmetic at half (80)."""
    assert beside(UnitTime(100, 40, 30), communicates, Share(0.5, 0.2)) == took
    assert beside(UnitTime(100, 30, 40), communicates, Share(0.2, 0.5)) == took


@pytest.mark.parametrize(
    ("recompute", "again", "kind", "forward", "sizes"),
    [
        ("none", True, LAYER, False, (8, 8)), ("none", True, LAYER, True, (8, 8)),
        ("full", True, LAYER, True, (8, 8)), ("full", False, LAYER, False, (8, 8)),
        ("full", True, "head", False, (8, 8)), ("full", True, LAYER, False, (8, 8, 8)),
    ],
)  # fmt: skip
def test_a_layer_that_runs_again_is_gathered_again(
    recompute: Any, again: bool, kind: str, forward: bool, sizes: tuple[int, ...]
) -> None:
    """Tensors of 5 and 6 entries, padded to 8 each; the backward keeps the last one."""
    plan: Any = SimpleNamespace(section=SimpleNamespace(
        recompute=recompute, compute=SimpleNamespace(stack="x"),
        parallel=SimpleNamespace(ep=2)))  # fmt: skip
    made = Shards.__new__(Shards)
    made._plan, made._sizes = plan, {False: 8, True: 4}
    made._stack = SimpleNamespace(gather_by="tensor", kept_within=4, whole_below=0, list_copy_us=1)  # type: ignore[assignment]
    unit: Any = SimpleNamespace(kind=kind, again=again, tensors=[
        SimpleNamespace(entries=5, expert=False), SimpleNamespace(entries=6, expert=False),
        SimpleNamespace(entries=3, expert=True)])  # fmt: skip
    assert made._gathers(unit, forward=forward) == {False: sizes, True: (4,)}
    assert made._reductions(unit) == {False: (8, 8), True: (4,)}


def test_experts_are_sharded_among_the_holders_of_the_same_ones() -> None:
    plan: Any = SimpleNamespace(section=SimpleNamespace(
        parallel=SimpleNamespace(ep=4), compute=SimpleNamespace(stack="torch-fsdp")))  # fmt: skip
    model: Any = None
    made = Shards(plan, model, shards=8, held=FREE, within=None, between=None)  # type: ignore[arg-type]
    assert made._sizes == {False: 8, True: 2}


def sized(dense: int, experts: int, *, width: int = 2, fp8: bool = False) -> Any:
    """Shards of dense parameters and of experts; an op takes its bytes, an expert's ten times."""
    made: Any = object.__new__(Shards)
    made._sizes = {False: dense, True: experts}
    made._plan = SimpleNamespace(width=width, gradient_width=4)
    made._model = SimpleNamespace(gathers_fp8=fp8)
    made._within = lambda kind, size, expert: size * (10 if expert else 1)
    made._between = lambda size: size * 1000
    return made


def test_entries_are_padded_to_whole_shards_and_one_shard_moves_nothing() -> None:
    made = sized(4, 2)
    assert made._padded((5, 8), expert=False) == (8, 8)
    assert made._padded((5, 8, 1), expert=True) == (6, 8, 2)
    assert sized(2, 1)._padded((5,), expert=True) == ()
    assert sized(1, 2)._padded((5,), expert=False) == ()


def test_layers_are_gathered_in_fp8_and_other_units_in_the_width_of_parameters() -> None:
    sizes = {False: (3, 5), True: (7,)}
    layer, head = SimpleNamespace(kind=LAYER), SimpleNamespace(kind="head")
    assert sized(2, 2)._gather(layer, sizes) == (16, 140)
    assert sized(2, 2, fp8=True)._gather(layer, sizes) == (8, 70)
    assert sized(2, 2, fp8=True)._gather(head, sizes) == (16, 140)


def test_gradients_are_reduced_within_a_shard_and_dense_ones_between_copies() -> None:
    """4 bytes an entry; each of two ranks reduces its half of the dense ones with its copies."""
    assert sized(2, 2)._reduce({False: (4, 6), True: (8,)}) == (40, 320, 20_000)
    assert sized(4, 2)._reduce({False: (4,), True: ()}) == (16, 0, 4_000)


def test_copies_add_to_a_unit_as_memory_traffic() -> None:
    """3 + 5 entries at a ns each, and of each tensor one for every shard it is listed for."""

    class Ns:
        def __init__(self, ns: float) -> None:
            self.seconds = ns * 1e-9

        def __add__(self, other: Any) -> Any:
            return Ns((self.seconds + other.seconds) * 1e9)

    made = sized(4, 2)
    made._model.list_copies = Ns
    assert made._copied(UnitTime(10, 6, 4), {False: (3, 5), True: ()}, Ns) == (
        10 + 16_000, 6, 4 + 16_000,
    )  # fmt: skip
    assert made._copied(UnitTime(10, 6, 4), {False: (3,), True: (1,)}, Ns) == (
        10 + 10_000, 6, 4 + 10_000,
    )  # fmt: skip
