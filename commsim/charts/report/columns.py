"""
Columns of integers inside a page: small, and quick to unpack in a browser.

A column is cut into planes (all lowest bytes, then all second bytes, ...), which deflate packs
well because neighbours are equal, and written as base64. A browser inflates it natively.
"""

from __future__ import annotations

import base64
import json
import struct
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["blob", "column", "packed"]

_PIECE = 3 << 18  # bytes per piece of base64; a multiple of three, so that pieces join
_LEVEL = 6
_MOST = 2**53  # what a browser's numbers hold exactly


def blob(facts: Mapping[str, Any], columns: Mapping[str, npt.NDArray[np.integer]]) -> bytes:
    """Return plain data and columns as one deflated piece.

    Inside: the length of the JSON in four bytes (little endian), the JSON with [name, planes] of
    each column under "columns", then the planes of each.
    """
    named, planes = [], []
    for name, values in columns.items():
        count = max(1, (int(values.max(initial=0)).bit_length() + 7) // 8)
        named.append([name, count])
        planes += [((values >> (8 * at)) & 0xFF).astype(np.uint8).tobytes() for at in range(count)]
    text = json.dumps({**facts, "columns": named}, separators=(",", ":")).encode()
    return zlib.compress(b"".join((struct.pack("<I", len(text)), text, *planes)), 9)


def column(name: str, values: npt.NDArray[np.integer]) -> Iterator[str]:
    """Yield the element that holds `values` (whole numbers from 0 below 2**53), in pieces.

    Its attributes say how to read it: `data-column` the name, `data-planes` the bytes per value.
    """
    highest = int(values.max(initial=0))
    if highest >= _MOST or int(values.min(initial=0)) < 0:
        raise ValueError(f"column {name}: values must lie in 0..2**53.")
    planes = max(1, (highest.bit_length() + 7) // 8)
    yield f'<script type="text/plain" data-column="{name}" data-planes="{planes}">'
    yield from packed(values, planes)
    yield "</script>\n"


def packed(values: npt.NDArray[np.integer], planes: int) -> Iterator[str]:
    """Yield the base64 of the deflated planes of `values`, lowest bytes first."""
    deflate = zlib.compressobj(_LEVEL)
    rest = b""
    for plane in range(planes):
        rest += deflate.compress(((values >> (8 * plane)) & 0xFF).astype(np.uint8).tobytes())
        whole = len(rest) - len(rest) % 3
        yield from _base64(rest[:whole])
        rest = rest[whole:]
    yield from _base64(rest + deflate.flush())


def _base64(data: bytes) -> Iterator[str]:
    for at in range(0, len(data), _PIECE):
        yield base64.b64encode(data[at : at + _PIECE]).decode("ascii")
