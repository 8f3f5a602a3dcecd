"""
How many small faults in the program the tests notice: mutants by seed, each against its own tests.

    python benchmarks/mutants.py --count 200 --seed 0

A mutant changes one place of one module: a comparison, an arithmetic sign, a constant, a condition.
Only tests that import the module, or mirror its path, run against it. Prints who survived.
"""

from __future__ import annotations

import argparse
import ast
import copy
import os
import random
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("engine", "libraries", "metrics", "workload", "traces", "study")
SECONDS = 240  # for the tests of one mutant: one that hangs them is noticed
MOST_FILES = 6  # test files per mutant, the nearest first

COMPARISONS = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
SIGNS = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv,
}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """One changed place: the file, its line, what it was and what it is."""

    path: Path
    line: int
    before: str
    after: str
    source: str


def places(tree: ast.Module) -> list[ast.AST]:
    """Return the nodes of a module that can be changed; types and docstrings are left out."""
    annotations = {
        id(inner)
        for node in ast.walk(tree)
        for field in ("annotation", "returns")
        if (held := getattr(node, field, None)) is not None
        for inner in ast.walk(held)
    }
    return [
        node
        for node in ast.walk(tree)
        if id(node) not in annotations
        and (
            (isinstance(node, ast.Compare) and type(node.ops[0]) in COMPARISONS)
            or (isinstance(node, ast.BinOp) and type(node.op) in SIGNS)
            or (isinstance(node, ast.Constant) and type(node.value) in (int, bool))
            or isinstance(node, ast.BoolOp)
        )
    ]


def changed(node: ast.AST) -> None:
    """Change a node into its mutant."""
    if isinstance(node, ast.Compare):
        node.ops[0] = COMPARISONS[type(node.ops[0])]()
    elif isinstance(node, ast.BinOp):
        node.op = SIGNS[type(node.op)]()
    elif isinstance(node, ast.BoolOp):
        node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
    elif isinstance(node, ast.Constant):
        node.value = not node.value if isinstance(node.value, bool) else node.value + 1


def mutant(chance: random.Random) -> Mutant:
    """Return a mutant of a random module, each place of all rooms as likely as any other."""
    files = [path for room in ROOMS for path in sorted((ROOT / "commsim" / room).rglob("*.py"))]
    counts = [len(places(ast.parse(path.read_text(encoding="utf-8")))) for path in files]
    path = chance.choices(files, counts)[0]
    tree = ast.parse(path.read_text(encoding="utf-8"))
    node = chance.choice(places(tree))
    before = ast.unparse(copy.deepcopy(node))
    changed(node)
    line = getattr(node, "lineno", 0)
    return Mutant(
        path, line, before, ast.unparse(node), ast.unparse(ast.fix_missing_locations(tree))
    )


def tests_of(path: Path) -> list[Path]:
    """Return the tests near a module and those that import it, the nearest first."""
    inside = path.relative_to(ROOT / "commsim")
    module = ".".join(inside.with_suffix("").parts)
    near = ROOT / "tests" / inside.parent / f"test_{inside.name}"
    beside = [*sorted(near.parent.glob("test_*.py")), *sorted(near.parent.parent.glob("test_*.py"))]
    importing = [
        test
        for test in sorted((ROOT / "tests").rglob("test_*.py"))
        if f"commsim.{module}" in test.read_text(encoding="utf-8")
    ]
    found = dict.fromkeys(([near] if near.exists() else []) + importing + beside)
    tests = [test for test in found if test.parent != ROOT / "tests"]
    return [*tests[:MOST_FILES], ROOT / "tests/scenarios/test_catalogue.py"]


def survives(one: Mutant, copy_of: Path) -> bool:
    """Run the tests of a mutant in a copy of the project; return whether all of them pass."""
    inside = one.path.relative_to(ROOT)
    target = copy_of / inside
    target.write_text(one.source, encoding="utf-8")
    tests = [str(test.relative_to(ROOT)) for test in tests_of(one.path)]
    words = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
    try:
        done = subprocess.run(
            words,
            cwd=copy_of,
            env={**os.environ, "PYTHONPATH": str(copy_of)},
            capture_output=True,
            timeout=SECONDS,
            check=False,
        )
        return done.returncode == 0
    except subprocess.TimeoutExpired:
        return False
    finally:
        shutil.copy(one.path, target)


def main() -> None:
    """Make mutants, run their tests, print who survived and the share that was noticed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="the first mutant that is run")
    asked = parser.parse_args()
    chance = random.Random(asked.seed)
    mutants = [mutant(chance) for _ in range(asked.count)][asked.first :]
    noticed = 0
    with tempfile.TemporaryDirectory() as folder:
        held = Path(folder) / "commsim"
        ignored = shutil.ignore_patterns(".git", ".venv", "__pycache__", "site")
        shutil.copytree(ROOT, held, ignore=ignored)
        for number, one in enumerate(mutants, asked.first):
            if not survives(one, held):
                noticed += 1
                continue
            where = f"{one.path.relative_to(ROOT)}:{one.line}"
            print(f"{number}: {where}: {one.before}  ->  {one.after}", flush=True)
    print(f"{noticed} of {len(mutants)} noticed")


if __name__ == "__main__":
    main()
