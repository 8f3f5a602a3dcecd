"""
Fit the constants of Gloo's software to measured tables.

    python benchmarks/fit_gloo.py FILE.csv [-o constants.yaml] [--systems MAP.yaml]

Priors and meanings stand in commsim/libraries/gloo/constants.yaml; `-o` writes that file anew with
fitted values. Only what the tables tell is fitted: TCP over Ethernet, and adding. Without `-o` it
says how far the constants are from the tables, row by row.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from fitting import Prior, fit
from measured import Case, cases_of, load_map, read_rows

from commsim.arrays import Floats
from commsim.cluster import Cluster, cluster_from
from commsim.libraries import Request
from commsim.libraries.gloo import Gloo
from commsim.libraries.gloo.constants import GlooConstants, constants

_OWN = Path(__file__).parents[1] / "commsim/libraries/gloo/constants.yaml"
_PRIORS = [
    Prior("rate", 4e9, 0.2),
    Prior("latency", 18e6, 0.4),
    Prior("again", 5e6, 0.6),
    Prior("reduce_rate", 5e9, 0.8),
]


def main() -> None:
    """Fit, or compare."""
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--systems", type=Path)
    options = parser.parse_args()
    cases, _ = cases_of(read_rows(options.file), load_map(options.systems), ("gloo",))
    cases = [case for case in cases if case.trust == 3]
    if not cases:
        sys.exit(f"{options.file}: no rows of Gloo that are trusted.")
    measured = np.concatenate([case.seconds for case in cases])
    found = constants()
    if options.output:
        best = fit(
            lambda values: predicted(cases, changed(found, values)),
            measured, by_band([size for case in cases for size in case.sizes]), _PRIORS,
        )  # fmt: skip
        found = changed(found, best)
        options.output.write_text(rewritten(_OWN.read_text(), best, options.file.name))
    report(cases, measured, predicted(cases, found))


def predicted(cases: list[Case], costs: GlooConstants) -> Floats:
    """Return the seconds of each row by a set of constants."""
    return np.array([seconds for case in cases for seconds in _case(case, costs)])


def by_band(sizes: list[int]) -> Floats:
    """Return weights by which small, middle and large messages weigh the same together."""
    band = np.searchsorted([64 << 10, 16 << 20], sizes, side="right")
    counts = np.bincount(band, minlength=3)
    weights: Floats = 1 / counts[band]
    return weights


def changed(costs: GlooConstants, values: dict[str, float]) -> GlooConstants:
    """Return constants with some of them replaced."""
    ethernet = msgspec.structs.replace(
        costs.media["ethernet"],
        rate=values["rate"],
        latency=round(values["latency"]),
        again=round(values["again"]),
    )
    return msgspec.structs.replace(
        costs, media={**costs.media, "ethernet": ethernet}, reduce_rate=values["reduce_rate"]
    )


def rewritten(text: str, values: dict[str, float], name: str) -> str:
    """Return the file of constants with fitted values in their places, and where they are from."""
    written = {
        "rate": f"{values['rate'] / 1e9:.3g}GB/s",
        "latency": f"{values['latency'] / 1e6:.3g}us",
        "again": f"{values['again'] / 1e6:.3g}us",
        "reduce_rate": f"{values['reduce_rate'] / 1e9:.3g}GB/s",
    }
    for key, value in written.items():  # the first of a name is Ethernet's
        text = re.sub(rf"(\n *{key}: )[0-9][^\n]*", rf"\g<1>{value}", text, count=1)
        source = f'"fitted: benchmarks/fit_gloo.py on {name}, one system of 2017"'
        text = re.sub(rf'(\n *{key}: )"[^\n]*', rf"\g<1>{source}", text, count=1)
    return text


def report(cases: list[Case], measured: Floats, found: Floats) -> None:
    """Print each row, and the median error."""
    error = found / measured - 1
    rows = [(case, size) for case in cases for size in case.sizes]
    for (case, size), real, guess, off in zip(rows, measured, found, error, strict=True):
        print(f"{case.case_id:24} {size:>10} {real * 1e6:10.1f} {guess * 1e6:10.1f} {off:+7.1%}")
    print(f"median absolute error {np.median(np.abs(error)):.1%} of {len(error)} rows")


def _case(case: Case, costs: GlooConstants) -> list[float]:
    cluster = _cluster(case)
    ranks = tuple(range(cluster.world_size))
    gloo = Gloo(case.system.library.get("algo"), costs=costs)
    requests = [Request(case.op, size, ranks, dtype="float32") for size in case.sizes]
    return [gloo.plan(request, cluster).idle * 1e-12 for request in requests]


def _cluster(case: Case) -> Cluster:
    section: dict[str, Any] = {**case.system.cluster, "nodes": case.nodes}
    return cluster_from(section, case.case_id)


if __name__ == "__main__":
    main()
