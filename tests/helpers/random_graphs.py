"""Random graphs: compute, copies, collectives, messages and batches of them, with dependencies."""

from __future__ import annotations

from typing import Any

import numpy as np

from commsim.graph import CopyDirection, Graph, GraphBuilder
from commsim.timeline import Timeline

__all__ = ["MS", "SPAN_COLUMNS", "random_graph", "same_timeline"]

MS = 10**9
SPAN_COLUMNS = ("arrive", "start", "end", "cause", "cause_kind")


def random_graph(seed: int, world: int) -> Graph:
    """Return compute, copies, collectives, messages and batches of them, with dependencies."""
    rng = np.random.default_rng(seed)
    build = GraphBuilder()
    lanes = [build.lane(rank, offset=int(rng.integers(0, MS))) for rank in range(world)]
    everybody = build.group("world", range(world))
    last: list[list[int]] = [[] for _ in lanes]

    def after(rank: int) -> list[Any]:
        """Return a wait for one of a rank's last ops, with a delay now and then."""
        if not last[rank] or rng.random() < 0.4:
            return []
        op = last[rank][int(rng.integers(len(last[rank])))]
        return [(op, int(rng.choice([1, MS // 7]))) if rng.random() < 0.4 else op]

    for number in range(int(rng.integers(4, 10))):
        stream, size = f"s{rng.integers(3)}", int(rng.integers(1, 1 << 24))
        for rank in rng.choice(world, int(rng.integers(1, world + 1)), replace=False).tolist():
            wait = after(rank)
            op = build.compute(
                lanes[rank], int(rng.integers(0, 2)) * int(rng.integers(MS)), name="c",
                stream=stream, after=wait, traffic=float(rng.integers(0, 1 << 30)),
            )  # fmt: skip
            last[rank].append(op)
            if rng.random() < 0.2:
                way = CopyDirection.TO_HOST if rng.random() < 0.5 else CopyDirection.FROM_HOST
                last[rank].append(
                    build.host_copy(lanes[rank], size, way=way, name="copy", stream=stream)
                )
        if rng.random() < 0.5:
            chosen = np.sort(rng.choice(world, int(rng.integers(2, world + 1)), replace=False))
            group = build.group(f"g{number}", chosen.tolist())
            for rank in chosen.tolist():
                op = build.collective(
                    lanes[rank], group, "all_reduce", size, stream=stream, after=after(rank)
                )
                last[rank].append(op)
        else:
            a, b = rng.choice(world, 2, replace=False).tolist()
            batches = [build.batch(), build.batch()] if rng.random() < 0.5 else [-1, -1]
            ways = ((a, b), (b, a)) if batches[0] >= 0 else ((a, b),)
            for source, target in ways:
                for rank, act, peer in ((source, build.send, target), (target, build.recv, source)):
                    act(
                        lanes[rank], peer, size, group=everybody, stream=stream,
                        batch=batches[int(rank == b)],
                    )  # fmt: skip
    return build.build()


def same_timeline(found: Timeline, expected: Timeline) -> None:
    """Fail if two timelines differ by a picosecond, a cause or a stretch of a flow."""
    for name in SPAN_COLUMNS:
        assert np.array_equal(getattr(found, name), getattr(expected, name)), name
    for name in ("start", "end", "rate", "op"):
        assert np.array_equal(getattr(found.links, name), getattr(expected.links, name)), name
