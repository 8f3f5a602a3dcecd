"""
Fair shares after a change, link by link in the order of their levels.

For flows whose bytes per connection are the same on all of their links (point-to-point, rings,
trees by channel), fairness is weighted max-min: link l grants each of its connections the level at
which it is full, and a flow has the least of what its links and its cap grant. Filling takes the
links by rising level (Bertsekas and Gallager, "Data Networks", section 6.5.2). After a change only
those are taken that it reaches, in the same order, as Dijkstra's shortest paths are repaired after
an edge has changed: a flow that cannot have changed keeps its share, and stands for what it takes
of its links. So the work of a change is that of the flows that it changes, however many there are.

`share_again` is plain code over columns: lists for the interpreter, arrays for a compiler
(`commsim.compiled`), with the same result to the bit.
"""

from __future__ import annotations

import heapq
from collections.abc import MutableSequence, Sequence
from typing import NamedTuple

__all__ = ["KERNEL", "Shares", "attach", "detach", "share_again"]

INF = float("inf")
AT_CAP = -1
KEPT, WAITING, SETTLED = 0, 1, 2
SAME = 1e-12  # shares this close are the same share: float noise goes no further

Numbers = MutableSequence[int]
Reals = MutableSequence[float]


class Shares(NamedTuple):
    """Columns over links, over places on links, over entries of routes, and over flows.

    Links: `capacity` (bytes per ps); its flows are at the places from `start` on, as many as its
    `users`; how many it `holds` back; `key` and `asked` are infinity and 0 between calls. Places:
    the `flow` and its `weight` (connections). Entries: the `link` and the `conns` of a flow on it.
    Flows: entries from `begin` to `end`, `cap` and `share` (bytes per ps and connection), `grant`
    (the share that counts while shares are found: infinity for flows that wait), `limit` (the link
    that the share follows from, or AT_CAP), `state` (0 between calls).
    """

    capacity: Reals
    start: Numbers
    users: Numbers
    holds: Numbers
    key: Reals
    asked: Numbers
    flow: Numbers
    weight: Reals
    link: Numbers
    conns: Reals
    begin: Numbers
    end: Numbers
    cap: Reals
    share: Reals
    grant: Reals
    limit: Numbers
    state: Numbers


Heap = list[tuple[float, int]]


def attach(s: Shares, flow: int) -> None:
    """Put a flow on its links, behind those that came before; there must be a place on each."""
    for entry in range(s.begin[flow], s.end[flow]):
        link = s.link[entry]
        place = s.start[link] + s.users[link]
        s.flow[place], s.weight[place] = flow, s.conns[entry]
        s.users[link] += 1


def detach(s: Shares, flow: int) -> None:
    """Take a flow off its links; those behind it move up."""
    if s.limit[flow] >= 0:
        s.holds[s.limit[flow]] -= 1
    for entry in range(s.begin[flow], s.end[flow]):
        link = s.link[entry]
        place = s.start[link]
        while s.flow[place] != flow:
            place += 1
        s.users[link] -= 1
        for at in range(place, s.start[link] + s.users[link]):
            s.flow[at], s.weight[at] = s.flow[at + 1], s.weight[at + 1]


def level_of(
    capacity: float,
    places: tuple[int, int],
    flow: Numbers,
    weight: Reals,
    grant: Reals,
    level: float,
) -> float:
    """Return the share at which a link is full, not below `level`; infinity if it is never.

    Flows that wait take what they get, others no more than they have been granted. `places` are
    those of the link, from and to.
    """
    while True:
        fixed, rising, least = 0.0, 0.0, INF
        for place in range(places[0], places[1]):
            most = grant[flow[place]]
            if most <= level:
                fixed += weight[place] * most
            else:
                rising += weight[place]
                if most < least:
                    least = most
        if rising == 0.0:
            return INF
        found = max((capacity - fixed) / rising, level)
        if found <= least:
            return found
        level = found


def unsettle(s: Shares, link: int, touched: list[int]) -> None:
    """Let those wait that a link holds back: it now has more or less for them."""
    flows, limit, state = s.flow, s.limit, s.state
    for place in range(s.start[link], s.start[link] + s.users[link]):
        flow = flows[place]
        if limit[flow] == link and state[flow] == KEPT:
            state[flow], s.grant[flow] = WAITING, INF
            s.holds[link] -= 1
            touched.append(flow)


