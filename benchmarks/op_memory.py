"""
The memory of a run over its operations, which `commsim/limits.py` estimates.

    python benchmarks/op_memory.py

Each run is a process of its own: its peak (ru_maxrss) less what the imports take, over its
operations. A GPT-3 6.7B on 64 GPUs is laid out in 4 stages, with as many microbatches as give from
250,000 to 2 million operations: all ranks written one by one, or copied from one of each kind.
Run it twice where numba has no cache yet: compiling takes some 200 MiB.
"""

from __future__ import annotations

import resource
import subprocess
import sys

from commsim import run
from commsim.limits import BYTES_PER_COPIED_OP, BYTES_PER_OP, BYTES_PER_WRITTEN_OP

ESTIMATES = {
    ("compiled", 8): BYTES_PER_WRITTEN_OP,
    ("compiled", 16): BYTES_PER_COPIED_OP,
    ("simpy", 8): BYTES_PER_OP,
}
"""By executor and replicas: above 64 ranks what is alike is written once, and copied."""
MICROBATCHES = {
    ("compiled", 8): (32, 64, 200),
    ("compiled", 16): (64, 128, 512),
    ("simpy", 8): (32,),
}


def measured(executor: str, replicas: int, microbatches: int) -> tuple[int, float]:
    """Return how many operations a run has, and the bytes of its peak for each."""
    import commsim.engine.columns
    import commsim.study.run  # noqa: F401

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = run(
        {
            "cluster": {"preset": "dgx-h100", "nodes": replicas},
            "workload": {
                "training": {
                    "model": {"preset": "gpt3-6.7b", "seq_len": 2048},
                    "parallel": {"dp": replicas, "pp": 4, "tp": 2},
                    "batch": {"global": microbatches * replicas, "micro": 1},
                }
            },
            "engine": {"executor": executor, "fold": "off"},
        },
        limit="1TiB",
    )
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    count = len(found.timeline.graph)
    return count, (after - before) * 1024 / count


def main() -> None:
    """Print a line for each run."""
    if len(sys.argv) > 1:
        executor, replicas, microbatches = sys.argv[1:]
        count, each = measured(executor, int(replicas), int(microbatches))
        estimate = ESTIMATES[executor, int(replicas)]
        print(f"{executor:8}  {count:9,} operations  {each:5,.0f} B each, taken {estimate:,}")
        return
    for (executor, replicas), listed in MICROBATCHES.items():
        for microbatches in listed:
            words = [executor, str(replicas), str(microbatches)]
            subprocess.run([sys.executable, __file__, *words], check=True)


if __name__ == "__main__":
    main()
