"""
The mode under which a program is captured: it sees every op before it runs on fake tensors.
"""

# mypy: allow-subclassing-any, allow-untyped-calls, allow-untyped-decorators

from __future__ import annotations

import sys
import weakref
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode

from commsim.graph import Phase
from commsim.traces.capture.calls import is_communication, record_communication
from commsim.traces.capture.costs import cost_of, is_free, tensors
from commsim.traces.capture.launches import launches_of
from commsim.traces.capture.recorder import current_stream, in_backward, recorder
from commsim.traces.capture.records import CapturedWork, Sync

__all__ = ["Capturing", "track_storage", "value_of"]


class Capturing(TorchDispatchMode):
    """Records each op that reaches torch's dispatcher; lies above the mode of fake tensors."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented  # so that what it runs on the rank's own shard is seen
        kwargs = kwargs or {}
        if torch._C._get_dispatch_mode(_FAKE) is None:
            return func(*args, **kwargs)  # torch computes something real: the ranks of a mesh
        namespace, name = func._schema.name.split("::")
        if name == "_local_scalar_dense":
            return value_of(args[0])
        if is_communication(namespace):
            return record_communication(func, namespace, name, args, kwargs)
        out = func(*args, **kwargs)
        if name == "randint":
            _draw(func, out, args, kwargs)
        if recorder.on:
            _track(out)
            if not is_free(namespace, name):
                _record(func, f"{namespace}::{name}", name, args, kwargs, out)
        return out


def _draw(func: Any, out: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Let few random integers be known, all the same: what is cut from `i` to `i + n` has length n.

    They are 1, as every other number that is asked for, or the nearest that could be drawn.
    """
    given = dict(zip((a.name for a in func._schema.arguments), args, strict=False)) | kwargs
    if not isinstance(out, FakeTensor) or not 0 < out.numel() <= _FEW:
        return
    drawn = min(max(1, given.get("low", 0)), given["high"] - 1)
    with unset_fake_temporarily():
        out.constant = torch.full(out.shape, drawn, dtype=out.dtype)
    out.fake_mode.fake_tensor_converter.add_constant_storage_mapping(out)


def _record(
    func: Any, full: str, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any
) -> None:
    flops, traffic, product = cost_of(func, name, args, kwargs, out)
    if not flops and not traffic:
        return
    # Gradients are computed with grad mode off: what runs with it on computes activations again.
    again = in_backward() and torch.is_grad_enabled() and recorder.phase != Phase.OPTIMIZER
    recorder.add(
        CapturedWork(
            full.removeprefix("aten::"),
            current_stream().number,
            flops,
            traffic,
            product,
            again=again,
            launches=launches_of(name, args, out),
            **recorder.tags,
        )
    )


def _track(out: Any) -> None:
    for tensor in tensors(out):
        track_storage(tensor)


def track_storage(tensor: Tensor) -> None:
    """Count the memory of a tensor from now on until it is freed, once per storage."""
    storage = tensor.untyped_storage()
    key = id(storage)
    if key in _alive:
        return
    size = storage.nbytes()
    _alive[key] = size
    recorder.allocated(size)
    weakref.finalize(storage, _gone, key)


def resized(storage: Any, size: int) -> None:
    """Count a storage that was given another size (FSDP frees and takes its memory so)."""
    key = id(storage)
    if key not in _alive:
        return
    change = size - _alive[key]
    _alive[key] = size
    if change > 0:
        recorder.allocated(change)
    else:
        recorder.freed(-change)


def _gone(key: int) -> None:
    recorder.freed(_alive.pop(key, 0))


_FEW = 2**12
_CALLERS = 8  # frames between a library's question and the op that answers it
_FAKE = torch._C._TorchDispatchModeKey.FAKE
_alive: dict[int, int] = {}
_STANDS_FOR = {bool: False, int: 1, float: 1.0, complex: 1 + 0j}


def value_of(tensor: Tensor) -> Any:
    """Return a number that the program made itself, or one in place of what a GPU would tell.

    Fake tensors keep a number through arithmetic with others (`constant`) until something unknown
    is written to them.
    """
    if (constant := getattr(tensor, "constant", None)) is not None:
        with unset_fake_temporarily():
            return constant.item()
    kind: type = (
        bool
        if tensor.dtype == torch.bool
        else complex
        if tensor.dtype.is_complex
        else float
        if tensor.dtype.is_floating_point
        else int
    )
    value = kind(0) if _overflow_is_asked_for() else _STANDS_FOR[kind]
    if recorder.phase != Phase.OPTIMIZER:
        recorder.add(Sync(current_stream().number))
        recorder.note(
            f"{_asked_by()}: the value of a tensor was asked for; it was told {value},"
            " and the program waits there for the GPU."
        )
    return value


def _overflow_is_asked_for() -> bool:
    """Say whether a library asks if gradients overflowed: a step that did would be skipped."""
    frame: Any = sys._getframe(1)
    for _ in range(_CALLERS):
        if frame is None:
            return False
        if "overflow" in frame.f_code.co_name.lower():
            return True
        frame = frame.f_back
    return False


def _asked_by() -> str:
    """Return file and line of the program's own code that is running."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module == "__main__":
            return f"{frame.f_code.co_filename.rpartition('/')[2]}:{frame.f_lineno}"
        frame = frame.f_back
    return "the program"
