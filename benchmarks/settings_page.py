"""
Write docs/reference/settings.md: every setting of a scenario, from the structs that read it.

    python benchmarks/settings_page.py

The tests hold the page to what this would write.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import inspect as types

from commsim.libraries import LIBRARIES, LibrarySection
from commsim.scenario import ScenarioFile
from commsim.sections import Durations
from commsim.units import Bandwidth, Duration, Size

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs/reference/settings.md"
HEAD = """# Every setting

What a scenario may say, section by section; `commsim schema` prints the same as a JSON schema, by
which editors complete and check. Written by `python benchmarks/settings_page.py` from the structs
that read scenarios.
"""
QUANTITIES: dict[type, str] = {
    Duration: "time, as `3us`",
    Size: "size, as `25MiB`",
    Bandwidth: "bandwidth, as `400Gbps`",
    Durations: "time, or a list of times",
    LibrarySection: "[library](#library)",
}
PLAIN: tuple[tuple[type[types.Type], str], ...] = (
    (types.BoolType, "true or false"),
    (types.IntType, "integer"),
    (types.FloatType, "number"),
    (types.StrType, "text"),
)


def page() -> str:
    """Return the page."""
    top = types.type_info(ScenarioFile)
    assert isinstance(top, types.StructType)
    sections = _sections(top)
    anchors = {kind: _anchor(path) for kind, path in sections.items()}
    parts = [HEAD, _table(top, anchors)]
    for kind, path in sections.items():
        if kind is not ScenarioFile:
            info = types.type_info(kind)
            assert isinstance(info, types.StructType)
            parts += [f"## {path}\n", _told(kind), _table(info, anchors)]
    parts += ["## library\n", _told(LibrarySection)]
    for name in LIBRARIES:
        kind = LIBRARIES.get(name, "library").settings
        info = types.type_info(kind)
        assert isinstance(info, types.StructType)
        parts += [f"### library {name}\n", _told(kind), _table(info, anchors)]
    return "\n".join(parts)


def _sections(top: types.StructType) -> dict[type, str]:
    """Return each struct below `top` with the path at which it first stands, outer ones first."""
    found: dict[type, str] = {top.cls: ""}
    row = [top]
    while row:
        kind = row.pop(0)
        for field in kind.fields:
            for inner, mark in _structs(field.type):
                if inner.cls not in found:
                    found[inner.cls] = f"{found[kind.cls]}.{field.encode_name}{mark}".lstrip(".")
                    row.append(inner)
    return found


def _structs(kind: types.Type) -> Iterator[tuple[types.StructType, str]]:
    """Yield the structs in a type, with the mark of a list or of names where they stand in one."""
    if isinstance(kind, types.StructType):
        yield kind, ""
    elif isinstance(kind, types.UnionType):
        for one in kind.types:
            yield from _structs(one)
    elif isinstance(kind, types.ListType | types.VarTupleType):
        yield from ((inner, "[]") for inner, _ in _structs(kind.item_type))
    elif isinstance(kind, types.DictType):
        yield from ((inner, ".NAME") for inner, _ in _structs(kind.value_type))


def _anchor(path: str) -> str:
    """Return the anchor that Markdown gives a heading."""
    return re.sub(r"[^\w\- ]", "", path.lower()).strip().replace(" ", "-")


def _told(kind: type) -> str:
    """Return a docstring as Markdown."""
    return f"{inspect.cleandoc(kind.__doc__ or '')}\n"


def _table(kind: types.StructType, anchors: dict[type, str]) -> str:
    if not kind.fields:
        return "It has no settings.\n"
    lines = ["| setting | takes | without it |", "|---|---|---|"]
    for field in kind.fields:
        lines.append(
            f"| `{field.encode_name}` | {_words(field.type, anchors)} | {_default(field)} |"
        )
    return "\n".join([*lines, ""])


def _words(kind: types.Type, anchors: dict[type, str]) -> str:
    """Return what a setting takes, in words."""
    if isinstance(kind, types.StructType):
        return f"[section](#{anchors[kind.cls]})"
    if isinstance(kind, types.UnionType):
        inner = [one for one in kind.types if not isinstance(one, types.NoneType)]
        return " or ".join(dict.fromkeys(_words(one, anchors) for one in inner))
    if isinstance(kind, types.LiteralType):
        return ", ".join(f"`{value}`" for value in kind.values)
    if isinstance(kind, types.ListType | types.VarTupleType):
        return f"list of: {_words(kind.item_type, anchors)}"
    if isinstance(kind, types.TupleType):
        return f"list: {', '.join(_words(one, anchors) for one in kind.item_types)}"
    if isinstance(kind, types.DictType):
        return f"by name: {_words(kind.value_type, anchors)}"
    if isinstance(kind, types.CustomType):
        return QUANTITIES.get(kind.cls, "")
    limits = _limits(kind)
    return next((text for plain, text in PLAIN if isinstance(kind, plain)), "anything") + limits


def _limits(kind: types.Type) -> str:
    words = {"ge": "from", "gt": "above", "le": "to", "lt": "below"}
    found = [
        f"{word} {value:g}"
        for name, word in words.items()
        if (value := getattr(kind, name, None)) is not None
    ]
    return f" {' '.join(found)}" if found else ""


def _default(field: types.Field) -> str:
    """Return what holds where a setting is left out."""
    if field.required:
        return "must be given"
    value: Any = field.default
    if value is msgspec.NODEFAULT and field.default_factory is not msgspec.NODEFAULT:
        value = field.default_factory()
    if (
        value is None
        or isinstance(value, msgspec.Struct | LibrarySection)
        or value in ((), [], {}, "")
    ):
        return ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, tuple | list):
        return f"`[{', '.join(map(str, value))}]`"
    return f"`{value}`"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)}")
