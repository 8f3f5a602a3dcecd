"""
Does a calibration hold on ops that it has not seen? On half of the ops of each measured site.

    python benchmarks/validate_calibrate.py ../shared/data/measured_collectives.csv [--site WORD]

Tables of one system are taken together; its ops in alphabetical order, every second one is fitted
to and the others are predicted: median of |predicted / measured - 1| before (the preset as the map
of systems has it) and after. Sites with one op are left out. How far predictions err (`ErrorParts`)
is estimated from the other sites alone; the last line has the estimate from all, which the program
has.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from measured import Case, cases_of, load_map, read_rows

from commsim.arrays import Floats
from commsim.errors import CommsimError
from commsim.libraries import LibrarySection
from commsim.study.bench import shape_of
from commsim.study.calibrate import (
    NEAR,
    BenchedMachine,
    ErrorParts,
    MeasuredTable,
    errors_of,
    fitted_to,
    log_ratios,
)

_BEGIN, _FLOOR, _ENOUGH = (0.1, 0.1, 0.05), 0.005, 0.05
_FREEDOM = 6.0  # of the t by which a site's errors are judged: a site may be far off


def main() -> None:
    """Print a line per system, and how many hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", type=Path)
    parser.add_argument("--site", nargs="*", default=[], help="only systems that hold a word")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    cases, _ = cases_of(read_rows(asked.table), load_map(None), ("nccl",))
    found = []
    sites = list(machines(cases))
    erring = [Erring.of(machine, tables) for _, machine, tables in sites]
    for place, (system, machine, tables) in enumerate(sites):
        if asked.site and not any(word.lower() in system.lower() for word in asked.site):
            continue
        ops = sorted({table.op for table in tables})
        seen = [table for table in tables if table.op in ops[::2]]
        hidden = [table for table in tables if table.op in ops[1::2]]
        try:
            before = float(np.median(errors_of(machine, hidden)))
            parts = error_parts(erring[:place] + erring[place + 1 :])
            after = float(np.median(errors_of(fitted_to(machine, seen, parts), hidden)))
        except CommsimError as error:
            print(f"{system}: {error}", file=sys.stderr)
            continue
        found.append({"system": system, "ops": ops, "before": before, "after": after})
        print(
            f"{system:60} {before:7.1%} {after:7.1%}  fitted to {', '.join(ops[::2])}", flush=True
        )
    third = sum(one["after"] <= one["before"] * 2 / 3 for one in found)
    worse = sum(one["after"] > one["before"] + 0.01 for one in found)
    print(f"{len(found)} systems: a third less on {third}, worse by more than a point on {worse}")
    print(f"from all systems: {error_parts(erring)}")
    if asked.json is not None:
        asked.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


@dataclass(frozen=True)
class Erring:
    """ln(predicted / measured) of all rows of a site, and how near rows are in size and table."""

    ratios: Floats
    near: Floats
    same_table: Floats

    @classmethod
    def of(cls, machine: BenchedMachine, tables: list[MeasuredTable]) -> Erring:
        """Predict every table of a site with the figures given."""
        sizes = np.log2(np.concatenate([np.array(table.sizes, np.float64) for table in tables]))
        owner = np.repeat(np.arange(len(tables)), [len(table.sizes) for table in tables])
        near = np.exp(-0.5 * ((sizes[:, None] - sizes) / NEAR) ** 2)
        ratios = np.concatenate(log_ratios(machine, tables))
        return cls(ratios, near, (owner[:, None] == owner).astype(np.float64))

    def unlikely(self, parts: Floats) -> float:
        """Return -ln of the likelihood, by Student's t, of what a machine, table and row err."""
        machine, table, row = np.exp(2 * parts)
        count = len(self.ratios)
        spread = self.near * (machine + table * self.same_table) + row * np.eye(count)
        lower = np.linalg.cholesky(spread)
        white = np.linalg.solve(lower, self.ratios)
        tail = (_FREEDOM + count) / 2 * np.log1p(white @ white / (_FREEDOM - 2))
        return float(np.log(np.diag(lower)).sum() + tail)


def error_parts(sites: Sequence[Erring]) -> ErrorParts:
    """Return the parts under which the errors of the sites are likeliest, by steps in each."""
    at, step = np.log(_BEGIN), 0.5
    least = sum(site.unlikely(at) for site in sites)
    while step > _ENOUGH:
        moved = False
        for one in (*np.eye(3), *-np.eye(3)):
            tried = np.maximum(at + step * one, np.log(_FLOOR))
            value = sum(site.unlikely(tried) for site in sites)
            if value < least:
                at, least, moved = tried, value, True
        step = step if moved else step / 2
    _, table, row = np.exp(at).tolist()
    return ErrorParts(table=round(table, 3), row=round(row, 3))


def machines(cases: list[Case]) -> Iterator[tuple[str, BenchedMachine, list[MeasuredTable]]]:
    """Yield each machine with two ops or more, and its tables of float rows.

    A system that ran over other NICs or with other variables is another machine; another release
    of NCCL is a word of the table.
    """
    found: dict[str, list[Case]] = defaultdict(list)
    for case in cases:
        found[json.dumps([case.rows[0]["system"], case.system.cluster, _settings(case)])].append(
            case
        )
    for own in found.values():
        if len({case.op for case in own}) < 2:
            continue
        system = str(own[0].rows[0]["system"])
        section = LibrarySection("nccl", **_settings(own[0]))
        machine = BenchedMachine(system, own[0].system.cluster, section)
        yield system, machine, [table_of(case) for case in own]


def _settings(case: Case) -> dict[str, Any]:
    """Return the library's settings that are the machine's."""
    library = case.system.library
    return {key: library[key] for key in library if key not in ("name", "version")}


def table_of(case: Case) -> MeasuredTable:
    """Return a case as a table, each size once."""
    times: dict[int, list[float]] = defaultdict(list)
    for size, seconds in zip(case.sizes, case.seconds, strict=True):
        ranks = case.nodes * case.gpus_per_node
        if seconds > 0 and shape_of(case.op, size, dtype="float", ranks=ranks).size:
            times[size].append(seconds)
    sizes = tuple(sorted(times))
    return MeasuredTable(
        name=case.case_id,
        op=case.op,
        dtype="float",
        nodes=case.nodes,
        per_node=case.gpus_per_node,
        sizes=sizes,
        seconds=np.array([float(np.median(times[size])) for size in sizes]),
        nccl=str(case.system.library.get("version", "")),
        launch=case.system.launch,
    )


if __name__ == "__main__":
    main()
