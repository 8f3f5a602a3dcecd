"""
Schedules as torch.distributed.pipelining writes them: CSV, one row per rank.

A cell is an action, "0F0", "3I1", "3W1", "2B1" (stage, work, microbatch), a pair
"(1F4;2B0)OVERLAP_F_B", or empty for a time step without work. Cells that only move data
(SEND_F, RECV_B, UNSHARD, REDUCE_GRAD, ...) say what commsim works out itself, and are left out.
The stages form one pipe, in order of their numbers; a stage is on the rank that runs it.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from pathlib import Path

from commsim.errors import ScenarioError
from commsim.input_files import STDIN, file_problem, is_stream, readable
from commsim.workload.schedules.actions import Action, Pair, Schedule, Work
from commsim.workload.schedules.order import check_schedule

__all__ = [
    "check_virtual", "holds_schedule", "is_schedule_file", "load_schedule", "read_schedule",
    "write_schedule",
]  # fmt: skip

_ACTION = re.compile(r"(\d{1,6})([FIBW])(\d{1,6})")
_PAIR = re.compile(r"\((\d{1,6}F\d{1,6});(\d{1,6}B\d{1,6})\)OVERLAP_F_B")
_MOVES = re.compile(r"-?\d*(UNSHARD|RESHARD|(WAIT_)?REDUCE_GRAD|(WAIT_)?SEND_[FB]|RECV_[FB])\d*")
MAX_BYTES = 64 * 2**20
_LONGEST_HEAD = 4096  # bytes of a first row that are looked at


def is_schedule_file(name: str) -> bool:
    """Return whether a schedule's name is that of a file: x.csv, a path, or "-" for stdin."""
    return name.lower().endswith(".csv") or "/" in name or name == STDIN


def holds_schedule(path: Path) -> bool:
    """Return whether a file begins with an action, whatever its name; not if it cannot be read."""
    try:
        with readable(path).open("rb") as file:
            head = file.read(_LONGEST_HEAD).decode("utf-8", "replace")
    except OSError:
        return False
    return any(form.match(head.lstrip(' ,"\r\n')) for form in (_ACTION, _PAIR, _MOVES))


def load_schedule(path: Path, *, where: str) -> Schedule:
    """Return the schedule in a CSV file.

    Raises:
        ScenarioError: the file cannot be read, or holds no valid schedule.
    """
    if problem := file_problem(path):
        raise ScenarioError(f"{where}: {path}: {problem}.")
    try:
        content = readable(path)
        if content.stat().st_size > MAX_BYTES:
            raise ScenarioError(f"{where}: {path} is larger than {MAX_BYTES // 2**20} MiB.")
        text = content.read_text(encoding="utf-8")
    except OSError as error:
        raise ScenarioError(f"{where}: {path} cannot be read ({error.strerror}).") from None
    except UnicodeDecodeError:
        raise ScenarioError(f"{where}: {path} is not text in UTF-8.") from None
    name = "schedule" if is_stream(path) else path.name
    return read_schedule(text, name=name, where=f"{where}: {path}")


def check_virtual(schedule: Schedule, virtual: int, *, where: str) -> None:
    """Raise ScenarioError if `virtual` stages per device are asked of a file with others."""
    found = schedule.parts / schedule.devices
    if virtual not in (1, found):
        raise ScenarioError(
            f"{where}: {schedule.name} has {schedule.parts} stages on {schedule.devices} ranks ="
            f" {found:g} per device, but virtual_stages is {virtual}. Leave virtual_stages out."
        )


def read_schedule(text: str, *, name: str, where: str) -> Schedule:
    """Return the schedule that `text` holds, checked.

    Raises:
        ScenarioError: a cell that is no action (with row and column), a stage on two ranks, a
            number left out, or what `check_schedule` refuses.
    """
    rows, paired = [], []
    for number, cells in enumerate(_rows(text, where)):
        actions, begins = _read_row(cells, f"{where}: row {number + 1}")
        rows.append(tuple(actions))
        paired.append(frozenset(begins))
    while rows and not rows[-1]:
        rows.pop()
        paired.pop()
    home = _homes(rows, where)
    schedule = Schedule(name, tuple(rows), home, (tuple(range(len(home))),), tuple(paired))
    check_schedule(schedule, where=where)
    return schedule


def write_schedule(schedule: Schedule) -> str:
    """Return `schedule` as CSV text.

    Raises:
        ScenarioError: it has two pipes (dualpipe), which the format cannot say.
    """
    if len(schedule.pipes) > 1:
        raise ScenarioError(
            f"schedule {schedule.name}: microbatches enter from both ends, which the CSV of"
            " torch.distributed.pipelining cannot say. dualpipev can be written."
        )
    lines = []
    for device, actions in enumerate(schedule.actions):
        cells, at = [], 0
        while at < len(actions):
            if schedule.is_paired(device, at):
                cells.append(str(Pair(actions[at], actions[at + 1])))
                at += 1
            else:
                cells.append(str(actions[at]))
            at += 1
        lines.append(",".join(cells))
    return "\n".join(lines) + "\n"


def _rows(text: str, where: str) -> Iterator[list[str]]:
    try:
        yield from csv.reader(io.StringIO(text))
    except csv.Error as error:
        raise ScenarioError(f"{where}: not a readable table ({error}).") from None


def _read_row(cells: list[str], where: str) -> tuple[list[Action], list[int]]:
    actions: list[Action] = []
    begins: list[int] = []
    for column, cell in enumerate(cells):
        cell = cell.strip()
        pair = _PAIR.fullmatch(cell)
        if pair:
            begins.append(len(actions))
            actions += [_action(text, where, column) for text in pair.groups()]
        elif cell and not _MOVES.fullmatch(cell):
            actions.append(_action(cell, where, column))
    return actions, begins


def _action(text: str, where: str, column: int) -> Action:
    found = _ACTION.fullmatch(text)
    if not found:
        raise ScenarioError(
            f"{where}, column {column + 1}: {text[:40]!r} is no action. Write stage, work and"
            " microbatch, like 0F0, 3I1, 3W1 or 2B1."
        )
    stage, work, microbatch = found.groups()
    return Action(Work(work), int(stage), int(microbatch))


def _homes(rows: list[tuple[Action, ...]], where: str) -> tuple[int, ...]:
    """Return the rank of each stage."""
    home: dict[int, int] = {}
    for rank, actions in enumerate(rows):
        for action in actions:
            other = home.setdefault(action.stage, rank)
            if other != rank:
                raise ScenarioError(
                    f"{where}: row {rank + 1}: {action}: stage {action.stage} is already on row"
                    f" {other + 1}. A stage has one home."
                )
        if not actions:
            raise ScenarioError(f"{where}: row {rank + 1} has no action.")
    if not home:
        raise ScenarioError(f"{where}: no actions. Write one row per rank, like 0F0,0F1,0B0,0B1.")
    missing = [stage for stage in range(max(home) + 1) if stage not in home]
    if missing:
        raise ScenarioError(
            f"{where}: no action of stage {missing[0]}, but of stage {max(home)}. Number the stages"
            " from 0 without a gap."
        )
    return tuple(home[stage] for stage in range(len(home)))
