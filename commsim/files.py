"""
Write files whole or not at all: aside first, then renamed.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

__all__ = ["json_bytes", "write_aside", "write_json"]


def write_aside(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a file beside `path` (of the same suffix), then rename it to `path`."""
    suffix = "".join(path.suffixes[-2:])
    aside = path.with_name(f".{path.name}.{os.getpid()}{suffix}")
    try:
        write(aside)
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)


def json_bytes(data: dict[str, Any]) -> bytes:
    """Return `data` as indented JSON that ends in a newline; what is not finite is null."""
    return msgspec.json.format(msgspec.json.encode(data), indent=1) + b"\n"


def write_json(data: dict[str, Any], path: Path) -> None:
    """Write `data` as JSON to `path`."""
    write_aside(path, lambda aside: aside.write_bytes(json_bytes(data)))
