"""Algorithms from MSCCL files with NCCL's launch, latencies and rates."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from helpers.paths import TESTS

from commsim.cluster import Cluster, Route
from commsim.errors import ScenarioError
from commsim.libraries import LibrarySection, Request, make_library
from commsim.libraries.nccl.plans.custom import _as_choice, _timed
from commsim.libraries.nccl.plans.group import NcclGroup, Site
from commsim.libraries.nccl.shapes import Protocol
from commsim.libraries.nccl.timing import (
    default_terms,
    hop_latency,
    reach_latency,
    ring_edges,
)
from commsim.libraries.plan import RoutedProgram
from commsim.study.bench.bench import bench

FILES = TESTS / "data" / "msccl"
H100 = Cluster.preset("dgx-h100")
RANKS = (0, 1, 2, 3)


def times(name: str, size: int, *, network: str = "fluid") -> float:
    result = bench(
        H100, "all_reduce", [size], algo=str(FILES / name), gpus_per_node=4, network=network
    )
    return result.results[0].time_us


@pytest.mark.parametrize("size", [2**10, 2**20, 2**26])
@pytest.mark.parametrize("name", ["ring_all_reduce.xml", "all_pairs_all_reduce.xml"])
def test_flows_and_messages_agree(name: str, size: int) -> None:
    assert times(name, size, network="steps") == pytest.approx(times(name, size), rel=1e-6)


def test_all_pairs_beats_the_ring_when_small() -> None:
    ring = bench(H100, "all_reduce", [1024], gpus_per_node=4).results[0]
    assert (ring.algo, ring.proto) == ("Ring", "LL")
    assert times("all_pairs_all_reduce.xml", 1024) < 0.75 * ring.time_us


def test_two_channels_copy_less_than_nccl_s_own() -> None:
    own = bench(H100, "all_reduce", [2**28], gpus_per_node=4, algo="ring").results[0]
    assert times("ring_all_reduce.xml", 2**28) > 2 * own.time_us


def test_other_ops_are_nccl_s_own() -> None:
    section = LibrarySection("nccl", algo=str(FILES / "ring_all_reduce.xml"))
    library = make_library(section, H100)
    own = make_library(LibrarySection("nccl"), H100)
    request = Request("all_gather", 2**20, RANKS)
    assert library.plan(request, H100).algorithm == own.plan(request, H100).algorithm


def test_another_number_of_gpus_is_refused() -> None:
    section = LibrarySection("nccl", algo=str(FILES / "ring_all_reduce.xml"))
    with pytest.raises(ScenarioError, match="is an all_reduce of 4 GPUs, and all_reduce of 2"):
        make_library(section, H100).plan(Request("all_reduce", 64, (0, 1)), H100)


def test_files_run_by_themselves() -> None:
    with pytest.raises(ScenarioError, match="by itself"):
        bench(H100, "all_reduce", [64], algo=["ring", str(FILES / "ring_all_reduce.xml")])


def test_what_nccl_adds_to_each_message() -> None:
    """A hop within a node or between nodes less its links, and the pace of the channels."""
    cluster = Cluster.preset("dgx-h100", nodes=2)
    group = NcclGroup(Site(cluster), [0, 1, 8, 9])
    custom = cast("Any", SimpleNamespace(protocol="Simple", channels=2))
    choice = _as_choice(custom, Request("all_reduce", 1 << 22, (0, 1, 8, 9)))
    assert (choice.protocol, choice.channels, choice.max_channels) == (Protocol.Simple, 2, 2)
    runs, terms = group.runs("all_reduce", [1 << 22], [choice]), default_terms()
    hop = hop_latency(runs, terms)[0] * 1e12
    reach = reach_latency(runs, terms, np.array([4e4]))[0] * 1e12
    edges = ring_edges(runs, terms)
    near, far = (4e4 / (2 * rate[0]) * 1e12 for rate in (edges.local, edges.net))
    ends = [(0, 1), (1, 0), (0, 2), (3, 0), (2, 3), (-1, 2), (2, -1), (1, 1)]
    source, target = np.array(ends).T
    plain = RoutedProgram(
        source, target, np.full(8, 4e4), np.zeros(8, np.int64), (Route((), (), (), 1000),),
        np.zeros(9, np.int64), np.zeros(0, np.int64),
    )  # fmt: skip
    delays = cast("Any", _timed(plain, group, choice, hold=7.0).delays)
    assert delays.hold.tolist() == [7.0] * 8
    expected = [hop, hop, reach, reach, hop, hop, hop]
    assert delays.after == pytest.approx([*(np.array(expected) - 1000), 0])
    assert delays.pace == pytest.approx([near, near, far, far, near, near, near, 0])


@pytest.mark.parametrize(("name", "protocol"), [
    ("LL", Protocol.LL), ("LL128", Protocol.LL128), ("Simple", Protocol.Simple),
    ("", Protocol.Simple), ("Other", Protocol.Simple),
])  # fmt: skip
def test_protocols_of_files(name: str, protocol: Protocol) -> None:
    custom = cast("Any", SimpleNamespace(protocol=name, channels=1))
    assert _as_choice(custom, Request("all_reduce", 8, (0, 1))).protocol is protocol


def test_a_plan_by_a_file() -> None:
    section = LibrarySection("nccl", algo=str(FILES / "ring_all_reduce.xml"))
    plan = make_library(section, H100).plan(Request("all_reduce", 2**20, RANKS), H100)
    assert (plan.channels, plan.sms, plan.touched) == (2, 2, 3 * 2**20)
    part = plan.parts[0]
    lead = part.phases[0].lead
    assert lead > 10**6
    assert [phase.lead for phase in part.phases[1:]] == [0] * (len(part.phases) - 1)
    assert part.joins.tolist() == [0] * 4
    assert part.leaves.max() == part.idle
    assert part.leaves.min() > lead
    (expand,) = plan.programs
    delays = cast("Any", expand().delays)
    assert set(delays.hold.tolist()) == {float(lead)}
