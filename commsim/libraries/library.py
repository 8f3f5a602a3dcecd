"""
What the engine asks of a library: a plan per op, and how many ops of a group run at once.
"""

from __future__ import annotations

from typing import Protocol

from commsim.cluster import Cluster
from commsim.libraries.plan import Plan, Request

__all__ = ["Library"]


class Library(Protocol):
    """The rules by which a group communicates: NCCL's, Gloo's, or the textbook's."""

    @property
    def name(self) -> str:
        """The name that scenarios use."""

    @property
    def concurrency(self) -> int:
        """How many collectives of one group run at once."""

    def plan(self, request: Request, cluster: Cluster | None) -> Plan:
        """Say what an op does to the links of `cluster`, and when.

        Raises:
            ScenarioError: the op cannot be planned (no cluster, no such algorithm).
            TopologyError: two ranks cannot reach each other.
        """
