"""The map of the code is true: every path that it names exists."""

from __future__ import annotations

import ast
import re

from helpers.paths import ROOT

PAGE = (ROOT / "docs/background/architecture.md").read_text(encoding="utf-8")
MODULES = {
    path.relative_to(ROOT / "commsim").as_posix() for path in (ROOT / "commsim").rglob("*.py")
}


def test_every_module_that_is_named_exists() -> None:
    named = set(re.findall(r"`(?:commsim/)?([a-z_/]+\.py)`", PAGE)) - {"__init__.py"}
    assert len(named) > 25
    missing = {
        name for name in named
        if not any(path == name or path.endswith(f"/{name}") for path in MODULES)
        and not (name.startswith("tests/") and (ROOT / name).is_file())
    }  # fmt: skip
    assert missing == set()


def test_every_name_beside_a_module_is_defined_there() -> None:
    pairs = re.findall(r"`([a-z_/]+\.py)`\s+\(`([A-Za-z_.]+)`\)", PAGE)
    assert len(pairs) > 20
    assert [pair for pair in pairs if pair[1] not in defined(pair[0])] == []


def defined(module: str) -> set[str]:
    """Return the functions, classes and methods of a module."""
    tree = ast.parse((ROOT / "commsim" / module).read_text(encoding="utf-8"))
    kinds = (ast.ClassDef, ast.FunctionDef)
    own = [node for node in tree.body if isinstance(node, kinds)]
    return {node.name for node in own} | {
        f"{node.name}.{inner.name}"
        for node in own if isinstance(node, ast.ClassDef)
        for inner in node.body if isinstance(inner, kinds)
    }  # fmt: skip


def test_every_room_is_in_the_table() -> None:
    rooms = {path.split("/")[0] for path in MODULES if "/" in path}
    table = PAGE.split("## Rooms")[1].split("## Walks")[0]
    assert {room for room in rooms if f"`{room}/`" not in table} == set()
