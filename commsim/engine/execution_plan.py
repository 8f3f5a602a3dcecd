"""
How a plan is run, computed once: when members join and leave, and whether it needs a process.
"""

from __future__ import annotations

import msgspec
import numpy as np

from commsim.libraries import Plan, PlanPart, PlanPhase, Start

__all__ = ["ExecutionPlan", "Stops", "execution_plan_of", "uses_links"]

Stops = list[tuple[int, list[tuple[bool, int]]]]
"""Idle times at which members join (True) or leave (False)."""


class ExecutionPlan(msgspec.Struct, frozen=True, eq=False):
    """A plan and how to run it.

    `joins[i]` is when the first data reaches member i on the idle clock (0 for all, unless they
    join as data reaches them), `late` whether that is after 0 for some. `first` are the members
    that data waits for, None if they follow from `joins`. `stops` belongs to the plan's parts.
    `only` is the phase of a plan that has one and never stops: it runs without a process. `alone`:
    a member that waits for nobody needs nothing but that phase. `choice` is what the record says.
    """

    plan: Plan
    joins: list[int]
    late: bool
    first: frozenset[int] | None
    stops: tuple[Stops, ...]
    only: PlanPhase | None
    alone: bool
    choice: str


def execution_plan_of(plan: Plan, *, stepwise: bool) -> ExecutionPlan:
    """Return how to run a plan; `stepwise`: message by message."""
    joining, alone = plan.start == Start.PATH, len(plan.parts) == 1
    joins = [0] * plan.members
    if joining:
        joins = np.min([part.joins for part in plan.parts], axis=0).tolist()
    stops = tuple(_stops(part, joining=joining, leaving=alone) for part in plan.parts)
    only = None
    if alone and not stepwise and not stops[0] and len(plan.parts[0].phases) == 1:
        only = plan.parts[0].phases[0] if plan.start != Start.EACH else None
    first = {Start.EAGER: frozenset({0}), Start.EACH: frozenset[int]()}.get(plan.start)
    channels = f", {plan.channels} channels" if plan.channels > 1 else ""
    only = only if only is not None and only.idle else None
    at_once = first is None and not any(joins) and not plan.copies_in and not plan.copies_out
    return ExecutionPlan(
        plan,
        joins,
        any(joins),
        first,
        stops,
        only,
        only is not None and at_once,
        plan.algorithm and plan.algorithm + channels,
    )


def uses_links(plan: Plan) -> bool:
    """Return whether a plan moves anything over links."""
    return any(len(phase.link) for part in plan.parts for phase in part.phases)


def _stops(part: PlanPart, *, joining: bool, leaving: bool) -> Stops:
    """Return what happens on the way, in order; nothing for what all do at the ends."""
    acts: dict[int, list[tuple[bool, int]]] = {}
    if joining:
        moving = _moving(part)
        for member, when in enumerate(part.joins.tolist()):
            acts.setdefault(_within(moving, when), []).append((True, member))
    if leaving:
        early = (part.leaves >= 0) & (part.leaves < part.idle)
        for member in np.flatnonzero(early).tolist():
            acts.setdefault(int(part.leaves[member]), []).append((False, member))
    return sorted(acts.items())


def _moving(part: PlanPart) -> list[tuple[int, int]]:
    """Return from when to when each phase of a part moves data, on the idle clock."""
    found, before = [], 0
    for phase in part.phases:
        if phase.idle:
            begin = before + phase.lead
            found.append((begin, begin + phase.idle))
            before = begin + phase.idle + phase.tail
    return found


def _within(moving: list[tuple[int, int]], when: int) -> int:
    """Return when a member is waited for that joins at `when`: while data moves.

    Of nothing, the last member joins at the very end; the part ends without it if it is not waited
    for a picosecond before. Who joins at 0 is there when the part begins.
    """
    for begin, end in moving:
        if when < end:
            return max(when, begin) if when else 0
    return moving[-1][1] - 1 if moving and when else when
