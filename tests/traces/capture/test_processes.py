"""Which ranks of a program are captured, and what is said of processes that fail."""

from __future__ import annotations

import inspect
import signal
from collections.abc import Iterable
from pathlib import Path

import pytest

from commsim.errors import ScenarioError, TraceError
from commsim.traces.capture import processes
from commsim.traces.capture.processes import _all_roles, _check, _check_end, _ended, capture
from commsim.traces.capture.records import (
    CapturedCall,
    CapturedMemory,
    CapturedMessage,
    GroupMade,
    Recording,
    reason_file,
)


def test_the_second_step_of_nodes_of_eight_is_captured() -> None:
    """The first step is not steady."""
    for function, names in ((capture, ("gpus_per_node", "step")),
                            (processes.record_ranks, ("per_node", "step"))):  # fmt: skip
        given = inspect.signature(function).parameters
        assert [given[name].default for name in names] == [8, 2]


@pytest.mark.parametrize(
    ("world", "ranks", "step", "says"),
    [
        (1, (0,), 1, ""), (4, (0, 3), 2, ""), (0, (), 2, "--world-size 0"), (4, (), 0, "--step 0"),
        (4, (0, 4), 2, "4 is not one of the ranks 0 to 3"), (4, (-1,), 2, "-1 is not one of"),
    ],
)  # fmt: skip
def test_what_is_asked_for_is_checked(
    world: int, ranks: tuple[int, ...], step: int, says: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    script = tmp_path / "train.py"
    with pytest.raises(ScenarioError, match="there is no such script"):
        _check(script, world, ranks, step)
    script.touch()
    monkeypatch.setattr(processes, "find_spec", lambda name: object())
    if says:
        with pytest.raises(ScenarioError, match=says):
            _check(script, world, ranks, step)
    else:
        _check(script, world, ranks, step)
        monkeypatch.setattr(processes, "find_spec", lambda name: None)
        with pytest.raises(TraceError, match="pip install 'commsim\\[torch\\]'"):
            _check(script, world, ranks, step)


GROUPS = (GroupMade((0, 2, 4), "pp"), GroupMade((1, 3, 5), "pp"))


class Program:
    """Ranks of which each sends to the next of its three stages; `odd` ones call more."""

    def __init__(self, *odd: int, groups: tuple[GroupMade, ...] = GROUPS, world: int = 6) -> None:
        self.odd, self.groups, self.world = odd, groups, world
        self.asked: list[list[int]] = []

    def record(self, ranks: Iterable[int]) -> dict[int, Recording]:
        self.asked.append(list(ranks))
        return {rank: self.recording(rank) for rank in self.asked[-1]}

    def recording(self, rank: int) -> Recording:
        mine = [at for at, group in enumerate(self.groups) if rank in group.ranks]
        messages = tuple(
            CapturedMessage(True, self.groups[at].ranks[0], at, 8, 0, 1) for at in mine
        )
        more = (CapturedCall("barrier", mine[0], 0, 0, 2, True),) if rank in self.odd else ()
        return Recording(rank, self.world, "2.9", self.groups, ("compute",), (*messages, *more),
                         CapturedMemory())  # fmt: skip


def test_who_exchanges_messages_is_captured_and_the_last_rank_checked() -> None:
    program, said = Program(), list[str]()
    assert sorted(_all_roles(program.record, 6, said.append)) == [0, 2, 4]
    assert program.asked == [[0], [2, 4], [5]]
    assert said == ["rank 5 does the same as rank 4, as it should."]


def test_a_last_rank_that_differs_is_said() -> None:
    with pytest.raises(TraceError, match=r"ranks 4 and 5 were taken to be equivalent, and are not"):
        _all_roles(Program(5).record, 6, lambda text: None)


def test_a_last_rank_that_is_captured_anyway_needs_no_check() -> None:
    program = Program(groups=(GroupMade((0, 1), "pp"),), world=2)
    assert sorted(_all_roles(program.record, 2, lambda text: None)) == [0, 1]
    assert program.asked == [[0], [1]]


@pytest.mark.parametrize(("ranks", "fits"), [(128, True), (129, False)])
def test_too_many_parts_are_not_captured_one_by_one(ranks: int, fits: bool) -> None:
    program = Program(groups=(GroupMade(tuple(range(ranks)), "pp"),), world=ranks)
    if fits:
        assert len(_all_roles(program.record, ranks, lambda text: None)) == ranks
    else:
        with pytest.raises(TraceError, match="129 ranks exchange messages"):
            _all_roles(program.record, ranks, lambda text: None)


def test_how_a_process_ended() -> None:
    assert (_ended(0), _ended(3)) == ("with code 0", "with code 3")
    assert _ended(-signal.SIGSEGV) == "by SIGSEGV"
    assert _ended(-signal.SIGKILL) == "by SIGKILL, maybe for want of memory"
    assert _ended(-250) == "by signal 250"


def test_a_process_that_failed_says_why(tmp_path: Path) -> None:
    _check_end(2, 0, tmp_path)
    log = tmp_path / "2.log"
    log.write_text("")
    with pytest.raises(TraceError, match=r"^rank 2: its process ended with code 1\.$"):
        _check_end(2, 1, tmp_path)
    log.write_text("first\n" + "x" * 301 + "\n\n")
    with pytest.raises(TraceError, match=r"ended with code 1: x{300}$"):
        _check_end(2, 1, tmp_path)
    reason_file(str(tmp_path / "2.json")).write_text("line 3: no")
    with pytest.raises(TraceError, match=r"^rank 2: line 3: no$"):
        _check_end(2, 1, tmp_path)
