"""
Many flows and the links that they share: the columns that `levels` works on, which grow.

In the interpreter they are lists. Once so much has been shared that compiling pays they become
arrays (`commsim.compiled`), and all goes on with the same shares.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from commsim.arrays import Floats, Ints
from commsim.compiled import can_compile, compiled
from commsim.engine.fair_share.levels import INF, KERNEL, Shares, attach, detach, share_again
from commsim.engine.fair_share.progressive import UNKNOWN

__all__ = ["Sharers"]

COMPILED_FROM = (
    20_000  # flows looked at: a second in the interpreter, as long as loading numba takes
)
_ROOM = 4  # places that a link has at first


class Sharers:
    """Flows by number, on links of some capacity (bytes per ps)."""

    def __init__(self, capacity: Floats) -> None:
        links = len(capacity)
        self._room = [0] * links
        self.columns = Shares(
            capacity=capacity.tolist(), start=[0] * links, users=[0] * links, holds=[0] * links,
            key=[INF] * links, asked=[0] * links, flow=[], weight=[], link=[], conns=[], begin=[],
            end=[], cap=[], share=[], grant=[], limit=[], state=[],
        )  # fmt: skip
        self._used = {"places": 0, "entries": 0, "flows": 0}
        self._free: list[int] = []
        self._free_entries: dict[int, list[int]] = {}
        self._fresh: dict[int, None] = {}
        self._changed: dict[int, None] = {}
        self._looked_at = 0
        self._compiled = False

    def add(self, links: Sequence[int], conns: Sequence[float], cap: float) -> int:
        """Put a flow on its links and return its number; `cap` in bytes per ps and connection."""
        for link in links:
            if self.columns.users[link] == self._room[link]:
                self._make_room(link)
        flow = self._free.pop() if self._free else self._more("flows", 1)
        free = self._free_entries.get(len(links))
        begin = free.pop() if free else self._more("entries", len(links))
        s = self.columns
        s.link[begin : begin + len(links)] = links
        s.conns[begin : begin + len(links)] = conns
        s.begin[flow], s.end[flow] = begin, begin + len(links)
        s.cap[flow], s.share[flow], s.grant[flow] = cap, 0.0, 0.0
        s.limit[flow], s.state[flow] = UNKNOWN, 0
        attach(s, flow)
        self._fresh[flow] = None
        self._changed.update(dict.fromkeys(links))
        return flow

    def remove(self, flow: int) -> None:
        """Take a flow away; its number will be another's."""
        s = self.columns
        detach(s, flow)
        begin, end = int(s.begin[flow]), int(s.end[flow])
        self._changed.update(dict.fromkeys(int(s.link[at]) for at in range(begin, end)))
        self._free.append(flow)
        self._free_entries.setdefault(end - begin, []).append(begin)
        self._fresh.pop(flow, None)

    def set_capacity(self, link: int, capacity: float) -> None:
        """Let a link carry `capacity` bytes per ps from now on."""
        self.columns.capacity[link] = capacity
        self._changed[link] = None

    def share_again(self) -> tuple[Ints, Floats]:
        """Share links again after these changes; return the flows looked at, and their shares."""
        fresh, changed = self._fresh, self._changed
        self._fresh, self._changed = {}, {}
        if not self._compiled and self._looked_at >= COMPILED_FROM and can_compile():
            self._compile()
        s = self.columns
        if self._compiled:
            share = compiled(KERNEL)
            found = np.array(share(s, _whole(fresh), _whole(changed)), dtype=np.int64)
            shares: Any = s.share
            return found, shares[found]
        touched = share_again(s, list(fresh), list(changed))
        self._looked_at += len(touched)
        return np.array(touched, dtype=np.int64), np.array([s.share[flow] for flow in touched])

    def limit_of(self, flow: int) -> int:
        """Return what a flow's share follows from: a link, or AT_CAP."""
        return int(self.columns.limit[flow])

    def _compile(self) -> None:
        self._compiled = True
        columns = self.columns._asdict()
        arrays: Any = {name: np.array(column, _type(name)) for name, column in columns.items()}
        self.columns = Shares(**arrays)

    def _make_room(self, link: int) -> None:
        """Move the places of a link to the end, with as much room again."""
        s, room = self.columns, max(2 * self._room[link], _ROOM)
        start, old, count = self._more("places", room), int(s.start[link]), int(s.users[link])
        s = self.columns
        s.flow[start : start + count] = s.flow[old : old + count]
        s.weight[start : start + count] = s.weight[old : old + count]
        s.start[link], self._room[link] = start, room

    def _more(self, kind: str, count: int) -> int:
        """Return the first of `count` new rows of the columns of a kind."""
        first = self._used[kind]
        self._used[kind] = first + count
        grown: Any = {}
        for name in _OF[kind]:
            column: Any = getattr(self.columns, name)
            missing = self._used[kind] - len(column)
            if missing > 0 and self._compiled:
                missing = max(missing, len(column))
                grown[name] = np.concatenate((column, np.zeros(missing, column.dtype)))
            elif missing > 0:
                column.extend([_type(name)(0)] * missing)
        if grown:
            self.columns = self.columns._replace(**grown)
        return first


_OF = {
    "places": ("flow", "weight"),
    "entries": ("link", "conns"),
    "flows": ("begin", "end", "cap", "share", "grant", "limit", "state"),
}
_REAL = frozenset({"capacity", "key", "weight", "conns", "cap", "share", "grant"})


def _type(name: str) -> type[int] | type[float]:
    return float if name in _REAL else int


def _whole(numbers: dict[int, None]) -> Ints:
    return np.array(list(numbers), dtype=np.int64)
