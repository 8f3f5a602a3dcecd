"""How long an action takes, item by item, with communication of known times beside compute."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from commsim.study.advise.action_times import ActionTimes, Ends, _moving, _plain
from commsim.study.advise.shards import Share, UnitTime
from commsim.workload.training.work_items import EXCHANGE, WorkItem


class Timed(ActionTimes):
    """Communication takes a ps a byte, and shares of the GPU by its kind."""

    def __init__(self, sms: float = 0.5, memory: float = 0.2) -> None:
        self._shared = Share(sms, memory)
        self._model: Any = SimpleNamespace(gpu=SimpleNamespace(memory_bandwidth=1e12))

    def _alone(self, item: WorkItem) -> int:
        return item.size

    def _held_by(self, item: WorkItem) -> Share:
        return self._shared


def compute(duration: int, traffic: float = 0.0, *, unit: int = 0, joins: bool = False) -> WorkItem:
    return WorkItem(unit, "", 0, duration=duration, traffic=traffic, joins=joins)


def moves(size: int, kind: str = "all_gather", *, unit: int = 0, beside: bool = False,
          axis: str = "tp", joins: bool = False) -> WorkItem:  # fmt: skip
    return WorkItem(unit, "", 0, kind, size=size, axis=axis, beside=beside, joins=joins)


def end(*items: WorkItem, times: tuple[int, ...] = (1,), timed: Timed | None = None) -> int:
    return (timed or Timed()).serial(items, times)


def test_items_follow_one_another_and_those_beside_do_not_hold_them_up() -> None:
    assert end(compute(100), moves(30), compute(50)) == 180
    assert end(compute(100), moves(30, beside=True)) == 130
    assert end(moves(300, beside=True)) == 300


def test_a_compute_op_beside_communication_is_slowed_by_the_share_of_what_limits_it() -> None:
    """Half of the SMs: while 300 ps last, 150 of 400 are done. A fifth of the memory: 240."""
    gather = moves(300, beside=True)
    assert end(gather, compute(400)) == 300 + 250
    assert end(gather, compute(400, traffic=201)) == 300 + 160
    assert end(gather, compute(400, traffic=200)) == 300 + 250  # half the time is not above half
    assert end(gather, compute(100)) == 300  # takes 200, and the gather outlasts it
    assert end(gather, compute(150)) == 300
    assert end(gather, compute(151)) == 301
    assert end(gather, compute(400), timed=Timed(sms=0.95)) == 300 + 370  # a tenth is left
    assert end(gather, compute(400), compute(400)) == 300 + 250 + 400


def test_what_comes_later_is_not_slowed() -> None:
    """Its share ends with the op that it overlaps; communication itself is not slowed."""
    assert end(moves(300, beside=True), moves(50, axis="cp"), compute(400)) == 450
    assert end(moves(0, beside=True), compute(100)) == 100


def test_one_op_of_a_tensor_parallel_group_at_a_time() -> None:
    beside = moves(300, beside=True)
    assert end(beside, moves(50)) == 350
    assert end(beside, moves(50, axis="cp")) == 300
    assert end(compute(10), beside, moves(100, beside=True)) == 410


def test_rings_go_on_beside_and_are_joined() -> None:
    """Two exchanges one after another, both beside compute; the item that joins waits for them."""
    ring = moves(300, EXCHANGE, axis="cp")
    assert end(ring, ring) == 600
    idle = Timed(0.0, 0.0)
    assert end(ring, compute(100), timed=idle) == 300
    assert end(ring, compute(100), compute(50, joins=True), timed=idle) == 350
    assert end(ring, compute(400), compute(50, joins=True), timed=idle) == 450
    assert end(ring, compute(100), compute(250), timed=idle) == 350


def test_further_equal_layers_add_what_the_second_does() -> None:
    """The first gather beside overlaps nothing yet: 130, and each further layer 100 and no more."""
    layer = (compute(100), moves(30, axis="cp", beside=True))
    idle = Timed(0.0, 0.0)
    assert [end(*layer, times=(n,), timed=idle) for n in (1, 2, 3, 7)] == [130, 230, 330, 730]
    two = (compute(100), compute(7, unit=1))
    assert end(*two, times=(3, 2)) == 314


def test_what_units_add_and_how_much_of_them_is_compute() -> None:
    timed = Timed(0.0, 0.0)
    items = (compute(100), moves(30), compute(40, 21), compute(7, unit=1), moves(9, unit=1))
    assert timed.added(items, (1, 1)) == {0: 170, 1: 16}
    assert timed.of_units(items, (2, 1)) == [
        (0, UnitTime(170, 100, 40)), (0, UnitTime(170, 100, 40)), (1, UnitTime(16, 7, 0)),
    ]  # fmt: skip
    assert timed.busy(items, (2, 3), memory=False) == 2 * 100 + 3 * 7
    assert timed.busy(items, (2, 3), memory=True) == 2 * 40


def test_ends_that_are_not_set_are_not_shifted() -> None:
    ends = Ends(last=5)
    ends.later(10)
    assert (ends.last, ends.ring, ends.stream, ends.beside, ends.earlier) == (15, 0, 0, 0, 0)
    ends = Ends(1, 1, 1, 1, 1)
    ends.later(10)
    assert (ends.last, ends.ring, ends.stream, ends.beside, ends.earlier) == (11,) * 5
    assert [Ends(last=3).all, Ends(earlier=3).all, Ends(beside=3).all] == [3, 3, 3]
    ends.hold(Share(0.3, 0.1))
    ends.hold(Share(0.2, 0.4))
    assert (ends.sms, ends.memory) == (0.3, 0.4)


def test_a_skewed_exchange_is_planned_as_an_even_one() -> None:
    assert [_plain(kind) for kind in ("all_to_all_skewed", "all_gather")] == [
        "all_to_all", "all_gather",
    ]  # fmt: skip


def test_a_message_takes_the_phases_of_its_longest_part() -> None:
    def part(*phases: tuple[int, int]) -> Any:
        made = [SimpleNamespace(idle=idle, tail=tail) for idle, tail in phases]
        return SimpleNamespace(phases=made, idle=10**6)

    plan: Any = SimpleNamespace(parts=[part((10, 1), (20, 2)), part((30, 0))])
    assert _moving(plan) == 33


def real(plan: Any, *, slows: bool = True, contended: bool = True, together: int = 0) -> Any:
    """Times of a library that plans `plan` for everything, on a GPU of 100 SMs and 2 TB/s."""
    made: Any = object.__new__(ActionTimes)
    made.plan = SimpleNamespace(dtype="bfloat16", layout="a layout")
    made.asked = []

    def planned(request: Any, cluster: Any) -> Any:
        made.asked.append((request.kind, request.size, request.ranks, request.dtype))
        return plan

    made._library, made._cluster = SimpleNamespace(plan=planned), None
    made._model = SimpleNamespace(gpu=SimpleNamespace(sm_count=100, memory_bandwidth=2e12))
    made._traffic = SimpleNamespace(together=lambda kind, size, rows, key: together)
    made.groups = SimpleNamespace(
        ranks=lambda axis: (0, 1, 2), rows=lambda axis: axis, hops=lambda a, b: (a, b)
    )
    made._slows, made._contended = slows, contended
    made._known, made._idle, made._shares = {}, {}, {}
    return made


def planned(idle: int = 1000, sms: int = 20, touched: float = 500.0) -> Any:
    part = SimpleNamespace(phases=[SimpleNamespace(idle=600, tail=100)])
    return SimpleNamespace(idle=idle, sms=sms, touched=touched, parts=[part])


def test_the_shares_that_an_op_takes() -> None:
    """20 of 100 SMs; 500 bytes in 1000 ps are 0.5 of 2 TB/s."""
    made = real(planned())
    assert made.share("all_gather", 8, (0, 1)) == (0.2, 0.25)
    assert made.share("send_recv", 8, (0, 1)) == (0.2, 0.25)
    assert [dtype for *_, dtype in made.asked] == ["bfloat16", ""]
    assert real(planned(), slows=False).share("all_gather", 8, (0, 1)) == (0.0, 0.0)
    assert real(planned(sms=0)).share("all_gather", 8, (0, 1)) == (0.0, 0.0)
    assert real(planned(idle=0)).share("all_gather", 8, (0, 1)) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("kind", "settings", "took"),
    [
        ("all_gather", {}, 1000),
        ("send_recv", {}, 700),  # without its launch
        ("all_gather", {"axis": "dp"}, 5000),
        ("send_recv", {"hop": (0, 1)}, 5000),
        ("all_gather", {"axis": "ep"}, 1000),
        ("all_gather", {"axis": "dp", "ranks": (0,)}, 1000),
    ],
)
def test_groups_of_an_axis_share_links(kind: str, settings: dict[str, Any], took: int) -> None:
    given = {"ranks": (0, 1)} | settings
    made = real(planned(), together=5000)
    assert made.idle(kind, 8, **given) == made.idle(kind, 8, **given) == took
    assert made.asked == [(kind, 8, given["ranks"], "" if kind == "send_recv" else "bfloat16")]
    alone = 700 if kind == "send_recv" else 1000
    assert real(planned(), together=5000, contended=False).idle(kind, 8, **given) == alone
    assert real(planned(), together=1).idle(kind, 8, **given) == alone


def test_exchanges_are_steps_of_rings_and_the_others_collectives_of_their_axis() -> None:
    made = real(planned(), together=5000)
    ring, gather = moves(8, EXCHANGE, axis="cp"), moves(8, axis="dp")
    assert (made._alone(ring), made._alone(gather)) == (5000, 5000)
    assert made.asked == [("all_gather", 8, (0, 1, 2), "bfloat16")]
    made.asked.clear()
    assert made._held_by(ring) == made._held_by(gather) == (0.2, 0.25)
    assert made.asked == [("send_recv", 8, (0, 1), ""), ("all_gather", 8, (0, 1, 2), "bfloat16")]


def test_rings_share_links_unless_each_is_timed_alone() -> None:
    """All four pairs of the rings, or the first of them."""
    ring = moves(8, EXCHANGE, axis="cp")
    for contended, pairs in ((True, 4), (False, 1)):
        made = real(planned(), contended=contended)
        made.groups.rows = lambda axis: [axis] * 4
        made._traffic.together = lambda kind, size, rows, key: len(rows())
        assert made._alone(ring) == pairs
