"""Read tables of measured collectives, and say which cluster and library each row ran on."""

from __future__ import annotations

import csv
import functools
import math
import re
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

__all__ = [
    "Case",
    "System",
    "cases_of",
    "launch_of",
    "load_map",
    "read_rows",
    "site_of",
    "system_of",
]

Row = dict[str, str]
OPS = {
    "allreduce": "all_reduce", "allgather": "all_gather", "reducescatter": "reduce_scatter",
    "alltoall": "all_to_all", "sendrecv": "send_recv",
}  # fmt: skip
_OWN = Path(__file__).with_name("systems.yaml")
_NEEDED = (
    "case_id", "system", "sysclass", "gpus_per_node", "nodes", "library", "op", "size_bytes",
    "time_us",
)  # fmt: skip
_ENTRY = ("cluster", "library", "launch", "unseen")
_ENV = re.compile(r"\bNCCL_[A-Z0-9_]+=[^\s,;]+")
_VERSION = re.compile(r"\bNCCL (\d+\.\d+)")
# Sites whose name does not begin their `system`: tables taken on one machine, or by one operator.
_SITES = {
    "ABCI": "ABCI", "CoreWeave": "CoreWeave", "xxrjun": "xxrjun", "GB200 NVL72 (18x4)": "CoreWeave",
    "racks GB200": "CoreWeave", "Polaris": "Polaris", "Alps": "Alps", "a3-mega": "GCP a3-mega",
    "a3-ultra": "GCP a3-ultra", "GCP A4": "GCP A4", "BM.GPU": "OCI",
}  # fmt: skip


@dataclass(frozen=True)
class System:
    """What a table ran on: sections of a scenario, and how it was launched."""

    cluster: Mapping[str, Any]
    library: Mapping[str, Any]
    launch: str
    unseen: Mapping[str, Any] | None = None
    """The cluster without what was read off its own tables; None where nothing was."""


@dataclass
class Case:
    """Rows of one table: one system, op, node count. Sizes in bytes, times in seconds."""

    case_id: str
    sysclass: str
    site: str
    system: System
    op: str
    nodes: int
    gpus_per_node: int
    rows: list[Row]

    @property
    def sizes(self) -> list[int]:
        """The size of each row."""
        return [int(float(row["size_bytes"])) for row in self.rows]

    @property
    def seconds(self) -> list[float]:
        """The measured time of each row."""
        return [float(row["time_us"]) * 1e-6 for row in self.rows]

    @property
    def trust(self) -> int:
        """How far the source of the table is trusted: 3 (well, or nothing is said) to 1."""
        try:
            return int(float(self.rows[0].get("trust") or 3))
        except ValueError:
            return 1

    @property
    def assumed(self) -> dict[str, int]:
        """What the table does not say and was assumed, with its rows."""
        library, found = self.system.library, {}
        if library.get("name", "nccl") == "nccl" and "version" not in library:
            found["NCCL version: 2.27"] = len(self.rows)
        if not self.system.launch:
            found["launch: a process per GPU"] = len(self.rows)
        return found


def read_rows(path: Path) -> list[Row]:
    """Return the rows of a CSV file, with every column of the reference table that is needed.

    What a table without a column says in another way is filled in; what it does not say is "".
    Exits with a message if there is no such file.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig", errors="replace") as file:
            reader = csv.DictReader(file)
            missing = [name for name in _NEEDED if name not in (reader.fieldnames or ())]
            rows = [_completed(row) for row in reader]
    except (OSError, csv.Error) as error:
        sys.exit(f"{path}: cannot be read: {error}.")
    if missing:
        print(f"{path}: has no column {', '.join(missing)}.")
    return rows


def _completed(row: Mapping[str | None, Any]) -> Row:
    """Return a row as text, with what follows from its other columns."""
    full = dict.fromkeys(_NEEDED, "")
    full |= {name: (value or "").strip() for name, value in row.items() if name is not None}
    full["op"] = full["op"].lower()
    full["library"] = full["library"].lower() or "nccl"
    full["system"] = full["system"] or full["sysclass"]
    full["sysclass"] = full["sysclass"] or full["system"]
    full["gpus_per_node"] = full["gpus_per_node"] or _over(full, "nranks", "nodes")
    # nccl-tests' GB/s are bytes per ns
    full["time_us"] = full["time_us"] or _over(full, "size_bytes", "algbw_gbs", 1e-3)
    full["case_id"] = full["case_id"] or " ".join(
        full[name] for name in ("system", "op", "nodes", "gpus_per_node")
    )
    return full


def _over(row: Row, above: str, below: str, factor: float = 1.0) -> str:
    """Return one column over another; "" where they do not say."""
    try:
        return repr(float(row.get(above, "")) / float(row.get(below, "")) * factor)
    except (ValueError, ZeroDivisionError):
        return ""


def load_map(path: Path | None) -> dict[str, System]:
    """Return the systems of a map file by name, over those of the repository's own map."""
    systems = dict(_systems(_OWN))
    if path is not None:
        systems |= _systems(path)
    return systems


