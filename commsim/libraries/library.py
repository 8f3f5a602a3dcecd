"""
What the engine asks of a library: a plan per op, and how many ops of a group run at once.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from commsim.cluster import Cluster, Links
from commsim.errors import ScenarioError
from commsim.libraries.plan import Plan, Request
from commsim.limits import too_long
from commsim.units import MOST_PICOSECONDS, format_size

__all__ = ["HasLinks", "Library", "links_of", "plan_of"]


class Library(Protocol):
    """The rules by which a group communicates: NCCL's, Gloo's, or the textbook's."""

    @property
    def name(self) -> str:
        """The name that scenarios use."""

    @property
    def concurrency(self) -> int:
        """How many collectives of one group run at once, in order of issue; 0: streams decide."""

    def plan(self, request: Request, cluster: Cluster | None) -> Plan:
        """Say what an op does to the links of `cluster`, and when. It is asked by `plan_of`.

        Raises:
            OverflowError: the op takes longer than the clock can hold.
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


def plan_of(library: Library, request: Request, cluster: Cluster | None) -> Plan:
    """Return the plan of an op.

    Raises:
        ScenarioError: the op cannot be planned, or takes longer than the clock can hold.
        TopologyError: two ranks cannot reach each other.
    """
    try:
        plan = library.plan(request, cluster)
    except OverflowError:
        raise _op_too_long(request) from None
    if plan.idle >= MOST_PICOSECONDS:
        raise _op_too_long(request)
    return plan


def _op_too_long(request: Request) -> ScenarioError:
    return too_long(
        f"{request.kind} of {format_size(request.size)} over {len(request.ranks)} ranks",
        "Give a smaller size, more bandwidth, or less latency.",
    )
