"""`advise`: the best of all layouts, by results and not by rule; the same however it is run."""

from __future__ import annotations

import json
import re
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from helpers.optional import present

from commsim.cli.main import call
from commsim.errors import ScenarioError
from commsim.scenario import Scenario, scenario_from
from commsim.study.advise import Advice, advise
from commsim.study.advise.judge import Judged
from commsim.study.advise.layouts import Candidate, Degrees, degrees_of
from commsim.study.advise.reasons import parts_of
from commsim.study.advise.search import SLACK
from commsim.study.advise.simulate import Worker
from commsim.study.run import run

MEDIUM = {"layers": 8, "hidden": 2048, "heads": 16, "vocab": 32000, "seq_len": 1024}
"""0.47e9 parameters: 7 GiB with gradients and optimizer."""
WIDE = {"layers": 2, "hidden": 6144, "heads": 16, "vocab": 1024, "seq_len": 512}
"""One layer is 6.75 GiB with its optimizer."""


def data(cluster: dict[str, Any], model: dict[str, Any], batch: int) -> dict[str, Any]:
    training = {"model": model, "batch": {"global": batch, "micro": 1}}
    return {"name": "x", "cluster": cluster, "workload": {"training": training}}


def box(memory: str, *, gpus: int = 4, nodes: int = 1, nic: str = "") -> dict[str, Any]:
    """Return PCIe boxes of GPUs with so much memory, with a NIC each where `nic` says so."""
    gpu = {"count": gpus, "spec": "A100-SXM4-40GB", "memory": memory}
    node: dict[str, Any] = {"gpu": gpu, "pcie": {"generation": 4}}
    if nic:
        node["nic"] = {"count": 1, "bandwidth": nic}
    return {"node": node, "nodes": nodes}


def scenario(cluster: dict[str, Any], model: dict[str, Any], batch: int) -> Scenario:
    return scenario_from(data(cluster, model, batch), "a scenario")


SLOW = box("6GB", gpus=2, nodes=2, nic="10Gbps")


@cache
def small() -> Advice:
    """A model of 7 GiB on four GPUs of 40 GB behind an NVSwitch."""
    cluster = box("40GB")
    cluster["node"]["nvlink"] = {"kind": "switch", "bandwidth": "300GB/s"}
    return advise(scenario(cluster, MEDIUM, 8), top=4)


@cache
def tight() -> Advice:
    """The same model on four GPUs of 6 GB."""
    return advise(scenario(box("6GB"), MEDIUM, 8), top=4)


@cache
def wide() -> Advice:
    return advise(scenario(box("6GB"), WIDE, 8), top=4)


@cache
def slow() -> Advice:
    """Two boxes of two such GPUs, with 10 Gb/s between them."""
    return advise(scenario(SLOW, MEDIUM, 8), top=3)


def every(worker: Worker) -> list[Judged]:
    """Judge all layouts that can run."""
    judge = worker.judge
    return [
        one
        for degrees in judge.degrees()
        for _, shape in judge.shapes(degrees)
        for one in judge.ways(shape)
    ]


def test_every_factorization_is_tried_once() -> None:
    """12 = 2 x 2 x 3 over dp, tp, pp, cp: ten ways to place the twos, four for the three."""
    found = list(degrees_of(12, experts=False, seq=4096))
    assert len(found) == len(set(found)) == 10 * 4
    assert all(d.dp * d.tp * d.pp * d.cp == 12 for d in found)


def test_experts_are_divided_by_divisors_of_the_replicas() -> None:
    found = [d.ep for d in degrees_of(4, experts=True, seq=2048) if d[:4] == (4, 1, 1, 1)]
    assert found == [1, 2, 4]


def test_no_sequence_is_cut_into_blocks_below_256_tokens() -> None:
    found = {d.cp for d in degrees_of(64, experts=False, seq=2048)}
    assert found == {1, 2, 4, 8}