@functools.cache
def _systems(path: Path) -> Mapping[str, System]:
    found = {}
    for name, entry in _entries(path).items():
        if not isinstance(entry, dict) or not isinstance(entry.get("cluster"), dict):
            sys.exit(f"{path}: {name}: give `cluster`, a scenario's cluster section without nodes.")
        launch, library = str(entry.get("launch") or ""), entry.get("library") or {}
        if launch not in ("", "process", "gpu"):
            sys.exit(f"{path}: {name}: launch: {launch} is neither process nor gpu.")
        if not isinstance(library, dict):
            sys.exit(f"{path}: {name}: library: give a scenario's library section.")
        for key in [key for key in entry if key not in _ENTRY]:
            print(f"{path}: {name}: {key}: means nothing here; left out.")
        if "nodes" in entry["cluster"]:
            print(f"{path}: {name}: cluster.nodes: left out, each row says how many.")
        found[str(name)] = System(entry["cluster"], library, launch, entry.get("unseen"))
    return found


def _entries(path: Path) -> Mapping[Any, Any]:
    """Return what a map file holds. Exits with a message where it is none."""
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        sys.exit(f"{path}: cannot be read: {error}.")
    if data is None:
        return {}
    if not isinstance(data, dict):
        sys.exit(f"{path}: a map of systems is NAME: {{cluster: ..., library: ..., launch: ...}}.")
    return data


def system_of(row: Row, systems: Mapping[str, System]) -> System | None:
    """Return what a row ran on: by its system, else by its class; its notes add environment."""
    found = systems.get(row["system"]) or systems.get(row["sysclass"])
    if found is None:
        return None
    notes = row.get("fabric_notes") or ""
    # an entry that names another library describes the machine of this row, not its settings
    same = found.library.get("name", "nccl") == row["library"]
    library = {**(found.library if same else {}), "name": row["library"]}
    if row["library"] == "nccl":
        named = dict(item.split("=", 1) for item in _ENV.findall(notes))
        library["env"] = {**(library.get("env") or {}), **named}
        version = _VERSION.search(notes)
        if version and "version" not in library:
            library["version"] = version[1]
    launch = found.launch or ("process" if "single process" in notes else "")
    return System(found.cluster, library, launch, found.unseen)


def launch_of(system: System) -> str:
    """Return how a system's jobs are launched: "process" or "gpu"."""
    return system.launch or "gpu"


def site_of(row: Row) -> str:
    """Return the site of a row: what is left out of a fit together."""
    for sign, site in _SITES.items():
        if sign in row["system"]:
            return site
    return row["system"]


def cases_of(
    rows: Iterable[Row], systems: Mapping[str, System], libraries: tuple[str, ...]
) -> tuple[list[Case], Counter[tuple[str, str]]]:
    """Return the complete rows of some libraries as cases, and the (class, reason) of the rest."""
    cases: dict[tuple[str, ...], Case] = {}
    skipped: Counter[tuple[str, str]] = Counter()
    for row in rows:
        if row["library"] not in libraries:
            continue
        reason = _unusable(row)
        system = system_of(row, systems)
        if reason or system is None:
            skipped[row["sysclass"], reason or "no such system or class in the map"] += 1
            continue
        key = (row["case_id"], row["system"], row["op"], row["nodes"], row["gpus_per_node"])
        if key not in cases:
            cases[key] = Case(
                row["case_id"], row["sysclass"], site_of(row), system,
                OPS.get(row["op"], row["op"]), _count(row["nodes"]),
                _count(row["gpus_per_node"]), [],
            )  # fmt: skip
        cases[key].rows.append(row)
    return list(cases.values()), skipped


def _unusable(row: Row) -> str:
    """Return why a row says too little, or ""."""
    try:
        size, time = float(row["size_bytes"]), float(row["time_us"])
        counts = _count(row["nodes"]), _count(row["gpus_per_node"])
    except (ValueError, OverflowError):
        return "incomplete: no size, time or counts"
    if not math.isfinite(size) or not math.isfinite(time):
        return "incomplete: no size, time or counts"
    return "" if size >= 1 and time > 0 and min(counts) > 0 else "incomplete: a zero"


def _count(text: str) -> int:
    """Return a count. Raises ValueError for text that is none."""
    return int(float(text))
