"""
How fast commsim is: one table of works, each with its answer checked in the same run.

    python benchmarks/speed.py [--only WORD] [--json FILE] [--page]

CPU seconds (user and system, children included), the best of three; peak memory of a process
that does only this work, imports included; the exponent by which the time grows with the size.
`--page` writes docs/performance.md. Exits with 1 if an answer is wrong.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

from speed_large import LARGE
from speed_works import WORKS as USUAL
from speed_works import Work

WORKS = (*USUAL, *LARGE)
ROUNDS, ENOUGH = 3, 15  # CPU seconds after which no further round is begun
PAGE = Path(__file__).resolve().parents[1] / "docs" / "performance.md"
HEAD = """# Performance

What commsim takes for work of many sizes. Each answer was checked in the run that was timed,
against what the last column names: a closed form, another computation, or a figure on record.
Seconds are CPU seconds (user and system), the best of three (of fewer, once they add up to 15 s)
on a machine that did other work beside; events are those of the work (messages of a ring that a
plan stands for, flows, ops, spans); memory is the peak of a process that does this work alone,
imports included. *Growth* is the exponent by which the time grows with the size: 1 is proportional,
2 quadratic. Flows from 3,000 on are shared by compiled code (extra `fast`).

This page is written by `python benchmarks/speed.py --page`; with `--only` just those works.
"""

TRIED = """## What was tried

A prototype ran streams, compute and collectives in one loop over lists: no object and no SimPy
event per op, the same order of events. It was 1.1 to 1.4 times as fast as the engine, where 1.5 had
been asked for: what was left was the interpreter's, and not SimPy's. The same rules over tables of
records, compiled, take 0.2 us an op (`engine.executor`, from 200,000 operations on). With the state
as a tuple of arrays they took 6 us: each call handed on 240 words. Now each has one pointer.

Random flows: of 10,000 that share the fat tree, the end of one has about a thousand others looked
at, and a link that they cross is weighed anew each time one of its flows has got its share. That is
half of the time there, though compiled.

Every rank different: of 4,096 GPUs with jitter each of two runs is 9.5 million ops. In the
interpreter both and what limits the step took 531 CPU seconds and 21.5 GB. Compiled code runs them
in a few seconds; building the graphs, laying out the tables and measuring now take the most.

A pipeline of 64 stages and 384 microbatches (Llama 3 405B on 256 GPUs of GB200, tp 4, ranks folded)
is 1.6 million ops: 9 s to build, 18 to run, 6 for what limits it, 2 GB. Its middle repeats; when it
may be left out has not been proven.

