"""
`load_trace` reads the files of a run as a `Trace`; `import_graph` reads any format as a graph.

    trace = load_trace("runs/step12")
    print(trace.collectives)
    again = simulate(trace.graph(), None, library=Recorded())

A file is recognised by its content. Kineto files give the events of each rank; PyTorch
Execution Traces and flight recorder dumps next to them give what they lack. All other formats
say what was issued, and not when: they become a graph without a measured timeline.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from commsim.errors import TraceError
from commsim.graph import Graph, load_graph
from commsim.input_files import file_problem, readable
from commsim.traces.formats import (
    BAD_JSON,
    Document,
    ExecutionTrace,
    GroupsFile,
    KinetoFile,
    ProfilerTable,
    RankRecord,
    documents,
    find_files,
    format_of,
    is_nccl_tests,
    join_nccl_logs,
    record_of,
    recordings_of,
    wrong_encoding,
)
from commsim.traces.parallel import large_kineto, read_parts
from commsim.traces.rebuild import assemble
from commsim.traces.rebuild.rank import RankPart, rank_part
from commsim.traces.trace import Trace

__all__ = ["Imported", "import_graph", "load_trace"]

Progress = Callable[[int, int], None]

_KNOWN = (
    "Kineto traces (torch.profiler), SQLite exports of Nsight Systems, CSV of nsys stats, rocprofv3"
    " and rocprof, PyTorch Execution Traces, flight recorder dumps, Chakra .et or JSON, PARAM comms"
    " JSON, NCCL_DEBUG logs, GOAL, and commsim's own .npz"
)


class Imported(msgspec.Struct, frozen=True):
    """A graph, the format it came from, and what was assumed; `trace` if times are known."""

    graph: Graph
    format: str
    notes: tuple[str, ...]
    trace: Trace | None = None


class _Found(msgspec.Struct):
    kineto: list[KinetoFile] = msgspec.field(default_factory=list)
    parts: list[RankPart] = msgspec.field(default_factory=list)
    execution: list[ExecutionTrace] = msgspec.field(default_factory=list)
    records: list[RankRecord] = msgspec.field(default_factory=list)
    tables: list[ProfilerTable] = msgspec.field(default_factory=list)
    groups: dict[str, tuple[int, ...]] = msgspec.field(default_factory=dict)
    strange: list[str] = msgspec.field(default_factory=list)
    strange_is: str = ""  # what the first of them is, if that is known
    notes: list[str] = msgspec.field(default_factory=list)


def load_trace(
    path: str | Path | Iterable[str | Path], *, progress: Progress | None = None
) -> Trace:
    """Read a run from a folder, a file, or several of them.

    `progress` is told how many of how many files are read.

    Raises:
        TraceError: a file cannot be read, two are of one rank, or none is a Kineto trace.
    """
    paths = _listed(path)
    found = _search(paths, progress)
    if not found.kineto and not found.parts:
        raise TraceError(_nothing(", ".join(map(str, paths)), found))
    return _trace(found)


def import_graph(
    path: str | Path | Iterable[str | Path],
    *,
    progress: Progress | None = None,
    gaps_are_work: bool = False,
) -> Imported:
    """Read a graph from files of any format that is known.

    `progress` is told how many of how many files are read. `gaps_are_work`: gaps of a CPU thread
    that may be waiting for Gloo or work are taken for work.

    Raises:
        TraceError: a file cannot be read, or the files of one run do not fit together.
    """
    paths = _listed(path)
    if len(paths) == 1 and not file_problem(paths[0]) and _is_zip(paths[0]):
        return Imported(load_graph(paths[0]), "commsim graph", ())
    found = _search(paths, progress, by_processes=not gaps_are_work)
    if found.kineto or found.parts:
        trace = _trace(found, gaps_are_work=gaps_are_work)
        return Imported(trace.graph(), "Kineto", trace.notes, trace)
    records = found.records or [record_of(trace) for trace in found.execution]
    if not records:
        raise TraceError(_nothing(", ".join(map(str, paths)), found))
    formats = list(dict.fromkeys(record.format for record in records))
    if len(formats) > 1:
        raise TraceError(
            f"{', '.join(map(str, paths))}: holds traces of several formats"
            f" ({', '.join(formats)}). Give one of them."
        )
    graph, notes = assemble(_ranked(records, found), format=formats[0])
    return Imported(graph, formats[0], (*found.notes, *_left_out(found), *notes))


def _is_zip(path: Path) -> bool:
    try:
        with readable(path).open("rb") as file:
            return file.read(2) == b"PK"
    except OSError as error:
        raise TraceError(f"{path}: cannot be read ({error.strerror}).") from None


def _listed(path: str | Path | Iterable[str | Path]) -> list[Path]:
    return [Path(path)] if isinstance(path, str | Path) else [Path(p) for p in path]


def _search(
    paths: Sequence[Path], progress: Progress | None = None, *, by_processes: bool = True
) -> _Found:
    """Read all files; many large Kineto files alone in processes of their own, else one by one."""
    found = _Found()
    files = find_files(paths)
    large = large_kineto(files) if by_processes else []
    others = [file for file in files if file not in large]
    for number, file in enumerate(others):
        for document in documents(file):
            _sort(found, document)
        if progress:
            progress(number + 1, len(files))
    found.kineto += recordings_of(found.tables)
    if found.execution or found.records:
        # They are joined with the events of their ranks, which are read here for that.
        for file in large:
            for document in documents(file):
                _sort(found, document)
    else:
        tell = (lambda done: progress(len(others) + done, len(files))) if progress else None
        found.parts += read_parts(large, tell)
    return found


def _left_out(found: _Found) -> list[str]:
    """Name the files that are no traces, in one sentence."""
    if not found.strange:
        return []
    what = "not traces that are read" if len(found.strange) > 1 else "not a trace"
    return [f"{_and_more(found.strange)}: {what}; left out."]


def _and_more(names: Sequence[str]) -> str:
    more = len(names) - 1
    return f"{names[0]} and {more} more file{'s' if more > 1 else ''}" if more else names[0]


def _trace(found: _Found, *, gaps_are_work: bool = False) -> Trace:
    found.notes += _left_out(found)
    files = _by_rank(found)
    traces, dumps = _of_processes(files, found), _dumps(files, found)
    parts = [
        rank_part(
            file,
            rank=rank,
            trace=traces.get(rank),
            dump=dumps.get(rank),
            gaps_are_work=gaps_are_work,
        )
        for rank, file in files.items()
    ]
    return Trace([*found.parts, *parts], tuple(found.notes))


def _dumps(files: dict[int, KinetoFile], found: _Found) -> dict[int, RankRecord]:
    """Return each rank's flight recorder dump; other records besides Kineto are not used."""
    dumps = {r.rank: r for r in found.records if r.format == "flight recorder"}
    unused = [r.name for r in found.records if r.format != "flight recorder"]
    if unused:
        found.notes.append(f"{_and_more(unused)}: not needed beside Kineto traces; left out.")
    return {rank: dumps[rank] for rank in files if rank in dumps}


