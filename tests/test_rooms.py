"""Rooms have faces: imports between rooms name an `__init__.py`, and no modules form a circle."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import networkx as nx
import pytest
from helpers.paths import ROOT

FILES = sorted((ROOT / "commsim").rglob("*.py"))
ROOMS = {".".join(path.relative_to(ROOT).parent.parts) for path in FILES}


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


KNOWN: list[list[str]] = []
"""Circles that are still to be cut; none may be added."""

MODULES = {module_of(path): path for path in FILES}


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def shown(room: str) -> frozenset[str]:
    """Return the strings of a room's face: among them the names that it shows."""
    return frozenset(
        node.value
        for node in ast.walk(tree_of(MODULES[room]))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


@cache
def statements(path: Path) -> list[ast.Import | ast.ImportFrom | ast.ClassDef]:
    """Return what a file imports and defines, inside functions too."""
    kinds = (ast.Import, ast.ImportFrom, ast.ClassDef)
    return [node for node in ast.walk(tree_of(path)) if isinstance(node, kinds)]


def imports(path: Path) -> Iterator[tuple[str, int]]:
    """Yield each module of commsim that a file imports, those inside functions too."""
    for node in statements(path):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("commsim"):
            for each in node.names:
                whole = f"{node.module}.{each.name}"
                yield (whole if whole in MODULES and is_module(path, whole) else node.module or "",
                       node.lineno)  # fmt: skip
        elif isinstance(node, ast.Import):
            yield from (
                (each.name, node.lineno) for each in node.names if each.name.startswith("commsim")
            )


def is_module(path: Path, whole: str) -> bool:
    """Say whether `from room import name` means the module and not a name of the room's face."""
    room, name = whole.rsplit(".", 1)
    return path == MODULES[room] or name not in shown(room)


def passes_a_face(importer: str, target: str) -> bool:
    """Say whether `importer` reaches past the face of a room that it is not in."""
    mine = importer if importer in ROOMS else importer.rpartition(".")[0]
    common = 0
    for a, b in zip(mine.split("."), target.split("."), strict=False):
        if a != b:
            break
        common += 1
    beyond = target.split(".")[common:]
    return len(beyond) > 1 and target not in ROOMS


def test_imports_between_rooms_go_through_faces() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line} imports {target}"
        for module, path in MODULES.items()
        for target, line in imports(path)
        if passes_a_face(module, target)
    ]
    assert found == []


def test_every_face_says_what_it_shows() -> None:
    for room in ROOMS - {"commsim.cli"}:
        tree = tree_of(MODULES[room])
        assert ast.get_docstring(tree), room
        assigned = [
            target.id
            for node in tree.body
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        ]
        assert "__all__" in assigned, room


def test_no_modules_import_each_other_in_a_circle() -> None:
    graph = nx.DiGraph(
        (module, target)
        for module, path in MODULES.items()
        for target, _ in imports(path)
        if target not in ROOMS and module not in ROOMS and target != module
    )
    circles = sorted(
        sorted(each) for each in nx.strongly_connected_components(graph) if len(each) > 1
    )
    assert circles == KNOWN


def test_a_class_name_means_one_thing() -> None:
    found: dict[str, list[str]] = {}
    for module, path in MODULES.items():
        for node in statements(path):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found.setdefault(node.name, []).append(module)
    assert {name: modules for name, modules in found.items() if len(modules) > 1} == {}


@pytest.mark.parametrize("room", ["charts", "libraries", "study", "traces"])
def test_the_big_rooms_keep_to_ten_rooms_and_modules(room: str) -> None:
    """More belong behind a wall of their own, so that a reader sees the room at a glance."""
    inside = {
        module.removeprefix(f"commsim.{room}.").split(".")[0]
        for module in MODULES
        if module.startswith(f"commsim.{room}.")
    }
    assert len(inside) <= 10, sorted(inside)
