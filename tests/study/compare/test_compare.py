"""Comparisons: what is recognised, what differs, what is outside, and what one is told to take."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from helpers.paths import TESTS

from commsim.cluster import Cluster
from commsim.errors import ScenarioError, TraceError
from commsim.study.bench import bench
from commsim.study.compare.compare import compare
from commsim.study.compare.tables import Sheet, TablePoint, band_of, from_bench, line_up
from commsim.study.replay import replay
from commsim.study.run import run

LOGS = TESTS / "data/nccl_tests"
A100 = str(LOGS / "a100_8_v2.19.4.log")

TRAINING = """
cluster:
  preset: {preset}
  prices: {{currency: USD, gpu_hour: {{price: {price}, source: here, date: today}}}}
workload:
  training:
    model: {{preset: gpt2-124m, seq_len: 1024}}
    parallel: {{dp: 8}}
    batch: {{global: {batch}, micro: 2}}
    compute: {{efficiency: {efficiency}}}
library: {{name: ideal}}
"""


def training(
    folder: Path, name: str, *, price: float = 1, efficiency: float = 0.4, batch: int = 16
) -> str:
    path = folder / f"{name}.yaml"
    text = TRAINING.format(preset="dgx-a100", price=price, efficiency=efficiency, batch=batch)
    path.write_text(text)
    return str(path)


def metric(data: dict[str, Any], key: str) -> dict[str, Any]:
    return next(row for row in data["metrics"] if row["key"] == key)


def test_two_scenarios_side_by_side() -> None:
    found = compare("ring-all-reduce", "reduce-to-server")
    data = found.to_dict()
    step = metric(data, "step_time_s")
    ring, server = (run(n).metrics.step_time_s for n in ("ring-all-reduce", "reduce-to-server"))
    assert step["values"] == [ring, server]
    assert step["difference"] == [None, pytest.approx(server / ring - 1)]
    assert step["differs"]
    assert not found.within
    assert [side["label"] for side in data["sides"]] == ["A", "B"]
    assert found.verdict[0].startswith(f"A is {server / ring:.2f} times as fast as B")


def test_the_same_twice_differs_in_nothing() -> None:
    found = compare("1f1b", "1f1b", tolerance=0.0)
    assert found.within
    assert not any(row["differs"] for row in found.to_dict()["metrics"])
    assert not any(row["differs"] for row in found.to_dict()["settings"])
    assert found.verdict[0].startswith("All take the same time")


@pytest.mark.parametrize(("tolerance", "within"), [(0.19, False), (0.21, True)])
def test_the_tolerance_is_of_the_step_time(tmp_path: Path, tolerance: float, within: bool) -> None:
    result = run("1f1b").to_dict()
    slower = {**result, "step_time_s": 1.2 * result["step_time_s"]}
    for name, data in (("a.json", result), ("b.json", slower)):
        (tmp_path / name).write_text(json.dumps(data))
    found = compare(tmp_path / "a.json", tmp_path / "b.json", tolerance=tolerance)
    assert found.within is within
    assert metric(found.to_dict(), "step_time_s")["difference"][1] == pytest.approx(0.2)


def test_settings_that_differ_are_named(tmp_path: Path) -> None:
    one, two = training(tmp_path, "one"), training(tmp_path, "two", efficiency=0.2)
    data = compare(one, two).to_dict()
    differing = [row for row in data["settings"] if row["differs"]]
    assert [row["key"] for row in differing] == ["workload.training.compute.efficiency"]
    assert differing[0]["values"] == ["0.4", "0.2"]
    assert not any(row["differs"] for row in data["hardware"])


def test_hardware_that_differs_is_named() -> None:
    data = compare("own-dgx-h100", "own-dgx-b200").to_dict()
    facts = {row["key"]: row["values"] for row in data["hardware"] if row["differs"]}
    assert facts["GPU"] == ["H100-SXM5-80GB", "B200-SXM-180GB"]
    assert facts["NVLink of a GPU"] == ["450 GB/s", "900 GB/s"]
    assert facts["power of a node"] == ["10,200 W at most", "14,300 W at most"]
    energy = metric(data, "cost.energy_kwh_per_1e9_tokens")
    step, rate = metric(data, "step_time_s"), metric(data, "tokens_per_s")
    tokens = step["values"][1] * rate["values"][1]
    assert tokens == pytest.approx(16 * 8192)
    assert energy["values"][1] == pytest.approx(14300 * 1e9 / rate["values"][1] / 3.6e6)


def test_cheaper_and_slower_is_a_choice(tmp_path: Path) -> None:
    slow = training(tmp_path, "slow", price=1, efficiency=0.2)
    fast = training(tmp_path, "fast", price=4, efficiency=0.4)
    found = compare(slow, fast)
    assert found.verdict[0].startswith(f"Take A ({slow}) for the least money, B ({fast}) for the")
    cost = metric(found.to_dict(), "cost.per_1e9_tokens")["values"]
    assert cost[1] > 1.9 * cost[0]
    assert f"for {cost[1] - cost[0]:.3g} USD more" in found.verdict[0]


def test_faster_and_cheaper_is_taken(tmp_path: Path) -> None:
    slow = training(tmp_path, "slow", price=1, efficiency=0.2)
    fast = training(tmp_path, "fast", price=1, efficiency=0.4)
    found = compare(slow, fast)
    assert found.verdict[0].startswith(f"Take B ({fast}): 1e9 tokens take ")
    cost = metric(found.to_dict(), "cost.per_1e9_tokens")["values"]
    assert f"({cost[1] / cost[0] - 1:+.1%})" in found.verdict[0]


@pytest.mark.parametrize("price", [1.65, 1.75])
def test_costs_nearer_than_the_model_knows_do_not_decide(tmp_path: Path, price: float) -> None:
    slow = training(tmp_path, "slow", price=1, efficiency=0.2)
    fast = training(tmp_path, "fast", price=price, efficiency=0.4)
    assert f"Take B ({fast})" in compare(slow, fast).verdict[0]
    found = compare(slow, fast)
    cost = metric(found.to_dict(), "cost.per_1e9_tokens")["values"]
    assert f"({cost[1] / cost[0] - 1:+.1%})" in found.verdict[0]
    now, dear = (price, "B") if cost[1] > cost[0] else (1, "A")
    even = f"{now * min(cost) / max(cost):,.4g} USD instead of {now:,.4g}."
    assert found.verdict[3] == f"They cost the same where an hour of a GPU of {dear} is {even}"


def test_speed_is_told_per_gpu_where_their_numbers_differ(tmp_path: Path) -> None:
    few = training(tmp_path, "few", price=1, efficiency=0.4)
    many = training(tmp_path, "many", price=1, efficiency=0.4)
    text = Path(many).read_text().replace("preset: dgx-a100", "preset: dgx-a100\n  nodes: 2")
    Path(many).write_text(text.replace("dp: 8", "dp: 16").replace("global: 16", "global: 32"))
    found = compare(few, many).verdict[0]
    rates = metric(compare(few, many).to_dict(), "tokens_per_s")["values"]
    ratio = rates[1] / rates[0]
    assert f"{ratio:.2f} times as fast on 16 GPUs instead of 8: per GPU {ratio / 2:.2f}" in found


def test_the_same_price_and_time_leave_the_choice(tmp_path: Path) -> None:
    assert (
        compare(training(tmp_path, "a"), training(tmp_path, "b"))
        .verdict[0]
        .startswith("Take either")
    )


def test_different_work_is_warned_of_and_judged_by_tokens(tmp_path: Path) -> None:
    small = training(tmp_path, "small", batch=16)
    large = training(tmp_path, "large", batch=64)
    found = compare(small, large)
    assert "16,384 and" not in found.to_dict()["warnings"][0]
    assert "16,384, 65,536 tokens in a step" in found.to_dict()["warnings"][0]
    rate = metric(found.to_dict(), "tokens_per_s")["values"]
    assert rate[1] > rate[0]
    assert found.verdict[1].startswith(f"B is {rate[1] / rate[0]:.2f} times as fast as A")


def test_prices_of_two_currencies_are_not_subtracted(tmp_path: Path) -> None:
    one, two = training(tmp_path, "one"), training(tmp_path, "two")
    Path(two).write_text(Path(two).read_text().replace("USD", "EUR"))
    data = compare(one, two).to_dict()
    assert data["currency"] is None
    assert metric(data, "cost.per_step")["difference"] == [None, None]
    assert any("different currencies" in line for line in data["warnings"])


def test_a_result_beside_its_scenario(tmp_path: Path) -> None:
    run("gpipe").save_json(tmp_path / "gpipe.json")
    data = compare(tmp_path / "gpipe.json", "1f1b").to_dict()
    assert [side["kind"] for side in data["sides"]] == ["result", "scenario"]
    assert not any(row["differs"] for row in data["settings"])  # a result does not say its own
    same = compare(run("gpipe"), tmp_path / "gpipe.json", tolerance=0)
    assert same.within
    assert same.to_dict()["command"] is None


def test_a_trace_beside_its_replay(shared_data: Path) -> None:
    folder = shared_data / "traces/dev_param_dlrm_8xV100"
    found = compare(replay(folder), folder, tolerance=0.001)
    assert [side["kind"] for side in found.to_dict()["sides"]] == ["replay", "trace"]
    assert found.to_dict()["reference"] == 1  # the measured one
    assert found.within
    assert all(side.timeline is not None for side in found.sides)


def test_bands_and_signs_of_errors() -> None:
    sizes = (1024, 65536, 2**20, 16 * 2**20)
    assert [band_of(size) for size in sizes] == ["small", "mid", "mid", "large"]
    held = Sheet(
        "a", "all_reduce", "float", 8, 1, True, tuple(TablePoint(s, 10.0, 1.0) for s in sizes)
    )
    times = (12.0, 8.9, 11.1, 8.0)
    other = Sheet(
        "b", "all_reduce", "float", 8, 1, False,
        tuple(TablePoint(s, t, 1.0) for s, t in zip(sizes, times, strict=True)),
    )  # fmt: skip
    (table,) = line_up([[held], [other]], 0)
    assert [table.error(row, 1) for row in range(4)] == pytest.approx([0.2, -0.11, 0.11, -0.2])
    bands = table.bands(1)
    assert bands["mid"] == {
        "n": 2, "median_abs_err": pytest.approx(0.11), "median_err": pytest.approx(0.0),
        "worst_err": pytest.approx(-0.11),
    }  # fmt: skip
    assert bands["small"]["median_abs_err"] == pytest.approx(0.2)
    assert table.within(0.21)
    assert not table.within(0.19)


def test_a_scenario_lends_its_cluster_and_library() -> None:
    text = json.dumps({
        "cluster": {"preset": "dgx-a100"},
        "library": {"name": "nccl", "env": {"NCCL_ALGO": "Tree"}},
        "workload": {"collectives": [{"op": "all_reduce", "bytes": "1MiB", "group": [0, 1]}]},
    })  # fmt: skip
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tree.yaml"
        path.write_text(text)
        (table,) = compare(A100, path).to_dict()["tables"]
    assert {row["algo"][1] for row in table["rows"]} == {"Tree"}


def test_a_bench_json_of_all_algorithms_stands_for_its_choice(tmp_path: Path) -> None:
    cluster = Cluster.preset("dgx-a100")
    made = bench(cluster, "all_reduce", [2**12, 2**26], algo="all", library="nccl")
    made.save_json(tmp_path / "b.json")
    (sheet,) = from_bench(made.to_dict(), "b")
    chosen = {row.size: row.time_us for row in made.results if row.chosen}
    assert {point.size: point.time_us for point in sheet.points} == chosen
    (table,) = compare(A100, tmp_path / "b.json").to_dict()["tables"]
    assert [row["size"] for row in table["rows"]] == [2**12, 2**26]
    other = compare(made, made).verdict[0]  # nothing was measured: nobody is off
    assert other.startswith("all-reduce: 1 x dgx-a100 differs by 0.0% from 16 MiB on")


def test_all_reports_are_one_page(tmp_path: Path) -> None:
    for items in (("1f1b", "gpipe"), (A100, "dgx-a100")):
        compare(*items).report(tmp_path / "r.html")
        text = (tmp_path / "r.html").read_text()
        assert text.startswith("<!doctype html>")
        assert "http://" not in text.replace("http://www.w3.org", "")


@pytest.mark.parametrize(
    ("items", "words"),
    [
        (("1f1b",), "needs two or more"),
        (("1f1b", "1f1c"), "Did you mean '1f1b'"),
        (("1f1b", "dgx-h100"), "a cluster has no work to run"),
        ((A100, "1f1b"), "they share nothing"),
        ((A100, "pcie-rtx2080ti"), "has 8 GPUs on a node, and pcie-rtx2080ti has 2"),
        (("1f1b", "missing.yaml"), "there is no such file"),
        (("1f1b", 3), "int cannot be compared"),
        (("1f1b", ""), "an empty name"),
    ],
)
def test_what_cannot_be_compared_is_refused(items: tuple[Any, ...], words: str) -> None:
    with pytest.raises(ScenarioError, match=words.replace("(", r"\(")):
        compare(*items)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"schema": 2, "step_time_s": 1.0}', "newer commsim"),
        ('{"schema": 1, "step_time_s": 1.0}', "missing required field `breakdown`"),
        ('{"schema": 1, "step_time_s": "x", "breakdown": {}}', "got `str`"),
        ('{"schema": 1, "step_time_s": 1, "breakdown": {}}', "`compute_s`"),
        ('{"schema": 1, "results": [{"op": "all_reduce"}]}', "missing required field `size`"),
        ('{"schema": 1, "results": []}', "holds no row"),
        ('{"schema": 1, "sides": []}', "a comparison already"),
        ("just words", "nothing that can be compared"),
        ("", "is empty"),
        ('{"traceEvents": 3}', "x.json"),
    ],
)
def test_files_that_hold_nothing_to_compare(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(TraceError, match=words):
        compare("1f1b", path)
    with pytest.raises(TraceError, match="there is no such file"):
        compare("1f1b", tmp_path / "gone.json")


def test_equal_clusters_say_what_is_spare(tmp_path: Path) -> None:
    """1:1 and 2:1 take the same time, and the answer says how full the uplinks were, and why."""
    names = []
    for ratio in (1, 1.5):
        names.append(tmp_path / f"{ratio}.yaml")
        names[-1].write_text(
            "cluster: {preset: dgx-h100, nodes: 4, overrides: {nic: {bandwidth: 100Gbps}},"
            f" fabric: {{kind: fat_tree, nodes_per_leaf: 2, oversubscription: {ratio}}}}}\n"
            "workload: {collectives: [{op: all_reduce, bytes: 64MiB}]}\n"
            "library: {name: ideal, algo: ring}\n"
        )
    verdict = " ".join(compare(*names).verdict)
    assert "All take the same time" in verdict
    assert "uplinks of the switches: at most 75% full" in verdict
    assert "it begins to hurt at 2:1" in verdict  # 1 % longer at 2.02:1, found to 4 %