def _sort(found: _Found, document: Document) -> None:
    """Read a document by what it holds."""
    if document.cut and not document.data:
        found.notes.append(f"{document.name}: cut off; what it held past here is lost.")
        return
    format = format_of(document)
    part = format.read(document) if format else None
    if part is None:
        _check_other(document)
        if not found.strange:
            found.strange_is = _other_command(document)
        found.strange.append(document.name)
    for one in part if isinstance(part, Sequence) else (part,):
        if isinstance(one, KinetoFile):
            found.kineto.append(one)
        elif isinstance(one, ExecutionTrace):
            found.execution.append(one)
        elif isinstance(one, GroupsFile):
            found.groups |= one.ranks
        elif isinstance(one, RankRecord):
            found.records.append(one)
        elif isinstance(one, ProfilerTable):
            found.tables.append(one)


def _ranked(records: Sequence[RankRecord], found: _Found) -> list[RankRecord]:
    """Return the records with their ranks and groups; a lone one without a rank is rank 0."""
    if len(records) == 1 and records[0].rank < 0:
        found.notes.append(f"{records[0].name}: does not say its rank; taken as rank 0.")
        records = [replace(records[0], rank=0)]
    names: dict[int, str] = {}
    for record in records:
        if record.rank < 0:
            raise TraceError(
                f"{record.name}: does not say its rank, and neither does its name. Name the files"
                " rank0, rank1 and so on."
            )
        if record.rank in names:
            raise TraceError(_twice(names[record.rank], record.name, record.rank))
        names[record.rank] = record.name
    records = join_nccl_logs(records)
    if not found.groups:
        return records
    return [replace(record, groups={**found.groups, **(record.groups or {})}) for record in records]


