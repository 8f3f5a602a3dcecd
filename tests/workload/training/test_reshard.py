"""When whole parameters are given up and gradients reduced: per microbatch, or once per step."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from helpers.toy_cluster import SMALL

from commsim.cluster import Cluster
from commsim.errors import ScenarioError
from commsim.sections import decode
from commsim.workload import TrainingSection, build_training
from commsim.workload.result import TrainingFacts

MODEL = {**SMALL, "hidden": 1024, "heads": 8, "seq_len": 512, "layers": 4}
UNITS = 4 + 2
MICROBATCHES, STEPS = 4, 2


def built(data: dict[str, Any], **settings: Any) -> tuple[Counter[str], TrainingFacts, str]:
    base: dict[str, Any] = {
        "model": MODEL, "batch": {"global": 8 * MICROBATCHES, "micro": 1},
        "parallel": {"dp": 8}, "data_parallel": {"kind": "fsdp", **data},
    }  # fmt: skip
    section = decode({**base, **settings}, TrainingSection, "x")
    workload = build_training(section, Cluster.preset("dgx-h100", nodes=1))
    graph = workload.graph
    first = graph.name[graph.lane == 0].tolist()
    ops = Counter(graph.names[name].split()[0] for name in first if name >= 0)
    assert workload.training is not None
    return ops, workload.training, " ".join(workload.notes)


def test_parameters_are_gathered_in_every_pass_of_every_microbatch() -> None:
    ops, _, _ = built({})
    assert ops["all_gather"] == STEPS * MICROBATCHES * 2 * UNITS
    assert ops["reduce_scatter"] == STEPS * MICROBATCHES * UNITS


@pytest.mark.parametrize("no_sync", [False, True])
def test_kept_for_a_step_they_are_gathered_once(no_sync: bool) -> None:
    ops, facts, notes = built({"reshard": "step", "no_sync": no_sync})
    assert ops["all_gather"] == STEPS * UNITS
    assert ops["reduce_scatter"] == STEPS * UNITS * (1 if no_sync else MICROBATCHES)
    assert "once per step" in notes
    assert ("behind the last microbatch" in notes) == no_sync
    assert facts.resident[0].buffers > 2 * facts.parameters


def test_without_sync_whole_gradients_are_added_up() -> None:
    """Their bytes are those of all parameters, in fp32; shards of them with sync."""
    _, facts, _ = built({"no_sync": True})
    _, synced, _ = built({"no_sync": False})
    assert facts.resident[0].gradients == 4 * facts.parameters
    assert synced.resident[0].gradients == pytest.approx(4 * facts.parameters / 8, rel=1e-3)
    single = {"batch": {"global": 8, "micro": 1}}
    assert built({"no_sync": True}, **single)[1].resident == built({}, **single)[1].resident


def test_a_pipeline_keeps_its_stages_whole_for_a_step() -> None:
    """As torch's PipelineStage does; said among the defaults, and undone by what is written."""
    staged = {"parallel": {"dp": 4, "pp": 2}, "batch": {"global": 16, "micro": 1}}
    ops, _, notes = built({}, **staged)
    assert ops["all_gather"] == STEPS * UNITS // 2
    assert ops["reduce_scatter"] == STEPS * UNITS // 2
    assert "no_sync true, reshard step" in notes
    every, _, _ = built({"reshard": "microbatch", "no_sync": False}, **staged)
    assert every["all_gather"] == STEPS * MICROBATCHES * UNITS


def test_grad_op_and_reshard_are_two_answers_to_one_question() -> None:
    with pytest.raises(ScenarioError, match=r"data_parallel\.reshard: shard grad_op says already"):
        built({"shard": "grad_op", "reshard": "step"})
