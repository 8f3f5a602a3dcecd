"""Planted faults are found, fitted figures come back, and the file is a cluster like any other."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.paths import TESTS
from helpers.share import later
from msgspec.structs import replace

import commsim as cs
from commsim.cli.main import call
from commsim.errors import ScenarioError, TraceError
from commsim.study.calibrate.calibrate import fitted
from commsim.study.calibrate.factors import factors_of, overrides_of
from commsim.study.calibrate.faults import diagnose
from commsim.study.calibrate.fit import fit, predicted_ratios
from commsim.study.calibrate.out_of_line import slow_figures
from commsim.study.calibrate.predicted import BenchedMachine, MeasuredTable, read_tables
from commsim.study.calibrate.shrink import fit_that_carries

A100 = TESTS / "data" / "nccl_tests" / "a100_8_v2.19.4.log"
GPUS = 4  # of a node: half of them are diagnosed in a fraction of the time
SIZES = tuple(2**power for power in range(12, 31, 2))


def measured(
    machine: BenchedMachine,
    *,
    ops: tuple[str, ...] = ("all_reduce",),
    nodes: int = 2,
    seed: int = 1,
) -> tuple[MeasuredTable, ...]:
    """Return what nccl-tests would measure on a machine, 4 % of noise in each row."""
    noise = np.random.default_rng(seed)
    found = []
    for op in ops:
        table = MeasuredTable(op, op, "float", nodes, GPUS, SIZES, np.ones(len(SIZES)))
        seconds = machine.seconds(table) * np.exp(noise.normal(0, 0.04, len(SIZES)))
        found.append(MeasuredTable(op, op, "float", nodes, GPUS, SIZES, seconds))
    return tuple(found)


def written(tables: Iterable[MeasuredTable], log: Path, *, nodes: int) -> Path:
    """Write what was measured as a log in JSON; return its path."""
    rows = [
        {"op": one.op, "size": size, "type": "float", "time_us": seconds * 1e6}
        for one in tables
        for size, seconds in zip(one.sizes, one.seconds.tolist(), strict=True)
    ]
    log.write_text(json.dumps({"system": {"gpus": nodes * GPUS, "nodes": nodes}, "results": rows}))
    return log


# HGX nodes with a PCIe switch to each two GPUs and NICs.
NODES = BenchedMachine(
    "nodes",
    {
        "preset": "aws-p6-b200",
        "overrides": {"gpu": {"count": GPUS}, "nic": {"count": GPUS, "transport": "roce"}},
    },
)
PLANTED: Mapping[str, tuple[Mapping[str, Any], Mapping[str, Any]]] = {
    "NIC at half rate": ({"nic": {"bandwidth": "200Gbps"}}, {}),
    "no GPUDirect": ({"nic": {"gdr": False}}, {}),
    "TCP instead of RDMA": ({"nic": {"transport": "tcp", "gdr": False}}, {}),
    "PHB": ({"pcie": {"switches": []}}, {}),
    "no NVLink": ({}, {"env": {"NCCL_P2P_DISABLE": "1"}}),
    "Simple alone": ({}, {"env": {"NCCL_PROTO": "Simple"}}),
    "NCCL 2.12": ({}, {"version": "2.12"}),
}


@pytest.mark.parametrize(
    "name", [later(name) if name not in ("NIC at half rate", "NCCL 2.12") else name
             for name in PLANTED],
)  # fmt: skip
def test_a_planted_fault_is_found(name: str) -> None:
    overrides, library = PLANTED[name]
    found = diagnose(NODES, measured(NODES.having(overrides, **library)))
    assert found is not None
    assert name in (found.fault.name, *found.also)
    assert found.after < found.before


def test_a_machine_as_it_should_be_has_no_fault() -> None:
    assert diagnose(NODES, measured(NODES)) is None


def test_a_machine_at_half_speed_is_no_healthy_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], calibrated: cs.Calibration
) -> None:
    """All times twice: no fault explains them, and the fit has to take half of NVLink away."""
    log = tmp_path / "slow.log"
    lines = []
    for line in A100.read_text().splitlines():
        words = line.split()
        if len(words) > 9 and words[0].isdecimal():
            words[5], words[9] = f"{2 * float(words[5])}", f"{2 * float(words[9])}"
        lines.append(" ".join(words) if words and words[0].isdecimal() else line)
    log.write_text("\n".join(lines))
    assert call(["calibrate", str(log), "--cluster", "dgx-a100"]) == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert first.startswith("out of line: nvlink.efficiency is 0.")
    assert calibrated.out_of_line == ()


def test_an_op_slower_than_the_others_stays_out_of_the_file_and_fails_its_check(
    tmp_path: Path,
) -> None:
    ops = ("all_reduce", "all_gather", "reduce_scatter")
    tables = [
        replace(one, seconds=one.seconds / (0.7 if one.op == "all_gather" else 1))
        for one in measured(NODES, ops=ops, nodes=1)
    ]
    found = fitted(NODES, tables)
    (told,) = found.out_of_line
    assert told.startswith("all_gather takes 1.")
    assert {one["op"] for one in found.cluster["measured"]} == set(ops) - {"all_gather"}
    found.save(tmp_path / "mine.yaml")
    log = written(tables, tmp_path / "bad.json", nodes=1)
    failed = {
        b.table.split()[-1] for b in cs.check(log, tmp_path / "mine.yaml").bands if not b.passed
    }
    assert failed == {"all_gather"}


def test_a_share_is_out_of_line_from_below_eight_tenths() -> None:
    factors = factors_of(NODES, measured(NODES))
    for x, told in ((0.76, True), (0.80, False), (1.3, False)):
        moved = np.log([x if factor.path == "nic.efficiency" else 1.0 for factor in factors])
        assert bool(list(slow_figures(factors, moved))) == told


@pytest.mark.long
def test_a_link_at_seven_tenths_is_out_of_line_and_noise_is_not() -> None:
    """5 % of noise on two nodes: a NIC at 0.7 of its rate, the machine as it should be."""
    slow = NODES.having({"nic": {"efficiency": 0.7 * 0.97}})
    said = fitted(NODES, measured(slow, ops=("all_gather", "all_reduce"))).out_of_line
    assert any(told.startswith("nic.efficiency is 0.7") for told in said), said
    assert fitted(NODES, measured(NODES, ops=("all_gather", "all_reduce"))).out_of_line == ()


@pytest.mark.long
def test_an_op_at_nine_tenths_of_its_speed_is_not_out_of_line() -> None:
    """That is for `check` and its tolerance: sites' own ops differ by more."""
    ops = ("all_reduce", "all_gather", "reduce_scatter")
    tables = [
        replace(one, seconds=one.seconds / (0.9 if one.op == "all_gather" else 1))
        for one in measured(NODES, ops=ops, nodes=1)
    ]
    assert fitted(NODES, tables).out_of_line == ()