def _twice(one: str, other: str, rank: int) -> str:
    return f"{one} and {other} are both of rank {rank}. Give the files of one run only."


def _check_other(document: Document) -> None:
    """Raise for a broken trace; a JSON file of another kind may stand next to one."""
    name = document.name
    if not document.data.strip():
        raise TraceError(f"{name}: is empty. Record or copy the trace again.")
    if (wrong := wrong_encoding(document.data)) is not None:
        raise TraceError(f"{name}: {wrong}")
    if not name.lower().endswith((".json", ".json.gz", ".pt", ".gz")):
        return
    try:
        msgspec.json.decode(document.data, type=msgspec.Raw)
    except RecursionError:
        raise TraceError(f"{name}: nested too deeply; not a trace.") from None
    except BAD_JSON as error:
        raise TraceError(
            f"{name}: not valid JSON ({error}). A trace is what torch.profiler's"
            " export_chrome_trace writes; if this was one, it is cut off before its first event."
        ) from None


def _nothing(where: str, found: _Found) -> str:
    """Return the error for files without anything to replay."""
    if found.records:
        return (
            f"{where}: a {found.records[0].format} has no times of its own."
            " Give the Kineto trace (torch.profiler) of the same run as well."
        )
    if found.execution:
        return (
            f"{where}: holds PyTorch Execution Traces, which have no times."
            " Give the Kineto trace (torch.profiler) of the same run as well."
        )
    if found.strange and found.strange[0].endswith(".xml"):
        return (
            f"{found.strange[0]}: an algorithm (MSCCL XML), not a trace. Run it by"
            " `commsim bench --algo FILE.xml`, or look at it by `commsim explain`."
        )
    if found.strange:
        return (
            f"{found.strange[0]}: not a format that is read.{found.strange_is} Read are: {_KNOWN}."
        )
    return f"{where}: holds no trace."


def _other_command(document: Document) -> str:
    """Return which command reads a file that is no trace, "" if none is known."""
    if document.name.endswith((".yaml", ".yml")):
        return " A scenario is for `commsim run`."
    if is_nccl_tests(document.data):
        return " A table of nccl-tests is for `commsim check`, `calibrate` and `compare`."
    return ""


def _by_rank(found: _Found) -> dict[int, KinetoFile]:
    """Return the files by rank. Raises TraceError if a rank is unknown or there twice."""
    if len(found.kineto) == 1 and found.kineto[0].rank < 0 and not found.parts:
        found.notes.append(f"{found.kineto[0].name}: does not say its rank; taken as rank 0.")
        return {0: found.kineto[0]}
    names: dict[int, str] = {}
    read = [(part.name, part.rank) for part in found.parts]
    for name, rank in [*read, *((file.name, file.rank) for file in found.kineto)]:
        if rank < 0:
            raise TraceError(
                f"{name}: does not say its rank (no distributedInfo.rank, and no rank in its"
                " name). Name the files rank0.json, rank1.json and so on."
            )
        if rank in names:
            raise TraceError(_twice(names[rank], name, rank))
        names[rank] = name
    return {file.rank: file for file in found.kineto}


def _of_processes(files: dict[int, KinetoFile], found: _Found) -> dict[int, ExecutionTrace]:
    """Return each rank's Execution Trace: by process id, else by the rank in its name."""
    by_pid = {trace.pid: trace for trace in found.execution}
    by_rank = {trace.rank: trace for trace in found.execution if trace.rank >= 0}
    pids = [file.pid for file in files.values()]
    joined: dict[int, ExecutionTrace] = {}
    for rank, file in files.items():
        alone = pids.count(file.pid) == 1  # containers may all run as process 1
        trace = by_pid.get(file.pid) if alone else None
        trace = trace or by_rank.get(rank)
        if trace:
            joined[rank] = trace
    return joined
