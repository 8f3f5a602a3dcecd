"""
The points of a sweep: what each runs, the key of its result, and running it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from commsim._version import __version__
from commsim.errors import CommsimError
from commsim.input_files import file_problem, is_stream, readable
from commsim.scenario import apply_sets, scenario_from
from commsim.study.run import run
from commsim.study.sweep.axes import Settings, range_meant

__all__ = ["Outcome", "SweepPoint", "evaluate", "point_of"]

_MOST_BYTES = 2**31  # a file that a scenario names is hashed up to here


class SweepPoint(msgspec.Struct, frozen=True):
    """One run: the scenario's plain data, which all points share, and `settings` to lay over it.

    `key` is the same for runs that must come out the same: it hashes the data, the files that it
    names, and commsim's version. `report`: where its page goes, "" for none. `own` is the data
    with the settings where they name pipes, with copies of these; else None.
    """

    settings: Settings
    data: Any
    where: str
    folder: str
    key: str
    report: str = ""
    own: Any = None

    def changed(self) -> Any:
        """Return the plain data of its own scenario."""
        return _changed(self.data, self.settings) if self.own is None else self.own


class Outcome(msgspec.Struct, frozen=True):
    """What became of a point: the JSON of its run, or what was wrong with it."""

    key: str
    result: dict[str, Any] | None
    error: str | None


def point_of(data: Any, settings: Settings, where: str, folder: str) -> SweepPoint:
    """Return the point of a scenario's plain data with settings changed."""
    changed = _changed(data, settings)
    parts = [__version__.encode(), _encoded(changed)]
    for path in _files(changed, Path(folder)):
        stated = path.stat()
        parts.append(_digest(path, stated.st_size, stated.st_mtime_ns))
    key = hashlib.sha256(b"\0".join(parts)).hexdigest()
    own = _with_copies(changed) if any(map(_is_pipe, _texts(changed))) else None
    return SweepPoint(settings, data, where, folder, key, own=own)


def _changed(data: Any, settings: Settings) -> Any:
    changed = apply_sets(data, [f"{path}={value}" for path, value in settings])
    if isinstance(changed, dict):
        changed.pop("sweep", None)
    return changed


def _encoded(data: Any) -> bytes:
    """Return plain data as bytes; what no scenario can hold is refused when it runs."""
    return msgspec.json.encode(_by_text(data), enc_hook=repr, order="deterministic")


def evaluate(point: SweepPoint) -> Outcome:
    """Run a point; what a user can cause becomes its error, and stops nothing else."""
    told = " ".join(f"{path}={value}" for path, value in point.settings)
    try:
        scenario = scenario_from(point.changed(), f"{point.where} ({told})", folder=point.folder)
        result = run(scenario)
        if point.report:
            result.report(point.report)
    except CommsimError as error:
        meant = next(filter(None, (range_meant(value) for _, value in point.settings)), "")
        return Outcome(point.key, None, f"{error}{meant}")
    except MemoryError:
        return Outcome(point.key, None, "out of memory")
    found = {"scenario": scenario.name, **result.metrics.to_dict(), "notes": list(result.notes)}
    return Outcome(point.key, msgspec.json.decode(msgspec.json.encode(found)), None)


def _by_text(data: Any) -> Any:
    """Return plain data with text for the keys of its mappings: a program's ranks are numbers."""
    if isinstance(data, Mapping):
        return {k if isinstance(k, str) else f"\0{k!r}": _by_text(v) for k, v in data.items()}
    return [_by_text(one) for one in data] if isinstance(data, list | tuple) else data


def _files(data: Any, folder: Path) -> Iterator[Path]:
    """Yield the files next to the scenario that its texts name: schedules, graphs, traces."""
    for text in _texts(data):
        if _is_pipe(text):
            yield readable(text)
        elif re.search(r"\.\w{1,8}\Z", text) and "\0" not in text and len(text) < 1024:
            path = folder / text
            if path.is_file():
                yield path


def _texts(data: Any) -> Iterator[str]:
    if isinstance(data, str):
        yield data
    elif isinstance(data, Mapping):
        for value in data.values():
            yield from _texts(value)
    elif isinstance(data, list):
        for value in data:
            yield from _texts(value)


def _is_pipe(text: str) -> bool:
    return "/" in text and is_stream(text) and not file_problem(text)


def _with_copies(data: Any) -> Any:
    """Return plain data with the copies of pipes for their names: workers have no such pipe."""
    if isinstance(data, str):
        return str(readable(data)) if _is_pipe(data) else data
    if isinstance(data, Mapping):
        return {key: _with_copies(value) for key, value in data.items()}
    return [_with_copies(one) for one in data] if isinstance(data, list) else data


@lru_cache
def _digest(path: Path, size: int, changed: int) -> bytes:
    """Return the hash of a file, which all points of a sweep may name: it is read once."""
    found = hashlib.sha256()
    with path.open("rb") as file:
        read = 0
        while (block := file.read(1 << 20)) and read < _MOST_BYTES:
            found.update(block)
            read += len(block)
    return found.digest()
