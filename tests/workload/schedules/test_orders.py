"""Orders of schedules with several stages per device, written down by hand from their papers."""

from __future__ import annotations

from itertools import pairwise

import pytest

from commsim.workload.schedules import StageTimes, make_schedule
from commsim.workload.schedules.dualpipe import dualpipe, dualpipev
from commsim.workload.schedules.fill import UNIT, Cap, Filled, walk
from commsim.workload.schedules.search import (
    _choices,
    _first_that_pays,
    _forwards_before_first_gradient,
    ahead_and_alternate,
)
from commsim.workload.schedules.times import equal_times
from commsim.workload.schedules.vshape import V_CAPS, _half_block, _min_block, v_order


def text(actions) -> str:
    return " ".join(map(str, actions))


def test_zb_v_fills_the_v_and_then_takes_one_of_each_in_turn() -> None:
    assert text(v_order("zb_v", 0, 2, 3)) == "0F0 0F1 0F2 3F0 3I0 3F1 3I1 0I0 3F2 3I2 0I1 0I2"
    assert text(v_order("zb_v", 1, 2, 3)) == "1F0 2F0 1F1 2F1 2I0 1F2 1I0 2F2 2I1 1I1 2I2 1I2"
    # fewer than 2p - 1 microbatches: what is left of the order of so many
    assert text(v_order("zb_v", 0, 2, 1)) == "0F0 3F0 3I0 0I0"


@pytest.mark.parametrize(
    ("block", "devices", "slots"),
    [
        (_half_block, 2, [(0, 4, 8, 13), (2, 3, 10, 12)]),
        (_half_block, 3, [(0, 7, 8, 16), (2, 6, 10, 15), (4, 5, 12, 14)]),
        (_min_block, 2, [(0, 3, 4, 7), (1, 2, 5, 6)]),
        (_min_block, 3, [(0, 5, 8, 13), (1, 4, 9, 12), (2, 3, 10, 11)]),
    ],
)
def test_building_blocks_of_a_v_by_slot(block, devices: int, slots: list[tuple[int, ...]]) -> None:
    assert [block(device, devices) for device in range(devices)] == slots


@pytest.mark.parametrize("block", [_half_block, _min_block])
@pytest.mark.parametrize("devices", range(1, 13))
def test_a_building_block_repeats_every_six_slots_without_collision(block, devices: int) -> None:
    """Down the devices and up, back down and up again, each later than what it needs."""
    slots = [block(device, devices) for device in range(devices)]
    down, up, back, home = ([row[at] for row in slots] for at in range(4))
    way = [*down, *reversed(up), *back, *reversed(home)]
    assert all(one < other for one, other in pairwise(way))
    for row in slots:
        assert len({slot % 6 for slot in row}) == 4


def test_v_half_and_v_min_in_actions() -> None:
    """Slots 0 4 8 13 of device 0 and 2 3 10 12 of device 1, and six later for microbatch 1."""
    assert text(v_order("v_half", 0, 2, 2)) == "0F0 3F0 0F1 3I0 3F1 0I0 3I1 0I1"
    assert text(v_order("v_half", 1, 2, 2)) == "1F0 2F0 1F1 2F1 2I0 1I0 2I1 1I1"
    assert text(v_order("v_min", 0, 2, 2)) == "0F0 3F0 3I0 0F1 0I0 3F1 3I1 0I1"
    # 5 and 6 of microbatch 0, 7 and 8 of microbatch 1
    assert text(v_order("v_min", 1, 2, 2)) == "1F0 2F0 2I0 1I0 1F1 2F1 2I1 1I1"


def test_most_live_microbatches_of_a_v() -> None:
    for name, most in (
        ("zb_v", [1, 2, 3, 4, 5, 6]), ("v_half", [1, 2, 2, 3, 3, 4]), ("v_min", [1, 2, 2, 2, 3, 3]),
    ):  # fmt: skip
        assert [V_CAPS[name](devices) for devices in range(1, 7)] == most


def test_dualpipe_step_by_step() -> None:
    """Two and four devices, as few microbatches as they take; the second half enters at the end."""
    assert [text(dualpipe(device, 2, 4)[0]) for device in range(2)] == [
        "0F0 3F2 0F1 3B2 3F3 0B0 3B3 0I1 0W1", "2F2 1F0 2F3 1B0 1F1 2B2 1B1 2I3 2W3",
    ]  # fmt: skip
    assert [set(dualpipe(device, 2, 4)[1]) for device in range(2)] == [{4}, {4}]
    first, second = dualpipe(0, 4, 8), dualpipe(1, 4, 8)
    assert text(first[0]) == (
        "0F0 0F1 0F2 7F4 7I4 7W4 7F5 0F3 7B5 7F6 0B0 7B6 7F7 0B1 7B7 0I2 0W2 0I3 0W3"
    )
    assert first[1] == {7, 9, 12}
    assert text(second[0]) == (
        "1F0 6F4 1F1 6F5 1F2 6B4 6F6 1B0 1F3 6B5 6F7 1B1 6B6 1B2 6I7 1I3 6W7 1W3"
    )
    assert second[1] == {6, 8, 10}
    more = text(dualpipe(0, 4, 10)[0])
    assert more.startswith("0F0 0F1 0F2 7F5 7I5 7W5 7F6 0F3 7B6 7F7 0B0 0F4 7B7 7F8 0B1 7B8")


