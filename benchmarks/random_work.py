"""
Random scenarios and damaged inputs by the thousand, in several processes: what the long tests try.

    python benchmarks/random_work.py scenarios 0 20000 --jobs 4
    python benchmarks/random_work.py rare 0 3000 --jobs 4       # what those leave out
    python benchmarks/random_work.py inputs 0 30000 --jobs 4    # of each kind: over a million

FIRST and LAST are seeds, LAST left out. A scenario is on up to 16 GPUs and must break no rule of
`tests/helpers/invariants.py`; an input of each kind of `tests/helpers/fuzz_inputs.py` is read or
refused in one of commsim's own errors, those that take longest with the first seeds only
(`is_tried`). A warning fails too. Each failure is printed when it is found, with the seed by which
it can be had again, and how far the work is once a minute; at the end how many were tried, how many
of them refused, how many failed, and the CPU seconds. The exit code is 1 if any failed.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from helpers import fuzz_inputs, rule_checks
from helpers.rare_scenarios import rare_scenario

os.environ["PYTHONPATH"] = sys.path[0]  # for processes that what is tried starts
CHUNK = 20  # seeds at a time: what a process takes
EVERY = 60.0  # seconds between two lines that say how far the work is


class Tried(NamedTuple):
    """What became of some seeds: those read or run, those refused, and what failed."""

    done: int = 0
    refused: int = 0
    failures: tuple[str, ...] = ()

    def __add__(self, other: object) -> Tried:
        assert isinstance(other, Tried)
        return Tried(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))

    @property
    def count(self) -> int:
        """All that were tried."""
        return self.done + self.refused + len(self.failures)


def scenarios(seeds: range) -> Tried:
    """Run the scenario of each seed."""
    return sum((_tried(str(seed), rule_checks.check, seed, 16) for seed in seeds), Tried())


def rare(seeds: range) -> Tried:
    """Run the rare scenario of each seed."""
    check = partial(rule_checks.check, draw=rare_scenario)
    return sum((_tried(str(seed), check, seed, 16) for seed in seeds), Tried())


def inputs(seeds: range) -> Tried:
    """Read a damaged input of each kind for each seed."""
    with tempfile.TemporaryDirectory() as folder:
        return sum(
            (
                _tried(f"{kind.name} {seed}", fuzz_inputs.attempt, kind, seed, Path(folder))
                for seed in seeds
                for kind in fuzz_inputs.INPUTS
                if fuzz_inputs.is_tried(kind, seed)
            ),
            Tried(),
        )


WORK = {"scenarios": scenarios, "rare": rare, "inputs": inputs}


def _tried(name: str, check: Callable[..., bool], *given: object) -> Tried:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return Tried(1, 0) if check(*given) else Tried(0, 1)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return Tried(0, 0, (f"{name}: {type(error).__name__}: {error}",))


def _chunks(kind: str, seeds: range, jobs: int) -> Iterator[Tried]:
    parts = [seeds[at : at + CHUNK] for at in range(0, len(seeds), CHUNK)]
    if jobs == 1:
        yield from map(WORK[kind], parts)
        return
    with ProcessPoolExecutor(jobs) as pool:
        for future in as_completed([pool.submit(WORK[kind], part) for part in parts]):
            yield future.result()


def _cpu_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def main(words: Sequence[str] | None = None) -> int:
    """Try the seeds, print what fails; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("kind", choices=WORK)
    parser.add_argument("first", type=int, help="first seed")
    parser.add_argument("last", type=int, help="the seed after the last")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    asked = parser.parse_args(words)
    found, told = Tried(), time.monotonic()
    for part in _chunks(asked.kind, range(asked.first, asked.last), asked.jobs):
        found += part
        for failure in part.failures:
            print(f"FAIL {failure}", flush=True)
        if time.monotonic() - told > EVERY:
            told = time.monotonic()
            print(f"{found.count:,} {asked.kind} so far", flush=True)
    print(
        f"{found.count:,} {asked.kind}, seeds {asked.first} to {asked.last - 1}:"
        f" {found.refused:,} refused, {len(found.failures):,} failed, {_cpu_seconds():,.0f} CPU s"
    )
    return 1 if found.failures else 0


if __name__ == "__main__":
    sys.exit(main())
