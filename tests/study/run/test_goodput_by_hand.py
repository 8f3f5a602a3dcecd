"""One training with failures at times made by hand, and the formulas at their edges."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from commsim.study.run.goodput import Recovery, simulate_progress
from commsim.study.run.goodput.closed_form import (
    away,
    best_interval,
    longest_interval,
    progress,
    replicas_lost,
    standing,
)

NEVER = 1e9
ONE = Recovery(rate=1.0, blocked=10.0, safe_after=50.0, recover=60.0)


@pytest.fixture
def draws(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds until each failure, in the order in which they are drawn; then none."""
    times: list[float] = []

    def random(seed: int) -> Any:
        drawn = iter(times)

        def exponential(mean: float) -> float:
            assert mean == 1 / ONE.rate
            return next(drawn, NEVER)

        return SimpleNamespace(exponential=exponential, random=lambda: next(drawn, 0.0))

    module = sys.modules["commsim.study.run.goodput.simulation"]
    stand_in = SimpleNamespace(random=SimpleNamespace(default_rng=random))
    monkeypatch.setattr(module, "np", stand_in)
    return times


def done(one: Recovery, until: float, interval: float = 100.0) -> float:
    """Return the seconds of whole work that are done by then."""
    return simulate_progress(one, interval, until) * until


def test_work_is_done_when_its_checkpoint_is(draws: list[float]) -> None:
    """100 s of work and 10 of writing: at 110, 220, 330."""
    assert [done(ONE, until) for until in (109, 111, 219, 221, 331)] == pytest.approx(
        [0, 100, 100, 200, 300]
    )


@pytest.mark.parametrize(("failure", "kept"), [(159, 0), (161, 100), (269, 100), (271, 200)])
def test_a_failure_throws_back_to_what_is_safe(
    draws: list[float], failure: float, kept: float
) -> None:
    """What is written at 110 is safe at 160, that of 220 at 270. Work goes on 60 s later."""
    draws += [failure]
    again = failure + 60
    for later, more in ((1, 0), (109, 0), (111, 100), (221, 200)):
        assert done(ONE, again + later) == pytest.approx(kept + more)


def test_a_checkpoint_may_be_safe_just_when_the_next_one_is_written(draws: list[float]) -> None:
    """As near as they may be: written at 110 and safe at 220, when the next one is written."""
    draws += [225.0]
    assert done(replace(ONE, safe_after=110.0), 225 + 60 + 1) == pytest.approx(100)


def test_a_checkpoint_that_is_written_at_once_is_safe_at_once(draws: list[float]) -> None:
    draws += [111.0]
    assert done(replace(ONE, safe_after=0.0), 172.0) == pytest.approx(100)


def test_what_was_written_before_is_safe_by_the_next_failure(draws: list[float]) -> None:
    """After one failure the next is drawn: at 170 + 60, then 120 s on, of which 10 are lost."""
    draws += [170.0, NEVER, 120.0]
    assert done(ONE, 170 + 60 + 120 - 1) == pytest.approx(200)
    assert done(ONE, 170 + 60 + 120 + 1) == pytest.approx(100)


def test_a_failure_while_restarting_begins_it_anew(draws: list[float]) -> None:
    """30 s into the 60, and again 59 s into them; as long as it takes is done with it."""
    draws += [161.0, 30.0, 59.0, 60.0]
    begins = 161 + 30 + 59 + 60
    assert done(ONE, begins + 109) == pytest.approx(100)
    assert done(ONE, begins + 111) == pytest.approx(200)


HARDWARE = replace(ONE, safe_after=0.0, hardware=0.5, repair=1000.0)


@pytest.mark.parametrize(("chance", "waits"), [(0.49, True), (0.5, False), (0.9, False)])
def test_a_node_that_breaks_is_waited_for(draws: list[float], chance: float, waits: bool) -> None:
    """Half of the failures take a node: it is back after 1000 s, without a spare work stands."""
    draws += [111.0, chance]
    back = 111 + (1000 if waits else 60)
    assert done(HARDWARE, back + 109) == pytest.approx(100)
    assert done(HARDWARE, back + 111) == pytest.approx(200)


def test_a_spare_takes_the_place_of_one_node_and_not_of_two(draws: list[float]) -> None:
    spare = replace(HARDWARE, spares=1)
    draws += [111.0, 0.0, NEVER, 50.0, 0.0]
    assert done(spare, 111 + 60 + 49) == pytest.approx(100)
    first = 111 + 1000
    assert done(spare, first + 109) == pytest.approx(100)  # one is back, and goes on
    assert done(spare, first + 111) == pytest.approx(200)


def test_an_elastic_training_goes_on_with_fewer_replicas(draws: list[float]) -> None:
    """Four nodes of a replica each: three quarters of the work until the node is back."""
    elastic = replace(HARDWARE, elastic=True, replicas=4, nodes=4)
    draws += [111.0, 0.0]
    again = 111 + 60
    assert done(elastic, again + 111) == pytest.approx(100 + 75)
    assert done(elastic, again + 221) == pytest.approx(100 + 150)
    back = next(at for at in range(1, 20) if again + 110 * at >= 111 + 1000)  # begun with all
    assert done(elastic, again + 110 * back + 111) == pytest.approx(100 + 75 * back + 100)
    assert done(replace(elastic, spares=1), again + 111) == pytest.approx(200)


