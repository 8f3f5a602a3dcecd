"""
What an answer of `commsim explore` costs, in CPU seconds, as docs/guides/explore.md has it.

    python benchmarks/explore_speed.py

Each row is a scenario of the page: until the step is shown (headline, figures, timeline, memory,
cost) and until all is (what limits it, sections), in a process that has loaded everything, and the
best of three of the same run made anew on a cluster that is known (the page keeps its answers;
these are forgotten). Curves are ring against tree on the cluster of the row.
"""

from __future__ import annotations

import time
from typing import Any

from commsim.explore.worker import Exploration

MANY = {"cluster": "lambda-h100", "nodes": 128}
ROWS: dict[str, dict[str, Any]] = {
    "llama3-8b, 32 GPUs, as the page starts": {},
    "llama3-8b, 1,024 GPUs, pp 4": MANY,
    "llama3-8b, 1,024 GPUs, FSDP": MANY | {"pp": 1, "data_parallel": "fsdp", "microbatches": 1},
    "llama3-8b, 1,024 GPUs, tp 4 pp 2": MANY | {"tp": 4, "pp": 2},
    "llama3-70b, 1,024 GPUs, tp 8 pp 4": MANY | {"model": "llama3-70b", "tp": 8},
    "llama3-70b, 1,024 GPUs, FSDP": MANY
    | {"model": "llama3-70b", "pp": 1, "data_parallel": "fsdp", "microbatches": 1},
    "mixtral-8x7b, 1,024 GPUs, ep 8 pp 4": MANY | {"model": "mixtral-8x7b", "ep": 8},
    "llama3.1-405b, 1,024 GPUs, tp 8 pp 16": MANY
    | {"model": "llama3.1-405b", "tp": 8, "pp": 16, "microbatches": 16},
}
LOADED = {"microbatches": 2}


def cpu_of(
    exploration: Exploration, chosen: dict[str, Any], ask: str = "run"
) -> tuple[float, float]:
    """Return the CPU seconds until the first part of an answer, and until the last."""
    begin = time.process_time()
    request = {"chosen": chosen, "ask": ask, "op": "all_reduce"}
    parts = [time.process_time() - begin for _ in exploration.answers(request, lambda _: None)]
    return parts[0], parts[-1]


def main() -> None:
    """Print the table."""
    exploration = Exploration("llama3-8b")
    cpu_of(exploration, LOADED)
    print("| choices | step | all | again: step | all | curves |\n|---|---|---|---|---|---|")
    for name, chosen in ROWS.items():
        times = cpu_of(exploration, chosen)
        again = []
        for _ in range(3):
            exploration.forget()
            again.append(cpu_of(exploration, chosen))
        found = (*times, *min(again), cpu_of(exploration, chosen, "curves")[1])
        print(f"| {name} | {' | '.join(f'{one:.2f} s' for one in found)} |", flush=True)


if __name__ == "__main__":
    main()
