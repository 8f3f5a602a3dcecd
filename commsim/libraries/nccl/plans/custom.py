"""
Algorithms from MSCCL files on NCCL's machinery: its launch, its latencies per hop, its rates.

A connection between two GPUs carries at most what the file's channels copy, and at most its
share of the wires; what several connections load together the links decide.
"""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from commsim.collectives import Custom
from commsim.errors import ScenarioError
from commsim.libraries.expansion import lay, part_of, whole
from commsim.libraries.nccl.plans.group import NcclGroup
from commsim.libraries.nccl.shapes import Algorithm, Choice, Protocol
from commsim.libraries.nccl.timing import default_terms, hop_latency, reach_latency, ring_edges
from commsim.libraries.plan import Delays, Plan, PlanPart, Request, RoutedProgram, Start

__all__ = ["custom_plan"]


def custom_plan(custom: Custom, request: Request, group: NcclGroup) -> Plan:
    """Return the plan of an op by a file's algorithm.

    Raises:
        ScenarioError: the file is for another op or another number of GPUs.
    """
    made, members = custom.program, len(request.ranks)
    if (made.op, made.n) != (request.kind, members):
        raise ScenarioError(
            f"{custom.name} is an {made.op} of {made.n} GPUs, and {request.kind} of {members} is"
            " asked for. Give a file that fits, or leave library.algo out."
        )
    choice = _as_choice(custom, request)
    lead = whole(float(group.timing(request.kind, [request.size], [choice]).launch[0]) * 1e12)
    plain = lay(made, float(request.size), range(members), request.ranks, group.router)
    messages = _timed(plain, group, choice, hold=0.0)
    part = part_of(messages, made.phase, members, group.cluster.links, together=True)
    first, *rest = part.phases
    led = PlanPart((replace(first, lead=lead), *rest), part.joins, part.leaves + lead)

    def program() -> RoutedProgram:
        return _timed(plain, group, choice, hold=float(lead))

    return Plan(
        (led,),
        Start.ALL,
        members,
        (program,),
        f"{custom.name} {choice.protocol.name}",
        custom.channels,
        group.notes,
        sms=custom.channels,
        touched=3.0 * request.size,
    )


def _as_choice(custom: Custom, request: Request) -> Choice:
    """Return a ring of the file's protocol and channels: what its launch and edges are like."""
    protocol = next((p for p in Protocol if p.name == custom.protocol), Protocol.Simple)
    return Choice(
        op=request.kind,
        size=request.size,
        algorithm=Algorithm.Ring,
        protocol=protocol,
        channels=custom.channels,
        max_channels=custom.channels,
        threads=0,
        chunk=0,
        slice=0,
        selection_us=0.0,
    )


def _timed(
    messages: RoutedProgram, group: NcclGroup, choice: Choice, *, hold: float
) -> RoutedProgram:
    """Return messages with what NCCL adds to the links: latency of a hop, pace of a sender."""
    terms = default_terms()
    runs = group.runs(choice.op, [choice.size], [choice])
    edges = ring_edges(runs, terms)
    crosses = group.edges.node[messages.source] != group.edges.node[messages.target]
    crosses &= (messages.source >= 0) & (messages.target >= 0)
    hop = float(hop_latency(runs, terms)[0])
    reach = float(reach_latency(runs, terms, np.array([messages.size.max(initial=0.0)]))[0])
    latency = np.where(crosses, reach, hop) * 1e12
    on_wire = np.array([route.latency for route in messages.routes], dtype=np.float64)
    rate = np.where(crosses, edges.net[0], edges.local[0]) * choice.channels
    apart = messages.source != messages.target
    delays = Delays(
        hold=np.full(len(messages.size), hold),
        after=np.where(apart, np.maximum(latency - on_wire[messages.route], 0.0), 0.0),
        dep=np.zeros(len(messages.dep)),
        pace=np.where(apart, messages.size / rate * 1e12, 0.0),
    )
    return replace(messages, delays=delays)
