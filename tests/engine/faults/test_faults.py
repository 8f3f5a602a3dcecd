"""Faults: closed forms, folded runs that equal unfolded ones, chance by seed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.share import later

import commsim as cs
from commsim.engine import FaultsSection, draw_dead, draw_faults
from commsim.graph import OpKind
from commsim.sections import decode

REPLICAS: dict[str, Any] = {
    "cluster": {"preset": "dgx-h100", "nodes": 4},
    "workload": {
        "training": {
            "model": {"preset": "gpt2-355m", "seq_len": 1024},
            "parallel": {"dp": 16, "tp": 2},
            "batch": {"global": 16, "micro": 1},
        }
    },
}
RING: dict[str, Any] = {
    "cluster": {"preset": "dgx-h100", "nodes": 2, "overrides": {"nic": {"bandwidth": "100Gbps"}}},
    "workload": {"collectives": [{"op": "all_reduce", "bytes": "256MiB", "group": [0, 8]}]},
    "library": {"name": "ideal", "algo": "ring", "channels": 1},
}


def step(scenario: dict[str, Any], **faults: Any) -> float:
    given = scenario | ({"faults": faults} if faults else {})
    return cs.run(given).metrics.step_time_s


@pytest.mark.parametrize(
    ("faults", "most"),
    [
        later(({"slow_gpus": [{"rank": 17, "factor": 1.5}]}, 8)),
        ({"slow_gpus": [{"rank": 17, "factor": 1.5, "start": "1ms", "end": "20ms"}]}, 8),
        ({"slow_gpus": [{"rank": r, "factor": 1.5} for r in (17, 21)]}, 8),
        ({"slow_links": [{"link": "node3/nic2", "left": 0.2}]}, 8),
        (
            {
                "slow_links": [
                    {"link": "node3/nic2", "left": 0, "end": "1s", "down": "15ms", "every": "20ms"}
                ]
            },
            8,
        ),
    ],
)
def test_only_the_ranks_concerned_unfold_and_nothing_changes_by_it(
    faults: dict[str, Any], most: int
) -> None:
    """A fault in one of 16 replicas: its lanes and one healthy replica's, and the same step."""
    fewer = ["workload.training.model.layers=6"]
    folded = cs.run(REPLICAS | {"faults": faults}, fewer)
    whole = cs.run(REPLICAS | {"faults": faults, "engine": {"fold": "off"}}, fewer)
    assert len(whole.timeline.graph.lane_rank) == 32
    assert len(folded.timeline.graph.lane_rank) <= most
    assert folded.metrics.step_time_s == whole.metrics.step_time_s
    assert folded.metrics.step_time_s > folded.extra["faults"]["healthy_step_time_s"]


def test_a_slow_gpu_costs_what_it_computes_longer() -> None:
    """Tensor parallel work waits in every layer: the step grows by the compute's share at least."""
    healthy = cs.run(REPLICAS)
    slow = step(REPLICAS, slow_gpus=[{"rank": 3, "factor": 2.0}])
    compute = healthy.metrics.breakdown.compute_s
    assert slow - healthy.metrics.step_time_s == pytest.approx(compute, rel=0.25)
    assert step(REPLICAS, slow_gpus=[{"rank": 3, "factor": 1.0}]) == healthy.metrics.step_time_s


def test_the_gpu_that_is_named_is_the_slow_one() -> None:
    work = {"program": {"ranks": {rank: [{"compute": "1ms"}] for rank in range(4)}}}
    given = {"cluster": {"preset": "dgx-h100"}, "workload": work}
    found = cs.run(given | {"faults": {"slow_gpus": [{"rank": 2, "factor": 2.0}]}}).timeline
    compute = found.graph.kind == OpKind.COMPUTE
    ranks = found.graph.lane_rank[found.graph.lane[compute]].tolist()
    taken = ((found.end - found.start)[compute] / 1e9).tolist()
    assert dict(zip(ranks, taken, strict=True)) == {0: 1.0, 1: 1.0, 2: 2.0, 3: 1.0}


def test_a_link_at_half_rate_doubles_what_it_limits() -> None:
    healthy = step(RING)
    assert step(RING, slow_links=[{"link": "node0/nic0", "left": 0.5}]) == pytest.approx(
        2 * healthy, rel=1e-3
    )


