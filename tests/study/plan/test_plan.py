"""Sizes and layouts that make it in time: equal to a full search, and honest if nothing does."""

from __future__ import annotations

from concurrent.futures import Executor, Future
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import yaml
from helpers.optional import present

import commsim as cs
from commsim.cluster import build_cluster
from commsim.errors import ScenarioError
from commsim.executors import ExecutorName
from commsim.models import training_flops
from commsim.study.plan import PlanOption, plan
from commsim.study.plan.option import Sized
from commsim.study.plan.question import (
    PlanQuestion,
    node_counts,
    node_kinds,
    read_seconds,
    read_tokens,
    with_rack_parts,
)
from commsim.study.plan.search import PlanSearch

SCENARIOS = Path(__file__).parents[3] / "scenarios"
SMALL: dict[str, Any] = {
    "tokens": 1e10, "seq_len": 1024, "batch_tokens": 2 * 1024, "most_gpus": 2, "runs": 200,
}  # fmt: skip


@pytest.fixture
def two_kinds(tmp_path: Path) -> str:
    """Two kinds of nodes with a GPU each, the faster one dearer."""
    names = []
    for preset in ("aws-p4d", "aws-p5"):
        data = {"preset": preset, "overrides": {"gpu": {"count": 1}, "nic": {"count": 1}}}
        path = tmp_path / f"{preset}-one.yaml"
        path.write_text(yaml.safe_dump(data))
        names.append(str(path))
    return ",".join(names)


def every_size(on: str) -> list[PlanOption]:
    """Return the fastest layout of every size, by simulating all of the usual ones."""
    kinds = node_kinds(on.split(","))
    question = PlanQuestion("gpt2-124m", 1e10, None, None, kinds, 1024, 2 * 1024, 2, ())
    found = []
    for kind in kinds:
        for nodes in (1, 2):
            size = Sized(question, kind, nodes, usual=True)
            while size.floor_days() is not None:
                size.run_next()
            found.append(present(size.best))
    return found


def test_the_winners_are_those_of_a_full_search(two_kinds: str):
    every = every_size(two_kinds)
    deadline = sorted(one.days for one in every)[-1] * 1.01  # every size is in time
    found = plan("gpt2-124m", days=deadline, on=two_kinds, **SMALL)
    assert found.complete
    assert present(found.smallest).gpus == 1
    fastest = min(every, key=lambda one: one.days)
    assert (present(found.fastest).name, present(found.fastest).layout) == (
        fastest.name,
        fastest.layout,
    )
    cheapest = min(every, key=lambda one: present(one.cost))
    assert (present(found.cheapest).name, present(found.cheapest).layout) == (
        cheapest.name,
        cheapest.layout,
    )
    # What the times rest on is said once: the A100's stack was fitted on later GPUs.
    assert sum("stack megatron was not fitted on Ampere" in note for note in found.notes) == 1
    shape = cs.model_presets()["gpt2-124m"].shape
    causal, full = (training_flops(shape, batch=1, seq=1024, causal=one) for one in (True, False))
    assert any(f"causal mask leaves of it, {causal / full:.3g}" in note for note in found.notes)
    # What is said of an option is what a run of its scenario says.
    step = cs.run(present(found.cheapest).scenario).metrics.step_time_s
    assert step == pytest.approx(cheapest.step_s, rel=2e-3)

    tighter = sorted(one.days for one in every)[1] * 1.001  # two sizes are in time
    found = plan("gpt2-124m", days=tighter, on=two_kinds, **SMALL)
    in_time = [one for one in every if one.days <= tighter]
    assert present(found.smallest).gpus == min(one.gpus for one in in_time)
    assert present(found.cheapest).cost == min(present(one.cost) for one in in_time)


def test_failures_make_it_longer_by_the_goodput_of_the_same_run():
    question = {**SMALL, "on": "aws-p5", "days": 1000, "most_gpus": 8, "runs": 1}
    rates = "goodput.rates={gpu: 2000, nic: 0, link: 0, node: 0, software: 0}"
    sets = ("goodput.storage=1GB/s", rates, "workload.training.precision=fp16")
    bare = present(plan("gpt2-124m", **question, sets=sets[2:]).smallest)
    found = present(plan("gpt2-124m", **question, sets=sets).smallest)
    assert bare.goodput is None
    assert found.step_s == bare.step_s
    assert 0.5 < present(found.goodput) < 0.999
    assert found.days == pytest.approx(bare.days / present(found.goodput))
    assert found.cost == pytest.approx(present(bare.cost) / present(found.goodput))
    # The scenario that is written has what was set, and a run of it says the same.
    assert found.scenario["workload"]["training"]["precision"] == "fp16"
    again = cs.run(found.scenario).extra["goodput"]
    assert again["goodput"] == pytest.approx(found.goodput, rel=1e-3)