@pytest.mark.parametrize(
    ("replicas", "nodes", "missing", "lost"),
    [(4, 4, 1, 0.25), (4, 4, 3, 0.75), (4, 4, 5, 1.0), (4, 4, 0, 0.0), (4, 4, -1, 0.0),
     (8, 4, 1, 0.25), (4, 8, 1, 0.25), (4, 8, 4, 1.0)],
)  # fmt: skip
def test_each_missing_node_takes_its_replicas_or_one_that_spans_it(
    replicas: int, nodes: int, missing: int, lost: float
) -> None:
    assert replicas_lost(replace(ONE, replicas=replicas, nodes=nodes), missing) == lost


def test_erlangs_formula_says_how_long_work_stands() -> None:
    """Of a load of 2 with one, two and three nodes to go on with: 2/3, 2/5, 4/19."""
    away_2 = replace(ONE, hardware=0.002, repair=1000.0)
    assert [standing(replace(away_2, spares=n)) for n in (0, 1, 2)] == pytest.approx(
        [2 / 3, 2 / 5, 4 / 19]
    )
    assert standing(replace(away_2, elastic=True)) == standing(replace(away_2, repair=0.0)) == 0.0
    assert standing(replace(away_2, repair=-1.0)) == 0.0


def test_how_many_replicas_an_elastic_training_is_without() -> None:
    """On average the load over the replicas; with a spare less by those it stands in for."""
    elastic = replace(ONE, hardware=0.002, repair=1000.0, elastic=True, replicas=1000, nodes=1000)
    assert away(elastic) == pytest.approx(2 / 1000, rel=1e-6)
    spare = (2 - (1 - 2.718281828459045**-2)) / 1000  # Poisson: the first of one or more is free
    assert away(replace(elastic, spares=1)) == pytest.approx(spare, rel=1e-6)
    many = replace(elastic, hardware=10.0, replicas=10**6, nodes=10**6)  # 10,000 nodes away
    assert away(many) == pytest.approx(0.01, rel=1e-6)
    assert away(replace(many, spares=10_000)) == pytest.approx(0.4 * 1e-4, rel=0.01)  # a deviation
    assert away(replace(elastic, elastic=False)) == away(replace(elastic, repair=0.0)) == 0.0
    assert away(replace(elastic, replicas=1, nodes=1)) <= 1.0


def test_of_millions_of_nodes_in_repair_as_many_are_away_as_on_average() -> None:
    """Two million: a tenth of 20 million replicas; with a million spares half of that, and of a
    training that cannot go on without them half of the time."""
    two = replace(ONE, hardware=2000.0, repair=1000.0, replicas=2 * 10**7, nodes=2 * 10**7)
    elastic = replace(two, elastic=True)
    assert away(elastic) == pytest.approx(0.1)
    assert away(replace(elastic, spares=10**6)) == pytest.approx(0.05)
    assert standing(replace(two, spares=10**6)) == pytest.approx(0.5)
    assert standing(replace(two, spares=3 * 10**6)) == 0.0
    assert standing(two) == 1.0
    assert standing(replace(two, hardware=1000.0)) == pytest.approx(1e6 / (1 + 1e6), rel=1e-9)


def test_progress_without_failures_and_with_too_many() -> None:
    assert progress(replace(ONE, rate=0.0), 90.0) == 0.9
    assert progress(replace(ONE, rate=8.0), 90.0) == 0.0
    assert progress(replace(ONE, rate=6.9, recover=0.0, safe_after=0.0), 90.0) > 0.0


def test_checkpoints_are_no_nearer_than_a_step_or_than_they_take() -> None:
    """Where failures are so many that the shortest is best."""
    often = replace(ONE, rate=1.0, recover=0.0)
    assert best_interval(often) == pytest.approx(50.0 - 10.0, rel=1e-6)
    assert best_interval(replace(often, safe_after=0.0)) == pytest.approx(10.0, rel=1e-6)
    assert best_interval(often, step=70.0) == pytest.approx(70.0, rel=1e-6)
    assert best_interval(replace(ONE, rate=0.0)) == 86400.0
    assert best_interval(replace(ONE, rate=0.0), step=1e6) == 1e6
    assert longest_interval(replace(ONE, rate=0.0), 123.0) == 123.0
    one = replace(ONE, rate=1e-4)
    best = best_interval(one)
    longest = longest_interval(one, best)
    assert longest > best
    assert progress(one, longest) == pytest.approx(0.999 * progress(one, best), rel=1e-9)
    far = 20 / one.rate  # hardly any segment is ever done, and rarer ones are at once
    assert progress(one, longest_interval(one, far)) == pytest.approx(
        0.999 * progress(one, far), rel=1e-9
    )
