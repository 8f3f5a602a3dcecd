"""
Fit the constants of NCCL's time to measured nccl-tests tables.

    python benchmarks/fit_nccl.py FILE.csv... [-o timing.yaml] [--leave-out sites|classes|NAME,...]
                                  [--systems MAP.yaml] [--json F]

Priors, units and meanings stand in commsim/libraries/nccl/timing/timing.yaml; `-o` writes it
anew with fitted values. Every case (one op on one system) weighs the same, however long its
sweep; those
of trust 2 half, and half again where NCCL is older than the releases whose choices are known.
Flagged rows and those of less trust do not count.
`--leave-out sites` fits anew without each site in turn, from the priors on, and predicts that
site: what a machine that was never measured can expect. `--leave-out classes` does so for each
class of machine. Needs numpy only: half a minute of one core, and ten seconds for each left out.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

sys.path.insert(0, str(Path(__file__).parent))

from fitting import Prior, fit
from judging import Judged, bands, classes, peaks_within
from measured import Case, cases_of, launch_of, load_map, read_rows
from prediction import runs_for

from commsim.arrays import Floats, Ints
from commsim.libraries.nccl.timing.constants import terms_of
from commsim.libraries.nccl.timing.predict import time_runs
from commsim.libraries.nccl.timing.runs import Runs
from commsim.libraries.nccl.tuning.releases import release_of

_OWN = Path(__file__).parents[1] / "commsim/libraries/nccl/timing/timing.yaml"
_WEIGHT = {3: 1.0, 2: 0.5}


@dataclass
class Data:
    """All cases, their distinct sizes as runs, and what was measured there."""

    cases: list[Case]
    runs: Runs
    case_of: Ints
    seconds: Floats
    """Geometric mean of a size's unflagged rows; NaN where all are flagged."""
    weights: Floats
    unseen: Runs
    """The runs on clusters without what was read off their own tables."""


def data_of(cases: Sequence[Case]) -> Data:
    """Return the runs of cases, one per distinct size."""
    parts, unseen, owner, seconds, weights = [], [], [], [], []
    for number, case in enumerate(cases):
        sizes = sorted(dict.fromkeys(case.sizes))
        parts.append(_runs(case, case.system.cluster, sizes))
        own = case.system.unseen
        unseen.append(parts[-1] if own is None else _runs(case, own, sizes))
        found = [_measured(case, size) for size in sizes]
        good = sum(np.isfinite(found))
        weight = _weight(case) / max(good, 1)
        owner += [number] * len(sizes)
        seconds += found
        weights += [weight if np.isfinite(value) else 0.0 for value in found]
    return Data(
        list(cases), Runs.joined(parts), np.array(owner), np.array(seconds), np.array(weights),
        Runs.joined(unseen),
    )  # fmt: skip


def _runs(case: Case, cluster: Mapping[str, Any], sizes: Sequence[int]) -> Runs:
    return runs_for(
        cluster, case.system.library, case.op, sizes, nodes=case.nodes,
        gpus_per_node=case.gpus_per_node, launch=launch_of(case.system),
    )  # fmt: skip


def _weight(case: Case) -> float:
    """Return what a case counts; half where NCCL is so old that its choice is a guess."""
    _, guessed = release_of(str(case.system.library.get("version", "2.27")))
    return _WEIGHT.get(case.trust, 0.0) * (0.5 if guessed else 1.0)


def _measured(case: Case, size: int) -> float:
    logs = [
        np.log(seconds)
        for row, at, seconds in zip(case.rows, case.sizes, case.seconds, strict=True)
        if at == size and not row.get("flag")
    ]
    return float(np.exp(np.mean(logs))) if logs else float("nan")


def fitted(data: Data, priors: list[Prior], fixed: dict[str, float], keep: Any) -> dict[str, float]:
    """Return the constants that fit the chosen runs best."""
    used = keep & (data.weights > 0)
    runs = data.runs.at(used)

    def predict(values: dict[str, float]) -> Floats:
        return time_runs(runs, terms_of(values | fixed)).seconds

    return fit(predict, data.seconds[used], data.weights[used], priors)


def judged(data: Data, seconds: Floats) -> list[Judged]:
    """Return each case with the predictions of its rows."""
    found = []
    for number, case in enumerate(data.cases):
        own = data.case_of == number
        table = dict(zip(data.runs.size[own].tolist(), seconds[own].tolist(), strict=True))
        found.append(Judged(case, [table[float(size)] for size in case.sizes]))
    return found


