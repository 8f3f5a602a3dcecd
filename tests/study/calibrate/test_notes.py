"""What a calibration says and writes, of tables and machines whose times are made up."""

from __future__ import annotations

import math
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from commsim.errors import ScenarioError
from commsim.libraries import LibrarySection
from commsim.study.calibrate.calibrate import (
    Calibration,
    _left_out,
    _notes,
    _written,
    joined,
    save_cluster,
)
from commsim.study.calibrate.factors import Factor, factors_of, overrides_of
from commsim.study.calibrate.faults import Fault, Finding
from commsim.study.calibrate.out_of_line import slow_figures, slow_ops
from commsim.study.calibrate.predicted import BenchedMachine, MeasuredTable

MINE = BenchedMachine("mine", {"preset": "dgx-h100"})


def table(op: str = "all_reduce", rows: int = 2, *, nodes: int = 2, per_node: int = 8,
          nccl: str = "", seconds: float = 1.0, name: str = "") -> MeasuredTable:  # fmt: skip
    sizes = tuple(2 ** (10 + at) for at in range(rows))
    took = np.full(rows, seconds)
    return MeasuredTable(name or f"{op}: log", op, "float", nodes, per_node, sizes, took, nccl)


def notes(*tables: MeasuredTable, version: str | None = None, finding: Finding | None = None,
          worse: tuple[str, ...] = ()) -> list[str]:  # fmt: skip
    library = LibrarySection("nccl")
    machine = BenchedMachine("x", {}, library.having(version=version) if version else library)
    return _notes(machine, tables, finding, worse)


def test_tables_of_one_node_say_nothing_of_the_fabric() -> None:
    told = ["all tables are of one node: nothing is learned of NICs and the fabric"]
    assert notes(table(nodes=1)) == told
    assert notes(table(nodes=1), table(nodes=2)) == notes(table(nodes=2)) == []


def test_releases_that_differ_or_are_not_the_one_that_should_have_run() -> None:
    one, patch, other = (table(nccl=release) for release in ("2.19.3", "2.19.4", "2.21.5"))
    assert notes(one, patch, table()) == []
    assert notes(other, one) == ["the logs ran different releases of NCCL: 2.19, 2.21"]
    assert notes(one, version="2.19.9") == notes(table(), version="2.20") == []
    assert notes(one, version="2.20.1") == [
        "NCCL 2.19 ran, and 2.20.1 should have: wrong NCCL version"
    ]
    assert notes(one, other, version="2.21")[1:] == [
        "NCCL 2.19 ran, and 2.21 should have: wrong NCCL version"
    ]


def test_figures_that_stay_and_faults_of_the_library_are_told() -> None:
    assert notes(table(), worse=("sizes", "ops")) == [
        "fits predict sizes and ops that they did not see worse: the figures stay as given"
    ]
    fault = Fault("f", "says", library={"version": "2.12", "x": 1})
    assert notes(table(), finding=Finding(fault, 1.0, 0.5, ())) == [
        "the fault is in the library, not in the cluster file (version: 2.12, x: 1): mend it there"
    ]
    hardware = Fault("f", "says", {"nic": {"gdr": False}})
    assert notes(table(), finding=Finding(hardware, 1.0, 0.5, ())) == []


def test_the_file_says_where_each_figure_is_from() -> None:
    factors = (Factor("nic.efficiency", 0.9, 0.2, 1.0, is_time=False),)
    machine = BenchedMachine("x", {
        "preset": "dgx-h100", "nodes": 9,
        "overrides": {"nic": {"efficiency": 0.8, "gdr": False, "sources": {"old": "me"}}},
    })  # fmt: skip
    tables = [table(nodes=4, name="a.log: x"), table(nodes=2, name="b.log: y"), table(name="a.log")]
    found = Finding(Fault("no GPUDirect", "says", {"nic": {"gdr": False}}), 1.0, 0.5, ())
    plain = _written(machine, factors, tables, tables[:1], None)
    assert (plain["nodes"], len(plain["measured"])) == (4, 1)
    assert plain["overrides"]["nic"] == {
        "efficiency": 0.8, "gdr": False,
        "sources": {"old": "me", "efficiency": "fitted: commsim calibrate a.log, b.log"},
    }  # fmt: skip
    broken = _written(machine, factors, tables, [], found)
    told = broken["overrides"]["nic"]["sources"]["gdr"]
    assert told.endswith("no GPUDirect, in a.log, b.log")
    assert BenchedMachine("x", broken).faults == ("no GPUDirect",)
    assert machine.cluster["overrides"]["nic"]["sources"] == {"old": "me"}


