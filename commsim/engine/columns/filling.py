"""
Fair rates of flows that share links: `fair_share.progressive`, over the tables of a run.

The same rounds, with sums in the same order, so that rates are the same to the bit.
"""

from __future__ import annotations

from commsim.engine.columns.state import State

__all__ = ["FILLING_KERNEL", "fair_rates_of"]

INF = float("inf")
_TIE = 1 + 1e-12


def number_links(s: State, count: int) -> int:
    """Empty the links of the flows to share them anew; return whether caps alone limit them."""
    run = s.run[0]
    run.marks += 1
    for at in range(count):
        flow = s.flow[s.member[at]]
        flow.fixed = 0
        phase = s.phase[flow.phase]
        for entry in range(phase.first, phase.first + phase.loads):
            link = s.link[s.load[entry].link]
            if link.mark != run.marks:
                link.mark, link.left, link.used = run.marks, link.capacity, 0.0
            link.used += s.load[entry].bytes * phase.cap
    for at in range(count):
        phase = s.phase[s.flow[s.member[at]].phase]
        for entry in range(phase.first, phase.first + phase.loads):
            link = s.link[s.load[entry].link]
            if link.used > link.capacity:
                return 0
    return 1


def offer_of(s: State, entry: int) -> float:
    """Return the rate that the link of an entry would let its flow have."""
    load = s.load[entry]
    link = s.link[load.link]
    level = max(link.left, 0.0) / link.weight if link.weight > 0 else 0.0
    return level * load.conns / load.bytes


def weigh(s: State, count: int) -> None:
    """Sum up the connections of flows without a rate on each of their links."""
    for at in range(count):
        flow = s.flow[s.member[at]]
        phase = s.phase[flow.phase]
        for entry in range(phase.first, phase.first + phase.loads):
            link = s.link[s.load[entry].link]
            link.weight, link.used, link.hindered = 0.0, 0.0, 0
    for at in range(count):
        flow = s.flow[s.member[at]]
        if not flow.fixed:
            phase = s.phase[flow.phase]
            for entry in range(phase.first, phase.first + phase.loads):
                load = s.load[entry]
                s.link[load.link].weight += load.conns


def fix_at_caps(s: State, count: int) -> int:
    """Find the best offer to each flow; fix those whose cap is no more; return how many are."""
    fixed = 0
    for at in range(count):
        flow = s.flow[s.member[at]]
        if flow.fixed:
            continue
        phase = s.phase[flow.phase]
        best = INF
        for entry in range(phase.first, phase.first + phase.loads):
            best = min(best, offer_of(s, entry))
        flow.best = best
        if phase.cap <= best * _TIE:
            s.rate[at] = phase.cap
            flow.fixed = 2
            fixed += 1
    return fixed


def fix_on_links(s: State, count: int) -> int:
    """Fix the flows of links that limit all of their flows; return how many are."""
    fixed = 0
    for at in range(count):
        flow = s.flow[s.member[at]]
        if flow.fixed:
            continue
        phase = s.phase[flow.phase]
        for entry in range(phase.first, phase.first + phase.loads):
            if offer_of(s, entry) > flow.best * _TIE:
                s.link[s.load[entry].link].hindered += 1
    for at in range(count):
        flow = s.flow[s.member[at]]
        if flow.fixed:
            continue
        phase = s.phase[flow.phase]
        for entry in range(phase.first, phase.first + phase.loads):
            if s.link[s.load[entry].link].hindered == 0:
                s.rate[at] = offer_of(s, entry)
                if flow.fixed == 0:
                    flow.fixed = 2
                    fixed += 1
    return fixed


def spend(s: State, count: int) -> None:
    """Take what the flows fixed in this round use from their links."""
    for at in range(count):
        flow = s.flow[s.member[at]]
        if flow.fixed == 2:
            phase = s.phase[flow.phase]
            for entry in range(phase.first, phase.first + phase.loads):
                load = s.load[entry]
                s.link[load.link].used += load.bytes * s.rate[at]
    for at in range(count):
        flow = s.flow[s.member[at]]
        if flow.fixed == 2:
            phase = s.phase[flow.phase]
            for entry in range(phase.first, phase.first + phase.loads):
                link = s.link[s.load[entry].link]
                link.left -= link.used
                link.used = 0.0
            flow.fixed = 1


def fair_rates_of(s: State, count: int) -> int:
    """Give the first `count` flows of `member` their fair `rate`; 0 if filling gets stuck."""
    if number_links(s, count):
        for at in range(count):
            s.rate[at] = s.phase[s.flow[s.member[at]].phase].cap
        return 1
    left = count
    while left > 0:
        weigh(s, count)
        fixed = fix_at_caps(s, count)
        if fixed == 0:
            fixed = fix_on_links(s, count)
        if fixed == 0:
            return 0
        spend(s, count)
        left -= fixed
    return 1


FILLING_KERNEL = (
    number_links, offer_of, weigh, fix_at_caps, fix_on_links, spend, fair_rates_of,
)  # fmt: skip
