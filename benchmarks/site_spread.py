"""
How far sites that a cluster file cannot tell apart differ: what no prediction from it can beat.

    python benchmarks/site_spread.py FILE.csv...

A cell is one size of one op on so many nodes and GPUs of one class of machine, measured at two
sites or more. Printed by band: the median |error| of the best that one prediction for all sites of
a cell can do (their median time, in logarithms), and of each site predicted by its sisters' mean,
as a model that was fitted on all sites but one does at best. The last lines do the same for tables
that one site took twice, and for the in-place and out-of-place rows of one table.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from judging import BANDS
from measured import Case, cases_of, load_map, read_rows

Cells = dict[Hashable, dict[Hashable, list[float]]]
"""Per cell and per owner (site, table, row kind): logarithms of seconds."""


def cells_of(
    cases: Iterable[Case],
    cell: Callable[[Case], tuple[object, ...]],
    owner: Callable[[Case, dict[str, str]], Hashable],
) -> Cells:
    """Return the unflagged times of trust 3 by `cell` and size, then by `owner`."""
    found: Cells = defaultdict(lambda: defaultdict(list))
    for case in cases:
        if case.trust != 3:
            continue
        for row, size, seconds in zip(case.rows, case.sizes, case.seconds, strict=True):
            if not row.get("flag"):
                found[(*cell(case), size)][owner(case, row)].append(float(np.log(seconds)))
    return {key: dict(owners) for key, owners in found.items() if len(owners) > 1}


def spread(cells: Cells, band: str) -> tuple[int, float, float]:
    """Return how many cells a band has, and the two median errors (shared, by the sisters)."""
    low, high = BANDS[band]
    shared, sisters, count = [], [], 0
    for key, owners in cells.items():
        if not low <= key[-1] < high:  # type: ignore[index]
            continue
        count += 1
        means = {name: float(np.mean(logs)) for name, logs in owners.items()}
        middle = float(np.median(list(means.values())))
        for name, logs in owners.items():
            others = float(np.mean([mean for other, mean in means.items() if other != name]))
            shared += [abs(np.expm1(middle - log)) for log in logs]
            sisters += [abs(np.expm1(others - log)) for log in logs]
    if not count:
        return 0, float("nan"), float("nan")
    return count, float(np.median(shared)), float(np.median(sisters))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", type=Path, nargs="+", metavar="file")
    options = parser.parse_args()
    rows = [row for file in options.files for row in read_rows(file)]
    cases, _ = cases_of(rows, load_map(None), ("nccl",))

    def machine(case: Case) -> tuple[object, ...]:
        env = tuple(sorted((case.system.library.get("env") or {}).items()))
        return case.sysclass, case.op, case.nodes, case.gpus_per_node, env

    def at_site(case: Case) -> tuple[object, ...]:
        return case.site, *machine(case)

    kinds = {
        "sites of one class": cells_of(cases, machine, lambda case, row: case.site),
        "tables of one site": cells_of(cases, at_site, lambda case, row: case.case_id),
        "rows of one table": cells_of(
            cases, lambda case: (case.case_id, *machine(case)), lambda case, row: row["in_place"]
        ),
    }
    for name, cells in kinds.items():
        for band in BANDS:
            count, shared, sisters = spread(cells, band)
            if count:
                print(
                    f"{name}, {band}: {count} cells, one prediction for all {100 * shared:.1f} %, "
                    f"each by the others {100 * sisters:.1f} %"
                )


if __name__ == "__main__":
    main()
