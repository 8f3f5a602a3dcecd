"""
Compare the bubbles of simulated pipelines with those of the zero-bubble paper.

    python benchmarks/validate_pipeline.py FILE.csv [--json FILE]

Rows like tests/data/zero_bubble_table5.csv (Qi et al., ICLR 2024, table 5): model, p, m, TF_ms,
TB_ms, TW_ms, Tcomm_ms, then published bubble fractions, b_1f1b, b_1f1bi, b_zbh1, b_zbh2, b_zb1p,
b_zb2p; a column that is missing or empty is passed over. The paper's interleaved runs hold one
layer per virtual stage, so that v follows from the model's layers (the ends have one fewer); a
column `v` overrides it. An activation's share that lives on to the weight gradient is 32 of
34 + 5 a s/h bytes per entry, as in the paper's appendix; a column `weight_memory` overrides it.
Each row is built, simulated and measured like a scenario.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from table import read_table

from commsim.engine import simulate
from commsim.errors import CommsimError
from commsim.libraries import LibrarySection, make_library
from commsim.metrics import measure
from commsim.sections import decode
from commsim.workload import PipelineSection, build_pipeline

SCHEDULES = {
    "b_1f1b": "1f1b", "b_1f1bi": "interleaved_1f1b", "b_zbh1": "zb_h1", "b_zbh2": "zb_h2",
    "b_zb1p": "zb_1p", "b_zb2p": "zb_2p", "b_zbv": "zb_v",
}  # fmt: skip

NEEDED = ("model", "p", "m", "TF_ms", "TB_ms", "TW_ms", "Tcomm_ms")
MODELS = {  # layers, heads, hidden: table 3 of the paper; sequences of 1,024 tokens
    "1.5B": (22, 24, 2304),
    "6.2B": (30, 32, 4096),
    "14.6B": (46, 40, 5120),
    "28.3B": (62, 48, 6144),
}


def judge(row: dict[str, str], column: str) -> dict[str, Any]:
    """Return the simulated and the published bubble of one cell of the table."""
    schedule = SCHEDULES[column]
    settings: dict[str, Any] = {
        "stages": int(row["p"]), "microbatches": int(row["m"]), "schedule": schedule,
        "forward": f"{row['TF_ms']}ms", "backward": f"{row['TB_ms']}ms",
        "weight": f"{row['TW_ms']}ms", "p2p": f"{row['Tcomm_ms']}ms",
        "weight_memory": weight_memory(row),
    }  # fmt: skip
    if schedule == "interleaved_1f1b":
        settings["virtual_stages"] = virtual_stages(row)
    graph = build_pipeline(decode(settings, PipelineSection, row["model"])).graph
    timeline = simulate(graph, None, library=make_library(LibrarySection()))
    bubble, published = measure(timeline).bubble_fraction, float(row[column])
    assert bubble is not None
    return {
        "model": row["model"], "m": int(row["m"]), "schedule": schedule, "bubble": bubble,
        "published": published, "delta": bubble - published,
    }  # fmt: skip


def virtual_stages(row: dict[str, str]) -> int:
    """Return the virtual stages per device: one layer each, the ends one layer short."""
    if row.get("v"):
        return int(row["v"])
    if row["model"] not in MODELS:
        raise ValueError("layers unknown, and no column v (virtual stages)")
    return (MODELS[row["model"]][0] + 2) // int(row["p"])


def weight_memory(row: dict[str, str]) -> float:
    """Return the share of an activation that the weight gradient needs."""
    if row.get("weight_memory"):
        return float(row["weight_memory"])
    _, heads, hidden = MODELS.get(row["model"], (0, 1, 128))
    return 32 / (34 + 5 * heads * 1024 / hidden)


def main() -> int:
    """Judge every cell of the file, print the table, and write JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    cells = [
        (row, column)
        for row in read_table(options.file, NEEDED)
        for column in SCHEDULES
        if row.get(column)
    ]
    results = []
    for row, column in cells:
        try:
            results.append(judge(row, column))
        except (ValueError, CommsimError) as error:
            said = f"{row['model']} m={row['m']}: {SCHEDULES[column]} left out: {error}"
            print(said, file=sys.stderr)
    print(f"{'model':>8} {'m':>4} {'schedule':<18} {'bubble':>8} {'published':>9} {'delta':>8}")
    row = "{model:>8} {m:>4} {schedule:<18} {bubble:8.4f} {published:9.4f} {delta:+8.4f}"
    for found in results:
        print(row.format(**found))
    if options.json:
        options.json.write_text(json.dumps({"rows": results}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
