"""All metrics at once, under the keys of the run JSON."""

from __future__ import annotations

import json

import pytest
from helpers.hand_made import link_use, timeline

from commsim.graph import GraphBuilder, Phase, Tags
from commsim.metrics import measure
from commsim.timeline import Cause, Timeline

MS = 10**9


def pipeline() -> Timeline:
    """Two stages, one microbatch of 2 ms forward, one message of 1 ms between."""
    build = GraphBuilder()
    pair = build.group("pp", [0, 1], axis="pp")
    build.lane(1), build.lane(0)
    build.compute(1, 2 * MS, name="F0", tags=Tags(Phase.FORWARD, stage=0))
    build.send(1, 1, 10**6, group=pair, stream="p2p")
    build.recv(0, 0, 10**6, group=pair, stream="p2p")
    build.compute(0, 2 * MS, name="F0", tags=Tags(Phase.FORWARD, stage=1))
    causes = {
        1: (0, Cause.DEPENDENCY),
        2: (1, Cause.RENDEZVOUS),
        3: (2, Cause.DEPENDENCY),
    }
    links = link_use([2e9, 1e9], [{0: 1e6}], [(0, 2 * MS, 3 * MS, 1 / MS)], ops=[1])
    times = [(0, 2 * MS), (2 * MS, 3 * MS), (0, 2 * MS, 3 * MS), (3 * MS, 5 * MS)]
    return timeline(build, times, causes=causes, links=links)


def test_every_key_of_the_contract_is_there_and_no_other() -> None:
    assert list(measure(pipeline()).to_dict()) == [
        "step_time_s",
        "bubble_fraction",
        "bubble_ratio",
        "breakdown",
        "ranks",
        "mfu",
        "hfu",
        "tflops_per_gpu",
        "tokens_per_s",
        "tokens_per_s_per_gpu",
        "memory_gib",
        "collectives",
        "links",
        "critical_path",
        "cost",
    ]


def test_a_worked_example_in_full() -> None:
    found = measure(pipeline()).to_dict()
    assert json.loads(json.dumps(found)) == found
    assert found["step_time_s"] == 0.005
    assert found["bubble_fraction"] == 0.0  # each stage has one op: no gap within its span
    assert found["breakdown"] == {
        "compute_s": 0.002,
        "exposed_transfer_s": 0.001,
        "exposed_copy_s": 0.0,
        "waiting_s": 0.002,
        "host_s": 0.0,
        "idle_s": 0.0,
        "comm_s": 0.001,
    }
    assert found["ranks"][0] == {
        "rank": 0,
        "multiplicity": 1,
        "stage": 0,
        "compute_s": 0.002,
        "exposed_transfer_s": 0.001,
        "exposed_copy_s": 0.0,
        "waiting_s": 0.002,
        "host_s": 0.0,
        "idle_s": 0.0,
        "comm_s": 0.001,
    }
    assert found["ranks"][1]["waiting_s"] == 0.002
    assert found["collectives"] == [
        {
            "op": "send_recv",
            "group": "pp",
            "count": 1,
            "bytes": 10**6,
            "time_s": 0.002,
            "wait_s": 0.001,
            "exposed_s": 0.002,
            "busbw_gbs": pytest.approx(1.0),
        }
    ]
    assert found["links"] == [
        {
            "name": "link0",
            "kind": "nvlink",
            "utilization": pytest.approx(0.1),
            "bytes": pytest.approx(1e6),
        }
    ]
    assert found["critical_path"] == [
        {"rank": 0, "op": "F0", "kind": "compute", "link": None, "seconds": 0.002},
        {"rank": 1, "op": "recv from 0", "kind": "send_recv", "link": "link0", "seconds": 0.001},
        {"rank": 1, "op": "F0", "kind": "compute", "link": None, "seconds": 0.002},
    ]


def test_what_does_not_apply_is_none() -> None:
    build = GraphBuilder()
    build.compute(build.lane(0), 1, name="work")
    found = measure(timeline(build, [(0, MS)])).to_dict()
    for key in ("bubble_fraction", "bubble_ratio", "mfu", "hfu", "tflops_per_gpu", "cost",
                "tokens_per_s", "tokens_per_s_per_gpu", "memory_gib"):  # fmt: skip
        assert found[key] is None
    assert found["ranks"][0]["stage"] is None
    assert (found["collectives"], found["links"]) == ([], [])


def test_flops_and_tokens_are_per_step_of_all_ranks() -> None:
    build = GraphBuilder()
    build.compute(build.lane(0, multiplicity=4), 1, name="work")
    found = measure(
        timeline(build, [(0, 10 * MS)]),
        model_flops=8e12,
        hardware_flops=10e12,
        peak_flops=1e15,
        tokens=2000,
    )
    assert found.tflops_per_gpu == pytest.approx(200)
    assert found.mfu == pytest.approx(0.2)
    assert found.hfu == pytest.approx(0.25)
    assert found.tokens_per_s == pytest.approx(200_000)
    assert found.tokens_per_s_per_gpu == pytest.approx(50_000)


def test_equal_neighbours_on_the_path_are_one_entry() -> None:
    build = GraphBuilder()
    lane = build.lane(0)
    for name in ("F", "F", "B"):
        build.compute(lane, 1, name=name)
    causes = {1: (0, Cause.STREAM), 2: (1, Cause.STREAM)}
    found = measure(timeline(build, [(0, MS), (MS, 3 * MS), (3 * MS, 4 * MS)], causes=causes))
    assert [(piece.op, piece.seconds) for piece in found.critical_path] == [
        ("F", 0.003),
        ("B", 0.001),
    ]


def test_a_run_without_lanes_measures_nothing() -> None:
    found = measure(timeline(GraphBuilder(), []), tokens=5)
    assert (found.step_time_s, found.ranks, found.tokens_per_s) == (0.0, (), None)
