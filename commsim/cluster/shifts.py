"""
Links of one node as those of another: what holds on some nodes holds on others of their kind.

The links fall into blocks: a block per node (its own links, and those of its NICs), per pod (the
links above the leaves that a node's NICs hang on) and per group of pods (the links above their
spines). The blocks of nodes of one kind, and of pods that are built alike, list their links in the
same order, so that a route or a plan on some blocks is shifted to others link by link.
"""

from __future__ import annotations

import numpy as np

from commsim.arrays import Ints
from commsim.cluster.cluster import Cluster

__all__ = ["Shifts"]


class Shifts:
    """The links of a cluster by their places within blocks.

    Nodes have the blocks of their numbers; `pod_of` and `group_of` are the blocks above each node.
    `spec[node]` is its kind. `kind[node]` is equal for nodes of one kind that hang on the same
    leaves and have the same GPUs in use: a route between two nodes is that between two others of
    the same kinds, shifted. `state[block]` is equal for blocks that can stand for each other: their
    links carry the same, and nodes are of one kind with the same GPUs in use. `pods_differ`: the
    fabric is one in which every pod stands by itself.
    """

    def __init__(self, cluster: Cluster) -> None:
        count = len(cluster.node_names)
        self.spec = np.asarray(cluster.spec_of, dtype=np.int64)
        above = _Above(cluster, count)
        self.pod_of, self.group_of = above.pod_of, above.group_of
        self.pods_differ = above.differ
        blocks = _node_links(cluster, count) + above.links
        sizes = np.array([len(links) for links in blocks], dtype=np.int64)
        self._start = np.cumsum(sizes) - sizes
        self._link = np.concatenate([np.zeros(0, np.int64), *blocks])
        self._block = np.full(len(cluster.links), -1)
        self._offset = np.zeros(len(cluster.links), np.int64)
        self._block[self._link] = np.repeat(np.arange(len(blocks)), sizes)
        self._offset[self._link] = np.arange(len(self._link)) - np.repeat(self._start, sizes)
        used = _used(cluster, count)
        leaves = [above.leaves[pod] for pod in (self.pod_of - count).tolist()]
        self.kind = _numbered(list(zip(self.spec.tolist(), leaves, used, strict=True)))
        carried = [cluster.links.capacity[links].tobytes() for links in blocks]
        facts = [*zip(self.spec.tolist(), used, strict=True), *above.shapes]
        self.state = _numbered(list(zip(facts, carried, strict=True)))

    def shift(self, link: Ints, links: Ints, entry: Ints, home: Ints, nodes: Ints) -> None:
        """Shift the links of `home` to those of `nodes`, in place; all other links stay.

        `link[i]` begins as `links[entry[i]]`, belongs to node `home[entry[i]]` or to none that is
        shifted here, and shall belong to `nodes[i]`.
        """
        moved = np.flatnonzero((self._block[links] == home)[entry])
        offset = self._offset[links[entry[moved]]]
        link[moved] = self._link[self._start[nodes[moved]] + offset]

    def on_blocks(
        self, links: Ints, home: Ints, others: Ints, *, keeps_switches: bool
    ) -> Ints | None:
        """Return links on the blocks `home` as those on each row of `others`, a row of links each.

        Links of no block stay what they are if `keeps_switches`. None if some belong to another
        block: a row need not have a link that is like them.
        """
        block = self._block[links]
        blocks, place = np.unique(home, return_index=True)
        at = np.minimum(np.searchsorted(blocks, block), len(blocks) - 1)
        stays = block < 0
        if not (keeps_switches | ~stays).all() or not ((blocks[at] == block) | stays).all():
            return None
        moved = self._link[self._start[others[:, place[at]]] + self._offset[links]]
        found: Ints = np.where(stays, links, moved)
        return found


class _Above:
    """The blocks above the nodes: pods, and groups of them; their numbers follow the nodes'."""

    def __init__(self, cluster: Cluster, nodes: int) -> None:
        fabric = cluster.fabric
        of, group = fabric.leaves.of, fabric.leaves.group
        first = [*(cluster.first_nic(node) for node in range(nodes)), len(of)]
        hung = [tuple(of[a:b]) for a, b in zip(first[:-1], first[1:], strict=True)]
        number: dict[tuple[int, ...], int] = {}
        pod = [number.setdefault(leaves, len(number)) for leaves in hung]
        self.leaves = list(number)
        once = [list(dict.fromkeys(leaves)) for leaves in self.leaves]
        groups = [sorted({group[leaf] for leaf in leaves}) for leaves in once]
        apart = sum(map(len, once)) == len({leaf for leaves in once for leaf in leaves})
        whole = all(len(found) <= 1 for found in groups)
        self.differ = not (fabric.is_tree and apart and whole)
        above: dict[tuple[int, ...], int] = {}
        group_of_pod = [above.setdefault(tuple(found), len(above)) for found in groups]
        self.pod_of = nodes + np.array(pod, dtype=np.int64)
        self.group_of = nodes + len(number) + np.array(group_of_pod, dtype=np.int64)[pod]
        none: list[Ints] = [np.zeros(0, np.int64)] * (len(number) + len(above))
        self.links = none
        self.shapes: list[tuple[object, ...]] = [(at,) for at in range(len(none))]
        if not self.differ:
            self.links = [_joined([fabric.uplinks(leaf) for leaf in leaves]) for leaves in once]
            self.links += [_joined([fabric.core_links(at) for at in found]) for found in above]
            self.shapes = [
                ("pod", *map(leaves.index, hangs))
                for leaves, hangs in zip(once, self.leaves, strict=True)
            ]
            self.shapes += [("group",)] * len(above)


def _node_links(cluster: Cluster, nodes: int) -> list[Ints]:
    """Return each node's own links, then those of its NICs: all up, then all down."""
    up = cluster.fabric.nic_links
    first = [*(cluster.first_nic(node) for node in range(nodes)), len(up)]
    sizes = [len(cluster.template(kind).rows) for kind in range(len(cluster.specs))]
    found = []
    for node, kind in enumerate(cluster.spec_of):
        begin = cluster.first_link(node)
        nics = up[first[node] : first[node + 1]]
        found.append(np.concatenate((np.arange(begin, begin + sizes[kind]), nics, nics + 1)))
    return found


def _used(cluster: Cluster, nodes: int) -> list[bytes]:
    """Return the GPUs in use of each node, as something to compare."""
    order = np.argsort(cluster.node_of, kind="stable")
    local = cluster.local_of[order]
    cuts = np.searchsorted(cluster.node_of[order], np.arange(nodes + 1)).tolist()
    return [local[a:b].tobytes() for a, b in zip(cuts[:-1], cuts[1:], strict=True)]


def _joined(parts: list[range]) -> Ints:
    return np.array([link for part in parts for link in part], dtype=np.int64)


def _numbered(keys: list[tuple[object, ...]]) -> Ints:
    """Number keys by first appearance."""
    known: dict[tuple[object, ...], int] = {}
    return np.array([known.setdefault(key, len(known)) for key in keys], dtype=np.int64)
