"""Rank placement: degrees, order, and the arithmetic of a world that does not fit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commsim.errors import ScenarioError
from commsim.workload.layout import AXES, Layout, check_world, divided, make_layout

DEGREES = {"tp": 2, "cp": 1, "dp": 2, "pp": 4}


def test_the_first_axis_of_the_order_is_the_fastest() -> None:
    layout = make_layout(DEGREES, ("tp", "cp", "dp", "pp"), where="x")
    assert layout.world == 16
    assert layout.groups("tp").tolist() == [[2 * k, 2 * k + 1] for k in (0, 2, 4, 6, 1, 3, 5, 7)]
    assert [1, 3] in layout.groups("dp").tolist()
    assert [2, 6, 10, 14] in layout.groups("pp").tolist()


def test_another_order_places_otherwise() -> None:
    layout = make_layout({"tp": 1, "cp": 1, "dp": 2, "pp": 2}, ("pp", "tp", "cp", "dp"), where="x")
    assert layout.groups("pp").tolist() == [[0, 1], [2, 3]]
    assert layout.groups("dp").tolist() == [[0, 2], [1, 3]]


def test_gradients_are_shared_over_data_and_context() -> None:
    """tp 2, cp 2, dp 2: the replicas of rank 0 differ in cp first, as the order says."""
    degrees = {"tp": 2, "cp": 2, "dp": 2, "pp": 1}
    layout = make_layout(degrees, ("tp", "cp", "dp", "pp"), where="x")
    assert layout.replicas().tolist() == [[0, 2, 4, 6], [1, 3, 5, 7]]
    other = make_layout(degrees, ("tp", "dp", "cp", "pp"), where="x")
    assert other.replicas().tolist() == [[0, 2, 4, 6], [1, 3, 5, 7]]
    assert other.groups("cp").tolist() == [[0, 4], [2, 6], [1, 5], [3, 7]]
    groups, same = divided(layout.replicas(), 2)
    assert groups.tolist() == [[0, 2], [4, 6], [1, 3], [5, 7]]
    assert same.tolist() == [[0, 4], [2, 6], [1, 5], [3, 7]]


@given(st.permutations(AXES), st.lists(st.integers(1, 4), min_size=4, max_size=4))
def test_every_place_has_its_own_rank(order: list[str], degrees: list[int]) -> None:
    layout = Layout(tuple(order), tuple(degrees))
    places = [
        {"tp": t, "cp": c, "dp": d, "pp": p}
        for t in range(layout.degree("tp"))
        for c in range(layout.degree("cp"))
        for d in range(layout.degree("dp"))
        for p in range(layout.degree("pp"))
    ]
    assert sorted(layout.rank(place) for place in places) == list(range(layout.world))
    indices = layout.places()
    for place in places:
        rank = layout.rank(place)
        assert {axis: int(indices[axis][rank]) for axis in AXES} == place
        assert layout.grid()[tuple(place[axis] for axis in AXES)] == rank
    for axis in AXES:
        assert sorted(layout.groups(axis).ravel().tolist()) == list(range(layout.world))


def test_a_world_that_does_not_fit_says_the_arithmetic() -> None:
    order = ("tp", "cp", "dp", "pp")
    layout = make_layout({"tp": 1, "cp": 1, "dp": 4, "pp": 2}, order, where="x")
    with pytest.raises(ScenarioError) as caught:
        check_world(layout, 16, where="training.parallel")
    assert "training.parallel: pp=2 × dp=4 = 8 ranks, the cluster has 16 GPUs" in str(caught.value)
    assert "dp=8 would use them all" in str(caught.value)
    with pytest.raises(ScenarioError, match=r"tp=8 × pp=4 × dp=4 = 128 ranks, .* 60 GPUs\. Change"):
        check_world(
            make_layout({"tp": 8, "cp": 1, "dp": 4, "pp": 4}, order, where="x"), 60, where="x"
        )


@pytest.mark.parametrize("order", [("dp", "pp"), ("tp", "cp", "dp", "dp"), ("a", "b", "c", "d")])
def test_an_order_names_every_axis_once(order: tuple[str, ...]) -> None:
    with pytest.raises(ScenarioError, match=r"parallel\.order: .* each of tp, cp, dp, pp once"):
        make_layout(DEGREES, order, where="parallel")
