"""Results that were damaged or written by others: read as they are meant, or refused in a line."""

from __future__ import annotations

import json
import re
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
from helpers.leaves import HOSTILE, fault_of, leaves, replaced
from helpers.paths import TESTS

import commsim as cs
from commsim.cli.commands.compare_text import comparison_text
from commsim.errors import TraceError
from commsim.study.compare import compare
from commsim.study.compare.result_files import read_own_json

CLUSTER = {
    "preset": "dgx-h100",
    "prices": {"currency": "USD", "gpu_hour": {"price": 2, "source": "here", "date": "today"}},
}
WORK = {
    "model": {"preset": "gpt2-124m", "seq_len": 1024},
    "parallel": {"dp": 2, "pp": 4},
    "batch": {"global": 16, "micro": 1},
}


@cache
def result() -> dict[str, Any]:
    """A run that has every figure: a price, memory, links, a bubble."""
    told = cs.run({"cluster": CLUSTER, "workload": {"training": WORK}}).to_dict()
    return {key: each[:2] if isinstance(each, list) else each for key, each in told.items()}


@cache
def table() -> dict[str, Any]:
    return cs.bench(cs.Cluster.preset("dgx-h100"), "all_reduce", ["1MiB", "32MiB"]).to_dict()


def answered(folder: Path, sound: dict[str, Any], damaged: Any) -> Any:
    """Compare a sound file with a damaged one, as text and as a page, and the other way round."""
    good, bad = folder / "good.json", folder / "bad.json"
    if not good.exists():
        good.write_text(json.dumps(sound))
    bad.write_text(json.dumps(damaged))
    found = compare(good, bad)
    found.report(folder / "page.html")
    told = comparison_text(found.to_dict()) + (folder / "page.html").read_text()
    assert re.search(r"[ >](nan|inf)\b", told) is None
    return found.to_dict(), compare(bad, good).to_dict()


@pytest.mark.parametrize("sound", [result, table], ids=["run", "bench"])
def test_every_leaf_replaced_by_what_is_none(sound: Any, tmp_path: Path) -> None:
    data = sound()
    faults = [
        f"{path} = {value!r:.30}: {fault}"
        for path in leaves(data)
        for value in HOSTILE
        if (fault := fault_of(partial(answered, tmp_path, data, replaced(data, path, value))))
    ]
    assert faults == []


TEXT = '{"schema": 1, "step_time_s": 1.0, "breakdown": %s%s}'
TIMES = ("compute", "exposed_transfer", "exposed_copy", "waiting", "host", "idle")
BREAKDOWN = json.dumps({f"{part}_s": 1.0 for part in TIMES})
SOUND = TEXT % (BREAKDOWN, "")


