"""
Who sends to whom in each of NCCL's algorithms, and which share of the bytes: a communicator's
rings and trees as connections between ranks, with the NICs that NCCL's search gave them.
"""

from __future__ import annotations

import itertools

import numpy as np

from commsim.arrays import Bools, Floats, Ints, Whole, distinct_columns, narrow
from commsim.cluster import Cluster
from commsim.errors import ScenarioError
from commsim.libraries.expansion import Connections
from commsim.libraries.nccl.communicator import NicTable
from commsim.libraries.nccl.shapes import Algorithm, Communicator

__all__ = ["CommunicatorEdges"]


class CommunicatorEdges:
    """Connections of one communicator; `gpus[i]` is the cluster's rank at position i.

    Shares are of S, nccl-tests' size. `pxn`: another GPU of the node may hand data to its NIC.
    """

    def __init__(
        self, comm: Communicator, gpus: Ints, cluster: Cluster, nics: NicTable, *, pxn: bool = True
    ) -> None:
        self.comm = comm
        self._nics = nics
        self._pxn = pxn
        self.gpus = gpus
        self.cluster = cluster
        self.node = np.asarray(comm.node_of, dtype=np.int64)

    def of(self, algorithm: Algorithm, op: str, channels: int, root: int) -> Connections:
        """Return the connections of a collective; what goes through an NVSwitch's own arithmetic
        is not among them (see `switch_shares`).
        """
        n = self.comm.n_ranks
        match algorithm:
            case Algorithm.Ring if op in ("broadcast", "reduce"):
                return self._chain(channels, root, towards=op == "reduce")
            case Algorithm.Ring:
                rounds = 2 if op == "all_reduce" else 1
                return self._ring(channels, rounds * (n - 1) / n)
            case Algorithm.Tree:
                return self._tree(channels)
            case Algorithm.PAT:
                return self._pat()
            case Algorithm.NVLSTree:
                return self._heads()
            case Algorithm.CollNetDirect:
                return Connections.joined([self._to_neighbours(op), self._to_heads(op)])
            case Algorithm.CollNetChain:
                return Connections.joined([self._to_neighbours(op), self._along_chains()])
            case Algorithm.NVLS:
                return self._to_neighbours(op)
        raise ScenarioError(f"NCCL's {algorithm.name} has no {op}.")

    def switch_shares(self, algorithm: Algorithm, op: str) -> tuple[float, float]:
        """Return the share of S that a GPU sends into and takes out of a reducing switch.

        The switch fetches what it adds up from all its GPUs, and copies what one sends to all.
        """
        if algorithm not in (Algorithm.NVLS, Algorithm.NVLSTree):
            return 0.0, 0.0
        own = 1 / max(self.comm.local_ranks)
        return {"all_gather": (own, 1.0), "reduce_scatter": (1.0, own)}.get(op, (1 + own, 1 + own))

    def along(self, graph: str, source: Ints, target: Ints, channel: int) -> Connections:
        """Return connections of one channel of a graph ("ring", "tree"), by its NICs."""
        sides = (1, 0) if graph == "ring" else (None, None)
        channels = np.full(len(source), channel)
        return self._named(graph, source, target, channels, 0.0, leave=sides[0], enter=sides[1])

    def exchange(self) -> Connections:
        """Return a connection from each rank to each other, with S / n each."""
        n = self.comm.n_ranks
        source, target = np.divmod(np.arange(n * n), n)
        apart = source != target
        return self.pairs(source[apart], target[apart], 1 / n)

    def fan(self, root: int, *, gather: bool) -> Connections:
        """Return the connections of a gather or scatter, with S / n each."""
        n = self.comm.n_ranks
        others = np.flatnonzero(np.arange(n) != root)
        roots = np.full(n - 1, root)
        source, target = (others, roots) if gather else (roots, others)
        return self.pairs(source, target, 1 / n)

    def pairs(self, source: Ints, target: Ints, share: Floats | float) -> Connections:
        """Return point-to-point connections between positions.

        Between nodes each GPU's NICs share the bytes. Where NVLink leads to the GPU that has
        the same place in its node as the receiver, that one's NICs are used (PXN).
        """
        gpus = self.gpus
        shares = np.broadcast_to(np.asarray(share, dtype=np.float64), source.shape)
        cross = self.node[source] != self.node[target]
        near = Connections.of(gpus[source[~cross]], gpus[target[~cross]], shares[~cross])
        far = self._by_own_nics(gpus[source[cross]], gpus[target[cross]], shares[cross])
        return Connections.joined([near, far])

    def _by_own_nics(self, source: Ints, target: Ints, share: Floats) -> Connections:
        relay = self._relays(source, target)
        own, count = self._nics.own, self._nics.count
        ways = np.minimum(count[relay], count[target])
        if not np.all(ways):
            at = int(np.argmin(ways))
            rank = int(relay[at] if count[relay[at]] == 0 else target[at])
            raise ScenarioError(
                f"rank {rank} has no NIC to leave its node by. Give the node NICs"
                " (cluster: nics), or keep the group within one node."
            )
        row = np.repeat(np.arange(len(source)), ways)
        way = np.arange(len(row)) - np.repeat(np.cumsum(ways) - ways, ways)
        return Connections(
            source[row],
            target[row],
            share[row] / ways[row],
            own[relay[row], way],
            own[target[row], way],
            relay[row],
        )

    def _relays(self, source: Ints, target: Ints) -> Ints:
        """Return the ranks that hand data for `target` to a NIC: on its rail, if NVLink allows."""
        if not self._pxn:
            return source
        cluster = self.cluster
        kind = cluster.kind_of_node
        home, away = cluster.node_of[source], cluster.node_of[target]
        same_kind = kind[home] == kind[away]
        local = np.where(same_kind, cluster.local_of[target], cluster.local_of[source])
        peer = source - cluster.local_of[source] + local
        first, where = distinct_columns((kind[home], cluster.local_of[source], local))
        ends = zip(source[first].tolist(), peer[first].tolist(), strict=True)
        near = np.array([self._over_nvlink(a, b) for a, b in ends], dtype=np.bool_)
        relays: Ints = np.where(near[where], peer, source)
        return relays

    def _over_nvlink(self, a: int, b: int) -> bool:
        """Say whether NVLink alone leads from one rank of a node to another."""
        cluster = self.cluster
        route = None if a == b else cluster.local_route(a, b)
        return route is not None and all(cluster.links.kinds[i] == "nvlink" for i in route.link)

    def _ring(self, channels: int, share: float) -> Connections:
        return self._along_rings(channels, share, np.ones(self.comm.n_ranks, dtype=np.bool_), 1)

    def _chain(self, channels: int, root: int, *, towards: bool) -> Connections:
        """Return the ring without the edge that closes it at the root."""
        kept = np.arange(self.comm.n_ranks) != root
        return self._along_rings(channels, 1.0, kept, 0 if towards else 1)

    def _along_rings(self, channels: int, share: float, kept: Bools, end: int) -> Connections:
        """Return the ring's edges whose source (end 0) or target (end 1) is `kept`."""
        chosen = np.arange(channels) % len(self.comm.rings)
        ends = self.comm.rings[chosen].astype(np.int64)
        source, target = ends, np.roll(ends, -1, axis=1)
        channel = np.broadcast_to(chosen[:, None], ends.shape)
        use = kept[target if end else source]
        source, target, channel = source[use], target[use], channel[use]
        return self._named("ring", source, target, channel, share / channels, leave=1, enter=0)

    def _tree(self, channels: int) -> Connections:
        """Return both directions of every tree edge: sums go up, results come down."""
        return self._named(
            "tree", *self._tree_edges(channels), 1 / channels, leave=None, enter=None
        )

    def _tree_edges(self, channels: int) -> tuple[Whole, Whole, Whole]:
        """Return source, target and channel: what is left here, of millions of edges, is let go."""
        chosen = np.arange(channels) % self.comm.trees.channels
        up = self.comm.trees.up[chosen].astype(np.int64)
        row, child = np.nonzero(up >= 0)
        parent = up[row, child]
        source, target = np.concatenate((child, parent)), np.concatenate((parent, child))
        return narrow(source), narrow(target), np.tile(narrow(chosen)[row], 2)

    def _named(
        self,
        graph: str,
        source: Ints,
        target: Ints,
        channel: Ints,
        share: float,
        *,
        leave: int | None,
        enter: int | None,
    ) -> Connections:
        """Return connections by the NICs that a graph's channels use; None: the end that is the
        rank's own.
        """
        nets = self.comm.nets.get(graph)
        found = self._between(source, target, share)
        if nets is None or not len(nets.nics):
            return found
        cross = np.flatnonzero(self.node[source] != self.node[target])
        channel = channel[cross] % len(nets.nics)
        sender, receiver = source[cross], target[cross]
        home, away = self.node[sender], self.node[receiver]
        leaves = self._side(nets.relays.astype(np.int64), channel, home, sender, leave)
        enters = self._side(nets.relays.astype(np.int64), channel, away, receiver, enter)
        out, into = nets.nics[channel, home, leaves], nets.nics[channel, away, enters]
        relay = self.gpus[nets.relays[channel, home, leaves]]
        # In a rack the search may name a NIC of a machine that the rank is not on, where the
        # group has no rank that could hand the data over: then the rank's own NIC is taken.
        nodes = self.cluster.node_of
        near = self._nics.node[out] == nodes[relay]
        near &= self._nics.node[into] == nodes[self.gpus[receiver]]
        found.out[cross[near]], found.into[cross[near]] = out[near], into[near]
        found.relay[cross[near]] = relay[near]
        return found

    def _side(self, relays: Ints, channel: Ints, node: Ints, rank: Ints, side: int | None) -> Ints:
        if side is not None:
            return np.full(len(rank), side)
        second: Ints = (relays[channel, node, 0] != rank) & (relays[channel, node, 1] == rank)
        return second.astype(np.int64)

    def _between(self, source: Ints, target: Ints, share: float) -> Connections:
        none = np.full(len(source), -1, np.int32)  # holds any NIC and rank: each has named links
        shares = np.full(len(source), share)
        return Connections(
            self.gpus[source], self.gpus[target], shares, none, none.copy(), none.copy()
        )

    def _pat(self) -> Connections:
        """Return the partners at distances 1, 2, 4, …: the farther, the fewer blocks."""
        n = self.comm.n_ranks
        distances = 2 ** np.arange(max(n - 1, 1).bit_length())
        distances = distances[distances < n]
        ranks = np.arange(n)
        several = [
            self.pairs(ranks, (ranks + d) % n, -(-(n - int(d)) // (2 * int(d))) / n)
            for d in distances.tolist()
        ]
        return Connections.joined(several)

    def _heads(self) -> Connections:
        """Return a double tree over nodes for every GPU of a node, each with its part of S."""
        trees, node = self.comm.trees, self.node
        local = _places(node)
        heads = int(min(self.comm.local_ranks))
        first = {(int(n), int(p)): at for at, (n, p) in enumerate(zip(node, local, strict=True))}
        several = []
        for channel in (0, trees.channels // 2):
            up = trees.up[channel].astype(np.int64)
            child = np.flatnonzero(up >= 0)
            child = child[node[child] != node[up[child]]]
            below = [first[n, h] for n in node[child].tolist() for h in range(heads)]
            above = [first[n, h] for n in node[up[child]].tolist() for h in range(heads)]
            for source, target in ((below, above), (above, below)):
                several.append(self.pairs(np.array(source), np.array(target), 1 / heads / 2))
        return Connections.joined(several)

    def _to_neighbours(self, op: str) -> Connections:
        """Return what the network's switches take from every node and give to it, over its ranks.

        They add up, so that a node sends its own sums and takes the result, S each way whatever
        the number of nodes; of an all-gather or reduce-scatter a node's own part stays with it.
        """
        nodes = self.comm.n_nodes
        if nodes == 1:
            return self._between(self.node[:0], self.node[:0], 0.0)
        local, heads = _places(self.node), int(min(self.comm.local_ranks))
        share = 1.0 if op == "all_reduce" else (nodes - 1) / nodes
        rows = [np.flatnonzero(local == head) for head in range(heads)]
        return Connections.joined([self.pairs(r, np.roll(r, -1), share / heads) for r in rows])

    def _to_heads(self, op: str) -> Connections:
        """Return the pairs of a node: each head adds up its part of S and hands it out again."""
        local, heads = _places(self.node), int(min(self.comm.local_ranks))
        source, target = np.nonzero(self.node[:, None] == self.node[None, :])
        adds, hands_out = int(op != "all_gather"), int(op != "reduce_scatter")  # of bools `+` is or
        parts = adds * (local[target] < heads) + hands_out * (local[source] < heads)
        moves = (source != target) & (parts > 0)
        source, target, share = source[moves], target[moves], parts[moves] / heads
        return self.pairs(source, target, share)

    def _along_chains(self) -> Connections:
        """Return both directions of the chains within the nodes: sums up, results down."""
        channels = self.comm.graphs["collnet_chain"].channels
        place = {
            (node, at): rank
            for rank, (node, at) in enumerate(
                zip(self.node.tolist(), _places(self.node).tolist(), strict=True)
            )
        }
        ends = [
            (place[node, a], place[node, b])
            for channel in channels
            for node in range(self.comm.n_nodes)
            for a, b in itertools.pairwise(channel.intra)
            if (node, a) in place and (node, b) in place
        ]
        up = np.array(ends, dtype=np.int64).reshape(-1, 2)
        source, target = np.concatenate((up[:, 0], up[:, 1])), np.concatenate((up[:, 1], up[:, 0]))
        return self._between(source, target, 1 / max(len(channels), 1))


def _places(node: Ints) -> Ints:
    """Return each rank's number within its node."""
    order = np.argsort(node, kind="stable")
    counts = np.bincount(node)
    starts = np.repeat(np.cumsum(counts) - counts, counts)
    places = np.empty(len(node), np.int64)
    places[order] = np.arange(len(node)) - starts
    return places
