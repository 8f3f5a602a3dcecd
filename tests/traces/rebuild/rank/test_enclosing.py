"""What encloses an event of a CPU thread: by columns as by looking at one after another."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
import pytest

from commsim.traces.formats import Event, EventKind, Events
from commsim.traces.formats.event_args import NO_ARGS
from commsim.traces.rebuild.rank.calls import Thread
from commsim.traces.rebuild.rank.thread_labels import _nearest, _outermost


def a_thread(seed: int) -> Thread:
    """Return up to 25 events, some within others, some that overlap, some of no length."""
    chance = random.Random(seed)
    spans = []
    for _ in range(chance.randrange(26)):
        start = chance.randrange(20)
        spans.append((start, start + chance.choice((0, 0, 1, 2, 5, 10, 20))))
    spans.sort(key=lambda span: (span[0], -span[1] if seed % 5 else 0))
    kinds = EventKind.CPU_OP, EventKind.ANNOTATION
    return Thread(
        ("1", "1"),
        Events.of(
            Event(chance.choice(kinds), "x", ("1", "1"), start, end, -1, -1, NO_ARGS)
            for start, end in spans
        ),
    )


def around(thread: Thread, index: int) -> Iterator[int]:
    """Yield an event and what encloses it: each time the nearest before that ends no sooner."""
    events = thread.events
    while index >= 0:
        yield index
        until = max(events[index].end, events[index].start + 1)
        index = next((i for i in reversed(range(index)) if events[i].end >= until), -1)


@pytest.mark.parametrize("seeds", [range(100), range(100, 200)])
def test_columns_find_what_a_walk_finds(seeds: range) -> None:
    for seed in seeds:
        thread = a_thread(seed)
        fits = thread.events.kind == EventKind.CPU_OP
        nearest = _nearest(thread, fits)
        outermost = _outermost(thread, fits)
        for index in range(len(thread.events)):
            walk = list(around(thread, index))
            assert thread.parent[index] == (walk[1] if len(walk) > 1 else -1)
            fitting = [at for at in walk if fits[at]] or [-1]
            assert (nearest[index], outermost[index]) == (fitting[0], fitting[-1])
        assert nearest[-1] == outermost[-1] == -1


def test_long_rows_of_siblings_take_few_steps() -> None:
    """A thousand ops within one: each is passed over with those before it."""
    spans = [(0, 10_000), *((10 * i, 10 * i + 5) for i in range(1, 1000))]
    events = Events.of(
        Event(EventKind.CPU_OP, "x", ("1", "1"), start, end, -1, -1, NO_ARGS)
        for start, end in spans
    )
    assert np.array_equal(Thread(("1", "1"), events).parent, [-1, *[0] * 999])