def test_one_cluster_of_logs_and_steps() -> None:
    def made(**overrides: Any) -> Any:
        return SimpleNamespace(cluster={"preset": "x", "overrides": overrides})

    logs, steps = made(nic={"a": 1}, gpu={"old": 1}), made(gpu={"tflops": 2}, host={"launch": 3})
    assert joined(None, None) == {}
    assert joined(logs, None) == logs.cluster
    assert joined(None, steps) == steps.cluster
    assert joined(logs, steps)["overrides"] == {"nic": {"a": 1}, "gpu": {"tflops": 2}}
    assert joined(logs, made(host={"launch": 3})) == logs.cluster
    bare: Any = SimpleNamespace(cluster={"preset": "x", "overrides": None})
    assert joined(logs, bare) == logs.cluster


@pytest.mark.parametrize(
    ("nodes", "per_node", "told"),
    [
        (1, 8, ["host.launch", "nvlink.efficiency", "nvlink.latency"]),
        (1, 1, ["host.launch"]),
        (2, 1, ["host.launch", "pcie.efficiency", "nic.efficiency", "nic.latency"]),
        (2, 2, ["host.launch", "nvlink.efficiency", "nvlink.latency", "pcie.efficiency",
                "nic.efficiency", "nic.latency"]),
    ],
)  # fmt: skip
def test_only_figures_that_the_tables_can_tell_of_are_fitted(
    nodes: int, per_node: int, told: list[str]
) -> None:
    alone = table(nodes=1, per_node=1)
    found = factors_of(MINE, [alone, table(nodes=nodes, per_node=per_node)])
    assert [factor.path for factor in found] == told


def test_gpus_without_nvlink_reach_each_other_over_pcie() -> None:
    pcie = BenchedMachine("x", {"preset": "pcie-l40s"})
    (_, *found) = factors_of(pcie, [table(nodes=1, per_node=2)])
    assert [factor.path for factor in found] == ["pcie.efficiency"]
    (_, *found) = factors_of(pcie, [table(nodes=1, per_node=1)])
    assert found == []


def test_a_switch_has_half_of_the_latency_from_gpu_to_gpu() -> None:
    factors = factors_of(MINE, [table(nodes=1)])
    latency = next(one for one in factors if one.path == "nvlink.latency")
    given = overrides_of([latency], np.zeros(1))["nvlink"]
    assert given == {"latency": f"{latency.value * 1e9:.4g}ns", "switch_latency": "0ns"}
    twice = overrides_of([latency], np.array([math.log(2)]))["nvlink"]
    assert twice["latency"] == f"{2 * latency.value * 1e9:.4g}ns"


def test_a_figure_as_it_is_written_and_how_far_it_can_go() -> None:
    share = Factor("a.b", 0.8, 0.2, 1.0, is_time=False)
    time = Factor("a.c", 2e-6, 0.35, 1e-3, is_time=True)
    assert share.bound == pytest.approx(math.log(1.25))
    assert share.written(math.log(0.5)) == 0.4
    assert time.written(math.log(3)) == "6000ns"
    assert overrides_of((share, time), np.zeros(2)) == {"a": {"b": 0.8, "c": "2000ns"}}


