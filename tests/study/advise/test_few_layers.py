"""Thin models: what they say of a step is what the whole model gives, or less."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest
from helpers.share import later

from commsim.models import ModelShape, model_preset
from commsim.scenario import scenario_from
from commsim.study.advise.few_layers import _dense, carried_on, thinned, worth
from commsim.study.advise.layouts import Candidate, Degrees
from commsim.study.advise.search import SURE
from commsim.study.advise.simulate import Worker

MODEL = {"layers": 20, "hidden": 2048, "heads": 16, "vocab": 32000, "seq_len": 2048,
         "tied_embeddings": False}  # fmt: skip


def worker(**more: Any) -> Worker:
    training = {"model": {**MODEL, **more}, "batch": {"global": 64, "micro": 1}}
    cluster = {"preset": "dgx-a100", "nodes": 2}
    made = {"name": "x", "cluster": cluster, "workload": {"training": training}}
    return Worker(scenario_from(made, "x"))


@pytest.mark.parametrize("candidate", [
    Candidate(Degrees(16, 1, 1, 1, 1), "1f1b", 1, 1, "none", "fsdp"),
    later(Candidate(Degrees(16, 1, 1, 1, 1), "1f1b", 1, 2, "none", "hsdp-8")),
    Candidate(Degrees(4, 2, 2, 1, 1), "1f1b", 1, 1, "none", "fsdp", "ring"),
    Candidate(Degrees(4, 1, 2, 2, 1), "zb_h1", 1, 1, "none", "zero-2"),
    later(Candidate(Degrees(8, 2, 1, 1, 1), "1f1b", 1, 1, "full", "zero-1")),
    later(Candidate(Degrees(16, 1, 1, 1, 1), "1f1b", 1, 1, "none", "ddp")),
], ids=lambda one: one.name)  # fmt: skip
def test_an_estimate_is_the_step_or_a_little_less(candidate: Candidate) -> None:
    made = worker()
    step = made.run(candidate).metrics.step_time_s
    above = SURE.get(candidate.shard, 1.001)
    assert 0.985 * step <= made.estimate(candidate) <= above * step


def test_gradients_that_hide_behind_more_layers_make_an_estimate_too_low_never_too_high() -> None:
    """The table's gradient takes as long as many layers' backward: few layers do not hide it."""
    made = worker(vocab=400_000, hidden=1024)
    candidate = Candidate(Degrees(16, 1, 1, 1, 1), "1f1b", 1, 4, "none", "ddp")
    step = made.run(candidate).metrics.step_time_s
    assert made.estimate(candidate) <= 1.001 * step


def thin(shape: ModelShape, *, pp: int = 1, kept: int = 2) -> tuple[int, tuple[int, ...]] | None:
    """Return the layers of a thin model, and those of its parts."""
    made = worker()
    section = made.judge.section(
        Candidate(Degrees(16 // pp, 1, pp, 1, 1), "1f1b", 1, 1, "none", "ddp")
    )
    found = thinned(shape, section, kept=kept)
    if found is None:
        return None
    layers, parts = found[0].model.layers, found[0].parallel.layers_per_stage
    assert layers is not None
    assert parts is not None
    return layers, parts


def test_parts_keep_their_differences() -> None:
    """126 layers on four stages are 31 + 32 + 32 + 31: thin, 2 + 3 + 3 + 2."""
    shape = model_preset("llama3.1-405b", where="x").shape
    assert thin(shape, pp=4) == (10, (2, 3, 3, 2))


def test_dense_layers_in_front_stay() -> None:
    """DeepSeek-V3's first three layers are dense: two more have experts."""
    shape = model_preset("deepseek-v3", where="x").shape
    assert thin(shape) == (5, (5,))
    assert thin(shape, kept=3) == (6, (6,))


def test_few_layers_are_not_made_fewer() -> None:
    shape = model_preset("gpt2-124m", where="x").shape
    assert thin(shape) is not None
    assert thin(shape, pp=2) is None


def test_a_line_through_two_thin_models() -> None:
    """18 and 17 layers less took 3 s and 4 s: each layer is a second."""
    assert carried_on((3.0, 4.0), (18, 17)) == 21.0


@pytest.mark.parametrize(
    ("microbatches", "schedule", "counts"),
    [(16, "1f1b", (4, 8)), (12, "1f1b", (4, 8)), (11, "1f1b", (11,)), (30, "zb_h1", (8, 12))],
)
def test_an_estimate_carries_layers_on_and_then_microbatches(
    microbatches: int, schedule: str, counts: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step of L layers and m microbatches of six sequences takes L (m + 3) + 2 m: of 20 layers
    on four stages as well, whichever are run."""
    asked: list[tuple[int, int]] = []

    def short(layers: int, count: int, once: int) -> Any:
        assert once == 2 * 3
        asked.append((layers, count))
        metrics = SimpleNamespace(step_time_s=layers * (count + 3.0) + 2 * count)
        return SimpleNamespace(metrics=metrics)

    module = sys.modules["commsim.study.advise.simulate"]
    monkeypatch.setattr(module, "thinned", lambda shape, section, *, kept: (kept, 20 - kept))
    made: Any = Worker.__new__(Worker)
    section = SimpleNamespace(batch=SimpleNamespace(global_=6 * microbatches))
    made.judge = SimpleNamespace(section=lambda candidate: section, shape=None)
    made._short = short
    candidate = Candidate(Degrees(2, 1, 4, 1, 1), schedule, 1, 3, "none", "ddp")
    found = made.estimate(candidate)
    assert found == pytest.approx(20 * (microbatches + 3) + 2 * microbatches)
    assert asked == [(layers, count) for layers in (2, 3) for count in counts]
    monkeypatch.setattr(module, "thinned", lambda shape, section, *, kept: None)
    assert made.estimate(candidate) == 0.0


@pytest.mark.parametrize(
    ("layers", "pp", "dense", "thin"),
    [
        (9, 1, 0, True), (8, 1, 0, False), (18, 2, 0, True), (17, 2, 0, False), (12, 1, 3, True),
        (11, 1, 3, False), (21, 2, 3, False), (24, 2, 3, True),
    ],
)  # fmt: skip
def test_nine_layers_of_the_smallest_part_are_worth_two_thin_runs(
    layers: int, pp: int, dense: int, thin: bool
) -> None:
    """Dense layers in front stay, so they are none to leave out: of 24 on two stages 9 and 12."""
    model: dict[str, Any] = {"layers": layers}
    if dense:
        experts = {"experts": 4, "top_k": 2, "expert_ffn": 32, "first_dense_layers": dense}
        model["experts"] = experts
    made = worker(**model)
    candidate = Candidate(Degrees(16 // pp, 1, pp, 1, 1), "1f1b", 1, 1, "none", "ddp")
    section = made.judge.section(candidate)
    assert worth(made.judge.shape, section) is thin


@pytest.mark.parametrize(
    ("kinds", "first"),
    [("mmm", 0), ("ddd", 0), ("dmm", 1), ("ddm", 2), ("dm", 1), ("m", 0), ("dmd", None),
     ("mdm", None), ("dmdm", None)],
)  # fmt: skip
def test_layers_in_front_of_those_that_are_alike(
    kinds: str, first: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dense layers and layers with experts, as they follow one another."""
    module = sys.modules["commsim.study.advise.few_layers"]
    monkeypatch.setattr(module, "is_moe_layer", lambda shape, layer: kinds[layer] == "m")
    shape: Any = SimpleNamespace(layers=len(kinds))
    assert _dense(shape) == first
