"""Chakra's messages as we describe them, against Chakra's own et_def.proto."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from commsim.traces.formats.chakra.schema import messages

pytest.importorskip("google.protobuf")
FIELD = re.compile(r"(repeated )?(\w+) (\w+) = (\d+);")


def described(text: str) -> dict[str, dict[str, tuple[int, bool]]]:
    """Return message -> field -> (number, repeated) of a .proto file."""
    found: dict[str, dict[str, tuple[int, bool]]] = {}
    for name, body in re.findall(r"message (\w+) \{(.*?)\n\}", text, re.DOTALL):
        plain = re.sub(r"//[^\n]*", "", body)
        found[name] = {f: (int(n), bool(many)) for many, _, f, n in FIELD.findall(plain)}
    return found


def test_fields_are_those_of_et_def_proto(shared_data: Path) -> None:
    theirs = described((shared_data / "traces/dev_chakra/et_def.proto").read_text())
    pool = messages().node.DESCRIPTOR.file.message_types_by_name
    assert set(pool) <= set(theirs)
    assert {"Node", "AttributeProto", "GlobalMetadata"} <= set(pool)
    for name, message in pool.items():
        ours = {field.name: (field.number, field.is_repeated) for field in message.fields}
        assert ours == theirs[name]
