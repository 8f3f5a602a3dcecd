"""Sends and receives: channels, protocol, chunks, and the order of an all-to-all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commsim.libraries.nccl.env import Knobs, knobs_of
from commsim.libraries.nccl.p2p import PeerToPeer
from commsim.libraries.nccl.record import recorded_communicator
from commsim.libraries.nccl.shapes import Communicator

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


@given(nodes=st.integers(1, 9), local=st.integers(1, 12))
def test_in_each_round_everybody_sends_and_receives_once(nodes: int, local: int) -> None:
    plan = PeerToPeer(_blank(nodes, local))
    n = nodes * local
    rounds = [list(plan.schedule(rank)) for rank in range(n)]
    for number in range(n):
        sends = [rounds[rank][number].send for rank in range(n)]
        assert sorted(sends) == list(range(n))
        assert all(rounds[peer][number].recv == rank for rank, peer in enumerate(sends))


@given(nodes=st.integers(1, 9), local=st.integers(1, 12))
def test_everybody_meets_everybody_once(nodes: int, local: int) -> None:
    plan = PeerToPeer(_blank(nodes, local))
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
        ({"NCCL_P2P_NET_CHUNKSIZE": "65536"}, "chunk", 65536),
        ({"NCCL_BUFFSIZE": "524288"}, "chunk", 65536),
        ({"NCCL_MAX_NCHANNELS": "2"}, "channels", 2),
    ],
)
def test_knobs(environment: dict[str, str], field: str, expected: int, recorded: Make) -> None:
    plan = PeerToPeer(recorded("dgx_a100_2"), knobs_of(environment))
    assert getattr(plan, field) == expected


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


def _blank(nodes: int, local: int) -> Communicator:
    graph = {"pattern": "RING", "bwIntra": 12, "bwInter": 12, "channels": [{"intra": [0]}]}
    kinds = {"typeIntra": "PIX", "typeInter": "PIX"}
    return recorded_communicator(
        {
            "nRanks": nodes * local, "nNodes": nodes, "minCompCap": 80, "nccl": "2.30",
            "cpuArch": 1, "cpuVendor": 1, "nvswitch": 0, "maxBw": 12, "totalBw": 12,
            "nChannels": 2, "graphs": {"ring": {**graph, **kinds}},
        }
    )  # fmt: skip