def test_a_broken_machines_times_are_no_yardstick(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They stay out of the file, and a check against it says what is broken there."""
    tables = measured(NODES.having(PLANTED["NIC at half rate"][0]))
    found = fitted(NODES, tables)
    assert found.finding is not None
    assert found.cluster["measured"] == []
    found.save(tmp_path / "mine.yaml")
    log = written(tables, tmp_path / "today.json", nodes=2)
    assert cs.check(log, tmp_path / "mine.yaml").faults == (found.finding.fault.name,)
    call(["check", str(log), "--cluster", str(tmp_path / "mine.yaml")])
    assert f"a broken machine ({found.finding.fault.name})" in capsys.readouterr().out
    assert cs.check(log, "aws-p6-b200").faults == ()


def test_figures_that_were_planted_come_back() -> None:
    truth = {"host": {"launch": "12us"}, "nic": {"efficiency": 0.6}}
    tables = measured(NODES.having(truth), ops=("all_reduce", "all_gather"))
    factors = factors_of(NODES, tables)
    x = fit(tables, factors, predicted_ratios(NODES, tables, factors))
    known = dict(zip((factor.path for factor in factors), np.exp(x), strict=True))
    # A launch of 12 us instead of 6.4 is shared with the NICs' latency: small sizes tell no more.
    assert known["host.launch"] * known["nic.latency"] > 1.2
    assert known["nic.efficiency"] * 0.97 == pytest.approx(0.6, rel=0.1)
    made = NODES.having(overrides_of(factors, x))
    ratios = np.concatenate([np.log(made.seconds(one) / one.seconds) for one in tables])
    assert np.sqrt(np.mean(ratios**2)) < 0.07  # 0.04 of it is noise


@pytest.mark.parametrize("version", ["2.8", "2.27"])
def test_figures_as_given_predict_what_the_preset_does(version: str) -> None:
    machine = NODES.having({}, version=version)
    (table,) = measured(machine, nodes=1)
    factors = factors_of(machine, (table,))
    written = machine.having(overrides_of(factors, np.zeros(len(factors))))
    np.testing.assert_allclose(written.seconds(table), machine.seconds(table), rtol=1e-3)


def test_ops_that_contradict_each_other_move_nothing() -> None:
    slow, fast = measured(NODES, ops=("all_gather", "reduce_scatter"))
    both = (replace(slow, seconds=slow.seconds * 1.3), replace(fast, seconds=fast.seconds / 1.3))
    assert not fit_that_carries(NODES, both, factors_of(NODES, both)).any()
    same = (replace(slow, seconds=slow.seconds * 1.3), replace(fast, seconds=fast.seconds * 1.3))
    x = fit_that_carries(NODES, same, factors_of(NODES, same))
    made = NODES.having(overrides_of(factors_of(NODES, same), x))
    ratios = np.concatenate([made.seconds(one) / one.seconds for one in same])
    assert np.median(np.abs(ratios - 1)) < 0.1


@pytest.mark.parametrize(("after", "moves"), [(0.02, True), (0.04, False)])
def test_figures_stay_as_given_if_ops_left_out_get_worse(
    after: float, moves: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = measured(NODES.having({"nic": {"efficiency": 0.6}}), ops=("all_reduce", "all_gather"))
    module = importlib.import_module("commsim.study.calibrate.calibrate")
    monkeypatch.setattr(module, "diagnose", lambda *_: None)
    monkeypatch.setattr(module, "_left_out", lambda *_: {"ops": (0.03, after)})
    found = fitted(NODES, tables)
    assert any(times != 1.0 for _, times in found.factors) is moves
    assert any("stay as given" in note for note in found.notes) is not moves


def param_log(table: MeasuredTable, ranks: int) -> str:
    """Return what PARAM's comms benchmark prints of a table."""
    lines = ["\tCOMMS-RES-... total-size (B) num-elements Latency(us):p50 ..."]
    for size, seconds in zip(table.sizes, table.seconds.tolist(), strict=True):
        us = f"{seconds * 1e6:.1f}"
        rate = size / seconds / 1e9
        figures = [size, size // 4, us, us, us, us, us, f"{rate:.3f}"]
        figures += [f"{rate * 2 * (ranks - 1) / ranks:.3f}", "0.0"]
        lines.append("0: \tCOMMS-RES-all_reduce-float32" + "".join(f"{one:>18}" for one in figures))
    return "\n".join(lines)


def test_what_param_prints_is_read_with_the_nodes_that_the_user_says(tmp_path: Path) -> None:
    log = tmp_path / "comms.txt"
    (table,) = measured(NODES)
    log.write_text(param_log(table, 2 * GPUS))
    (read,) = read_tables([log], (2, GPUS))
    assert (read.op, read.dtype, read.nodes, read.per_node) == ("all_reduce", "float", 2, GPUS)
    assert read.sizes == table.sizes
    np.testing.assert_allclose(read.seconds, table.seconds, rtol=0.01)
    with pytest.raises(TraceError, match="--on 2x8 is 2 nodes"):
        read_tables([log])
    with pytest.raises(TraceError, match=f"are those of {2 * GPUS} ranks, and --on says 1x{GPUS}"):
        read_tables([log], (1, GPUS))
    command = ["check", str(log), "--cluster", "aws-p6-b200", "--tolerance", "100%"]
    assert call([*command, "--on", f"2x{GPUS}", "-q"]) == 0
    assert call([*command, "--on", "2*8", "-q"]) == 2


def test_times_of_ones_own_are_read_in_the_form_of_bench(tmp_path: Path) -> None:
    path = tmp_path / "own.json"
    rows = [{"op": "all_reduce", "size": size, "time_us": 20.5} for size in (1024, 2**20)]
    path.write_text(json.dumps({"system": {"gpus": 16, "nodes": 2}, "results": rows}))
    (read,) = read_tables([path])
    assert (read.nodes, read.per_node, read.nccl, read.sizes) == (2, 8, "", (1024, 2**20))
    assert read.seconds.tolist() == pytest.approx([20.5e-6] * 2)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("COMMS-RES-all_reduce-float32 1048576 262144 103.5", "no whole line"),
        ("COMMS-RES-pt2pt-float32 8 2 1.0 1.0 1.0 1.0 1.0 1.0 1.0", "only pt2pt of float32"),
        ("COMMS-RES-all_reduce-float32 8 2 1.0.0 1.0 1.0 1.0 1.0 1.0 1.0", "is broken"),
        ("COMMS-RES-all_reduce-float32 8.5 2 1.0 1.0 1.0 1.0 1.0 1.0 1.0", "is broken"),
    ],
)
def test_broken_output_of_param_is_named(text: str, told: str, tmp_path: Path) -> None:
    log = tmp_path / "comms.txt"
    log.write_text(text)
    with pytest.raises(TraceError, match=told):
        read_tables([log], (1, 8))


