"""
Arguments of calls from Python, held against the signature: a wrong type is one sentence.

`checked` wraps what `import commsim` offers; calls between rooms are not looked at.
"""

from __future__ import annotations

import inspect
import math
import os
import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from itertools import islice
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from commsim.errors import ScenarioError

__all__ = ["checked"]

_MOST = 1_000_000  # of what is given one by one: a generator may have no end
_NAMED = {NoneType: "None", bool: "True or False", int: "a whole number", float: "a number"}
_NAMED |= {str: "text", Path: "a path"}

_Called = TypeVar("_Called", bound=Callable[..., Any])


class _WrongTypeError(Exception):
    """A value is not of the kind that was asked for."""


def checked(function: _Called) -> _Called:
    """Return a function that raises ScenarioError where an argument is not as its signature says.

    Numbers of numpy become Python's, what is given one by one becomes a tuple, and a nan is no
    number.
    """
    signature = inspect.signature(function)
    kinds: dict[str, Any] = {}

    @wraps(function)
    def call(*args: Any, **named: Any) -> Any:
        given = signature.bind(*args, **named)
        if not kinds:
            kinds.update(get_type_hints(function))
        for name, value in given.arguments.items():
            kind = kinds.get(name, Any)
            form = signature.parameters[name].kind
            try:
                if form is inspect.Parameter.VAR_POSITIONAL:
                    given.arguments[name] = tuple(_read(one, kind) for one in value)
                elif form is not inspect.Parameter.VAR_KEYWORD:
                    given.arguments[name] = _read(value, kind)
            except _WrongTypeError:
                nan = isinstance(value, float) and math.isnan(value)
                what = "is not a number" if nan else f"is of type {type(value).__name__}"
                raise ScenarioError(
                    f"{function.__name__}: {name}: {reprlib.repr(value)} {what}."
                    f" Give {_words(kind)}."
                ) from None
        return function(*given.args, **given.kwargs)

    call.__module__, call.__qualname__ = "commsim", function.__name__  # by which it is pickled
    return cast(_Called, call)


def _read(value: Any, kind: Any) -> Any:
    """Return a value as a kind of a signature; raises _WrongTypeError."""
    if hasattr(value, "dtype") and getattr(value, "ndim", None) == 0:
        value = value.item()
    origin, inner = get_origin(kind) or kind, get_args(kind)
    if origin in (Union, UnionType):
        return _first(value, inner)
    if origin in (Iterable, Sequence):
        return _several(value, inner[0])
    if origin is Mapping and isinstance(value, Mapping):
        return {_read(key, inner[0]): _read(one, inner[1]) for key, one in value.items()}
    if origin is tuple and isinstance(value, tuple | list) and len(value) == len(inner):
        return tuple(_read(one, each) for one, each in zip(value, inner, strict=True))
    if origin is Path and isinstance(value, os.PathLike) and isinstance(os.fspath(value), str):
        return Path(value)
    if _is_a(value, origin, inner):
        return value
    raise _WrongTypeError


def _first(value: Any, kinds: Sequence[Any]) -> Any:
    """Return a value as one of some kinds; text is text where that is one of them."""
    if isinstance(value, str) and str in kinds:
        return value
    for kind in kinds:
        try:
            return _read(value, kind)
        except _WrongTypeError:
            continue
    raise _WrongTypeError


def _several(value: Any, kind: Any) -> tuple[Any, ...]:
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise _WrongTypeError
    try:
        found = tuple(_read(one, kind) for one in islice(value, _MOST + 1))
    except TypeError:  # an array without a dimension says that it is iterable
        raise _WrongTypeError from None
    if len(found) > _MOST:
        raise _WrongTypeError
    return found


def _is_a(value: Any, kind: Any, inner: Sequence[Any]) -> bool:
    if kind is Any:
        return True
    if kind in (int, float):
        return _is_number(value, kind)
    if kind is Callable:
        return callable(value)
    if kind is type:
        return isinstance(value, type) and issubclass(value, inner[0])
    if getattr(kind, "_is_protocol", False):
        names = [name for name in (*vars(kind), *kind.__annotations__) if name[0] != "_"]
        return all(hasattr(value, name) for name in names) and (bool(names) or callable(value))
    return isinstance(value, kind)


def _is_number(value: Any, kind: type) -> bool:
    if isinstance(value, bool) or not isinstance(value, int if kind is int else int | float):
        return False
    try:
        return kind is int or not math.isnan(value)
    except OverflowError:  # a whole number beyond all floats
        return False


def _words(kind: Any) -> str:
    """Return what a value should be: "text, a path or None"."""
    origin, inner = get_origin(kind) or kind, get_args(kind)
    if origin in (Union, UnionType):
        *first, last = dict.fromkeys(map(_words, inner))
        return f"{', '.join(first)} or {last}" if first else last
    if origin in (Iterable, Sequence, tuple):
        return f"a list of ({_words(inner[0])})"
    if origin is Mapping:
        return "a mapping"
    if origin is Callable:
        return "a function"
    return _NAMED.get(origin) or f"a {getattr(origin, '__name__', origin)}"
