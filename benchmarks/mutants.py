"""
How many small faults in the program the tests notice: mutants by seed, each against its own tests.

    python benchmarks/mutants.py --count 200 --seed 0
    python benchmarks/mutants.py --count 200 --seed 0 --first 40 --last 60    # a part of them
    python benchmarks/mutants.py --count 200 --seed 0 --reach FILE    # FILE by benchmarks/reach.py
    python benchmarks/mutants.py --count 50 --seed 0 --rooms engine metrics

A mutant changes one place of one module: a comparison, an arithmetic sign, a constant, a
condition. It is never written: a fork of this process imports the module as changed, collects the
tests that say most about it (those that import it, that name what it defines, that stand where
its own would) and runs them until one fails; who survives meets more of the tests of its room.
With `--reach` those that enter the changed function come first: the nearest, then the quickest.
Processor time is counted, not the clock's, so a busy machine gives the same verdicts. Prints each
mutant with its verdict; at the end, tests that fail without any mutant.

Left out are guards of what never happens, which no run can tell from their absence: `frozen`,
`kw_only` and `eq` of values, `strict` of zip; and the -1 of `reshape`, for which numpy takes any
negative number. `equivalent_mutants.yaml` names the others that change nothing, with why: they are
not run, and the share is given without them too.
"""

from __future__ import annotations

import argparse
import ast
import copy
import importlib.util
import os
import random
import resource
import signal
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path

import msgspec
import numpy  # noqa: F401  (what every fork needs is imported once)
import pytest
import simpy  # noqa: F401
import yaml
from mutant_tests import NEAREST, reaching, tests_of
from reach import Reach

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("engine", "libraries", "metrics", "workload", "traces", "study")
TEST_SECONDS = 60  # of processor time: no test takes a third of it, so the mutant hangs
MUTANT_SECONDS = (
    90  # of processor time, in each of the two rounds: what is not tried is not counted
)
GUARDS = ("frozen", "strict", "kw_only", "eq")
MEMORY = 6 << 30  # bytes of address space: a mutant may ask for anything

