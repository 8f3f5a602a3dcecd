"""Capturing real scripts: needs torch, which is too large to be asked of everybody."""

from __future__ import annotations

import resource
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from helpers.captured import recordings
from helpers.paths import ROOT

from commsim import run
from commsim.cli.main import call
from commsim.errors import ScenarioError, TraceError
from commsim.graph import Graph, OpKind, load_graph, save_graph
from commsim.traces.capture import capture
from commsim.traces.capture.processes import record_ranks
from commsim.traces.capture.records import CapturedWork, Recording, Sync

pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="needs torch")


SCRIPTS = ROOT / "scenarios/scripts"
TINY = ("--model", "tiny", "--length", "128")


def collectives(graph: Graph) -> dict[tuple[str, str], int]:
    """Return how many of each kind over each axis are issued, all lanes together."""
    found: dict[tuple[str, str], int] = {}
    for op in np.flatnonzero(graph.kind == OpKind.COLLECTIVE).tolist():
        row = int(graph.item[op])
        key = (graph.collectives.kind[row], graph.groups[graph.collectives.group[row]].axis)
        found[key] = found.get(key, 0) + 1
    return found


def products(layers: int, hidden: int, ffn: int, vocab: int) -> int:
    """Return the entries of all matrices that tokens are multiplied with."""
    return layers * (4 * hidden**2 + 3 * hidden * ffn) + vocab * hidden


@pytest.mark.parametrize("recompute", [True, pytest.param(False, marks=pytest.mark.long)])
def test_fsdp_step(recompute: bool) -> None:
    """Every unit is gathered forward and, but for the last in use, again backward.

    Where layers are recomputed their forward runs again in the backward, but for its last product.
    """
    arguments = (*TINY, "--recompute") if recompute else TINY
    graph = capture(SCRIPTS / "fsdp2.py", world_size=16, arguments=arguments, ranks=(0,))
    assert graph.multiplicity.tolist() == [16]
    assert collectives(graph) == {("all_gather", "world"): 9, ("reduce_scatter", "world"): 5}
    N = products(4, 128, 512, 1000)
    attention = 4 * (2 + 5) * 2 * 128 * 128 * 128
    again = 4 * (2 * 128 * (4 * 128**2 + 2 * 128 * 512) + 2 * 2 * 128**3)
    plain = 6 * N * 128 + attention
    assert graph.meta["capture"]["model_flops"] == 16 * plain
    assert graph.meta["capture"]["hardware_flops"] == 16 * (plain + again * recompute)
    memory = graph.meta["capture"]["memory"]["0"]
    entries = N + 128 * 1000 + 9 * 128  # the embedding and the norms as well
    assert memory["parameters"] == pytest.approx(4 * entries / 16, rel=0.02)  # fp32, padded
    assert memory["optimizer"] == pytest.approx(2 * memory["parameters"], rel=0.01)
    assert memory["peak"] > memory["parameters"] + memory["gradients"] + memory["optimizer"]


