"""Which tests a mutant meets: those nearest to its module, and those that enter its function."""

from __future__ import annotations

import ast
import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from reach import Reach

__all__ = ["NEAREST", "reaching", "tests_of"]

ROOT = Path(__file__).resolve().parents[1]
NEAREST = 6  # test files that every mutant meets
FILES = 30  # test files that one mutant's tests are taken from: each is imported anew
FURTHER = 10  # those that survivors meet beside the catalogue of scenarios
CATALOGUE = ROOT / "tests/scenarios/test_catalogue.py"


@cache
def test_files() -> dict[Path, str]:
    """Return the text of every test file but those that read sources or open pages."""
    away = ("docs", "fuzz", "benchmarks", "explore", "invariants")
    return {
        path: text
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        if path.parent != ROOT / "tests"
        and path.relative_to(ROOT / "tests").parts[0] not in away
        and "browser" not in (text := path.read_text(encoding="utf-8"))
    }


def tests_of(path: Path) -> list[Path]:
    """Return the test files that say most about a module, the best first, then the catalogue.

    Counted are an import of the module, the names that it defines, and steps between the folder of
    the test and the one where the module's own would stand.
    """
    inside = path.relative_to(ROOT / "commsim")
    dotted = f"commsim.{'.'.join(inside.with_suffix('').parts)} "
    kinds = (ast.FunctionDef, ast.ClassDef)
    body = ast.parse(path.read_text(encoding="utf-8")).body
    names = [node.name for node in body if isinstance(node, kinds) and node.name[0] != "_"]
    own = ROOT / "tests" / inside.parent

    def nearness(item: tuple[Path, str]) -> tuple[float, int]:
        test, text = item
        steps = len(Path(os.path.relpath(test.parent, own)).parts)
        named = sum(name in text for name in names)
        mirrors = test == own / f"test_{inside.name}"
        return (8 * mirrors + 4 * (dotted in text) + min(named, 3) - steps, named)

    order = sorted(test_files().items(), key=nearness, reverse=True)
    best = [test for test, _ in order if test != CATALOGUE]
    return [*best[:NEAREST], CATALOGUE, *best[NEAREST : NEAREST + FURTHER]]


@cache
def _in_process(file: Path) -> bool:
    """Say whether a file's tests run here: a browser asks for more memory than a mutant has."""
    return file.is_file() and "browser" not in file.read_text(encoding="utf-8")


def reaching(
    place: tuple[Path, str], nearest: Sequence[Path], reach: Reach, seconds: float
) -> list[str]:
    """Return tests that enter a function: the nearest first, then the quickest."""
    path, function = place
    near = {str(path.relative_to(ROOT)) for path in nearest}
    entering = reach.tests(f"{path.relative_to(ROOT)}:{function}")
    tests = [test for test in entering if _in_process(ROOT / test.partition("::")[0])]
    found: list[str] = []
    files: set[str] = set()
    spent = 0.0
    for test in sorted(tests, key=lambda test: test.partition("::")[0] not in near):
        spent += reach.seconds[test]
        if spent > seconds:
            break
        if len(files | {test.partition("::")[0]}) <= FILES:
            files.add(test.partition("::")[0])
            found.append(test)
    return found
