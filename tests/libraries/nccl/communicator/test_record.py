"""Reading NCCL's own record of a communicator."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from commsim.errors import ScenarioError
from commsim.libraries.nccl.communicator.record import read_record, recorded_communicator
from commsim.libraries.nccl.shapes import Communicator, PathType, Pattern


def test_a_record_becomes_a_communicator(recorded: Callable[[str], Communicator]) -> None:
    comm = recorded("dgx_h100_2")
    assert (comm.n_ranks, comm.n_nodes, comm.ranks_per_node) == (16, 2, 8)
    assert comm.graphs["tree"].pattern is Pattern.TREE
    assert comm.graphs["ring"].type_intra is PathType.NVL
    assert comm.graphs["nvls"].n_channels == 8
    assert comm.nvls_support
    assert comm.peer_nvlinks == 18


def test_an_a100_has_no_nvls(recorded: Callable[[str], Communicator]) -> None:
    assert not recorded("dgx_a100_1").nvls_support
    assert recorded("dgx1v_1").peer_nvlinks == 1
    assert recorded("pcie4_sw_100g_1").peer_nvlinks == 0


def test_rings_and_trees_of_the_whole_record(shared_data: Path) -> None:
    record = read_record(shared_data / "nccl" / "meta_dgx_h100_2.json")
    comm = recorded_communicator(record)
    assert comm.rings.shape == (16, 16)
    assert comm.trees.at(0, 0).up == -1
    assert comm.trees.at(0, 0).down == (1, 8)


def test_a_missing_field_is_named(nccl_records: dict[str, dict[str, Any]]) -> None:
    record = {k: v for k, v in nccl_records["dgx1v_1"].items() if k != "nChannels"}
    with pytest.raises(ScenarioError, match="mine: 'nChannels' is missing"):
        recorded_communicator(record, where="mine")


def test_an_unknown_path_type_is_named(nccl_records: dict[str, dict[str, Any]]) -> None:
    graphs = nccl_records["dgx1v_1"]["graphs"]
    wrong = {**graphs, "ring": {**graphs["ring"], "typeIntra": "XGMI"}}
    with pytest.raises(ScenarioError, match="'XGMI' is missing or unknown"):
        recorded_communicator({**nccl_records["dgx1v_1"], "graphs": wrong})


@pytest.mark.parametrize(("text", "what"), [("[1]", "not a record"), ("{", "not JSON")])
def test_a_file_that_is_none(text: str, what: str, tmp_path: Path) -> None:
    path = tmp_path / "meta.json"
    path.write_text(text)
    with pytest.raises(ScenarioError, match=what):
        read_record(path)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="cannot be read"):
        read_record(tmp_path / "none.json")


def graph(**changes: Any) -> dict[str, Any]:
    """Return a graph of a record: all that it must have."""
    asked = {
        "pattern": "RING", "bwIntra": 20, "bwInter": 10, "typeIntra": "NVL", "typeInter": "PIX",
        "channels": [{"intra": [0, 1]}, {"intra": [1, 0], "inter": [3, 2]}],
    }  # fmt: skip
    return asked | changes


def made(**changes: Any) -> Communicator:
    """Return the communicator of a record of five ranks on two nodes."""
    asked = {
        "nccl": "2.27.3", "nRanks": 5, "nNodes": 2, "minCompCap": 90, "cpuArch": 1, "cpuVendor": 2,
        "nvswitch": 1, "maxBw": 48.5, "totalBw": 370.8, "nChannels": 4, "graphs": {"ring": graph()},
    }  # fmt: skip
    record = asked | changes
    return recorded_communicator({name: v for name, v in record.items() if v is not None})


def test_what_a_record_need_not_have() -> None:
    comm = made()
    assert (comm.version, comm.channels) == ("2.27.3", 4)
    assert (comm.min_compute_capability, comm.max_compute_capability) == (90, 90)
    assert (comm.cpu_arch.name, comm.cpu_vendor.name, comm.nvswitch) == ("X86", "AMD", True)
    assert (comm.max_bw, comm.total_bw) == (48.5, 370.8)
    assert comm.rings.shape == (0, 5)
    assert (comm.trees.up.shape, comm.trees.down.shape) == ((0, 0), (0, 0, 3))
    assert not comm.nvls_support
    ring = comm.graphs["ring"]
    assert [(c.intra, c.inter) for c in ring.channels] == [((0, 1), None), ((1, 0), (3, 2))]
    assert (ring.bw_intra, ring.bw_inter, ring.type_inter) == (20.0, 10.0, PathType.PIX)
    assert (ring.cross_nic, ring.same_channels, ring.latency_inter) == (0, False, 0.0)
    full = made(maxCompCap=100, graphs={"ring": graph(crossNic=2, sameChannels=1, latencyInter=3)})
    assert full.max_compute_capability == 100
    ring = full.graphs["ring"]
    assert (ring.cross_nic, ring.same_channels, ring.latency_inter) == (2, True, 3.0)


@pytest.mark.parametrize(
    ("nodes", "local", "node_of", "local_ranks"),
    [
        (2, 3, (0, 0, 0, 1, 1), (3, 2)), (2, None, (0, 0, 1, 1, 1), (2, 3)),
        (2, 2, (0, 0, 1, 1, 1), (2, 3)), (1, None, (0, 0, 0, 0, 0), (5,)),
        (5, 1, (0, 1, 2, 3, 4), (1, 1, 1, 1, 1)),
    ],
)  # fmt: skip
def test_the_last_node_has_the_ranks_that_are_left(
    nodes: int, local: int | None, node_of: tuple[int, ...], local_ranks: tuple[int, ...]
) -> None:
    comm = made(nNodes=nodes, localRanks=local)
    assert (comm.node_of, comm.local_ranks) == (node_of, local_ranks)
    assert comm.net_bandwidth == (48.5 if nodes > 1 else 0)
    assert comm.local_nets == (1 if nodes > 1 else 0)


@pytest.mark.parametrize(
    ("sm", "channels", "heads", "support"),
    [
        (90, None, True, True), (89, None, True, False), (90, 0, True, False), (90, 1, True, True),
        (90, None, False, False),
    ],
)  # fmt: skip
def test_nvls_is_of_hopper_and_needs_channels(
    sm: int, channels: int | None, heads: bool, support: bool
) -> None:
    nvls = graph(pattern="NVLS") if heads else graph(pattern="NVLS", channels=[])
    comm = made(minCompCap=sm, nvlsChannels=channels, graphs={"ring": graph(), "nvls": nvls})
    assert comm.nvls_support == support


@pytest.mark.parametrize(
    ("path", "switch", "sm", "total", "links"),
    [
        ("NVL", 1, 90, 370.8, 18), ("NVL", 1, 90, 370.7, 17), ("NVB", 1, 80, 240, 12),
        ("C2C", 1, 90, 370.8, 0), ("NVB", 0, 70, 120, 1), ("PIX", 0, 80, 24, 0),
    ],
)  # fmt: skip
def test_nvlinks_between_two_gpus(
    path: str, switch: int, sm: int, total: float, links: int
) -> None:
    """All of a GPU's through a switch: 20.6 GB/s each on Hopper, 20 on Ampere."""
    ring = {"ring": graph(typeIntra=path)}
    assert made(nvswitch=switch, minCompCap=sm, totalBw=total, graphs=ring).peer_nvlinks == links


def test_rings_and_trees_are_turned_to_channels_of_ranks() -> None:
    trees = {
        "0": [[-1, [1, 2, -1]], [2, [-1, -1, -1]]],
        "1": [[0, [-1, -1, -1]], [-1, [2, -1, -1]]],
        "2": [[0, [-1, -1, -1]], [1, [0, -1, -1]]],
    }
    comm = made(nRanks=3, rings=[[0, 1, 2], [0, 2, 1]], trees_up_down=trees)
    assert comm.rings.tolist() == [[0, 1, 2], [0, 2, 1]]
    assert comm.trees.up.tolist() == [[-1, 0, 0], [2, -1, 1]]
    assert comm.trees.at(0, 0).down == (1, 2)
    assert comm.trees.at(1, 1).down == (2,)
    assert comm.trees.at(1, 2).up == 1