def settle(s: Shares, flow: int, share: float, limit: int, touched: list[int]) -> None:
    """Give a flow its share; if it is another one, let those wait whom it held back elsewhere."""
    holds, links = s.holds, s.link
    if s.state[flow] == KEPT:
        touched.append(flow)
        if s.limit[flow] >= 0:
            holds[s.limit[flow]] -= 1
    before = s.share[flow]
    s.state[flow], s.limit[flow] = SETTLED, limit
    if abs(share - before) <= SAME * before:
        s.grant[flow] = min(before, share)
        return
    s.share[flow] = s.grant[flow] = share
    for entry in range(s.begin[flow], s.end[flow]):
        link = links[entry]
        if link != limit and holds[link]:
            unsettle(s, link, touched)


def settle_all(s: Shares, link: int, level: float, touched: list[int], chosen: list[int]) -> None:
    """Give its share to every flow on a link that waits, or that has had more."""
    flows, grant = s.flow, s.grant
    chosen.clear()
    for place in range(s.start[link], s.start[link] + s.users[link]):
        if grant[flows[place]] > level * (1 + SAME):
            chosen.append(flows[place])
    for flow in chosen:
        settle(s, flow, level, link, touched)


def links_of(s: Shares, touched: list[int], seen: int, heap: Heap, found: list[int]) -> None:
    """Find the links of the flows that have begun to wait, each once; queue the flows' own caps."""
    links, state, asked, cap, begin, end = s.link, s.state, s.asked, s.cap, s.begin, s.end
    found.clear()
    for at in range(seen, len(touched)):
        flow = touched[at]
        if state[flow] != WAITING:
            continue
        for entry in range(begin[flow], end[flow]):
            link = links[entry]
            if not asked[link]:
                asked[link] = 1
                found.append(link)
        if cap[flow] < INF:
            heapq.heappush(heap, (cap[flow], len(s.capacity) + flow))


def ask(s: Shares, heap: Heap, links: Sequence[int], level: float) -> None:
    """Queue links by their levels, where these are lower than those by which they are queued."""
    capacity, key, asked, start, users = s.capacity, s.key, s.asked, s.start, s.users
    flow, weight, grant = s.flow, s.weight, s.grant
    for link in links:
        asked[link] = 0
        places = (start[link], start[link] + users[link])
        found = level_of(capacity[link], places, flow, weight, grant, level)
        if found < key[link]:
            key[link] = found
            heapq.heappush(heap, (found, link))


def share_again(s: Shares, fresh: Sequence[int], changed: Sequence[int]) -> list[int]:
    """Share links again after `fresh` flows have come and links have `changed`.

    A link has changed if a flow has come to it or left it, or if its capacity has. Returns the
    flows that were looked at: no other has another share or limit.
    """
    capacity, key, start, users = s.capacity, s.key, s.start, s.users
    flows, weight, grant = s.flow, s.weight, s.grant
    links = len(capacity)
    touched = list(fresh)
    several = touched[:0]  # empty, and of ints for the compiler
    heap = [(INF, link) for link in several]
    for flow in fresh:
        s.state[flow], grant[flow] = WAITING, INF
    for link in changed:
        unsettle(s, link, touched)
    ask(s, heap, changed, 0.0)
    links_of(s, touched, 0, heap, several)
    ask(s, heap, several, 0.0)
    while heap:
        level, at = heapq.heappop(heap)
        seen = len(touched)
        if at >= links:
            if s.state[at - links] == WAITING:
                settle(s, at - links, level, AT_CAP, touched)
        elif level == key[at]:
            key[at] = INF
            places = (start[at], start[at] + users[at])
            found = level_of(capacity[at], places, flows, weight, grant, level)
            if found <= level * (1 + SAME):
                settle_all(s, at, found, touched, several)
            elif found < INF:  # some of its flows have been settled below it
                key[at] = found
                heapq.heappush(heap, (found, at))
        if len(touched) > seen:
            links_of(s, touched, seen, heap, several)
            ask(s, heap, several, level)
    for flow in touched:
        s.state[flow], grant[flow] = KEPT, s.share[flow]
        if s.limit[flow] >= 0:
            s.holds[s.limit[flow]] += 1
    return touched


KERNEL = (level_of, unsettle, settle, settle_all, links_of, ask, share_again)
"""`share_again` after the functions that it calls, for a compiler."""