@pytest.mark.parametrize(
    ("written", "told"),
    [
        (SOUND.encode("utf-16"), "is UTF-16, and UTF-8 is read"),
        (SOUND.encode("utf-16-le"), "is UTF-16, and UTF-8 is read"),
        ((TEXT % (BREAKDOWN, ', "headline": "\xe9"')).encode("latin-1"), "its text is not UTF-8"),
        ((TEXT % (BREAKDOWN, ', "notes": ' + "[" * 10**5 + "]" * 10**5)).encode(), "nested too"),
        ((TEXT % (BREAKDOWN, ', "mfu": NaN')).encode(), "invalid character"),
        ((TEXT % (BREAKDOWN, ', "mfu": -Infinity')).encode(), "invalid character"),
        (SOUND[:-9].encode(), "truncated"),
        ((TEXT % (BREAKDOWN, ', "ranks": [{"rank": 0}]')).encode(), "`multiplicity`"),
        ((TEXT % (BREAKDOWN, ', "step_time_s": 0, "tokens_per_s": 5')).encode(), "of no time"),
        ((TEXT % (BREAKDOWN, ', "mfu": 1e-300')).encode(), r"mfu is 1e-300"),
    ],
)
def test_what_is_wrong_with_a_result_is_said(written: bytes, told: str, tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    file.write_bytes(written)
    with pytest.raises(TraceError, match=told):
        compare(file, file)


def test_a_mark_of_utf_8_is_passed_over(tmp_path: Path) -> None:
    """As editors of Windows write it; in a log, too."""
    file, log = tmp_path / "x.json", tmp_path / "x.log"
    file.write_bytes(b"\xef\xbb\xbf" + SOUND.encode())
    assert compare(file, file).within
    log.write_bytes(b"\xef\xbb\xbf" + (TESTS / "data/nccl_tests/a100_8_v2.19.4.log").read_bytes())
    assert compare(log, log).within


def test_the_last_of_two_equal_keys_counts(tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    file.write_text(TEXT % (BREAKDOWN, ', "step_time_s": 3.0'))
    assert compare(file, file).to_dict()["sides"][0]["step_time_s"] == 3.0


def test_what_a_file_does_not_say_is_unknown() -> None:
    """A bench without its system is of nobody knows how many GPUs, a run's rank has a copy."""
    row = {"op": "all_reduce", "size": 8, "type": "float", "time_us": 1.0, "busbw_gbs": None,
           "algo": "ring", "proto": None}  # fmt: skip
    read = read_own_json(json.dumps({"schema": 1, "results": [row]}).encode(), "x")
    assert read is not None
    assert (read.kind, read.data["system"]) == ("bench", {"gpus": 0, "nodes": 0})
    assert read.data["results"][0]["chosen"] is False
    plain = read_own_json(SOUND.encode(), "x")
    assert plain is not None
    assert (plain.kind, plain.data["breakdown"]["comm_s"]) == ("result", 0.0)
    assert [plain.data[key] for key in ("ranks", "links", "collectives", "notes")] == [[]] * 4
    assert plain.data["mfu"] is plain.data["cost"] is plain.data["memory_gib"] is None
    measured = read_own_json((TEXT % (BREAKDOWN, ', "measured": null')).encode(), "x")
    assert measured is not None
    assert measured.kind == "replay"


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ('"mfu": 0', ""), ('"mfu": 1e30', ""), ('"mfu": 2e30', "mfu"), ('"mfu": -1', "mfu"),
        ('"mfu": 1e-30', ""), ('"mfu": 9e-31', "mfu is 9e-31"),
        ('"step_time_s": 1e12', ""), ('"step_time_s": 2e12', "step_time_s"),
        ('"ranks": [{"multiplicity": 1}]', ""), ('"ranks": [{"multiplicity": 0}]', "multiplicity"),
        ('"ranks": [{"multiplicity": 2147483648}]', ""),
        ('"ranks": [{"multiplicity": 2147483649}]', "multiplicity"),
        ('"step_time_s": 0, "tokens_per_s": 0', ""),
        ('"step_time_s": 0, "cost": {"per_1e9_tokens": 1}', "of no time"),
        ('"step_time_s": 0, "cost": {"energy_kwh_per_1e9_tokens": 1}', "of no time"),
        ('"step_time_s": 0, "cost": {"per_step": 1}', ""),
    ],
)  # fmt: skip
def test_figures_that_can_be_and_that_cannot(more: str, told: str) -> None:
    written = (TEXT % (BREAKDOWN, f", {more}")).encode()
    if not told:
        assert read_own_json(written, "x") is not None
        return
    with pytest.raises(TraceError, match=told):
        read_own_json(written, "x")


@pytest.mark.parametrize(("size", "sound"), [(0, True), (-1, False), (2**62, True),
                                             (2**62 + 1, False)])  # fmt: skip
def test_bytes_of_a_row_are_counted_from_nothing_to_4_eib(size: int, sound: bool) -> None:
    row = {"op": "all_reduce", "size": size, "type": "float", "time_us": 1.0, "busbw_gbs": None,
           "algo": "ring", "proto": None}  # fmt: skip
    written = json.dumps({"schema": 1, "results": [row]}).encode()
    if sound:
        assert read_own_json(written, "x") is not None
        return
    with pytest.raises(TraceError, match="size"):
        read_own_json(written, "x")


@pytest.mark.parametrize("written", ["{}", "[1]", '{"schema": 1}', '{"step_time_s": 1}', "{"])
def test_other_files_are_left_to_others(written: str) -> None:
    assert read_own_json(written.encode(), "x") is None
