"""
The paths of all settings that a section has, and those below it.
"""

from __future__ import annotations

from msgspec import inspect as types

__all__ = ["paths_of"]


def paths_of(section: type) -> list[str]:
    """Return the path of every setting of a section: "training.batch.global" and so on."""
    return sorted(_paths(types.type_info(section), "", 0))


_DEEPEST = 6  # settings lie no deeper; a struct may hold itself


def _paths(kind: types.Type, path: str, depth: int) -> list[str]:
    if isinstance(kind, types.UnionType):
        return [found for one in kind.types for found in _paths(one, path, depth)]
    if not isinstance(kind, types.StructType) or depth > _DEEPEST:
        return [path] if path and not isinstance(kind, types.NoneType) else []
    return [
        found
        for one in kind.fields
        for found in _paths(one.type, f"{path}.{one.encode_name}".lstrip("."), depth + 1)
    ]
