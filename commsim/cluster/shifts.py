"""
Links of one node as those of another: what holds on some nodes holds on others of their kind.

A link within a node is as far from the node's first link, and a NIC as far from the node's first
NIC, on all nodes of one kind; the links above the leaves are the same for nodes on the same leaves.
"""

from __future__ import annotations

import numpy as np

from commsim.arrays import Bools, Ints
from commsim.cluster.cluster import Cluster

__all__ = ["Shifts"]


class Shifts:
    """The links of a cluster's nodes by their places within the nodes.

    `kind[node]` is equal for nodes of one kind that hang on the same leaves and have the same GPUs
    in use: a route between two nodes is that between two others of the same kinds, shifted.
    """

    def __init__(self, cluster: Cluster) -> None:
        nodes = range(len(cluster.node_names))
        self.spec = np.asarray(cluster.spec_of, dtype=np.int64)
        self._first_link = np.array([cluster.first_link(node) for node in nodes], dtype=np.int64)
        self._first_nic = np.array([cluster.first_nic(node) for node in nodes], dtype=np.int64)
        rows = [len(cluster.template(kind).rows) for kind in range(len(cluster.specs))]
        self._end_link = self._first_link + np.array(rows, dtype=np.int64)[self.spec]
        self._up = cluster.fabric.nic_links
        self._nic = np.full(len(cluster.links), -1)  # of the links of NICs, both ways
        self._nic[self._up] = self._nic[self._up + 1] = np.arange(len(self._up))
        self._nic_node = np.array([nic.node for nic in cluster.nics], dtype=np.int64)
        self.kind = self._kinds(cluster)

    def shift(self, link: Ints, links: Ints, entry: Ints, home: Ints, nodes: Ints) -> None:
        """Shift the links of `home` to those of `nodes`, in place; all other links stay.

        `link[i]` begins as `links[entry[i]]`, belongs to node `home[entry[i]]` or to none that is
        shifted here, and shall belong to `nodes[i]`.
        """
        moved = np.flatnonzero(self._inside(links, home)[entry])
        offset = (links - self._first_link[home])[entry[moved]]
        link[moved] = self._first_link[nodes[moved]] + offset
        moved = np.flatnonzero(self._at_nics(links, home)[entry])
        if moved.size:
            nic = self._nic[links]
            offset = (nic - self._first_nic[home])[entry[moved]]
            back = (links - self._up[nic])[entry[moved]]
            link[moved] = self._up[self._first_nic[nodes[moved]] + offset] + back

    def elsewhere(self, links: Ints, nodes: Ints) -> bool:
        """Return whether some links belong to other nodes than these."""
        mine = links >= (self._end_link[-1] if len(self._end_link) else 0)
        mine &= self._nic[links] < 0  # of switches
        for node in nodes.tolist():
            home = np.full(len(links), node)
            mine |= self._inside(links, home) | self._at_nics(links, home)
        return not bool(mine.all())

    def own_links(self, spec: int) -> tuple[Ints, Ints]:
        """Return the nodes of a kind and the links of each as a row, those of its NICs last."""
        nodes = np.flatnonzero(self.spec == spec)
        own = np.arange(int((self._end_link - self._first_link)[nodes[0]]))
        nics = np.arange(int(np.count_nonzero(self._nic_node == nodes[0])) if len(self._up) else 0)
        inside = self._first_link[nodes][:, None] + own
        up = self._up[self._first_nic[nodes][:, None] + nics]
        return nodes, np.concatenate((inside, up, up + 1), axis=1)

    def _inside(self, links: Ints, home: Ints) -> Bools:
        inside: Bools = (self._first_link[home] <= links) & (links < self._end_link[home])
        return inside

    def _at_nics(self, links: Ints, home: Ints) -> Bools:
        nic = self._nic[links]
        if not len(self._nic_node):
            return np.zeros(len(links), np.bool_)
        at: Bools = (nic >= 0) & (self._nic_node[nic] == home)
        return at

    def _kinds(self, cluster: Cluster) -> Ints:
        leaf, known = cluster.fabric.leaves.of, dict[tuple[object, ...], int]()
        order = np.argsort(cluster.node_of, kind="stable")
        used = cluster.local_of[order]
        cuts = np.searchsorted(cluster.node_of[order], np.arange(len(self.spec) + 1)).tolist()
        ends = np.append(self._first_nic[1:], len(leaf)).tolist()
        nodes = zip(self.spec.tolist(), self._first_nic.tolist(), ends, strict=True)
        return np.array(
            [
                known.setdefault(
                    (spec, leaf[start:end], used[cuts[node] : cuts[node + 1]].tobytes()), len(known)
                )
                for node, (spec, start, end) in enumerate(nodes)
            ],
            dtype=np.int64,
        )
