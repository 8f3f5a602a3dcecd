"""Folded and unfolded training steps are the same steps, over many layouts and fabrics."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.share import share

from commsim.cluster import Cluster
from commsim.engine import folded, simulate
from commsim.graph import Graph, OpKind
from commsim.libraries import Ideal, Library
from commsim.libraries.nccl.plans.library import Nccl
from commsim.metrics import Metrics, measure
from commsim.sections import decode
from commsim.workload import TrainingSection, build_training
from commsim.workload.training import build

MODEL = {"layers": 4, "hidden": 512, "heads": 8, "vocab": 4096, "seq_len": 256}
EXPERTS = {**MODEL, "experts": {"experts": 8, "top_k": 2, "expert_ffn": 256}}
SPINE = {"kind": "fat_tree", "oversubscription": 4}

LAYOUTS: list[tuple[str, int, dict[str, Any]]] = [
    ("dgx-h100", 2, {"parallel": {"dp": 16}}),
    ("dgx-h100", 2, {"parallel": {"dp": 16}, "data_parallel": {"kind": "zero", "stage": 1}}),
    ("dgx-h100", 2, {"parallel": {"dp": 16}, "data_parallel": {"kind": "fsdp"}}),
    ("dgx-h100", 4, {"parallel": {"dp": 32}, "data_parallel": {"kind": "hsdp", "shard": 8}}),
    ("dgx-h100", 4, {"parallel": {"tp": 4, "pp": 2, "dp": 4, "sequence_parallel": True}}),
    ("dgx-h100", 4, {"parallel": {"tp": 2, "pp": 4, "dp": 4, "schedule": "zb_v"}}),
    ("dgx-h100", 4, {"parallel": {"tp": 8, "pp": 2, "dp": 2, "order": ["tp", "pp", "cp", "dp"]}}),
    ("dgx-h100", 2, {"parallel": {"cp": 4, "dp": 4}}),
    ("dgx-h100", 2, {"parallel": {"dp": 16, "ep": 8}, "model": EXPERTS}),
    ("dgx-h100", 2, {"parallel": {"dp": 16, "ep": 8, "expert_skew": 2}, "model": EXPERTS}),
    ("dgx-h100", 2, {"parallel": {"dp": 8, "tp": 2, "ep": 4, "etp": 1, "sequence_parallel": True},
                     "model": EXPERTS}),
    ("dgx-h100", 2, {"parallel": {"dp": 4, "tp": 4, "ep": 8, "etp": 1, "sequence_parallel": True},
                     "data_parallel": {"kind": "fsdp"}, "model": EXPERTS}),
    ("dgx-1v", 4, {"parallel": {"pp": 4, "dp": 8}}),
    ("dgx-1v", 2, {"parallel": {"dp": 16},
                   "data_parallel": {"kind": "zero", "stage": 2, "offload": "cpu"}}),
    ("dgx-h100", 8, {"parallel": {"dp": 16, "pp": 4}, "fabric": SPINE}),
]  # fmt: skip


def run(
    preset: str, nodes: int, settings: dict[str, Any], *, fold: bool, library: Library | None = None
) -> tuple[Metrics, int]:
    given, library = dict(settings), library or Ideal()
    fabric = given.pop("fabric", None)
    cluster = Cluster.preset(preset, nodes=nodes, **({"fabric": fabric} if fabric else {}))
    parallel = given["parallel"]
    microbatches = 2 * parallel.get("pp", 1)
    model = {**MODEL, "layers": 8 if parallel.get("pp", 1) > 2 else 4}
    base = {"model": model, "batch": {"global": microbatches * parallel.get("dp", 1), "micro": 1},
            "compute": {"efficiency": 0.4}, "precision": "fp16"}  # fmt: skip
    section = decode({**base, **given}, TrainingSection, "x.yaml")
    work = build_training(section, cluster, fold=fold)
    if not fold:
        assert work.graph.folding is None
        return measure(simulate(work.graph, cluster, library=library)), len(work.graph.lane_rank)
    graph, planner = folded(work.graph, cluster, library)
    timeline = simulate(graph, cluster, library=library, planner=planner)
    return measure(timeline), len(graph.lane_rank)


@pytest.mark.parametrize(("preset", "nodes", "settings"), share(LAYOUTS, 0.6))
def test_folding_changes_nothing(preset: str, nodes: int, settings: dict[str, Any]) -> None:
    whole, ranks = run(preset, nodes, settings, fold=False)
    small, lanes = run(preset, nodes, settings, fold=True)
    assert lanes < ranks
    assert small.step_time_s == pytest.approx(whole.step_time_s, rel=1e-6)
    for part in ("compute_s", "exposed_transfer_s", "waiting_s", "idle_s", "comm_s"):
        found, expected = getattr(small.breakdown, part), getattr(whole.breakdown, part)
        assert found == pytest.approx(expected, rel=1e-4, abs=1e-9)
    if whole.bubble_fraction is not None:
        assert small.bubble_fraction == pytest.approx(whole.bubble_fraction, abs=1e-6)


def test_a_small_bucket_on_one_nic_tells_ranks_apart_only_where_that_counts() -> None:
    """A tenth of the lanes give the same step; a share below the bucket's keeps all lanes."""
    cluster = Cluster.preset("dgx-h100", nodes=4)
    section = decode(
        {"model": {"layers": 4, "hidden": 2048, "heads": 16, "vocab": 4096, "seq_len": 1024},
         "batch": {"global": 64, "micro": 1}, "parallel": {"dp": 8, "pp": 2, "cp": 2},
         "data_parallel": {"kind": "zero", "stage": 2, "bucket": "16MiB"}},
        TrainingSection, "x.yaml",
    )  # fmt: skip
    coarse, library = build_training(section, cluster, fold=True).graph, Nccl()
    lanes, steps = [], []
    for negligible in (0.0, 1e-9, 1e-3):
        graph, planner = folded(coarse, cluster, library, negligible=negligible)
        timeline = simulate(graph, cluster, library=library, planner=planner)
        lanes.append(len(graph.lane_rank))
        steps.append(measure(timeline).step_time_s)
    assert lanes == [10, 10, 2]
    assert steps == pytest.approx([steps[0]] * 3, rel=1e-4)


