"""The headline, sentence by sentence, from figures made by hand."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.hand_made import timeline

from commsim.graph import GraphBuilder
from commsim.metrics.headline import finding, limit_name, limit_remarks, limit_text
from commsim.metrics.limits import Limit
from commsim.metrics.measure import CollectiveMetrics, Metrics, Times
from commsim.units import format_time


def figures(
    step: float = 1.0,
    compute: float = 0.0,
    waiting: float | None = None,
    collectives: tuple[CollectiveMetrics, ...] = (),
) -> Metrics:
    """Metrics of a run of so many seconds; what is no compute is waiting."""
    rest = step - compute if waiting is None else waiting
    return Metrics(
        step_time_s=step,
        bubble_fraction=None,
        bubble_ratio=None,
        breakdown=Times(
            compute_s=compute,
            exposed_transfer_s=0.0,
            exposed_copy_s=0.0,
            waiting_s=rest,
            host_s=0.0,
            idle_s=0.0,
            comm_s=0.0,
        ),
        ranks=(),
        mfu=None,
        hfu=None,
        tflops_per_gpu=None,
        tokens_per_s=None,
        tokens_per_s_per_gpu=None,
        memory_gib=None,
        collectives=collectives,
        links=(),
        critical_path=(),
        cost=None,
    )


def used(
    op: str, time: float, *, count: int = 1, size: int = 1 << 20, busbw: float | None = 50.0
) -> CollectiveMetrics:
    return CollectiveMetrics(op, "dp", count, size * count, time, 0.0, time, busbw)


def limit(kind: str, removed: float, halved: float | None = None, **more: Any) -> Limit:
    return Limit(kind, more.pop("resource", ""), more.pop("where", ""), None, removed, halved)


def said(metrics: Metrics, *limits: Limit) -> str:
    build = GraphBuilder()
    build.compute(build.lane(0), 10, name="work")
    found = finding(timeline(build, [(0, 10)]), metrics, limits)
    return found.replace("\N{NO-BREAK SPACE}", " ")


def test_one_collective_is_told_with_its_size_and_speed() -> None:
    one = figures(0.002, collectives=(used("all_reduce", 0.002, count=2),))
    assert said(one) == "All-reduce of 1 MiB: 2 ms, 50 GB/s on the bus."
    held = Limit("bandwidth", "network", "all-reduce on dp", "node0/nic0", 1.0, 0.5)
    assert said(one, held).endswith(" Held back by the NICs (node0/nic0).")
    late = Limit("latency", "nvlink", "all-reduce on dp", "node0/gpu0", 1.0, 0.5)
    assert said(one, late).endswith(" Held back by latency of NVLink (node0/gpu0).")
    assert said(one, limit("host", 1.0)).endswith(" Held back by host.")
    barrier = figures(0.002, collectives=(used("barrier", 0.002, busbw=None),))
    assert said(barrier) == "Barrier on dp: 2 ms."


def test_collectives_one_after_the_other_have_one_time() -> None:
    # members of a gather end apart, so up to 1 % more than the whole is still no overlap
    two = (used("all_gather", 0.4), used("all_reduce", 0.61))
    assert said(figures(1.0, collectives=two)) == (
        "2 collectives one after the other, 1 s in all: "
        "all-reduce of 1 MiB at 50 GB/s on the bus; all-gather of 1 MiB at 50 GB/s on the bus."
    )


def test_collectives_at_once_have_a_time_each_and_the_longest_come_first() -> None:
    uses = (used("all_gather", 0.3), used("barrier", 0.5, busbw=None), used("reduce", 0.1))
    assert said(figures(0.5, collectives=(*uses, used("broadcast", 0.2)))) == (
        "4 collectives at the same time, 500 ms in all: "
        "barrier on dp: 500 ms; all-gather of 1 MiB: 300 ms, 50 GB/s on the bus; 2 more."
    )
    three = said(figures(0.5, collectives=uses))
    assert three.startswith("3 collectives at the same time")
    assert three.endswith("; 1 more.")


def test_a_run_of_nothing_has_a_length() -> None:
    assert said(figures(0.0)) == f"The run takes {format_time(0)}."


def test_what_costs_most_is_told_until_compute_is_almost_all() -> None:
    host = limit("host", 0.2, 0.1)
    assert said(figures(1.0, 0.25), host) == (
        "The run takes 1 s, 25.0% of it compute. "
        "Most of the rest: the GPUs wait for their host; CPUs twice as fast would save 10.0%."
    )
    assert "Most of the rest" in said(figures(1.0, 0.94), host)
    assert said(figures(1.0, 0.95), host) == "The run takes 1 s, 95.0% of it compute."
    assert said(figures(1.0, 0.5)) == "The run takes 1 s, 50.0% of it compute."
    assert said(figures(1.0, 0.5), limit("compute", 0.5)) == said(figures(1.0, 0.5))


def test_ranks_that_end_apart_are_told_by_their_mean() -> None:
    # half a percent of the step is no difference
    assert said(figures(1.0, 0.5, 0.4951)) == "The run takes 1 s, 50.2% of it compute."
    assert said(figures(1.0, 0.4, 0.4)) == (
        "The run takes 1 s, 800 ms in the mean of the ranks, 50.0% of that compute."
    )


def test_bandwidth_and_latency_of_a_link_count_together() -> None:
    wide = limit("bandwidth", 0.26, 0.13, resource="network", where="all-gather on dp")
    late = limit("latency", 0.25, 0.12, resource="network", where="all-gather on dp")
    near = limit("bandwidth", 0.25, 0.12, resource="nvlink", where="all-reduce on tp")
    host = limit("host", 0.5, 0.15)
    assert "all-gather on dp over the NICs; twice" in said(figures(1.0, 0.1), host, wide, late)
    assert "wait for their host" in said(figures(1.0, 0.1), host, wide, near)
    assert "wait for their host" in said(figures(1.0, 0.1), host, wide)


@pytest.mark.parametrize(("halved", "named"), [(0.15, "bubble"), (0.16, "host")])
def test_half_of_another_has_to_save_half_as_much_again(halved: float, named: str) -> None:
    # a bubble of 0.2 has no half of its own, so it counts as 0.1
    bubble = limit("pipeline", 0.2, where="4 stages")
    assert named in said(figures(1.0, 0.5), bubble, limit("host", 0.18, halved))


def test_a_bubble_tells_what_travels() -> None:
    bubble = limit("pipeline", 0.2, where="4 stages")
    travels = limit("p2p", 0.05, where="4 stages")
    assert said(figures(2.0, 0.5), bubble, travels).endswith(
        "pipeline stages wait for each other (the bubble); without that, 10.0% less"
        " (2.5% if p2p took no time)."
    )
    # it is added to the bubble alone
    assert "p2p" not in said(figures(2.0, 0.5), limit("host", 0.9, 0.5), travels)


@pytest.mark.parametrize(
    ("limit_", "text", "name"),
    [
        (
            Limit("bandwidth", "nvlink", "all-reduce on tp", "a->b", 0.5, 0.2),
            "all-reduce on tp over NVLink (a->b); twice that bandwidth would save 10.0%",
            "bandwidth of NVLink: all-reduce on tp (a->b)",
        ),
        (
            Limit("bandwidth", "", "all-reduce on tp", None, 0.5, 0.2, None, "cluster.scale.nic=2"),
            "all-reduce on tp; twice that bandwidth would save 10.0% (--set cluster.scale.nic=2)",
            "bandwidth of transfers: all-reduce on tp",
        ),
        (
            Limit("bandwidth", "fabric", "x", None, 0.5, 0.000_98),
            "x over the switches of the network; twice that bandwidth would save"
            " nothing: links of another kind are as full",
            "bandwidth of the switches of the network: x",
        ),
        (
            Limit("bandwidth", "tcp", "x", None, 0.5, 0.001),
            "x over TCP; twice that bandwidth would save 0.1%",
            "bandwidth of TCP: x",
        ),
        (
            Limit("latency", "pcie", "x", None, 0.5, 0.25),
            "the latency of x over PCIe, which bandwidth does not help; half would save 12.5%",
            "latency over PCIe: x",
        ),
        (
            Limit("p2p", "", "2 stages", None, 0.5),
            "what travels between pipeline stages (p2p); if it took no time, 25.0% less",
            "what travels between 2 stages of the pipeline (p2p)",
        ),
        (
            Limit("pipeline", "", "2 stages", None, 0.5),
            "pipeline stages wait for each other (the bubble); without that, 25.0% less",
            "waiting between 2 stages of the pipeline",
        ),
        (
            Limit("imbalance", "", "stage 1", None, 0.5, ratio=1.25),
            "the others wait for stage 1, which computes 1.25 times the mean;"
            " if all were equal, 25.0% less",
            "imbalance: stage 1 computes 1.25 times the mean",
        ),
        (
            Limit("copy", "pcie", "", None, 0.5, 0.25),
            "copies to and from host memory; twice as fast would save 12.5%",
            "copies to and from host memory",
        ),
        (
            Limit("host", "", "", None, 0.5, 0.25),
            "the GPUs wait for their host; CPUs twice as fast would save 12.5%",
            "waiting for the host",
        ),
        (
            Limit("compute", "", "", None, 0.5, 0.25),
            "compute; GPUs twice as fast would save 12.5%",
            "compute",
        ),
    ],
)
def test_each_limit_in_words(limit_: Limit, text: str, name: str) -> None:
    assert limit_text(limit_, 2.0) == text
    assert limit_name(limit_) == name


def test_two_fifths_of_a_limit_are_far_less_than_half() -> None:
    for halved, remarks in ((0.4, 0), (0.39, 1)):
        assert len(limit_remarks([Limit("bandwidth", "pcie", "x", None, 1.0, halved)])) == remarks
    (told,) = limit_remarks([Limit("bandwidth", "memory", "x", None, 1.0, None)])
    assert told.startswith("twice PCIe is not twice as fast")
    (told,) = limit_remarks([Limit("bandwidth", "fabric", "x", None, 1.0, 0.1)])
    assert told.startswith("twice the NICs are not twice as fast")
