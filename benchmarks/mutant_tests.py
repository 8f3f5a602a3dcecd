"""Which tests a mutant meets: those that run its line, the near and the quick ones first."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from mutant_places import ROOT, Mutant
from reach import Reach

__all__ = ["tests_for"]

FILES = 12  # test files for what a module does at import: each is collected anew
FAR = 4.0  # a test of another room is tried as if it took that much longer
OWN = 0.1  # and the one beside the module as if it took so much of its time
LEAST = 0.002  # s: what a test takes at least


def tests_for(one: Mutant, reach: Reach, times: Mapping[str, float], seconds: float) -> list[str]:
    """Return the tests of a mutant, best first, as many as twice its time may hold.

    A change of a function is met by the tests that run the line; a change of what the module does
    when it is imported by those that run any line of it, from a few files, and by all of files that
    import it: what looks at defaults alone runs no line.
    """
    path = str(one.path.relative_to(ROOT))
    lines = one.lines if one.function else sorted(reach.lines.get(path, {}))
    inside = one.path.relative_to(ROOT / "commsim")
    tests = set(reach.tests(path, lines))
    if not one.function:
        tests |= {test for test in reach.names if _imports(test.partition("::")[0], one.module)}

    def effort(test: str) -> float:
        return max(times[test], LEAST) * _distance(test, inside)

    found: list[str] = []
    files: set[str] = set()
    spent = 0.0
    for test in sorted(tests, key=lambda test: (effort(test), test)):
        file = test.partition("::")[0]
        if not one.function and len(files | {file}) > FILES:
            continue
        spent += times[test]
        if spent > 2 * seconds:
            break
        files.add(file)
        found.append(test)
    return found


@cache
def _imports(file: str, module: str) -> bool:
    """Say whether a file of tests names a module."""
    path = ROOT / file
    return path.exists() and f"from {module} import" in path.read_text(encoding="utf-8")


def _distance(test: str, inside: Path) -> float:
    """Return by how much a test is put off: the one beside the module is tried first."""
    file = Path(test.partition("::")[0]).relative_to("tests")
    if file.name == f"test_{inside.name}" and file.parent == inside.parent:
        return OWN
    shared = os.path.commonpath(["/" / file.parent, "/" / inside.parent])
    return 1.0 if len(Path(shared).parts) > 1 else FAR
