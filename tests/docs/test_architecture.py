"""The map of the code is true: every path that it names exists."""

from __future__ import annotations

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
    }  # fmt: skip
    assert missing == {"tests/test_rooms.py"}


def test_every_room_is_in_the_table() -> None:
    rooms = {path.split("/")[0] for path in MODULES if "/" in path}
    table = PAGE.split("## Rooms")[1].split("## Five walks")[0]
    assert {room for room in rooms if f"`{room}/`" not in table} == set()
