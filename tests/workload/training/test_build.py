"""What is said of a run of asynchronous workers, and what servers and workers hold."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from helpers.toy_cluster import training

from commsim.workload.training import build
from commsim.workload.training.build import _stale, _two_kinds


@pytest.mark.parametrize(
    ("paces", "told"),
    [
        ((2.0, 2.0), ""),
        ((2.0, 2.02), ""),
        (
            (1.0, 2.0, 4.0),
            "; over 5 steps one takes workers 1 to 4 s, and the step time is the slowest one's:"
            " free to run on, they do 168 tokens per second together",
        ),
    ],
)
def test_workers_of_different_paces_are_told_with_what_they_do_together(
    paces: tuple[float, ...], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two microbatches of three sequences of 16 tokens in 1, 2 and 4 s: 96 x 1.75 a second."""
    monkeypatch.setattr(build, "staleness", lambda _: 1.5)
    monkeypatch.setattr(build, "paces", lambda _: paces)
    section = SimpleNamespace(batch=SimpleNamespace(micro=3), steps=5)
    plan: Any = SimpleNamespace(microbatches=2, section=section, model=SimpleNamespace(seq_len=16))
    anything: Any = None
    start = "parameter server: asynchronous, mean staleness 1.50 updates"
    assert _stale(plan, anything) == (start + told,)


def test_the_first_ranks_are_of_one_kind_and_the_others_of_another() -> None:
    facts = training(4).training
    assert facts is not None
    both: Any = ("server", "worker")
    for first, kinds in ((1, (0, 1, 1, 1)), (2, (0, 0, 1, 1)), (4, (0, 0, 0, 0))):
        found = _two_kinds(facts, both, first)
        assert found.device_of_rank == kinds
        assert found.resident == both


def test_what_a_step_of_the_small_model_does() -> None:
    """8 sequences of 16 tokens; P parameters, of which two stages hold two layers and an end."""
    facts = training(4, parallel={"pp": 2, "dp": 2}).training
    assert facts is not None
    layers, ends = 2 * 784, 256
    assert facts.tokens == 8 * 16
    assert facts.parameters == 2 * layers + 2 * ends + 8
    assert sorted(set(facts.rank_parameters)) == [layers + ends, layers + ends + 8]
    assert facts.peak_flops == 1e12
    assert facts.staged
    assert facts.hardware_flops == facts.model_flops
    assert not any(fact.staged for fact in (training(4).training,) if fact is not None)
    again = training(4, recompute="full").training
    assert again is not None
    some = training(4, recompute="full", recompute_every=2).training
    assert some is not None
    more = again.hardware_flops - again.model_flops
    assert more > 0
    assert some.hardware_flops - some.model_flops == pytest.approx(more / 2)
