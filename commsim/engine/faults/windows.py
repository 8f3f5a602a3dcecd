"""
Faults that come and go, as extensions of the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from commsim.arrays import Ints
from commsim.engine.core import Engine
from commsim.engine.faults.draw import DrawnFaults

__all__ = ["in_windows"]

Extension = Callable[[Engine], Generator[Any, Any, None]]


def in_windows(
    faults: DrawnFaults, begin: int, lane_of: Ints | None, like: Ints
) -> list[Extension]:
    """Return extensions for what happens in windows, which count from `begin` ps of the run.

    `lane_of` gives the lane of each rank of a folded graph, `like` the link that each link's
    traffic is put on (empty: its own).
    """
    found: list[Extension] = []
    for gpu in faults.slow_gpus:
        if gpu.start is not None:
            lane = gpu.rank if lane_of is None else int(lane_of[gpu.rank])
            window = (begin + gpu.start, begin + gpu.end)
            found.append(_gpu(lane, gpu.factor, window))
    for link in faults.slow_links:
        if link.windows is not None:
            ids = [int(like[one]) if len(like) else one for one in link.links]
            windows = [(begin + start, begin + end) for start, end in link.windows]
            found.append(_link(ids, link.left, windows))
    return found


def _gpu(lane: int, factor: float, window: tuple[int, int]) -> Extension:
    def run(engine: Engine) -> Generator[Any, Any, None]:
        yield engine.env.timeout(window[0])
        engine.set_pace(lane, 1 / factor)
        yield engine.env.timeout(window[1] - window[0])
        engine.set_pace(lane, 1.0)

    return run


def _link(links: list[int], left: float, windows: list[tuple[int, int]]) -> Extension:
    def run(engine: Engine) -> Generator[Any, Any, None]:
        for start, end in windows:
            yield engine.env.timeout(start - engine.env.now)
            for link in links:
                engine.set_link(link, left)
            yield engine.env.timeout(end - start)
            for link in links:
                engine.set_link(link, 1.0)

    return run
