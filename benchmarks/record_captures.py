"""
Capture the programs of `gloo_programs`, as data for tests that have no torch.

    python benchmarks/record_captures.py [-o tests/data/captures]

Needs torch. A file per rank of each run that `record_gloo.py` has recorded: `RUN.RANK.json.gz`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from record_gloo import RUNS

from commsim.traces.capture.processes import record_ranks
from commsim.traces.capture.records import save_recording

HERE = Path(__file__).parent


def main() -> None:
    """Capture every run that is not a variant of another."""
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("-o", "--output", type=Path, default=HERE.parent / "tests/data/captures")
    output = parser.parse_args().output
    output.mkdir(parents=True, exist_ok=True)
    for name, run in RUNS.items():
        if run.late[1]:
            continue
        found = record_ranks(
            HERE / "capture_gloo.py", range(run.world), world=run.world, arguments=(run.program,)
        )
        for rank, recording in found.items():
            save_recording(recording, output / f"{name}.{rank}.json.gz")
        print(f"{name}: {run.world} ranks")


if __name__ == "__main__":
    main()
