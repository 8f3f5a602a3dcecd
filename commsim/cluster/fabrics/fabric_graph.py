"""
A fabric as any graph: the switches and links that a user lists.

    switches: [leaf0..3, spine0..1]
    links:
      - {between: [node0..3, leaf0]}
      - {between: [leaf0..3, spine0..1], bandwidth: 400Gbps, count: 2}
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Sequence

from commsim.cluster.fabrics.fabric_section import FabricLinkSection, FabricSpec
from commsim.cluster.fabrics.leaves import Nic
from commsim.cluster.fabrics.wiring import SwitchLink, Wiring, levels
from commsim.errors import ScenarioError, did_you_mean

__all__ = ["graph_wiring"]

_RANGE = re.compile(r"(\d{1,9})\.\.(\d{1,9})")
_NODE = re.compile(r"node(\d{1,9})(?:/nic(\d{1,9}))?\Z")
_MOST = 65_536  # switches, and links between named ends


def graph_wiring(spec: FabricSpec, nics: Sequence[Nic]) -> Wiring:
    """Return the wiring that `spec.switches` and `spec.links` say.

    Raises:
        ScenarioError: an unknown end, a NIC on no switch or on two, switches that are apart.
    """
    where = spec.where
    if not spec.switches or not spec.links:
        field = "switches" if not spec.switches else "links"
        raise ScenarioError(
            f"{where}.{field}: is missing. A graph needs switches: [a, b] and links:"
            " [{between: [node*, a]}, {between: [a, b], bandwidth: 400Gbps}]."
        )
    names = [name for text in spec.switches for name in _expanded(text, f"{where}.switches")]
    _check_names(names, f"{where}.switches")
    graph = _Graph(names, nics)
    for number, link in enumerate(spec.links):
        graph.add(link, f"{where}.links.{number}")
    leaf_of = graph.attached(where)
    _check_joined(names, graph.links, leaf_of, nics, where)
    kinds = levels(graph.links, leaf_of, names)
    return Wiring(dict(zip(names, kinds, strict=True)), tuple(graph.links), tuple(leaf_of))


class _Graph:
    """Links as they are read, each end looked up."""

    def __init__(self, names: Sequence[str], nics: Sequence[Nic]) -> None:
        self._names = dict.fromkeys(names)
        self._nics: dict[int, dict[int, int]] = {}
        for number, nic in enumerate(nics):
            self._nics.setdefault(nic.node, {})[nic.number] = number
        self._leaf: dict[int, str] = {}
        self._all = nics
        self.links: list[SwitchLink] = []

    def add(self, link: FabricLinkSection, where: str) -> None:
        """Add what one entry of `links` says."""
        ends = [self._ends(text, f"{where}.between") for text in link.between]
        if link.count < 1:
            raise ScenarioError(f"{where}.count: {link.count} is too few. Give 1 or more.")
        if len(ends[0]) * len(ends[1]) > _MOST:
            raise ScenarioError(f"{where}.between: more than {_MOST:,} links. Name fewer.")
        if isinstance(ends[0][0], int) and isinstance(ends[1][0], int):
            raise ScenarioError(f"{where}.between: joins two nodes. Put a switch between them.")
        for a, b in itertools.product(*ends):
            if isinstance(a, str) and isinstance(b, str):
                self._join(a, b, link, where)
            elif isinstance(a, int):
                self._attach(a, str(b), link, where)
            else:
                self._attach(int(b), str(a), link, where)

    def _ends(self, text: str, where: str) -> list[str | int]:
        """Return the switches, or the numbers of the NICs, that a name stands for."""
        text = text.replace("node*", f"node0..{max(self._nics)}")
        names = _expanded(text, where)
        if all(name in self._names for name in names):
            return list(names)
        found: list[str | int] = []
        for name in names:
            match = _NODE.match(name)
            node = self._nics.get(int(match[1])) if match else None
            nic = int(match[2]) if match and match[2] else None
            if node is None or (nic is not None and nic not in node):
                known = [*self._names, *(f"node{number}" for number in self._nics)]
                raise ScenarioError(
                    f"{where}: {name!r} is neither a switch nor a node with that NIC."
                    f"{did_you_mean(name, known)} Known: {_listed(known)}."
                )
            found += node.values() if nic is None else [node[nic]]
        return found

    def _attach(self, nic: int, switch: str, link: FabricLinkSection, where: str) -> None:
        for field in ("bandwidth", "latency"):
            if getattr(link, field) is not None:
                raise ScenarioError(
                    f"{where}.{field}: a NIC's link has the NIC's own. Leave it out, or set it by"
                    f" overrides: {{nic: {{{field}: ...}}}}."
                )
        if nic in self._leaf or link.count != 1:
            raise ScenarioError(
                f"{where}: {self._all[nic].name} gets a second link, and a NIC has one. Give"
                " the node more NICs, one for each."
            )
        self._leaf[nic] = switch

    def _join(self, a: str, b: str, link: FabricLinkSection, where: str) -> None:
        if a == b:
            raise ScenarioError(f"{where}.between: joins {a} with itself. Name two switches.")
        if link.bandwidth is None or link.bandwidth <= 0:
            raise ScenarioError(
                f"{where}.bandwidth: is missing or zero. Give one cable's, per direction: 400Gbps."
            )
        latency = None if link.latency is None else int(link.latency)
        self.links.append(SwitchLink(a, b, float(link.bandwidth), link.count, latency))

    def attached(self, where: str) -> list[str]:
        """Return the switch of every NIC."""
        for number, nic in enumerate(self._all):
            if number not in self._leaf:
                raise ScenarioError(
                    f"{where}.links: {nic.name} hangs on no switch. Add {{between:"
                    f" [{nic.name}, ...]}}."
                )
        return [self._leaf[number] for number in range(len(self._all))]


def _expanded(text: str, where: str) -> list[str]:
    """Return the names that "leaf0..3" stands for; a name without a range is itself."""
    found = [""]
    at = 0
    for match in _RANGE.finditer(text):
        first, last = int(match[1]), int(match[2])
        if last < first or (last - first + 1) * len(found) > _MOST:
            raise ScenarioError(f"{where}: {text!r} counts from {first} to {last}.")
        head = text[at : match.start()]
        found = [f"{one}{head}{n}" for one in found for n in range(first, last + 1)]
        at = match.end()
    return [one + text[at:] for one in found]


def _check_names(names: Sequence[str], where: str) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ScenarioError(f"{where}: {twice[0]!r} is there twice.")
    for name in names:
        if not re.fullmatch(r"[A-Za-z][\w./-]*", name) or re.match(r"(node|domain)\d", name):
            raise ScenarioError(
                f"{where}: {name!r} is no name for a switch. Start with a letter, and not with"
                " node or domain and a number."
            )


def _check_joined(
    names: Sequence[str],
    links: Sequence[SwitchLink],
    leaf_of: Sequence[str],
    nics: Sequence[Nic],
    where: str,
) -> None:
    """Refuse nodes that no way joins; switches may be joined by nodes only (rails, planes)."""
    import networkx

    graph = networkx.Graph()
    graph.add_nodes_from(names)
    graph.add_edges_from((link.a, link.b) for link in links)
    graph.add_edges_from((f"node{nic.node}", leaf) for nic, leaf in zip(nics, leaf_of, strict=True))
    parts = list(networkx.connected_components(graph))
    if len(parts) == 1:
        return
    one, other = (sorted(part, key=_natural) for part in parts[:2])
    raise ScenarioError(
        f"{where}.links: the graph is in {len(parts)} parts: {_listed(one)} and {_listed(other)}"
        " are joined by nothing. Add a link between them."
    )


def _natural(name: str) -> list[tuple[int, str]]:
    return [(int(p), "") if p.isdecimal() else (-1, p) for p in re.split(r"(\d{1,18})", name)]


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:6])
    return shown if len(names) <= 6 else f"{shown} and {len(names) - 6:,} more"
