"""Sends and receives: channels, protocol, chunks, and the order of an all-to-all."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from commsim.libraries.nccl.communicator.record import recorded_communicator
from commsim.libraries.nccl.env import Knobs, knobs_of
from commsim.libraries.nccl.shapes import Communicator, CpuArch
from commsim.libraries.nccl.tuning.p2p import PeerToPeer

Make = Callable[[str], Communicator]
Rows = Callable[[str], list[dict[str, str]]]


def test_channels_and_chunks_are_those_of_every_record(
    nccl_records: dict[str, dict[str, Any]], recorded: Make
) -> None:
    for name, record in nccl_records.items():
        plan = PeerToPeer(recorded(name))
        assert plan.channels == record["p2pnChannels"], name
        assert plan.per_peer == record["p2pnChannelsPerPeer"], name
        assert plan.chunk == record["p2pChunkSize"], name
        assert plan.group == record["p2pSchedGroupSize"], name


def test_rank_0_meets_its_peers_in_the_recorded_order(
    nccl_records: dict[str, dict[str, Any]], recorded: Make
) -> None:
    for name, record in nccl_records.items():
        order = [[each.send, each.recv] for each in PeerToPeer(recorded(name)).schedule(0)]
        assert order == record["p2pSchedule_rank0"], name


def test_every_recorded_send_runs_alike(recorded: Make, rows: Rows) -> None:
    plans = {name: PeerToPeer(recorded(name)) for name in ("dgx_a100_1", "dgx_a100_2")}
    for row in rows("p2p.csv"):
        plan = plans[row["case"]]
        message = plan.message(int(row["bytes_per_peer"]), remote=row["scope"] == "remote")
        assert message.channels == int(row["nchannels_per_peer"]), row
        assert message.protocol.name == row["proto"], row
        assert message.chunk == int(row["chunk_bytes"]), row
        assert message.steps == int(row["nsteps_per_channel"]), row
        assert message.threads == int(row["kernel_threads"]), row


def test_every_recorded_send_starts_on_the_same_channels(recorded: Make, rows: Rows) -> None:
    plans = {name: PeerToPeer(recorded(name)) for name in ("dgx_a100_1", "dgx_a100_2")}
    for row in rows("p2p.csv"):
        plan = plans[row["case"]]
        peer, listed = row["first_channels"].removeprefix("peer").split(":")
        base = next(each.base for each in plan.schedule(0) if each.send == int(peer))
        used = plan.used_channels(base, int(row["nchannels_per_peer"]))
        assert used == tuple(map(int, listed.split())), row


VERSIONS = st.sampled_from(["2.18", "2.27", "2.28", "2.30"])


@given(nodes=st.integers(1, 9), local=st.integers(1, 12), version=VERSIONS)
def test_in_each_round_everybody_sends_and_receives_once(
    nodes: int, local: int, version: str
) -> None:
    plan = PeerToPeer(_blank(nodes, local, version))
    n = nodes * local
    rounds = [list(plan.schedule(rank)) for rank in range(n)]
    for number in range(n):
        sends = [rounds[rank][number].send for rank in range(n)]
        assert sorted(sends) == list(range(n))
        assert all(rounds[peer][number].recv == rank for rank, peer in enumerate(sends))


@given(nodes=st.integers(1, 9), local=st.integers(1, 12), version=VERSIONS)
def test_everybody_meets_everybody_once(nodes: int, local: int, version: str) -> None:
    plan = PeerToPeer(_blank(nodes, local, version))
    for rank in range(0, nodes * local, max(1, local - 1)):
        assert sorted(each.send for each in plan.schedule(rank)) == list(range(nodes * local))


def test_many_nodes_leave_one_channel_to_a_peer(recorded: Make) -> None:
    large = _scaled(recorded("dgx_h100_2"), 32)
    assert PeerToPeer(large).per_peer == 1
    assert PeerToPeer(_scaled(recorded("dgx_h100_2"), 4)).per_peer == 4


@pytest.mark.parametrize(
    ("environment", "field", "expected"),
    [
        ({"NCCL_MAX_P2P_NCHANNELS": "4"}, "channels", 4),
        ({"NCCL_MIN_P2P_NCHANNELS": "32"}, "channels", 32),
        ({"NCCL_NCHANNELS_PER_NET_PEER": "1"}, "per_peer", 1),
        ({"NCCL_P2P_PER_CHANNEL_NET_BW": "6"}, "per_peer", 4),
        ({"NCCL_P2P_SCHEDULE_GROUP_SIZE": "4"}, "group", 4),
        ({"NCCL_P2P_NET_CHUNKSIZE": "65536"}, "chunk", 65536),
        ({"NCCL_BUFFSIZE": "524288"}, "chunk", 65536),
        ({"NCCL_MAX_NCHANNELS": "2"}, "channels", 2),
    ],
)
def test_knobs(environment: dict[str, str], field: str, expected: int, recorded: Make) -> None:
    plan = PeerToPeer(recorded("dgx_a100_2"), knobs_of(environment))
    assert getattr(plan, field) == expected


@pytest.mark.parametrize(
    ("version", "local", "group"),
    [("2.27", 72, 72), ("2.28", 72, 8), ("2.30", 72, 8), ("2.27", 4, 4), ("2.30", 6, 2)],
)
def test_groups_by_release(version: str, local: int, group: int, recorded: Make) -> None:
    comm = recorded("dgx_a100_2")
    two = replace(
        comm, version=version, node_of=(0,) * local + (1,) * local, local_ranks=(local, local)
    )
    assert PeerToPeer(two).group == group


@pytest.mark.parametrize(("version", "group"), [("2.27", 72), ("2.28", 8), ("2.30", 72)])
def test_groups_of_one_domain_by_release(version: str, group: int, recorded: Make) -> None:
    comm = replace(recorded("dgx_a100_1"), version=version)
    assert PeerToPeer(replace(comm, node_of=(0,) * 72, local_ranks=(72,))).group == group


def test_older_releases_visit_a_node_in_another_order(recorded: Make) -> None:
    plan = PeerToPeer(replace(recorded("dgx_a100_2"), version="2.27"))
    assert [each.send for each in plan.schedule(0)][:8] == [0, 1, 3, 6, 2, 7, 5, 4]


@pytest.mark.parametrize(("nodes", "per_peer"), [(2, 2), (4, 2), (8, 1), (16, 1)])
def test_older_releases_give_two_channels_to_a_peer_until_there_are_many(
    nodes: int, per_peer: int, recorded: Make
) -> None:
    comm = replace(_scaled(recorded("dgx_h100_2"), nodes), version="2.27")
    # sixteen channels carry four operations each: 2 x 8 ranks x nodes up to 64
    assert PeerToPeer(comm).per_peer == per_peer


def test_ll_between_nodes_needs_buffers(recorded: Make) -> None:
    comm = recorded("dgx_a100_2")
    assert PeerToPeer(comm).message(64, remote=True).protocol.name == "Simple"
    with_buffers = PeerToPeer(comm, Knobs(alloc_p2p_net_ll_buffers=True))
    assert with_buffers.message(64, remote=True).protocol.name == "LL"
    assert PeerToPeer(comm, Knobs(p2p_ll_threshold=0)).message(64, remote=False).protocol.name == (
        "Simple"
    )


def _scaled(comm: Communicator, nodes: int) -> Communicator:
    local = comm.local_ranks[0]
    node_of = tuple(rank // local for rank in range(nodes * local))
    return replace(comm, node_of=node_of, local_ranks=(local,) * nodes)


def _blank(nodes: int, local: int, version: str) -> Communicator:
    graph = {"pattern": "RING", "bwIntra": 12, "bwInter": 12, "channels": [{"intra": [0]}]}
    kinds = {"typeIntra": "PIX", "typeInter": "PIX"}
    return recorded_communicator(
        {
            "nRanks": nodes * local, "nNodes": nodes, "minCompCap": 80, "nccl": version,
            "cpuArch": 1, "cpuVendor": 1, "nvswitch": 0, "maxBw": 12, "totalBw": 12,
            "nChannels": 2, "graphs": {"ring": {**graph, **kinds}},
        }
    )  # fmt: skip


def test_one_channel_starts_every_round_on_itself(recorded: Make) -> None:
    plan = PeerToPeer(recorded("dgx_a100_1"), replace(Knobs(), max_p2p_nchannels=1))
    assert plan.channels == 1
    assert {each.base for each in plan.schedule(0)} == {0}


@pytest.mark.parametrize(("nodes", "per_peer"), [(4, 4), (5, 2), (8, 2), (9, 1)])
def test_eight_peers_at_once_share_the_channels(nodes: int, per_peer: int, recorded: Make) -> None:
    # a NIC of 48 GB/s takes four of sixteen channels at 14 GB/s; a batch is of eight ranks
    plan = PeerToPeer(_scaled(recorded("dgx_h100_2"), nodes))
    assert (plan.channels, plan.per_peer) == (16, per_peer)


def test_only_nics_of_newer_releases_share_the_channels(recorded: Make) -> None:
    # 12 NVLinks take 24 channels, so 32, to each of 63 peers of a node
    alone = replace(recorded("dgx_a100_1"), node_of=(0,) * 64, local_ranks=(64,))
    assert PeerToPeer(alone).per_peer == 32
    # before 2.29 a channel for each NIC, however many peers there are
    older = replace(_scaled(recorded("dgx_h100_2"), 9), version="2.27", local_nets=8)
    assert PeerToPeer(older).per_peer == 8


def test_nvlink_counts_where_a_node_has_two_ranks(recorded: Make) -> None:
    comm = replace(recorded("dgx_h100_2"), peer_nvlinks=0, net_bandwidth=100.0)
    one = replace(comm, node_of=(0, 1, 2, 3), local_ranks=(1,) * 4)
    two = replace(comm, node_of=(0, 0, 1, 1), local_ranks=(2,) * 2)
    assert PeerToPeer(one).per_peer == 8  # 100 GB/s over 14
    assert PeerToPeer(two).per_peer == 2  # without NVLink


def test_eight_rounds_of_a_node_start_on_one_channel(recorded: Make) -> None:
    comm = replace(
        recorded("dgx_h100_2"),
        version="2.27",
        node_of=(0,) * 16 + (1,) * 16,
        local_ranks=(16,) * 2,
    )
    plan = PeerToPeer(comm, knobs_of({"NCCL_MAX_P2P_NCHANNELS": "4"}))
    bases = [each.base for each in plan.schedule(0)]
    # two batches to each node: rounds 0, 1, 2 and 3 of four channels, mirrored in two bits
    assert bases == [0] * 8 + [2] * 8 + [1] * 8 + [3] * 8


K, M = 1 << 10, 1 << 20


@pytest.mark.parametrize(
    ("case", "ranks", "least", "most", "used"),
    [
        # one node: 64 KiB on a channel at least, 16 MiB at most, and from 4 to 32 channels
        ("dgx_a100_1", 8, 4, 32, {
            0: 1, 1: 1, 64 * K: 1, 64 * K + 1: 2, 128 * K: 2, 128 * K + 1: 3, 192 * K + 1: 4,
            64 * M: 4, 64 * M + 1: 8, 128 * M: 8, 128 * M + 1: 16, 256 * M: 16, 256 * M + 1: 32,
            1 << 40: 32,
        }),
        # between nodes a half to a whole chunk of 128 KiB
        ("dgx_h100_2", 8, 1, 4, {
            0: 1, 1: 1, 128 * K: 1, 128 * K + 1: 2, 256 * K: 2, 256 * K + 1: 4, 1 << 40: 4,
        }),
        ("dgx_h100_2", 1, 4, 4, {
            64 * K: 1, 64 * K + 1: 2, 128 * K: 2, 128 * K + 1: 3, 192 * K + 1: 4, 1 << 40: 4,
        }),
    ],
)  # fmt: skip
def test_channels_of_a_message(
    case: str, ranks: int, least: int, most: int, used: dict[int, int], recorded: Make
) -> None:
    comm = recorded(case)
    nodes = comm.n_nodes
    local = (ranks,) * nodes
    comm = replace(
        comm, node_of=tuple(node for node in range(nodes) for _ in range(ranks)), local_ranks=local
    )
    plan = PeerToPeer(comm)
    assert (plan._least(), plan.per_peer) == (least, most)
    for size, channels in used.items():
        made = plan.message(size, remote=nodes > 1)
        assert made.channels == channels, size
        assert made.size == size


@pytest.mark.parametrize(
    ("size", "chunk", "steps"),
    [
        # a quarter of a chunk of 128 KiB, a half from a whole one on, a whole from eight on
        (1, 32 * K, 1),
        (32 * K + 1, 32 * K, 2),
        (128 * K - 1, 32 * K, 4),
        (128 * K, 64 * K, 2),
        (M - 1, 64 * K, 4),  # on four channels
        (M, 128 * K, 2),
        (M + 1, 128 * K, 3),  # parts end at whole pages
        (8 * M, 128 * K, 16),
    ],
)
def test_chunks_between_nodes(size: int, chunk: int, steps: int, recorded: Make) -> None:
    message = PeerToPeer(recorded("dgx_h100_2")).message(size, remote=True)
    assert (message.protocol.name, message.chunk, message.steps) == ("Simple", chunk, steps)


@pytest.mark.parametrize(
    ("more", "env", "chunk"),
    [
        ({}, {}, 128 * K),
        ({"min_compute_capability": 100}, {}, 128 * K),
        ({"cpu_arch": CpuArch.ARM}, {}, 128 * K),
        ({"cpu_arch": CpuArch.ARM, "min_compute_capability": 99}, {}, 128 * K),
        ({"cpu_arch": CpuArch.ARM, "min_compute_capability": 100}, {}, 256 * K),
        ({}, {"NCCL_P2P_NET_CHUNKSIZE": 64 * K}, 64 * K),
        ({}, {"NCCL_BUFFSIZE": 512 * K}, 64 * K),
    ],
)
def test_the_largest_chunk_between_nodes(
    more: dict[str, Any], env: dict[str, int], chunk: int, recorded: Make
) -> None:
    comm = replace(recorded("dgx_h100_2"), **more)
    assert PeerToPeer(comm, knobs_of(env)).chunk == chunk


@pytest.mark.parametrize(
    ("nvlinks", "chunk", "per_peer"),
    [(0, 128 * K, 2), (1, 512 * K, 2), (2, 512 * K, 4), (3, 512 * K, 8), (12, 512 * K, 32)],
)
def test_a_node_with_and_without_nvlink(
    nvlinks: int, chunk: int, per_peer: int, recorded: Make
) -> None:
    """Two channels for each NVLink to a peer, and one for none; a power of two of them."""
    plan = PeerToPeer(replace(recorded("dgx_a100_1"), peer_nvlinks=nvlinks))
    assert (plan.chunk, plan.per_peer) == (chunk, per_peer)


@pytest.mark.parametrize(
    ("ranks", "used", "nets", "asked", "channels"),
    [
        (16, 8, 1, None, 2),  # two for each of 16 ranks are four times the 8 that are used
        (17, 8, 1, None, 1),
        (17, 9, 1, None, 2),
        (64, 8, 4, None, 4),  # one for each NIC at least
        (64, 8, 0, None, 1),
        (64, 8, 4, 3, 3),
        (16, 8, 1, 0, 2),
    ],
)
def test_older_releases_spread_few_channels_over_the_peers(
    ranks: int, used: int, nets: int, asked: int | None, channels: int
) -> None:
    plan: Any = SimpleNamespace(
        comm=SimpleNamespace(n_ranks=ranks, local_nets=nets),
        knobs=SimpleNamespace(nchannels_per_net_peer=asked),
        _by_bandwidth=lambda: False,
    )
    assert PeerToPeer._net_channels(plan, used) == channels
