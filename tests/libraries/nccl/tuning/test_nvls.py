"""Channels and chunks of NVLS: by generation, nodes, NICs and environment."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from commsim.cluster import Cluster
from commsim.libraries.nccl.communicator.communicator import communicator_of
from commsim.libraries.nccl.env import Knobs, knobs_of
from commsim.libraries.nccl.shapes import Algorithm, Communicator, PathType
from commsim.libraries.nccl.tuning.choose import Tuner, choose
from commsim.libraries.nccl.tuning.nvls import NvlsSetup, nvls_setup
from commsim.libraries.nccl.tuning.p2p import PeerToPeer
from commsim.libraries.nccl.tuning.tables import tables_of

Make = Callable[[str], Communicator]
KIB = 1 << 10


def blackwell(
    comm: Communicator, *, nodes: int, ranks: int, nic: float, path: PathType = PathType.PXB
) -> Communicator:
    nvls = replace(comm.graphs["nvls"], type_inter=path)
    return replace(
        comm,
        min_compute_capability=100,
        max_compute_capability=100,
        node_of=tuple(rank // ranks for rank in range(nodes * ranks)),
        local_ranks=(ranks,) * nodes,
        net_bandwidth=nic,
        graphs={**comm.graphs, "nvls": nvls},
    )


@pytest.mark.parametrize(
    ("nodes", "ranks", "nic", "path", "expected"),
    [
        (1, 8, 0.0, PathType.PIX, NvlsSetup(24, 128 * KIB, 128 * KIB)),
        (2, 4, 50.0, PathType.PXB, NvlsSetup(32, 256 * KIB, 256 * KIB)),
        (2, 8, 50.0, PathType.PXB, NvlsSetup(32, 128 * KIB, 64 * KIB)),
        (2, 8, 50.0, PathType.PXN, NvlsSetup(32, 128 * KIB, 128 * KIB)),
        (2, 8, 95.0, PathType.PXB, NvlsSetup(32, 128 * KIB, 64 * KIB)),
        (2, 8, 96.0, PathType.PXB, NvlsSetup(32, 128 * KIB, 128 * KIB)),
        (2, 72, 50.0, PathType.PXN, NvlsSetup(32, 128 * KIB, 64 * KIB)),
        (2, 8, 25.0, PathType.PXB, NvlsSetup(32, 128 * KIB, 128 * KIB)),
        (8, 8, 25.0, PathType.PXB, NvlsSetup(32, 128 * KIB, 64 * KIB)),
        (4, 8, 50.0, PathType.PXB, NvlsSetup(24, 128 * KIB, 64 * KIB)),
        (4, 8, 50.0, PathType.PXN, NvlsSetup(24, 128 * KIB, 128 * KIB)),
        (4, 8, 100.0, PathType.PXB, NvlsSetup(24, 256 * KIB, 256 * KIB)),
        (4, 18, 100.0, PathType.PXB, NvlsSetup(32, 128 * KIB, 128 * KIB)),
        (4, 36, 100.0, PathType.PXB, NvlsSetup(32, 128 * KIB, 64 * KIB)),
    ],
)
def test_between_nodes_of_blackwell_gpus_the_nics_decide(
    nodes: int, ranks: int, nic: float, path: PathType, expected: NvlsSetup, recorded: Make
) -> None:
    comm = blackwell(recorded("dgx_h100_2"), nodes=nodes, ranks=ranks, nic=nic, path=path)
    assert nvls_setup(comm, tables_of("2.30"), Knobs()) == expected


def test_hopper_has_sixteen_channels(recorded: Make) -> None:
    for name in ("dgx_h100_1", "dgx_h100_2"):
        assert nvls_setup(recorded(name), tables_of("2.30"), Knobs()) == NvlsSetup(
            16, 128 * KIB, 128 * KIB
        )


def test_from_four_nodes_on_trees_have_small_chunks(recorded: Make) -> None:
    comm = recorded("dgx_h100_2")
    four = replace(comm, node_of=tuple(r // 8 for r in range(32)), local_ranks=(8,) * 4)
    assert nvls_setup(four, tables_of("2.30"), Knobs()).tree_chunk == 64 * KIB
    assert choose(four, "all_reduce", 1 << 30, env=Knobs(algo="NVLSTree")).chunk == 64 * KIB


@pytest.mark.parametrize(
    ("knobs", "expected"),
    [
        (Knobs(nvls_nchannels=8), NvlsSetup(8, 128 * KIB, 64 * KIB)),
        (Knobs(max_ctas=4), NvlsSetup(4, 128 * KIB, 64 * KIB)),
        (Knobs(min_ctas=40), NvlsSetup(40, 128 * KIB, 64 * KIB)),
        (Knobs(nvls_chunksize=32 * KIB), NvlsSetup(24, 32 * KIB, 64 * KIB)),
        (Knobs(nvlstree_max_chunksize=16 * KIB), NvlsSetup(24, 128 * KIB, 16 * KIB)),
    ],
)
def test_the_environment_comes_first(knobs: Knobs, expected: NvlsSetup, recorded: Make) -> None:
    comm = blackwell(recorded("dgx_h100_2"), nodes=4, ranks=8, nic=50.0)
    assert nvls_setup(comm, tables_of("2.30"), knobs) == expected


def test_two_gpus_are_enough_since_2_29(recorded: Make) -> None:
    two = replace(recorded("dgx_h100_1"), node_of=(0, 0), local_ranks=(2,))
    nvls = {"2.27": False, "2.30": True}
    for version, usable in nvls.items():
        pairs = Tuner(replace(two, version=version)).costs("all_reduce")
        assert any(algorithm is Algorithm.NVLS for algorithm, _ in pairs) is usable


def test_blackwell_trees_are_corrected_by_size_on_x86(recorded: Make) -> None:
    comm = blackwell(recorded("dgx_h100_2"), nodes=2, ranks=8, nic=50.0)
    size = 1 << 20
    plain, corrected = (
        Tuner(replace(comm, version=version)).candidates("all_reduce", [size])
        for version in ("2.28", "2.30")
    )
    pair = next(pair for pair in corrected if pair[0] is Algorithm.NVLSTree)
    moving = plain[pair][0].selection_us - (25 + 2 * 20.9)
    # log2(1 MiB / 64) = 14: half the bandwidth
    assert corrected[pair][0].selection_us - (25 + 2 * 20.9) == pytest.approx(2 * moving, rel=1e-4)


@pytest.mark.share(0.5)
@pytest.mark.parametrize("nodes", [2, 4, 16])
@pytest.mark.parametrize(
    ("version", "channels"), [("2.19", 16), ("2.27", 32), ("2.28", 16), ("2.30", 16)]
)
def test_rings_and_sends_get_the_channels_of_nvls_from_2_20_to_2_27(
    nodes: int, version: str, channels: int
) -> None:
    cluster = Cluster.preset("dgx-b200", nodes=nodes)
    comm = communicator_of(cluster, range(8 * nodes), version=version)
    assert (comm.channels, PeerToPeer(comm).channels) == (channels, channels)
    assert len(comm.rings) == comm.trees.channels == channels
    ring = Tuner(comm, knobs_of({"NCCL_ALGO": "Ring"})).choose("all_reduce", 2**30)
    assert ring.channels == channels


def test_without_nvls_no_channels_are_added() -> None:
    cluster = Cluster.preset("dgx-b200", nodes=2)
    off = communicator_of(cluster, range(16), version="2.27", env={"NCCL_NVLS_ENABLE": 0})
    assert off.channels == 16


@pytest.mark.parametrize("name", ["dgx_a100_1", "dgx_a100_2"])
def test_gpus_before_hopper_have_no_channels_of_nvls(name: str, recorded: Make) -> None:
    found = nvls_setup(recorded(name), tables_of("2.27"), Knobs())
    assert found.channels == 0