@pytest.mark.parametrize(
    ("x", "slow"),
    [(-0.251, [True, False]), (-0.249, [False] * 2), (0.599, [False] * 2), (0.601, [False, True])],
)
def test_a_figure_is_far_off_beyond_so_many_widths_of_its_prior(x: float, slow: list[bool]) -> None:
    """A share below 1.25 widths of 0.2 (0.78), a time above three."""
    factors = [Factor("a.share", 0.9, 0.2, 1.0, is_time=False),
               Factor("a.time", 1e-6, 0.2, 1e-3, is_time=True)]  # fmt: skip
    told = list(slow_figures(factors, np.full(2, x)))
    assert [any(line.startswith(f"{one.path} is") for line in told) for one in factors] == slow
    if told:
        assert f"{math.exp(x):.2g} times what was given" in told[0]


class Seconds:
    """A machine that predicts a second for everything, times what its settings say."""

    def __init__(self, times: float = 1.0) -> None:
        self.times = times

    def seconds(self, one: MeasuredTable) -> Any:
        return np.full(len(one.sizes), self.times)

    def having(self, overrides: Any) -> Seconds:
        return Seconds(overrides["a"]["b"])


def test_an_op_is_slow_that_takes_a_third_more_than_the_others() -> None:
    def slow(**seconds: float) -> dict[str, float]:
        tables = [table(op, seconds=took) for op, took in seconds.items()]
        return slow_ops(Seconds(), tables)  # type: ignore[arg-type]

    assert slow(a=1.29, b=1.0, c=1.0) == {}
    assert slow(a=1.31, b=1.0, c=1.0) == {"a": pytest.approx(1.31)}
    assert slow(a=1.31, b=0.9) == {"a": pytest.approx(1.31 / 0.9)}  # against what is predicted
    assert slow(a=1.29, b=0.9) == slow(a=9.0) == {}
    assert slow(a=3.0, b=2.0, c=2.0) == {"a": pytest.approx(1.5)}


def test_what_is_left_out_of_a_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fit that takes the median of what it sees: every second row, the first half of the ops."""
    seen: list[list[tuple[str, int]]] = []

    def fit(machine: Any, tables: Any, factors: Any) -> Any:
        seen.append([(one.op, len(one.sizes)) for one in tables])
        return np.log([np.median(np.concatenate([one.seconds for one in tables]))])

    monkeypatch.setattr(sys.modules["commsim.study.calibrate.calibrate"], "fit_that_carries", fit)
    factors = (Factor("a.b", 1.0, 0.2, 99.0, is_time=False),)

    def found(*tables: MeasuredTable) -> dict[str, tuple[float, float]]:
        seen.clear()
        return _left_out(Seconds(), Seconds(), tables, factors)  # type: ignore[arg-type]

    odd = table("a", 4)
    odd.seconds[:] = [2.0, 4.0, 2.0, 4.0]
    assert found(odd) == {"sizes": (0.75, 0.5)}
    assert found(table("a", 3)) == {}
    both = found(table("a", 5, seconds=2.0), table("b", 3, seconds=2.0), table("c", seconds=4.0))
    assert seen == [[("a", 3)], [("a", 5), ("b", 3)]]
    assert both == {"sizes": (0.5, 0.0), "ops": (0.75, 0.5)}
    assert set(found(table("a"), table("b", seconds=2.0))) == {"ops"}
    assert seen == [[("a", 2)]]


@pytest.mark.parametrize(
    ("left_out", "fitted_x", "told"),
    [
        ({"sizes": (0.2, 0.1), "ops": (0.2, 0.1)}, 0.5, ""),
        ({"sizes": (0.2, 0.3), "ops": (0.2, 0.2)}, 0.5, ""),  # the other ops say enough
        ({"sizes": (0.2, 0.1), "ops": (0.2, 0.3)}, 0.0, "fits predict ops that"),
        ({"sizes": (0.2, 0.3)}, 0.0, "fits predict sizes that"),
        ({"sizes": (0.2, 0.2)}, 0.5, ""),
        ({"sizes": (0.2, 0.3), "ops": (0.2, 0.3)}, 0.0, "fits predict sizes and ops that"),
        ({}, 0.0, ""),
    ],
)
def test_a_fit_that_does_not_carry_over_is_not_taken(
    left_out: dict[str, tuple[float, float]], fitted_x: float, told: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Worse on ops that it did not see, or on all that there is to be seen."""
    module = sys.modules["commsim.study.calibrate.calibrate"]
    machine = BenchedMachine("m", {"preset": "dgx-h100", "overrides": {"a": {"b": 1.0}}})
    factor = Factor("a.b", 1.0, 0.2, 99.0, is_time=False)
    stand_ins: dict[str, Any] = {
        "diagnose": lambda *_: None, "factors_of": lambda *_: (factor,),
        "fit_that_carries": lambda *_: np.array([0.5]), "_left_out": lambda *_: left_out,
        "slow_ops": lambda *_: {"slow": 1.5}, "_charted": lambda *_: {},
        "errors_of": lambda *_: np.array([0.1, 0.2, 0.9]),
    }  # fmt: skip
    for name, stand_in in stand_ins.items():
        monkeypatch.setattr(module, name, stand_in)
    found = module.fitted(machine, [table("slow"), table("quick")])
    ((_, times),) = found.factors
    assert times == pytest.approx(math.exp(fitted_x))
    assert [line for line in found.notes if "fits predict" in line] == [
        line for line in found.notes if told and line.startswith(told)
    ]
    assert bool(told) is any("fits predict" in line for line in found.notes)
    assert [one["op"] for one in found.cluster["measured"]] == ["quick"]
    assert any(line.startswith("slow takes 1.5 times") for line in found.out_of_line)
    assert (found.before, found.after, found.to_dict()["schema"]) == (0.2, 0.2, 1)
    assert repr(found) == "Calibration('dgx-h100', 20.0% -> 20.0%)"
    fault = Fault("PHB", "says", {"a": {"b": 2.0}})
    monkeypatch.setattr(module, "diagnose", lambda *_: Finding(fault, 0.3, 0.1, ("x",)))
    broken = module.fitted(machine, [table("quick")])
    assert broken.cluster["measured"] == []
    assert broken.to_dict()["finding"] == {
        "name": "PHB", "says": "says", "before": 0.3, "after": 0.1, "also": ["x"],
    }  # fmt: skip


