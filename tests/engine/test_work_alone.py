"""Work that meets nobody, timed in op order: the same timeline as event by event."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commsim.engine import simulate
from commsim.engine.core import Engine
from commsim.engine.work_alone import is_work_alone
from commsim.graph import Graph, GraphBuilder
from commsim.libraries import Ideal
from commsim.timeline import Cause, Timeline

COLUMNS = ("arrive", "start", "end", "cause", "cause_kind")


def nothing(engine: Engine) -> Generator[Any, Any, None]:
    """An extension that does nothing, but needs the events of the engine."""
    yield engine.env.timeout(0)


def columns(line: Timeline) -> dict[str, list[int]]:
    return {name: getattr(line, name).tolist() for name in COLUMNS}


@st.composite
def work(draw: st.DrawFn) -> Graph:
    build = GraphBuilder()
    lanes = [build.lane(rank, offset=draw(st.integers(0, 3))) for rank in range(3)]
    for op in range(draw(st.integers(1, 25))):
        after = draw(st.lists(st.integers(0, op - 1), max_size=1)) if op else []
        build.compute(
            draw(st.sampled_from(lanes)),
            draw(st.integers(0, 4)),
            name="work",
            stream=draw(st.sampled_from("ab")),
            after=[(one, draw(st.integers(0, 3))) for one in after],
        )
    return build.build()


@given(work())
def test_it_is_what_the_events_give(graph: Graph) -> None:
    assert is_work_alone(graph)
    alone = simulate(graph, None, library=Ideal())
    events = simulate(graph, None, library=Ideal(), extensions=[nothing])
    assert columns(alone) == columns(events)


def test_what_meets_or_waits_for_two_or_starts_as_one_is_simulated() -> None:
    def graph(**last: Any) -> Graph:
        build = GraphBuilder()
        ops = [build.compute(build.lane(rank), 5, name="a") for rank in range(2)]
        build.compute(0, 5, name="b", after=ops if last.get("two") else ops[1:])
        if last.get("later"):
            build.depend(ops[0], build.compute(1, 5, name="c"))
        if last.get("meets"):
            group = build.group("world", range(2))
            for lane in range(2):
                build.collective(lane, group, "barrier", 0, stream="s")
        return build.build()

    assert is_work_alone(graph())
    assert not any(is_work_alone(graph(**{why: True})) for why in ("two", "later", "meets"))


def test_a_graph_without_ops() -> None:
    assert len(simulate(GraphBuilder().build(), None, library=Ideal())) == 0


@pytest.mark.parametrize("offset", [0, 7])
def test_the_first_op_begins_at_the_offset_of_its_lane(offset: int) -> None:
    build = GraphBuilder()
    build.compute(build.lane(0, offset=offset), 5, name="a")
    line = simulate(build.build(), None, library=Ideal())
    assert (line.arrive.tolist(), line.end.tolist()) == ([offset], [offset + 5])


def test_who_follows_it_sees_how_far_it_is() -> None:
    shares: list[float] = []
    ask: list[Callable[[], float]] = []
    build = GraphBuilder()
    lane = build.lane(0)
    for _ in range(4):
        build.compute(lane, 10, name="x")

    def follow(share: Callable[[], float]) -> None:
        ask.append(share)
        shares.append(share())

    simulate(build.build(), None, library=Ideal(), follow=follow)
    assert shares == [0.0]
    assert ask[0]() == 3 / 4  # the last op was the one begun


@pytest.mark.parametrize("extensions", [[], [nothing]], ids=["alone", "events"])
@pytest.mark.parametrize(
    ("took", "offset", "cause"),
    [
        (0, 0, (1, Cause.STREAM)), (1, 0, (0, Cause.DEPENDENCY)), (2, 0, (0, Cause.DEPENDENCY)),
        (3, 0, (0, Cause.DEPENDENCY)), (1, 3, (1, Cause.STREAM)), (3, 3, (0, Cause.DEPENDENCY)),
    ],
)  # fmt: skip
def test_a_dependency_that_ends_last_is_the_cause_but_at_the_very_begin(
    took: int, offset: int, cause: tuple[int, Cause], extensions: list[Any]
) -> None:
    """The op before it in its stream takes no time."""
    build = GraphBuilder()
    first = build.compute(build.lane(0), took, name="a")
    lane = build.lane(1, offset=offset)
    build.compute(lane, 0, name="b")
    build.compute(lane, 5, name="c", after=[first])
    line = simulate(build.build(), None, library=Ideal(), extensions=extensions)
    assert line.start[2] == max(took, offset)
    assert (line.cause[2], line.cause_kind[2]) == cause
