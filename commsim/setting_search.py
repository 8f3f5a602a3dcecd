"""
Which setting a user meant by words that lead to none: the path that ends in most of them.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from commsim.setting_paths import paths_of
from commsim.setting_types import fields_at, struct_in, type_at, value_at

__all__ = ["settings_meant"]


def settings_meant(
    kind: Any,
    words: Sequence[str],
    data: Any,
    *,
    above: Sequence[str] = (),
    section: bool = False,
) -> list[str]:
    """Return the paths that end in the `words` which a user wrote behind `above`, one or two.

    The most of the words count first, then the place nearest to `above`, then what `data` has
    already; words behind those of a section become the nearest that it has. A first word is left
    out if the second is a setting here: "cluster" where a cluster is read. `section`: settings
    stand below the words, so that no single value is meant.
    """
    for length in range(len(words), 0, -1):
        tail = ".".join(words[:length])
        inside = section or length < len(words)
        for depth in range(len(above), -1, -1):
            place = above[:depth]
            inner, written = struct_in(type_at(kind, place)), value_at(data, place)
            found = _ending(inner, tail, written, inside=inside)
            if length < len(words):
                found = _spelled(inner, found, ".".join(words[length:]))
            if found:
                return [".".join((*place, one)) for one in found] if len(found) <= _FEW else []
    if words[1:] and words[1] in fields_at(kind, above):
        return settings_meant(kind, words[1:], data, above=above, section=section)
    return []


_FEW = 2  # settings of one name that are all said


def _ending(kind: Any, tail: str, data: Any, *, inside: bool) -> list[str]:
    """Return the paths in a section that end in `tail`; of `data`'s, if it has one's beginning."""
    if not (isinstance(kind, type) and issubclass(kind, msgspec.Struct)):
        return []
    values = paths_of(kind)
    steps = [one.split(".") for one in values]
    sections = {".".join(one[:depth]) for one in steps for depth in range(1, len(one))}
    found: list[str] = []
    for paths in (sections,) if inside else (values, sections):
        found = found or sorted({one for one in paths if f".{one}".endswith(f".{tail}")})
    open_to = [one for one in found if not _shut(kind, one.split("."), data)]
    most = max((_written(data, one) for one in open_to), default=0)
    return [one for one in open_to if _written(data, one) == most]


def _spelled(kind: Any, sections: Sequence[str], rest: str) -> list[str]:
    """Return what in one of these sections is spelt most like `rest`; `rest` itself if nothing."""
    values = paths_of(kind) if sections else []
    found = []
    for section in sections:
        inside = [
            one.removeprefix(f"{section}.") for one in values if one.startswith(f"{section}.")
        ]
        near = difflib.get_close_matches(rest, inside, n=1)
        found += [f"{section}.{one}" for one in near]
    return found or [f"{section}.{rest}" for section in sections]


def _shut(kind: Any, path: Sequence[str], data: Any) -> bool:
    """Return whether `path` needs one of two settings of which `data` has the other."""
    for depth, step in enumerate(path):
        either = getattr(struct_in(type_at(kind, path[:depth])), "either", ())
        here = value_at(data, path[:depth])
        if step in either and isinstance(here, Mapping) and step not in here:
            return any(other in here for other in either)
    return False


def _written(data: Any, path: str) -> int:
    """Return how many steps of a path lead through what a user wrote."""
    steps = path.split(".")
    return sum(value_at(data, steps[: depth + 1]) is not None for depth in range(len(steps)))
