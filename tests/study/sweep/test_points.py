"""Which points are run, what is heard of them, and what is said of a sweep: by hand."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from commsim.study.sweep.axes import SweepAxis
from commsim.study.sweep.points import Outcome, SweepPoint, _digest, _files
from commsim.study.sweep.store import Store
from commsim.study.sweep.sweep import Sweep, _outcomes, _reporting


def swept(axes: dict[str, list[str]], steps: list[float | None], **beside: str) -> Sweep:
    """A sweep of all combinations of two axes or one; a point without a step could not run."""
    made = tuple(SweepAxis(path, tuple(own), beside.get(path, "")) for path, own in axes.items())
    leaders = [axis for axis in made if not axis.beside]
    settings: list[tuple[tuple[str, str], ...]] = [()]
    for axis in leaders:
        near = [axis, *(one for one in made if one.beside == axis.path)]
        settings = [
            (*so_far, *((one.path, one.values[at]) for one in near))
            for so_far in settings
            for at in range(len(axis.values))
        ]
    results = tuple(None if step is None else {"step_time_s": step} for step in steps)
    errors = tuple("wrong" if step is None else None for step in steps)
    return Sweep("x", made, tuple(settings), results, errors, ("",) * len(steps), len(steps))


def test_a_sweep_in_a_line_and_its_length() -> None:
    found = swept({"a": ["1", "2", "3"]}, [1.0, None, 1.0])
    assert repr(found) == "Sweep('x', 3 points, 1 failed)"
    assert (len(found), found.paged, found.to_dict()["schema"]) == (3, 0, 1)


@pytest.mark.parametrize(
    ("steps", "unmoved"),
    [
        ([1.0, 1.0, 2.0, 2.0], ["b"]), ([1.0, 2.0, 1.0, 2.0], ["a"]), ([1.0] * 4, ["a", "b"]),
        ([1.0, 1.0, 2.0, 3.0], []), ([1.0, 2.0, 3.0, 4.0], []),
        ([1.0, 1.0, 2.0, None], ["b"]),  # the pair that is there says it
        ([1.0, None, None, 1.0], []),  # no two points differ in one setting alone
        ([None] * 4, []),
    ],
)  # fmt: skip
def test_settings_whose_every_value_gives_the_same_step(
    steps: list[float | None], unmoved: list[str]
) -> None:
    """Points are (a, b) = (1, 1), (1, 2), (2, 1), (2, 2)."""
    assert swept({"a": ["1", "2"], "b": ["1", "2"]}, steps).unmoved() == unmoved


def test_settings_side_by_side_move_as_one() -> None:
    axes = {"a": ["1", "2"], "b": ["8", "9"]}
    assert swept(axes, [1.0, 1.0], b="a").unmoved() == ["a"]
    assert swept(axes, [1.0, 2.0], b="a").unmoved() == []


DP = "workload.training.parallel.dp"


@pytest.mark.parametrize(
    ("path", "errors", "told"),
    [
        ("tp", ["tp=1 × dp=4 = 4 of 8: dp=8 would use them all", None],
         f"tp=1,2; {DP}=8,4"),
        ("tp", ["dp=8 would use them all", None], f"tp=1,2; {DP}=8,1"),
        ("tp", [None, "dp=4 =: dp=2 would use them all"], f"tp=1,2; {DP}=4,2"),
        ("tp", ["another", "dp=2 would use them all"], f"tp=2; {DP}=2"),
        ("tp", ["another", None], ""), ("tp", [None, None], ""),
        (DP, ["dp=8 would use them all", None], ""),
    ],
)  # fmt: skip
def test_replicas_that_follow_what_was_varied(
    path: str, errors: list[str | None], told: str
) -> None:
    settings = tuple(((path, value),) for value in "12")
    found = Sweep("x", (SweepAxis(path, ("1", "2")),), settings, (None,) * 2, tuple(errors),
                  ("", ""), 2)  # fmt: skip
    assert found.replicas_beside() == told
    two = (*found.axes, SweepAxis("b", ("1",)))
    other = Sweep("x", two, settings, (None,) * 2, tuple(errors), ("", ""), 2)
    assert other.replicas_beside() == ""


def point(key: str, report: str = "") -> SweepPoint:
    return SweepPoint((), {}, "x", ".", key, report)


def test_what_is_run_and_what_is_heard_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is kept is run again only for a page that is not there, and not if it could not run."""
    ran: list[str] = []
    heard: list[tuple[int, int]] = []

    def run(points: list[SweepPoint], executor: str) -> Any:
        for one in points:
            ran.append(one.key)
            yield Outcome(one.key, {"new": True}, None)

    monkeypatch.setattr(sys.modules["commsim.study.sweep.sweep"], "run_points", run)
    path, page = tmp_path / "r.sqlite", tmp_path / "page.html"
    page.write_text("")
    with Store(path) as store:
        for key in ("plain", "paged", "unpaged"):
            store.put(Outcome(key, {"new": False}, None))
        store.put(Outcome("wrong", None, "an error"))
    gone = str(tmp_path / "gone.html")
    points = [point("plain"), point("paged", str(page)), point("unpaged", gone),
              point("wrong", gone), point("new", gone), point("new", gone)]  # fmt: skip
    known, count, paged = _outcomes(points, "serial", path, lambda *of: heard.append(of))
    assert ran == ["unpaged", "new"]
    assert (count, paged) == (2, 1)
    assert heard == [(3, 5), (4, 5), (5, 5)]
    assert {key for key, one in known.items() if one.result == {"new": True}} == set(ran)
    assert known["wrong"].error == "an error"


def test_a_page_is_named_by_sixteen_letters_of_the_key(tmp_path: Path) -> None:
    key = "0123456789abcdef0123"
    found = _reporting(point(key), tmp_path / "pages")
    assert found.report == str(tmp_path / "pages/0123456789abcdef.html")
    assert _reporting(point(key), None).report == ""


def test_files_that_a_scenario_names(tmp_path: Path) -> None:
    for name in ("a.xml", "b.longname", "c.toolongname", "plain"):
        (tmp_path / name).write_text(name)
    data = {"x": ["a.xml", {"y": "b.longname"}], "z": "c.toolongname", "n": 3,
            "gone": "gone.xml", "bare": "plain", "odd": "a\0.xml", "long": "x" * 5000 + ".xml",
            "text": "see a.xml there"}  # fmt: skip
    assert [path.name for path in _files(data, tmp_path)] == ["a.xml", "b.longname"]
    inside = "./" * 509 + "a.xml"  # 1,023 characters, and one more
    assert [len(list(_files(text, tmp_path))) for text in (inside, f".//{inside[2:]}")] == [1, 0]


def test_a_file_is_hashed_up_to_two_gigabytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole blocks of a MiB, as long as what was read is below the bound."""
    assert sys.modules["commsim.study.sweep.points"]._MOST_BYTES == 2**31
    monkeypatch.setattr(sys.modules["commsim.study.sweep.points"], "_MOST_BYTES", 2**21)
    made = []
    for number, ends in enumerate(("", "x", "y")):
        (tmp_path / str(number)).write_bytes(b"\0" * 2**21 + ends.encode())
        made.append(_digest(tmp_path / str(number), 0, 0))
    assert made[0] == made[1] == made[2]
    (tmp_path / "short").write_bytes(b"\0" * (2**21 - 1) + b"x")
    assert _digest(tmp_path / "short", 0, 0) != made[0]