Kineto at 150 MB/s of one core, which one file of 50 MB is read at (161 MB/s; 64 ranks of that size,
3.2 GB, come to a graph in 27 CPU seconds, 45 s on two busy cores, in 1.9 GB of the process that
puts them together: `python benchmarks/import_speed.py`). What follows was measured earlier, when
the same parts took 2.5 times as long: `--parts --megabytes 20` had, beside other work, 300 MB/s for
decoding events (msgspec, structs of the eight fields used, their arguments as text), 210 MB/s from
structs to columns and 2,100 MB/s for putting them in order: 117 MB/s for all. For 150, columns
would have to be made at 350. Arguments decoded at once, and not only where they are used: 220 MB/s
for 240. For 20 MB, columns by `astuple` and `zip` (a call per row and not one per field) took 138
ms where a comprehension per field takes 108, and 160 with the garbage collector, which so many
tuples wake; rows kept by masks of NumPy 111 ms for 110. Decoding without a single field runs at 590
MB/s: what is left is the making of Python objects, which only a compiled reader would leave out.
"""


def main() -> None:
    """Measure what is asked for, print it, and write it where it is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--only", default="", help="works whose names contain this")
    parser.add_argument("--json", type=Path, help="write the figures here")
    parser.add_argument("--page", action="store_true", help="write docs/performance.md")
    parser.add_argument("--one", nargs=2, metavar=("NAME", "SIZE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measured(_work(options.one[0]), int(options.one[1]))))
        return
    rows = []
    for work in WORKS:
        if options.only in work.name:
            rows += _rows(work)
            for row in rows[-len(work.sizes) :]:
                print(_line(row), flush=True)
    if options.json:
        options.json.write_text(json.dumps({"machine": machine(), "rows": rows}, indent=1) + "\n")
    if options.page:
        before = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
        PAGE.write_text(page(rows, before), encoding="utf-8")
    if any("wrong" in row for row in rows):
        sys.exit(1)


def measured(work: Work, size: int) -> dict[str, Any]:
    """Return the figures of one work of one size, measured in this process."""
    run = work.prepare(size)
    seconds, peak = [], 0.0
    for _ in range(ROUNDS):
        before = _cpu()
        answer = run.call()
        seconds.append(_cpu() - before)
        peak = peak or _peak()  # of one round, without what checks it
        wrong = _judged(run.check, answer)
        del answer
        if sum(seconds) > ENOUGH:
            break
    row = {
        "work": work.name, "axis": work.axis, "size": size, "events": run.events,
        "event": work.event, "seconds": min(seconds), "events_per_s": run.events / min(seconds),
        "peak_mb": peak, "checked": work.checked,
    }  # fmt: skip
    return row | ({"wrong": wrong} if wrong else {})


def _judged(check: Any, answer: Any) -> str:
    """Return what is wrong with an answer, "" if nothing is."""
    try:
        check(answer)
    except AssertionError as error:
        return str(error)
    return ""


def _cpu() -> float:
    who = resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN
    return sum(use.ru_utime + use.ru_stime for use in map(resource.getrusage, who))


def _peak() -> float:
    """Return the most memory that this process or a child has had, in MB."""
    who = resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN
    return max(resource.getrusage(one).ru_maxrss for one in who) * 1024 / 1e6


def _work(name: str) -> Work:
    return next(work for work in WORKS if work.name == name)


def _rows(work: Work) -> list[dict[str, Any]]:
    """Return the figures of all sizes of a work, each from a process of its own."""
    rows: list[dict[str, Any]] = []
    for size in work.sizes:
        words = [sys.executable, __file__, "--one", work.name, str(size)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"{work.name}, {size}: {done.stderr}")
        row = json.loads(done.stdout.splitlines()[-1])
        if rows:
            bigger, longer = size / rows[-1]["size"], row["seconds"] / rows[-1]["seconds"]
            row["growth"] = math.log(longer) / math.log(bigger)
        rows.append(row)
    return rows


def _line(row: dict[str, Any]) -> str:
    growth = f"{row['growth']:5.2f}" if "growth" in row else "     "
    return (
        f"{row['work']:36} {row['size']:>9,} {row['axis']:12} {row['events']:>13,}"
        f" {row['event']:8} {seconds(row['seconds']):>8} {growth} {row['peak_mb']:7.0f} MB"
        + (f"  WRONG {row['wrong']}" if "wrong" in row else "")
    )


def page(rows: list[dict[str, Any]], before: str = "") -> str:
    """Return the page; works that have no rows here keep those that the page had `before`."""
    head = [
        "| work | size | events | CPU time | events/s | growth | peak MB | checked by |",
        "|---|---|---|---|---|---|---|---|",
    ]
    kept = [line for line in before.splitlines() if line.startswith("| ") and line not in head]
    by_work: dict[str, list[str]] = {work.name: [] for work in WORKS}
    for line in kept:
        by_work.setdefault(line.split(" | ")[0].removeprefix("| "), []).append(line)
    for name in {row["work"] for row in rows}:
        by_work[name] = []
    for row in rows:
        growth = f"{row['growth']:.1f}" if "growth" in row else ""
        by_work[row["work"]].append(
            f"| {row['work']} | {row['size']:,} {row['axis']} | {row['events']:,} {row['event']} |"
            f" {seconds(row['seconds'])} | {row['events_per_s']:,.0f} | {growth} |"
            f" {row['peak_mb']:.0f} | {row['checked']} |"
        )
    lines = [line for work in WORKS for line in by_work[work.name]]
    return "\n".join([HEAD, *head, *lines, "", f"Measured on {machine()}.", "", TRIED])


def seconds(value: float) -> str:
    """Return a time as text."""
    return f"{value * 1e3:.0f} ms" if value < 1 else f"{value:.1f} s"


def machine() -> str:
    """Return what the figures were measured on."""
    return f"Python {platform.python_version()}, {platform.system()}, {platform.machine()}"


if __name__ == "__main__":
    main()
