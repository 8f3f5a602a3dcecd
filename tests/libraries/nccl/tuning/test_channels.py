"""Channels and threads at each threshold of topoGetAlgoInfo and ncclTopoTuneModel, by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from commsim.libraries.nccl.env import Knobs
from commsim.libraries.nccl.shapes import Algorithm, Communicator, Protocol
from commsim.libraries.nccl.tuning.channels import Widths, execution_channels
from commsim.libraries.nccl.tuning.nvls import nvls_setup
from commsim.libraries.nccl.tuning.tables import tables_of

Make = Callable[[str], Communicator]
RING, TREE, DIRECT = Algorithm.Ring, Algorithm.Tree, Algorithm.CollNetDirect
LL, LL128, SIMPLE = Protocol.LL, Protocol.LL128, Protocol.Simple


def widths(comm: Communicator, knobs: Knobs | None = None, *, nvls_channels: int = 24) -> Widths:
    return Widths(comm, tables_of(comm.version), knobs or Knobs(), nvls_channels=nvls_channels)


@pytest.mark.parametrize(
    ("knobs", "channels"),
    [
        (Knobs(), 16),
        (Knobs(max_nchannels=4), 4),
        (Knobs(max_nchannels=1), 1),
        (Knobs(max_nchannels=0), 1),  # one at least
        (Knobs(max_nchannels=-1), 16),
        (Knobs(max_ctas=0), 1),
        (Knobs(max_ctas=3, max_nchannels=5), 3),
        (Knobs(min_nchannels=20), 20),
        (Knobs(min_nchannels=8), 16),
        (Knobs(min_ctas=99), 64),  # MAXCHANNELS, 64 in the newest releases
        (Knobs(max_nchannels=2, min_nchannels=4), 4),
    ],
)
def test_channels_within_what_is_asked(knobs: Knobs, channels: int, recorded: Make) -> None:
    comm = recorded("dgx_h100_2")
    assert comm.channels == 16
    assert execution_channels(comm, tables_of(comm.version), knobs) == channels


@pytest.mark.parametrize(
    ("asked", "simple", "ll", "ll128"),
    [
        (None, 512, 512, 640),
        (0, 512, 512, 640),
        (-2, 512, 512, 640),
        (1, 512, 512, 640),  # no multiple of 32: the most
        (33, 512, 512, 640),
        (32, 64, 64, 160),
        (96, 96, 96, 160),
        (192, 192, 192, 192),
        (1024, 512, 512, 640),
    ],
)
def test_threads_that_are_asked_for(
    asked: int | None, simple: int, ll: int, ll128: int, recorded: Make
) -> None:
    made = widths(recorded("dgx_h100_2"), Knobs(nthreads=asked, ll128_nthreads=asked))
    for algorithm in (RING, TREE):
        found = [made.most_threads(algorithm, protocol) for protocol in (SIMPLE, LL, LL128)]
        assert found == [simple, ll, ll128]
    assert made.most_threads(Algorithm.NVLS, SIMPLE) == 640
    assert made.most_threads(Algorithm.PAT, SIMPLE) == 0


@pytest.mark.parametrize(("rate", "threads"), [(12.0, 256), (12.1, 512)])
def test_rings_as_slow_as_pcie_have_half_of_the_threads(
    rate: float, threads: int, recorded: Make
) -> None:
    comm = recorded("dgx_h100_2")
    ring = comm.graphs["ring"]
    slow = replace(ring, bw_intra=rate / ring.n_channels)
    made = widths(replace(comm, graphs={**comm.graphs, "ring": slow}))
    assert made.most_threads(RING, SIMPLE) == threads
    assert made.most_threads(TREE, SIMPLE) == made.most_threads(RING, LL) == 512


def test_bytes_of_a_thread(recorded: Make) -> None:
    made = widths(recorded("dgx_h100_2"))
    assert made.threshold(RING, LL) == 8 * 16
    assert made.threshold(TREE, LL) == made.threshold(TREE, LL128) == 8
    assert made.threshold(RING, LL128) == 8
    assert made.threshold(RING, SIMPLE) == made.threshold(TREE, SIMPLE) == 64
    assert made.threshold(Algorithm.NVLS, SIMPLE) == 64
    assert made.threshold(DIRECT, SIMPLE) == made.threshold(Algorithm.CollNetChain, SIMPLE) == 512


@pytest.mark.parametrize(
    ("size", "channels", "threads"),
    [
        # 512 threads of 128 bytes on 16 ranks: 64 KiB fill a channel
        (16 * 65536, 16, 512),
        (99 * 65536, 16, 512),
        (3 * 65536, 3, 512),
        (3 * 65536 - 1, 2, 512),
        (65536, 1, 512),
        (65535, 1, 256),
        (32767, 1, 128),
        (16383, 1, 96),  # 64, and three warps at least
        (1, 1, 96),
    ],
)
def test_rings_of_ll_lose_channels_then_threads(
    size: int, channels: int, threads: int, recorded: Make
) -> None:
    found = widths(recorded("dgx_h100_2")).width(RING, LL, size)
    assert (found.channels, found.threads) == (channels, threads)


def test_warps_beside_those_that_copy(recorded: Make) -> None:
    made = widths(recorded("dgx_h100_2"))
    assert made.width(RING, SIMPLE, 1 << 30).threads == 512 + 32
    assert made.width(RING, SIMPLE, 1).threads == 96
    assert made.width(RING, LL128, 1 << 30).threads == 640
    assert made.width(TREE, LL, 1).threads == 640


def test_thresholds_of_the_environment(recorded: Make) -> None:
    """Trees, then rings, each LL, LL128, Simple; below 0 is not set, 0 leaves all channels."""
    set_ = Knobs(thread_thresholds=(1, 2, -1, 0, -1, 6))
    made = widths(recorded("dgx_h100_2"), set_)
    found = [made.threshold(each, way) for each in (TREE, RING) for way in (LL, LL128, SIMPLE)]
    assert found == [1, 2, 64, 0, 8, 6]
    assert made.threshold(DIRECT, SIMPLE) == 512
    assert made.width(RING, LL, 1).channels == 16
    nine = widths(recorded("dgx_h100_2"), Knobs(thread_thresholds=(1, 2, 3, 4, 5, 6, 7, 7, 7)))
    found = [nine.threshold(each, way) for each in (TREE, RING) for way in (LL, LL128, SIMPLE)]
    assert found == [1, 2, 3, 4, 5, 6]
    assert [nine.threshold(DIRECT, way) for way in (LL, LL128, SIMPLE)] == [8, 8, 512]


@pytest.mark.parametrize(
    ("version", "nodes", "algorithm", "channels"),
    [
        # since 2.28 NVLS between nodes has no more than the communicator
        ("2.30", 2, Algorithm.NVLS, 16),
        ("2.30", 1, Algorithm.NVLS, 24),
        ("2.30", 2, Algorithm.NVLSTree, 24),
        ("2.27", 2, Algorithm.NVLS, 24),
    ],
)
def test_channels_of_nvls(
    version: str, nodes: int, algorithm: Algorithm, channels: int, recorded: Make
) -> None:
    comm = replace(
        recorded("dgx_h100_2"),
        version=version,
        node_of=tuple(rank // 8 for rank in range(8 * nodes)),
        local_ranks=(8,) * nodes,
    )
    assert widths(comm).width(algorithm, SIMPLE, 8).channels == channels
    assert widths(comm, nvls_channels=8).width(algorithm, SIMPLE, 8).channels == 8


UNIT = 640 * 8 * 512
"""Bytes that fill a channel of CollNetDirect: threads, heads, bytes of a thread."""


@pytest.mark.parametrize(
    ("size", "channels"),
    [
        (32 * UNIT, 32),
        (32 * UNIT - 1, 31),
        (25 * UNIT, 25),
        (25 * UNIT - 1, 24),
        # half way to 16 the threshold halves, to 8 again, and so on
        (24 * UNIT - 1, 23),
        (20 * UNIT // 2, 20),
        (16 * UNIT // 2, 16),
        (16 * UNIT // 2 - 1, 15),
        (12 * UNIT // 2, 12),
        (12 * UNIT // 2 - 1, 11),
        (8 * UNIT // 4, 8),
        (6 * UNIT // 4, 6),
        (6 * UNIT // 4 - 1, 5),
        (4 * UNIT // 8, 4),
        (3 * UNIT // 8 - 1, 2),
        (2 * UNIT // 16, 2),
        (2 * UNIT // 16 - 1, 1),
        (1, 1),
    ],
)
def test_collnet_takes_channels_away_one_by_one(size: int, channels: int, recorded: Make) -> None:
    comm = recorded("dgx_h100_2")
    graphs = {**comm.graphs, "collnet_direct": comm.graphs["nvls"]}
    made = widths(replace(comm, graphs=graphs), Knobs(min_nchannels=32))
    assert made.width(DIRECT, SIMPLE, size).channels == channels


def test_without_a_graph_collnet_has_one_head(recorded: Make) -> None:
    made = widths(recorded("dgx_a100_2"), Knobs(min_nchannels=32))
    assert made.width(DIRECT, SIMPLE, 32 * UNIT // 8).channels == 32
    assert made.width(DIRECT, SIMPLE, 32 * UNIT // 8 - 1).channels == 31


@pytest.mark.parametrize(
    ("knobs", "channels"),
    [
        (Knobs(), 16),
        (Knobs(nvls_nchannels=0), 16),
        (Knobs(nvls_nchannels=1), 1),
        (Knobs(max_ctas=0), 16),
        (Knobs(max_ctas=1), 1),
        (Knobs(min_ctas=20), 20),
        (Knobs(nvls_nchannels=8, max_ctas=4), 4),
    ],
)
def test_channels_of_nvls_as_asked(knobs: Knobs, channels: int, recorded: Make) -> None:
    comm = recorded("dgx_h100_2")
    assert nvls_setup(comm, tables_of("2.27"), knobs).channels == channels
