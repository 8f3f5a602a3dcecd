"""Runs side by side, and clusters in words: of metrics and clusters made by hand."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from commsim.cluster import Cluster
from commsim.errors import ScenarioError
from commsim.libraries import LibrarySection
from commsim.study.compare.benched import BenchedCluster, _laid_out, _library, bench_like
from commsim.study.compare.compare import _mismatches, _side
from commsim.study.compare.runs import Side, lay_out
from commsim.study.compare.settings import flat, hardware, side_by_side
from commsim.study.compare.verdict import _spare


def side(name: str = "a", step: float = 1.0, **metrics: Any) -> Side:
    return Side(name, "result", False, {"step_time_s": step} | metrics, {})


def row(key: str, *sides: Side, reference: int = 0, tolerance: float = 0.05) -> dict[str, Any]:
    made = lay_out(sides, reference, tolerance)
    (found,) = [one for one in made["metrics"] if one["key"] == key]
    return found  # type: ignore[no-any-return]


def test_differences_are_of_the_reference() -> None:
    found = row("step_time_s", side(step=2.0), side(step=2.2), side(step=1.0), reference=0)
    assert found["values"] == [2.0, 2.2, 1.0]
    assert found["difference"] == [None, pytest.approx(0.1), -0.5]
    turned = row("step_time_s", side(step=2.0), side(step=4.0), reference=1)
    assert turned["difference"] == [-0.5, None]


@pytest.mark.parametrize(
    ("step", "tolerance", "differs", "within"),
    [
        (1.25, 0.25, True, True), (0.75, 0.25, True, True), (1.26, 0.25, True, False),
        (0.74, 0.25, True, False), (1.04, 0.25, False, True), (1.06, 0.25, True, True),
        (0.94, 0.25, True, True), (1.015625, 0.015625, False, True), (1.02, 0.015625, True, False),
    ],
)  # fmt: skip
def test_marked_is_what_differs_by_more_than_a_twentieth_or_than_is_tolerated(
    step: float, tolerance: float, differs: bool, within: bool
) -> None:
    sides = [side(), side(step=step)]
    assert row("step_time_s", *sides, tolerance=tolerance)["differs"] is differs
    assert lay_out(sides, 0, tolerance)["within"] is within


def test_what_nobody_has_is_no_row_and_what_the_reference_lacks_differs() -> None:
    made = lay_out([side(mfu=0.0), side(mfu=0.0, hfu=0.5)], 0, 0.05)
    rows = {one["key"]: one for one in made["metrics"]}
    assert "mfu" not in rows
    assert rows["hfu"]["values"] == [None, 0.5]
    assert (rows["hfu"]["difference"], rows["hfu"]["differs"]) == ([None, None], True)
    rows = {one["key"]: one for one in lay_out([side(hfu=0.5), side()], 0, 0.05)["metrics"]}
    assert (rows["hfu"]["difference"], rows["hfu"]["differs"]) == ([None, None], False)


def priced(currency: str | None, money: float) -> Side:
    cost = {"per_step": money} | ({"currency": currency} if currency else {})
    return side(cost=cost)


@pytest.mark.parametrize(
    ("currencies", "found", "difference", "warned"),
    [
        (("USD", "USD"), "USD", 1.0, False), (("USD", "EUR"), None, None, True),
        (("USD", None), "USD", 1.0, True),
    ],
)  # fmt: skip
def test_money_is_compared_in_one_currency(
    currencies: tuple[str | None, str | None], found: str | None, difference: Any, warned: bool
) -> None:
    sides = [priced(currencies[0], 1.0), priced(currencies[1], 2.0)]
    made = lay_out(sides, 0, 0.05)
    assert made["currency"] == found
    assert row("cost.per_step", *sides)["difference"][1] == difference
    assert any("different currencies" in line for line in made["warnings"]) is warned


def test_other_work_and_what_does_not_fit_are_warned_of() -> None:
    """Tokens of a step: 1,000 against 1,000.0005 are the same, against 1,001 they are not."""

    def warned(*sides: Side) -> list[str]:
        return lay_out(sides, 0, 0.05)["warnings"]  # type: ignore[no-any-return]

    first, none = side(step=2.0, tokens_per_s=500.0), side(step=2.0)
    same = side(step=1.0, tokens_per_s=1000.0005)
    assert warned(first, same) == warned(first, none) == []
    assert warned(first, side(step=1.0, tokens_per_s=1001.0), none) == [
        "They do not do the same work: 1,000, 1,001, – tokens in a step. Compare tokens per second"
        " and what 1e9 tokens cost, and not step times."
    ]
    full, fits = {"fits": False, "peak": 81.25}, {"fits": True, "peak": 81.25}
    assert warned(side("big", memory_gib=full), side(memory_gib=fits)) == [
        "big does not fit: 81.2 GiB on its fullest GPU."
    ]
    assert warned(side(memory_gib={"fits": None, "peak": 1.0})) == []


def test_a_side_has_its_longest_collectives_and_busiest_links() -> None:
    uses = [{"op": at, "exposed_s": str(at)} for at in range(30)]
    links = [{"link": at} for at in range(7)]
    metrics: dict[str, Any] = {"breakdown": {"x": 1}, "collectives": uses, "links": links}
    found = _side(1, side("b", 2.0, **metrics))
    assert [use["op"] for use in found["collectives"]] == list(range(29, 5, -1))
    assert found["links"] == links[:5]
    assert (found["label"], found["name"], found["step_time_s"]) == ("B", "b", 2.0)
    bare = _side(0, side(breakdown={}, collectives=None, links=None))
    assert (bare["collectives"], bare["links"], bare["cost"]) == ([], [], None)


def test_tables_of_other_ranks_are_warned_of() -> None:
    def table(op: str, ranks: int) -> Any:
        return SimpleNamespace(op=op, ranks=ranks)

    sources: Any = [SimpleNamespace(name=name) for name in ("a", "b")]

    def warned(first: list[Any], second: list[Any], reference: int = 0) -> list[str]:
        return _mismatches(sources, [first, second], reference)

    assert warned([table("x", 8)], [table("x", 4), table("x", 4), table("y", 2)]) == [
        "x: a ran on 8 ranks, b on 4."
    ]
    assert warned([table("x", 8)], [table("x", 4)], 1) == ["x: b ran on 4 ranks, a on 8."]
    for first, second in ((8, 8), (0, 8), (8, 0)):
        assert warned([table("x", first)], [table("x", second)]) == []


def test_settings_are_listed_by_their_paths() -> None:
    data = {
        "a": {"b": True, "c": None},
        "d": [1, [2, "x"]],
        "e": [3, False],
        "f": [{"g": 1}],
        "h": {},
    }
    assert flat(data) == {
        "a.b": "true", "a.c": "null", "d.0": "1", "d.1": "[2, x]", "e": "[3, false]", "f.0.g": "1",
    }  # fmt: skip


def test_keys_of_all_sides_and_which_differ() -> None:
    assert side_by_side([{"a": "1", "b": "2"}, {"b": "3", "c": "4"}, {}]) == [
        {"key": "a", "values": ["1", None, None], "differs": True},
        {"key": "b", "values": ["2", "3", None], "differs": True},
        {"key": "c", "values": [None, "4", None], "differs": True},
    ]
    assert [one["differs"] for one in side_by_side([{"a": "1"}, {"a": "1"}, {}])] == [False]


def test_a_cluster_in_words() -> None:
    """Eight H100 of 80 GB at 3.35 TB/s with 900 GB/s of NVLink and a NIC of 400 Gb/s each."""
    one = hardware(Cluster.preset("dgx-h100"))
    assert (one["GPUs"], one["nodes"]) == ("8", "1")
    assert one["dense BF16 peak"] == "989 TFLOP/s"
    assert one["NVLink of a GPU"] == "450 GB/s"  # each way
    assert one["network of a GPU"] == "50 GB/s, ib"
    assert "fabric" not in one
    assert "kinds of nodes" not in one
    assert hardware(None) == {}
    four = hardware(Cluster.preset("dgx-h100", nodes=4))
    assert (four["GPUs"], four["nodes"]) == ("32", "4")
    assert "fabric" in four


def described(**more: Any) -> dict[str, str]:
    """Return the words for two nodes of two GPUs each, with so much of each."""
    wire = SimpleNamespace(bandwidth=50e9)
    gpu = SimpleNamespace(name="G", memory_bytes=2**30, memory_bandwidth=1e12,
                          tflops=more.pop("tflops", {}),
                          nvlink_bandwidth=more.pop("nvlink", 0))  # fmt: skip
    node = {"gpu": gpu, "gpus": 2, "switch": None, "mesh": None, "power": None,
            "nic": SimpleNamespace(wire=wire, count=3, transport="roce")}  # fmt: skip
    fabric = {"kind": "fat_tree", "dims": (), "planes": 1, "oversubscription": 1.0, "ecmp": "even"}
    prices = more.pop("prices", None)
    kinds = more.pop("kinds", 1)
    spec = SimpleNamespace(**node | {key: more.pop(key) for key in list(more) if key in node})
    cluster: Any = SimpleNamespace(
        specs=[spec] * kinds, world_size=1234, prices=[prices],
        node_of=SimpleNamespace(tolist=lambda: [0, 0, 1, 1]),
        fabric=SimpleNamespace(spec=SimpleNamespace(**fabric | more)),
    )  # fmt: skip
    return hardware(cluster)


def test_what_a_cluster_has_and_what_it_has_not() -> None:
    plain = described()
    assert set(plain) == {"GPU", "GPUs", "nodes", "memory of a GPU", "its bandwidth",
                          "network of a GPU", "fabric"}  # fmt: skip
    assert (plain["GPUs"], plain["nodes"]) == ("1,234", "2")
    assert plain["network of a GPU"] == "75 GB/s, roce"  # three NICs to two GPUs
    assert "network of a GPU" not in described(nic=None)
    assert described(tflops={"bf16": 989.4})["dense BF16 peak"] == "989 TFLOP/s"
    linked = {"nvlink": 450e9}
    assert "NVLink of a GPU" not in described(**linked)
    assert "NVLink of a GPU" not in described(switch=1, mesh=1)
    assert "NVLink of a GPU" in described(**linked, switch=1)
    assert "NVLink of a GPU" in described(**linked, mesh=1)
    assert described(power=SimpleNamespace(watts=10200.0))["power of a node"] == "10,200 W at most"
    assert described(kinds=2)["kinds of nodes"] == "2; the first is described"
    assert "kinds of nodes" not in described(kinds=1)


def test_prices_in_their_currency_dollars_where_none_is_said() -> None:
    rent = SimpleNamespace(price=2.5, date="2026-01")

    def told(currency: str | None, rent: Any) -> str | None:
        prices = SimpleNamespace(gpu_hour=rent, currency=currency)
        return described(prices=prices).get("price of a GPU and hour")

    assert told("EUR", rent) == "2.5 EUR (2026-01)"
    assert told(None, rent) == "2.5 USD (2026-01)"
    assert told("EUR", None) is None


@pytest.mark.parametrize(
    ("fabric", "told"),
    [
        ({}, "fat-tree"), ({"kind": "torus", "dims": (4, 2)}, "torus 4x2"),
        ({"planes": 2}, "fat-tree, 2 planes"),
        ({"oversubscription": 2.0}, "fat-tree, 2:1 oversubscribed"),
        ({"oversubscription": None}, "fat-tree"), ({"ecmp": "hash"}, "fat-tree, ecmp hash"),
    ],
)  # fmt: skip
def test_a_fabric_in_words(fabric: dict[str, Any], told: str) -> None:
    assert described(**fabric)["fabric"] == told


def test_what_is_spare_is_told_of_runs_of_one_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the side that is as slow or slower; clusters that were not run have nothing to say."""
    module = sys.modules["commsim.study.compare.verdict"]
    monkeypatch.setattr(module, "differing", lambda one, other: [f"{one}-{other}"])
    monkeypatch.setattr(module, "spare_words", lambda who, keys: [f"{who} {keys[0]}"])

    def ran(name: str, step: float, **more: Any) -> Side:
        fixed = {"cluster": f"c{name}", "ran": (name,)} | more
        return Side(name, "scenario", False, {"step_time_s": step}, {}, **fixed)

    a = ran("a", 100.0)
    assert _spare([a, ran("b", 101.0)]) == ["B: b ca-cb."]
    assert _spare([a, ran("b", 100.0)]) == ["B: b ca-cb."]
    assert _spare([a, ran("b", 99.5), ran("c", 100.5)]) == ["A: a ca-cb.", "C: c ca-cc."]
    assert _spare([a, ran("b", 101.1)]) == _spare([a, ran("b", 99.0)]) == _spare([a]) == []
    for lacking in ({"ran": None}, {"cluster": None}):
        assert _spare([a, ran("b", 100.0, **lacking)]) == []
        assert _spare([ran("a", 100.0, **lacking), ran("b", 100.0)]) == []


