"""
The state of a run for compiled code: one pointer, where a tuple of arrays would be 200 arguments.

Compiled functions call each other all the time, and numba hands on each array of a tuple in seven
words. `ByPointer` is the address of a list of where each table is and how long; to the compiler
its attributes are those tables. It has to outlive the call, as it holds the tables.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core.typing.templates import AttributeTemplate
from numba.extending import (
    NativeValue,
    infer_getattr,
    lower_getattr_generic,
    models,
    register_model,
    typeof_impl,
    unbox,
)
from numba.np import numpy_support
from numba.np.arrayobj import populate_array

from commsim.engine.columns.state import State, dtype_of

__all__ = ["ByPointer"]

_WORD = ir.IntType(64)


class ByPointer:
    """A state, and where its tables are."""

    def __init__(self, state: State) -> None:
        self.state = state
        places = [(one.ctypes.data, len(one)) for one in state]
        self._places = np.array(places, np.int64)
        self.address = int(self._places.ctypes.data)


class _StateType(types.Type):
    def __init__(self) -> None:
        super().__init__(name="commsim.engine.columns.State")


_STATE = _StateType()


def _array_type(name: str) -> Any:
    return types.Array(numpy_support.from_dtype(dtype_of(name)), 1, "C")


@typeof_impl.register(ByPointer)
def _type_of(_value: ByPointer, _context: Any) -> _StateType:
    return _STATE


@register_model(_StateType)
class _StateModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, _WORD)


@unbox(_StateType)
def _unbox(_kind: Any, value: Any, context: Any) -> Any:
    number = context.pyapi.object_getattr_string(value, "address")
    address = context.pyapi.long_as_longlong(number)
    context.pyapi.decref(number)
    return NativeValue(address)


@infer_getattr
class _Tables(AttributeTemplate):
    key = _StateType

    def generic_resolve(self, _kind: Any, name: str) -> Any:
        return _array_type(name) if name in State._fields else None


@lower_getattr_generic(_StateType)
def _table(context: Any, builder: Any, _kind: Any, address: Any, name: str) -> Any:
    kind = _array_type(name)
    array = context.make_array(kind)(context, builder)
    places = builder.inttoptr(address, ir.PointerType(_WORD))
    at = 2 * State._fields.index(name)
    data = builder.load(builder.gep(places, [ir.Constant(_WORD, at)]))
    length = builder.load(builder.gep(places, [ir.Constant(_WORD, at + 1)]))
    size = context.get_constant(types.intp, dtype_of(name).itemsize)
    populate_array(array, builder.inttoptr(data, array.data.type), [length], [size], size, None)
    return array._getvalue()
