"""
Every numeric setting of a cluster, found by walking the schema, and a worse value of each.

A field that is added to the schema is among them without a word here.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from commsim.cluster.fabrics.fabric_section import FabricSection
from commsim.cluster.nodes.node import NodeSection
from commsim.cluster.presets import preset_data
from commsim.sections import Section
from commsim.units import Bandwidth, Duration, Size

__all__ = ["Setting", "settings_of"]

_MONEY = ("price", "power")  # of cost alone; whole sections, that need a source
_UNSAID = ("host",)  # sections that every node takes and presets leave out
_LATER = {Bandwidth: "1GB/s", Duration: "1ms", Size: "8GiB", float: 0.25, int: 2}
"""What a setting gets that the preset leaves out."""


@dataclass(frozen=True)
class Setting:
    """A setting by its path below `overrides` or `fabric`, and a value to give it.

    `worsens`: with it the component is slower, never faster.
    """

    path: str
    value: Any
    worsens: bool

    def within(self, base: dict[str, Any]) -> dict[str, Any]:
        """Return a cluster section with this setting changed."""
        top, *rest = self.path.split(".")
        keys = ["fabric", *rest] if top == "fabric" else ["overrides", top, *rest]
        return _laid(base, keys, self.value)


def _laid(data: dict[str, Any], keys: list[str], value: Any) -> dict[str, Any]:
    if not keys:
        return value if not isinstance(value, dict) else {**data, **value}
    below = data.get(keys[0])
    inner = _laid(below if isinstance(below, dict) else {}, keys[1:], value)
    return {**data, keys[0]: inner}


def settings_of(preset: str, fabric: Mapping[str, Any] | None = None) -> Iterator[Setting]:
    """Yield every numeric setting of a preset's node and fabric; `fabric` is laid over its own."""
    data = preset_data(preset)
    network = {**(data.get("fabric") or {}), **(fabric or {})}
    yield from _walk(NodeSection, data["node"], "")
    for setting in _walk(FabricSection, network, "fabric."):
        # Leaves of a fat tree that is laid out by its radix hold more nodes the fewer uplinks
        # they have, so that some ways get shorter.
        by_radix = network.get("kind") == "fat_tree" and "nodes_per_leaf" not in network
        thin = by_radix and setting.path.endswith("oversubscription")
        yield replace(setting, worsens=False) if thin else setting


def _walk(section: type[Section], data: Mapping[str, Any], path: str) -> Iterator[Setting]:
    hints = typing.get_type_hints(section)
    for name in section.__struct_fields__:
        if name in _MONEY or name == "sources":
            continue
        for kind in _kinds(hints[name]):
            if isinstance(kind, type) and issubclass(kind, Section):
                if name in data or name in _UNSAID:
                    yield from _walk(kind, data.get(name) or {}, f"{path}{name}.")
            elif kind in (Bandwidth, Duration, Size, float, int, bool, dict[str, float]):
                found = _changed(f"{path}{name}", kind, data.get(name))
                if found is not None:
                    yield found


def _kinds(hint: Any) -> tuple[Any, ...]:
    """Return the alternatives of an optional or union type."""
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        return tuple(kind for kind in typing.get_args(hint) if kind is not type(None))
    return (hint,)


def _changed(path: str, kind: Any, now: Any) -> Setting | None:
    """Return the setting with a worse value, or (for counts) another one."""
    if kind is bool:
        return Setting(path, False, worsens=True) if now else None
    if kind == dict[str, float]:
        return Setting(
            path, {key: value / 4 for key, value in (now or {"bf16": 8.0}).items()}, True
        )
    if now is None:
        value = 4.0 if path.endswith("oversubscription") else _LATER[kind]
        return Setting(path, value, worsens=kind in (Duration, Bandwidth, float))
    if kind is Bandwidth:
        return Setting(path, _scaled(now, 1 / 4), worsens=True)
    if kind is Duration:
        return Setting(path, "1ms", worsens=True)
    if kind is Size:
        return Setting(path, "8GiB", worsens=True)
    if kind is float:
        oversubscribed = path.endswith("oversubscription")
        return Setting(path, now * 4 if oversubscribed else now / 4, worsens=True)
    if not isinstance(now, int):
        return None  # a matrix of links, not a number
    other = now // 2 if now > 1 else now + 1
    return Setting(path, other, worsens=now > 1 and path.endswith((".generation", ".width")))


def _scaled(text: str, factor: float) -> str:
    digits = text.rstrip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ/")
    return f"{float(digits) * factor:g}{text[len(digits) :]}"
