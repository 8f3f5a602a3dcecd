"""
Fair shares after a few flows have come or gone: solve again only what can have changed.

A fair allocation carries its own proof: every flow is at its cap, or crosses a full link on which
none of its peers has a larger share (Bertsekas and Gallager, "Data Networks", section 6.5.2). So
only new flows, and those limited by a link that a flow has come to or left, are solved anew, while
all others keep their rates. Where a proof then no longer holds on a link of theirs, the flow is
solved again with them, until all hold. What filling finds is the only fair allocation
(`progressive`), so this is the one that a full solution finds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Generic, Protocol, TypeVar

import numpy as np

from commsim.arrays import Floats
from commsim.engine.fair_share.progressive import AT_CAP, UNKNOWN, Flows, fill, limits_of

__all__ = ["Sharer", "fair_again"]

INF = float("inf")
_TIE = 1 + 1e-12
_HOLDS = 1e-11  # relative: a proof that holds to this holds; 1e-9 was seen to let results drift
_FEW = 48  # flows up to which filling is faster without arrays


class Sharer(Protocol):
    """A flow as it is shared: what limits it, and (load, connections) per link."""

    cap: float
    rate: float
    limit: int

    @property
    def loads(self) -> Mapping[int, tuple[float, float]]:
        """Bytes and connections by link."""


S = TypeVar("S", bound=Sharer)
Found = dict[S, tuple[float, int]]
"""By flow its rate and what limits it: a link, or AT_CAP."""


def fair_again(
    fresh: Iterable[S],
    changed: Iterable[int],
    on: Sequence[Collection[S]],
    capacity: Sequence[float],
    *,
    most: int,
) -> Found[S] | None:
    """Return the new rates of all flows whose rates may differ, and what limits each.

    `fresh` flows have come, and flows have come to or left the links `changed`; of flows on a link
    that carries more or less than before the `limit` is UNKNOWN, and the link is among `changed`.
    `on[link]` are the flows on a link, fresh ones included. None if more than `most` flows may
    differ, or filling does not decide: then all have to be solved together.
    """
    again = dict.fromkeys(fresh)
    for link in changed:
        again.update((flow, None) for flow in on[link] if flow.limit in (link, UNKNOWN))
    while len(again) <= most:
        links = dict.fromkeys(link for flow in again for link in flow.loads)
        room = {link: _room(link, on[link], again, capacity[link]) for link in links}
        found = _fill(list(again), room)
        if found is None:
            return None
        more = [flow for link in links for flow in _unproven(link, on[link], found, capacity[link])]
        if not more:
            return found
        again.update(dict.fromkeys(more))
    return None


def _room(link: int, users: Collection[S], again: Mapping[S, None], capacity: float) -> float:
    """Return what the flows that keep their rates leave of a link."""
    left = capacity
    for flow in users:
        if flow not in again:
            left -= flow.loads[link][0] * flow.rate
    return left if left > 1e-13 * capacity else 0.0


def _unproven(link: int, users: Collection[S], found: Found[S], capacity: float) -> list[S]:
    """Return the flows that keep their rates although these are no longer fair on a link."""
    kept: list[tuple[S, float]] = []
    use = top = 0.0
    least = float("inf")  # share of those that the link limits now
    for flow in users:
        load, conns = flow.loads[link]
        new = found.get(flow)
        rate = flow.rate if new is None else new[0]
        share = load * rate / conns
        use, top = use + load * rate, max(top, share)
        if new is None:
            kept.append((flow, share))
        elif new[1] == link:
            least = min(least, share)
    full = use >= capacity * (1 - _HOLDS)
    return [
        flow
        for flow, share in kept
        if share > least * (1 + _HOLDS)
        or flow.limit == UNKNOWN
        or (flow.limit == link and not (full and share >= top * (1 - _HOLDS)))
    ]


def _fill(flows: list[S], room: dict[int, float]) -> Found[S] | None:
    """Return the fair rates of flows in the room that there is; None if filling gets stuck."""
    if len(flows) > _FEW:
        return _fill_arrays(flows, room)
    return _Filling(flows, room).run()


class _Filling(Generic[S]):
    """Progressive filling of a few flows: after each step only what it touched is looked at."""

    def __init__(self, flows: list[S], room: dict[int, float]) -> None:
        self._room = room
        self._weight = dict.fromkeys(room, 0.0)
        self._users: dict[int, dict[S, None]] = {link: {} for link in room}
        for flow in flows:
            for link, (_, conns) in flow.loads.items():
                self._weight[link] += conns
                self._users[link][flow] = None
        self._offer: dict[S, float] = dict.fromkeys(flows, 0.0)
        self._found: Found[S] = {}
        self._touched: dict[int, None] = {}

    def run(self) -> Found[S] | None:
        """Fix flows step by step; None if some are left that no link limits alone."""
        waiting = dict.fromkeys(self._offer)
        while waiting:
            self._touched = {}
            for flow in waiting:
                self._offer[flow] = min([self._share(flow, one) for one in flow.loads], default=INF)
            for flow in waiting:
                if flow.cap <= self._offer[flow] * _TIE:
                    self._fix(flow, flow.cap, AT_CAP)
            if not self._touched:
                for link in sorted({link for flow in waiting for link in flow.loads}):
                    self._fix_all_on(link)
            waiting = dict.fromkeys(flow for link in self._touched for flow in self._users[link])
        return None if self._offer else self._found

    def _share(self, flow: S, link: int) -> float:
        """Return the rate that a link would let a flow have."""
        load, conns = flow.loads[link]
        return max(self._room[link], 0.0) / self._weight[link] * conns / load

    def _fix_all_on(self, link: int) -> None:
        """Fix the flows on a link if it limits all of them."""
        users = self._users[link]
        if link in self._touched or not users:
            return
        shares = [(flow, self._share(flow, link)) for flow in users]
        if all(share <= self._offer[flow] * _TIE for flow, share in shares):
            for flow, share in shares:
                self._fix(flow, share, link)

    def _fix(self, flow: S, rate: float, limit: int) -> None:
        self._found[flow] = (rate, limit)
        del self._offer[flow]
        for link, (load, conns) in flow.loads.items():
            self._room[link] -= load * rate
            self._weight[link] -= conns
            del self._users[link][flow]
            self._touched[link] = None


def _fill_arrays(flows: list[S], room: dict[int, float]) -> Found[S] | None:
    """Return what `_fill` does, by arrays."""
    number = {link: at for at, link in enumerate(sorted(room))}
    entries = [
        (number[link], load, conns)
        for flow in flows
        for link, (load, conns) in sorted(flow.loads.items())
    ]
    link, load, conns = (np.array(column) for column in zip(*entries, strict=True))
    counts = [len(flow.loads) for flow in flows]
    table = Flows(
        np.concatenate(([0], np.cumsum(counts))), link, load, conns,
        np.array([flow.cap for flow in flows]),
    )  # fmt: skip
    owner = np.repeat(np.arange(len(flows)), counts)
    free: Floats = np.array([room[one] for one in sorted(room)])
    rate, _ = fill(table, owner, free)
    if np.isnan(rate).any():
        return None
    names = np.append(sorted(room), (UNKNOWN, AT_CAP))  # as -2 and -1 count from the end
    limits = names[limits_of(table, free, rate)]
    return dict(zip(flows, zip(rate.tolist(), limits.tolist(), strict=True), strict=True))
