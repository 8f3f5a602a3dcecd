"""The comparison with NCCL's own decisions runs on any folder, and says what it finds."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from helpers.paths import ROOT
from helpers.scripts import run_script

SCRIPT = ROOT / "benchmarks" / "validate_nccl.py"
DATA = ROOT / "tests" / "data" / "nccl_choice"
KEYS = ["cells", "choice_agree", "channels_agree", "cost_agree", "search_agree", "disagreements"]


def write(folder: Path, name: str, records: dict[str, dict[str, Any]]) -> None:
    """Write one case of the sampled record as a folder of NCCL's own would hold it."""
    (folder / f"meta_{name}.json").write_text(json.dumps(records[name]))
    with (DATA / "decisions.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row.pop("case") == name]
    with (folder / f"decisions_{name}.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def run(folder: Path, *more: str) -> tuple[dict[str, Any], str]:
    target = folder / "figures.json"
    done = run_script(SCRIPT, str(folder), "--json", str(target), *more)
    assert done.status == 0, done.err
    return json.loads(target.read_text()), done.out


def test_a_folder_without_topology_or_costs(
    tmp_path: Path, nccl_records: dict[str, dict[str, Any]]
) -> None:
    write(tmp_path, "dgx_h100_2", nccl_records)
    figures, out = run(tmp_path)
    assert list(figures) == KEYS
    assert figures["cells"] > 40
    assert (figures["choice_agree"], figures["channels_agree"], figures["cost_agree"]) == (1, 1, 1)
    assert figures["search_agree"] is None
    assert "no topo/dgx_h100.xml" in out
    assert "costs_dgx_h100_2.csv: missing" in out


def test_a_disagreement_is_counted_and_told(
    tmp_path: Path, nccl_records: dict[str, dict[str, Any]]
) -> None:
    write(tmp_path, "dgx_a100_1", nccl_records)
    path = tmp_path / "decisions_dgx_a100_1.csv"
    lines = path.read_text().splitlines()
    assert ",Ring,LL," in lines[1]
    lines[1] = lines[1].replace(",Ring,LL,", ",Tree,LL,")
    path.write_text("\n".join(lines) + "\n")
    figures, _ = run(tmp_path)
    assert figures["choice_agree"] == 1 - 1 / figures["cells"]
    (choice,) = [each for each in figures["disagreements"] if each["what"] == "choice"]
    assert (choice["expected"], choice["found"]) == ("Tree/LL", "Ring/LL")


def test_a_prediction_that_differs_is_counted(
    tmp_path: Path, nccl_records: dict[str, dict[str, Any]]
) -> None:
    write(tmp_path, "dgx_a100_1", nccl_records)
    (tmp_path / "costs_dgx_a100_1.csv").write_text(
        "op,size_bytes,algo,proto,predicted_us\n"
        "AllReduce,8,Ring,LL,15.03\nAllReduce,8,Ring,Simple,56.000034\n"
    )
    figures, _ = run(tmp_path)
    wrong = [each for each in figures["disagreements"] if each["what"] == "cost"]
    assert {each["pair"]: each["expected"] for each in wrong if each["expected"]} == {
        "Ring/LL": 15.03
    }
    assert figures["cost_agree"] < 1


@pytest.mark.parametrize(("runner_up", "counted"), [(15.1, False), (15.2, True)])
def test_a_choice_counts_where_the_runner_up_costs_over_one_percent_more(
    runner_up: float, counted: bool, tmp_path: Path, nccl_records: dict[str, dict[str, Any]]
) -> None:
    write(tmp_path, "dgx_a100_1", nccl_records)
    path = tmp_path / "decisions_dgx_a100_1.csv"
    path.write_text(path.read_text().replace("AllReduce,8,Ring,LL,", "AllReduce,8,Tree,LL,"))
    (tmp_path / "costs_dgx_a100_1.csv").write_text(
        "op,size_bytes,algo,proto,predicted_us\n"
        f"AllReduce,8,Tree,LL,15.0\nAllReduce,8,Ring,LL,{runner_up}\n"
    )
    figures, _ = run(tmp_path)
    assert (figures["choice_agree"] < 1) is counted


def test_the_environment_reaches_the_case_it_names(
    tmp_path: Path, nccl_records: dict[str, dict[str, Any]]
) -> None:
    write(tmp_path, "dgx_a100_1", nccl_records)
    write(tmp_path, "dgx_h100_1", nccl_records)
    (tmp_path / "ENV.txt").write_text(
        "NCCL_PROTO=Simple sys=dgx_a100 nodes=1\nNCCL_ALGO=Tree sys=dgx_h100 nodes=9\nNCCL_XYZ=1\n"
    )
    figures, out = run(tmp_path)
    wrong = {each["case"] for each in figures["disagreements"] if each["what"] == "choice"}
    assert wrong == {"dgx_a100_1"}
    assert "NCCL_XYZ: NCCL has no such variable" in out


def test_what_cannot_be_read_is_one_line(
    tmp_path: Path, nccl_records: dict[str, dict[str, Any]]
) -> None:
    write(tmp_path, "dgx_a100_1", nccl_records)
    (tmp_path / "meta_broken_1.json").write_text("{")
    (tmp_path / "meta_empty_1.json").write_text("{}")
    figures, out = run(tmp_path)
    assert "meta_broken_1.json: skipped: " in out
    assert "meta_empty_1.json: skipped: " in out
    assert figures["choice_agree"] == 1


@pytest.mark.parametrize(("version", "nearest"), [("2.99.1", "2.30"), ("2.17.1", "2.18")])
def test_an_unknown_release_is_compared_with_the_nearest(
    version: str, nearest: str, tmp_path: Path, nccl_records: dict[str, dict[str, Any]]
) -> None:
    record = {**nccl_records["dgx_a100_1"], "nccl": version}
    write(tmp_path, "dgx_a100_1", {"dgx_a100_1": record})
    figures, out = run(tmp_path)
    assert f"Compared with {nearest}." in out
    assert figures["cells"] > 0
    assert figures["choice_agree"] > 0.5


def test_topologies_lie_where_they_are_named_and_trees_are_compared_as_far_as_recorded(
    tmp_path: Path, nccl_records: dict[str, dict[str, Any]]
) -> None:
    """A record may hold the trees of the first ranks alone, and the topologies lie beside it."""
    from commsim.cluster import Cluster
    from commsim.libraries.nccl import cluster_xml, communicator_of

    cluster = Cluster.preset("dgx-h100", nodes=2)
    comm = communicator_of(cluster, range(16), version="2.30.7")
    trees = {
        str(rank): [
            [int(comm.trees.up[channel][rank]), comm.trees.down[channel][rank].tolist()]
            for channel in range(comm.trees.channels)
        ]
        for rank in range(5)
    }
    record = {**nccl_records["dgx_h100_2"], "trees_up_down": trees}
    own, beside = tmp_path / "own", tmp_path / "topologies"
    own.mkdir()
    beside.mkdir()
    write(own, "dgx_h100_2", {"dgx_h100_2": record})
    (beside / "dgx_h100.xml").write_text(cluster_xml(cluster))
    assert run(own)[0]["search_agree"] is None
    figures, out = run(own, "--topo", str(beside))
    assert figures["search_agree"] == 1
    wrong = [each for each in figures["disagreements"] if each["what"] == "rings"]
    assert [each for each in wrong if each["op"].startswith("tree")] == []
    assert f"{2 * comm.trees.channels}/" in out
    trees["4"][0] = [2, [3, 3, 3]]
    write(own, "dgx_h100_2", {"dgx_h100_2": {**record, "trees_up_down": trees}})
    wrong = run(own, "--topo", str(beside))[0]["disagreements"]
    assert [each["op"] for each in wrong if each["op"].startswith("tree")] == [
        "tree up",
        "tree down",
    ]


def test_an_empty_folder_has_no_figures(tmp_path: Path) -> None:
    figures, _ = run(tmp_path)
    assert figures["cells"] == 0
    assert figures["choice_agree"] is None


def test_the_whole_record(shared_data: Path, tmp_path: Path) -> None:
    target = tmp_path / "figures.json"
    assert run_script(SCRIPT, str(shared_data / "nccl"), "--json", str(target)).status == 0
    figures = json.loads(target.read_text())
    assert figures["cells"] == 1202
    assert all(figures[key] == 1 for key in KEYS[1:5])


@pytest.mark.parametrize("words", [["--help"], []])
def test_usage(words: list[str]) -> None:
    done = run_script(SCRIPT, *words)
    assert done.status == (0 if words else 2)
    assert "Traceback" not in done.err
