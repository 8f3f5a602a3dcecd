"""Kernels of no known library that end together on several ranks."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from commsim.traces.formats import Event, EventKind, Events
from commsim.traces.formats.event_args import NO_ARGS
from commsim.traces.rebuild.rank.suspects import (
    Suspect,
    _scatter,
    _together,
    suspects_of,
    waiting_like_communication,
)

US = 10**6  # ps
OFFSET = 5000 * US  # of the second rank's clock


def test_how_far_differences_are_from_their_middle() -> None:
    one, two = np.array([10, 20, 30]), np.array([9, 17, 10])
    assert _scatter(one, two).tolist() == [2, 0, 17]  # of differences 1, 3 and 20


@pytest.mark.parametrize(("apart", "together"), [(61, True), (60, False), (59, False)])
def test_a_kernel_that_ends_together_and_began_apart_waits(apart: int, together: bool) -> None:
    """Ends are 10 us from their middle, on average: starts must be over 20 + 4 x 10 us from it."""
    ends = np.arange(1, 5) * 1000 * US
    late = np.array([-10, 10, -10, 10]) * US
    early = np.array([-1, 1, -1, 1]) * apart * US
    one = Suspect("k", ends - 500 * US, ends)
    two = Suspect("k", ends - 500 * US + OFFSET + early, ends + OFFSET + late)
    other = Suspect("k", one.starts[:3], one.ends[:3])  # called less often: not of them
    found = _together({0: one, 3: two, 7: other})
    assert found == (([0, 3], apart * US) if together else ([], 0))


def test_ends_that_are_apart_are_of_no_collective() -> None:
    ends = np.arange(1, 5) * 1000 * US
    one = Suspect("k", ends - 500 * US, ends)
    two = Suspect(
        "k", ends - 500 * US + np.array([-1, 1, -1, 1]) * 900 * US,
        ends + np.array([-1, 1, -1, 1]) * 11 * US,
    )  # fmt: skip
    assert _together({0: one, 1: two}) == ([], 0)


def kernels(*rows: tuple[str, int, int], known: tuple[str, ...] = ()) -> tuple[Suspect, ...]:
    """Return the suspects among kernels (name, start, end), of which some are `known`."""
    events = Events.of(
        Event(EventKind.MEMCPY if name == "copy" else EventKind.KERNEL, name, ("", ""), start, end,
              -1, 7, NO_ARGS)
        for name, start, end in rows
    )  # fmt: skip
    communicates = np.array([name in known for name, _, _ in rows], bool)
    gpu = SimpleNamespace(events=events, communicates=communicates)
    return suspects_of(SimpleNamespace(gpu=gpu))  # type: ignore[arg-type]


def calls(name: str, count: int, length: int, first: int = 1000) -> list[tuple[str, int, int]]:
    return [(name, first + 100 * at, first + 100 * at + length) for at in range(count)]


@pytest.mark.parametrize(
    ("count", "length", "found"),
    [(4, 13, ["x"]), (3, 50, []), (4, 12, []), (5, 10, []), (17, 3, ["x"])],
)
def test_a_suspect_is_called_four_times_and_takes_over_a_200th(
    count: int, length: int, found: list[str]
) -> None:
    """The recording takes 10,000 from the start of its first work: a 200th of it is 50."""
    ends = [("first", 500, 501), ("last", 10_499, 10_500)]
    rows = sorted([*ends, *calls("x", count, length)], key=lambda row: row[1])
    assert [suspect.name for suspect in kernels(*rows)] == found


def test_suspects_are_kernels_of_no_library_the_longest_first_and_16_at_most() -> None:
    rows = [
        row for at in range(20) for row in calls(f"k{at:02}", 4, 60 - at // 2, 1000 + 1000 * at)
    ]
    names = [suspect.name for suspect in kernels(*rows)]
    assert names == [f"k{at:02}" for at in range(16)]
    both = [*calls("nccl", 4, 90), *calls("copy", 4, 90, 2000), *calls("x", 4, 50, 3000)]
    (one,) = kernels(*both, known=("nccl",))
    assert (one.name, one.starts.tolist()) == ("x", [3000, 3100, 3200, 3300])
    assert one.ends.tolist() == [3050, 3150, 3250, 3350]
    assert kernels(*calls("copy", 9, 90)) == ()


def test_the_first_512_calls_are_looked_at() -> None:
    (one,) = kernels(*calls("x", 513, 90))
    assert (len(one.starts), len(one.ends)) == (512, 512)
    assert one.ends[-1] == 1000 + 511 * 100 + 90


@pytest.mark.parametrize(
    ("ranks", "listed"), [(4, "ranks 0, 1, 2, 3 and begin"), (5, "ranks 0, 1, 2, 3 ... and begin")]
)
def test_a_note_names_the_kernel_and_up_to_four_ranks(ranks: int, listed: str) -> None:
    ends = np.arange(1, 5) * 1000 * US
    sways = np.array([-1, 1, -1, 1]) * 90 * US
    name = "k" * 101
    of_rank = {
        rank: (Suspect(name, ends - 500 * US + (sways if rank else 0), ends),)
        for rank in range(ranks)
    }
    (note,) = waiting_like_communication(of_rank)
    assert f"the 4 kernels {'k' * 100!r} end together on {listed} up to 90 us apart" in note
    assert list(waiting_like_communication({0: of_rank[0]})) == []
