"""
`check`: is a cluster as fast as its file says? For acceptance tests, and for CI.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from commsim._version import __version__
from commsim.arrays import Floats
from commsim.errors import ScenarioError
from commsim.study.calibrate.predicted import (
    BenchedMachine,
    MeasuredTable,
    machine_of,
    read_tables,
)

__all__ = ["CheckResult", "CheckedBand", "check"]

_BANDS = (
    ("below 64 KiB", 0, 2**16),
    ("64 KiB to 16 MiB", 2**16, 2**24),
    ("from 16 MiB", 2**24, 2**63),
)


class CheckedBand(msgspec.Struct, frozen=True):
    """The sizes of a table that belong together: `slower` is the median of measured over expected.

    `worst` is the size that is slowest against its expectation, `by` how much. `against` says what
    was expected: what the cluster's file has "measured", or what is "predicted".
    """

    table: str
    band: str
    rows: int
    slower: float
    worst: int
    by: float
    passed: bool
    against: str


class CheckResult(msgspec.Struct, frozen=True):
    """Every band of every table; `passed` if none is slower than the tolerance.

    `faults`: what was broken when the cluster's file was fitted, and is part of what is expected.
    """

    cluster: str
    tolerance: float
    bands: tuple[CheckedBand, ...]
    faults: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether all bands passed."""
        return all(band.passed for band in self.bands)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON of `commsim check`."""
        return {
            "schema": 1,
            "commsim": __version__,
            "cluster": self.cluster,
            "tolerance": self.tolerance,
            "passed": self.passed,
            "faults": list(self.faults),
            "bands": [
                {name: getattr(band, name) for name in band.__struct_fields__}
                for band in self.bands
            ],
        }


def check(
    logs: str | Path | Iterable[str | Path],
    cluster: str | Path,
    *,
    tolerance: float = 0.1,
    version: str | None = None,
    on: tuple[int, int] | None = None,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> CheckResult:
    """Compare nccl-tests logs with what `cluster` should take; slower than `tolerance` fails.

    An op on as many GPUs as the cluster's file has measured is held against that, carried to other
    sizes by the prediction; others against the prediction itself. Sizes are judged in bands by
    their medians, as single rows are noisy. Faster never fails. `on`: as in `calibrate`.
    `progress` hears how many of how many tables are done.

    Raises:
        TraceError: a log cannot be read.
        ScenarioError: no such cluster, or a tolerance that is none.
    """
    if not 0 < tolerance <= 1:
        raise ScenarioError(
            f"--tolerance {tolerance:g}: give a share above zero, up to 1, like 0.1 (10%)."
        )
    machine = machine_of(cluster)
    if version is not None:
        machine = machine.having({}, version=version)
    tables = read_tables([logs] if isinstance(logs, str | Path) else logs, on)
    bands: list[CheckedBand] = []
    for at, table in enumerate(tables):
        progress(at, len(tables))
        bands += _bands(table, *_expected(machine, table), tolerance)
    return CheckResult(str(cluster), tolerance, tuple(bands), machine.faults)


def _expected(machine: BenchedMachine, table: MeasuredTable) -> tuple[Floats, str]:
    """Return the time that each row of a table should take, and what says so."""
    known = [
        one
        for one in machine.measured
        if (one.op, one.nodes, one.per_node) == (table.op, table.nodes, table.per_node)
    ]
    if not known:
        return machine.seconds(table), "predicted"
    # The release that was measured, not the one of today: an update that is slower must fail.
    as_then = replace(table, nccl=known[0].nccl, launch=known[0].launch)
    sizes = np.concatenate([np.array(one.sizes) for one in known])
    off = np.concatenate([np.log(one.seconds / machine.seconds(one)) for one in known])
    at, place = np.unique(sizes, return_inverse=True)
    mean = np.bincount(place, off) / np.bincount(place)
    carried = np.interp(np.log(table.sizes), np.log(at), mean)
    return machine.seconds(as_then) * np.exp(carried), "measured"


def _bands(
    table: MeasuredTable, expected: Floats, against: str, tolerance: float
) -> list[CheckedBand]:
    found = []
    ratios = table.seconds / expected
    sizes = np.array(table.sizes)
    for name, low, high in _BANDS:
        inside = np.flatnonzero((sizes >= low) & (sizes < high))
        if not len(inside):
            continue
        median = float(np.median(ratios[inside]))
        worst = int(inside[np.argmax(ratios[inside])])
        found.append(
            CheckedBand(
                table=table.name,
                band=name,
                rows=len(inside),
                slower=median - 1,
                worst=int(sizes[worst]),
                by=float(ratios[worst]) - 1,
                passed=median <= 1 + tolerance,
                against=against,
            )
        )
    return found
