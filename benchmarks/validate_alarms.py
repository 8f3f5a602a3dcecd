"""
Does `calibrate` cry wolf, and does it see the wolf? On measured sites and on planted machines.

    python benchmarks/validate_alarms.py ../shared/data/measured_collectives.csv [--only sites]

Healthy: each measured site, by all of its ops and by each alone; each of `_PRESETS`, three logs of
the machine as given with 5 % of noise in each row. An alarm there is false (a real site may have a
fault that its owner has not seen: these are listed). Planted, on the presets: NICs that carry 0.9,
0.7 and 0.5 of their rate, and one op at 0.9, 0.7 and 0.5 of its speed. An alarm is any
sentence of `calibrate`: a fault, or what is out of line.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from measured import cases_of, load_map, read_rows
from msgspec.structs import replace
from validate_calibrate import machines

from commsim.cluster import cluster_from
from commsim.errors import CommsimError
from commsim.study.calibrate import BenchedMachine, MeasuredTable
from commsim.study.calibrate.calibrate import fitted

_PRESETS = (("dgx-a100", 8), ("dgx-h100", 8), ("aws-p6-b200", 8))
_OPS = ("all_gather", "all_reduce", "reduce_scatter")
_SIZES = tuple(2**power for power in range(12, 31, 2))
_NOISE = 0.05
_SEEDS = (1, 2, 3)
_SPEEDS = (0.9, 0.7, 0.5)


def main() -> None:
    """Print each alarm on a healthy machine, and how many were raised of how many."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", type=Path)
    parser.add_argument("--only", choices=("sites", "planted"))
    asked = parser.parse_args()
    raised: Counter[str] = Counter()
    tried: Counter[str] = Counter()
    for kind, name, machine, tables in _cases(asked.table, asked.only):
        try:
            said = alarms(machine, tables)
        except CommsimError as error:
            print(f"{kind}  {name}: {error}", flush=True)
            continue
        tried[kind] += 1
        raised[kind] += bool(said)
        print(f"{kind:24} {name:60} {'; '.join(said) or '-'}", flush=True)
    for kind, count in tried.items():
        print(f"{kind:24} {raised[kind]} of {count} raise an alarm")


def alarms(machine: BenchedMachine, tables: list[MeasuredTable]) -> list[str]:
    """Return what `calibrate` says of a machine, in a few words each."""
    found = fitted(machine, tables)
    fault = [] if found.finding is None else [found.finding.fault.name]
    return fault + [" ".join(told.split()[:4]) for told in found.out_of_line]


def _cases(
    path: Path, only: str | None
) -> Iterator[tuple[str, str, BenchedMachine, list[MeasuredTable]]]:
    if only != "planted":
        cases, _ = cases_of(read_rows(path), load_map(None), ("nccl",))
        for system, machine, tables in machines(cases):
            yield "site", system[:58], machine, tables
            for op in sorted({table.op for table in tables}):
                own = [table for table in tables if table.op == op]
                yield "site, one op", f"{system[:40]} {op}", machine, own
    for preset, gpus in _PRESETS if only != "sites" else ():
        machine = BenchedMachine(preset, {"preset": preset})
        for seed in _SEEDS:
            yield "healthy", f"{preset} seed {seed}", machine, measured(machine, gpus, seed)
        for speed in _SPEEDS:
            slow = {"nic": {"efficiency": _given(machine) * speed}}
            tables = measured(machine.having(slow), gpus, 1)
            yield f"NICs at {speed}", preset, machine, tables
            tables = [
                replace(one, seconds=one.seconds / (speed if one.op == _OPS[0] else 1))
                for one in measured(machine, gpus, 1)
            ]
            yield f"one op at {speed}", preset, machine, tables


def measured(machine: BenchedMachine, gpus: int, seed: int) -> list[MeasuredTable]:
    """Return what nccl-tests would print on two nodes of a machine."""
    noise = np.random.default_rng(seed)
    found = []
    for op in _OPS:
        table = MeasuredTable(op, op, "float", 2, gpus, _SIZES, np.ones(len(_SIZES)))
        scatter = np.exp(noise.normal(0, _NOISE, len(_SIZES)))
        found.append(replace(table, seconds=machine.seconds(table) * scatter))
    return found


def _given(machine: BenchedMachine) -> float:
    spec = cluster_from({**machine.cluster, "nodes": 1}, machine.name).specs[0]
    assert spec.nic is not None
    return spec.nic.wire.efficiency


if __name__ == "__main__":
    main()