@pytest.fixture(scope="module")
def calibrated() -> cs.Calibration:
    """What a log of 8 A100 says of their preset."""
    return cs.calibrate(A100, "dgx-a100")


@pytest.fixture(scope="module")
def mine(calibrated: cs.Calibration, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The cluster file that the log gives; the guide to acceptance has it from the command."""
    path = tmp_path_factory.mktemp("fitted") / "mine.yaml"
    calibrated.save(path)
    return path


def test_a_log_becomes_a_cluster_that_commands_take(mine: Path) -> None:
    assert call(["topo", str(mine), "-q"]) == 0
    # From 16 MiB this host is 33 % slower than the preset.
    assert call(["check", str(A100), "--cluster", str(mine), "--tolerance", "1%"]) == 0
    assert call(["check", str(A100), "--cluster", "dgx-a100", "--tolerance", "0.3"]) == 1
    text = mine.read_text()
    assert "fitted: commsim calibrate a100_8_v2.19.4.log" in text


def test_errors_after_are_said_on_what_was_left_out(calibrated: cs.Calibration) -> None:
    found = calibrated
    assert found.finding is None
    before, after = found.left_out["sizes"]
    assert after < 0.5 * before
    assert found.after < 0.5 * found.before
    data = found.to_dict()
    assert [one["path"] for one in data["factors"]] == [
        "host.launch", "nvlink.efficiency", "nvlink.latency",
    ]  # fmt: skip
    (figure,) = found.figures()
    assert [trace.name for trace in figure.data] == ["measured", "as given", "fitted"]
    assert "one node" in " ".join(found.notes)


def test_the_wrong_release_is_named() -> None:
    found = cs.calibrate(A100, "dgx-a100", version="2.27")
    assert any("NCCL 2.19 ran, and 2.27 should have" in note for note in found.notes)


@pytest.mark.parametrize(
    ("logs", "cluster", "told"),
    [
        ("nothing.log", "dgx-a100", "there is no such file"),
        (str(A100), "dgx-a10", "no such preset"),
        (str(A100), "alps", "GPUs on a node"),
    ],
)
def test_what_cannot_be_is_refused(logs: str, cluster: str, told: str) -> None:
    with pytest.raises((ScenarioError, TraceError), match=told):
        cs.calibrate(logs, cluster)


def test_a_table_without_devices_is_refused(tmp_path: Path) -> None:
    log = tmp_path / "bare.log"
    rows = [line for line in A100.read_text().splitlines() if "float     sum" in line][:5]
    log.write_text("\n".join(["# Collective test starting: all_reduce_perf", *rows]))
    with pytest.raises(TraceError, match="does not list its devices"):
        read_tables([log])


def slowed(log: Path, times: float, *, least: int) -> str:
    """Return a log whose rows from `least` bytes on took so many times as long."""
    lines = []
    for line in log.read_text().splitlines():
        cells = line.split()
        if cells and cells[0].isdigit() and int(cells[0]) >= least:
            for at in (5, 9):  # out of place, in place
                line = line.replace(f" {cells[at]} ", f" {float(cells[at]) * times:.2f} ", 1)
        lines.append(line)
    return "\n".join(lines)


def test_a_log_passes_against_the_file_made_of_it_and_a_slower_one_fails(
    mine: Path, tmp_path: Path
) -> None:
    worse = tmp_path / "worse.log"
    own = cs.check(A100, mine, tolerance=0.001)
    assert own.passed
    assert {band.against for band in own.bands} == {"measured"}
    worse.write_text(slowed(A100, 1.2, least=2**24))
    found = cs.check(worse, mine, tolerance=0.1)
    assert [band.passed for band in found.bands] == [True, True, False]
    assert found.bands[-1].slower == pytest.approx(0.2, abs=1e-3)


def test_what_was_not_measured_is_held_against_the_prediction(mine: Path, tmp_path: Path) -> None:
    other = tmp_path / "gather.log"
    other.write_text(A100.read_text().replace("all_reduce_perf", "all_gather_perf"))
    (table,) = read_tables([other])
    assert table.op == "all_gather"
    assert {band.against for band in cs.check(other, mine).bands} == {"predicted"}


def test_measured_columns_that_do_not_belong_together_are_named(tmp_path: Path) -> None:
    mine = tmp_path / "mine.yaml"
    table = "{op: all_reduce, nodes: 1, gpus_per_node: 8, bytes: [8, 16], us: [%s]}"
    for us, told in (("1.0", r"measured\.0: has 2 bytes and 1 us"), ("1.0, 0", "above zero")):
        mine.write_text(f"preset: dgx-a100\nmeasured: [{table % us}]\n")
        with pytest.raises(ScenarioError, match=told):
            cs.check(A100, mine)
