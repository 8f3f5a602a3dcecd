"""The works of the speed table check their answers: right ones pass, others do not."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import pytest
from helpers.paths import ROOT


@pytest.fixture(scope="module")
def works() -> Iterator[Any]:
    """The module of the works, imported from where the script finds it."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    import speed_works

    yield speed_works
    sys.path.remove(str(ROOT / "benchmarks"))


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("ring_first", 64),
        ("ring_again", 32),
        ("all_to_all", 20),
        ("all_to_all_nccl", 24),
        ("messages_of_a_ring", 6),
        ("messages_of_an_uneven_ring", 24),
        ("flows", 90),
        ("layers", 16),
        ("microbatches", 9),
        ("noise", 32),
    ],
)
def test_a_small_one_of_each_has_its_answer(works: Any, name: str, size: int) -> None:
    prepare = getattr(works, name)
    run = prepare(size, depth=2) if name == "layers" else prepare(size)
    run.check(run.call())
    assert run.events > 0


@pytest.mark.parametrize("name", ["ring_first", "all_to_all"])
@pytest.mark.parametrize("factor", [0.5, 2.5])
def test_a_wrong_plan_is_seen(works: Any, name: str, factor: float) -> None:
    run = getattr(works, name)(24)
    plan = run.call()
    phase = plan.parts[-1].phases[0]
    wrong = msgspec.structs.replace(phase, idle=int(phase.idle * factor))
    parts = tuple(msgspec.structs.replace(part, phases=(wrong,)) for part in plan.parts)
    with pytest.raises(AssertionError):
        run.check(msgspec.structs.replace(plan, parts=parts))


def test_an_unfair_share_is_seen(works: Any) -> None:
    import random_flows

    case = random_flows.fat_tree_flows(80, arity=4, seed=3)
    ran = random_flows.run_flows(case)
    assert random_flows.unfair_at(case, ran, instants=9) < 1e-9
    slower = dataclasses.replace(ran, rate=np.where(ran.flow == 5, ran.rate * 0.9, ran.rate))
    assert random_flows.unfair_at(case, slower, instants=9) > 1e-3
