"""
Which tests call which functions of the program, and the processor time each test takes.

    python benchmarks/reach.py FILE

Runs the default suite once, in this process, with a note of every function that a test or its
fixtures enter, and writes what was seen to FILE (JSON). `mutants.py --reach FILE` then runs a
mutant of a function against the tests that enter it, the quickest first, so that more of those
that could notice are tried in the same time.
"""

from __future__ import annotations

import argparse
import resource
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import msgspec
import pytest

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = str(ROOT / "commsim")


class Reach(msgspec.Struct):
    """Processor time of each test, and which tests enter a function.

    A function is called `path:qualified name`, the tests are places in `seconds`.
    """

    seconds: dict[str, float]
    entered: dict[str, list[int]]

    def tests(self, function: str) -> list[str]:
        """Return the tests that enter a function, the quickest first."""
        names = list(self.seconds)
        found = [names[at] for at in self.entered.get(function, [])]
        return sorted(found, key=self.seconds.__getitem__)


class Noted:
    """Notes for each test which functions of the program it enters."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.entered: dict[str, list[int]] = defaultdict(list)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Run one test, its fixtures included, under a trace of calls."""
        seen: set[CodeType] = set()

        def entered(frame: FrameType, _event: str, _argument: Any) -> None:
            seen.add(frame.f_code)

        began = _spent()
        sys.settrace(entered)
        try:
            return (yield)
        finally:
            sys.settrace(None)
            at = len(self.seconds)
            self.seconds[item.nodeid] = round(_spent() - began, 3)
            for name in {_name(code) for code in seen if code.co_filename.startswith(PROGRAM)}:
                self.entered[name].append(at)


def _name(code: CodeType) -> str:
    return f"{Path(code.co_filename).relative_to(ROOT)}:{code.co_qualname}"


def _spent() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Run the suite under the note and write what was seen."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("tests", nargs="*", default=[str(ROOT / "tests")])
    asked = parser.parse_args()
    noted = Noted()
    words = ["-q", "--tb=no", "-p", "no:cacheprovider", "--hypothesis-seed=0"]
    pytest.main([*words, *asked.tests], plugins=[noted])
    asked.file.write_bytes(msgspec.json.encode(Reach(noted.seconds, noted.entered)))


if __name__ == "__main__":
    main()
