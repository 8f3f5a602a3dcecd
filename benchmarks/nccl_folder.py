"""
Read a folder of NCCL's own decisions: see `validate_nccl.py`, which says what lies in it.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from commsim.errors import CommsimError
from commsim.libraries.nccl.communicator.record import read_record
from commsim.libraries.nccl.env import Knobs, knobs_of
from commsim.libraries.nccl.tuning.releases import release_of
from commsim.libraries.nccl.tuning.tables import tables_of

Row = Mapping[str, str]


@dataclass
class Case:
    """One system on a number of nodes: what NCCL found and chose, and its environment."""

    name: str
    system: str
    nodes: int
    record: Mapping[str, Any]
    knobs: Knobs
    decisions: list[Row]
    costs: dict[tuple[str, int], dict[tuple[str, str], float]]
    p2p: list[Row]
    topology: Path | None


def cases(folder: Path, topologies: Path | None = None) -> Iterator[Case]:
    """Yield the folder's cases; say in one line what is missing or cannot be read.

    `topologies` holds the topology files; the folder's own `topo/` by default.
    """
    topologies = topologies or folder / "topo"
    if not topologies.is_dir():
        print(f"{topologies}: no such folder; name the one of the topology files with --topo.")
    settings = _settings(folder / "ENV.txt")
    for path in sorted(folder.glob("meta_*.json")):
        try:
            yield _case(folder, topologies, path, settings)
        except (CommsimError, KeyError, ValueError) as error:
            print(f"{path.name}: skipped: {error}")


def _case(folder: Path, topologies: Path, path: Path, settings: list[dict[str, str]]) -> Case:
    name = path.stem.removeprefix("meta_")
    record = read_record(path)
    system = str(record.get("system", name.rpartition("_")[0]))
    nodes = int(record["nNodes"])
    record["nccl"] = _version(name, str(record["nccl"]))
    files = [topologies / f"{stem}.xml" for stem in (system, name)]
    topology = next((file for file in files if file.is_file()), None)
    if topology is None:
        print(f"{name}: no {topologies.name}/{system}.xml: NCCL's own graphs only")
    return Case(
        name=name,
        system=system,
        nodes=nodes,
        record=record,
        knobs=_knobs(name, _environment(settings, system, nodes)),
        decisions=_rows(folder / f"decisions_{name}.csv"),
        costs=_costs(_rows(folder / f"costs_{name}.csv")),
        p2p=_rows(folder / f"p2p_{name}.csv", needed=False),
        topology=topology,
    )


def _version(name: str, version: str) -> str:
    """Return the release to choose by: the nearest one known, and say so, where it is another."""
    version = re.split(r"[+-]", version)[0]
    try:
        tables_of(version)
    except CommsimError as error:
        nearest = release_of(version)[0]
        print(f"{name}: {error} Compared with {nearest}.")
        return nearest
    return version


def _rows(path: Path, *, needed: bool = True) -> list[Row]:
    if not path.is_file():
        if needed:
            print(f"{path.name}: missing")
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _costs(rows: list[Row]) -> dict[tuple[str, int], dict[tuple[str, str], float]]:
    costs: dict[tuple[str, int], dict[tuple[str, str], float]] = {}
    for row in rows:
        cell = costs.setdefault((row["op"], int(row["size_bytes"])), {})
        cell[row["algo"], row["proto"]] = float(row["predicted_us"])
    return costs


def _settings(path: Path) -> list[dict[str, str]]:
    """Return the lines of ENV.txt as name -> value, `sys` and `nodes` among them."""
    if not path.is_file():
        return []
    found = []
    text = path.read_text(encoding="utf-8-sig", errors="replace")
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split("#")[0].removeprefix("export ").split()
        setting = dict(word.split("=", 1) for word in words if "=" in word)
        if len(setting) < len(words) or not setting.get("nodes", "1").isdecimal():
            print(f"{path.name}:{number}: left out: not NCCL_X=Y sys=SYSTEM nodes=N: {line}")
        elif setting:
            found.append(setting)
    return found


def _environment(settings: list[dict[str, str]], system: str, nodes: int) -> dict[str, str]:
    """Return the variables of the lines for this system and node count, or for all."""
    environment: dict[str, str] = {}
    for line in settings:
        fits = line.get("sys", system) == system and int(line.get("nodes", nodes)) == nodes
        if fits:
            environment |= {name: line[name] for name in line if name not in ("sys", "nodes")}
    return environment


def _knobs(name: str, environment: Mapping[str, str]) -> Knobs:
    """Return the knobs of a case; a variable that commsim does not know is said and left out."""
    readable: dict[str, str] = {}
    for variable, value in environment.items():
        try:
            knobs_of({variable: value})
            readable[variable] = value
        except CommsimError as error:
            print(f"{name}: {error}")
    knobs = knobs_of(readable)
    for note in knobs.notes:
        print(f"{name}: {note}")
    return knobs
