"""Several jobs on one cluster: shares by hand, placements, and a job on a part of a cluster."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import commsim as cs
from commsim.charts import traffic_matrix
from commsim.graph import GraphBuilder, merged, moved_to, repeated
from commsim.study.run.jobs import _parts
from commsim.study.run.placement import placed

# Two nodes per leaf; a leaf's uplink carries as much as one NIC: 12.5 GB/s.
NARROW: dict[str, Any] = {
    "cluster": {
        "preset": "dgx-h100",
        "nodes": 4,
        "fabric": {"kind": "fat_tree", "nodes_per_leaf": 2, "oversubscription": 16},
        "overrides": {"nic": {"bandwidth": "100Gbps"}},
    },
    "library": {"name": "ideal", "algo": "ring", "channels": 1},
}
SMALL = {
    "training": {
        "model": {"preset": "gpt2-355m", "seq_len": 1024},
        "parallel": {"dp": 16},
        "batch": {"global": 32, "micro": 2},
    }
}

LONGER = {"training": SMALL["training"] | {"batch": {"global": 128, "micro": 2}}}


def ring(name: str, ranks: list[int], size: str, **more: Any) -> dict[str, Any]:
    work = {"collectives": [{"op": "all_reduce", "bytes": size}]}
    return {"name": name, "ranks": ranks, "workload": work, **more}


def jobs(*listed: dict[str, Any], **more: Any) -> dict[str, dict[str, Any]]:
    found = cs.run(NARROW | {"jobs": list(listed)} | more)
    return {job["name"]: job for job in found.extra["jobs"]}


def test_two_jobs_halve_the_uplink_until_one_ends() -> None:
    """Pairs across the uplink: 2 S and S bytes. b ends after 2 of its times, a after 3/2 of its."""
    found = jobs(ring("a", [0, 16], "256MiB"), ring("b", [8, 24], "128MiB"))
    wire = 2**28 / found["a"]["alone_s"]
    assert wire == pytest.approx(12.5e9, rel=0.05)  # 97 % payload
    assert found["a"]["slowdown"] == pytest.approx(1.5, abs=1e-3)
    assert found["b"]["slowdown"] == pytest.approx(2.0, abs=1e-3)


def test_a_later_start_shares_for_what_is_left() -> None:
    """b begins at a quarter of a's time T: both at half rate, b of T/2 needs T, a of 3T/4 left is
    half done by 5T/4 (T/2 moved), and ends T/4 later: at 3T/2, as b costs it its own T/2."""
    alone = jobs(ring("a", [0, 16], "256MiB"))["a"]["alone_s"]
    start = f"{alone / 4 * 1e6:.3f}us"
    found = jobs(ring("a", [0, 16], "256MiB"), ring("b", [8, 24], "128MiB", start=start))
    assert found["a"]["step_time_s"] == pytest.approx(1.5 * alone, rel=1e-3)
    assert found["b"]["step_time_s"] == pytest.approx(alone, rel=1e-3)
    assert found["b"]["start_s"] == pytest.approx(alone / 4)


def test_a_training_goes_on_until_the_others_have_ended() -> None:
    """Beside one of six steps, one of two steps costs it nothing in most of them: it goes on."""
    long = {"name": "long", "nodes": [0, 2], "repeat": 6, "workload": SMALL}
    short = {"name": "short", "nodes": [1, 3], "workload": SMALL}
    found = jobs(long, short)
    both = jobs(long, short | {"repeat": 6})
    assert found["long"]["slowdown"] > 1.2
    assert found["long"]["steps_beside_all"] == 5
    assert found["short"]["steps_beside_all"] >= 5
    assert found["long"]["step_time_s"] == pytest.approx(both["long"]["step_time_s"], rel=1e-9)


def test_what_ran_partly_alone_is_told() -> None:
    """A training told to do two steps has ended before the other's second has."""
    long = {"name": "long", "nodes": [0, 2], "repeat": 2, "workload": LONGER}
    short = {"name": "short", "nodes": [1, 3], "repeat": 2, "workload": SMALL}
    told = cs.run(NARROW | {"jobs": [long, short]}).headline
    assert "No step of long ran beside all others to its end." in told


