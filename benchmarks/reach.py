"""
Which tests run which lines of the program, and the processor time each test takes.

    pip install coverage
    python benchmarks/reach.py FILE [TESTS ...]

Runs the default suite but its browser tests once, in this process, with coverage.py's contexts,
and writes what was seen to FILE (JSON). `mutants.py --reach FILE` then runs a mutant against the
tests that run its line. What a test's own processes run (captures, commands) counts as run by it.
With TESTS only these are run, and what FILE knows of others stays.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

ROOT = Path(__file__).resolve().parents[1]
KINDS = "not long and not benchmark and not browser"

CHILD = '''"""Writes which lines of the program this process has run, when it ends."""
import atexit, json, os
import coverage

measured = coverage.Coverage(data_file=None, source=[{source!r}], config_file=False)

def end():
    measured.stop()
    data = measured.get_data()
    ran = {{file: sorted(data.lines(file)) for file in data.measured_files()}}
    path = os.path.join({folder!r}, str(os.getpid()))
    try:
        with open(path, "w", encoding="utf-8") as out:
            json.dump(ran, out)
    except OSError:  # a test lets its process write little
        return
    os.replace(path, path + ".json")

def leave(code, ends=os._exit):
    end()
    ends(code)

os._exit = leave
atexit.register(end)
measured.start()
'''


class Reach(msgspec.Struct):
    """Processor time of each test in s, and which tests run a line.

    `lines` has for each file and line a place in `groups`, a group the places of tests in `names`.
    """

    names: list[str]
    times: list[float]
    groups: list[list[int]]
    lines: dict[str, dict[int, int]]

    @property
    def seconds(self) -> dict[str, float]:
        """Return the processor time of each test, in s."""
        return dict(zip(self.names, self.times, strict=True))

    def tests(self, file: str, lines: Iterable[int]) -> list[str]:
        """Return the tests that run one of some lines of a file."""
        known = self.lines.get(file, {})
        groups = {known[line] for line in lines if line in known}
        return [self.names[at] for at in sorted({at for one in groups for at in self.groups[one]})]


class Noted:
    """Has coverage.py note under each test's name what it runs, and notes its time."""

    def __init__(self, coverage: Any, folder: Path) -> None:
        self.coverage, self.folder = coverage, folder
        self.elsewhere: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
        self.seconds: dict[str, float] = {}
        self.failed: set[str] = set()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Run one test, its fixtures included, in a context of its own."""
        self.coverage.switch_context(item.nodeid)
        began = os.times()
        try:
            return (yield)
        finally:
            ended = os.times()
            spent = ended.user + ended.system - began.user - began.system
            self.seconds[item.nodeid] = round(spent, 3)
            self.coverage.switch_context("")
            self._read_children(item.nodeid)

    def _read_children(self, test: str) -> None:
        for written in self.folder.glob("*.json"):
            for file, lines in json.loads(written.read_text("utf-8")).items():
                for line in lines:
                    self.elsewhere[file][line].add(test)
            written.unlink()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note what fails, as a test of compiled code does here: it would notice any mutant."""
        if report.failed:
            self.failed.add(report.nodeid)


def reach_of(
    seconds: dict[str, float], data: Any, elsewhere: Mapping[str, Mapping[int, set[str]]]
) -> Reach:
    """Return what coverage.py's data and those of processes say, each group of tests once."""
    place = {name: at for at, name in enumerate(seconds)}
    lines: dict[str, dict[int, list[int]]] = {}
    for file in {*data.measured_files(), *elsewhere}:
        here, there = data.contexts_by_lineno(file), elsewhere.get(file, {})
        lines[str(Path(file).relative_to(ROOT))] = {
            line: [place[name] for name in {*here.get(line, ()), *there.get(line, ())} & {*place}]
            for line in {*here, *there}
        }
    return _grouped(seconds, lines)


def joined(first: Reach, second: Reach) -> Reach:
    """Return what two runs saw; of a test in both what the second saw."""
    again = set(second.names)
    seconds = {**first.seconds, **second.seconds}
    place = {name: at for at, name in enumerate(seconds)}
    lines: dict[str, dict[int, list[int]]] = defaultdict(dict)
    for file in {**first.lines, **second.lines}:
        for line in {**first.lines.get(file, {}), **second.lines.get(file, {})}:
            before = [name for name in first.tests(file, [line]) if name not in again]
            lines[file][line] = [place[name] for name in (*before, *second.tests(file, [line]))]
    return _grouped(seconds, lines)


def _grouped(seconds: dict[str, float], lines: dict[str, dict[int, list[int]]]) -> Reach:
    groups: dict[tuple[int, ...], int] = {}
    grouped = {
        file: {
            line: groups.setdefault(tuple(sorted(tests)), len(groups))
            for line, tests in found.items()
            if tests
        }
        for file, found in lines.items()
    }
    return Reach(list(seconds), list(seconds.values()), [list(one) for one in groups], grouped)


def main() -> None:
    """Run the suite under the note and write what was seen."""
    import coverage

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("tests", nargs="*", default=[str(ROOT / "tests")])
    asked = parser.parse_args()
    os.environ["NUMBA_DISABLE_JIT"] = "1"  # compiled code has no lines
    source = str(ROOT / "commsim")
    measured = coverage.Coverage(data_file=None, source=[source], config_file=False)
    words = ["-q", "--tb=no", "-p", "no:cacheprovider", "--hypothesis-seed=0", "-m", KINDS]
    with tempfile.TemporaryDirectory() as folder:
        child = CHILD.format(source=source, folder=folder)
        Path(folder, "sitecustomize.py").write_text(child, encoding="utf-8")
        os.environ["PYTHONPATH"] = os.pathsep.join([folder, str(ROOT)])
        noted = Noted(measured, Path(folder))
        measured.start()
        pytest.main([*words, *asked.tests], plugins=[noted])
        measured.stop()
    passed = {test: took for test, took in noted.seconds.items() if test not in noted.failed}
    found = reach_of(passed, measured.get_data(), noted.elsewhere)
    if asked.file.exists():
        found = joined(msgspec.json.decode(asked.file.read_bytes(), type=Reach), found)
    asked.file.write_bytes(msgspec.json.encode(found))


if __name__ == "__main__":
    main()
