"""Steps, faults and checks of times made by hand."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from commsim.errors import ScenarioError, TraceError
from commsim.libraries import LibrarySection
from commsim.libraries.nccl import usual_launch
from commsim.study.calibrate.check import _bands, _expected
from commsim.study.calibrate.faults import Fault, _faults, diagnose
from commsim.study.calibrate.predicted import BenchedMachine, MeasuredTable, _laid, _placed, _table
from commsim.study.calibrate.training import _against_others, _alike, _error, _fit, _launch, _notes
from commsim.traces.formats import NcclTests
from commsim.traces.formats.nccl_tests.table import BenchedRow, BenchedTiming

MIB = 2**20


def table(*sizes: int, seconds: Any = None, nodes: int = 1, nccl: str = "") -> MeasuredTable:
    took = np.array(seconds if seconds is not None else [1.0] * len(sizes), float)
    return MeasuredTable("t", "all_reduce", "float", nodes, 8, sizes, took, nccl)


def step(compute: int = 100, **kernels: tuple[int, int]) -> Any:
    return SimpleNamespace(compute=compute, kernels=kernels)


def test_kernels_are_compared_with_those_of_their_name_that_ran_as_often() -> None:
    """Of rank 0: a took 30 where the others took 10 and 20; b ran twice as often elsewhere."""
    steps = {0: [step(a=(1, 30), b=(1, 50))], 1: [step(a=(1, 10), b=(2, 1))],
             2: [step(a=(1, 20), b=(2, 1))], 3: [step(c=(1, 99))]}  # fmt: skip
    assert _against_others(0, steps).tolist() == [30 / 15]
    assert _against_others(1, steps).tolist() == [(10 + 1) / (25 + 1)]
    assert _against_others(3, steps).tolist() == [1.0]
    two = {0: [step(a=(1, 30)), step(a=(1, 10))], 1: [step(a=(1, 10)), step(a=(1, 10))]}
    assert _against_others(0, two).tolist() == [3.0, 1.0]
    assert _alike(two, {0: [2.0, 1.0], 1: [1.0, 1.0]}, [0, 1]) == {0: 75.0, 1: 100.0}


def test_what_few_ranks_or_steps_cannot_say() -> None:
    assert _notes(2, 2, "x") == []
    assert [line.split(":")[0] for line in _notes(1, 1, "x")] == [
        "one rank is recorded", "one step is recorded",
    ]  # fmt: skip
    (told,) = _notes(2, 2, None)
    assert told.startswith("without a scenario of the training")


def test_a_launch_and_an_error_are_medians() -> None:
    paces = {at: SimpleNamespace(launch=launch) for at, launch in enumerate((-1, 0, 6000, 9000))}
    assert _launch(paces) == pytest.approx(6e-9)  # type: ignore[arg-type]
    assert _launch({0: paces[1]}) == 0.0  # type: ignore[dict-item]
    assert _launch({0: paces[0]}) is None  # type: ignore[dict-item]
    assert _error([(1.1, 1.0), (0.8, 1.0), (3.0, 1.0)]) == pytest.approx(0.2)
    assert _error([]) is None


@pytest.mark.parametrize(("times", "fits"), [
    (1.5, True), (0.7, True), (2.9, True), (0.34, True), (1e3, False), (1e-3, False),
])  # fmt: skip
def test_steps_far_from_a_trainings_own_are_of_another(
    monkeypatch: pytest.MonkeyPatch, times: float, fits: bool
) -> None:
    """A training of 100 ps a step on GPUs as given: what was recorded is so many times as long."""
    machine = BenchedMachine("m", {"preset": "dgx-h100"})
    rounds: list[BenchedMachine] = []

    def simulated(training: Any, made: BenchedMachine, steps: Any) -> dict[int, float]:
        rounds.append(made)
        gpu = (made.cluster.get("overrides") or {}).get("gpu")
        return {0: 100.0 if gpu is None else 100.0 * 989.4 / gpu["tflops"]["bf16"]}

    monkeypatch.setattr(sys.modules["commsim.study.calibrate.training"], "_simulated", simulated)
    steps: Any = {0: [SimpleNamespace(compute=120 * times), step(compute=1)]}
    if not fits:
        with pytest.raises(TraceError, match="it is another training"):
            _fit("t", machine, steps, [0], {0: 1.2})
        return
    made, expected, found = _fit("t", machine, steps, [0], {0: 1.2})
    assert found == pytest.approx(times, rel=1e-3)
    assert len(rounds) == 1 + 3  # as given, and after each of three rounds
    assert expected[0] == pytest.approx(120 * times, rel=1e-3)  # the slow GPU is so by itself
    gpu = made.cluster["overrides"]["gpu"]
    rate = float(gpu["memory_bandwidth"].removesuffix("GB/s"))
    assert rate == pytest.approx(3350 / times, rel=1e-3)


def faults(nodes: int = 2, nccl: str = "", **overrides: Any) -> list[str]:
    machine = BenchedMachine("m", {"preset": "aws-p6-b200", "overrides": overrides})
    return [one.name for one in _faults(machine, [table(8, nodes=nodes, nccl=nccl)])]


def test_what_could_be_broken_is_what_the_tables_can_tell_of() -> None:
    old = ["NCCL 2.12", "NCCL 2.18", "NCCL 2.21"]
    inside = ["no NVLink", "Simple alone", "few channels"]
    assert faults(nodes=1) == [*inside, *old]
    assert faults(nodes=1, nccl="2.20") == inside
    machine = BenchedMachine("m", {"preset": "aws-p6-b200"})
    for version, told in ((None, "2.12, not of a current one"), ("2.30", "2.12, not of 2.30")):
        library = machine.library.having(version=version) if version else machine.library
        found = _faults(replace(machine, library=library), [table(8)])
        assert any(told in one.says for one in found)
    rdma: Any = {"nic": {"transport": "roce", "gdr": True}}
    fabric = ["NIC at half rate", "no GPUDirect", "TCP instead of RDMA", "PHB"]
    assert faults(**rdma) == [*fabric, *inside, *old]
    assert "no GPUDirect" not in faults(nic={"transport": "roce", "gdr": False})
    assert "TCP instead of RDMA" not in faults(nic={"transport": "tcp", "gdr": False})
    assert "PHB" not in faults(**rdma, pcie={"switches": []})
    plain = BenchedMachine("m", {"preset": "pcie-l40s"})
    assert "no NVLink" not in [one.name for one in _faults(plain, [table(8)])]


@pytest.mark.parametrize(
    ("scores", "found", "also"),
    [
        ((0.09, 0.01, 0.5), None, ()), ((0.091, 0.01, 0.5), "a", ()),
        ((0.2, 0.131, 0.5), None, ()), ((0.2, 0.129, 0.5), "a", ()),
        ((0.2, 0.1, 0.114), "a", ("b",)), ((0.2, 0.1, 0.116), "a", ()),
        ((0.2, 0.114, 0.1), "b", ("a",)), ((0.2, 0.1, 0.1), "a", ("b",)),
    ],
)  # fmt: skip
def test_a_fault_is_named_that_explains_much_of_what_is_off(
    monkeypatch: pytest.MonkeyPatch, scores: tuple[float, ...], found: str | None,
    also: tuple[str, ...],
) -> None:  # fmt: skip
    """By rms of the machine as it should be, with a, with b: 0.09 is no fault; 0.65 of it is much;
    others within 15 % of the best explain it as well."""
    module = sys.modules["commsim.study.calibrate.faults"]
    off = dict(zip(("m", "a", "b"), scores, strict=True))

    class Known(Fault, frozen=True):
        def on(self, machine: Any) -> Any:
            return SimpleNamespace(name=self.name)

    monkeypatch.setattr(module, "_faults", lambda *_: [Known("a", ""), Known("b", "")])
    monkeypatch.setattr(module, "_best", lambda machine, tables: off[machine.name])
    machine: Any = SimpleNamespace(name="m")
    made = diagnose(machine, [])
    assert (None if made is None else made.fault.name) == found
    if made is not None:
        assert (made.before, made.after, made.also) == (scores[0], min(scores[1:]), also)


def test_settings_are_laid_over_others_part_by_part() -> None:
    base = {"a": {"x": 1, "y": {"z": 2}}, "b": 3, "c": {"k": 1}}
    over = {"a": {"y": {"w": 4}}, "b": {"n": 5}, "c": 6, "d": {"e": 7}}
    assert _laid(base, over) == {
        "a": {"x": 1, "y": {"z": 2, "w": 4}}, "b": {"n": 5}, "c": 6, "d": {"e": 7},
    }  # fmt: skip
    assert base["a"] == {"x": 1, "y": {"z": 2}}


def test_bands_pass_by_their_medians() -> None:
    """Below 64 KiB: 1.0, 1.1 and 9.0 times, in the median 1.1; 16 MiB and more: 1.125 times."""
    one = table(8, 1024, 64 * 1024 - 1, 16 * MIB, seconds=[1.0, 1.1, 9.0, 1.125])
    small, large = _bands(one, np.ones(4), "predicted", 0.1)
    assert (small.rows, small.worst, small.passed) == (3, 64 * 1024 - 1, True)
    assert small.slower == pytest.approx(0.1)
    assert small.by == pytest.approx(8.0)
    assert (large.rows, large.worst, large.passed, large.against) == (
        1, 16 * MIB, False, "predicted",
    )  # fmt: skip
    assert _bands(one, np.ones(4), "x", 0.125)[1].passed
    (middle,) = _bands(table(64 * 1024, 16 * MIB - 1), np.ones(2), "x", 0.1)
    assert middle.rows == 2


def test_what_was_measured_is_carried_to_other_sizes_and_to_the_release_of_then() -> None:
    """Measured twice and four times what is predicted: half way between, on a log scale, 2.83."""

    class Predicts:
        measured = (table(1, 4, seconds=[2.0, 4.0], nccl="2.18"),)

        def seconds(self, one: MeasuredTable) -> Any:
            releases.append(one.nccl)
            return np.ones(len(one.sizes))

    releases: list[str] = []
    machine: Any = Predicts()
    found, against = _expected(machine, table(1, 2, 4, 64, nccl="2.30"))
    assert against == "measured"
    assert found.tolist() == pytest.approx([2.0, 8**0.5, 4.0, 4.0])
    assert set(releases) == {"2.18"}
    for other in (table(1, nodes=2), MeasuredTable("t", "x", "float", 1, 8, (1,), np.ones(1)),
                  MeasuredTable("t", "all_reduce", "float", 1, 4, (1,), np.ones(1))):  # fmt: skip
        assert _expected(machine, other)[1] == "predicted"


@pytest.mark.parametrize(("tolerance", "sound"), [
    (0.0, False), (1e-9, True), (1.0, True), (1.01, False), (-0.1, False),
])  # fmt: skip
def test_a_tolerance_is_a_share_above_zero(
    tolerance: float, sound: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = sys.modules["commsim.study.calibrate.check"]
    monkeypatch.setattr(module, "read_tables", lambda *_: [])
    if sound:
        assert module.check("x.log", "dgx-h100", tolerance=tolerance).passed
        return
    with pytest.raises(ScenarioError, match="give a share above zero, up to 1"):
        module.check("x.log", "dgx-h100", tolerance=tolerance)


def log(ranks: int, nodes: int, devices: int = 0) -> NcclTests:
    listed: Any = ("a GPU",) * devices
    return NcclTests("all_reduce", (), listed, None, "x.log", ranks=ranks, nodes=nodes)


@pytest.mark.parametrize(
    ("ranks", "nodes", "devices", "on", "laid"),
    [
        (8, 2, 0, None, (8, 2)),  # its own word, whatever else is said
        (8, 2, 0, (1, 8), (8, 2)),
        (8, 0, 8, None, (8, 1)),
        (8, 0, 0, (2, 4), (8, 2)), (0, 0, 0, (2, 4), (8, 2)), (0, 0, 0, (3, 5), (15, 3)),
        (1, 1, 1, (2, 3), (6, 2)), (2, 2, 0, None, (2, 2)),
    ],
)  # fmt: skip
def test_ranks_and_nodes_of_a_log(
    ranks: int, nodes: int, devices: int, on: Any, laid: tuple[int, int]
) -> None:
    found = _placed(log(ranks, nodes, devices), on)
    assert (found.ranks, found.nodes) == laid


@pytest.mark.parametrize(
    ("ranks", "on", "told"),
    [(8, None, "does not list its devices"), (8, (3, 2), "are those of 8 ranks, and --on says 3x2"),
     (6, (2, 4), "are those of 6 ranks"), (1, None, "does not list its devices")],
)  # fmt: skip
def test_ranks_and_nodes_that_a_log_cannot_have(ranks: int, on: Any, told: str) -> None:
    with pytest.raises(TraceError, match=told):
        _placed(log(ranks, 0), on)


def test_rows_without_a_time_or_a_byte_are_left_out() -> None:
    """Ranks gather multiples of 16 bytes each: of 64 over eight ranks nothing is left."""

    def row(size: int, us: float) -> Any:
        return BenchedRow(
            size, size // 4, "float", "none", -1, BenchedTiming(us, 1.0, 1.0, 0), None
        )

    rows = row(64, 9.0), row(128, 0.0), row(256, 5.0)
    read = NcclTests("all_gather", rows, (), "2.20", "a/x.log", ranks=8)
    found = _table(read, (2, 4))
    assert found.sizes == (256,)
    assert found.seconds == pytest.approx([5e-6])
    assert (found.name, found.nodes, found.per_node) == ("x.log: all_gather", 2, 4)
    with pytest.raises(TraceError, match="has no row to go by"):
        _table(replace(read, rows=read.rows[:2]), (2, 4))


def test_a_table_as_it_is_kept_in_a_cluster_file() -> None:
    one = MeasuredTable("a.log: all_reduce", "all_reduce", "half", 2, 4, (8, 16),
                        np.array([1.23456789e-6, 2e-6]), "2.19", "process")  # fmt: skip
    assert one.written() == {
        "op": "all_reduce", "nodes": 2, "gpus_per_node": 4, "dtype": "half", "nccl": "2.19",
        "launch": "process", "source": "a.log", "bytes": [8, 16], "us": [1.23457, 2.0],
    }  # fmt: skip
    assert one.at([1]).written()["us"] == [2.0]


def test_what_was_broken_stands_in_the_sources_of_a_file() -> None:
    def faults(**overrides: Any) -> tuple[str, ...]:
        return BenchedMachine("m", {"preset": "x", "overrides": overrides}).faults

    assert faults() == BenchedMachine("m", {"preset": "x"}).faults == ()
    told = {"a": "found: PHB, in a.log", "b": "fitted: commsim", "c": "found: PHB, in b.log"}
    assert faults(pcie={"sources": told}, nic={"sources": {"x": "found: no GPUDirect"}}) == (
        "PHB", "no GPUDirect",
    )  # fmt: skip
    assert faults(nic={"gdr": False}, odd=3, gpu={"sources": None}) == ()
    bare = BenchedMachine("m", {"preset": "x", "overrides": None})
    assert bare.having({"nic": {"gdr": True}}).cluster["overrides"] == {"nic": {"gdr": True}}
    laid = BenchedMachine("m", {"preset": "x", "overrides": {"nic": {"a": 1}}})
    assert laid.having({"nic": {"gdr": True}}).cluster["overrides"]["nic"] == {"a": 1, "gdr": True}


def test_a_launch_is_that_of_the_release_that_ran_most_often() -> None:
    """Its host may say it; else the version that should run counts, then that of most tables."""

    def launch(*releases: str, version: str | None = None, **overrides: Any) -> float:
        library = LibrarySection("nccl")
        library = library.having(version=version) if version else library
        machine = BenchedMachine("m", {"preset": "dgx-a100", "overrides": overrides}, library)
        return machine.launch([table(8, nccl=one) for one in releases])

    old, new = usual_launch(old=True), usual_launch(old=False)
    assert old != new
    assert launch("2.11.4") == launch("2.11.4", "2.11.4", "2.27.3") == old
    assert launch("2.27.3") == launch("2.27.3", "2.27.3", "2.11.4") == launch("") == new
    assert launch("2.27.3", version="2.11.4") == old
    assert launch("2.11.4", host={"launch": "7us"}) == pytest.approx(7e-6)
