"""Utilization of links, in all and over time."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.hand_made import link_use, timeline
from hypothesis import given
from hypothesis import strategies as st

from commsim.graph import GraphBuilder, Phase, Tags
from commsim.metrics import busiest, use_of_kinds, use_over_time, utilization
from commsim.timeline import LinkUse, Timeline

SECOND = 10**12


def run(links: LinkUse, end: int = 100) -> Timeline:
    build = GraphBuilder()
    build.compute(build.lane(0), 1, name="work")
    return timeline(build, [(0, end)], links=links)


def two_flows() -> Timeline:
    """Flow 0 puts 40 bytes on link 0 and 80 on link 1, 0-50 s; flow 1 10 on link 0, 25-75 s."""
    links = link_use(
        [2.0, 4.0, 1.0],
        [{0: 40.0, 1: 80.0}, {0: 10.0}],
        [(0, 0, 50 * SECOND, 1 / (50 * SECOND)), (1, 25 * SECOND, 75 * SECOND, 1 / (50 * SECOND))],
        kinds=["nvlink", "network", "network"],
    )
    return run(links, 100 * SECOND)


def test_utilization_is_bytes_over_bandwidth_times_window() -> None:
    use = utilization(two_flows())
    assert use.bytes.tolist() == pytest.approx([50, 80, 0])
    assert use.share.tolist() == pytest.approx([50 / 200, 80 / 400, 0])


def test_busiest_links_first_and_idle_ones_not_at_all() -> None:
    assert busiest(two_flows(), utilization(two_flows())).tolist() == [0, 1]


def test_equal_links_are_in_order_of_name() -> None:
    # 0.1 + 0.2 is more than 0.3 in floats, but no more traffic.
    loads = [{2: 0.1, 11: 0.3, 10: 0.3}, {2: 0.2}]
    links = link_use([1e10] * 12, loads, [(0, 0, 10, 0.1), (1, 0, 10, 0.1)])
    timeline_ = run(links)
    names = [links.names[link] for link in busiest(timeline_, utilization(timeline_))]
    assert names == ["link10", "link11", "link2"]


def test_traffic_outside_the_measured_step_does_not_count() -> None:
    build = GraphBuilder()
    lane = build.lane(0)
    for step in range(2):
        build.compute(lane, 1, name="O", tags=Tags(Phase.OPTIMIZER, step=step))
    links = link_use([1.0], [{0: 30.0}], [(0, 0, 30 * SECOND, 1 / (30 * SECOND))])
    times = [(0, 10 * SECOND), (15 * SECOND, 20 * SECOND)]
    use = utilization(timeline(build, times, links=links))
    assert use.bytes.tolist() == pytest.approx([10.0])
    assert use.share.tolist() == pytest.approx([1.0])


def test_use_over_time_is_the_exact_step_function() -> None:
    use = use_over_time(two_flows(), np.array([0]))
    assert use.time.tolist() == [0, 25 * SECOND, 50 * SECOND, 75 * SECOND, 100 * SECOND]
    assert use.share.tolist() == pytest.approx([0.4, 0.5, 0.1, 0.0])


@pytest.mark.parametrize("points", [3, 4, 1000])
def test_as_many_steps_as_points_are_kept_exactly(points: int) -> None:
    """0-10, 10-40 and 40-100: three steps, which two points cannot say."""
    segments = [(0, 0, 10, 0.5), (0, 10, 40, 1.0)]
    timeline_ = run(link_use([1e12], [{0: 1.0}], segments))
    use = use_over_time(timeline_, np.array([0]), points=points)
    assert use.time.tolist() == [0, 10, 40, 100]
    assert use.share.tolist() == pytest.approx([0.5, 1.0, 0.0])
    half = use_over_time(timeline_, np.array([0]), points=2)
    assert half.time.tolist() == [0, 50, 100]
    assert half.share.tolist() == pytest.approx([35 / 50, 0.0])


def test_links_are_used_together_by_what_is_on_those_that_are_asked_for() -> None:
    """Flow 0 puts 3 bytes on link 0 and 5 on link 1, flow 1 puts 2 on link 2, all in 100 ps."""
    links = link_use(
        [1e12, 1e12, 2e12], [{0: 3.0, 1: 5.0}, {2: 2.0}], [(0, 0, 100, 0.01), (1, 0, 100, 0.01)]
    )
    found = run(links)
    for chosen, share in (([0], 0.03), ([1], 0.05), ([2], 0.01), ([0, 1], 0.04), ([1, 2], 7 / 300)):
        use = use_over_time(found, np.array(chosen))
        assert use.share.tolist() == pytest.approx([share])


def test_each_resampled_part_has_the_mean_of_its_own_stretch() -> None:
    use = use_over_time(two_flows(), np.array([0]), points=3)
    third = 100 / 3
    first = (25 * 0.4 + (third - 25) * 0.5) / third
    second = ((50 - third) * 0.5 + (2 * third - 50) * 0.1) / third
    last = (75 - 2 * third) * 0.1 / third
    assert use.share.tolist() == pytest.approx([first, second, last])
    assert use.time.tolist() == [0, round(SECOND * third), round(2 * SECOND * third), 100 * SECOND]


def test_nothing_is_left_over_when_all_traffic_has_ended() -> None:
    loads = [{0: 0.1}, {0: 0.2}, {0: 0.3}]
    segments = [(0, 0, 30, 1.0), (1, 10, 40, 1.0), (2, 20, 50, 1.0), (0, 70, 80, 1.0)]
    use = use_over_time(run(link_use([1e12], loads, segments)), np.array([0]))
    assert use.time.tolist() == [0, 10, 20, 30, 40, 50, 70, 80, 100]
    assert (use.share[5], use.share[7]) == (0.0, 0.0)


def test_a_kind_is_all_its_links_together() -> None:
    kinds = use_of_kinds(two_flows())
    assert list(kinds) == ["network", "nvlink"]
    assert kinds["network"].share[0] == pytest.approx(1.6 / 5)


segment = st.tuples(
    st.integers(0, 2), st.integers(0, 900), st.integers(1, 100), st.floats(0.001, 1.0)
)


@given(st.lists(segment, min_size=1, max_size=30), st.integers(1, 12))
def test_resampling_keeps_the_area(found: list[tuple[int, int, int, float]], points: int) -> None:
    segments = [(flow, start, start + length, rate) for flow, start, length, rate in found]
    loads = [{0: 3.0}, {0: 5.0, 1: 2.0}, {1: 7.0}]
    timeline_ = run(link_use([4e12, 9e12], loads, segments), 1000)
    exact = utilization(timeline_)
    for link in range(2):
        use = use_over_time(timeline_, np.array([link]), points=points)
        assert len(use.share) <= points
        assert (use.time[0], use.time[-1]) == (0, 1000)
        area = float((use.share * np.diff(use.time)).sum()) / 1000
        assert area == pytest.approx(exact.share[link], rel=1e-9, abs=1e-15)


def test_without_links_nothing_is_used() -> None:
    timeline_ = run(LinkUse.nothing())
    assert utilization(timeline_).share.tolist() == []
    assert use_of_kinds(timeline_) == {}


def test_what_carries_less_than_a_byte_in_the_step_has_a_share_too() -> None:
    """Half of what 100 ps have room for on a link of 1 GB/s; nothing of one without bandwidth."""
    links = link_use([1e9, 0.0], [{0: 0.05, 1: 0.05}], [(0, 0, 100, 0.01)])
    assert utilization(run(links, 100)).share.tolist() == [pytest.approx(0.5), 0.0]
    over_time = use_over_time(run(links, 100), np.array([0]))
    assert over_time.share.tolist() == [pytest.approx(0.5)]
    assert use_over_time(run(links, 100), np.array([1])).share.tolist() == [0.0]
