"""What limits a transfer: the share of its time that is bandwidth, by its closed form."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from helpers.hand_made import link_use, timeline

import commsim as cs
from commsim.cluster import cluster_from
from commsim.graph import GraphBuilder
from commsim.libraries import Ideal
from commsim.metrics.critical_path import critical_path
from commsim.metrics.transfers import _FASTER, transfer_limits
from commsim.study.bench import bench
from commsim.timeline import Cause, LinkUse, Timeline


@pytest.mark.parametrize("size", [1 << 18, 1 << 22, 1 << 26])
def test_what_a_ring_takes_beyond_its_latency_is_bandwidth(size):
    """2(n-1)(a + S/nB): all but 2(n-1)a, and the 16 bytes per rank of the least that is asked."""
    work = {"collectives": [{"op": "all_reduce", "bytes": f"{size}B"}]}
    library = {"name": "ideal", "algo": "ring"}
    result = cs.run({"cluster": {"preset": "dgx-h100"}, "library": library, "workload": work})
    cluster = cs.Cluster.preset("dgx-h100")
    of_size, of_twice = (
        row.time_us * 1e-6
        for row in bench(
            cluster, "all_reduce", [size, 2 * size], algo="ring", library="ideal"
        ).results
    )
    latency = 2 * of_size - of_twice
    path = critical_path(result.timeline)
    found = transfer_limits(result.timeline, path, Ideal("ring"), cluster)
    share = (1 - latency / of_size) * (1 - 16 * 8 / size)
    assert found.share == pytest.approx([share] * 8, abs=1e-5)
    assert 0.05 < share < 1


PS = 10**12


def one_after_another(sizes, times, links: LinkUse | None = None) -> Timeline:
    """Return all-reduces of these bytes on one rank, each released by the one before."""
    build, causes = GraphBuilder(), {}
    lane, group = build.lane(0), build.group("dp 0", [0], axis="dp")
    other = build.group("tp 0", [0], axis="tp")
    for at, size in enumerate(sizes):
        op = build.collective(
            lane, group if size > 0 else other, "all_reduce", abs(size), stream="comm"
        )
        if at:
            causes[op] = (op - 1, Cause.STREAM)
    return timeline(build, times, causes=causes, links=links)


def limited(made: Timeline) -> list[tuple[str, float, float]]:
    """Return what limits each span, its share and what a link twice as fast saves."""
    found = transfer_limits(made, critical_path(made), None, None)
    rows = zip(found.resource.tolist(), found.share, found.doubled, strict=True)
    return [(found.names[at], round(share, 9), round(half, 9)) for at, share, half in rows]


def used(loads, segments, ops) -> LinkUse:
    """Links of 10 (network) and of 40 bytes/s (NVLink)."""
    return link_use([10.0, 40.0], loads, segments, ops=ops, kinds=["network", "nvlink"])


def test_transfers_of_unknown_links_are_all_bandwidth() -> None:
    build = GraphBuilder()
    lane, group = build.lane(0), build.group("dp", [0])
    build.compute(lane, 5, name="work")
    build.collective(lane, group, "all_reduce", 8, stream="comm")
    made = timeline(build, [(0, 5), (5, 9)])
    found = transfer_limits(made, critical_path(made), None, None)
    assert found.names == ("unknown",)
    assert found.resource.tolist() == [-1, 0]
    assert found.share.tolist() == [0, 1]
    assert found.doubled.tolist() == [0, 0.5]
    assert transfer_limits(made, critical_path(made), Ideal(), None).share.tolist() == [0, 1]


def test_the_longest_on_the_path_stands_for_its_kind() -> None:
    """8 of 10 bytes/s of the network behind a shorter one of 20 of 40 on NVLink."""
    links = used([{1: 1.0}, {0: 1.0}], [(0, 0, 10, 20 / PS), (1, 10, 100, 8 / PS)], [0, 1])
    assert (
        limited(one_after_another([64, 64], [(0, 10), (10, 100)], links))
        == [("fabric", 0.8, 0.4)] * 2
    )
    first = used([{0: 1.0}, {1: 1.0}], [(0, 0, 90, 8 / PS), (1, 90, 100, 20 / PS)], [0, 1])
    assert (
        limited(one_after_another([64, 64], [(0, 90), (90, 100)], first))
        == [("fabric", 0.8, 0.4)] * 2
    )


@pytest.mark.parametrize("second", [65, -64])
def test_another_size_or_axis_is_another_kind(second: int) -> None:
    links = used([{1: 1.0}, {0: 1.0}], [(0, 0, 10, 20 / PS), (1, 10, 100, 8 / PS)], [0, 1])
    assert limited(one_after_another([64, second], [(0, 10), (10, 100)], links)) == [
        ("nvlink", 0.5, 0.25), ("fabric", 0.8, 0.4),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("other", "saved"),
    # NVLink at 8 x other of 40 beside 0.8 of the network: half of it full, or more
    [(1.0, 0.4), (2.0, 0.4), (3.0, 0.2), (4.0, 0.0)],
)
def test_twice_a_link_saves_until_a_link_of_another_kind_is_full(
    other: float, saved: float
) -> None:
    links = used([{0: 1.0, 1: other}], [(0, 0, 100, 8 / PS)], [0])
    (found,) = limited(one_after_another([64], [(0, 100)], links))
    assert found == ("fabric", 0.8, saved)


def test_a_kind_off_the_path_is_told_by_its_first_transfer() -> None:
    """Rank 1's two transfers end before rank 0's work does."""
    build = GraphBuilder()
    group = build.group("dp", [1])
    build.compute(build.lane(0), 100, name="work")
    lane = build.lane(1)
    for _ in range(2):
        build.collective(lane, group, "all_reduce", 64, stream="comm")
    links = used([{1: 1.0}, {0: 1.0}], [(0, 0, 10, 20 / PS), (1, 10, 60, 8 / PS)], [1, 2])
    made = timeline(build, [(0, 100), (0, 10), (10, 60)], links=links)
    found = transfer_limits(made, critical_path(made), None, None)
    assert [found.names[at] for at in found.resource[1:]] == ["nvlink"] * 2
    assert found.share.tolist() == pytest.approx([0, 0.5, 0.5])
    assert np.all(found.resource[:1] == -1)


@pytest.mark.parametrize("preset", ["alps", "pcie-a100", "dgx-1v", "gb200-nvl72"])
def test_links_of_a_kind_are_tried_at_twice_their_bandwidth(preset: str) -> None:
    links = cs.Cluster.preset(preset).links
    kinds = [kind for kind in dict.fromkeys(links.kinds) if kind in _FASTER]
    assert kinds
    for kind in kinds:
        section = {"preset": preset, "scale": msgspec.to_builtins(_FASTER[kind])}
        faster = cluster_from(section, "x").links
        mine = np.array(links.kinds) == kind
        assert faster.capacity[mine] == pytest.approx(2 * links.capacity[mine])
