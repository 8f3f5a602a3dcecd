"""The recording as a timeline: who arrived, who moved when, and what released it."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from commsim.graph import GraphBuilder
from commsim.timeline import Cause
from commsim.traces.rebuild.measured import measured_timeline


def built(last: list[int], cause: list[int]) -> SimpleNamespace:
    """Five ops: two on a stream and one beside it, of rank 0; two of rank 1."""
    build = GraphBuilder()
    one, other = build.lane(0), build.lane(1)
    for lane, stream in ((one, "a"), (one, "a"), (one, "b"), (other, "a"), (other, "a")):
        build.compute(lane, 1, name="x", stream=stream)
    return SimpleNamespace(
        graph=build.build(),
        start=np.array([0, 10, 20, 30, 40]),
        end=np.array([5, 60, 25, 60, 45]),
        last=np.array(last),
        cause=np.array(cause),
    )


@pytest.mark.parametrize(
    ("cause", "kind"),
    [(0, Cause.STREAM), (2, Cause.DEPENDENCY), (3, Cause.DEPENDENCY), (-1, Cause.NONE)],
)
def test_a_cause_on_the_same_stream_of_the_same_rank_is_the_stream(cause: int, kind: Cause) -> None:
    made = built([-1] * 5, [-1, cause, -1, -1, -1])
    timeline = measured_timeline(made, ("said",))  # type: ignore[arg-type]
    assert timeline.cause.tolist() == [-1, cause, -1, -1, -1]
    assert timeline.cause_kind.tolist() == [Cause.NONE, kind, *[Cause.NONE] * 3]
    assert (timeline.source, timeline.notes) == ("measured", ("said",))
    assert timeline.start.tolist() == timeline.arrive.tolist() == [0, 10, 20, 30, 40]
    assert timeline.op.tolist() == [0, 1, 2, 3, 4]


def test_a_collective_moves_when_its_last_member_has_come() -> None:
    """Op 3 came last; op 0, which waited for it too, had ended before: it moved at its end."""
    made = built([3, 3, -1, 3, -1], [-1, 0, 1, -1, 3])
    timeline = measured_timeline(made, ())  # type: ignore[arg-type]
    assert timeline.arrive.tolist() == [0, 10, 20, 30, 40]
    assert timeline.start.tolist() == [5, 30, 20, 30, 40]
    assert timeline.end.tolist() == [5, 60, 25, 60, 45]
    assert timeline.cause.tolist() == [3, 3, 1, -1, 3]
    assert timeline.cause_kind.tolist() == [
        Cause.RENDEZVOUS, Cause.RENDEZVOUS, Cause.DEPENDENCY, Cause.NONE, Cause.STREAM,
    ]  # fmt: skip
    assert made.cause.tolist() == [-1, 0, 1, -1, 3]
