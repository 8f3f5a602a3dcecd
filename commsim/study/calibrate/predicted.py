"""
What commsim predicts for a measured table, at its sizes, on its ranks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from commsim.arrays import Floats
from commsim.cluster import MeasuredSection, cluster_from, preset_names
from commsim.errors import ScenarioError, TraceError, did_you_mean
from commsim.input_files import file_problem, is_stream, readable
from commsim.libraries import LibrarySection
from commsim.libraries.nccl import starts_channels_slowly, usual_launch
from commsim.scenario import example_path
from commsim.sections import decode
from commsim.study.bench import bench_seconds, shape_of
from commsim.traces.formats import (
    Document,
    NcclTests,
    documents,
    is_bench_json,
    is_param_bench,
    merged,
    read_bench_json,
    read_nccl_tests,
    read_param_bench,
)
from commsim.yaml_file import read_yaml

__all__ = ["FOUND", "BenchedMachine", "MeasuredTable", "machine_of", "read_tables"]

FOUND = "found: "
"""How the source of a figure begins that is what is broken."""

_TYPES = {"fp8_e4m3": "f8e4m3", "fp8_e5m2": "f8e5m2"}
_MOST_BYTES = 2**28  # of a log


class MeasuredTable(msgspec.Struct, frozen=True, eq=False):
    """One op over sizes: `seconds[i]` at `sizes[i]` bytes, on the first GPUs of each node.

    `nccl` and `launch` are "" if nobody says.
    """

    name: str
    op: str
    dtype: str
    nodes: int
    per_node: int
    sizes: tuple[int, ...]
    seconds: Floats
    nccl: str = ""
    launch: str = ""

    def at(self, places: Sequence[int]) -> MeasuredTable:
        """Return the rows at some places."""
        sizes = tuple(self.sizes[place] for place in places)
        return replace(self, sizes=sizes, seconds=self.seconds[list(places)])

    def written(self) -> dict[str, Any]:
        """Return the table as a cluster file has it under `measured`."""
        return {
            "op": self.op,
            "nodes": self.nodes,
            "gpus_per_node": self.per_node,
            "dtype": self.dtype,
            "nccl": self.nccl,
            "launch": self.launch,
            "source": self.name.partition(":")[0],
            "bytes": list(self.sizes),
            "us": [float(f"{one * 1e6:.6g}") for one in self.seconds.tolist()],
        }


class BenchedMachine(msgspec.Struct, frozen=True):
    """A cluster section in plain data, and the library that runs on it.

    `measured` are the tables that its file was fitted to.
    """

    name: str
    cluster: Mapping[str, Any]
    library: LibrarySection = LibrarySection("nccl")
    measured: tuple[MeasuredTable, ...] = ()

    @property
    def faults(self) -> tuple[str, ...]:
        """What was broken when its file was fitted, by the sources of its figures."""
        parts = (self.cluster.get("overrides") or {}).values()
        sources = [
            str(source)
            for part in parts
            if isinstance(part, Mapping)
            for source in (part.get("sources") or {}).values()
        ]
        told = [
            one.removeprefix(FOUND).partition(",")[0] for one in sources if one.startswith(FOUND)
        ]
        return tuple(dict.fromkeys(told))

    def having(self, overrides: Mapping[str, Any], **library: Any) -> BenchedMachine:
        """Return the machine with settings laid over its node's, and over its library's."""
        data = dict(self.cluster)
        data["overrides"] = _laid(data.get("overrides") or {}, overrides)
        return replace(self, cluster=data, library=self.library.having(**library))

    def launch(self, tables: Sequence[MeasuredTable]) -> float:
        """Return the seconds that a host takes to launch as given, by the release that ran."""
        spec = cluster_from({**self.cluster, "nodes": 1}, self.name).specs[0]
        if spec.launch is not None:
            return spec.launch * 1e-12
        stated = self.library.get("version")
        ran = Counter(str(stated or table.nccl) for table in tables).most_common(1)[0][0]
        return usual_launch(old=bool(ran) and starts_channels_slowly(ran))

    def seconds(self, table: MeasuredTable) -> Floats:
        """Return the predicted time of each row.

        Raises:
            ScenarioError: the machine has not so many GPUs on a node, or the settings are wrong.
        """
        data = {**self.cluster, "nodes": table.nodes}
        cluster = cluster_from(data, self.name)
        most = int(cluster.local_of.max()) + 1
        if table.per_node > most:
            raise ScenarioError(
                f"{table.name}: has {table.per_node} GPUs on a node, and {self.name} has {most}."
                " Give the cluster that was measured."
            )
        library = self.library
        if table.launch and library.get("launch") is None:
            library = library.having(launch=table.launch)
        if table.nccl and library.get("version") is None:
            library = library.having(version=table.nccl)
        times = bench_seconds(
            cluster,
            table.op,
            table.sizes,
            library=library,
            dtype=table.dtype,
            gpus_per_node=table.per_node,
        )
        # nccl-tests rounds sizes to whole elements of each rank: two of them may come to one.
        ranks = table.nodes * table.per_node
        rounded = [
            shape_of(table.op, size, dtype=table.dtype, ranks=ranks).size for size in table.sizes
        ]
        return np.array([times[size] for size in rounded])


def machine_of(name: str | Path) -> BenchedMachine:
    """Return the machine of a preset's name or a cluster file.

    Raises:
        ScenarioError: no such preset or file, or one with several kinds of nodes.
    """
    path = Path(name)
    if path.suffix not in (".yaml", ".yml") and not is_stream(path):
        if str(name).lower() not in preset_names():
            raise ScenarioError(
                f"--cluster {name}: no such preset.{did_you_mean(str(name), preset_names())}"
                " `commsim presets clusters` lists them; a cluster file ends in .yaml."
            )
        return BenchedMachine(str(name), {"preset": str(name).lower()})
    data = read_yaml(path, str(path))
    if isinstance(data, dict) and isinstance(data.get("cluster"), dict):
        data = data["cluster"]
    if not isinstance(data, dict) or isinstance(data.get("nodes"), list):
        raise ScenarioError(
            f"--cluster {name}: give a cluster file with one kind of node: `preset` or `node`."
        )
    cluster_from(data, str(path))
    kept = decode(data.get("measured") or [], tuple[MeasuredSection, ...], str(path))
    figures = {key: value for key, value in data.items() if key != "measured"}
    return BenchedMachine(str(path), figures, measured=tuple(map(_kept, kept)))


def _kept(section: MeasuredSection) -> MeasuredTable:
    return MeasuredTable(
        name=f"{section.source}: {section.op}",
        op=section.op,
        dtype=section.dtype,
        nodes=section.nodes,
        per_node=section.gpus_per_node,
        sizes=section.bytes,
        seconds=np.array(section.us) * 1e-6,
        nccl=section.nccl,
        launch=section.launch,
    )


def read_tables(
    logs: Iterable[str | Path], on: tuple[int, int] | None = None
) -> tuple[MeasuredTable, ...]:
    """Return the tables of nccl-tests (text or JSON), PARAM's comms benchmark, `commsim bench`.

    `on` is the number of nodes and of GPUs on each, for logs that do not list their devices.

    Raises:
        TraceError: a file that cannot be read, has no table, or is of nobody knows which GPUs.
    """
    found: list[MeasuredTable] = []
    for log in logs:
        path = example_path(log)
        if problem := file_problem(path):
            raise TraceError(f"{path}: {problem}.")
        if readable(path).stat().st_size > _MOST_BYTES:
            raise TraceError(f"{path}: is larger than any output of a benchmark.")
        for document in documents(path):
            found += [_table(one, on) for one in merged(_read(document, str(path)))]
    if not found:
        raise TraceError(
            "no log is given. Give what nccl-tests or PARAM printed, nccl-tests' -J JSON, or times"
            " in the form of commsim bench --json."
        )
    return tuple(found)


def _read(document: Document, source: str) -> tuple[NcclTests, ...]:
    data = document.data
    if is_bench_json(data):
        return read_bench_json(data, source)
    return (read_param_bench if is_param_bench(data) else read_nccl_tests)(data, source)


def _placed(table: NcclTests, on: tuple[int, int] | None) -> NcclTests:
    """Return a table with its ranks and nodes: its own word, or what the user says."""
    if table.ranks >= 2 and (table.devices or table.nodes):
        return replace(table, nodes=table.nodes or 1)
    if on is None:
        raise TraceError(
            f"{table.source}: does not list its devices, so that nobody knows on how many nodes it"
            " ran. Say it (--on 2x8 is 2 nodes with 8 GPUs each), or keep the lines"
            " '#  Rank  0 ... device  0 ...' in the log of nccl-tests."
        )
    nodes, per_node = on
    if table.ranks >= 2 and table.ranks != nodes * per_node:
        raise TraceError(
            f"{table.source}: its figures are those of {table.ranks} ranks, and --on says"
            f" {nodes}x{per_node}. Give the nodes and GPUs that ran it."
        )
    return replace(table, nodes=nodes, ranks=nodes * per_node)


def _table(read: NcclTests, on: tuple[int, int] | None) -> MeasuredTable:
    table = _placed(read, on)
    nodes = table.nodes
    dtype = _TYPES.get(table.dtype, table.dtype)
    rows = [
        row
        for row in table.rows
        if row.time_us > 0 and shape_of(table.op, row.size, dtype=dtype, ranks=table.ranks).size
    ]
    if not rows or table.ranks % nodes:
        raise TraceError(
            f"{table.source}: has no row to go by, or not as many ranks on each of its nodes."
        )
    return MeasuredTable(
        name=f"{Path(table.source).name}: {table.op}",
        op=table.op,
        dtype=dtype,
        nodes=nodes,
        per_node=table.ranks // nodes,
        sizes=tuple(row.size for row in rows),
        seconds=np.array([row.time_us for row in rows]) * 1e-6,
        nccl=table.nccl or "",
        launch=table.launch or "",
    )


def _laid(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        inner = merged.get(key)
        both = isinstance(value, Mapping) and isinstance(inner, Mapping)
        merged[key] = _laid(inner, value) if both and inner is not None else value
    return merged
