"""
Functions over columns, compiled by numba where it is installed (extra `fast`).

Such a function is plain Python: it indexes sequences and calls others of its kind. Run as it is
over lists it is the reference; compiled it takes arrays instead, and gives the same to the bit (no
reordering of sums, no fused operations). It is compiled when work has turned out to be large, once
per machine where numba may write its cache; without numba everything runs in the interpreter.
"""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any

__all__ = ["NOTE", "can_compile", "compiled"]

NOTE = "numba compiles an inner loop for this and later runs; that takes up to a minute."


@cache
def can_compile() -> bool:
    """Return whether numba is there and works."""
    if importlib.util.find_spec("numba") is None:
        return False
    try:
        import numba  # noqa: F401
    except Exception:  # numba that does not fit numpy says so in errors of many kinds
        return False
    return True


_made: dict[tuple[Callable[..., Any], ...], Any] = {}


def compiled(functions: tuple[Callable[..., Any], ...]) -> Callable[..., Any]:
    """Return the last of some functions compiled; those before it are what it calls.

    They stand in an order in which each calls only those before it. Says so where nothing compiled
    is kept from an earlier process, as it takes seconds then.
    """
    known = _made.get(functions)
    if known is not None:
        return known  # type: ignore[no-any-return]
    import numba

    made: dict[str, Any] = {}
    for function in functions:
        assert isinstance(function, FunctionType)
        copy = FunctionType(
            function.__code__,
            {**function.__globals__, **made},
            function.__name__,
            function.__defaults__,
        )
        copy.__module__, copy.__qualname__ = function.__module__, function.__qualname__
        if function is functions[-1]:
            copy.__qualname__ += f"_{_fingerprint(functions)}"
            made[function.__name__] = _kept_jitted(numba, copy)
        else:  # nothing but compiled code calls it: no way in from the interpreter is needed
            inner = numba.njit(no_cpython_wrapper=True, no_cfunc_wrapper=True)
            made[function.__name__] = inner(copy)
    last = made[functions[-1].__name__]
    if not _kept(last):
        import logging

        logging.getLogger("commsim").warning(NOTE)
    _made[functions] = last
    return last  # type: ignore[no-any-return]


def _fingerprint(functions: tuple[Callable[..., Any], ...]) -> str:
    """Return a name for the code of some functions: numba looks for changes in one file alone."""
    folders = dict.fromkeys(Path(function.__code__.co_filename).parent for function in functions)
    digest = hashlib.sha256()
    for folder in folders:
        for file in sorted(folder.glob("*.py")):
            digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


def _kept_jitted(numba: Any, function: Callable[..., Any]) -> Any:
    try:
        return numba.njit(cache=True)(function)
    except RuntimeError:  # no folder to write the cache to: compile in every process
        return numba.njit(function)


def _kept(dispatcher: Any) -> bool:
    """Return whether an earlier process has left this function compiled."""
    path, name = dispatcher.stats.cache_path, dispatcher.py_func.__qualname__
    index = f"*.{name}-*.py{sys.version_info[0]}{sys.version_info[1]}*"
    return path is not None and any(Path(path).glob(index))
