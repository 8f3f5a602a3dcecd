"""Pipelined trees and chains: the best number of pieces, and what the textbook says of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from helpers.share import later, share, share_of_each
from helpers.star import Star

from commsim.collectives import program
from commsim.libraries import Ideal, Request
from commsim.libraries.expansion import arrivals, busiest, lay, part_of
from commsim.libraries.ideal import library, pieces
from commsim.libraries.ideal.pieces import Pipeline
from commsim.libraries.plan import PlanPart, PlanPhase
from commsim.libraries.routing import Router

LARGE = 1 << 32
SPEED = 1e9


def seconds(op: str, algorithm: str, n: int, size: int, count: int = 0) -> float:
    request = Request(op, size, tuple(range(n)), root=-1 if op == "all_reduce" else 0)
    return Ideal(algorithm, pieces=count).plan(request, Star(n, SPEED)).idle * 1e-12


def sent(op: str, algorithm: str, n: int) -> float:
    """Return the times S that the busiest rank sends or receives, as the textbook counts them."""
    if (op, algorithm) == ("all_reduce", "tree"):
        return min(n - 1, 3)  # up and twice down, or less where the tree is only a chain
    if (op, algorithm) == ("all_reduce", "double_tree"):
        return {2: 1.0, 3: 1.5}.get(n, 2.0)
    return 2.0 if algorithm == "tree" and n > 3 else 1.0


TREES = list(product(["all_reduce", "broadcast", "reduce"], ["tree", "double_tree"]))


@pytest.mark.share(0.6)
@pytest.mark.parametrize(("op", "algorithm", "n"), [
    *share_of_each(TREES, [(n,) for n in (2, 3, 4, 5, 6, 7, 11)], 0.5),
    *share(((*tree, 32) for tree in TREES), 0.2),
    *(later((*tree, 100)) for tree in TREES),
])  # fmt: skip
def test_large_buffers_take_what_the_busiest_rank_sends(op: str, algorithm: str, n: int) -> None:
    textbook = sent(op, algorithm, n) * LARGE / SPEED
    assert textbook <= seconds(op, algorithm, n, LARGE) <= 1.02 * textbook


@pytest.mark.share(0.4)
@pytest.mark.parametrize(
    ("op", "algorithm", "n", "size"),
    share_of_each(
        [*TREES, ("broadcast", "ring"), ("reduce", "ring")],
        product([2, 3, 6, 13], [1_000, 100_000]),
        0.4,
    ),
)
def test_no_other_number_of_pieces_is_much_better(
    op: str, algorithm: str, n: int, size: int
) -> None:
    """But of a ring all-reduce, which is cut into as many chunks as there are ranks."""
    tried = [
        seconds(op, algorithm, n, size, count) for count in (1, 2, 3, 4, 6, 8, 12, 24, 64, 128)
    ]
    assert seconds(op, algorithm, n, size) <= 1.03 * min(tried)


@pytest.mark.parametrize(("op", "algorithm"), [
    ("all_reduce", "tree"), ("all_reduce", "double_tree"), ("broadcast", "ring"),
])  # fmt: skip
def test_pieces_that_are_not_timed_take_as_long_as_those_before(
    op: str, algorithm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(3)
    cluster = Star(9, rng.uniform(1e9, 5e9, 18), rng.integers(10**5, 10**7, 18))
    request = Request(op, 1 << 26, tuple(range(9)), root=-1 if op == "all_reduce" else 0)
    exact = Ideal(algorithm, pieces=200).plan(request, cluster).parts[0]
    monkeypatch.setattr(pieces, "_MOST_MESSAGES", 1000)
    some = Ideal(algorithm, pieces=200).plan(request, cluster).parts[0]
    assert some.idle == pytest.approx(exact.idle, rel=0.01)
    assert some.leaves == pytest.approx(exact.leaves, rel=0.01)
    assert some.phases[0].load == pytest.approx(exact.phases[0].load)
    assert some.phases[0].conns == pytest.approx(exact.phases[0].conns)


@pytest.mark.parametrize("count", [100, 1_000_000])
def test_no_more_messages_are_laid_out_than_can_be_timed(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    laid: list[int] = []

    def noted(messages: Any, *rest: Any, **more: Any) -> Any:
        laid.append(len(messages.source))
        return part_of(messages, *rest, **more)

    monkeypatch.setattr(pieces, "part_of", noted)
    monkeypatch.setattr(pieces, "_MOST_MESSAGES", 1000)
    request = Request("all_reduce", 1 << 26, tuple(range(9)))
    Ideal("tree", pieces=count).plan(request, Star(9, SPEED))
    assert laid
    assert max(laid) <= 1000


@pytest.mark.parametrize(("op", "algorithm", "window"), [
    ("all_reduce", "tree", True), ("reduce", "double_tree", True), ("broadcast", "tree", False),
    ("broadcast", "double_tree", False), ("broadcast", "ring", False), ("reduce", "ring", False),
])  # fmt: skip
def test_only_what_sums_along_a_tree_waits_for_its_pieces_under_way(
    op: str, algorithm: str, window: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Pipeline] = []

    def noted(*values: Any) -> Pipeline:
        made.append(Pipeline(*values))
        return made[-1]

    monkeypatch.setattr(library, "Pipeline", noted)
    request = Request(op, 1 << 10, (0, 1, 2), root=-1 if op == "all_reduce" else 0)
    Ideal(algorithm).plan(request, Star(3))
    assert [one.window for one in made] == [window]


GRID = [1, 2, 3, 4, 5, 6, 7, 9, 12, 15, 18, 23, 28, 36, 44, 56, 69, 87, 108, 136]
"""A quarter more pieces each time, in whole numbers."""


def best_of(
    cost: Callable[[int], float], starts: list[float], most: int, monkeypatch: pytest.MonkeyPatch
) -> tuple[int, list[int]]:
    """Return the best number of pieces where k of them take `cost(k)`, and those tried."""
    tried: list[int] = []

    def arrived(messages: range, links: object) -> np.ndarray:
        tried.append(len(messages))
        return np.array([cost(len(messages))])

    monkeypatch.setattr(pieces, "arrivals", arrived)
    made: Any = Pipeline(cast("Any", range), lambda made, size: cast("Any", made), 1.0,
                         Star(2).links, window=True)  # fmt: skip
    return made._tried(starts, most), tried


@pytest.mark.parametrize("best", [1, 2, 7, 36, 108, 136])
@pytest.mark.parametrize("starts", [[0.0], [1.0], [30.0], [1e9], [1.0, 200.0]])
def test_the_best_of_the_numbers_is_found_from_anywhere(
    best: int, starts: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    found, tried = best_of(lambda k: abs(math.log(k / best)), starts, 136, monkeypatch)
    assert found == best
    assert set(tried) <= set(GRID)
    assert len(tried) == len(set(tried))


@pytest.mark.parametrize("start", [5.0, 87.0])
@pytest.mark.parametrize("worse", [(18, 28), (9, 15, 44), (12, 36), (9, 18, 28, 44)])
def test_a_single_worse_number_is_no_end(
    start: float, worse: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """23 pieces are best; one number on the way to it is worse than both beside it."""
    found, _ = best_of(
        lambda k: abs(math.log(k / 23)) + 5.0 * (k in worse), [start], 136, monkeypatch
    )
    assert found == 23


@pytest.mark.parametrize(("most", "last"), [(1, 1), (2, 2), (8, 8), (9, 9), (100, 100), (136, 136)])
def test_no_more_pieces_are_tried_than_asked_for(
    most: int, last: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert best_of(lambda k: -k, [1e9], most, monkeypatch)[0] == last
    monkeypatch.setattr(pieces, "_MOST_TRIED", 23)
    assert best_of(lambda k: -k, [1e9], 136, monkeypatch)[0] == 23  # messages in all
    monkeypatch.setattr(pieces, "_MOST_TRIED", 22)
    assert best_of(lambda k: -k, [1e9], 136, monkeypatch)[0] == 18


def pipeline(size: float, *, window: bool, n: int = 9) -> Pipeline:
    """Return a tree over n GPUs of 1 GB/s each way, 2 us apart."""
    router = Router(Star(n, SPEED))
    return Pipeline(
        lambda count: program("all_reduce", "tree", n, pieces=count),
        lambda made, carried: lay(made, carried, range(n), range(n), router),
        size, router.cluster.links, window,
    )  # fmt: skip


@pytest.mark.parametrize(("size", "count"), [
    # the root's child sends and gets S three times, a byte takes 1 ns and a hop 2 us
    (30_000.0, 45),
    (20_001.0, 31),
    (1_000.0, program("all_reduce", "tree", 9, pieces=1).steps + 2),  # as many as are under way
])  # fmt: skip
def test_too_many_messages_to_try_leave_a_piece_a_hop(
    size: float, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pieces, "_MOST_TRIED", 1)
    assert pipeline(size, window=True).best_count() == count
    assert pipeline(size, window=False).best_count() > count


def test_without_latency_and_bytes_one_piece_is_enough() -> None:
    assert pipeline(0.0, window=True).best_count() == 1
    assert pipeline(1.0, window=False).best_count() == 1
    assert pipeline(1e12, window=True).best_count() == pipeline(1e12, window=False).best_count()


def test_the_fill_of_a_pipeline_costs_half_a_percent() -> None:
    """Without a window: k pieces, whose fill is a k-th of that of one."""
    whole = pipeline(1e9, window=False)
    count = whole.best_count()
    latency = float(arrivals(whole.lay(whole.program(1), 0.0), whole.links).max())
    wires = busiest(whole.messages(1), whole.links)
    for k, least in ((count, 0.0), (count - 1, 0.005)):
        time = float(arrivals(whole.messages(1), whole.links).max())
        fill = (time - latency - wires) / k
        assert (fill / (latency + wires) > 0.005) is (least > 0)


def test_all_channels_of_an_op_have_as_many_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []

    def best(pipeline: Pipeline) -> int:
        asked.append(pipeline.size)
        return len(asked)

    monkeypatch.setattr(Pipeline, "best_count", best)
    library, cluster = Ideal("tree", channels=2), Star(6)
    for size in (600, 1200):
        library.plan(Request("all_reduce", size, tuple(range(6))), cluster)
    assert asked == [300.0, 0.0, 600.0, 0.0]  # with the bytes, and the latency alone
    library.plan(Request("broadcast", 1200, tuple(range(6)), root=0), cluster)
    assert len(asked) == 6


def test_a_part_that_goes_on_keeps_the_shares_of_its_phases() -> None:
    def phase(idle: int, load: float) -> PlanPhase:
        return PlanPhase(idle, np.array([0]), np.array([load]), np.ones(1))

    part = PlanPart(
        (phase(10, 4.0), phase(11, 8.0), phase(19, 2.0)),
        np.array([0, 5, 0]),
        np.array([-1, 0, 40]),
    )
    longer = pieces._continued(part, 20, 1.5)
    # 60 ps in place of 40; what rounding leaves is the last one's
    assert [flow.idle for flow in longer.phases] == [15, 16, 29]
    assert [flow.load.tolist() for flow in longer.phases] == [[6.0], [12.0], [3.0]]
    assert longer.joins.tolist() == [0, 5, 0]
    assert longer.leaves.tolist() == [-1, 20, 60]


@pytest.mark.parametrize(("latency", "busy", "count"), [
    (2.0, 2.0, 3), (1.0, 3.0, 3), (4.0, 0.0, 3), (0.0, 4.0, 3), (0.0, 0.0, 1),
])  # fmt: skip
def test_pieces_are_as_many_as_make_the_fill_small(
    monkeypatch: pytest.MonkeyPatch, latency: float, busy: float, count: int
) -> None:
    """A fill of 2.5 times what is allowed of latency and transfer together, whichever is longer."""
    fill = 2.5 * pieces._FILL * (latency + busy)

    def laid(shape: Any, size: float) -> Any:
        return SimpleNamespace(routes=[SimpleNamespace(latency=1.0)], size=size)

    def last(one: Any, links: Any) -> Any:
        return np.array([0.0, latency + (busy + fill if one.size else 0.0)])

    monkeypatch.setattr(pieces, "arrivals", last)
    monkeypatch.setattr(pieces, "busiest", lambda one, links: busy)
    made = Pipeline(cast(Any, lambda n: None), laid, 1e6, cast(Any, None), False)
    assert made.best_count() == count
