"""The usual layouts: every one within their rules, and each rule reached."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from commsim.scenario import scenario_from
from commsim.study.advise.judge import Judge
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


def usual_of(*given: tuple[int, int, int, int], sequences: int = 8, domain: int = 8) -> Any:
    """Return a judge of degrees (tp, pp, cp, dp) on two domains, the other one larger."""
    judge: Any = UsualJudge.__new__(UsualJudge)
    judge._section = SimpleNamespace(batch=SimpleNamespace(global_=sequences))
    judge._cluster = SimpleNamespace(domains=np.repeat([0, 1], [domain, domain + 8]))
    judge.given = [SimpleNamespace(tp=tp, pp=pp, cp=cp, dp=dp) for tp, pp, cp, dp in given]
    return judge


@pytest.mark.parametrize(
    ("degrees", "domain", "usual"),
    [
        ((1, 1, 1, 1), 8, True), ((8, 1, 1, 1), 8, True), ((16, 1, 1, 1), 8, False),
        ((16, 1, 1, 1), 32, True), ((32, 1, 1, 1), 32, False), ((3, 1, 1, 1), 8, False),
        ((6, 1, 1, 1), 8, False), ((1, 16, 1, 1), 8, True), ((1, 17, 1, 1), 8, False),
        # 8 sequences: ranks of a context are for what replicas do not need.
        ((1, 1, 2, 4), 8, False), ((1, 1, 2, 5), 8, True), ((1, 1, 4, 2), 8, False),
        ((1, 1, 1, 8), 8, True), ((1, 1, 9, 1), 8, True), ((1, 1, 8, 1), 8, False),
    ],
)  # fmt: skip
def test_degrees_that_people_run(
    degrees: tuple[int, int, int, int], domain: int, usual: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Judge, "degrees", lambda self: iter(self.given))
    judge = usual_of(degrees, domain=domain)
    assert list(judge.degrees()) == (judge.given if usual else [])


@pytest.mark.parametrize(
    ("tp", "micro", "schedule", "overlap", "usual"),
    [
        (1, 1, "1f1b", "none", True), (1, 4, "interleaved_1f1b", "none", True),
        (1, 5, "1f1b", "none", False), (1, 1, "gpipe", "none", False),
        (1, 1, "1f1b", "ring", False), (2, 1, "1f1b", "ring", True), (2, 1, "1f1b", "none", False),
    ],
)  # fmt: skip
def test_settings_that_people_run(
    tp: int, micro: int, schedule: str, overlap: str, usual: bool
) -> None:
    shape: Any = SimpleNamespace(
        degrees=SimpleNamespace(tp=tp), micro=micro, schedule=schedule, overlap=overlap
    )
    assert usual_of().allowed(shape) is usual


def test_shards_that_people_use(monkeypatch: pytest.MonkeyPatch) -> None:
    ways = ["ddp", "zero-1", "zero-2", "fsdp", "hsdp"]
    monkeypatch.setattr(Judge, "shardings", lambda self, degrees: ways)
    assert usual_of().shardings(None) == ["ddp", "zero-1", "fsdp"]