def test_dualpipev_step_by_step() -> None:
    actions, paired = dualpipev(0, 2, 4)
    assert text(actions) == (
        "0F0 0F1 0F2 3F0 3I0 3W0 3F1 0F3 3B1 3F2 0B0 3B2 3F3 0B1 3B3 0I2 0W2 0I3 0W3"
    )
    assert paired == {7, 9, 12}
    actions, paired = dualpipev(1, 2, 4)
    assert text(actions) == (
        "1F0 2F0 1F1 2F1 1F2 2B0 2F2 1B0 1F3 2B1 2F3 1B1 2B2 1B2 2I3 1I3 2W3 1W3"
    )
    assert paired == {6, 8, 10}


def test_so_many_forwards_ahead_and_then_in_turn() -> None:
    assert text(ahead_and_alternate(1, 4, 2)) == "1F0 1F1 1I0 1F2 1I1 1F3 1I2 1I3"
    assert text(ahead_and_alternate(0, 2, 5)) == "0F0 0F1 0I0 0I1"
    assert text(ahead_and_alternate(0, 3, 1)) == "0F0 0I0 0F1 0I1 0F2 0I2"


def test_forwards_that_fit_before_the_first_gradient_is_back() -> None:
    """Hops of 3 and 5, F 2 and I 4 (of the last 8): device 1 waits 2 + 8 + 2 x 5 = 20 for it."""
    times = StageTimes((2, 2, 2), (4, 4, 8), (1, 1, 1), (3, 5, 7))
    assert [_forwards_before_first_gradient(device, times) for device in range(3)] == [
        1 + (20 + 6 + 6) / 2, 1 + 20 / 2, 1,
    ]  # fmt: skip
    nothing = StageTimes((0, 0), (3, 3), (1, 1), (0, 0))
    assert _forwards_before_first_gradient(0, nothing) == 1 + 3


def test_choices_of_forwards_ahead_keep_the_cap_and_drop_from_device_to_device() -> None:
    """F = I = W: 5, 3 and 1 fit before the first gradient; a cap of 4 holds the first device."""
    wide = list(_choices(equal_times(3, 3), Cap(9 * UNIT)))
    assert wide == [(4, 2, 1), (5, 3, 1), (6, 4, 2), (7, 5, 3)]
    tight = list(_choices(equal_times(3, 3), Cap(4 * UNIT)))
    assert tight == [(4, 2, 1), (4, 3, 1), (4, 3, 2)]


def test_an_order_has_to_be_shorter_by_a_thousandth_to_come_before_an_earlier_one() -> None:
    found = [Filled((), span) for span in range(4)]
    assert _first_that_pays(found, [1000, 999, 2000, 1500]).span == 0
    assert _first_that_pays(found, [1000, 998, 998, 996]).span == 3
    assert _first_that_pays(found, [5, 5, 4, 4]).span == 2
    assert _first_that_pays(found, [10_000, 9_991, 9_989, 9_985]).span == 2


def test_hops_between_devices() -> None:
    times = StageTimes((), (), (), (3, 5, 7, 11))
    assert [times.hop(a, b) for a, b in ((0, 1), (1, 0), (1, 2), (2, 3))] == [3, 3, 5, 7]
    assert (times.hop(0, 3), times.hop(3, 0), times.hop(2, 2)) == (11, 11, 0)
    assert times.hop(0, 2) == times.hop(1, 3) == 11  # the longest
    two = StageTimes((), (), (), (3, 5))
    assert two.hop(0, 1) == two.hop(1, 0) == 3


def test_equal_times_are_one_without_delays() -> None:
    times = equal_times(2, 4)
    assert times.forward == times.backward == times.weight == (1, 1, 1, 1)
    assert times.hops == (0, 0)
    assert not times.repeats
    assert not times.tied


def test_searched_orders_of_equal_stages_span_as_published() -> None:
    """m (F + I + W) = 18 without a bubble; under half the memory p - 1 = 2 more at most."""
    times = equal_times(3, 3)
    spans = {
        name: walk(make_schedule(name, 3, 6, where="x").actions, (0, 1, 2), times).span
        for name in ("zb_2p", "zb_1p", "zb_h2", "zb_h1")
    }
    assert spans == {"zb_2p": 18, "zb_1p": 20, "zb_h2": 18, "zb_h1": 20}
