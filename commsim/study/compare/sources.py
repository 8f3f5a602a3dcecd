"""
What can be compared, recognised by what it holds: scenarios, results, traces, benches, logs.

A source is looked at before anything runs, so that a mix that cannot be compared is refused at
once. Names of the catalogue come before names of cluster presets.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec

from commsim.cluster import preset_names
from commsim.errors import ScenarioError, TraceError, did_you_mean
from commsim.input_files import file_problem, is_stream
from commsim.libraries import LibrarySection
from commsim.scenario import Scenario, example_path, scenario_from, scenario_names, scenario_text
from commsim.study.bench import BenchResult
from commsim.study.compare.benched import BenchedCluster
from commsim.study.compare.result_files import read_own_json
from commsim.study.replay import Replay
from commsim.study.run import Result
from commsim.traces import Trace
from commsim.traces.formats import (
    NcclTests,
    documents,
    is_nccl_tests,
    merged,
    read_nccl_tests,
    wrong_encoding,
)
from commsim.yaml_file import parse_yaml, read_yaml

__all__ = ["Comparable", "Source", "place_of", "recognise"]

Comparable = str | Path | Scenario | Result | Replay | BenchResult | Trace
_CLUSTER_KEYS = frozenset({"preset", "node", "nodes", "fabric", "overrides"})


class Source(msgspec.Struct, frozen=True, eq=False):
    """One thing to compare. `held` is what `kind` says it is:

    scenario: Scenario; cluster: Place; result, replay: a run's JSON; trace: a path; bench: a
    bench's JSON; log: tables of nccl-tests; ran: a Result; recorded: a Trace. `written` is the
    scenario as plain data.
    """

    name: str
    kind: str
    held: Any
    written: dict[str, Any] | None = None

    @property
    def is_table(self) -> bool:
        """Whether it is a table of collectives and not a run."""
        return self.kind in ("bench", "log")


def recognise(item: Comparable) -> Source:
    """Return what an item is. Nothing is simulated yet.

    Raises:
        ScenarioError: no such name, or a YAML file that is neither a scenario nor a cluster.
        TraceError: a file that cannot be read, or that holds nothing to compare.
    """
    if isinstance(item, str | Path):
        return _path_or_name(str(example_path(item)) if str(item).strip() else "")
    if isinstance(item, Scenario):
        return Source(item.name, "scenario", item)
    if isinstance(item, Result | Replay):
        result = item.result if isinstance(item, Replay) else item
        return Source(result.scenario, "ran", result)
    if isinstance(item, BenchResult):
        return Source(item.system["cluster"], "bench", item.to_dict())
    if isinstance(item, Trace):
        return Source(f"trace of {len(item.ranks)} ranks", "recorded", item)
    raise ScenarioError(
        f"{type(item).__name__} cannot be compared. Give paths, names, or what run, replay, bench"
        " and load_trace return."
    )


def _path_or_name(name: str) -> Source:
    if not name.strip():
        raise ScenarioError("an empty name: give a file, a folder, or a name.")
    path = Path(name)
    if os.path.isdir(path):  # unlike pathlib's, for a name of any length
        return Source(name, "trace", path)
    if path.suffix in (".yaml", ".yml"):
        return _yaml(read_yaml(path, name), name, str(path.parent))
    if os.path.lexists(path) or is_stream(path):
        return _file(path)
    if name in scenario_names():
        return _yaml(parse_yaml(scenario_text(name), f"{name}.yaml"), f"{name}.yaml", ".", name)
    if name.lower() in preset_names():
        return Source(name, "cluster", BenchedCluster(name, {"preset": name}, name))
    if path.suffix or "/" in name:
        raise TraceError(f"{name}: there is no such file.")
    known = [*scenario_names(), *preset_names()]
    raise ScenarioError(
        f"{name!r} is neither a file nor the name of a scenario or a cluster preset."
        f"{did_you_mean(name, known)} `commsim presets` lists them."
    )


def _yaml(data: Any, where: str, folder: str, name: str = "") -> Source:
    """Return the scenario or the cluster that a YAML file describes."""
    if isinstance(data, dict) and "workload" not in data and _CLUSTER_KEYS & set(data):
        return Source(where, "cluster", BenchedCluster(where, data, where))
    stem = name or Path(where).stem
    scenario = scenario_from(data, where, folder=folder, default_name=stem)
    return Source(name or where, "scenario", scenario, data)


def _file(path: Path) -> Source:
    """Return what a file that is no YAML holds."""
    name = str(path)
    if problem := file_problem(path):
        raise TraceError(f"{name}: {problem}.")
    parts = list(documents(path))
    if len(parts) != 1:
        return Source(name, "trace", path)  # an archive of traces
    data = parts[0].data
    head = data.lstrip()[:1]
    if not head:
        raise TraceError(f"{name}: is empty.")
    if is_nccl_tests(data):
        return Source(name, "log", merged(read_nccl_tests(data, name)))
    if (wrong := wrong_encoding(data)) is not None:
        raise TraceError(f"{name}: {wrong}")
    if head not in (b"{", b"["):
        if is_stream(path):  # whose name does not say that it is YAML
            return _yaml(read_yaml(path, name), name, ".")
        raise TraceError(
            f"{name}: is nothing that can be compared. Give a scenario (.yaml), the JSON of run,"
            " replay or bench, a trace of torch.profiler, or the output of nccl-tests."
        )
    own = read_own_json(data, name) if head == b"{" else None
    return Source(name, "trace", path) if own is None else Source(name, own.kind, own.data)


def place_of(source: Source) -> BenchedCluster | None:
    """Return the cluster on which a source can be benched; None if it names none."""
    if source.kind == "cluster":
        place: BenchedCluster = source.held
        return place
    if (
        source.kind == "scenario"
        and source.written
        and isinstance(source.written.get("cluster"), dict)
    ):
        library: LibrarySection = source.held.file.library
        return BenchedCluster(
            source.name, source.written["cluster"], f"{source.held.where}: cluster", library
        )
    return None


def tables_of(source: Source) -> tuple[NcclTests, ...]:
    """Return the tables of a log; none for other kinds."""
    return source.held if source.kind == "log" else ()
