"""
Convert between trace formats: whatever can be read becomes a graph, and a graph can be written.

    goal      one text file with all ranks; collectives as the sends of an algorithm
    chakra    base.RANK.et per rank, and the groups
    chakra-json   base.RANK.json per rank, as astra-sim reads it, and the groups
    param     base.rankRANK.json per rank
    csv       a pipeline schedule of torch.distributed.pipelining
    graph     commsim's own .npz: everything
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from itertools import pairwise
from pathlib import Path

import msgspec
import numpy as np

from commsim.errors import ScenarioError, TraceError, did_you_mean
from commsim.files import write_aside, write_text
from commsim.graph import Graph, OpKind, Phase, save_graph
from commsim.input_files import file_problem, is_stream
from commsim.sections import Durations
from commsim.traces import import_graph
from commsim.traces.formats import write_chakra, write_goal, write_param
from commsim.units import PS_PER_SECOND
from commsim.workload import (
    Action,
    PipelineSection,
    Schedule,
    Work,
    build_pipeline,
    check_schedule,
    holds_schedule,
    load_schedule,
    write_schedule,
)

__all__ = ["FORMATS", "Converted", "convert"]

FORMATS = ("graph", "goal", "chakra", "chakra-json", "param", "csv")
_PER_RANK = ("chakra", "chakra-json", "param")
_BY_SUFFIX = {".npz": "graph", ".goal": "goal", ".et": "chakra", ".csv": "csv"}
_UNIT = PS_PER_SECOND // 1000  # a schedule has no times: 1 ms for each of F, B and W


class Converted(msgspec.Struct, frozen=True):
    """What was written, from which format into which, and what could not be carried."""

    graph: Graph
    source: str
    target: str
    written: tuple[Path, ...]
    notes: tuple[str, ...]


def convert(
    source: str | Path,
    target: str | Path,
    *,
    to: str = "",
    progress: Callable[[int, int], None] | None = None,
) -> Converted:
    """Read traces of any known format and write them as another.

    `to` is one of FORMATS; left out, the suffix of `target` says it. `progress` hears how many of
    how many files are read.

    Raises:
        TraceError: the source cannot be read, or the format cannot hold it at all.
        ScenarioError: no such format.
    """
    source, target = Path(source), Path(target)
    chosen = _target(target, to)
    if not target.parent.is_dir():
        raise ScenarioError(f"{target}: there is no folder {str(target.parent)!r}.")
    graph, came_from, notes = _read(source, progress)
    written, lost = _write(graph, target, chosen)
    remarks = dict.fromkeys([*notes, *lost])
    return Converted(graph, came_from, chosen, tuple(written), tuple(remarks))


def _target(target: Path, to: str) -> str:
    chosen = to or _BY_SUFFIX.get(target.suffix, "")
    if chosen in FORMATS:
        return chosen
    if to:
        raise ScenarioError(
            f"--to {to}: no such format.{did_you_mean(to, FORMATS)} Known: {', '.join(FORMATS)}."
        )
    raise ScenarioError(
        f"{target}: the suffix does not say which format to write. Name it .npz, .goal, .et or"
        f" .csv, or give --to ({', '.join(FORMATS)})."
    )


def _read(
    source: Path, progress: Callable[[int, int], None] | None
) -> tuple[Graph, str, Sequence[str]]:
    named = source.suffix.lower() == ".csv" and source.is_file()
    if named or (is_stream(source) and not file_problem(source) and holds_schedule(source)):
        return _from_schedule(source)
    found = import_graph(source, progress=progress)
    return found.graph, found.format, found.notes


def _from_schedule(path: Path) -> tuple[Graph, str, Sequence[str]]:
    schedule = load_schedule(path, where="schedule")
    microbatches = 1 + max(action.microbatch for row in schedule.actions for action in row)
    split = any(action.work == Work.W for row in schedule.actions for action in row)
    per_stage = schedule.stages // schedule.devices
    one = Durations((_UNIT * per_stage,))
    section = PipelineSection(
        stages=schedule.devices,
        microbatches=microbatches,
        schedule=str(path),
        forward=one,
        backward=one,
        weight=one if split else Durations((0,)),
    )
    work = build_pipeline(section)
    note = "a schedule has no times: 1 ms is taken for each forward, backward and weight gradient."
    return work.graph, "pipeline schedule", (note,)


def _write(graph: Graph, target: Path, to: str) -> tuple[list[Path], list[str]]:
    """Write `graph`; return the paths, and what was lost."""
    if to in _PER_RANK and is_stream(target):
        raise ScenarioError(f"{target}: {to} is a file per rank. Give how their names begin.")
    if to == "graph":
        save_graph(graph, target)
        return [target], []
    if to == "goal":
        lost: list[str] = []
        write_aside(target, lambda aside: lost.extend(write_goal(graph, aside)))
        return [target], lost
    if to == "csv":
        text = write_schedule(_schedule_of(graph))
        write_text(target, text)
        return [target], ["csv: only the order of the pipeline's actions is carried: no times."]
    if to == "param":
        return write_param(graph, target)
    return write_chakra(graph, target, as_json=to == "chakra-json")


def _schedule_of(graph: Graph) -> Schedule:
    """Return the pipeline schedule that a graph's tags spell.

    Raises:
        TraceError: the ops are not those of a pipeline.
    """
    tagged = (graph.kind == OpKind.COMPUTE) & (graph.stage >= 0) & (graph.microbatch >= 0)
    split = {
        (int(graph.stage[op]), int(graph.microbatch[op]))
        for op in np.flatnonzero(tagged & (graph.phase == Phase.WEIGHT))
    }
    rows: list[tuple[Action, ...]] = []
    home: dict[int, int] = {}
    for lane in range(len(graph.lane_rank)):
        ops = np.flatnonzero(tagged & (graph.lane == lane)).tolist()
        actions = [_action_of(graph, op, split) for op in ops]
        rows.append(tuple(actions))
        home.update({action.stage: lane for action in actions})
    if not home or sorted(home) != list(range(len(home))):
        raise TraceError(
            "csv: the ops do not say which stage and microbatch they are of; only a pipeline can be"
            " written as a schedule."
        )
    stages = tuple(home[stage] for stage in range(len(home)))
    pipe = (tuple(range(len(stages))),)
    schedule = Schedule("converted", tuple(rows), stages, pipe, _pairs_of(graph, rows))
    check_schedule(schedule, where="csv")
    return schedule


def _action_of(graph: Graph, op: int, split: Container[tuple[int, int]]) -> Action:
    """Return what an op does; a backward is whole where no weight gradient is apart from it."""
    place = int(graph.stage[op]), int(graph.microbatch[op])
    works = {Phase.FORWARD: Work.F, Phase.WEIGHT: Work.W}
    work = works.get(Phase(graph.phase[op]), Work.I if place in split else Work.B)
    return Action(work, *place)


def _pairs_of(graph: Graph, rows: Sequence[tuple[Action, ...]]) -> tuple[frozenset[int], ...]:
    """Return which forwards run as one with the backward after them, as the graph keeps it."""
    found = graph.meta.get("paired")
    if not isinstance(found, list) or len(found) != len(rows):
        return ()
    pairs = []
    for row, positions in zip(rows, found, strict=True):
        works = [(a.work, b.work) for a, b in pairwise(row)]
        listed = positions if isinstance(positions, list) else []
        kept = [p for p in listed if isinstance(p, int) and 0 <= p < len(works)]
        pairs.append(frozenset(p for p in kept if works[p] == (Work.F, Work.B)))
    return tuple(pairs)
