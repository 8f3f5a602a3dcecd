"""Errors, messages and pipelines of a replay, on timelines whose every time is set by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from helpers.hand_made import timeline

from commsim.graph import GraphBuilder
from commsim.study.replay.errors import errors, rank_table, relative, steps, worst
from commsim.study.replay.messages import message_table, pairs, pipeline, pipeline_table
from commsim.study.replay.self_check import AccountCheck, Miss, check_account
from commsim.timeline import Timeline
from commsim.traces import MessageRow

US = 10**6
Times = tuple[int, ...]


def run(*of_rank: tuple[Times, Times]) -> Timeline:
    """Ranks 5, 6, ... that compute, then meet in an all-reduce: (start, end) and (arrive, ...)."""
    build = GraphBuilder()
    group = build.group("world", range(5, 5 + len(of_rank)))
    for number in range(len(of_rank)):
        lane = build.lane(5 + number)
        work = build.compute(lane, 1, name="F")
        meet = build.collective(lane, group, "all_reduce", 8, stream="nccl", after=[work])
        build.window(lane, work, meet)
    times = [tuple(US * t for t in times) for both in of_rank for times in both]
    return timeline(build, times)


BEFORE = run(((0, 10), (10, 40, 60)), ((0, 40), (40, 40, 60)))
AFTER = run(((0, 10), (10, 34, 66)), ((0, 40), (40, 43, 57)))


def test_errors_are_of_what_was_measured() -> None:
    """Steps of 60 us become 66 and 57; the wait of 30 becomes 24, one of none becomes 3."""
    assert steps(BEFORE).tolist() == [60 * US, 60 * US]
    found = errors(BEFORE, AFTER)
    assert found["step_time"] == pytest.approx(0.1)
    assert [row["rank"] for row in found["ranks"]] == [5, 6]
    assert [row["step_time"] for row in found["ranks"]] == pytest.approx([0.1, -0.05])
    assert [row["wait"] for row in found["ranks"]] == [pytest.approx(-0.2), None]
    waits = found["waits"]
    assert (waits["count"], waits["median_abs"]) == (2, pytest.approx(0.2))
    assert waits["median_abs_s"] == pytest.approx(4.5e-6)  # of 6 and 3 us
    assert waits["max_abs_s"] == pytest.approx(6e-6)
    assert worst(found) == pytest.approx(0.1)
    assert worst({"ranks": [{"step_time": None}]}) == worst({"ranks": []}) == 0.0


def test_errors_of_a_run_that_waits_for_nothing() -> None:
    build = GraphBuilder()
    build.compute(build.lane(0), 1, name="F")
    alone = timeline(build, [(0, 5 * US)])
    assert errors(alone, alone)["waits"] is None
    even = run(((0, 10), (10, 60)), ((0, 10), (10, 60)))
    assert errors(even, even)["waits"]["median_abs"] is None


def test_a_microsecond_is_too_little_for_a_share() -> None:
    assert relative(2 * US, US) is None
    assert relative(2 * US + 2, US + 1) == 1.0
    assert relative(0, 4 * US) == -1.0


def test_the_table_of_ranks() -> None:
    """A tenth longer on rank 5, a twentieth shorter on rank 6."""
    assert rank_table(BEFORE, AFTER, None, what="") == [
        ("rank", "measured step", "replayed", "error"),
        ("5", "60 us", "66 us", "+10.00%"), ("6", "60 us", "57 us", "-5.00%"),
    ]  # fmt: skip
    rows = rank_table(BEFORE, BEFORE, AFTER, what="modelled")
    assert rows[0][4:] == ("modelled", "error")
    assert rows[1] == ("5", "60 us", "60 us", "+0.00%", "66 us", "+10.00%")
    assert rank_table(BEFORE, BEFORE, AFTER, what="what if")[0][4:] == ("what if", "change")


def trace(*rows: MessageRow, **more: Any) -> Any:
    return SimpleNamespace(messages=rows, own_accounts={}, **more)


def message(
    source: int, target: int, transfer: int = 10, size: int = 1000, waits: tuple[int, int] = (0, 0),
    *, in_step: bool = True,
) -> MessageRow:  # fmt: skip
    ends = {source: waits[0] * US, target: waits[1] * US}
    late = source if waits[1] else target
    return MessageRow(source, target, size, 0, "g", 0, transfer * US, late, ends, in_step)


def test_messages_by_pair_what_waited_longest_first() -> None:
    """6000 bytes in 60 us are 0.1 GB/s."""
    found = pairs(
        trace(
            message(0, 1, 10, 1000, (2, 0)), message(0, 1, 30, 3000, (0, 3)),
            message(0, 1, 20, 2000),
            message(0, 1, 99, in_step=False),
            message(1, 0, 5, 0, (6, 0)), message(2, 1, 0, 8),
        )
    )  # fmt: skip
    assert [(row["source"], row["target"]) for row in found] == [(1, 0), (0, 1), (2, 1)]
    assert found[1] == {
        "source": 0, "target": 1, "count": 3, "bytes": 6000, "transfer_s": pytest.approx(20e-6),
        "bandwidth_gbs": pytest.approx(0.1), "source_wait_s": pytest.approx(2e-6),
        "target_wait_s": pytest.approx(3e-6), "source_late": 1, "target_late": 2,
    }  # fmt: skip
    assert [row["bandwidth_gbs"] for row in (found[0], found[2])] == [None, None]
    rows = message_table(found)
    assert rows[2] == (
        "0", "1", "3", "5.859 KiB", "20 us", "0.1 GB/s", "2 us", "3 us", "1 times", "2 times",
    )  # fmt: skip
    assert rows[1][5] == "–"
    assert len(rows) == 4


def test_forty_pairs_are_shown_and_the_others_counted() -> None:
    many = pairs(trace(*(message(0, rank) for rank in range(1, 43))))
    rows = message_table(many)
    assert len(rows) == 42
    assert rows[-1] == ("and 2 more", *[""] * 9)
    assert len(message_table(many[:40])) == 41


def both(*ways: tuple[int, int]) -> Any:
    return trace(*(message(*way) for pair in ways for way in (pair, pair[::-1])))


def busy(*times: int, step: int = 20) -> Timeline:
    """Ranks 5, 6, ... that compute for so many us of a step of 20."""
    build = GraphBuilder()
    for number in range(len(times)):
        build.compute(build.lane(5 + number), 1, name="F")
    for number in range(len(times)):
        build.compute(number, 1, name="B")
    whole = [(0, (time - 1) * US) for time in times] + [((step - 1) * US, step * US)] * len(times)
    return timeline(build, whole)


def test_messages_that_join_ranks_in_a_line_are_a_pipeline() -> None:
    """Busy for 10, 12 and 8 of 20 us each: half of the time is bubble."""
    measured = busy(10, 12, 8)
    found = pipeline(both((7, 5), (5, 6)), measured)
    assert found is not None
    assert [stage["rank"] for stage in found["stages"]] == [6, 5, 7]
    assert [stage["busy_s"] * 1e6 for stage in found["stages"]] == [
        pytest.approx(12), pytest.approx(10), pytest.approx(8),
    ]  # fmt: skip
    assert found["bubble_fraction"] == pytest.approx(0.5)
    assert pipeline_table(found) == [
        ("stage", "rank", "busy"), ("0", "6", "12 us"), ("1", "5", "10 us"), ("2", "7", "8 us"),
        ("bubble", "", "50.0%"),
    ]  # fmt: skip
    assert pipeline_table(None) == pipeline_table(found | {"bubble_fraction": None}) == []


def test_other_shapes_are_no_pipeline() -> None:
    measured = busy(10, 12, 8, 8, 8)
    ring = both((5, 6), (6, 7), (7, 5))
    star = both((5, 6), (5, 7), (5, 8))
    two = both((5, 6), (7, 8))
    apart = both((5, 6), (7, 8), (8, 9), (9, 7))
    # Two ends, and a way that leads through all of them; but 6 and 8 have three beside them.
    triangle = both((5, 6), (6, 7), (7, 8), (6, 8), (8, 9))
    one_way = trace(message(5, 6), message(7, 6))
    for messages in (ring, star, two, apart, triangle, one_way, trace(message(5, 6)), trace()):
        assert pipeline(messages, measured) is None


def checked(measured: Timeline, again: Timeline, **more: Any) -> AccountCheck:
    return check_account(trace(**more), measured, again)


def test_parts_of_a_step_are_held_to_the_recording() -> None:
    """Rank 5 computes for 10 and waits for 30 of 60 us; 100 times as much is looked at here."""

    def scaled(wait: int) -> Timeline:
        meet = (1000, 1000 + wait, 6000)
        return run(((0, 1000), meet), ((0, 1000 + wait), (1000 + wait, 1000 + wait, 6000)))

    found = checked(scaled(3000), scaled(3000))
    assert found.misses == ()
    assert found.verdict() == (
        "every rank's step, compute, transfers, waits and copies are as recorded"
    )
    row = found.ranks[0]
    assert row["rank"] == 5
    told = {part: times["recorded_s"] * 1e6 for part, times in row.items() if part != "rank"}
    assert told == {
        "step": pytest.approx(6000), "compute": pytest.approx(1000),
        "communication": pytest.approx(5000), "exposed_communication": pytest.approx(5000),
        "exposed_copy": 0, "exposed_transfer": pytest.approx(2000),
        "waiting_in_communication": pytest.approx(3000),
    }  # fmt: skip
    assert row["compute"] == {"recorded_s": 1e-3, "replayed_s": 1e-3}
    found = checked(scaled(3000), scaled(3160))
    assert found.ranks[0]["waiting_in_communication"] == {
        "recorded_s": pytest.approx(3e-3), "replayed_s": pytest.approx(3.16e-3)
    }  # fmt: skip
    missed = [(miss.rank, miss.part) for miss in found.misses]
    # 160 us are more than a twentieth of 3000 and of 2000, and not of 4000 nor 6000.
    assert set(missed) == {
        (5, "waiting in communication"), (5, "exposed transfer"),
        (6, "communication"), (6, "exposed transfer"), (6, "exposed communication"),
    }  # fmt: skip
    sizes = [abs(miss.replayed_s - miss.recorded_s) for miss in found.misses]
    assert sizes == sorted(sizes, reverse=True)
    assert found.to_dict()["misses"][0]["rank"] in (5, 6)


def test_fifty_microseconds_are_no_finding() -> None:
    def waits(us: int) -> Timeline:
        return run(((0, 10), (10, 10 + us, 100)), ((0, 10 + us), (10 + us, 10 + us, 100)))

    assert checked(waits(10), waits(60)).misses == ()
    assert {miss.part for miss in checked(waits(10), waits(61)).misses} >= {
        "waiting in communication"
    }


def test_what_the_events_leave_open_is_met_anywhere_between_its_limits() -> None:
    def waits(us: int) -> Timeline:
        return run(((0, 10), (10, 10 + us, 1000)), ((0, 10 + us), (10 + us, 10 + us, 1000)))

    for least, most, rank, met in ((0, 900, 5, True), (0, 300, 5, False), (550, 900, 5, False)):
        limits = {"waiting in communication": (least * US, most * US)}
        own = {rank: SimpleNamespace(bounds=lambda limits=limits: limits)}
        one: Any = SimpleNamespace(messages=(), own_accounts=own)
        found = check_account(one, waits(100), waits(480))
        parts = {(miss.rank, miss.part) for miss in found.misses}
        assert ((5, "waiting in communication") not in parts) == met


def test_three_misses_are_told_and_the_others_counted() -> None:
    misses = tuple(Miss(rank, "compute", 1e-3, 2e-3) for rank in range(5))
    told = "rank {}: compute 2 ms for 1 ms"
    assert AccountCheck((), misses[:3]).verdict() == "; ".join(map(told.format, range(3)))
    assert AccountCheck((), misses).verdict().endswith("; and 2 more")
