"""
Write docs/validation.md from what the validators wrote.

    python benchmarks/validate_nccl.py DIR --json OUT/nccl.json
    python benchmarks/validate_collectives.py MEASURED.csv... --json OUT/collectives.json
    python benchmarks/fit_nccl.py MEASURED.csv... --leave-out sites --json OUT/sites.json
    python benchmarks/fit_nccl.py MEASURED.csv... --leave-out classes --json OUT/classes.json
    python benchmarks/validate_pipeline.py TABLE5.csv --json OUT/pipeline.json
    python benchmarks/validate_training.py TRAINING.csv --json OUT/training.json
    python benchmarks/validate_training.py TRAINING_2.csv --json OUT/training_2.json
    python benchmarks/validation_page.py OUT -o docs/validation.md

What OUT lacks stays out of the page.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

BANDS = (("large", "≥ 16 MiB"), ("mid", "64 KiB to 16 MiB"), ("small", "below"))
TOP = """# Validation

How far commsim is from what was measured or published. Every figure comes from the command above
its table, on files of measured tables that are not part of this repository (their columns are
described in [the reference](reference/validation-files.md)); the commands take files of your own
as well. The misses stand with the rest.
"""


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="where the validators' JSON files are")
    parser.add_argument("-o", "--output", type=Path, required=True)
    asked = parser.parse_args()
    parts = [TOP]
    for name, section in SECTIONS.items():
        path = asked.folder / f"{name}.json"
        if path.exists():
            parts.append("\n".join(section(json.loads(path.read_text(encoding="utf-8")))))
    asked.output.write_text("\n".join(parts), encoding="utf-8")


def nccl(data: dict[str, Any]) -> Iterator[str]:
    """Say how well NCCL's search and choice are followed."""
    yield "## NCCL's search and choice\n"
    yield "    python benchmarks/validate_nccl.py DIR\n"
    yield "Against decisions that NCCL's own code made on eight recorded systems (DGX-1V, DGX A100,"
    yield "DGX H100, PCIe boxes; one to four nodes):\n"
    yield "| what | agrees |\n|---|---|"
    yield f"| graphs found by the search | {_percent(data['search_agree'])} |"
    yield f"| algorithm and protocol, {data['cells']} calls | {_percent(data['choice_agree'])} |"
    yield f"| channels used | {_percent(data['channels_agree'])} |"
    yield f"| NCCL's own predicted time, within 0.1 % | {_percent(data['cost_agree'])} |\n"
    if data["disagreements"]:
        yield f"{len(data['disagreements'])} disagree; the command lists them.\n"
    yield "Not compared with records, for want of any: B200, NVL72, GH200, CollNet, PAT, and most"
    yield "releases other than 2.27; there the source's rules are followed, and what must hold is"
    yield "tested.\n"


def collectives(data: dict[str, Any]) -> Iterator[str]:
    """Say how far predicted times are from measured ones."""
    yield "## What nccl-tests prints\n"
    yield "    python benchmarks/validate_collectives.py MEASURED.csv...\n"
    yield "Median error of time by message size, and cases whose largest bus bandwidth is within"
    yield "10 %; tables that can be trusted. The constants were fitted on these.\n"
    yield "| class | " + " | ".join(text for _, text in BANDS) + " | peaks |\n|---|---|---|---|---|"
    for name, entry in data["classes"].items():
        cells = " | ".join(_band(entry["bands"].get(band)) for band, _ in BANDS)
        yield f"| {name} | {cells} | {entry['peaks_within_10pct']} of {entry['cases']} |"
    cells = " | ".join(_band(data["bands"][band]) for band, _ in BANDS)
    yield f"| **all** | {cells} | {_percent(data['peak_busbw_within_10pct'])} |\n"
    worst = sorted(data["cases"], key=lambda case: -case["median_abs_err"])[:12]
    yield (
        "The worst cases (also of less trusted tables): "
        + ", ".join(f"{case['case_id']} {_percent(case['median_abs_err'])}" for case in worst)
        + ". [How long NCCL takes](background/nccl-timing.md) says why.\n"
    )


def sites(data: dict[str, Any]) -> Iterator[str]:
    """Say how well sites are predicted that the fit never saw."""
    yield "### Systems never seen\n"
    yield from _left_out(data, "sites", "all machines of an operator")


def classes(data: dict[str, Any]) -> Iterator[str]:
    """Say how well classes of machines are predicted that the fit never saw."""
    yield from _left_out(data, "classes", "all machines of a class")


