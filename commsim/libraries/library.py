"""
What the engine asks of a library: a plan per op, and how many ops of a group run at once.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from commsim.cluster import Cluster, Links
from commsim.libraries.plan import Plan, Request

__all__ = ["HasLinks", "Library", "links_of"]


class Library(Protocol):
    """The rules by which a group communicates: NCCL's, Gloo's, or the textbook's."""

    @property
    def name(self) -> str:
        """The name that scenarios use."""

    @property
    def concurrency(self) -> int:
        """How many collectives of one group run at once, in order of issue; 0: streams decide."""

    def plan(self, request: Request, cluster: Cluster | None) -> Plan:
        """Say what an op does to the links of `cluster`, and when.

        Raises:
            ScenarioError: the op cannot be planned (no cluster, no such algorithm).
            TopologyError: two ranks cannot reach each other.
        """


@runtime_checkable
class HasLinks(Protocol):
    """A library whose plans also load links of its own: the threads that copy its data."""

    def links(self, cluster: Cluster) -> Links:
        """Return the links of `cluster` and, after them, the library's own."""


def links_of(library: Library, cluster: Cluster) -> Links:
    """Return all links that the plans of `library` may load."""
    return library.links(cluster) if isinstance(library, HasLinks) else cluster.links