@pytest.mark.long
def test_with_all_layouts_the_winner_is_that_of_advise():
    small = SMALL | {"most_gpus": 8}
    found = plan("gpt2-124m", days=1000, on="aws-p4d", layouts="all", **small)
    given = cs.Scenario.load(present(found.fastest).scenario)
    best = cs.advise(given, top=1).layouts[0]
    assert best.metrics.step_time_s == pytest.approx(present(found.fastest).step_s, rel=1e-9)


def test_a_deadline_that_nothing_makes_says_what_comes_near(two_kinds: str):
    found = plan("gpt2-124m", days="1h", on=two_kinds, **SMALL)
    assert (found.smallest, found.cheapest, found.fastest) == (None, None, None)
    assert any("no size up to 2 GPUs makes it" in line for line in found.decides)
    assert "take at least" in found.decides[-1]


def test_a_budget_binds_and_needs_prices(tmp_path: Path):
    with pytest.raises(ScenarioError, match="dgx-h100 has no price, and none is taken as zero"):
        plan("gpt2-124m", budget=1e6, on="dgx-h100", **SMALL)
    own = tmp_path / "own.yaml"
    price = {"price": 2.0, "source": "offer 17", "date": "today"}
    own.write_text(
        yaml.safe_dump(
            {
                "preset": "dgx-h100",
                "overrides": {"gpu": {"count": 1}, "nic": {"count": 1}},
                "prices": {"gpu_hour": price},
            }
        )
    )
    rich = plan("gpt2-124m", budget=1e6, on=str(own), **SMALL | {"runs": 2})
    assert present(rich.cheapest).kind == "own"
    assert present(rich.cheapest).cost == pytest.approx(
        present(rich.cheapest).days * 24 * 2.0 * present(rich.cheapest).gpus
    )
    assert present(rich.cheapest).bought is None


