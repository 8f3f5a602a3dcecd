"""
Chunk sizes exactly at each threshold of calcCollChunking (src/enqueue.cc) and one byte below it.

Buffers are NCCL's defaults: a step of Simple is 4 MiB / 8, of LL128 4,915,200 / 8 bytes, of which
15 of 16 are data.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from commsim.libraries.nccl.env import Knobs
from commsim.libraries.nccl.shapes import Algorithm, Communicator, Protocol
from commsim.libraries.nccl.tuning.chunks import Chunks
from commsim.libraries.nccl.tuning.nvls import NvlsSetup
from commsim.libraries.nccl.tuning.tables import tables_of

Make = Callable[[str], Communicator]
K = 1 << 10
M = 1 << 20
WIDE = NvlsSetup(channels=16, chunk=512 * K, tree_chunk=512 * K)
USUAL = NvlsSetup(channels=16, chunk=128 * K, tree_chunk=128 * K)


def chunks(
    comm: Communicator, nvls: NvlsSetup = USUAL, knobs: Knobs | None = None, *, slow: bool = False
) -> Chunks:
    tables = tables_of(comm.version)
    return Chunks(comm, tables, knobs or Knobs(), nvls=nvls, slow_nvls=slow)


def h100(recorded: Make, nodes: int = 2, version: str = "2.27") -> Communicator:
    """Eight GPUs a node, whose NVLS and CollNet have eight heads, or a chain of the eight."""
    comm = recorded("dgx_h100_2")
    graphs = {
        **comm.graphs,
        "collnet_chain": comm.graphs["tree"],
        "collnet_direct": comm.graphs["nvls"],
    }
    assert graphs["nvls"].n_heads == 8
    return replace(
        comm,
        version=version,
        graphs=graphs,
        node_of=tuple(rank // 8 for rank in range(8 * nodes)),
        local_ranks=(8,) * nodes,
    )


@pytest.mark.parametrize(
    ("least", "chunk", "below"),
    [
        # hops: 7 in the node and log2(4) between nodes; 8, 4 and 1 chunks for each
        (72 * 512 * K, 512 * K, 256 * K),
        (72 * 256 * K, 256 * K, 128 * K),
        (36 * 128 * K, 128 * K, 64 * K),
        (9 * 64 * K, 64 * K, 32 * K),
        (1, 32 * K, 32 * K),
    ],
)
def test_trees_of_simple_until_2_21(least: int, chunk: int, below: int, recorded: Make) -> None:
    made = chunks(h100(recorded, nodes=4, version="2.20"))
    assert made.chunk("all_reduce", Algorithm.Tree, Protocol.Simple, least) == chunk
    assert made.chunk("all_reduce", Algorithm.Tree, Protocol.Simple, least - 1) == below


@pytest.mark.parametrize(
    ("least", "chunk", "below"),
    [
        # hops: 1 + log2(4) + 0.8 = 3.8; 64 for each over 8 ranks are 30.4 chunks, 16 are 7.6
        (31 * 576_000, 576_000, 288_000),
        (31 * 288_000, 288_000, 75 * 1920),
        (31 * 144_000, 75 * 1920, 37 * 1920),
        (8 * 72_000, 37 * 1920, 18 * 1920),
        (8 * 36_000, 18 * 1920, 9 * 1920),
    ],
)
def test_trees_of_ll128(least: int, chunk: int, below: int, recorded: Make) -> None:
    made = chunks(h100(recorded, nodes=4))
    assert made.chunk("all_reduce", Algorithm.Tree, Protocol.LL128, least) == chunk
    assert made.chunk("all_reduce", Algorithm.Tree, Protocol.LL128, least - 1) == below


@pytest.mark.parametrize(
    ("least", "chunk", "below"),
    [
        # 64, 8 and 2 rounds of a chunk for each of 8 heads
        (64 * 8 * 128 * K, 128 * K, 64 * K),
        (8 * 8 * 64 * K, 64 * K, 32 * K),
        (2 * 8 * 32 * K, 32 * K, 16 * K),
        (1, 16 * K, 16 * K),
    ],
)
def test_nvls(least: int, chunk: int, below: int, recorded: Make) -> None:
    made = chunks(h100(recorded))
    assert made.chunk("all_reduce", Algorithm.NVLS, Protocol.Simple, least) == chunk
    assert made.chunk("all_reduce", Algorithm.NVLS, Protocol.Simple, least - 1) == below


def test_slow_nvls_never_has_more_than_32_kib(recorded: Make) -> None:
    made = chunks(h100(recorded), slow=True)
    assert made.chunk("all_reduce", Algorithm.NVLS, Protocol.Simple, 1 << 40) == 32 * K


@pytest.mark.parametrize(
    ("least", "chunk", "below"),
    [
        # 32, 16, 4 and 1 rounds of a chunk for each of 8 heads
        (32 * 8 * 512 * K, 512 * K, 256 * K),
        (16 * 8 * 256 * K, 256 * K, 128 * K),
        (4 * 8 * 128 * K, 128 * K, 64 * K),
        (8 * 64 * K, 64 * K, 32 * K),
        (1, 32 * K, 32 * K),
    ],
)
def test_nvls_trees(least: int, chunk: int, below: int, recorded: Make) -> None:
    made = chunks(h100(recorded), WIDE)
    assert made.chunk("all_reduce", Algorithm.NVLSTree, Protocol.Simple, least) == chunk
    assert made.chunk("all_reduce", Algorithm.NVLSTree, Protocol.Simple, least - 1) == below


@pytest.mark.parametrize(
    ("version", "nodes", "asked", "chunk"),
    [
        ("2.21", 2, None, 512 * K),  # a step of the buffer
        ("2.21", 4, None, 128 * K),  # that of trees from four nodes on,
        ("2.21", 2, 128 * K, 128 * K),  # or where the user sets it
        ("2.22", 2, None, 128 * K),
    ],
)
def test_what_limits_nvls_trees(
    version: str, nodes: int, asked: int | None, chunk: int, recorded: Make
) -> None:
    comm = h100(recorded, nodes, version)
    made = chunks(comm, knobs=Knobs(nvlstree_max_chunksize=asked))
    assert made.chunk("all_reduce", Algorithm.NVLSTree, Protocol.Simple, 1 << 40) == chunk


@pytest.mark.parametrize(("op", "chunks_each"), [("all_gather", 32), ("reduce_scatter", 16)])
def test_pat(op: str, chunks_each: int, recorded: Make) -> None:
    made = chunks(h100(recorded))
    for chunk in (512 * K, 256 * K, 128 * K):
        enough = chunks_each * chunk
        assert made.chunk(op, Algorithm.PAT, Protocol.Simple, enough) == chunk
        assert made.chunk(op, Algorithm.PAT, Protocol.Simple, enough - 1) == chunk // 2
    assert made.chunk(op, Algorithm.PAT, Protocol.Simple, 1) == 64 * K


@pytest.mark.parametrize(
    ("least", "chunk", "below"),
    [
        # two hops, to the head and to the NIC; 64, 8 and 8 chunks for each and each of 8 heads
        (128 * 8 * 512 * K, 512 * K, 256 * K),
        (128 * 8 * 256 * K, 256 * K, 128 * K),
        (16 * 8 * 128 * K, 128 * K, 64 * K),
        (16 * 8 * 64 * K, 64 * K, 32 * K),
        (8, 32 * K, 32 * K),
    ],
)
def test_collnet_direct(least: int, chunk: int, below: int, recorded: Make) -> None:
    made = chunks(h100(recorded))
    assert made.chunk("all_reduce", Algorithm.CollNetDirect, Protocol.Simple, least) == chunk
    assert made.chunk("all_reduce", Algorithm.CollNetDirect, Protocol.Simple, least - 1) == below


@pytest.mark.parametrize(
    ("least", "chunk", "below"),
    [
        # a chain of eight ranks; 64, 8 and 1 chunks for each, of 256 KiB at most
        (1 << 40, 256 * K, 256 * K),
        (512 * 256 * K, 256 * K, 128 * K),
        (64 * 128 * K, 128 * K, 64 * K),
        (8 * 64 * K, 64 * K, 32 * K),
        (1, 32 * K, 32 * K),
    ],
)
def test_collnet_chain(least: int, chunk: int, below: int, recorded: Make) -> None:
    made = chunks(h100(recorded))
    assert made.chunk("all_reduce", Algorithm.CollNetChain, Protocol.Simple, least) == chunk
    assert made.chunk("all_reduce", Algorithm.CollNetChain, Protocol.Simple, least - 1) == below


def test_without_a_graph_of_heads_there_is_one(recorded: Make) -> None:
    made = chunks(recorded("dgx_a100_2"))
    size = 64 * 128 * K
    assert made.chunk("all_reduce", Algorithm.NVLS, Protocol.Simple, size) == 128 * K
    assert made.chunk("all_reduce", Algorithm.NVLS, Protocol.Simple, size - 1) == 64 * K
    direct = 128 * 512 * K
    assert made.chunk("all_reduce", Algorithm.CollNetDirect, Protocol.Simple, direct) == 512 * K


@pytest.mark.parametrize(
    ("op", "chunk", "slice_"),
    [
        ("all_reduce", 2 * M, M),
        ("all_gather", 2 * M, M),
        ("reduce_scatter", 2 * M, M),
        ("broadcast", 512 * K, 512 * K),
        ("reduce", 512 * K, 512 * K),
    ],
)
def test_rings_of_simple_send_four_steps_in_two_slices(
    op: str, chunk: int, slice_: int, recorded: Make
) -> None:
    made = chunks(recorded("dgx_a100_2"))
    assert made.chunk(op, Algorithm.Ring, Protocol.Simple, 1 << 40) == chunk
    assert made.slice(op, Algorithm.Ring, Protocol.Simple, chunk) == slice_
    assert made.slice(op, Algorithm.Ring, Protocol.LL, chunk) == chunk
    assert made.slice(op, Algorithm.Tree, Protocol.Simple, chunk) == chunk


@pytest.mark.parametrize(
    ("knobs", "protocol", "chunk"),
    [
        # a step is an eighth; the chunk a multiple of 512, 1920 and 16 bytes
        (Knobs(buffsize=8 * 1000), Protocol.Simple, 4000 // 512 * 512),
        (Knobs(ll_buffsize=8 * 1000), Protocol.LL, 500 // 16 * 16),
        (Knobs(ll128_buffsize=8 * 128 * 33), Protocol.LL128, 2 * 1920),
    ],
)
def test_grains(knobs: Knobs, protocol: Protocol, chunk: int, recorded: Make) -> None:
    made = chunks(recorded("dgx_a100_2"), knobs=knobs)
    assert made.chunk("all_reduce", Algorithm.Ring, protocol, 1 << 40) == chunk
