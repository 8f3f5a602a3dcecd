"""
Write tests/data/kept/*.json: a short account of what runs say today, by which tests see it move.

    python benchmarks/kept_figures.py [catalogue] [limits] [random] [damaged]

Run it after a change that is meant to move figures, and read what it prints: each place that has
moved. That the figures are right is for closed forms, published figures and real files to say.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from helpers.fuzz_inputs import EACH, INPUTS, NOT_KEPT, account_of_answers
from helpers.kept import (
    KEPT,
    Account,
    account,
    account_of_run,
    account_without_limits,
    kept,
    moved,
    write,
)
from helpers.paths import ROOT
from helpers.rule_checks import checked

from commsim.study.run import run

NAMES = sorted(path.stem for path in (ROOT / "scenarios").glob("*.yaml"))
RANDOM = range(300)


def catalogue() -> dict[str, Account]:
    """Return the account of every scenario that comes along, but for what limits it."""
    return {name: account_without_limits(run(name)) for name in NAMES}


def limits() -> dict[str, Account]:
    """Return the account of all that `commsim run --json` says of every scenario."""
    return {name: account(run(name).to_dict()) for name in NAMES}


def random() -> dict[str, Account]:
    """Return the account of random scenarios on a node."""
    ran = {str(seed): checked(seed, 8) for seed in RANDOM}
    return {seed: account_of_run(one, depth=1) for seed, one in ran.items() if one is not None}


def damaged() -> dict[str, Account]:
    """Return the account of what becomes of the first damaged inputs of each kind."""
    with tempfile.TemporaryDirectory() as folder:
        return {
            kind.name: account_of_answers(kind, EACH, Path(folder))
            for kind in INPUTS
            if kind.name not in NOT_KEPT
        }


PARTS = {"catalogue": catalogue, "limits": limits, "random": random, "damaged": damaged}


def main() -> None:
    """Write the parts that are asked for, and say what has moved."""
    for part in sys.argv[1:] or PARTS:
        path, after = KEPT / f"{part}.json", PARTS[part]()
        before = kept(part) if path.exists() else {}
        for name, one in after.items():
            if name in before and (places := moved(before[name], one)):
                print(f"{part} {name}: {', '.join(places)}")
        write(path, after)


if __name__ == "__main__":
    main()