def test_a_link_that_is_down_for_a_while_costs_that_while() -> None:
    """A flow that is stopped for 3 ms ends 3 ms later, at half rate for 4 ms 2 ms later."""
    healthy = step(RING)
    assert healthy > 0.015
    down = step(RING, slow_links=[{"link": "node0/nic0", "left": 0, "start": "2ms", "end": "5ms"}])
    assert down - healthy == pytest.approx(3e-3, abs=1e-9)
    half = step(
        RING, slow_links=[{"link": "node0/nic0", "left": 0.5, "start": "2ms", "end": "6ms"}]
    )
    assert half - healthy == pytest.approx(2e-3, abs=1e-6)  # a latency is no slower at half rate
    flaps = {"link": "node0/nic0", "left": 0, "end": "9ms", "down": "1ms", "every": "3ms"}
    assert step(RING, slow_links=[flaps]) - healthy == pytest.approx(3e-3, abs=1e-9)


def test_a_window_after_the_run_changes_nothing() -> None:
    late = {"link": "node0/nic0", "left": 0.1, "start": "10s", "end": "11s"}
    assert step(RING, slow_links=[late]) == step(RING)


def test_two_gpus_share_the_nic_that_is_left() -> None:
    """Groups of GPU 0 and of GPU 1 of two nodes; without NIC 1 both go by another: half each."""
    node = {
        "gpu": {"count": 2},
        "nic": {"count": 2, "bandwidth": "100Gbps"},
        "pcie": {"switches": []},
    }
    groups = [{"op": "all_reduce", "bytes": "256MiB", "group": [g, g + 2]} for g in (0, 1)]
    both = RING | {
        "cluster": {"preset": "dgx-h100", "nodes": 2, "overrides": node},
        "workload": {"collectives": groups},
    }
    healthy = step(both)
    assert step(both, dead_nics=[{"node": 0, "nic": 1}]) == pytest.approx(2 * healthy, rel=0.01)


def test_nics_keep_their_names_beside_a_dead_one() -> None:
    scenario = RING | {"cluster": {"preset": "dgx-h100", "nodes": 2}}
    scenario["faults"] = {"dead_nics": [{"node": 1, "nic": 0}]}
    found = cs.run(scenario)
    names = found.timeline.links.names
    assert [f"node1/nic{nic}->leaf{nic}" in names for nic in range(8)] == [False] + 7 * [True]
    assert found.cluster is not None
    assert [nic.name for nic in found.cluster.nics if nic.node == 1][0] == "node1/nic1"


def test_the_last_nic_of_a_node_cannot_die() -> None:
    node = {"gpu": {"count": 1}, "nic": {"count": 1}, "pcie": {"switches": []}}
    alone = RING | {
        "cluster": {"preset": "dgx-h100", "nodes": 2, "overrides": node},
        "workload": {"collectives": [{"op": "all_reduce", "bytes": "1MiB"}]},
    }
    with pytest.raises(cs.ScenarioError, match="node 1: loses its last NIC"):
        step(alone, dead_nics=[{"node": 1, "nic": 0}])


def test_jitter_has_the_spread_that_it_says_and_a_seed() -> None:
    one = cs.run(REPLICAS | {"faults": {"jitter": [{"spread": 0.1, "ranks": [5]}]}})
    again = cs.run(REPLICAS | {"faults": {"jitter": [{"spread": 0.1, "ranks": [5]}]}})
    other = cs.run(REPLICAS | {"faults": {"jitter": [{"spread": 0.1, "ranks": [5]}], "seed": 1}})
    assert one.metrics.step_time_s == again.metrics.step_time_s != other.metrics.step_time_s
    healthy = cs.run(REPLICAS | {"engine": {"fold": "off"}}).timeline.graph
    graph = one.timeline.graph
    mine = graph.duration[(graph.lane_rank[graph.lane] == 5) & (graph.kind == 0)]
    was = healthy.duration[(healthy.lane_rank[healthy.lane] == 5) & (healthy.kind == 0)]
    factors = mine[was > 0] / was[was > 0]
    assert float(factors.mean()) == pytest.approx(1, abs=0.02)
    assert float(factors.std()) == pytest.approx(0.1, rel=0.15)


def test_draws_have_mean_and_quantiles_and_are_the_same_again() -> None:
    faults = {"samples": 8, "slow_links": [{"share": 0.3, "left": 0.5}]}
    found = cs.run(RING | {"faults": faults})
    steps = [draw["step_time_s"] for draw in found.extra["faults"]["draws"]]
    assert len(steps) == 8
    assert len(set(steps)) > 1
    assert found.extra["faults"]["mean_s"] == pytest.approx(np.mean(steps))
    assert found.extra["faults"]["p99_s"] == pytest.approx(np.quantile(steps, 0.99))
    assert found.metrics.step_time_s == sorted(steps)[3]
    assert cs.run(RING | {"faults": faults}).extra == found.extra
    assert "8 draws" in found.headline


