"""Recorded steps say which GPU is slow, how fast the others are, and what a launch takes."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import yaml
from helpers.kineto_writer import Recording

import commsim as cs
from commsim.cli.main import call
from commsim.errors import TraceError
from commsim.metrics import breakdown
from commsim.study.calibrate.predicted import BenchedMachine
from commsim.units import PS_PER_SECOND

KERNELS = ("gemm", "attention", "norm")
NOISE = (0.0, 0.01, -0.01, 0.005)
LAUNCH = 6.0  # us from the call to a kernel on an idle GPU


def steps(
    folder: Path, *, ranks: int = 4, slow: int = -1, times: float = 1.2, base: float = 1000.0
) -> Path:
    """Write four steps of each rank: three kernels of `base` us, one of NCCL that waits."""
    for rank in range(ranks):
        record = Recording(rank, world=ranks)
        for number, noise in enumerate(NOISE):
            at = 1e6 + 10 * base * number
            record.note(f"ProfilerStep#{number}", at, 9 * base)
            record.op("aten::mm", at + 1, 8 * base)
            began = at + 10 + LAUNCH
            for name in KERNELS:
                took = base * (1 + noise) * (times if rank == slow else 1)
                record.kernel(name, at + 10, began, took)
                began += took
            record.all_reduce(at + 30, began, at + 5 * base)
        record.save(folder)
    return folder


def test_a_gpu_20_percent_slow_is_found_and_predicts_the_steps_left_out(tmp_path: Path) -> None:
    found = cs.calibrate_steps(steps(tmp_path, slow=2), "dgx-h100")
    (slow,) = found.slow
    assert slow.rank == 2
    assert slow.times == pytest.approx(1.2, rel=1e-6)
    mine = [row for row in found.steps if row.rank == 2 and not row.fitted_to]
    assert [row.step for row in mine] == ["ProfilerStep#1", "ProfilerStep#3"]
    for row in mine:  # as the others': a sixth too short; fitted: what the steps scatter
        assert row.given_s / row.measured_s == pytest.approx(1 / 1.2, abs=0.02)
        assert row.predicted_s / row.measured_s == pytest.approx(1, abs=0.02)
    assert found.launch_s == pytest.approx(LAUNCH * 1e-6, rel=1e-3)
    assert found.cluster["overrides"]["host"]["launch"] == "6000ns"


def test_gpus_that_differ_by_little_are_not_called_slow(tmp_path: Path) -> None:
    assert cs.calibrate_steps(steps(tmp_path, slow=1, times=1.05), "dgx-h100").slow == ()


def test_stages_that_run_other_kernels_are_not_compared(tmp_path: Path) -> None:
    """Rank 1 runs kernels of its own, and takes twice as long: nobody can say that it is slow."""
    path = steps(tmp_path, ranks=2, slow=1, times=2.0) / "rank1.json"
    text = path.read_text()
    for name in KERNELS:
        text = text.replace(f'"{name}"', f'"{name}_of_another_stage"')
    path.write_text(text)
    assert cs.calibrate_steps(tmp_path, "dgx-h100").slow == ()


def scenario(folder: Path) -> Path:
    path = folder / "training.yaml"
    path.write_text(
        yaml.safe_dump(
            {
                "cluster": {"preset": "dgx-h100", "overrides": {"gpu": {"count": 4}}},
                "workload": {
                    "training": {
                        "model": {"preset": "gpt2-124m"},
                        "batch": {"global": 64, "micro": 16},
                        "parallel": {"dp": 4},
                    }
                },
            }
        )
    )
    return path


def test_the_scale_of_compute_comes_back_and_the_file_trains_so_long(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """GPUs that take 1.3 times what is predicted: the fitted cluster predicts the other steps."""
    training = scenario(tmp_path)
    cluster = tmp_path / "given.yaml"
    cluster.write_text("preset: dgx-h100\noverrides: {gpu: {count: 4}}\n")
    predicted = int(breakdown(cs.run(training).timeline).compute[0]) / PS_PER_SECOND
    traces = steps(_made(tmp_path / "traces"), slow=3, base=predicted * 1.3e6 / 3)
    mine, out = tmp_path / "mine.yaml", tmp_path / "mine.json"
    line = ["calibrate", "--trace", str(traces), "--training", str(training), "--cluster"]
    assert call([*line, str(cluster), "-o", str(mine), "--json", str(out)]) == 0
    said = capsys.readouterr().out
    assert "rank 3: the same kernels take 1.2 times as long" in said
    written = json.loads(out.read_text())
    assert written["schema"] == 1
    found = written["training"]
    assert found["before"] == pytest.approx(1 - 1 / 1.3, abs=0.02)
    assert found["after"] < 0.02
    assert found["times"] > 1.25
    assert found["steps"][0]["given_s"] == pytest.approx(predicted, rel=1e-6)
    again = cs.calibrate_steps(traces, mine, training=training)
    assert again.steps[0].given_s == pytest.approx(1.3 * predicted, rel=0.02)


def test_a_scenario_of_another_training_is_refused(tmp_path: Path) -> None:
    cluster = tmp_path / "given.yaml"
    cluster.write_text("preset: dgx-h100\noverrides: {gpu: {count: 4}}\n")
    with pytest.raises(TraceError, match="it is another training"):
        cs.calibrate_steps(
            steps(_made(tmp_path / "traces"), base=10.0), cluster, training=scenario(tmp_path)
        )


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def test_traces_without_compute_and_calls_without_anything_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = Recording(0)
    record.note("ProfilerStep#1", 1e6, 100)
    record.op("aten::mm", 1e6 + 1, 50)
    record.save(tmp_path)
    with pytest.raises(TraceError, match="no profiled step computes on a GPU"):
        cs.calibrate_steps(tmp_path, "dgx-h100")
    assert call(["calibrate", "--cluster", "dgx-h100"]) == 2
    assert "--trace" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("cluster", "nodes"),
    [
        ({"preset": "dgx-a100", "nodes": 3}, 3), ({"preset": "dgx-a100"}, 1), (None, 1),
        ({"nodes": [{"preset": "dgx-a100"}, {"preset": "dgx-h100"}]}, 1),
    ],
)  # fmt: skip
def test_a_training_is_moved_to_as_many_nodes_of_the_machine(
    cluster: Any, nodes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own cluster is put aside; of a list of nodes nobody knows which they would be."""
    work = {"collectives": [{"op": "barrier", "bytes": "0B"}]}
    path = tmp_path / "x.yaml"
    path.write_text(yaml.safe_dump({"workload": work} | ({"cluster": cluster} if cluster else {})))
    module = sys.modules["commsim.study.calibrate.training"]
    moved: list[Any] = []

    def run(scenario: Any) -> Any:
        moved.append(scenario.file.cluster)
        raise TraceError("seen")

    monkeypatch.setattr(module, "run", run)
    machine = BenchedMachine("m", {"preset": "dgx-h100"})
    with pytest.raises(TraceError, match="seen"):
        module._simulated(path, machine, {0: []})
    assert (moved[0].preset, moved[0].nodes) == ("dgx-h100", nodes)


