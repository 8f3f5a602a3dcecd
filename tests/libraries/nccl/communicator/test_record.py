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
