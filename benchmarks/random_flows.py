"""
Random flows through a fat tree, and a check of how they shared it that knows no algorithm.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import simpy

from commsim.engine.clock import Clock
from commsim.engine.fluid_network import Flow, FluidNetwork
from commsim.libraries.plan import PlanPhase

__all__ = ["FlowCase", "FlowsRan", "fat_tree_flows", "run_flows", "unfair_at"]

Numbers = npt.NDArray[Any]


@dataclass(frozen=True)
class FlowCase:
    """Flows that begin together: their links, their bytes, and what links carry in bytes/s."""

    capacity: Numbers
    links: list[Numbers]
    size: Numbers


@dataclass(frozen=True)
class FlowsRan:
    """The stretches of constant rate of all flows: flow, from, to (ps), share per ps."""

    flow: Numbers
    start: Numbers
    end: Numbers
    rate: Numbers


def fat_tree_flows(count: int, *, arity: int, seed: int) -> FlowCase:
    """Return random flows between hosts of a k-ary fat tree, each over one random path."""
    rng = np.random.default_rng(seed)
    half = arity // 2
    hosts = arity * half * half
    up_host, up_edge, up_core = 0, hosts, hosts + arity * half * half
    one_way = up_core + arity * half * half  # the way down mirrors the way up
    links = []
    for _ in range(count):
        a, b = rng.choice(hosts, 2, replace=False).tolist()
        middle, top = rng.integers(0, half, 2).tolist()
        edge_a, edge_b = a // half, b // half
        pod_a, pod_b = edge_a // half, edge_b // half
        ups, downs = [up_host + a], [up_host + b]
        if edge_a != edge_b:
            ups.append(up_edge + edge_a * half + middle)
            downs.append(up_edge + edge_b * half + middle)
        if pod_a != pod_b:
            ups.append(up_core + (pod_a * half + middle) * half + top)
            downs.append(up_core + (pod_b * half + middle) * half + top)
        links.append(np.sort(np.array(ups + [one_way + link for link in downs])))
    return FlowCase(np.full(2 * one_way, 12.5e9), links, rng.uniform(1e6, 1e9, count))


class Stretches:
    """The stretches of constant rate of flows, named by their op."""

    def __init__(self) -> None:
        self._rows: list[tuple[int, int, int, float]] = []
        self._columns: list[tuple[Numbers, Numbers, Numbers, Numbers]] = []

    def segment(self, flow: Flow, now: int) -> None:
        """Take a stretch of one flow."""
        if now > flow.settled:
            self._rows.append((flow.op, flow.settled, now, flow.rate))

    def template(self, phase: PlanPhase) -> int:
        """Return nothing: a flow is named by its op."""
        return 0

    def segments(
        self, template: Numbers, op: Numbers, start: Numbers, now: int, rate: Numbers
    ) -> None:
        """Take a stretch of each of several flows."""
        self._columns.append((op, start, np.full(len(op), now), rate))

    def ran(self) -> FlowsRan:
        """Return all stretches."""
        single = [np.array(row) for row in zip(*self._rows, strict=True)] if self._rows else []
        parts = [single, *self._columns] if single else self._columns
        return FlowsRan(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def run_flows(case: FlowCase) -> FlowsRan:
    """Run all flows in the engine's network."""
    env, stretches = Clock(), Stretches()
    network = FluidNetwork(env, case.capacity, log=stretches, note=lambda _: None)

    def run(number: int) -> Generator[simpy.Event, Any, None]:
        route = case.links[number]
        load = np.full(len(route), case.size[number])
        phase = PlanPhase(1, route, load, np.ones(len(route)))
        yield network.start(phase, op=number).reach(1.0)

    for number in range(len(case.size)):
        env.process(run(number))
    env.run()
    return stretches.ran()


def unfair_at(case: FlowCase, ran: FlowsRan, *, instants: int) -> float:
    """Return by how much the flows broke max-min fairness, as a fraction.

    At several instants no link may be over its capacity, and each flow must cross a full link on
    which none is faster (Bertsekas and Gallager, "Data Networks", section 6.5.2). All flows must
    have sent all of their bytes, to what they send in the picosecond in which they end.
    """
    moved = np.bincount(ran.flow, (ran.end - ran.start) * ran.rate, len(case.size))
    in_a_picosecond = np.zeros(len(case.size))
    np.maximum.at(in_a_picosecond, ran.flow, ran.rate)
    worst = max(float((np.abs(moved - 1) - in_a_picosecond).max()), 0.0)
    for when in np.linspace(0, float(ran.end.max()), instants + 2)[1:-1]:
        now = (ran.start <= when) & (ran.end > when)
        speed = ran.rate[now] * case.size[ran.flow[now]] * 1e12
        routes = [case.links[flow] for flow in ran.flow[now].tolist()]
        owner = np.repeat(np.arange(len(routes)), [len(route) for route in routes])
        link = np.concatenate(routes)
        full = np.bincount(link, speed[owner], len(case.capacity)) / case.capacity
        top = np.zeros(len(case.capacity))
        np.maximum.at(top, link, speed[owner])
        lack = np.maximum(np.abs(1 - full[link]), 1 - speed[owner] / top[link])
        nearest = np.full(len(routes), np.inf)
        np.minimum.at(nearest, owner, lack)
        worst = max(worst, float(full.max()) - 1, float(nearest.max()))
    return worst
