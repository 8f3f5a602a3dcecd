"""
A collective under `network: steps`: its chunk programs run at once, message by message.
"""

from __future__ import annotations

import simpy
from simpy.events import Event

from commsim.engine.rendezvous import Process, Rendezvous
from commsim.engine.step_network import MessageProgress, StepNetwork
from commsim.libraries import Start

__all__ = ["send_messages"]


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
