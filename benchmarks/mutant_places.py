"""Where the program can be changed, and how: the mutants that `mutants.py` tries."""

from __future__ import annotations

import ast
import copy
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import CodeType

__all__ = ["ROOMS", "ROOT", "Mutant", "drawn", "mutant", "places"]

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("engine", "libraries", "metrics", "workload", "traces", "study")
GUARDS = ("frozen", "strict", "kw_only", "eq")

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
    """One changed place: the file, the lines of its statement, what it was and what it is."""

    path: Path
    line: int
    lines: range
    before: str
    after: str
    tree: ast.Module
    text: str  # the line as it is
    function: str = ""  # its qualified name, if the place is in one

    @property
    def module(self) -> str:
        """Return the dotted name of the changed module."""
        parts = self.path.relative_to(ROOT).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @property
    def source(self) -> str:
        """Return the changed module, for interpreters that tests start."""
        return ast.unparse(self.tree)

    def code(self) -> CodeType:
        """Compile the changed module; lines are those of the file."""
        code: CodeType = compile(self.tree, str(self.path), "exec")
        return code


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


@cache
def _parsed(path: Path) -> tuple[str, ast.Module]:
    text = path.read_text(encoding="utf-8")
    return text, ast.parse(text)


def drawn(seed: int, count: int | None, rooms: Sequence[str] = ROOMS) -> list[tuple[Path, int]]:
    """Draw modules and numbers of their places, each place as likely as any other.

    A room is a folder or a file of commsim. Without a count all places are returned.
    """
    files = [path for room in rooms for path in sorted(_files(ROOT / "commsim" / room))]
    every = [(path, place) for path in files for place in range(len(places(_parsed(path)[1])))]
    return every if count is None else random.Random(seed).sample(every, count)


def _files(place: Path) -> Iterator[Path]:
    return place.rglob("*.py") if place.is_dir() else iter([place])


def mutant(path: Path, place: int) -> Mutant:
    """Return the mutant of a module at one of its places."""
    text, parsed = _parsed(path)
    tree = copy.deepcopy(parsed)
    node = places(tree)[place]
    before = ast.unparse(copy.deepcopy(node))
    changed(node)
    line = getattr(node, "lineno", 0)
    return Mutant(
        path,
        line,
        _lines(tree, node),
        before,
        ast.unparse(node),
        ast.fix_missing_locations(tree),
        text.splitlines()[line - 1].strip(),
        _owner(tree, node),
    )


def _lines(tree: ast.Module, place: ast.AST) -> range:
    """Return the lines from the beginning of a place's statement to the end of the place."""
    found = tree.body[0]

    def look(parent: ast.AST, inside: ast.stmt) -> None:
        nonlocal found
        if parent is place:
            found = inside
        for child in ast.iter_child_nodes(parent):
            look(child, child if isinstance(child, ast.stmt) else inside)

    look(tree, found)
    return range(found.lineno, getattr(place, "end_lineno", found.lineno) + 1)


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
