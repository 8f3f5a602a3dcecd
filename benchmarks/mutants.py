"""
How many small faults in the program the tests notice: mutants by seed, each against its own tests.

    python benchmarks/reach.py FILE    # once: which tests run which lines
    python benchmarks/mutants.py --reach FILE --count 200 --seed 0 --jobs 2
    python benchmarks/mutants.py --reach FILE --count 50 --seed 0 --rooms engine metrics/waits.py
    python benchmarks/mutants.py --reach FILE --all --rooms metrics/waits.py    # every place
    python benchmarks/mutants.py --reach FILE --count 200 --seed 0 --again OUT  # survivors of OUT

A mutant changes one place of one module: a comparison, an arithmetic sign, a constant, a
condition. It is never written: a fork of this process gets the changed code and runs the tests
that run the changed line, those near the module and quick ones first, until one fails or
`--seconds` of processor time are used up. Processor time is counted, not the clock's, so a busy
machine gives the same verdicts. A test that takes ten times as long as it does, and five seconds
more, has noticed the mutant: it hangs. Prints each mutant with its verdict; at the end, a test that
fails without any mutant.

Left out are guards of what never happens, which no run can tell from their absence: `frozen`,
`kw_only` and `eq` of values, `strict` of zip; and the -1 of `reshape`, for which numpy takes any
negative number. `equivalent_mutants.yaml` names the others that change nothing, with why: they are
not run, and the share is given without them too.
"""

from __future__ import annotations

import argparse
import os
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy  # noqa: F401  (what every fork needs is imported once)
import pytest  # noqa: F401
import simpy  # noqa: F401
import yaml
from mutant_places import ROOMS, ROOT, Mutant, drawn, mutant
from mutant_runs import Collected, in_new_process, run_collected
from mutant_tests import tests_for
from reach import Reach

SECONDS = 30.0  # of processor time for the tests of a mutant

Given = tuple[int, Mutant, Sequence[str]]
"""A mutant with its number and its tests."""


def changing_nothing() -> dict[tuple[str, str, str], str]:
    """Return why a mutant changes nothing, by its path, its line and the change."""
    rows = yaml.safe_load((ROOT / "benchmarks/equivalent_mutants.yaml").read_text("utf-8"))
    return {(row["path"], row["line"], row["change"]): row["why"] for row in rows}


class Verdicts:
    """What noticed each mutant: printed as it is found, and handed from a fork by a file."""

    def __init__(self) -> None:
        self.out, self.file = os.dup(1), tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115

    def tell(self, number: int, one: Mutant, by: str) -> None:
        """Print a mutant and what noticed it."""
        path, change = one.path.relative_to(ROOT), f"{one.before} -> {one.after}"
        line = " ".join(f"{number}: {by or 'SURVIVES'}: {path}:{one.line}: {change}".split())
        os.write(self.out, f"{line}\n".encode())
        self.file.write(f"{number} {by}\n")
        self.file.flush()

    def found(self) -> dict[int, str]:
        """Return what noticed each mutant, nothing if it survives."""
        self.file.seek(0)
        rows = (line.rstrip("\n").partition(" ") for line in self.file)
        return {int(number): by for number, _, by in rows}


def judge(given: Sequence[Given], reach: Reach, seconds: float, jobs: int) -> dict[int, str]:
    """Run the mutants, return what noticed each: those of functions in forks of one collection."""
    verdicts = Verdicts()
    inside = [one for one in given if one[1].function and one[2]]
    files = sorted({test.partition("::")[0] for _, _, tests in inside for test in tests})
    if inside:
        run_collected(Collected(inside, verdicts.tell, reach, seconds, jobs), files)
    told = verdicts.found()
    for number, one, tests in given:
        if number not in told:
            by = in_new_process(one, tests, reach, seconds) if tests else ""
            verdicts.tell(number, one, by)
    return verdicts.found()


def main() -> None:
    """Make mutants, run their tests, print each with what noticed it and the share noticed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reach", type=Path, required=True, help="what reach.py wrote")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--all", action="store_true", help="every place of the rooms")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="the first mutant that is run")
    parser.add_argument("--last", type=int, help="where to stop, before this one")
    parser.add_argument("--again", type=Path, help="only what survived in this printout")
    parser.add_argument("--rooms", nargs="+", default=ROOMS, help="folders or files of commsim")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for a mutant's tests")
    parser.add_argument("--jobs", type=int, default=1, help="mutants at a time")
    asked = parser.parse_args()
    reach = msgspec.json.decode(asked.reach.read_bytes(), type=Reach)
    every = drawn(asked.seed, None if asked.all else asked.count, asked.rooms)
    chosen = list(range(len(every))[asked.first : asked.last])
    if asked.again:
        survived = re.findall(r"^(\d+): SURVIVES", asked.again.read_text(), re.MULTILINE)
        chosen = [number for number in chosen if number in set(map(int, survived))]
    known, same, times = changing_nothing(), 0, reach.seconds
    given: list[Given] = []
    for number in chosen:
        one = mutant(*every[number])
        path, change = str(one.path.relative_to(ROOT)), f"{one.before} -> {one.after}"
        if why := known.get((path, one.text, change)):
            same += 1
            print(f"{number}: CHANGES NOTHING: {path}:{one.line}: {change}: {why}", flush=True)
            continue
        given.append((number, one, tests_for(one, reach, times, asked.seconds)))
    found = judge(given, reach, asked.seconds, asked.jobs)
    tests = {by for by in found.values() if "::" in by and " in " not in by}
    if tests and (failing := in_new_process(None, sorted(tests), reach, 600.0)):
        print(f"fails without a mutant, so it notices nothing: {failing}")
    noticed = sum(map(bool, found.values()))
    print(f"{noticed} of {len(chosen)} noticed; {same} change nothing")


if __name__ == "__main__":
    main()
