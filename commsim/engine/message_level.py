"""
A collective under `network: steps`: its chunk programs run at once, message by message.
"""

from __future__ import annotations

import numpy as np
import simpy
from simpy.events import Event

from commsim.engine.rendezvous import Process, Rendezvous
from commsim.engine.step_network import MessageProgress, StepNetwork
from commsim.graph import Graph
from commsim.libraries import Start
from commsim.limits import BYTES_PER_ROUTE, check_size

__all__ = ["check_exchanges", "send_messages"]

_EXCHANGES = ("all_to_all", "all_to_all_v")


def check_exchanges(graph: Graph) -> None:
    """Refuse an all-to-all of more messages than memory has room for, before it is planned."""
    table = graph.collectives
    exchanges = np.isin(np.array(table.kind, dtype=np.str_), _EXCHANGES)
    groups = (graph.groups[at] for at in np.unique(table.group[exchanges]).tolist())
    ranks = max((len(group.ranks) for group in groups), default=1)
    pairs = ranks * (ranks - 1)
    check_size(
        pairs, BYTES_PER_ROUTE,
        f"network steps: an all-to-all of {ranks:,} ranks, {pairs:,} messages each by its route,",
        "Take network: fluid, or fewer ranks.",
    )  # fmt: skip


def send_messages(network: StepNetwork, rendezvous: Rendezvous) -> Process:
    """Run the programs of a plan message by message; members leave when they are done."""
    programs = [expand() for expand in rendezvous.plan.programs]
    busy: dict[int, int] = {}

    def done(member: int) -> None:
        busy[member] -= 1
        if not busy[member]:
            rendezvous.release(member)

    running = [MessageProgress(messages, done) for messages in programs]
    for progress in running:
        for member in progress.left:
            busy[member] = busy.get(member, 0) + 1
    absent = rendezvous.missing() if rendezvous.plan.start == Start.PATH else []
    for member in rendezvous.ops:  # also who came at this instant, after the start
        rendezvous.start_member(member)
    op = rendezvous.ops[min(rendezvous.ops)]
    alone = len(running) == 1
    started = [network.send(progress, absent, op=op, alone=alone) for progress in running]
    for member in absent:
        arrival = rendezvous.arrival_of(member)
        assert arrival is not None
        network.env.process(_admit(network, rendezvous, member, arrival, [n for n, _ in started]))
    yield simpy.AllOf(network.env, [ended for _, ended in started])


def _admit(
    network: StepNetwork, rendezvous: Rendezvous, member: int, arrival: Event, programs: list[int]
) -> Process:
    """Let a member take part once it has arrived."""
    yield arrival
    yield from rendezvous.join(member)
    for number in programs:
        network.join(number, member)
