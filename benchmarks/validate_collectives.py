"""
Predict measured collectives as `commsim bench` does, and print the errors.

    python benchmarks/validate_collectives.py FILE.csv... [--systems MAP.yaml] [--json F]

FILE.csv has the columns of the reference table (case_id, system, sysclass, gpus_per_node, nodes,
library, op, size_bytes, time_us; trust, flag and fabric_notes where known). NCCL and Gloo rows
count; MPI's are passed over. MAP names systems or classes of systems:

    NAME: {cluster: <scenario cluster section without nodes>, library: {...}, launch: process|gpu}

and stands before the repository's own map, benchmarks/systems.yaml. Node and GPU counts come from
the row. Bands: large 16 MiB and above, mid from 64 KiB, small below; medians of |error| of time
over unflagged rows of trust 3 (tables without a trust column: all). The exit status is 0 whatever
the figures are.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from judging import Judged, bands, class_figures, median, peaks_within
from measured import Case, cases_of, launch_of, load_map, read_rows
from prediction import known_version

from commsim.cluster.section import cluster_from
from commsim.errors import CommsimError
from commsim.libraries import LibrarySection
from commsim.sections import decode
from commsim.study.bench.bench import bench

_EQUAL_BLOCKS = frozenset({"all_gather", "reduce_scatter", "all_to_all"})


def predict(
    cluster: Mapping[str, Any],
    library: Mapping[str, Any],
    op: str,
    sizes: Sequence[int],
    nodes: int,
    gpus_per_node: int,
    launch: str,
) -> list[float]:
    """Return the seconds that `commsim bench` prints for each size.

    Sizes that nccl-tests would round down to nothing take the least that it moves.

    Raises:
        CommsimError: the sections describe no cluster or library, or bench refuses.
    """
    built = cluster_from({**cluster, "nodes": nodes}, "systems map: cluster")
    section = decode(_settled(library, launch), LibrarySection, "systems map: library")
    least = 16 * nodes * gpus_per_node if op in _EQUAL_BLOCKS else 4
    asked = sorted(
        {max(least, size // least * least if size >= least else least) for size in sizes}
    )
    result = bench(built, op, asked, library=section, gpus_per_node=gpus_per_node)
    known = {row.size: row.time_us * 1e-6 for row in result.results}
    return [_at(known, max(size, least)) for size in sizes]


def _settled(library: Mapping[str, Any], launch: str) -> dict[str, Any]:
    """Return a library section with its launch, of a release that is known."""
    settled = dict(library)
    if settled.get("name", "nccl") != "nccl":
        return settled
    settled.setdefault("name", "nccl")
    settled.setdefault("launch", launch)
    settled["version"] = known_version(str(settled.get("version") or "2.27"))
    return settled


def _at(known: Mapping[int, float], size: int) -> float:
    """Return the time at the largest size that is not above the one asked for."""
    return known[max((s for s in known if s <= size), default=min(known))]


def judge(case: Case) -> Judged:
    """Return a case with its predictions. Raises CommsimError as `predict`."""
    system = case.system
    return Judged(
        case,
        predict(
            system.cluster, system.library, case.op, case.sizes, case.nodes, case.gpus_per_node,
            launch_of(system),
        ),
    )  # fmt: skip


def judge_all(
    cases: Sequence[Case], skipped: Counter[tuple[str, str]]
) -> tuple[list[Judged], Counter[str]]:
    """Return all cases that can be predicted, and what was assumed; add the rest to `skipped`."""
    found, assumed = [], Counter[str]()
    for case in cases:
        try:
            found.append(judge(case))
        except CommsimError as error:
            skipped[case.sysclass, str(error)] += len(case.rows)
            continue
        assumed.update(case.assumed)
    return found, assumed


def figures(found: list[Judged]) -> dict[str, Any]:
    """Return the figures as JSON has them: errors as fractions, busbw in GB/s."""
    within, count = peaks_within(found)
    return {
        "bands": bands(found),
        "peak_busbw_within_10pct": within / count if count else None,
        "classes": class_figures(found),
        "cases": [_case(case) for case in found],
    }


def _case(judged: Judged) -> dict[str, Any]:
    errors = [abs(e) for e in judged.errors()]
    peak, factor = judged.peak(), judged.factor() * 1e-9
    return {
        "case_id": judged.case.case_id,
        "n": len(errors),
        "median_abs_err": median(errors),
        "peak_measured": peak[0] * factor if peak else None,
        "peak_predicted": peak[1] * factor if peak else None,
    }


def show(result: dict[str, Any], skipped: Counter[tuple[str, str]], assumed: Counter[str]) -> None:
    """Print a table of cases, one of classes, and what was skipped or assumed."""
    print(f"{'case':42} rows  |error|   peak busbw: measured predicted (GB/s)")
    for case in result["cases"]:
        if case["n"]:
            print(
                f"{case['case_id']:42} {case['n']:4} {_percent(case['median_abs_err'])}"
                f" {case['peak_measured']:24.1f} {case['peak_predicted']:9.1f}"
            )
    print(f"\n{'class (trust 3, unflagged)':50}  large    mid  small   peaks within 10 %")
    for name, row in result["classes"].items():
        _line(name, row["bands"], f"{row['peaks_within_10pct']} of {row['cases']}")
    share = result["peak_busbw_within_10pct"]
    _line("all", result["bands"], _percent(share) if share is not None else "-")
    for (sysclass, reason), count in sorted(skipped.items()):
        print(f"skipped: {count} rows of {sysclass}: {reason}")
    for what, count in sorted(assumed.items()):
        print(f"assumed for {count} rows that do not say: {what}")


def _line(name: str, found: Mapping[str, Any], peaks: str) -> None:
    text = " ".join(_percent(band["median_abs_err"]) for band in found.values())
    print(f"{name[:50]:50} {text}   {peaks}")


def _percent(value: float | None) -> str:
    return "     -" if value is None else f"{100 * value:5.1f}%"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", type=Path, nargs="+", metavar="file")
    parser.add_argument("--systems", type=Path, help="a map of systems, before the repository's")
    parser.add_argument("--json", type=Path, help="write the figures here")
    options = parser.parse_args()
    rows = [row for file in options.files for row in read_rows(file)]
    cases, skipped = cases_of(rows, load_map(options.systems), ("nccl", "gloo"))
    found, assumed = judge_all(cases, skipped)
    result = figures(found)
    show(result, skipped, assumed)
    if options.json:
        left = [{"class": c, "reason": r, "rows": n} for (c, r), n in sorted(skipped.items())]
        extra = {"skipped": left, "assumed": dict(assumed)}
        options.json.write_text(json.dumps(result | extra, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
