"""
`load_trace`: the files of a run, as they lie, become a `Trace`.

    trace = load_trace("runs/step12")
    print(trace.collectives)
    again = simulate(trace.graph(), None, library=Recorded())

A file is recognised by its content. Kineto files give the events of each rank; PyTorch
Execution Traces beside them give the sizes that old Kineto files lack.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from commsim.errors import TraceError
from commsim.traces.execution_trace import (
    ExecutionTrace,
    is_execution_trace,
    read_execution_trace,
)
from commsim.traces.files import Document, documents, find_files
from commsim.traces.kineto import KinetoFile, is_kineto, read_kineto
from commsim.traces.trace import Trace

__all__ = ["load_trace"]


@dataclass(slots=True)
class _Found:
    kineto: list[KinetoFile] = field(default_factory=list)
    execution: list[ExecutionTrace] = field(default_factory=list)
    strange: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def load_trace(path: str | Path | Iterable[str | Path]) -> Trace:
    """Read a run from a folder, a file, or several of them.

    Raises:
        TraceError: a file cannot be read, two are of one rank, or none is a Kineto trace.
    """
    paths = [path] if isinstance(path, str | Path) else list(path)
    found = _Found()
    for file in find_files(paths):
        for document in documents(file):
            _sort(found, document)
    where = ", ".join(str(p) for p in paths)
    if not found.kineto:
        raise TraceError(_nothing(where, found))
    found.notes += [f"{name}: not a trace that is read; left out." for name in found.strange]
    files = _by_rank(found)
    return Trace(files, _of_processes(files, found), tuple(found.notes))


def _sort(found: _Found, document: Document) -> None:
    """Read a document by what it holds."""
    if document.cut and not document.data:
        found.notes.append(f"{document.name}: cut off; what it held past here is lost.")
    elif is_kineto(document.data):
        file = read_kineto(document)
        if file.is_gloo:
            raise TraceError(
                f"{file.name}: communicates by Gloo; only traces of NCCL are read yet."
            )
        found.kineto.append(file)
    elif is_execution_trace(document.data):
        found.execution.append(read_execution_trace(document))
    else:
        _check_other(document)
        found.strange.append(document.name)


def _check_other(document: Document) -> None:
    """A JSON file of another kind may lie beside a trace; anything else is a broken one."""
    name = document.name
    if not document.data.strip():
        raise TraceError(f"{name}: is empty. Record or copy the trace again.")
    if not name.lower().endswith((".json", ".json.gz", ".pt", ".gz")):
        return
    try:
        msgspec.json.decode(document.data, type=msgspec.Raw)
    except RecursionError:
        raise TraceError(f"{name}: nested too deeply; not a trace.") from None
    except msgspec.DecodeError as error:
        raise TraceError(
            f"{name}: not valid JSON ({error}). A trace is what torch.profiler's"
            " export_chrome_trace writes; if this was one, it is cut off before its first event."
        ) from None


def _nothing(where: str, found: _Found) -> str:
    """Say why there is nothing to replay."""
    if found.execution:
        return (
            f"{where}: holds PyTorch Execution Traces, which have no times."
            " Give the Kineto trace (torch.profiler) of the same run as well."
        )
    if found.strange:
        return (
            f"{found.strange[0]}: not a format that is read. Give Kineto traces: what"
            " torch.profiler's export_chrome_trace writes, .json, .json.gz or in a .tar.gz."
        )
    return f"{where}: holds no trace."


def _by_rank(found: _Found) -> dict[int, KinetoFile]:
    """Return the files by rank. Raises TraceError where a rank is unknown or there twice."""
    if len(found.kineto) == 1 and found.kineto[0].rank < 0:
        found.notes.append(f"{found.kineto[0].name}: does not say its rank; taken as rank 0.")
        return {0: found.kineto[0]}
    files: dict[int, KinetoFile] = {}
    for file in found.kineto:
        if file.rank < 0:
            raise TraceError(
                f"{file.name}: does not say its rank (no distributedInfo.rank, and no rank in its"
                " name). Name the files rank0.json, rank1.json and so on."
            )
        if file.rank in files:
            raise TraceError(
                f"{files[file.rank].name} and {file.name} are both of rank {file.rank}."
                " Give the files of one run only."
            )
        files[file.rank] = file
    return files


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