def _left_out(data: dict[str, Any], kind: str, text: str) -> Iterator[str]:
    yield f"    python benchmarks/fit_nccl.py MEASURED.csv... --leave-out {kind}\n"
    yield f"{data['constants']} constants; {text} left out of the fit in turn:\n"
    yield "| | " + " | ".join(text for _, text in BANDS) + " | peaks |\n|---|---|---|---|---|"
    for key, name in (("fitted_on_all", "fitted on all"), (f"{kind}_left_out", f"{kind} left out")):
        cells = " | ".join(_band(data[key]["bands"][band]) for band, _ in BANDS)
        yield f"| {name} | {cells} | {_percent(data[key]['peak_busbw_within_10pct'])} |"
    yield ""


def pipeline(data: dict[str, Any]) -> Iterator[str]:
    """Say how far bubbles are from the zero-bubble paper's."""
    yield "## Pipeline bubbles\n"
    yield "    python benchmarks/validate_pipeline.py TABLE5.csv\n"
    yield "Against table 5 of Qi et al., Zero Bubble Pipeline Parallelism (2023); signed"
    yield "differences:\n"
    names = list(dict.fromkeys(row["schedule"] for row in data["rows"]))
    yield "| model | m | " + " | ".join(names) + " |"
    yield "|---" * (len(names) + 2) + "|"
    keys = list(dict.fromkeys((row["model"], row["m"]) for row in data["rows"]))
    found = {(r["model"], r["m"], r["schedule"]): r["delta"] for r in data["rows"]}
    for model, m in keys:
        cells = [found.get((model, m, name)) for name in names]
        yield f"| {model} | {m} | " + " | ".join(_signed(cell) for cell in cells) + " |"
    yield "\nThe interleaved schedule is longer than published by an amount that does not depend on"
    yield "the number of microbatches; the cause is not known.\n"


def training(data: dict[str, Any]) -> Iterator[str]:
    """Say how far step times are from published ones."""
    yield "## Training steps\n"
    yield "    python benchmarks/validate_training.py TRAINING.csv\n"
    yield "Published step times of whole training runs. `constant` is a constant share of peak,"
    yield "fitted with each row left out: what anybody can do without a simulator.\n"
    yield from _steps(data)


def recent(data: dict[str, Any]) -> Iterator[str]:
    """Say the same of Hopper and Blackwell, and how far peaks of memory are."""
    yield "## Training steps on Hopper and Blackwell\n"
    yield "    python benchmarks/validate_training.py TRAINING_2.csv\n"
    yield "By constants fitted on all rows; what halves of the rows say of the others is in"
    yield "[how long a GPU computes](background/compute.md).\n"
    yield from _steps(data)
    rows = [row for row in data["rows"] if row["fits"] is not None]
    refused = sum(not row["fits"] for row in rows)
    yield "## Memory\n"
    yield f"Of {len(rows)} published runs {refused} are said not to fit. Peaks, where they were"
    yield "published (`torch.cuda.max_memory_reserved`):\n"
    yield "| run | measured | predicted | error |\n|---|---|---|---|"
    for row in rows:
        if row["memory_error"] is not None:
            yield (
                f"| {row['case_id']} | {row['measured_gib']:.1f} GiB | {row['memory_gib']:.1f} GiB"
                f" | {100 * row['memory_error']:+.1f} % |"
            )
    yield ""


def _steps(data: dict[str, Any]) -> Iterator[str]:
    yield "| suite | rows | mean error | median | constant | rank order |"
    yield "|---|---|---|---|---|---|"
    for name, entry in data["suites"].items():
        yield (
            f"| {name} | {entry['n']} | {_percent(entry['mape'])} | {_percent(entry['median'])} |"
            f" {_percent(entry['constant_mape'])} | {_plain(entry['spearman'])} |"
        )
    yield ""
    reasons = Counter(row["why_skipped"] for row in data["rows"] if row["why_skipped"])
    for why, count in reasons.most_common():
        yield f"{count} of {len(data['rows'])} rows were not run: {why}.\n"


SECTIONS: dict[str, Callable[[dict[str, Any]], Iterator[str]]] = {
    "nccl": nccl,
    "collectives": collectives,
    "sites": sites,
    "classes": classes,
    "pipeline": pipeline,
    "training": training,
    "training_2": recent,
}


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f} %"


def _signed(value: float | None) -> str:
    return "–" if value is None else f"{value:+.4f}"


def _plain(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _band(entry: dict[str, Any] | None) -> str:
    return "–" if not entry or not entry["n"] else _percent(entry["median_abs_err"])


if __name__ == "__main__":
    main()
