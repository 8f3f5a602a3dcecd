"""
Columns in one .npz file: written atomically, read without trusting its content.
"""

from __future__ import annotations

import math
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from commsim.errors import ScenarioError, TraceError
from commsim.files import write_aside
from commsim.graph.table import op_columns
from commsim.input_files import readable
from commsim.units import format_size

__all__ = ["Arrays", "column", "columns_of", "foreign", "indices", "read_arrays", "write_arrays"]

Arrays = dict[str, npt.NDArray[Any]]

_MOST_BYTES = 3 * 2**28  # of all columns that are not those of ops; more only with many ops
_MOST_PER_OP = 256  # bytes of them with each op: what it waits for, its span, what links serve
_BROKEN = (
    ArithmeticError, AttributeError, EOFError, LookupError, MemoryError, NotImplementedError,
    RuntimeError, ScenarioError, SyntaxError, TypeError, ValueError, msgspec.MsgspecError,
    struct.error, tokenize.TokenError, zipfile.BadZipFile, zlib.error,
)  # fmt: skip
"""What zipfile, numpy, msgspec (0.19: no ValueError) and the checks raise over a foreign file."""


def write_arrays(path: str | Path, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    """Write `arrays` to an .npz file, whole or not at all."""

    def write(aside: Path) -> None:
        with aside.open("wb") as file:
            np.savez_compressed(file, **arrays)  # type: ignore[arg-type]

    write_aside(path, write)


def read_arrays(path: str | Path, graph: str = "") -> Arrays:
    """Return the arrays of an .npz file; call it inside `foreign`.

    `graph` is what the names of a graph's columns begin with.
    """
    content = readable(path)
    with zipfile.ZipFile(content) as archive:
        _check_sizes(
            {entry.filename: _shape(archive, entry) for entry in archive.infolist()}, graph
        )
    with np.load(content, allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def _shape(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> tuple[tuple[int, ...], int]:
    """Return the shape of an array and its bytes, by its header: nothing of it is unpacked."""
    with archive.open(entry) as file:
        version = np.lib.format.read_magic(file)
        read = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }
        shape, _, dtype = read[version](file)
        size = math.prod(shape) * dtype.itemsize
        if not dtype.hasobject and entry.file_size != file.tell() + size:
            raise ValueError(f"{entry.filename} is not as long as it says")
    return shape, size


def _check_sizes(found: Mapping[str, tuple[tuple[int, ...], int]], graph: str) -> None:
    """Refuse a small file that unpacks to more than the ops in it can have.

    The columns of ops are all as long as each other, so none is larger than what is there.
    """
    ops = found.get(f"{graph}kind.npy", ((), 0))[0]
    named = [f"{graph}{name}.npy" for name in op_columns()]
    if len({found[name][0] for name in named if name in found}) > 1:
        raise ValueError("the columns of its operations are not equally long")
    count = math.prod(ops) if all(name in found for name in named) else 0
    others = sum(size for name, (_, size) in found.items() if not count or name not in named)
    if others > _MOST_BYTES + _MOST_PER_OP * count:
        raise ValueError(
            f"it unpacks to {format_size(others)} besides the {count:,} operations, too many"
        )


@contextmanager
def foreign(path: str | Path, what: str) -> Iterator[None]:
    """Turn whatever goes wrong while `path` is read as `what` into a TraceError."""
    try:
        yield
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror or error}.") from None
    except _BROKEN as error:
        reason = str(error).rstrip(".") or type(error).__name__
        raise TraceError(f"{path}: not {what} that commsim saved ({reason}).") from None


def column(arrays: Arrays, name: str, dtype: Any, length: int = -1) -> npt.NDArray[Any]:
    """Return the one-dimensional array `name`. Raises ValueError unless it is one as stated."""
    values = arrays.get(name)
    if not isinstance(values, np.ndarray) or values.ndim != 1 or values.dtype != dtype:
        raise ValueError(f"{name!r} is not a column of {np.dtype(dtype).name}")
    if length not in (-1, len(values)):
        raise ValueError(f"{name!r} has {len(values)} entries instead of {length}")
    return values


def indices(arrays: Arrays, name: str, limit: int, *, least: int = 0, length: int = -1) -> Any:
    """Return the int64 column `name`, every entry of it from `least` to below `limit`."""
    values = column(arrays, name, np.int64, length)
    if values.size and (values.min() < least or values.max() >= limit):
        raise ValueError(f"{name!r} has an entry outside {least}..{limit - 1}")
    return values


def columns_of(part: Any, prefix: str) -> Arrays:
    """Return the fields of the dataclass `part` that are arrays, by prefixed name."""
    values = ((field, getattr(part, field)) for field in part.__struct_fields__)
    return {prefix + name: value for name, value in values if isinstance(value, np.ndarray)}
