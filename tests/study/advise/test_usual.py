"""The usual layouts: every one within their rules, and each rule reached."""

from __future__ import annotations

from commsim.scenario import scenario_from
from commsim.study.advise.simulate import Worker
from commsim.study.advise.usual import UsualJudge

MODEL = {"layers": 12, "hidden": 1536, "heads": 12, "vocab": 1024, "seq_len": 512}


def test_tensor_parallelism_is_a_power_of_two_and_up_to_four_sequences_go_at_once() -> None:
    """Six GPUs of a node: twelve heads could be cut in three or six as well."""
    training = {"model": MODEL, "batch": {"global": 48, "micro": 1}}
    cluster = {"preset": "dgx-h100", "overrides": {"gpu": {"count": 6}, "nic": {"count": 6}}}
    worker = Worker(scenario_from({"cluster": cluster, "workload": {"training": training}}, "x"))
    usual = UsualJudge(worker.section, worker.cluster, worker.library)
    assert {one.tp for one in worker.judge.degrees()} == {1, 2, 3, 6}
    assert {one.tp for one in usual.degrees()} == {1, 2}
    shapes = [shape for degrees in usual.degrees() for _, shape in usual.shapes(degrees)]
    assert {shape.micro for shape in shapes} == {1, 2, 4}
    assert {shape.overlap for shape in shapes} == {"none", "ring"}
    assert all((shape.overlap == "ring") == (shape.degrees.tp > 1) for shape in shapes)
