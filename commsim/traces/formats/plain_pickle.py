"""
Pickles that hold plain values only: dict, list, tuple, str, bytes, int, float, bool, None.

A pickle is a program that may import and call anything. Every opcode is looked at before the
first one runs: one that imports, calls, or builds an object is refused, and so is a number that
would make the reader reserve more memory than the file has bytes.
"""

from __future__ import annotations

import io
import pickle
import pickletools
from typing import Any, NoReturn

from commsim.errors import TraceError
from commsim.traces.formats.files import Data

__all__ = ["looks_pickled", "plain_values"]

_PROTO, _STOP = b"\x80", b"."
_ALLOWED = frozenset({
    "PROTO", "FRAME", "STOP", "MARK", "POP", "POP_MARK", "DUP", "MEMOIZE", "PUT", "BINPUT",
    "LONG_BINPUT", "GET", "BINGET", "LONG_BINGET", "NONE", "NEWTRUE", "NEWFALSE", "INT", "BININT",
    "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT", "STRING", "BINSTRING",
    "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "UNICODE", "BINUNICODE",
    "SHORT_BINUNICODE", "BINUNICODE8", "EMPTY_LIST", "LIST", "APPEND", "APPENDS", "EMPTY_TUPLE",
    "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "EMPTY_DICT", "DICT", "SETITEM", "SETITEMS",
})  # fmt: skip
_MEMO = ("PUT", "BINPUT", "LONG_BINPUT")


class _Plain(pickle.Unpickler):
    """An unpickler that can import nothing."""

    def find_class(self, module_name: str, global_name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"it imports {module_name}.{global_name}")

    def persistent_load(self, pid: Any) -> NoReturn:
        raise pickle.UnpicklingError("it refers to an object outside of it")


def looks_pickled(data: Data) -> bool:
    """Say whether bytes begin as a pickle of protocol 2 to 5 does."""
    return data[:1] == _PROTO and data[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05")


def plain_values(data: Data, name: str) -> Any:
    """Return what a pickle holds.

    Raises:
        TraceError: it holds more than plain values, or is broken. Nothing of it is run.
    """
    try:
        _check(data)
        return _Plain(io.BytesIO(data)).load()
    except pickle.UnpicklingError as error:
        raise TraceError(
            f"{name}: refused, {error}. A flight recorder's pickle holds only plain values."
        ) from None
    except Exception as error:
        raise TraceError(f"{name}: a broken pickle ({error}).") from None


def _check(data: Data) -> None:
    for opcode, argument, _ in pickletools.genops(data):
        if opcode.name not in _ALLOWED:
            what = f" {str(argument)[:80]!r}" if isinstance(argument, str) else ""
            raise pickle.UnpicklingError(f"it does more than hold values ({opcode.name}{what})")
        if opcode.name in _MEMO and not 0 <= int(str(argument)) <= len(data):
            raise pickle.UnpicklingError(f"it asks for {argument} slots")