CUSTOM = '''"""Loads one module as a mutant has it."""
import importlib.util, sys
from importlib.machinery import SourceFileLoader

class Planted(SourceFileLoader):
    def find_spec(self, name, *_):
        if name == {name!r}:
            return importlib.util.spec_from_file_location(name, {path!r}, loader=self)

    def get_code(self, fullname):
        return compile(open({changed!r}, encoding="utf-8").read(), {path!r}, "exec")

sys.meta_path.insert(0, Planted({name!r}, {path!r}))
'''

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
    text: str  # the line as it is
    function: str = ""  # its qualified name, if the place is in one

    @property
    def module(self) -> str:
        """Return the dotted name of the changed module."""
        parts = self.path.relative_to(ROOT).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def places(tree: ast.Module) -> list[ast.AST]:
    """Return the nodes of a module that can be changed; what the module's docstring says is not."""
    left_out = {
        id(inner)
        for node in ast.walk(tree)
        for field in ("annotation", "returns", "value")
        if (held := getattr(node, field, None)) is not None
        and (field != "value" or (isinstance(node, ast.keyword) and node.arg in GUARDS))
        for inner in ast.walk(held)
    }
    left_out |= {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "reshape"
        for length in node.args
        if isinstance(length, ast.UnaryOp)
        for inner in ast.walk(length)
    }
    return [
        node
        for node in ast.walk(tree)
        if id(node) not in left_out
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


def drawn(seed: int, count: int, rooms: Sequence[str] = ROOMS) -> list[tuple[Path, int]]:
    """Draw modules and numbers of their places, each place of the rooms as likely as any other."""
    files = [path for room in rooms for path in sorted((ROOT / "commsim" / room).rglob("*.py"))]
    every = [
        (path, place)
        for path in files
        for place in range(len(places(ast.parse(path.read_text(encoding="utf-8")))))
    ]
    return random.Random(seed).sample(every, count)


def mutant(path: Path, place: int) -> Mutant:
    """Return the mutant of a module at one of its places."""
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    node = places(tree)[place]
    before = ast.unparse(copy.deepcopy(node))
    changed(node)
    line = getattr(node, "lineno", 0)
    source = ast.unparse(ast.fix_missing_locations(tree))
    whole = text.splitlines()[line - 1].strip()
    return Mutant(path, line, before, ast.unparse(node), source, whole, _owner(tree, node))


def _owner(tree: ast.Module, place: ast.AST) -> str:
    """Return the qualified name of the function whose body has a place; none for the module's."""
    found = ""

    def look(parent: ast.AST, inside: str, name: str) -> None:
        nonlocal found
        if parent is place:
            found = name
        for field, value in ast.iter_fields(parent):
            body = field == "body" and isinstance(parent, ast.ClassDef | ast.FunctionDef)
            for child in value if isinstance(value, list) else [value]:
                if not isinstance(child, ast.AST):
                    continue
                if not body:
                    look(child, inside, name)
                elif isinstance(parent, ast.ClassDef):
                    look(child, f"{inside}{parent.name}.", name)
                elif isinstance(parent, ast.FunctionDef):
                    look(child, f"{inside}{parent.name}.<locals>.", f"{inside}{parent.name}")

    look(tree, "", "")
    return found


class Planted(SourceFileLoader):
    """Finds one module and loads it as a mutant has it."""

    def __init__(self, one: Mutant) -> None:
        super().__init__(one.module, str(one.path))
        self.source = one.source

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        """Return what loads the changed module, nothing for others."""
        if name != self.name:
            return None
        return importlib.util.spec_from_file_location(name, self.path, loader=self)

    def get_code(self, fullname: str) -> object:  # type: ignore[override]
        """Compile the changed source; what is kept beside the file is the module as it was."""
        return compile(self.source, self.path, "exec")


class Counted:
    """Ends a fork in which a test, or all of them, take more processor time than they may."""

    def __init__(self, log: int, asked: Sequence[str]) -> None:
        self.log = log
        self.place = {name: at for at, name in enumerate(asked) if "::" in name}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Keep tests that are named, in that order; else put one case of each test first."""
        if self.place:
            named = [item for item in items if item.nodeid in self.place]
            items[:] = sorted(named, key=lambda item: self.place[item.nodeid])
            return
        seen: set[str] = set()
        firsts = []
        for item in items:
            family = item.nodeid.partition("[")[0]
            if family not in seen:
                seen.add(family)
                firsts.append(item)
        chosen = set(firsts)
        items[:] = firsts + [item for item in items if item not in chosen]

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Note the test that begins; end all in good order if the mutant's time is used up."""
        used = resource.getrusage(resource.RUSAGE_SELF)
        spent = used.ru_utime + used.ru_stime
        if spent > MUTANT_SECONDS:
            pytest.exit("its time is used up", returncode=0)
        os.pwrite(self.log, nodeid.encode().ljust(400)[:400], 0)
        resource.setrlimit(resource.RLIMIT_CPU, (int(spent) + TEST_SECONDS, resource.RLIM_INFINITY))


def verdict(one: Mutant | None, tests: Iterable[Path | str]) -> str:
    """Run tests in a fork, with a mutant; return what noticed it, nothing if none did."""
    with tempfile.TemporaryFile() as log, tempfile.TemporaryDirectory() as folder:
        child = os.fork()
        if child == 0:
            try:
                if one is not None:
                    _plant(one, Path(folder))
                _run([str(test) for test in tests], log.fileno())
            finally:
                os._exit(70)
        _, status = os.waitpid(child, 0)
        at = os.pread(log.fileno(), 400, 0).decode().strip() or "collecting"
    if os.WIFSIGNALED(status):
        hangs = os.WTERMSIG(status) == signal.SIGXCPU
        return f"{'hangs' if hangs else 'dies'} in {at}"
    return at if os.WEXITSTATUS(status) else ""


def _plant(one: Mutant, folder: Path) -> None:
    """Have this process load the changed module, and the interpreters that its tests start."""
    sys.meta_path.insert(0, Planted(one))
    (folder / "changed.py").write_text(one.source, encoding="utf-8")
    (folder / "sitecustomize.py").write_text(
        CUSTOM.format(name=one.module, path=str(one.path), changed=str(folder / "changed.py")),
        encoding="utf-8",
    )
    os.environ["PYTHONPATH"] = os.pathsep.join([str(folder), str(ROOT)])


def _run(tests: list[str], log: int) -> None:
    """Run tests as this process, which ends with pytest's own exit status."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (TEST_SECONDS, resource.RLIM_INFINITY))
    os.chdir(ROOT)
    sys.path.insert(0, str(ROOT))
    os.environ["NUMBA_DISABLE_JIT"] = "1"  # its cache would stand for the changed source
    words = ["-q", "-x", "--tb=no", "-p", "no:cacheprovider", "--hypothesis-seed=0"]
    files = dict.fromkeys(test.partition("::")[0] for test in tests)
    status = int(pytest.main([*words, *files], plugins=[Counted(log, tests)]))
    os._exit(0 if status == pytest.ExitCode.NO_TESTS_COLLECTED else status)


def changing_nothing() -> dict[tuple[str, str, str], str]:
    """Return why a mutant changes nothing, by its path, its line and the change."""
    rows = yaml.safe_load((ROOT / "benchmarks/equivalent_mutants.yaml").read_text("utf-8"))
    return {(row["path"], row["line"], row["change"]): row["why"] for row in rows}


def noticed_by(one: Mutant, reach: Reach | None) -> str:
    """Return the test that notices a mutant, nothing if it survives both rounds."""
    tests = tests_of(one.path)
    first: Sequence[Path | str] = (
        reaching((one.path, one.function), tests[:NEAREST], reach, MUTANT_SECONDS) if reach else ()
    )
    if first:
        return verdict(one, first) or verdict(one, tests[:NEAREST])
    return verdict(one, tests[:NEAREST]) or verdict(one, tests[NEAREST:])


def main() -> None:
    """Make mutants, run their tests, print each with what noticed it and the share noticed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="the first mutant that is run")
    parser.add_argument("--last", type=int, help="where to stop, before this one")
    parser.add_argument("--reach", type=Path, help="what reach.py wrote")
    parser.add_argument("--rooms", nargs="+", default=ROOMS, help="where mutants are made")
    asked = parser.parse_args()
    reach = msgspec.json.decode(asked.reach.read_bytes(), type=Reach) if asked.reach else None
    every = drawn(asked.seed, asked.count, asked.rooms)
    chosen = range(asked.count)[asked.first : asked.last]
    found: dict[int, str] = {}
    known, same = changing_nothing(), 0
    for number in chosen:
        one = mutant(*every[number])
        path, change = str(one.path.relative_to(ROOT)), f"{one.before} -> {one.after}"
        where = f"{path}:{one.line}: {change}"
        if why := known.get((path, one.text, change)):
            same += 1
            print(f"{number}: CHANGES NOTHING: {where}: {why}", flush=True)
            continue
        found[number] = noticed_by(one, reach)
        print(f"{number}: {found[number] or 'SURVIVES'}: {where}", flush=True)
    tests = {by for by in found.values() if "::" in by and " in " not in by}
    if tests and (failing := verdict(None, sorted(tests))):
        print(f"fails without a mutant, so it notices nothing: {failing}")
    noticed = sum(map(bool, found.values()))
    print(f"{noticed} of {len(chosen)} noticed; {same} change nothing")


if __name__ == "__main__":
    main()