def test_every_tp_overlap_is_tried() -> None:
    worker = Worker(scenario(box("40GB", gpus=2), MEDIUM, 4))
    cut = [shape for _, shape in worker.judge.shapes(Degrees(1, 2, 1, 1, 1))]
    assert {shape.overlap for shape in cut} == {"none", "weight", "ring"}
    whole = [shape for _, shape in worker.judge.shapes(Degrees(2, 1, 1, 1, 1))]
    assert {shape.overlap for shape in whole} == {"none"}
    candidate = cut[-1]._replace(overlap="weight", shard="ddp")
    assert worker.judge.section(candidate).parallel.tp_overlap == "weight"


def test_a_bound_lies_below_its_floors() -> None:
    """Bounds leave out sharding and messages; nothing that is judged may be below them."""
    worker = Worker(scenario(SLOW, MEDIUM, 4))
    bounds: dict[Candidate, float] = {}
    for degrees in worker.judge.degrees():
        for bound, shape in worker.judge.shapes(degrees):
            bounds[shape] = bound
    assert len(bounds) > 50
    checked = 0
    for shape in list(bounds)[::5]:
        for one in worker.judge.ways(shape):
            if one.fits:
                checked += 1
                assert bounds[shape] <= one.floor * (1 + 1e-9), one.candidate.name
    assert checked > 10


def test_a_model_that_fits_is_trained_data_parallel() -> None:
    best = small().layouts[0].candidate
    assert best.degrees == Degrees(4, 1, 1, 1, 1)
    assert best.recompute == "none"
    assert "fits one GPU" in small().facts[0]


def test_a_model_that_does_not_fit_is_sharded_or_cut() -> None:
    assert "does not fit one GPU" in tight().facts[0]
    for one in tight().layouts:
        d = one.candidate.degrees
        assert d.tp * d.pp > 1 or one.candidate.shard != "ddp", one.name


def test_a_layer_that_does_not_fit_is_cut_across() -> None:
    assert (
        "largest layer: layer 0, 6.75 of 5.59 GiB with its optimizer: does not fit"
        in (wide().facts[1])
    )
    assert wide().layouts[0].candidate.degrees.tp > 1
    for one in wide().layouts:
        assert one.candidate.degrees.tp > 1 or one.candidate.shard != "ddp", one.name


def test_a_slow_fabric_keeps_replicas_and_layers_within_nodes() -> None:
    assert "fabric: slow" in slow().facts[2]
    for one in slow().layouts:
        assert one.candidate.degrees.pp > 1, one.name


def test_layouts_are_ranked_by_step_time() -> None:
    for advice in (small(), tight()):
        times = [one.metrics.step_time_s for one in advice.layouts]
        assert times == sorted(times)
        assert [one.rank for one in advice.layouts] == [1, 2, 3, 4]


def test_a_layout_run_by_itself_gives_the_same() -> None:
    """What `advise` prints can be pasted into a scenario, and its memory was known before."""
    for advice, cluster, model, batch in (
        (tight(), box("6GB"), MEDIUM, 8), (slow(), SLOW, MEDIUM, 8),
    ):  # fmt: skip
        one = advice.layouts[0]
        made = data(cluster, model, batch)
        made["workload"]["training"] |= one.settings
        found = run(scenario_from(made, "pasted"))
        assert found.metrics.step_time_s == one.metrics.step_time_s
        assert found.metrics.memory_gib is not None
        assert found.metrics.memory_gib["peak"] == one.memory_gib


