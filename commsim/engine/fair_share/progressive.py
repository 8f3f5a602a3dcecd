"""
Progressive filling: bottleneck max-min fairness for coupled flows.

Flow f loads link l with `load` bytes over `conns` connections; at rate x (share per second) it
uses load * x of l, and each of its connections there gets load * x / conns. An allocation is
fair if no link is over its capacity and every flow is at its cap or crosses a full link on
which no flow has a larger share per connection. For flows of one connection it is plain
max-min fairness.

`fill` fixes, round by round, every link that limits all of its unfixed flows: the share of
those can only stay or grow elsewhere, so what is fixed stays fair. Where no link limits all of
its flows (two flows that each load another link harder), `coupled_rates` finishes the rest.
The order of links decides there, because the allocation is not unique.
"""

from __future__ import annotations

import msgspec
import numpy as np

from commsim.arrays import Floats, Ints
from commsim.engine.fair_share.coupled import coupled_rates

__all__ = ["AT_CAP", "UNKNOWN", "Flows", "Rates", "fair_rates", "fill", "limits_of"]

AT_CAP, UNKNOWN = -1, -2
"""What limits a flow if no link is known to."""

_TIE = 1 + 1e-12
_FULL = 1e-11  # relative: a link that is this near to its capacity is full


class Flows(msgspec.Struct, frozen=True, eq=False):
    """Flows as CSR: flow f has links `link[ptr[f]:ptr[f + 1]]`, ascending, each once.

    `load` (bytes) and `conns` belong to the entries, `cap` (largest rate, may be infinite
    where the flow has a link) to the flows.
    """

    ptr: Ints
    link: Ints
    load: Floats
    conns: Floats
    cap: Floats

    def __len__(self) -> int:
        return len(self.cap)


class Rates(msgspec.Struct, frozen=True, eq=False):
    """The rate of each flow, and how many flows `fill` could not fix (0: the one allocation)."""

    rate: Floats
    unfixed: int


def fair_rates(flows: Flows, capacity: Floats) -> Rates:
    """Return the fair rate of each flow, in shares per second.

    `capacity` is in bytes per second by link id. All sums run in flow order, so that the same
    flows give the same bits.
    """
    owner = np.repeat(np.arange(len(flows)), np.diff(flows.ptr))
    used = np.bincount(flows.link, weights=flows.load * flows.cap[owner], minlength=len(capacity))
    if np.all(used <= capacity):
        return Rates(flows.cap.copy(), 0)  # no link limits any flow
    rate, room = fill(flows, owner, capacity)
    unfixed = np.flatnonzero(np.isnan(rate))
    if unfixed.size:
        coupled_rates(flows.ptr, flows.link, flows.load, flows.conns, flows.cap, room, rate)
    return Rates(rate, int(unfixed.size))


def fill(flows: Flows, owner: Ints, capacity: Floats) -> tuple[Floats, Floats]:
    """Fix all flows that can be; return their rates (NaN: not fixed) and the room left per link."""
    rate = np.full(len(flows), np.nan)
    room = capacity.astype(np.float64)
    ids, link = np.unique(flows.link, return_inverse=True)
    left = room[ids]
    live = np.arange(len(link))  # entries of unfixed flows
    bare = np.diff(flows.ptr) == 0
    rate[bare] = flows.cap[bare]
    while live.size:
        of, on = owner[live], link[live]
        weight = np.bincount(on, weights=flows.conns[live], minlength=len(ids))
        level = np.maximum(left, 0.0) / np.where(weight > 0, weight, np.inf)
        offer = level[on] * flows.conns[live] / flows.load[live]
        first = np.flatnonzero(np.diff(of, prepend=-1))
        best = np.minimum.reduceat(offer, first)
        flow = of[first]
        which = np.searchsorted(flow, of)
        at_cap = flows.cap[flow] <= best * _TIE
        if at_cap.any():
            fixed = np.where(at_cap, flows.cap[flow], np.nan)
        else:
            hindered = np.bincount(on, weights=offer > best[which] * _TIE, minlength=len(ids))
            binding = (hindered == 0)[on]
            fixed = np.full(len(flow), np.nan)
            fixed[which[binding]] = offer[binding]
        if np.isnan(fixed).all():
            break
        rate[flow] = fixed
        done = ~np.isnan(fixed)[which]
        spent = flows.load[live[done]] * fixed[which[done]]
        left -= np.bincount(on[done], weights=spent, minlength=len(ids))
        live = live[~done]
    room[ids] = left
    return rate, room


def limits_of(flows: Flows, capacity: Floats, rate: Floats) -> Ints:
    """Return what limits each flow of a fair allocation: a link, AT_CAP, or UNKNOWN.

    A link limits a flow if it is full and none has a larger share of it.
    """
    owner = np.repeat(np.arange(len(flows)), np.diff(flows.ptr))
    moved = flows.load * rate[owner]
    use = np.bincount(flows.link, weights=moved, minlength=len(capacity))
    share, top = moved / flows.conns, np.zeros(len(capacity))
    np.maximum.at(top, flows.link, share)
    holds = (use >= capacity * (1 - _FULL))[flows.link] & (share >= top[flows.link] * (1 - _FULL))
    limit = np.full(len(flows), UNKNOWN)
    at = np.flatnonzero(holds)[::-1]  # the first of a flow's links is written last
    limit[owner[at]] = flows.link[at]
    limit[rate >= flows.cap * (1 - 1e-12)] = AT_CAP
    return limit