@pytest.mark.parametrize(("rank", "known"), [(0, True), (3, True), (4, False)])
def test_ranks_that_a_training_does_not_have_are_refused(
    rank: int, known: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of four GPUs whose lanes stand in another order; folded, the ranks of one lane take alike."""
    module = sys.modules["commsim.study.calibrate.training"]
    graph = SimpleNamespace(folding=None, lane_rank=np.array([2, 0, 3, 1]))
    result = SimpleNamespace(timeline=SimpleNamespace(graph=graph))
    took = SimpleNamespace(compute=np.array([30, 10, 40, 20]))
    monkeypatch.setattr(module, "run", lambda _: result)
    monkeypatch.setattr(module, "breakdown", lambda _: took)
    machine = BenchedMachine("m", {"preset": "dgx-h100"})
    if known:
        found = module._simulated(scenario(tmp_path), machine, {rank: []})
        assert found == {rank: 10.0 * (rank + 1)}
        graph.folding = SimpleNamespace(lane_of=np.array([1, 1, 3, 3]))
        found = module._simulated(scenario(tmp_path), machine, {rank: []})
        assert found == {rank: {0: 10.0, 3: 20.0}[rank]}
        return
    with pytest.raises(TraceError, match="trains on 4 GPUs, and rank 4 is recorded"):
        module._simulated(scenario(tmp_path), machine, {0: [], rank: []})
