"""
Several libraries in one run: each group communicates by the one that it names.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from commsim.cluster import Cluster, Links
from commsim.errors import ScenarioError
from commsim.graph import Graph
from commsim.libraries.library import HasLinks, Library, links_of
from commsim.libraries.plan import Plan, Request
from commsim.libraries.recorded import Recorded
from commsim.libraries.section import LibrarySection, make_library

__all__ = ["Libraries", "for_groups", "library_of"]


class Libraries:
    """A library for the groups that name none, and one for each name that groups use.

    It is a library itself: as such it is the first of them. At most one may have links of its
    own, as those stand right after the cluster's.
    """

    def __init__(
        self, default: Library, named: Mapping[str, Library] = MappingProxyType({})
    ) -> None:
        self._default = default
        self._named = dict(named)
        every = [default, *self._named.values()]
        self._linked = [library for library in every if isinstance(library, HasLinks)]
        if len(self._linked) > 1:
            names = ", ".join(library.name for library in self._linked)
            raise ScenarioError(f"library: {names} both bring links; only one of them can run.")

    @property
    def name(self) -> str:
        """The name of the default library."""
        return self._default.name

    @property
    def concurrency(self) -> int:
        """How many collectives of a group that names no library run at once."""
        return self._default.concurrency

    def of(self, name: str) -> Library:
        """Return the library that a group names; "" names the default."""
        return self._default if name in ("", self._default.name) else self._named[name]

    def plan(self, request: Request, cluster: Cluster | None) -> Plan:
        """Plan an op of a group that names no library."""
        return self._default.plan(request, cluster)

    def links(self, cluster: Cluster) -> Links:
        """Return the cluster's links, and those of the library that has links of its own."""
        return links_of(self._linked[0], cluster) if self._linked else cluster.links


def for_groups(default: Library, graph: Graph) -> Library:
    """Return `default` together with the libraries that the groups of a graph name besides it.

    Raises:
        ScenarioError: a group names a library that there is not.
    """
    names = dict.fromkeys(group.library for group in graph.groups)
    others = [name for name in names if name not in ("", default.name)]
    if not others:
        return default
    return Libraries(default, {name: _named(name) for name in others})


def _named(name: str) -> Library:
    """Return the library of a name; "recorded" plays back what was measured."""
    return Recorded(concurrency=0) if name == Recorded.name else make_library(LibrarySection(name))


def library_of(library: Library, group: str) -> Library:
    """Return who plans for a group that names `group`: one library alone plans for all.

    Calls that are played back ("recorded") are no collectives that a library could plan.
    """
    if isinstance(library, Libraries | Recorded):
        return library.of(group)
    return _PLAYED_BACK if group == Recorded.name else library


_PLAYED_BACK = Recorded(concurrency=0)
