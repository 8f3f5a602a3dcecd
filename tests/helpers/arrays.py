"""
The arrays of an .npz file, one after another replaced by what no program would have saved there.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from helpers.leaves import HOSTILE, leaves, replaced

__all__ = ["array_damages", "arrays_of", "header_damages", "npz_of"]

Arrays = dict[str, npt.NDArray[Any]]

_WHOLE = (-1, -2, -(2**63), 0, 2**31, 2**61, 2**62, 2**63 - 1)
_PARTS = (float("nan"), float("inf"), -1.0, -0.5, 1e308, 1e-320, 0.0)


def arrays_of(data: bytes) -> Arrays:
    """Return the arrays of an .npz file."""
    with np.load(io.BytesIO(data), allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def npz_of(arrays: Arrays) -> bytes:
    """Return arrays as an .npz file; those of objects are pickled, as numpy does."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, values in arrays.items():
            column = io.BytesIO()
            np.save(column, values)
            archive.writestr(f"{name}.npy", column.getvalue())
    return made.getvalue()


def array_damages(values: npt.NDArray[Any]) -> Iterator[tuple[str, npt.NDArray[Any] | None]]:
    """Yield what may stand for an array, with what was done: None if it is left out."""
    yield "left out", None
    yield "objects", values.astype(object)
    yield "fractions", values.astype(np.float32)
    with np.errstate(invalid="ignore"):
        yield "narrow", values.astype(np.int32)
    yield "a table", values.reshape(1, -1)
    yield "empty", values[:0]
    yield "longer", np.concatenate([values, values[-1:]])
    if not len(values):
        return
    yield "shorter", values[:-1]
    yield "backwards", np.ascontiguousarray(values[..., ::-1] if values.ndim > 1 else values[::-1])
    wild: tuple[Any, ...] = {"f": _PARTS, "u": (255,)}.get(values.dtype.kind, _WHOLE)
    for value in wild:
        for what, at in (("first", slice(0, 1)), ("all", slice(None))):
            made = values.copy()
            made[at] = value
            yield f"{what} {value}", made


def header_damages(header: npt.NDArray[np.uint8]) -> Iterator[tuple[str, npt.NDArray[np.uint8]]]:
    """Yield headers of JSON with one leaf after another replaced."""
    data = json.loads(header.tobytes())
    for path in leaves(data):
        for value in HOSTILE:
            text = json.dumps(replaced(data, path, value)).encode()
            yield f"{path} {value!r:.30}", np.frombuffer(text, np.uint8)
