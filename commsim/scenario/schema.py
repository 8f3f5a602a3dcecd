"""
The JSON schema of a scenario, for editors: they complete settings and mark what is wrong.
"""

from __future__ import annotations

import inspect
from typing import Any

from msgspec import inspect as types

from commsim.scenario.section import ScenarioFile
from commsim.setting_paths import paths_of
from commsim.units import Bandwidth, Duration, Size

__all__ = ["scenario_schema", "setting_paths"]

_QUANTITIES: dict[type, str] = {
    Duration: 'a time with its unit, such as "3us"',
    Size: 'a size with its unit, such as "25MiB"',
    Bandwidth: 'a bandwidth with its unit, such as "400Gbps"',
}
_PLAIN = (
    (types.BoolType, "boolean"),
    (types.IntType, "integer"),
    (types.FloatType, "number"),
    (types.StrType, "string"),
    (types.NoneType, "null"),
)


def scenario_schema() -> dict[str, Any]:
    """Return the schema (draft 2020-12) of a scenario file; each struct stands in it once."""
    made: dict[str, Any] = {}
    top = _schema(types.type_info(ScenarioFile), made)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "commsim scenario",
        **top,
        "$defs": made,
    }


def _schema(kind: types.Type, made: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a type; structs go to `made` and are referred to."""
    if isinstance(kind, types.StructType):
        name = kind.cls.__name__
        if name not in made:
            made[name] = {}  # a struct may hold itself
            made[name] = _struct(kind, made)
        return {"$ref": f"#/$defs/{name}"}
    if isinstance(kind, types.UnionType):
        return {"anyOf": [_schema(one, made) for one in kind.types]}
    if isinstance(kind, types.LiteralType):
        return {"enum": list(kind.values)}
    if isinstance(kind, types.ListType | types.VarTupleType):
        return {"type": "array", "items": _schema(kind.item_type, made)}
    if isinstance(kind, types.TupleType):
        return {"type": "array", "prefixItems": [_schema(one, made) for one in kind.item_types]}
    if isinstance(kind, types.DictType):
        return {"type": "object", "additionalProperties": _schema(kind.value_type, made)}
    if isinstance(kind, types.CustomType):
        told = _QUANTITIES.get(kind.cls)
        return {"type": ["string", "integer"], "description": told} if told else {}
    return next(({"type": name} for plain, name in _PLAIN if isinstance(kind, plain)), {})


def _struct(kind: types.StructType, made: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "description": inspect.getdoc(kind.cls) or "",
        "properties": {one.encode_name: _schema(one.type, made) for one in kind.fields},
        "required": [one.encode_name for one in kind.fields if one.required],
        "additionalProperties": not kind.forbid_unknown_fields,
    }


def setting_paths() -> list[str]:
    """Return the path of every setting: "workload.training.batch.global" and so on."""
    return paths_of(ScenarioFile)