def test_links_that_are_never_full_tell_nobody_apart() -> None:
    """Eight nodes, pods of three: pairs of stages meet on a leaf or above, at the same rate."""
    settings: dict[str, Any] = {
        "parallel": {"tp": 8, "pp": 2, "dp": 4}, "batch": {"global": 16, "micro": 1},
        "fabric": {"kind": "rail_optimized", "radix": 6},
    }  # fmt: skip
    whole, ranks = run("dgx-h100", 8, settings, fold=False, library=Nccl())
    small, lanes = run("dgx-h100", 8, settings, fold=True, library=Nccl())
    assert (ranks, lanes) == (64, 2)
    assert small.step_time_s == pytest.approx(whole.step_time_s, rel=1e-9)
    used = {link.name: link.bytes for link in whole.links}
    assert any("spine" in link.name for link in small.links)
    for link in small.links:
        assert link.bytes == pytest.approx(used[link.name], rel=1e-6)


def by_lane(graph: Graph) -> dict[str, np.ndarray]:
    """Return what each op is, in the order of lanes and streams, and what it waits for."""
    order = np.lexsort((np.arange(len(graph)), graph.stream, graph.lane))
    place = np.argsort(order)
    target = place[np.repeat(np.arange(len(graph)), np.diff(graph.dep_ptr))]
    speaks = np.flatnonzero(graph.kind[order] == OpKind.COLLECTIVE)
    group = graph.collectives.group[graph.item[order[speaks]]]
    ranks = {at: repr(group.ranks) for at, group in enumerate(graph.groups)}
    table = graph.messages
    ends = np.stack((table.source, table.target, place[table.send_op], place[table.recv_op]))
    columns = ("duration", "size", "traffic", "alloc", "free", "layer", "microbatch", "kind")
    return {
        "lanes": graph.lane_rank,
        "names": np.array(graph.names)[graph.name[order]],
        "streams": np.array(graph.streams)[graph.stream[order]],
        **{column: getattr(graph, column)[order] for column in columns},
        "dependencies": np.unique(np.stack((target, place[graph.dep_op])), axis=1),
        "groups": np.array([ranks[at] for at in group.tolist()]),
        "messages": np.unique(ends, axis=1),
    }


@pytest.mark.parametrize(("preset", "nodes", "settings"), LAYOUTS[1:8:3])
def test_what_is_laid_down_once_and_copied_is_what_every_rank_does(
    preset: str, nodes: int, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = dict(settings)
    given.pop("fabric", None)
    base = {"model": MODEL, "batch": {"global": 32, "micro": 1}, "precision": "fp16"}
    section = decode({**base, **given}, TrainingSection, "x.yaml")
    cluster = Cluster.preset(preset, nodes=nodes)
    singly = build_training(section, cluster).graph
    monkeypatch.setattr(build, "SINGLY", 1)
    once = build_training(section, cluster).graph
    assert once.folding is None
    assert len(once.lane_rank) == len(singly.lane_rank) == cluster.world_size
    found, expected = by_lane(once), by_lane(singly)
    for fact, values in expected.items():
        assert np.array_equal(found[fact], values), fact