def test_a_budget_that_no_bound_meets_asks_for_no_floor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Floors of every size up to thousands of GPUs took minutes, for nothing."""
    own = tmp_path / "own.yaml"
    price = {"price": 2.0, "source": "offer 17", "date": "today"}
    own.write_text(yaml.safe_dump({"preset": "dgx-h100", "prices": {"gpu_hour": price}}))
    monkeypatch.setattr(Sized, "floor_days", None)
    bounded: list[str] = []
    asked = SMALL | {"batch_tokens": 2**22, "most_gpus": 4096}
    poor = plan("gpt2-124m", budget=1e-3, on=str(own), progress=bounded.append, **asked)
    assert poor.smallest is None
    assert any("no size makes it within the budget (at least" in line for line in poor.decides)
    assert len([line for line in bounded if line.startswith("bounding")]) < 10


def test_what_is_bought_is_the_bill_of_the_whole_cluster(tmp_path: Path):
    own = tmp_path / "own.yaml"
    prices = yaml.safe_load((SCENARIOS / "own-fabric-full.yaml").read_text())["cluster"]["prices"]
    own.write_text(yaml.safe_dump({"preset": "dgx-h100", "prices": prices}))
    found = plan("gpt2-124m", days=9999, on=str(own), **SMALL | {"runs": 2, "most_gpus": 16})
    option = present(found.cheapest)
    cost = present(cs.run(option.scenario).metrics.cost)
    assert option.bought == pytest.approx(cost["capital"])
    assert present(option.cost) < present(option.bought)


def test_an_interrupt_gives_the_best_so_far(tmp_path: Path, two_kinds: str):
    seen: list[str] = []

    def progress(told: str) -> None:
        seen.append(told)
        if sum(one.startswith("simulating") for one in seen) == 2:
            raise KeyboardInterrupt

    found = plan("gpt2-124m", days=1000, on=two_kinds, progress=progress, **SMALL)
    runs = [one for one in seen if one.startswith("simulating")]
    assert [one.partition(", ")[2] for one in runs] == [
        "run 1 of at most 200",
        "run 2 of at most 200",
    ]
    assert found.simulated == 1
    assert not found.complete
    assert found.notes[0].startswith("interrupted")
    assert found.smallest is not None
    data = found.to_dict()
    assert data["options"][data["smallest"]]["layout"] == found.smallest.layout
    found.save(tmp_path / "plan.html")
    assert "nothing is better in both" in (tmp_path / "plan.html").read_text()
    (written, *_) = found.save_scenarios(tmp_path)
    assert yaml.safe_load(written.read_text())["cluster"]["preset"] + "-one" == found.smallest.kind


def test_an_interrupt_before_the_first_run_answers_nothing(two_kinds: str):
    def progress(told: str) -> None:
        raise KeyboardInterrupt

    found = plan("gpt2-124m", days=1000, on=two_kinds, progress=progress, **SMALL)
    assert found.headline == (
        "The search ended before anything was simulated: nothing is known yet."
    )


def test_only_an_interrupt_is_answered(two_kinds: str):
    """The command line makes another exception of SIGTERM: whoever sends it waits for nothing."""

    class Terminated(KeyboardInterrupt):
        pass

    def progress(told: str) -> None:
        raise Terminated

    with pytest.raises(Terminated):
        plan("gpt2-124m", days=1000, on=two_kinds, progress=progress, **SMALL)


def test_a_batch_that_fewer_nodes_divide_is_named(two_kinds: str):
    """Three GPUs have no layout for 64 sequences; with 60 they take four thirds of the days."""
    kind = two_kinds.split(",")[1]
    asked = SMALL | {"batch_tokens": 64 * 1024, "most_gpus": 4}
    one = present(plan("gpt2-124m", days=1000, on=kind, **asked).smallest)
    assert one.gpus == 1
    found = plan("gpt2-124m", days=one.days / 2.2, on=kind, **asked)
    assert present(found.smallest).gpus == 4
    [told] = [line for line in found.changes if "--batch-tokens" in line]
    assert "--batch-tokens 61440 (60 sequences, which 3 GPUs divide" in told
    asked["batch_tokens"] = 61440
    assert present(plan("gpt2-124m", days=one.days / 2.2, on=kind, **asked).smallest).gpus == 3


class AtOnce(Executor):
    """Does what it is given before it returns, and counts it."""

    given = 0

    def submit(self, call: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.given += 1
        done: Future[Any] = Future()
        done.set_result(call(*args, **kwargs))
        return done


def test_what_an_executor_begins_ahead_does_not_change_the_answer(
    two_kinds: str, monkeypatch: pytest.MonkeyPatch
):
    """Runs that turn out needless are not counted either."""
    asked = SMALL | {"days": 1000, "on": two_kinds, "runs": 3}
    alone, elsewhere = plan("gpt2-124m", **asked), AtOnce()
    monkeypatch.setattr(ExecutorName, "opened", lambda _: nullcontext(elsewhere))
    assert plan("gpt2-124m", **asked).to_dict() == alone.to_dict()
    assert elsewhere.given > alone.simulated == 3


@pytest.mark.long
@pytest.mark.parametrize("executor", ["processes:2", "dask"])
def test_who_simulates_does_not_change_the_answer(executor: str, two_kinds: str):
    if executor == "dask":
        pytest.importorskip("distributed")
    asked = SMALL | {"days": 1000, "on": two_kinds, "runs": 3}
    shared = plan("gpt2-124m", executor=executor, **asked)
    assert shared.to_dict() == plan("gpt2-124m", **asked).to_dict()


@pytest.mark.parametrize(("sequences", "used"), [(512, 16), (1, 16), (576, 18), (9, 18)])
def test_a_rack_of_18_nodes_is_used_in_part_where_the_batch_has_no_nine(sequences: int, used: int):
    given = node_kinds(["gb200-nvl72", "dgx-h100"])
    asked = PlanQuestion("gpt2-124m", 1e10, 1.0, None, given, 1024, sequences * 1024, 512, ())
    question = with_rack_parts(asked)
    rack, box = question.kinds
    assert box == given[1]
    assert (rack == given[0]) == (used == 18)
    assert rack.paid(4) == 4
    assert rack.paid(2 * used) == 36  # two racks
    cluster = build_cluster(present(question.scenario(rack, 2 * used).file.cluster), "x")
    assert cluster.world_size == 8 * used
    assert len(set(cluster.domains.tolist())) == 2


def test_sizes_go_by_quarters_and_by_whole_racks():
    assert list(node_counts(1, 20)) == [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20]
    assert list(node_counts(18, 100)) == [1, 2, 3, 6, 9, 18, 36, 54, 72, 90]


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: read_tokens("2e12 tokens"), "give a count of tokens"),
        (lambda: read_tokens("0"), "give a count of tokens"),
        (lambda: read_tokens("1.5"), "--tokens 1.5: give a whole number of tokens, like 2e12"),
        (lambda: read_tokens(0.5), "give a whole number of tokens"),
        (lambda: read_tokens("0.0000015M"), "give a whole number of tokens"),
        (lambda: read_seconds("soon"), "give a time"),
        (lambda: node_kinds([]), "give presets or cluster files"),
        (lambda: node_kinds(["dgx-h100", "dgx-h100"]), "stands there twice"),
        (lambda: node_kinds(["dgx-h10"]), "Did you mean 'dgx-h100'"),
        (lambda: plan("llama3-8b", tokens=1e12, on="dgx-h100"), "give a deadline"),
        (lambda: plan("llama3-8b", tokens=1e12, on="dgx-h100", days=1, budget=-1), "above zero"),
        (lambda: plan("llama3-8b", tokens=1, on="dgx-h100", days=1, budget=0), "--budget 0: give"),
        (lambda: plan("llama3-8b", tokens=1, on="dgx-h100", days=1, budget=1e400), "finite"),
        (lambda: plan("llama3-8b", tokens=1, on="dgx-h100", days=1, runs=0), "--runs 0: give 1"),
        (
            lambda: plan("llama3-8b", tokens=1, on="dgx-h100", days=1, seq_len=0),
            "--seq-len 0: give",
        ),
        (lambda: plan("llama3-8b", tokens=1, on="dgx-h100", days=1, most_gpus=0), "--most-gpus 0:"),
        (
            lambda: plan("llama3-8b", tokens=1, on="dgx-h100,dgx-a100", days=1, most_gpus=4),
            "--most-gpus 4: one node of dgx-h100 and of dgx-a100 has more. Give a larger number.",
        ),
        (lambda: plan("llama3-8c", tokens=1e12, on="dgx-h100", days=1), "llama3-8b"),
        (
            lambda: plan("llama3-8b", tokens=1e12, on="dgx-h100", days=1, batch_tokens=8),
            "less than one sequence",
        ),
    ],
)
def test_questions_that_mean_nothing_are_refused(call, told):
    with pytest.raises(ScenarioError, match=told):
        call()


def test_times_and_tokens_are_read_as_people_write_them():
    assert read_tokens("2T") == read_tokens("2e12") == read_tokens(2e12) == 2e12
    assert read_tokens("1.1T") == 1.1e12
    assert read_tokens("1.000001M") == read_tokens("1_000_001") == read_tokens(1000001.0)
    assert read_seconds("2w") == read_seconds("14d") == read_seconds(14) == 14 * 86400


@pytest.mark.parametrize(
    ("memory", "most", "sets"),
    [
        ("80GB", 2, ()),
        ("80GB", 2, ("workload.training.compute.stack=torchtitan",)),
        ("7GB", 4, ("workload.training.data_parallel.kind=fsdp",)),  # parameters have to be sharded
        (
            "7GB",
            4,
            (
                "workload.training.data_parallel.kind=fsdp",
                "workload.training.precision=fp8-cs",
                "library.name=ideal",
            ),
        ),
        ("80GB", 32, ("workload.training.compute.attention=fa2",)),  # ranks fold
    ],
)
def test_what_is_said_of_a_winner_is_what_a_run_of_its_file_says(
    memory: str, most: int, sets: tuple[str, ...], tmp_path: Path
):
    gpus = 8 if most > 8 else 4 if memory == "7GB" else 1  # between nodes of one a pipeline wins
    overrides = {"gpu": {"count": gpus, "memory": memory}, "nic": {"count": gpus}}
    name = tmp_path / "own.yaml"
    name.write_text(yaml.safe_dump({"preset": "aws-p5", "overrides": overrides}))
    asked = SMALL | {"batch_tokens": most * 1024, "most_gpus": most, "runs": 2}
    model = "gpt2-774m" if memory == "7GB" else "gpt2-124m"
    found = plan(model, days=100000, on=[str(name)], sets=sets, **asked)
    stack = found.question["stack"]
    assert f"Reckoned on stack {stack}" in found.headline
    for path in found.save_scenarios(tmp_path / "scenarios"):
        option = present(getattr(found, path.stem))
        result = cs.run(path)
        metrics = result.metrics
        assert metrics.step_time_s == option.step_s
        assert metrics.mfu == option.mfu
        assert present(metrics.memory_gib)["peak"] == option.memory_gib
        assert present(metrics.memory_gib)["fits"]
        # Nothing is left for a run to choose.
        assert option.scenario["workload"]["training"]["compute"]["stack"] == stack
        assert not [note for note in result.notes if "stack" in note and "goes with" in note]
    if memory == "7GB":
        assert "fsdp" in present(found.fastest).layout


def test_the_smallest_pays_for_the_fewest_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """64 nodes of 4 in racks, 72 of them paid, are larger than 32 of 8 that take longer."""

    def option(kind: str, nodes: int, each: int, days: float, paid: int | None) -> PlanOption:
        return PlanOption(
            kind=kind, nodes=nodes, gpus=nodes * each, layout="", step_s=1.0, days=days, mfu=None,
            currency=None, per_hour=None, cost=None, energy_kwh=None, waits=(), scenario={},
            memory_gib=1.0, paid_nodes=paid,
        )  # fmt: skip

    racks, boxes = option("racks", 64, 4, 46.0, 72), option("boxes", 32, 8, 55.0, 32)
    assert (racks.gpus, racks.paid_gpus, boxes.paid_gpus) == (256, 288, 256)
    monkeypatch.setattr(PlanSearch, "_good", lambda _: [racks, boxes])
    assert object.__new__(PlanSearch).winners == (boxes, None, racks)