def log(ranks: int = 8, nodes: int = 0, **more: Any) -> Any:
    fixed = {"ranks": ranks, "nodes": nodes, "source": "log", "launch": None, "nccl": None,
             "op": "all_gather", "dtype": "float", "rows": ()}  # fmt: skip
    return SimpleNamespace(**fixed | more)


DGX = BenchedCluster("dgx", {"preset": "dgx-h100"}, "dgx")


@pytest.mark.parametrize(
    ("ranks", "nodes", "laid"), [(8, 0, (8, 8)), (9, 3, (24, 3)), (16, 0, (16, 8)), (2, 2, (16, 1))]
)
def test_a_cluster_is_laid_out_like_a_log(ranks: int, nodes: int, laid: tuple[int, int]) -> None:
    """As many nodes as the log says, else as few as hold its ranks; so many GPUs of each."""
    cluster, per_node = _laid_out(DGX, log(ranks, nodes))
    assert (cluster.world_size, per_node) == laid


@pytest.mark.parametrize(
    ("place", "table", "told"),
    [
        (DGX, log(9), "9 ranks on 2 nodes are not as many on each"),
        (DGX, log(9, 1), "log has 9 GPUs on a node, and dgx has 8"),
        (BenchedCluster("two", {"nodes": [{"preset": "dgx-h100"}] * 2}, "two"), log(8, 1),
         "two has 2 nodes, and log was measured on 1"),
    ],
)  # fmt: skip
def test_a_log_that_a_cluster_cannot_be_laid_out_like(
    place: BenchedCluster, table: Any, told: str
) -> None:
    with pytest.raises(ScenarioError, match=told):
        _laid_out(place, table)