def test_a_cluster_file_has_a_setting_and_a_table_a_line(tmp_path: Any) -> None:
    """In the order in which it is given; a word or a number ends a line of a hundred."""
    path = tmp_path / "x.yaml"
    save_cluster({"preset": "x", "nodes": 2, "measured": [{"op": "b", "bytes": [1, 2]}]}, path)
    assert path.read_text() == ("preset: x\nnodes: 2\nmeasured:\n- op: b\n  bytes: [1, 2]\n")
    save_cluster({"b": {"z": 1, "a": 2}, "a": 3, "measured": []}, path)
    assert path.read_text() == "b:\n  z: 1\n  a: 2\na: 3\n"
    rows = [{"op": "x", "bytes": [100_000, *[1000] * 59]}]
    save_cluster({"aaaaa": " ".join(["word"] * 40), "measured": rows}, path)
    lengths = [len(line) for line in path.read_text().splitlines()]
    assert lengths == [101, 101, 6, 9, 7, 101, 105, 105, 69]


@pytest.mark.parametrize("suffix", [".yaml", ".yml", ".json", ".html", ".txt", ""])
def test_a_calibration_is_written_as_its_suffix_says(
    suffix: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures: list[Any] = []
    found = Calibration({"preset": "x"}, None, (), (), 0.2, 0.1, {}, (), ())
    monkeypatch.setattr(Calibration, "figures", lambda self: figures)
    monkeypatch.setattr("commsim.charts.save_page", lambda figures, path: path.write_text("page"))
    path = tmp_path / f"x{suffix}"
    if suffix in (".txt", ""):
        with pytest.raises(ScenarioError, match=r"write \.yaml, \.json or \.html"):
            found.save(path)
        return
    found.save(path)
    begins = {".json": "{", ".html": "page"}.get(suffix, "preset: x\n")
    assert path.read_text().startswith(begins)
