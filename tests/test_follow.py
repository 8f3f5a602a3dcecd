"""Which share of some work is done, for whoever wants to know."""

from __future__ import annotations

from collections.abc import Callable

import commsim as cs
from commsim.follow import followed, part_of

Ask = Callable[[], float]


def test_items_are_followed() -> None:
    asked: list[Ask] = []
    shares = [asked[0]() for _ in followed("abcd", asked.append)]
    assert [*shares, asked[0]()] == [0.0, 0.25, 0.5, 0.75, 1.0]


def test_no_items_are_none_done() -> None:
    asked: list[Ask] = []
    assert list(followed("", asked.append)) == []
    assert asked[0]() == 0.0


def test_parts_follow_one_another() -> None:
    asked: list[Ask] = []
    for at, share in ((0, 0.5), (1, 0.0), (1, 1.0)):
        part_of(asked.append, at, 2)(lambda share=share: share)  # type: ignore[misc]
    assert [share() for share in asked] == [0.25, 0.5, 1.0]


def test_a_training_is_followed_while_it_is_built() -> None:
    """Of both steps, and to the end; the simulation begins anew, and lets its engine go."""
    said: list[str] = []
    asked: list[tuple[str, Ask]] = []
    cs.run(
        "dp-pp",
        progress=said.append,
        follow=lambda share: asked.append((said[-1].split()[0], share)),
    )
    assert [(word, share()) for word, share in asked] == [
        ("building", 1.0),
        ("simulating", 1.0),
        ("simulating", 1.0),
    ]


def test_plans_of_folded_ranks_are_followed() -> None:
    """In one round at least, between the building and the simulation."""
    said: list[str] = []
    asked: list[tuple[str, Ask]] = []
    cs.run(
        "dp-pp",
        ["workload.training.parallel.dp=16"],
        cluster={"nodes": 8},
        progress=said.append,
        follow=lambda share: asked.append((said[-1].split()[0], share)),
    )
    planned = [share() for word, share in asked if word == "planning"]
    assert planned
    assert set(planned) == {1.0}


def test_programs_and_collectives_are_followed_while_they_are_built() -> None:
    for name in ("p2p-blocking", "ring-all-reduce"):
        asked: list[Ask] = []
        cs.run(name, follow=asked.append)
        assert [share() for share in asked] == [1.0, 1.0, 1.0], name