def test_jobs_under_one_leaf_share_nothing() -> None:
    found = cs.run(NARROW | {"jobs": [ring("a", [0, 8], "64MiB"), ring("b", [17, 25], "64MiB")]})
    assert [job["slowdown"] for job in found.extra["jobs"]] == [1.0, 1.0]
    assert found.extra["shared_links"] == []
    assert "They share no link" in found.headline
    # What both take is no step of either.
    assert "A step takes" not in found.headline
    assert found.span_name == "all jobs"


def test_a_job_repeats_one_after_another() -> None:
    found = jobs(ring("a", [0, 16], "64MiB", repeat=3))["a"]
    assert len(found["steps_s"]) == 3
    assert found["steps_s"] == pytest.approx([found["alone_s"]] * 3, rel=1e-6)
    assert found["end_s"] == pytest.approx(3 * found["alone_s"], rel=1e-6)


def test_training_on_a_part_of_a_cluster_is_that_of_a_smaller_cluster() -> None:
    """Nodes 2 and 3 of four, far from any other job: what two nodes by themselves do."""
    small = {"preset": "dgx-h100", "nodes": 2, "fabric": {"kind": "fat_tree", "nodes_per_leaf": 2}}
    whole = cs.run({"cluster": small, "workload": SMALL}).metrics.step_time_s
    part = cs.run(
        {
            "cluster": small | {"nodes": 4},
            "jobs": [{"name": "a", "nodes": [2, 3], "workload": SMALL}],
        }
    )
    job = part.extra["jobs"][0]
    assert job["nodes"] == [2, 3]
    assert job["ranks"] == list(range(16, 32))
    assert job["metrics"]["step_time_s"] == pytest.approx(whole, rel=1e-9)
    assert job["slowdown"] == 1.0


def test_a_job_over_two_generations_waits_for_the_older_one() -> None:
    mixed = {
        "nodes": [{"preset": "dgx-h100"}, {"preset": "dgx-a100"}],
        "fabric": {"kind": "single_switch"},
    }
    heavy = {"training": SMALL["training"] | {"batch": {"global": 256, "micro": 16}}}
    found = cs.run({"cluster": mixed, "jobs": [{"name": "a", "nodes": 2, "workload": heavy}]})
    ranks = found.extra["jobs"][0]["metrics"]["ranks"]
    fast = [row for row in ranks if row["rank"] < 8]
    slow = [row for row in ranks if row["rank"] >= 8]
    assert min(r["compute_s"] for r in slow) > 1.5 * max(r["compute_s"] for r in fast)
    assert min(r["waiting_s"] for r in fast) > 5 * max(r["waiting_s"] for r in slow)


def _nodes(cluster: cs.Cluster, *sections: dict[str, Any]) -> list[list[int]]:
    from commsim.scenario import JobSection
    from commsim.sections import decode

    work = {"collectives": [{"op": "barrier", "bytes": "0B"}]}
    listed = [
        decode({"name": str(at), "workload": work} | one, JobSection, "t")
        for at, one in enumerate(sections)
    ]
    found = placed(listed, cluster, "jobs")
    return [sorted({int(cluster.node_of[rank]) for rank in ranks}) for ranks in found]


def test_placements() -> None:
    cluster = cs.Cluster.preset("dgx-h100", nodes=8)
    assert _nodes(cluster, {"nodes": 3}, {"nodes": 2}) == [[0, 1, 2], [3, 4]]
    assert _nodes(cluster, {"nodes": 4, "placement": "spread"}) == [[0, 2, 4, 6]]
    assert _nodes(cluster, {"nodes": 2}, {"nodes": [0, 3]}) == [[1, 2], [0, 3]]
    one, again = ({"nodes": 3, "placement": "random", "seed": 5} for _ in range(2))
    assert _nodes(cluster, one) == _nodes(cluster, again)
    assert len(_nodes(cluster, one)[0]) == 3


WRONG: dict[str, list[dict[str, Any]]] = {
    r"jobs\.1: rank 0 is taken by a": [ring("a", [0, 1], "1MiB"), ring("b", [0, 2], "1MiB")],
    "two jobs are called 'a'": [ring("a", [0], "1MiB"), ring("a", [1], "1MiB")],
    "there is no rank 99": [ring("a", [0, 99], "1MiB")],
    "5 are wanted, and 4 are free": [
        {"name": "a", "nodes": 5, "workload": ring("", [], "1MiB")["workload"]}
    ],
    "give exactly one of nodes and ranks": [
        {"name": "a", "workload": ring("", [], "1MiB")["workload"]}
    ],
}


