"""Which stages and microbatches each schedule takes, from both sides of every limit."""

from __future__ import annotations

import re

import pytest

from commsim.errors import ScenarioError
from commsim.workload.schedules import SCHEDULES, catalogue, home_of, make_schedule, usual_schedule
from commsim.workload.schedules.catalogue import is_laid_out, title_of

ONE = ("naive", "gpipe", "1f1b", "zb_h1", "zb_h2", "zb_1p", "zb_2p")
TWO = ("zb_v", "v_half", "v_min", "dualpipe", "dualpipev")
LOOPED = ("interleaved_1f1b", "breadth_first")


def refused(name: str, p: int, m: int, virtual: int = 1) -> str:
    """Return what is said against a schedule, "" if nothing is."""
    try:
        make_schedule(name, p, m, where="s", virtual=virtual)
    except ScenarioError as error:
        return str(error)
    return ""


def test_every_schedule_is_one_of_these() -> None:
    assert set(SCHEDULES) >= {*ONE, *TWO, *LOOPED}
    assert [name for name in SCHEDULES if is_laid_out(name)] == [
        "zb_1p", "zb_2p", "zb_v", "v_half", "v_min",
    ]  # fmt: skip
    assert [title_of(name) for name in (*TWO, "zb_2p", "none.csv")] == [
        "ZB-V", "V-Half", "V-Min", "DualPipe", "DualPipeV", "ZB-2p", "none.csv",
    ]  # fmt: skip
    assert not is_laid_out("none.csv")


@pytest.mark.parametrize("name", ONE)
def test_one_stage_per_device(name: str) -> None:
    assert home_of(name, 3, 1, where="s") == (0, 1, 2)
    said = f"s: {name} has 1 stage per device, but virtual_stages is 2"
    with pytest.raises(ScenarioError, match=re.escape(said)):
        home_of(name, 3, 2, where="s")


@pytest.mark.parametrize("name", TWO)
def test_two_stages_per_device_in_a_v_named_or_not(name: str) -> None:
    for virtual in (1, 2):
        assert home_of(name, 3, virtual, where="s") == (0, 1, 2, 2, 1, 0)
    said = f"s: {name} has 2 stages per device, but virtual_stages is 3"
    with pytest.raises(ScenarioError, match=re.escape(said)):
        home_of(name, 3, 3, where="s")


def test_looped_schedules_take_as_many_rounds_as_asked_for() -> None:
    for virtual in (1, 2, 3):
        assert home_of("breadth_first", 2, virtual, where="s") == (0, 1) * virtual
    for virtual in (2, 3):
        assert home_of("interleaved_1f1b", 2, virtual, where="s") == (0, 1) * virtual
    said = r"s: interleaved_1f1b needs virtual_stages above 1\. With one it is 1f1b"
    with pytest.raises(ScenarioError, match=said):
        home_of("interleaved_1f1b", 2, 1, where="s")
    assert [usual_schedule(virtual) for virtual in (1, 2, 3)] == ["1f1b", *LOOPED[:1] * 2]


def test_each_schedule_needs_its_microbatches() -> None:
    for m in (4, 8, 12):
        assert not refused("interleaved_1f1b", 4, m, 2)
    for m in (1, 5, 7, 10):
        assert "do not divide by 4 stages. Give a multiple of 4" in refused(
            "interleaved_1f1b", 4, m, 2
        )
    for p, m in ((4, 8), (4, 10), (2, 4)):
        assert not refused("dualpipe", p, m)
    assert "needs at least 2 x 4 devices = 8 microbatches, not 7" in refused("dualpipe", 4, 7)
    for p, m in ((4, 9), (3, 6), (3, 8), (3, 9)):
        assert f"{p} devices and {m} microbatches must both be even" in refused("dualpipe", p, m)
    for p, m in ((3, 6), (3, 7), (4, 8)):
        assert not refused("dualpipev", p, m)
    assert "needs at least 2 x 3 devices = 6 microbatches, not 5" in refused("dualpipev", 3, 5)
    for name in (*ONE, "breadth_first", *TWO[:3]):
        assert not refused(name, 3, 1)


def test_no_more_stages_and_microbatches_than_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(catalogue, "_MOST_CELLS", 20)
    monkeypatch.setattr(catalogue, "check_size", lambda count, *_: asked.append(count))
    assert home_of("breadth_first", 10, 2, where="s") == (*range(10), *range(10))
    with pytest.raises(ScenarioError, match="s: 7 x 3 stages are more than commsim simulates"):
        home_of("breadth_first", 7, 3, where="s")
    assert not refused("gpipe", 4, 5)
    assert not refused("breadth_first", 2, 5, 2)
    assert asked == [40, 40]  # forwards and backwards
    assert "s: 3 stages x 7 microbatches are more" in refused("gpipe", 3, 7)


def test_the_share_that_a_weight_gradient_keeps_is_all_unless_given() -> None:
    """With nothing kept, an input gradient makes room for the next forward at once."""
    whole = make_schedule("zb_1p", 2, 6, where="s").actions
    assert make_schedule("zb_1p", 2, 6, where="s", kept=1.0).actions == whole
    assert make_schedule("1f1b", 2, 6, where="s").home == (0, 1)