def test_a_log_of_one_rank_or_of_no_size_that_can_be_sent_is_refused() -> None:
    for ranks in (0, 1):
        with pytest.raises(ScenarioError, match="does not list its devices"):
            bench_like(DGX, log(ranks))
    rows = [SimpleNamespace(size=31), SimpleNamespace(size=0)]
    with pytest.raises(ScenarioError, match="none of its sizes"):
        bench_like(DGX, log(2, 1, rows=rows))
    rows[0].size = 32
    assert [point.size for point in bench_like(DGX, log(2, 1, rows=rows)).points] == [32]


def test_a_log_says_the_version_and_the_launch_where_the_place_does_not() -> None:
    def library(table: Any, **settings: Any) -> tuple[Any, Any, tuple[str, ...]]:
        place = BenchedCluster("x", {}, "x", LibrarySection("nccl").having(**settings))
        section, notes = _library(place, table)
        return section.get("version"), section.get("launch"), notes

    said = log(launch="graph", nccl="2.20.5")
    assert library(said) == ("2.20.5", "graph", ())
    assert library(said, version="2.18") == ("2.18", "graph", ())
    assert library(said, launch="group") == ("2.20.5", "group", ())
    assert library(log()) == (None, None, ())
    old, launch, notes = library(log(nccl="odd"))
    assert (old, launch) == (None, None)
    assert notes == ("log ran NCCL odd; the default version stands for it.",)
    ideal = BenchedCluster("x", {}, "x", LibrarySection("ideal"))
    assert _library(ideal, said) == (LibrarySection("ideal"), ())
