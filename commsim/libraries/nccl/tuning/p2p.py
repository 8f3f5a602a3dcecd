"""
NCCL's sends and receives: channels per peer, protocol, chunk, and the order of an all-to-all.

A group of sends and receives is one kernel. It runs in rounds: in round r every rank sends to one
peer and receives from another, so that each pair meets once. A round owns a base channel and the
`channels` after it; up to eight rounds of one channel run at once.

Follows ncclTopoComputeP2pChannels (src/graph/paths.cc), addP2pToPlan (src/enqueue.cc) and
ncclP2pChannelBaseForRound (src/include/channel.h), NCCL 2.18 to 2.30.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import msgspec

from commsim.libraries.nccl.env import Knobs
from commsim.libraries.nccl.shapes import Communicator, CpuArch, Protocol
from commsim.libraries.nccl.tuning.channels import MOST_THREADS, execution_channels
from commsim.libraries.nccl.tuning.chunks import STEPS
from commsim.libraries.nccl.tuning.tables import tables_of

__all__ = ["CONCURRENT", "PeerToPeer", "Round", "SendPlan"]

CONCURRENT = 8
"""Sends and receives that one channel runs at once."""
_PAGE = 4096


class SendPlan(msgspec.Struct, frozen=True):
    """How one send of `size` bytes runs: bytes of a chunk, chunks on its fullest channel."""

    size: int
    channels: int
    protocol: Protocol
    chunk: int
    steps: int
    threads: int = MOST_THREADS


class Round(msgspec.Struct, frozen=True):
    """Whom a rank sends to and receives from, and the first channel of both."""

    send: int
    recv: int
    base: int


class PeerToPeer:
    """One communicator's sends and receives under one environment."""

    def __init__(self, comm: Communicator, env: Knobs | None = None) -> None:
        self.comm, self.knobs = comm, env or Knobs()
        self.tables = tables_of(comm.version)
        most = self.knobs.max_p2p_nchannels or self.tables.max_channels
        used = max(
            min(execution_channels(comm, self.tables, self.knobs), most),
            self.knobs.min_p2p_nchannels,
        )
        self.channels = _power_of_two(used)
        self.per_peer = self._per_peer(used)
        self.chunk = self._chunk()
        self.group = self._group()

    def message(self, size: int, *, remote: bool) -> SendPlan:
        """Return how a send of `size` bytes runs, to another node if `remote`."""
        ll_exists = not remote or self.knobs.alloc_p2p_net_ll_buffers
        ll = ll_exists and size <= self._ll_channels(size) * self.knobs.p2p_ll_threshold
        step = self.knobs.ll_buffsize // STEPS if ll else self.chunk
        channels = self._used(size, step if self.tables.p2p_protocol_first else self.chunk)
        chunk = _network_chunk(size, step, ll=ll) if remote else step
        data = _fp8(chunk // 2 if ll else chunk)
        part = _part(size, channels)
        return SendPlan(
            size=size,
            channels=channels,
            protocol=Protocol.LL if ll else Protocol.Simple,
            chunk=data * 2 if ll else data,
            steps=max(1, -(-part // data)),
        )

    def schedule(self, rank: int) -> Iterator[Round]:
        """Yield `rank`'s rounds in NCCL's order; ranks are numbered node by node."""
        groups = self.comm.n_ranks // self.group
        group, local = divmod(rank, self.group)
        for place, delta in enumerate(_deltas(groups)):
            to, source = (group + delta) % groups, (group - delta) % groups
            for number, step in enumerate(self._steps()):
                yield Round(
                    send=to * self.group + (local + step) % self.group,
                    recv=source * self.group + (local - step) % self.group,
                    base=self._base(place, number),
                )

    def _steps(self) -> Iterator[int]:
        """Yield the distances within a group; until 2.27 in the same order as between groups."""
        return _deltas(self.group) if self.tables.p2p_group == "node" else iter(range(self.group))

    def used_channels(self, base: int, channels: int) -> tuple[int, ...]:
        """Return the channels of a message in the round that starts at channel `base`."""
        return tuple((base + part) % self.channels for part in range(channels))

    def _per_peer(self, used: int) -> int:
        """Return the channels to each peer: what the slowest peer needs, a power of two."""
        wanted = [self._local_channels()] if max(self.comm.local_ranks) > 1 else []
        wanted += [self._net_channels(used)] if self.comm.n_nodes > 1 else []
        per_peer = _power_of_two(min(wanted, default=used))
        if self.comm.n_nodes == 1 or not self._by_bandwidth():
            return min(per_peer, self.channels)
        batches = math.ceil(self.comm.n_ranks / CONCURRENT)
        while per_peer > 1 and per_peer * batches > self.channels:
            per_peer //= 2
        return per_peer

    def _by_bandwidth(self) -> bool:
        """Do the NICs decide about the channels to a peer, and not an older rule or the user?"""
        by_user = self.knobs.nchannels_per_net_peer is not None
        return self.tables.net_channels_per_peer == "bandwidth" and not by_user

    def _local_channels(self) -> int:
        return 2 * max(1, self.comm.peer_nvlinks)

    def _net_channels(self, used: int) -> int:
        asked = self.knobs.nchannels_per_net_peer
        if asked is not None and asked > 0:
            return asked
        nets = max(1, self.comm.local_nets)
        if self._by_bandwidth():
            total = int(nets * self.comm.net_bandwidth)
            return max(nets, math.ceil(total / self.knobs.p2p_per_channel_net_bw))
        channels = 2
        while channels > 1 and channels * self.comm.n_ranks > used * 4:
            channels //= 2
        return max(nets, channels)

    def _chunk(self) -> int:
        knobs = self.knobs
        if self.comm.n_nodes > 1:
            # Grace with Blackwell: host latency asks for more in flight
            wide = self.comm.cpu_arch == CpuArch.ARM and self.comm.min_compute_capability >= 100
            chunk = knobs.p2p_net_chunksize * (2 if wide else 1)
        else:
            nvlink = self.comm.peer_nvlinks > 0
            chunk = knobs.p2p_nvl_chunksize if nvlink else knobs.p2p_pci_chunksize
        return min(chunk, knobs.buffsize // STEPS)

    def _group(self) -> int:
        """Return the ranks of a group; nodes of different sizes split into equal groups."""
        if self.tables.p2p_group == "node":
            sizes = dict.fromkeys(self.comm.local_ranks)
            return self.comm.local_ranks[0] if len(sizes) == 1 else self.comm.n_ranks
        if self.comm.n_nodes == 1 and self.tables.p2p_group == "eight_between":
            return self.comm.n_ranks
        return math.gcd(self.knobs.p2p_schedule_group_size, *self.comm.local_ranks)

    def _base(self, place: int, step: int) -> int:
        """Return the first channel of a round: the round's number with its bits mirrored."""
        if self.comm.n_nodes == 1:
            number = place * self.group + step
        else:
            number = place * -(-self.group // CONCURRENT) + step // CONCURRENT
        bits = (self.channels - 1).bit_length()
        return int(f"{number % self.channels:0{bits}b}"[::-1], 2) if bits else 0

    def _least(self) -> int:
        """Return the channels of a message when every rank talks to all: one at least."""
        channels = self.per_peer
        while channels > 1 and channels * self.comm.n_ranks > self.channels:
            channels //= 2
        return channels

    def _used(self, size: int, step: int) -> int:
        """Return a message's channels: few for small ones, more while a part is too long."""
        if size == 0:
            return 1
        multi = self.comm.n_nodes > 1
        shortest, longest = (step // 2, step) if multi else (step // 8, step * 32)
        channels = min(self._least(), -(-size // shortest))
        part = max(shortest, -(-size // channels))
        while part > longest and channels <= self.per_peer // 2:
            channels *= 2
            part = -(-size // channels)
        return channels

    def _ll_channels(self, size: int) -> int:
        """Return the channels that the limit of LL counts."""
        return self.per_peer if self.tables.p2p_protocol_first else self._used(size, self.chunk)


def _network_chunk(size: int, step: int, *, ll: bool) -> int:
    if not ll and size < step:
        return step // 4
    return step // 2 if size < 8 * step else step


def _part(size: int, channels: int) -> int:
    """Return the bytes of the fullest channel: parts are cut at multiples of 4 KiB."""
    if channels == 1:
        return size
    share = math.ceil(size / channels)
    return math.ceil(share / _PAGE) * _PAGE


def _deltas(groups: int) -> Iterator[int]:
    """Yield the distances between groups: 0, 1, 3, 6, 10 … modulo a power of two."""
    power, delta = _power_of_two(groups), 0
    for step in range(power):
        if delta < groups:
            yield delta
        delta = (delta + step + 1) % power


def _fp8(value: int) -> int:
    """Round down to what NCCL's 8-bit chunk size can say: three bits after the leading one."""
    spare = max(0, value.bit_length() - 4)
    return value >> spare << spare


def _power_of_two(value: int) -> int:
    return 1 << (value - 1).bit_length()
