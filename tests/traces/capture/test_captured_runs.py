"""A captured step runs: folded and unfolded, on a cluster, from the command line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from helpers.captured import recordings
from helpers.captured_programs import recording, stages, work
from msgspec.structs import replace

from commsim import run as run_scenario
from commsim.cluster import Cluster
from commsim.engine import folded, simulate
from commsim.errors import ScenarioError
from commsim.graph import Graph, OpKind, load_graph, save_graph
from commsim.graph.refold import refold
from commsim.libraries import Ideal
from commsim.models.roofline import resolve_durations
from commsim.traces.capture.assemble import assemble
from commsim.traces.capture.records import CapturedWork


def timed(graph: Graph) -> Graph:
    """Give every compute op a time that its name and bytes decide."""
    compute = graph.kind == OpKind.COMPUTE
    return replace(
        graph, duration=np.where(compute, 1_000_000 + 10 * graph.traffic, -1).astype(int)
    )


@pytest.mark.parametrize("run", ["fsdp2-tp-4", "1f1b-4", "ddp-4", "interleaved-2"])
def test_refolded_runs_the_same(run: str, tmp_path: Path) -> None:
    """A graph on disk, with every rank on a lane of its own again, takes the same time."""
    cluster = Cluster.preset("dgx-h100", nodes=1)
    save_graph(timed(assemble(recordings(run))), tmp_path / "g.npz")
    graph = load_graph(tmp_path / "g.npz")
    world = int(graph.multiplicity.sum())
    apart = refold(graph, np.arange(world))
    assert apart.folding is None
    assert apart.lane_rank.tolist() == list(range(world))
    one = simulate(apart, cluster, library=Ideal()).end.max()
    small, planner = folded(graph, cluster, Ideal())
    other = simulate(small, cluster, library=Ideal(), planner=planner).end.max()
    assert abs(one - other) <= 20


def test_captured_ranks_and_folded_ones_make_the_same_graph() -> None:
    """Four captured ranks are one lane written four times."""
    found = recordings("fsdp2-tp-4")
    one = timed(assemble({0: found[0]}))
    four = timed(assemble(found))
    assert len(one.lane_rank) == 1
    assert len(four.lane_rank) == 4
    cluster = Cluster.preset("dgx-h100", nodes=1)
    ends = [
        int(simulate(g, cluster, library=Ideal()).end.max())
        for g in (refold(one, np.arange(4)), four)
    ]
    assert abs(ends[0] - ends[1]) <= 20


def test_refold_keeps_windows_names_and_dependencies() -> None:
    graph = timed(assemble(stages()))
    apart = refold(graph, np.arange(4))
    assert [group.name for group in apart.groups] == ["pp0", "pp0.1"]
    assert {group.axis for group in apart.groups} == {"pp"}
    assert [g.ranks for g in apart.groups] == [(0, 2), (1, 3)]
    assert apart.messages.source.tolist() == [0, 1]
    assert apart.messages.target.tolist() == [2, 3]
    assert apart.meta == graph.meta


def test_unfolded_graph_stays() -> None:
    graph = assemble({r: recording(work("a"), rank=r) for r in (0, 1)})
    assert refold(graph, np.arange(2)) is graph


def test_captured_step_on_a_cluster() -> None:
    """A step of FSDP2 x TP takes at least what its compute takes."""
    cluster = Cluster.preset("dgx-h100", nodes=1)
    graph = resolve_durations(assemble(recordings("fsdp2-tp-4")), cluster)
    compute = graph.duration[graph.flops >= 0]
    assert compute.min() > 0
    timeline = simulate(refold(graph, np.arange(4)), cluster, library=Ideal())
    lane = timeline.graph.lane == 0
    stream = timeline.graph.stream == timeline.graph.streams.index("compute")
    busy = timeline.graph.duration[lane & stream & (timeline.graph.duration > 0)].sum()
    assert timeline.end.max() >= busy


def test_gpus_of_one_name_have_times_of_their_own(tmp_path: Path) -> None:
    """Ranks on H100s with a tenth of the bandwidth take longer than those of the same lane."""
    copy = CapturedWork("copy_", 0, 0.0, 3 * 10**9)
    save_graph(assemble({0: recording(copy, world=16)}), tmp_path / "g.npz")
    fast, slow = (
        f"{{preset: aws-p5, overrides: {{gpu: {{memory_bandwidth: {bandwidth}}}}}}}"
        for bandwidth in ("3350GB/s", "335GB/s")
    )
    times = []
    for nodes in (f"{fast}, {fast}", f"{fast}, {slow}"):
        (tmp_path / "s.yaml").write_text(
            f"cluster: {{nodes: [{nodes}]}}\nworkload: {{graph: g.npz, host_overhead: 0}}\n"
        )
        times.append(run_scenario(tmp_path / "s.yaml").metrics.step_time_s)
    assert times[1] > 9 * times[0]


def test_captured_graph_needs_a_cluster(tmp_path: Path) -> None:
    save_graph(assemble(recordings("ddp-2")), tmp_path / "g.npz")
    (tmp_path / "s.yaml").write_text("workload: {graph: g.npz}\n")
    with pytest.raises(ScenarioError, match="captured from a script.*Add a cluster"):
        run_scenario(tmp_path / "s.yaml")


def test_captured_graph_is_too_large_for_the_cluster(tmp_path: Path) -> None:
    save_graph(assemble({0: recording(work("a"), world=9)}), tmp_path / "g.npz")
    (tmp_path / "s.yaml").write_text(
        "cluster: {preset: dgx-h100, nodes: 1}\nworkload: {graph: g.npz}\n"
    )
    with pytest.raises(ScenarioError, match="9 ranks.*8 GPUs|rank 8.*8 GPUs"):
        run_scenario(tmp_path / "s.yaml")


def test_run_of_a_captured_graph(tmp_path: Path) -> None:
    """Folded or not, fluid or step by step; with what its memory comes to."""
    save_graph(assemble(recordings("fsdp2-4")), tmp_path / "g.npz")
    (tmp_path / "s.yaml").write_text(
        "cluster: {preset: dgx-h100, nodes: 1}\nworkload: {graph: g.npz}\n"
    )
    folded_run = run_scenario(tmp_path / "s.yaml")
    whole = run_scenario(tmp_path / "s.yaml", ["engine.fold=off"])
    assert folded_run.metrics.step_time_s == pytest.approx(whole.metrics.step_time_s, rel=1e-6)
    memory = folded_run.metrics.memory_gib
    kept = recordings("fsdp2-4")[0].memory
    assert memory is not None
    assert memory["parameters"] * 2**30 == kept.parameters > 0
    assert memory["peak"] * 2**30 == pytest.approx(kept.peak, rel=0.25)
    assert any("captured from" in note for note in folded_run.notes)