def left_out(asked: str, cases: Sequence[Case]) -> tuple[str, list[str]]:
    """Return what `--leave-out` goes by ("site", "sysclass") and whom it names, each once."""
    by = "sysclass" if asked == "classes" else "site"
    if asked in ("sites", "classes"):
        return by, list(dict.fromkeys(getattr(case, by) for case in cases if case.trust == 3))
    known = sorted({getattr(case, by) for case in cases})
    names = list(dict.fromkeys(asked.split(","))) if asked else []
    for name in names:
        if name not in known:
            sys.exit(f"--leave-out: no {by} {name!r}. Known: {', '.join(known)}.")
    return by, names


def without(
    data: Data, priors: list[Prior], fixed: dict[str, float], names: Sequence[str], by: str
) -> Floats:
    """Return predictions of what `by` ("site", "sysclass") names, by constants that never saw it.

    Nor do its clusters have what was read off their tables (a fabric's congestion). NaN elsewhere.
    """
    seconds = np.full(len(data.runs), np.nan)
    owner = np.array([getattr(data.cases[number], by) for number in data.case_of])
    for name in names:
        there = owner == name
        values = fitted(data, priors, fixed, ~there)
        seconds[there] = time_runs(data.unseen.at(there), terms_of(values | fixed)).seconds
    return seconds


def summary(name: str, cases: list[Judged]) -> dict[str, Any]:
    """Return and print the bars' figures: trust 3, unflagged."""
    found = bands(cases)
    share = peaks_within(cases)
    text = "  ".join(
        f"{band} {100 * e['median_abs_err']:.1f} %" for band, e in found.items() if e["n"]
    )
    print(f"{name}: median |error| {text}; peak busbw within 10 %: {share[0]} of {share[1]}")
    return {"bands": found, "peak_busbw_within_10pct": share[0] / max(share[1], 1)}


def write(path: Path, source: dict[str, Any], values: dict[str, float], files: list[Path]) -> None:
    """Write the table of constants with new values."""
    lines = [
        "# The constants of NCCL's time: written by benchmarks/fit_nccl.py from measured tables of",
        f"# nccl-tests ({', '.join(file.name for file in files)}).",
        "# Each `value` was fitted and pulled to its `prior` (log-normal with `spread`) where the",
        "# data say little; edit priors, never values.",
        "constants:",
    ]
    for name, entry in source["constants"].items():
        value = float(f"{values[name]:.4g}")
        lines.append(
            f"  {name}: {{value: {value:g}, prior: {entry['prior']:g}, spread: {entry['spread']:g},"
            f' unit: "{entry["unit"]}",\n    says: "{entry["says"]}"}}'
        )
    lines.append("fixed:  # nothing measured says more")
    for name, entry in source["fixed"].items():
        lines.append(f'  {name}: {{value: {entry["value"]:g}, says: "{entry["says"]}"}}')
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", type=Path, nargs="+", metavar="file")
    parser.add_argument("-o", "--output", type=Path, help="write the constants here")
    parser.add_argument(
        "--leave-out", default="", help="site[,site...], or `sites` or `classes` for each in turn"
    )
    parser.add_argument("--systems", type=Path, help="a map of systems, over the repository's own")
    parser.add_argument("--json", type=Path, help="write the figures here")
    parser.add_argument("--details", action="store_true", help="print each case and constant")
    options = parser.parse_args()
    source = yaml.safe_load(_OWN.read_text(encoding="utf-8"))
    priors = [Prior(n, e["prior"], e["spread"]) for n, e in source["constants"].items()]
    fixed = {name: float(entry["value"]) for name, entry in source["fixed"].items()}
    rows = [row for file in options.files for row in read_rows(file)]
    cases, _ = cases_of(rows, load_map(options.systems), ("nccl",))
    data = data_of(cases)
    by, names = left_out(options.leave_out, cases)
    every = np.ones(len(data.runs), dtype=bool)
    values = fitted(data, priors, fixed, every)
    best = judged(data, time_runs(data.runs, terms_of(values | fixed)).seconds)
    figures = {"constants": len(priors), "fitted_on_all": summary("fitted on all", best)}
    if options.details:
        print({name: round(value, 3) for name, value in values.items()})
        classes(best, print)
    if names:
        cold = without(data, priors, fixed, names, by)
        seen = [case for case in judged(data, cold) if np.isfinite(case.predicted).all()]
        kind = "classes" if by == "sysclass" else "sites"
        figures[f"{kind}_left_out"] = summary(f"{kind} left out", seen)
        if options.details:
            classes(seen, print)
    if options.output:
        write(options.output, source, values, options.files)
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
