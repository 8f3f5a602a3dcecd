"""What a goodput says, and what its rates and its checkpoints are made of."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from msgspec.structs import replace

import commsim as cs
from commsim.cluster.section import cluster_from
from commsim.errors import ScenarioError
from commsim.scenario import GoodputSection
from commsim.sections import decode
from commsim.study.run.goodput import Goodput, goodput_of

module = sys.modules["commsim.study.run.goodput.goodput"]
HOUR, DAY, GIB = 3600.0, 86400.0, 2**30

FOUND = Goodput(
    goodput=0.9, mtbf_s=3 * HOUR, interval_s=600.0, interval_to_s=1200.0, best=True,
    checkpoint_bytes=3 * GIB, blocked_s=1.0, safe_after_s=2.0, recover_s=3.0, checkpoints=0.04,
    failures=0.06, standing=0.0, fewer_replicas=0.0, failures_per_day={}, effective_step_s=1.0,
)  # fmt: skip


def test_the_sentence_of_a_goodput() -> None:
    """A tenth of 30 days are three; one failure in three hours are 240 in 30 days."""
    assert FOUND.sentence() == (
        "Goodput 90.0%: of 30 days 3 days are lost, with 240 failures (one every 3 h); a checkpoint"
        " of 3 GiB every 10 min (the best; every 20 min costs 0.1% more); lost to checkpoints 4.0%,"
        " failures 6.0%."
    )
    given = replace(FOUND, best=False, standing=0.05, fewer_replicas=0.01).sentence()
    assert "every 10 min; lost to checkpoints" in given
    assert given.endswith("failures 6.0%, no node to go on with 5.0%, fewer replicas 1.0%.")


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (0.5, "0.5 s"), (119, "119 s"), (120, "2 min"), (7199, "120 min"), (2 * HOUR, "2 h"),
        (2 * DAY - HOUR, "47 h"), (2 * DAY, "2 days"), (999 * DAY, "999 days"),
        (1000 * DAY, "1,000 days"), (12345 * DAY, "12,345 days"),
    ],
)  # fmt: skip
def test_times_as_people_say_them(seconds: float, told: str) -> None:
    assert module._apart(seconds) == told


def section(**settings: Any) -> GoodputSection:
    return decode(settings, GoodputSection, "t")


def test_failures_are_counted_by_parts() -> None:
    """Two nodes of eight GPUs and NICs each; rates are per million hours."""
    rates = section(rates={"gpu": 1, "nic": 2, "link": 4, "node": 8, "software": 16})
    found = module._rates(rates, cs.Cluster.preset("dgx-h100", nodes=2))
    assert {part: rate * 3.6e9 for part, rate in found.items()} == pytest.approx(
        {"gpu": 16, "nic": 32, "link": 64, "node": 16, "software": 32}
    )


ONE = {"gpu": {"count": 1}, "nic": {"count": 1}}
OLD = {**ONE, "pcie": {"generation": 3}}


@pytest.mark.parametrize("old", [0, 1])
def test_a_checkpoint_waits_for_the_slowest_way_to_host_memory(old: int) -> None:
    """Two nodes of a GPU each, one of them on PCIe 3: either may be the slower one."""
    node = [{"preset": "dgx-h100", "overrides": OLD if at == old else ONE} for at in (0, 1)]
    fabric = {"kind": "single_switch"}
    mixed = cluster_from({"nodes": node, "fabric": fabric}, "t")
    slow = cluster_from({"preset": "dgx-h100", "overrides": OLD, "nodes": 2}, "t")
    fast = cluster_from({"preset": "dgx-h100", "overrides": ONE, "nodes": 2}, "t")
    copy, alone, quick = (
        module._times(section(storage="1GB/s"), each, 10**12, "t")[0]
        for each in (mixed, slow, fast)
    )
    assert copy == alone > 1.5 * quick


STATE = 16 * 10**12  # bytes


@pytest.mark.parametrize(
    ("nodes", "checkpoint", "storage", "stored"),
    [
        (2, "async", "100GB/s", 160.0),
        (2, "sync", "100GB/s", 160.0),
        (2, "async", "1000TB/s", 20.0),  # 16 NICs of 50 GB/s
        (2, "memory", None, 20.0),
        (1, "async", "2000GB/s", 8.0),  # no NIC is in the way of a node by itself
        (1, "sync", "2000GB/s", 8.0),
    ],
)
def test_who_waits_for_a_checkpoint_and_when_it_is_safe(
    nodes: int, checkpoint: str, storage: str | None, stored: float
) -> None:
    """All wait for the copy to the host, and where it is sync for the storage as well."""
    half = {"nic": {"bandwidth": "800Gbps", "efficiency": 0.5}}
    cluster = cs.Cluster.preset("dgx-h100", nodes=nodes, overrides=half)
    rate = min(float(cluster.links.capacity[link]) for link in cluster.to_host(0).link)
    copy = STATE / (8 * nodes) / rate
    more = {} if storage is None else {"storage": storage}
    blocked, safe, load = module._times(section(checkpoint=checkpoint, **more), cluster, STATE, "t")
    sync = checkpoint == "sync"
    assert blocked == pytest.approx(copy + stored * sync)
    assert safe == pytest.approx(0.0 if sync else stored)
    assert load == pytest.approx(stored + copy)


def test_what_a_checkpoint_cannot_go_to() -> None:
    alone = cs.Cluster.preset("dgx-h100")
    with pytest.raises(ScenarioError, match="memory needs the NICs of another node"):
        module._times(section(checkpoint="memory"), alone, STATE, "t")
    with pytest.raises(ScenarioError, match="storage: is missing"):
        module._times(section(), alone, STATE, "t")


def found(**settings: Any) -> Goodput:
    return goodput_of(
        section(state="16GB", storage="1GB/s", **settings), cs.Cluster.preset("dgx-h100", nodes=2),
        parameters=1, precision="bf16", replicas=2, step_time_s=2.0,
    )  # fmt: skip


NEVER = dict.fromkeys(("gpu", "nic", "link", "node", "software"), 0.0)


def test_a_goodput_without_failures_is_what_checkpoints_leave() -> None:
    """A checkpoint a day by itself; 16 GB at 1 GB/s every 48 s, sync, leave three quarters."""
    none = found(rates=NEVER)
    assert (none.interval_s, none.best, none.mtbf_s) == (DAY, True, float("inf"))
    assert none.failures == pytest.approx(0.0, abs=1e-12)
    sync = found(rates=NEVER, checkpoint="sync", interval="48s")
    assert sync.goodput == pytest.approx(48 / (48 + sync.blocked_s))
    assert sync.checkpoints == pytest.approx(1 - sync.goodput)
    assert (sync.best, sync.interval_to_s, sync.checkpoint_bytes) == (False, 48.0, 16 * 10**9)
    assert sync.effective_step_s == pytest.approx(2.0 / sync.goodput)
    with pytest.raises(ScenarioError, match="interval: must be above zero"):
        found(interval="0s")


def test_which_failures_take_a_node_away() -> None:
    """Those of GPUs, NICs and nodes; without a spare a node that is away for good stops all."""
    rates = {"gpu": "gpu", "nic": "nic", "link": None, "node": "node", "software": None}
    for part, hardware in rates.items():
        one = found(rates=NEVER | {part: 10.0}, repair="4000000s")
        assert (one.standing > 0) is (hardware is not None)
        elastic = found(rates=NEVER | {part: 10.0}, repair="4000000s", elastic=True)
        assert (elastic.fewer_replicas > 0) is (hardware is not None)
        assert one.failures_per_day[part] == pytest.approx(24 / one.mtbf_s * 3600)
    assert found().recover_s == pytest.approx(360 + 16 + found().blocked_s)


def test_a_training_that_is_never_done_has_no_step() -> None:
    never = found(rates=NEVER | {"gpu": 1e6}, interval="2000000s")
    assert (never.goodput, never.effective_step_s) == (0.0, float("inf"))
