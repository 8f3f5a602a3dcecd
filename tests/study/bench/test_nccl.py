"""Bench with NCCL: what is chosen, what it takes, and where the fastest changes."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.optional import present

from commsim.cluster import Cluster
from commsim.errors import ScenarioError, TopologyError
from commsim.libraries import LibrarySection
from commsim.study.bench.bench import BenchResult, bench

SIZES = [2**k for k in range(3, 34, 3)]
H100 = Cluster.preset("dgx-h100", nodes=2)


def rows(result: BenchResult) -> list[tuple[str, str | None]]:
    return list(dict.fromkeys((row.algo, row.proto) for row in result.results))


def test_all_has_a_row_for_every_pair_and_size() -> None:
    result = bench(H100, "all_reduce", SIZES, algo="all")
    pairs = rows(result)
    assert len(result.results) == len(pairs) * len(SIZES)
    assert {"Ring", "Tree", "NVLSTree"} == {algo for algo, _ in pairs}
    assert {"LL", "LL128", "Simple"} == {proto for _, proto in pairs}


def test_one_pair_is_chosen_at_each_size_and_it_is_what_auto_takes() -> None:
    every = bench(H100, "all_reduce", SIZES, algo="all").results
    auto = bench(H100, "all_reduce", SIZES).results
    chosen = [row for row in every if row.chosen]
    assert [(r.size, r.algo, r.proto, r.time_us) for r in chosen] == [
        (r.size, r.algo, r.proto, r.time_us) for r in auto
    ]
    for row in chosen:
        others = [r.selection_us for r in every if r.size == row.size and r.selection_us]
        assert row.selection_us == min(others)


def test_names_leave_the_protocol_to_nccl() -> None:
    result = bench(H100, "all_reduce", SIZES, algo="ring,tree")
    assert len(result.results) == 2 * len(SIZES)
    small, large = result.results[0], result.results[-1]
    assert small.proto == "LL"
    assert large.proto == "Simple"


def test_a_protocol_alone_leaves_the_algorithm_to_nccl() -> None:
    result = bench(H100, "all_reduce", SIZES, proto="Simple")
    assert {row.proto for row in result.results} == {"Simple"}
    assert len(result.results) == len(SIZES)


def test_crossovers_separate_the_fastest() -> None:
    result = bench(H100, "all_reduce", SIZES, algo="ring,tree")
    best = {size: row.algo for (_, size), row in result.fastest().items()}
    for change in result.crossovers:
        below = max(size for size in SIZES if size < change.size)
        above = min(size for size in SIZES if size >= change.size)
        assert best[below] != best[above]


@pytest.mark.parametrize("op", ["all_to_all", "send_recv"])
def test_between_pairs_there_is_one_way_and_it_is_the_chosen_one(op: str) -> None:
    for asked in ("auto", "all"):
        (row,) = bench(H100, op, [2**20], algo=asked).results
        assert (row.algo, row.proto, row.chosen) == ("pairwise", None, True)


@pytest.mark.parametrize("op", ["all_reduce", "all_gather", "all_to_all", "send_recv", "broadcast"])
def test_never_below_the_bound(op: str) -> None:
    for row in bench(H100, op, SIZES[4:], algo="all").results:
        assert row.bound_us is not None
        assert row.time_us >= row.bound_us


def test_the_bound_of_a_row_is_that_of_its_kind_of_algorithm() -> None:
    result = bench(Cluster.preset("dgx-h100"), "all_reduce", "8G", algo="all")
    ring, nvls = (next(r for r in result.results if r.algo == name) for name in ("Ring", "NVLS"))
    assert ring.bound_us == ring.bound_by_gpus_us == nvls.bound_by_gpus_us
    assert nvls.bound_us == nvls.bound_in_network_us == ring.bound_in_network_us
    # what a ring cannot do, switches that add up can: 2(n-1)/n against 1
    by_gpus, in_switches = present(nvls.bound_by_gpus_us), present(nvls.bound_us)
    assert in_switches < nvls.time_us < by_gpus
    assert by_gpus / in_switches == pytest.approx(2 * 7 / 8, rel=1e-3)


def test_message_by_message_the_same_pairs_are_timed() -> None:
    overrides = {"gpu": {"count": 4}, "nic": {"count": 4}}
    halves = Cluster.preset("dgx-h100", nodes=2, overrides=overrides)
    fluid = bench(halves, "all_reduce", ["1K", "64K"], algo="all").results
    steps = bench(halves, "all_reduce", ["1K", "64K"], algo="all", network="steps").results
    facts = [(r.size, r.algo, r.proto, r.nchannels, r.selection_us, r.chosen) for r in fluid]
    assert [
        (r.size, r.algo, r.proto, r.nchannels, r.selection_us, r.chosen) for r in steps
    ] == facts
    times = {(r.algo, r.proto): r.time_us for r in steps if r.size == 1024}
    assert len(set(times.values())) == len(times)
    assert times["Tree", "LL"] == min(times.values())


def test_what_the_environment_leaves_is_timed_message_by_message() -> None:
    section = LibrarySection("nccl", env={"NCCL_ALGO": "Ring,Tree", "NCCL_PROTO": "LL"})
    result = bench(H100, "all_reduce", "1K", algo="ring", network="steps", library=section)
    (row,) = result.results
    assert (row.algo, row.proto) == ("Ring", "LL")
    with pytest.raises(ScenarioError, match="It has: Tree LL, Ring LL"):
        bench(H100, "all_reduce", "1K", algo="NVLSTree", network="steps", library=section)


def test_the_environment_rules() -> None:
    section = LibrarySection("nccl", env={"NCCL_ALGO": "Ring", "NCCL_PROTO": "^LL128"})
    result = bench(H100, "all_reduce", SIZES, library=section)
    assert {row.algo for row in result.results} == {"Ring"}
    assert "LL128" not in {row.proto for row in result.results}


def test_one_process_for_all_gpus_is_slower_when_small() -> None:
    node = Cluster.preset("dgx-h100")
    each = bench(node, "all_reduce", "1K", library=LibrarySection("nccl", launch="gpu"))
    one = bench(node, "all_reduce", "1K", library=LibrarySection("nccl", launch="process"))
    assert one.results[0].time_us > 1.2 * each.results[0].time_us


def test_an_oversubscribed_fabric_is_slower_when_large() -> None:
    thin = Cluster.preset(
        "dgx-h100", nodes=4,
        fabric={"kind": "fat_tree", "oversubscription": 8, "nodes_per_leaf": 1},
    )  # fmt: skip
    wide = Cluster.preset("dgx-h100", nodes=4)
    times = [bench(c, "all_reduce", "8G", algo="ring").results[0].time_us for c in (thin, wide)]
    assert times[0] > 4 * times[1]


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"algo": "rong"}, "--algo rong: NCCL has no such choice."),
        ({"algo": "ring,x.xml"}, "x.xml: time an algorithm from a file by itself"),
        ({"proto": "LL,x.xml"}, "--proto x.xml: NCCL has no such choice."),
        ({"proto": "LL256"}, "--proto LL256"),
        ({"algo": "PAT"}, "NCCL has none of these for all_reduce here. It has: Tree LL"),
        ({"library": "ideal", "proto": "LL"}, "ideal has no protocols"),
        ({"library": LibrarySection("nccl", env={"NCCL_ALGOS": "x"})}, "NCCL_ALGOS"),
    ],
)
def test_what_is_refused(how: dict[str, Any], words: str) -> None:
    with pytest.raises(ScenarioError, match=words.replace("(", r"\(")):
        bench(H100, "all_reduce", SIZES, **how)


def test_each_op_once_and_one_at_least() -> None:
    twice = bench(H100, "all_reduce,all_reduce", "1K").results
    assert len(twice) == 1
    with pytest.raises(ScenarioError, match="',' names no op. Give one or several"):
        bench(H100, ",", "1K")


def test_rails_without_relaying_gpus_do_not_reach_each_other() -> None:
    rails = Cluster.preset("dgx-h100", nodes=2, fabric={"kind": "rail_only"})
    assert bench(rails, "all_to_all", "1M").results
    alone = LibrarySection("nccl", env={"NCCL_PXN_DISABLE": "1"})
    with pytest.raises(TopologyError, match="rank 0 cannot reach rank 9"):
        bench(rails, "all_to_all", "1M", library=alone)
    # a leaf per rail, joined by spines: reached, over the spines
    joined = Cluster.preset("dgx-h100", nodes=2, fabric={"oversubscription": 8})
    relayed, crossing = (
        bench(joined, "all_to_all", "1G", library=section).results[0].time_us
        for section in (LibrarySection("nccl"), alone)
    )
    assert crossing > 2 * relayed


@pytest.mark.parametrize(("preset", "nodes"), [
    # the last two: routes that cross a host's memory, and pairs of GPUs without NVLink
    ("hgx-h100", 1), ("dgx-h100", 2), ("perlmutter", 2), ("dgx-1v", 1),
])  # fmt: skip
def test_sends_around_the_ring_are_over_one_communicator_as_messages_too(
    preset: str, nodes: int
) -> None:
    """As in nccl-tests: a peer out of eight has fewer channels than one alone would have."""
    cluster, sizes = Cluster.preset(preset, nodes=nodes), ["4K", "16M"]
    flows = bench(cluster, "send_recv", sizes).results
    messages = bench(cluster, "send_recv", sizes, network="steps").results
    assert [r.time_us for r in messages] == pytest.approx([r.time_us for r in flows], rel=2e-3)


def test_a_broadcast_as_messages_is_one_iteration_and_says_so() -> None:
    result = bench(H100, "broadcast,all_reduce", "1M", network="steps")
    (note,) = (each for each in result.notes if "nccl-tests repeats it" in each)
    assert note.startswith("broadcast: network steps times it once")
    assert not any("repeats it" in each for each in bench(H100, "broadcast", "1M").notes)