@pytest.mark.parametrize(("told", "listed"), WRONG.items())
def test_wrong_jobs_say_why(told: str, listed: list[dict[str, Any]]) -> None:
    with pytest.raises(cs.ScenarioError, match=told):
        jobs(*listed)


def test_jobs_stand_alone() -> None:
    with pytest.raises(cs.ScenarioError, match="workload: means nothing beside jobs"):
        jobs(ring("a", [0], "1MiB"), workload=SMALL)
    with pytest.raises(cs.ScenarioError, match="workload is missing"):
        cs.run({"cluster": {"preset": "dgx-h100"}})


def _pair() -> cs.Graph:
    build = GraphBuilder()
    group = build.group("pair", [0, 1])
    for rank in (0, 1):
        lane = build.lane(rank)
        work = build.compute(lane, 1000, name="work")
        build.collective(lane, group, "all_reduce", 8, stream="comm", after=[work])
    return build.build()


def test_graphs_moved_repeated_and_merged_keep_what_they_hold() -> None:
    one, other = moved_to(_pair(), [4, 6]), repeated(moved_to(_pair(), [5, 7]), 3)
    both = merged([one, other], ["x", "y"], [0, 50])
    assert [group.name for group in both.groups] == ["x: pair", "y: pair"]
    assert [group.ranks for group in both.groups] == [(4, 6), (5, 7)]
    assert both.lane_rank.tolist() == [4, 6, 5, 7]
    assert both.lane_offset.tolist() == [0, 0, 50, 50]
    assert len(both) == len(one) + len(other) == 4 + 12
    assert len(both.collectives) == 4
    timeline = cs.simulate(both, cs.Cluster.preset("dgx-h100"), library=cs.Ideal())
    y = timeline.lane >= 2
    assert int(timeline.end[y].max()) > 3 * 1000 + 50
    with pytest.raises(cs.ScenarioError, match="rank 4 runs x and z"):
        merged([one, moved_to(_pair(), [4, 5])], ["x", "z"], [0, 0])
    with pytest.raises(cs.ScenarioError, match="has rank 1, and 1 ranks"):
        moved_to(_pair(), [3])


def test_the_share_of_each_job_is_what_it_does_by_itself() -> None:
    """Two pairs under switches of their own: each is as it is alone, the second 50 ps later."""
    cluster = cs.Cluster.preset("dgx-h100", nodes=2)
    graphs = [moved_to(_pair(), ranks) for ranks in ([0, 1], [8, 9])]
    alone = [cs.simulate(graph, cluster, library=cs.Ideal()) for graph in graphs]
    whole = cs.simulate(merged(graphs, ["x", "y"], [0, 50]), cluster, library=cs.Ideal())
    for share, own, later in zip(_parts(whole, graphs), alone, (0, 50), strict=True):
        order, mine = np.argsort(share.op), np.argsort(own.op)
        assert share.op[order].tolist() == own.op[mine].tolist() == list(range(4))
        for at in ("arrive", "start", "end"):
            told = getattr(share, at)[order] - later
            assert told.tolist() == getattr(own, at)[mine].tolist()
        assert share.cause_kind[order].tolist() == own.cause_kind[mine].tolist()
        causes, known = (
            [-1 if by < 0 else int(line.op[by]) for by in line.cause[places].tolist()]
            for line, places in ((share, order), (own, mine))
        )
        assert causes == known
        assert -1 in causes
        moved = share.links.link_bytes(), own.links.link_bytes()
        assert moved[0].tolist() == moved[1].tolist()
        assert moved[0].sum() > 0
        assert sorted(share.links.op.tolist()) == sorted(own.links.op.tolist())


def test_the_result_has_the_libraries_of_all_groups() -> None:
    """What looks at a run once more, like the matrix of its traffic, plans as it was planned."""
    calls = [{"all_reduce": {"bytes": "40kB", "group": "cpu", "device": "cpu"}}]
    groups = {"cpu": {"ranks": [0, 1], "backend": "gloo"}}
    work = {"program": {"groups": groups, "ranks": dict.fromkeys(range(2), calls)}}
    found = cs.run(
        {
            "cluster": {"preset": "dgx-h100"},
            "library": {"name": "nccl"},
            "jobs": [{"name": "a", "ranks": [2, 3], "workload": work}],
        }
    )
    assert traffic_matrix(found.timeline, cluster=found.cluster, library=found.library).data
