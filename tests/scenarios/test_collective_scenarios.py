"""What the scenarios of collectives and sub-groups say is to be seen, is there."""

from __future__ import annotations

from functools import cache

import pytest

from commsim.study.run import Result, run

NIC = 25e9 / 8 * 0.9415  # payload bytes/s of the CPU nodes' NIC
MIB = 1 << 20


@cache
def result(name: str) -> Result:
    return run(name)


def seconds(name: str) -> float:
    return result(name).timeline.end_time * 1e-12


def test_gather_and_reduce_scatter_are_the_halves_of_an_all_reduce() -> None:
    whole = seconds("ring-all-reduce")
    assert seconds("all-gather") == seconds("reduce-scatter") == pytest.approx(whole / 2, rel=1e-3)


def test_a_binomial_broadcast_is_three_messages_long() -> None:
    assert seconds("broadcast") == pytest.approx(3 * 64 * MIB / NIC, rel=0.01)


def test_reduce_is_a_ring_and_a_gather() -> None:
    assert seconds("reduce") == pytest.approx(2 * 7 / 8 * 64 * MIB / NIC, rel=0.08)


def test_gather_and_scatter_fill_the_link_of_the_root() -> None:
    found = result("gather-and-scatter")
    assert seconds("gather-and-scatter") == pytest.approx(2 * 7 / 8 * 64 * MIB / NIC, rel=0.01)
    names, carried = found.timeline.links.names, found.timeline.links.link_bytes()
    at_root = {n: b for n, b in zip(names, carried, strict=True) if "nic0" in n and "node0" in n}
    assert list(at_root.values()) == pytest.approx([7 / 8 * 64 * MIB] * len(at_root))


def test_uneven_splits_wait_for_the_popular_expert() -> None:
    """270 MB flow into GPU 0 at 396 GB/s; nobody else gets more than 30."""
    assert seconds("all-to-all-splits") == pytest.approx(270e6 / 396.45e9, rel=0.01)


def test_at_a_barrier_all_wait_for_the_last() -> None:
    timeline = result("barrier").timeline
    wait = {
        int(lane): int(start - arrive)
        for lane, op, arrive, start in zip(
            timeline.lane, timeline.op, timeline.arrive, timeline.start, strict=True
        )
        if timeline.graph.op_name(int(op)) == "barrier"
    }
    assert [round(wait[rank] / 1e9) for rank in range(4)] == [15, 10, 5, 0]


def test_a_batched_exchange_hides_behind_computing() -> None:
    assert seconds("batched-exchange") == pytest.approx(1e-3)


def test_sub_groups_do_not_share_an_nvswitch() -> None:
    port = 450e9 * 0.881
    fours, twos = 2 * 3 / 4 * 64 * MIB / port, 2 * 1 / 2 * 16 * MIB / port
    assert seconds("sub-groups") == pytest.approx(fours + twos, rel=0.03)


def test_the_metrics_of_the_cpu_cost_no_time() -> None:
    found = result("two-libraries").timeline
    spans = {
        (int(lane), found.graph.group_of(int(op))): int(end - start)
        for lane, op, start, end in zip(found.lane, found.op, found.start, found.end, strict=True)
    }
    metrics, gradients = spans[0, 1], spans[0, 0]
    assert 0.5 < metrics / gradients < 1
    assert seconds("two-libraries") == pytest.approx(4e-3 + gradients * 1e-12, rel=1e-6)


def test_a_ring_of_segments_fills_the_links() -> None:
    expected = 2 * 3 / 4 * 256 * MIB / NIC
    assert expected < seconds("gloo-all-reduce") < 1.01 * expected


def test_staged_gpu_data_goes_to_the_host_and_back() -> None:
    found = result("gloo-staging")
    assert any("staged" in note for note in found.notes)
    names, carried = found.timeline.links.names, found.timeline.links.link_bytes()
    to_gpu = [b for n, b in zip(names, carried, strict=True) if n.endswith("->gpu0") and b]
    assert to_gpu == pytest.approx([4 * MIB])
    assert seconds("gloo-staging") > 256 / 512 * seconds("ring-all-reduce")


def test_a_copy_and_a_message_share_the_pcie_link() -> None:
    timeline = result("host-offload").timeline
    copy, message = (int(timeline.end[op]) for op in (0, 1))
    alone = 256 * MIB / 28.8e9 * 1e12
    assert copy == pytest.approx(1.75 * alone, rel=0.05)
    assert message == pytest.approx(256 * MIB / 12.4e9 * 1e12, rel=0.05)
