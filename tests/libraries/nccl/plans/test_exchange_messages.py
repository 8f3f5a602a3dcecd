"""Sends and receives as messages: their rounds, their turns and their pace, by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.star import Star

from commsim.cluster import Cluster, Links, Route
from commsim.libraries import Request
from commsim.libraries.expansion import arrivals
from commsim.libraries.nccl.plans.exchange_messages import (
    _behind,
    _turns,
    exchange_program,
    message_program,
    rounds_of,
)
from commsim.libraries.nccl.plans.group import NcclGroup, Site
from commsim.libraries.nccl.plans.library import Nccl
from commsim.libraries.routing import Router


def links(*capacity: float) -> Links:
    """Return links of so many bytes/s, which cost a byte 1e12 / capacity ps."""
    count, speed = len(capacity), np.array(capacity)
    words = ("",) * count
    none = np.zeros(count, np.int64)
    return Links(words, words, words, speed, np.ones(count), speed, none, words, words)


@pytest.mark.parametrize(("idle", "latency", "pace", "after"), [
    # ten bytes that a link passes in 100 ps each, 30 ps away
    (2000, 500, 1500, 470),  # what its channels take, then the rest of the latency
    (2000, 10, 1970, 0),  # the way alone is longer than what the model says
    (1200, 500, 1000, 170),  # not faster than the link
    (1200, 200, 1000, 170),
    (1030, 500, 1000, 0),
    (900, 500, 1000, 0),
])  # fmt: skip
def test_a_message_trickles_in_and_arrives_when_it_should(
    idle: int, latency: int, pace: float, after: float
) -> None:
    way = Route((1, 0), (1.0, 1.0), (0, 1), 30)
    made = message_program(way, 10, links(1e12, 1e10), lead=7, idle=idle, latency=latency)()
    assert (made.source.tolist(), made.target.tolist(), made.size.tolist()) == ([0], [1], [10.0])
    assert (made.route.tolist(), made.routes) == ([0], (way,))
    assert (made.dep_ptr.tolist(), made.dep.tolist()) == ([0, 0], [])
    delays = made.delays
    assert delays is not None
    assert delays.pace is not None
    assert (delays.hold.tolist(), delays.dep.tolist()) == ([7.0], [])
    assert (delays.pace.tolist(), delays.after.tolist()) == ([pace], [after])


def test_messages_of_one_end_take_turns_near_ones_and_far_ones_apart() -> None:
    end = np.array([0, 1, 0, 0, 1, 0, 1, 2])
    far = np.array([0, 0, 1, 0, 1, 1, 0, 1], dtype=np.bool_)
    size = np.array([10.0, 5, 20, 30, 10, 20, 5, 0])
    time = np.where(far, 800.0, 400.0)
    hold, pace = _turns(end, size, far, time)
    # near: 0 has 40 bytes, the most, and 10 ps for each of them; far: 40 bytes, 20 ps each
    assert pace.tolist() == [100, 50, 400, 300, 200, 400, 50, 0]
    assert hold.tolist() == [0, 0, 0, 100, 0, 400, 50, 0]


def test_nothing_to_send_takes_no_turns() -> None:
    end, far = np.array([0, 1, 1]), np.array([True, False, True])
    size = np.array([0.0, 4.0, 0.0])
    hold, pace = _turns(end, size, far, np.full(3, 100.0))
    assert (hold.tolist(), pace.tolist()) == ([0, 0, 0], [0, 100, 0])


def group(**more: Any) -> NcclGroup:
    cluster = Cluster.preset("dgx-h100", nodes=2, **more)
    return NcclGroup(Site(cluster), [0, 1, 8, 9])


def test_who_sends_in_which_round() -> None:
    made = group()
    turn, source, target = rounds_of(made, "all_to_all", -1)
    assert turn.tolist() == sorted(turn.tolist())
    assert turn.tolist() == [1] * 4 + [2] * 4 + [3] * 4
    pairs = set(zip(source.tolist(), target.tolist(), strict=True))
    assert pairs == {(a, b) for a in range(4) for b in range(4) if a != b}
    for op, ends in (("scatter", (1, None)), ("gather", (None, 1))):
        _, source, target = rounds_of(made, op, 1)
        found = sorted(zip(source.tolist(), target.tolist(), strict=True))
        others = [0, 2, 3]
        assert found == sorted((a, b) for a in ([1] if ends[0] else others)
                               for b in ([1] if ends[1] else others))  # fmt: skip


@pytest.mark.parametrize("idle", [1, 10**7, 10**9])
def test_an_exchange_is_handed_out_no_faster_than_its_links_and_its_time(idle: int) -> None:
    made = group()
    size = 1 << 20
    program = exchange_program(
        made, "all_to_all", lambda a, b: np.full(len(a), float(size)), -1, lead=5, idle=idle
    )()
    delays = program.delays
    assert delays is not None
    assert delays.pace is not None
    ports = {0: 450e9, 1: 50e9}  # of NVLink and of a NIC of 400 Gb/s
    for at, (a, b) in enumerate(zip(program.source.tolist(), program.target.tolist(), strict=True)):
        far = (a < 2) != (b < 2)
        assert delays.pace[at] >= size / ports[far] * 1e12
    assert (delays.hold >= 5).all()
    assert (delays.after >= 0).all()
    assert program.size.tolist() == [size] * 12
    assert len(program.routes) == len(program.route) == 12
    if idle == 10**9:  # long enough: the last of each kind ends with the time
        latest = {
            far: max(
                delays.hold[at] + delays.pace[at] + delays.after[at] + program.routes[at].latency
                for at, (a, b) in enumerate(
                    zip(program.source.tolist(), program.target.tolist(), strict=True)
                )
                if ((a < 2) != (b < 2)) is far
            )
            for far in (False, True)
        }
        assert latest == pytest.approx({False: idle + 5, True: idle + 5})


@pytest.mark.parametrize("nodes", [2, 3])
def test_a_scatter_over_shared_nics_ends_when_its_closed_form_says(
    nodes: int,
) -> None:
    """The last messages to two GPUs of one NIC follow each other, and leave early enough for it."""
    cluster = Cluster.preset("dgx-2", nodes=nodes)
    ranks = tuple(range(cluster.world_size))
    plan = Nccl().plan(Request("scatter", 1 << 24, ranks, root=0), cluster)
    (expand,) = plan.programs
    assert arrivals(expand(), cluster.links).max() == pytest.approx(plan.parts[0].idle, rel=5e-3)


def test_what_leaves_later_over_a_link_of_a_message() -> None:
    """Of 1, 2 and 4 kB at 1 GB/s: those that leave after it, on its busiest link."""
    star = Star(3, 1e9)
    router = Router(star)
    routes = [router.route(0, 1), router.route(0, 2), router.route(1, 2)]
    behind = _behind(routes, np.array([1e3, 2e3, 4e3]), np.array([0.0, 5.0, 9.0]), star.links)
    assert behind == pytest.approx([2e6, 4e6, 0])  # ps: out of 0, then into 2