def test_three_kinds_of_parallelism(tmp_path: Path) -> None:
    graph = capture(
        SCRIPTS / "fsdp2_tp_pp.py", world_size=16, arguments=(*TINY, "--microbatches", "4")
    )
    assert graph.lane_rank.tolist() == [0, 8]
    assert graph.multiplicity.tolist() == [8, 8]
    assert {g.axis: len(g.ranks) for g in graph.groups} == {"tp": 2, "dp": 4, "pp": 2}
    # 4 microbatches forth and back, of half the sequence each, in bf16
    assert graph.messages.size.tolist() == [128 // 2 * 128 * 2] * 8
    save_graph(graph, tmp_path / "g.npz")
    (tmp_path / "s.yaml").write_text(
        "cluster: {preset: dgx-h100, nodes: 2}\nworkload: {graph: g.npz}\n"
    )
    whole = run(tmp_path / "s.yaml", ["engine.fold=off"]).metrics
    folded = run(tmp_path / "s.yaml").metrics
    assert folded.step_time_s == pytest.approx(whole.step_time_s, rel=1e-9)
    assert folded.bubble_fraction == pytest.approx(whole.bubble_fraction, rel=1e-6)
    assert folded.memory_gib is not None
    assert folded.memory_gib["fits"]
    assert folded.tokens_per_s is None


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The whole way: script, graph, cluster."""
    output = tmp_path / "g.npz"
    script = str(SCRIPTS / "ddp.py")
    assert call(["capture", script, "--world-size", "8", "-o", str(output), "--", *TINY]) == 0
    out = capsys.readouterr()
    assert "2 x all_reduce over world (8 ranks)" in out.out
    assert "rank 7 does the same as rank 0" in out.err
    assert collectives(load_graph(output)) == {("all_reduce", "world"): 2}
    (tmp_path / "s.yaml").write_text(
        "cluster: {preset: dgx-h100, nodes: 1}\nworkload: {graph: g.npz}\n"
    )
    assert call(["run", str(tmp_path / "s.yaml")]) == 0
    assert "captured from ddp.py" in capsys.readouterr().err


@pytest.mark.parametrize(("name", "rank"), [("fsdp2-tp-4", 3), ("1f1b-4", 1), ("ddp-4", 2)])
def test_recordings_in_the_tests_are_what_a_capture_gives(name: str, rank: int) -> None:
    program, world = name.rsplit("-", 1)
    script = ROOT / "benchmarks/capture_gloo.py"
    found = record_ranks(script, [rank], world=int(world), arguments=(program,))[rank]
    kept = recordings(name)[rank]
    assert calls_of(found.records) == calls_of(kept.records)
    assert found.groups == kept.groups


def calls_of(records: Sequence[Any]) -> list[Any]:
    """Keep what is communicated alone if torch is not the release of the recordings (2.13)."""
    torch = pytest.importorskip("torch")
    if torch.__version__.startswith("2.13"):
        return list(records)
    return [
        msgspec.structs.replace(one, alloc=0, free=0) if hasattr(one, "alloc") else one
        for one in records
        if not isinstance(one, CapturedWork)
    ]


def script(folder: Path, body: str) -> Path:
    """Write a script around `body`, with a process group and a layer at hand."""
    head = (
        "import torch, torch.distributed as dist\n"
        "dist.init_process_group('nccl')\n"
        "rank = dist.get_rank()\n"
        "layer = torch.nn.Linear(8, 8, device='cuda')\n"
        "x = torch.ones(4, 8, device='cuda')\n"
    )
    path = folder / "train.py"
    path.write_text(head + body)
    return path


def captured(folder: Path, body: str, *, world: int = 2, step: int = 2) -> Recording:
    return record_ranks(script(folder, body), [0], world=world, step=step)[0]


def test_value_of_a_tensor_is_told_and_waited_for(tmp_path: Path) -> None:
    found = captured(tmp_path, "y = layer(x)\nprint(y.sum().item())\nlayer(x)\n")
    assert found.notes[0].startswith("train.py:7: the value of a tensor was asked for")
    kinds = [type(r) for r in found.records]
    assert kinds.index(Sync) < len(kinds) - 1


def test_second_step_is_recorded_by_default(tmp_path: Path) -> None:
    body = (
        "opt = torch.optim.SGD(layer.parameters(), lr=1)\n"
        "for i in range(5):\n"
        "    layer(x[:i + 1]).sum().backward()\n"
        "    opt.step(); opt.zero_grad()\n"
    )
    for step in (1, 2, 4):
        found = captured(tmp_path, body, step=step)
        rows = [
            r.product.m
            for r in found.records
            if isinstance(r, CapturedWork) and r.op == "addmm" and r.product
        ]
        assert rows == [step]


def test_data_decides_a_shape(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"train\.py, line 6: .*(?s:.*)fixed split"):
        captured(tmp_path, "layer(x[x.sum(1) > 0])\n")


def test_fault_of_the_script_is_shown_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"rank 0: train\.py, line 6: ValueError: no data"):
        captured(tmp_path, "raise ValueError('no data')\n")


def test_script_that_ends_itself(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="ended with exit code 3"):
        captured(tmp_path, "raise SystemExit(3)\n")


def test_ranks_that_differ_must_be_named(tmp_path: Path) -> None:
    path = script(tmp_path, "layer(x)\nif rank < 2: dist.all_reduce(x)\n")
    with pytest.raises(TraceError, match="--ranks 0,3"):
        capture(path, world_size=4)


def test_named_ranks(tmp_path: Path) -> None:
    path = script(tmp_path, "layer(x)\nif rank == 0: layer(x)\ndist.all_reduce(x)\n")
    graph = capture(path, world_size=4, ranks=(0, 1))
    lanes = np.bincount(graph.lane[graph.kind == OpKind.COMPUTE])
    assert lanes[0] > lanes[1]
    assert sorted(graph.multiplicity.tolist()) == [1, 3]


STAGES = """
from torch import nn
from torch.distributed.pipelining import PipelineStage, {schedule}
device = torch.device("cuda")
parts = [nn.Linear(64, 64), nn.Sequential(nn.Linear(64, 64), {second}), *(nn.Identity(),) * 2]
parts = parts[: 2 * {chunks}]
stages = [PipelineStage(parts[i], i, len(parts), device) for i in range(rank, len(parts), 2)]
pipeline = {schedule}(stages if {chunks} > 1 else stages[0], 4, loss_fn=nn.functional.mse_loss)
full = torch.ones(8, 64, device=device)
opt = torch.optim.SGD(parts[rank].parameters(), lr=0.1)
for i in range(3):
    pipeline.step(*((full,) if rank == 0 else ()), **(dict(target=full) if rank == 1 else {{}}))
    opt.step(); opt.zero_grad()
"""


@pytest.mark.parametrize(
    ("schedule", "chunks"), [("Schedule1F1B", 1), ("ScheduleInterleaved1F1B", 2)]
)
def test_stages_infer_their_shapes(schedule: str, chunks: int, tmp_path: Path) -> None:
    """Each of 4 microbatches of 2 x 64 numbers crosses every border, and its gradient too."""
    body = STAGES.format(schedule=schedule, chunks=chunks, second="nn.ReLU()")
    graph = capture(script(tmp_path, body), world_size=2)
    sizes = graph.size[graph.kind == OpKind.SEND]
    assert sizes.tolist() == [2 * 64 * 4] * (2 * 4 * (2 * chunks - 1))


def test_a_stage_of_another_shape_than_was_taken(tmp_path: Path) -> None:
    """Stage 2, on rank 0, is captured before stage 1, whose outputs are no copy of stage 0's."""
    body = STAGES.format(
        schedule="ScheduleInterleaved1F1B", chunks=2, second="nn.Unflatten(1, (8, 8))"
    )
    with pytest.raises(TraceError, match=r"stage 1 has outputs of another shape .* input_args"):
        capture(script(tmp_path, body), world_size=2)


@pytest.mark.own_interpreter
def test_memory_is_freed(tmp_path: Path) -> None:
    """A tensor that nobody holds any more is gone; the peak knows it."""
    body = "\n".join(
        ["layer(x)", "a = torch.ones(1000, device='cuda')", "b = a * 2", "del a", "c = b * 2"]
    )
    found = captured(tmp_path, body)
    doubled, again = (r for r in found.records if isinstance(r, CapturedWork) and r.op == "mul")
    assert (doubled.alloc, doubled.free, again.alloc) == (4000, 4000, 4000)
    assert 8000 <= found.memory.peak < 12000


def test_autocast_and_streams_of_cuda(tmp_path: Path) -> None:
    body = (
        "side = torch.cuda.Stream()\n"
        "with torch.autocast('cuda', dtype=torch.bfloat16):\n"
        "    with torch.cuda.stream(side):\n"
        "        layer(x)\n"
        "torch.cuda.synchronize()\n"
    )
    found = captured(tmp_path, body)
    (product,) = (r for r in found.records if isinstance(r, CapturedWork) and r.op == "addmm")
    assert product.stream != 0
    assert product.product is not None
    assert product.product.dtype == "bfloat16"
    assert found.records[-1] == Sync(-1)


def test_no_such_script() -> None:
    with pytest.raises(ScenarioError, match=r"nowhere\.py: there is no such script"):
        capture("nowhere.py", world_size=2)


def test_ranks_outside_the_world(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="9 is not one of the ranks 0 to 3"):
        capture(script(tmp_path, ""), world_size=4, ranks=(0, 9))


@pytest.mark.own_interpreter
@pytest.mark.long
def test_seven_billion_parameters_on_1024_ranks() -> None:
    graph = capture(SCRIPTS / "fsdp2.py", world_size=1024, arguments=("--model", "7b"))
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss < 2**20  # kB: 1 GiB
    N, attention = products(32, 4096, 11008, 32000), 32 * (2 + 5) * 2 * 4096**3
    flops = graph.meta["capture"]["hardware_flops"] / 1024
    assert flops == pytest.approx(6 * N * 4096 + attention, rel=1e-3)
    assert collectives(graph) == {("all_gather", "world"): 65, ("reduce_scatter", "world"): 33}