def test_memory_and_floor_hold_for_every_simulated_layout() -> None:
    """Of layouts that fit, also those that would not be tried."""
    worker = Worker(scenario(SLOW, MEDIUM, 4))
    fitting = [one for one in every(worker) if one.fits]
    assert len(fitting) > 50
    for one in fitting[:: len(fitting) // 5]:
        ran = worker.run(one.candidate)
        assert ran.memory == one.use.total, one.candidate.name
        assert one.floor <= ran.metrics.step_time_s * SLACK, one.candidate.name


def test_what_is_left_out_is_not_among_the_best(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that fit, simulated one by one: the same six."""
    layouts = sys.modules["commsim.study.advise.layouts"]
    monkeypatch.setattr(layouts, "_OVERLAPS", ("none", "ring"))  # a third fewer runs
    given = scenario(box("40GB", gpus=2), {**MEDIUM, "layers": 2}, 4)
    worker = Worker(given)
    ran = [worker.run(one.candidate) for one in every(worker) if one.fits]
    best = sorted(ran, key=lambda one: (one.metrics.step_time_s, one.candidate))[:6]
    advice = advise(given, top=6)
    assert [one.candidate for one in advice.layouts] == [one.candidate for one in best]
    assert advice.simulated < len(ran)


def test_two_processes_say_the_same() -> None:
    given = scenario(box("40GB", gpus=2), {**MEDIUM, "layers": 2}, 4)
    assert advise(given, executor="processes:2").to_dict() == advise(given).to_dict()


def test_reasons_name_the_best_without() -> None:
    text = " ".join(reason for one in tight().layouts for reason in one.reasons)
    assert "best without" in text
    assert "of 5.59 GiB without it" in text
    assert "memory is nearly full" in text


def test_no_reason_is_at_odds_with_a_layout_that_is_shown() -> None:
    """What the best without a part takes at least, no row without it is below."""
    held = 0
    for advice in (small(), tight(), wide(), slow()):
        for one in advice.layouts:
            for part in parts_of(one.candidate):
                (said,) = [line for line in one.reasons if line.startswith(f"{part.name}: best")]
                told = dict(
                    re.findall(rf"({part.none}|{part.other}) (?:at least )?([+-][0-9.]+)%", said)
                )
                told.setdefault(part.other, told.get(part.none, ""))
                for how, belongs in ((part.none, part.without), (part.other, part.otherwise)):
                    for row in advice.layouts:
                        if belongs(row.candidate):
                            more = row.metrics.step_time_s / one.metrics.step_time_s - 1
                            assert float(told[how]) <= 100 * more + 0.051, (said, row.name)
                            held += 1
            for line in one.reasons:
                if line.startswith(f"{one.candidate.shard} is needed, all else equal"):
                    less = one.candidate._replace(shard=row.candidate.shard)
                    same = [row for row in advice.layouts if row.candidate == less != one.candidate]
                    assert all("sdp" in row.candidate.shard for row in same), line
    assert held > 20


def test_a_scenario_of_the_first_gives_its_figures_whatever_the_stack(tmp_path: Path) -> None:
    for sets in ((), ("workload.training.compute={stack: torchtitan, scale: 2}",)):
        file, best = tmp_path / "s.yaml", tmp_path / "best.yaml"
        given = data(box("40GB", gpus=2), {**MEDIUM, "layers": 2}, 64)
        given["workload"]["training"] |= {"recompute": "full", "recompute_every": 2}
        file.write_text(json.dumps(given))
        advice = advise(file, sets, top=1)
        advice.save_scenario(best)
        found = run(best).metrics
        assert found.step_time_s == advice.layouts[0].metrics.step_time_s
        assert present(found.memory_gib)["peak"] == advice.layouts[0].memory_gib
        assert f"stack: {advice.stack}" in best.read_text()
    with pytest.raises(ScenarioError, match="Ask with its file or name"):
        small().save_scenario(best)


def test_the_other_stacks_say_what_a_run_with_them_says() -> None:
    """On H100, Megatron's and torchtitan's were fitted."""
    cluster = box("80GB", gpus=2)
    cluster["node"]["gpu"] = {"count": 2, "spec": "H100-SXM5-80GB"}
    made = data(cluster, {**MEDIUM, "layers": 2}, 4)
    made["workload"]["training"]["data_parallel"] = {"kind": "fsdp"}
    advice = advise(scenario_from(made, "x"), top=2)
    assert advice.stack == "torchtitan"
    (other,) = advice.others
    assert other.stack == "megatron"
    name, _, value = other.setting.partition("=")
    assert (name, value) == ("workload.training.compute.stack", "megatron")
    there = advise(scenario_from(made, "x", sets=[other.setting]), top=4)
    again = {one.name: one.metrics.step_time_s for one in there.layouts}
    assert again[other.layout] == pytest.approx(other.step_s, rel=2e-3)
    first = advice.layouts[0].metrics.step_time_s
    assert other.more == pytest.approx(other.step_s / first - 1)


def test_a_layout_of_ones_own_that_the_batch_does_not_allow_is_left_out() -> None:
    work = data(box("40GB", gpus=2), {**MEDIUM, "layers": 2}, 7)
    work["workload"]["training"]["parallel"] = {"dp": 2}
    advice = advise(scenario_from(work, "a scenario"))
    assert advice.given is None
    assert {ranked.candidate.degrees.dp for ranked in advice.layouts} == {1}


def test_half_and_twice_the_microbatch_are_weighed() -> None:
    said = [reason for one in tight().layouts for reason in one.reasons if "micro" in reason]
    assert any(" takes " in one or "at least" in one for one in said)


def test_the_best_of_other_kinds_stand_beside_the_winner() -> None:
    """The winner is data parallel: what it is not is there, what it is is not."""
    kinds = {one.kind: one.says for one in small().kinds}
    assert {"pipeline alone", "tensor alone", "dp + pp"} <= set(kinds)
    assert all(says.startswith(("+", "at least")) for says in kinds.values())
    alone = {one.kind: one.says for one in tight().kinds}
    assert alone.get("data parallel (ddp)", "").startswith("does not fit: at least")


def test_the_optimizer_on_the_host_is_named_where_that_fits() -> None:
    """5.6 GiB of the model's 7 are the optimizer; a CUDA context takes most of a GiB besides."""
    with pytest.raises(ScenarioError, match=r"offload: cpu\} with .* zero-[12] .*GiB"):
        advise(scenario(box("4GB", gpus=2), MEDIUM, 8))


def test_nothing_fits_says_the_arithmetic_and_what_would() -> None:
    """7 GiB over two GPUs of 2 GB: four boxes of two have 8 GB."""
    with pytest.raises(ScenarioError) as error:
        advise(scenario(box("2GB", gpus=2, nic="100Gbps"), MEDIUM, 64))
    said = str(error.value)
    assert "none of" in said
    assert "of 1.9 GiB" in said
    assert "4 nodes instead of 1" in said


def test_the_layout_of_the_scenario_is_simulated_however_far_behind_it_is() -> None:
    """One sequence through a pipeline of four: three of four GPUs always wait."""
    work = data(box("40GB"), {**MEDIUM, "layers": 4, "hidden": 512, "heads": 8}, 1)
    work["workload"]["training"]["parallel"] = {"pp": 4}
    given = scenario_from(work, "a scenario")
    advice = advise(given, top=1)
    assert advice.given is not None
    assert "pp 4" in advice.given.candidate.name
    assert advice.given.rank > 1
    whole = run(given).metrics.step_time_s
    assert advice.given.metrics.step_time_s == pytest.approx(whole, rel=1e-9)


def test_every_division_of_the_gpus_is_bounded_and_counted() -> None:
    """Two GPUs: two replicas, two stages, or layers cut across; sequences are too short to cut."""
    begun: list[Any] = []

    class Progress:
        def begin(self, what: str, total: int | None) -> None:
            begun.append([what, total, 0])

        def tick(self) -> None:
            begun[-1][2] += 1

    given = scenario(box("40GB", gpus=2), {**MEDIUM, "layers": 2, "seq_len": 256}, 2)
    advise(given, top=1, executor="serial", progress=Progress())
    assert begun[0] == ["bounding", 3, 3]
    assert [one[0] for one in begun[1:]] == [
        "simulating", "running the best layout whole", "running the best on other software",
    ]  # fmt: skip


def test_only_training_can_be_advised() -> None:
    with pytest.raises(ScenarioError, match=r"workload\.pipeline: advise is about training"):
        advise("1f1b")


def test_the_command_prints_and_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, out = tmp_path / "s.yaml", tmp_path / "a.json"
    file.write_text(json.dumps(data(box("40GB", gpus=2), {**MEDIUM, "layers": 2}, 4)))
    assert (
        call(["advise", str(file), "--executor", "serial", "--top", "3", "--json", str(out)]) == 0
    )
    shown = capsys.readouterr()
    assert "model: " in shown.out
    assert "layouts can run" in shown.err
    found = json.loads(out.read_bytes())
    assert [one["rank"] for one in found["layouts"]] == [1, 2, 3]
    assert found["considered"] >= found["judged"] >= found["fit"] >= found["simulated"] >= 3
    assert found["given"] is None  # one GPU, of two
