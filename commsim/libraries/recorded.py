"""
The library of a replay: every op takes the transfer time that was measured, on no link.
"""

from __future__ import annotations

import numpy as np

from commsim.cluster import Cluster
from commsim.errors import ScenarioError
from commsim.libraries.gloo import awaited_members
from commsim.libraries.plan import Plan, PlanPart, Request, Start, empty_phase

__all__ = ["Recorded"]


class Recorded:
    """Plays back measured transfer times; waiting is left to the engine to derive.

    `concurrency` is how many collectives of one group run at once.
    """

    name = "recorded"

    def __init__(self, concurrency: int = 1) -> None:
        self.concurrency = concurrency

    def of(self, group: str) -> Recorded:
        """Return who plays back for a group that names a library.

        Gloo has two threads per group on each rank, which the recording shows as streams: they
        alone say what runs at once. So do those of calls of an unknown group.
        """
        return Recorded(concurrency=0) if group in ("gloo", self.name) else self

    def plan(self, request: Request, cluster: Cluster | None) -> Plan:
        """Return a plan of the recorded duration. Raises ScenarioError if none was recorded."""
        if request.recorded < 0:
            raise ScenarioError(
                f"{request.kind} of ranks {list(request.ranks)}: no recorded time."
                " Replay with --comm modelled and a cluster, or give the op a recorded time."
            )
        if request.eager:
            return _eager(request)
        members = len(request.ranks)
        joins = np.zeros(members, np.int64)
        leaves = np.full(members, request.recorded, np.int64)
        if request.late:
            leaves += np.array(request.late, np.int64)
        part = PlanPart((empty_phase(int(leaves.max())),), joins, leaves)
        start = Start.PAIR if request.kind == "send_recv" else Start.ALL
        return Plan((part,), start, members, algorithm="recorded")


def _eager(request: Request) -> Plan:
    """Return the plan of what does not need every member."""
    members, root = len(request.ranks), max(request.root, 0)
    stays = request.late or (0,) * members
    part = PlanPart(
        (empty_phase(max(stays)),), np.zeros(members, np.int64), np.array(stays, np.int64)
    )
    return Plan(
        (part,),
        Start.EACH,
        members,
        algorithm="recorded",
        stays=stays,
        awaits=(request.eager > 1 and awaited_members(request.kind, members, root))
        or tuple(frozenset({member, root}) for member in range(members)),
    )