def test_chances_hit_as_often_as_they_say() -> None:
    section = decode(
        {"dead_nics": [{"share": 0.01}], "slow_gpus": [{"share": 0.02, "factor": 1.2}]},
        FaultsSection,
        "t",
    )
    cluster = cs.Cluster.preset("dgx-h100", nodes=64)
    none = np.ones(1)
    hit = [
        (
            len(draw_dead(section, cluster, n, where="t")),
            len(draw_faults(section, cluster, n, where="t", pool=lambda _: none).slow_gpus),
        )
        for n in range(200)
    ]
    nics, gpus = np.mean(hit, axis=0)
    assert nics == pytest.approx(5.12, rel=0.15)  # of 512
    assert gpus == pytest.approx(10.24, rel=0.15)


WRONG: dict[str, dict[str, Any]] = {
    r"slow_gpus\.0: give exactly one of rank, count and share": {"slow_gpus": [{"factor": 2}]},
    r"slow_gpus\.0\.rank: there is no 99": {"slow_gpus": [{"factor": 2, "rank": 99}]},
    r"slow_links\.0\.link: there is no 'node0/nic9'": {
        "slow_links": [{"link": "node0/nic9", "left": 0.5}]
    },
    "ends the run": {"slow_links": [{"link": "node0/nic0", "left": 0}]},
    "`down` and `every` go together": {
        "slow_links": [{"link": "node0/nic0", "left": 0, "down": "1ms"}]
    },
    "needs an `end`": {
        "slow_links": [{"link": "node0/nic0", "left": 0, "down": "1ms", "every": "2ms"}]
    },
    "there is no NIC 9 on node 0": {"dead_nics": [{"node": 0, "nic": 9}]},
    "give exactly one of spread and trace": {"jitter": [{}]},
    r"count: 999 of 16": {"slow_gpus": [{"factor": 2, "count": 999}]},
}


@pytest.mark.parametrize(("told", "faults"), WRONG.items())
def test_wrong_faults_say_what_and_where(told: str, faults: dict[str, Any]) -> None:
    with pytest.raises(cs.ScenarioError, match=told):
        step(RING, **faults)


def test_faults_need_a_cluster() -> None:
    with pytest.raises(cs.ScenarioError, match="needs a cluster that could break"):
        cs.run("1f1b", ["faults.jitter=[{spread: 0.1}]"])


def test_a_gpu_that_is_slow_for_a_while_makes_up_for_nothing() -> None:
    """Of 4 ms of work 1 is done by 1 ms, 1 more by 3 ms at half the pace, and the rest by 5 ms."""
    scenario: dict[str, Any] = {
        "cluster": {"preset": "dgx-h100"},
        "workload": {"program": {"ranks": {0: [{"compute": "4ms"}]}}},
    }
    slow = {"rank": 0, "factor": 2, "start": "1ms", "end": "3ms"}
    assert step(scenario) == pytest.approx(4e-3)
    assert step(scenario, slow_gpus=[slow]) == pytest.approx(5e-3)
    assert step(scenario, slow_gpus=[slow | {"end": "99ms"}]) == pytest.approx(7e-3)


def test_two_faults_at_one_time_slow_each_other() -> None:
    """Of 4 ms of work a quarter is done in the first ms, the rest takes twice 3.75 ms.

    A link loses half of 4 ms, as by one fault, and another quarter of 1 of them.
    """
    scenario: dict[str, Any] = {
        "cluster": {"preset": "dgx-h100"},
        "workload": {"program": {"ranks": {0: [{"compute": "4ms"}]}}},
    }
    long = {"rank": 0, "factor": 2, "start": "0s", "end": "99ms"}
    short = long | {"end": "1ms"}
    for both in ([long, short], [short, long]):
        assert step(scenario, slow_gpus=both) == pytest.approx(8.5e-3)
    slow = {"link": "node0/nic0", "left": 0.5, "start": "2ms", "end": "6ms"}
    both = [slow, slow | {"start": "3ms", "end": "4ms"}]
    assert step(RING, slow_links=both) - step(RING) == pytest.approx(2.25e-3, abs=1e-6)


def test_a_rank_that_is_slow_for_a_while_is_that_rank_whoever_else_idles() -> None:
    """Only ranks 3 and 5 do anything: their lanes are the first and the second."""
    scenario: dict[str, Any] = {
        "cluster": {"preset": "dgx-h100"},
        "workload": {"program": {"ranks": {3: [{"compute": "4ms"}], 5: [{"compute": "1ms"}]}}},
    }
    slow = {"factor": 2, "start": "0s", "end": "99ms"}
    for rank, milliseconds in ((0, 4), (1, 4), (3, 8), (5, 4), (7, 4)):
        took = step(scenario, slow_gpus=[slow | {"rank": rank}])
        assert took == pytest.approx(milliseconds * 1e-3)
