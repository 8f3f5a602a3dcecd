"""Which of Gloo's runs belongs to which c10d op (`gloo_runs`)."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from commsim.traces.formats import Event, EventArgs, EventKind
from commsim.traces.rebuild.rank.gloo_runs import IssuedOp, matched_runs

PER_GROUP = 2  # threads


def event(start: int, end: int, thread: str) -> Event:
    return Event(EventKind.ANNOTATION, "", ("1", thread), start, end, -1, -1, EventArgs())


def issued(start: int, kind: str, group: str) -> IssuedOp:
    return IssuedOp(event(start, start, "user"), kind, group)


def starts(found: Sequence[Event | None]) -> list[int]:
    return [run.start if run else -1 for run in found]


def test_a_group_that_begins_first_takes_no_run_of_another() -> None:
    """Rank 2 of random-2022: the second group's all-reduce began before the first group's."""
    calls = [
        issued(4030, "all_reduce", "0"), issued(4459, "all_reduce", "2"),
        issued(63051, "all_to_all", "0"),
    ]  # fmt: skip
    runs = {
        "all_reduce": [event(4703, 19786, "c"), event(5055, 10928, "a")],
        "all_to_all": [event(63206, 69697, "a")],
    }
    assert starts(matched_runs(calls, runs)) == [5055, 4703, 63206]


def test_a_group_keeps_its_order_where_one_of_its_threads_is_not_known() -> None:
    """Rank 6 of random-2023: a run on a thread that ran nothing else comes before a known one's."""
    calls = [
        issued(0, "barrier", "0"), issued(31785, "all_reduce", "1"),
        issued(54604, "all_reduce", "0"), issued(64166, "all_reduce", "1"),
    ]  # fmt: skip
    runs = {
        "barrier": [event(1, 2, "a")],
        "all_reduce": [
            event(54767, 54900, "a"), event(57752, 58000, "c"), event(64502, 64600, "d"),
        ],
    }  # fmt: skip
    assert starts(matched_runs(calls, runs)) == [1, 57752, 54767, 64502]


def test_without_groups_runs_follow_the_order_of_issue() -> None:
    calls = [issued(10, "barrier", ""), issued(20, "barrier", ""), issued(30, "barrier", "")]
    runs = {"barrier": [event(5, 6, "a"), event(21, 50, "a"), event(22, 60, "b")]}
    assert starts(matched_runs(calls, runs)) == [21, 22, -1]


@given(
    st.lists(
        st.tuples(st.sampled_from("012"), st.integers(0, 30), st.integers(1, 90)),
        min_size=1,
        max_size=25,
    )
)
def test_runs_go_to_their_own_group_if_each_thread_once_ran_alone(
    calls: list[tuple[str, int, int]],
) -> None:
    """A group's threads take its calls in order; every thread runs alone once before that."""
    made: list[tuple[IssuedOp, Event]] = []
    now = 0
    for group in "012":
        for thread in range(PER_GROUP):
            made.append((issued(now, "barrier", group), event(now, now + 1, f"{group}{thread}")))
            now += 10
    free = {(group, thread): now for group in "012" for thread in range(PER_GROUP)}
    last = dict.fromkeys("012", now)
    for group, later, length in calls:
        now += later
        thread = min(range(PER_GROUP), key=lambda of: free[group, of])
        start = max(now, free[group, thread], last[group])
        free[group, thread], last[group] = start + length, start
        run = event(start, start + length, f"{group}{thread}")
        made.append((issued(now, "all_reduce", group), run))
    runs: dict[str, list[Event]] = {"barrier": [], "all_reduce": []}
    for one, run in made:
        runs[one.kind].append(run)
    runs["all_reduce"].sort(key=lambda run: run.start)
    assert starts(matched_runs([one for one, _ in made], runs)) == [run.start for _, run in made]
