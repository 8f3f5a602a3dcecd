"""
Communication hooks of DistributedDataParallel for a capture: what they send is what they make.

A hook gets a bucket and returns a future. Futures of torch need real work behind them, so that a
hook's own all-reduces return stand-ins, whose callbacks run when the bucket is waited for.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

__all__ = ["GradBucket", "run_hook"]


class GradBucket:
    """What a hook asks of a bucket, under the names of `torch.distributed.GradBucket`."""

    def __init__(self, bucket: Any, number: int, count: int) -> None:
        self._bucket, self._number, self._count = bucket, number, count

    def buffer(self) -> Tensor:
        """Return the gradients as one tensor."""
        buffer: Tensor = self._bucket.buffer
        return buffer

    def set_buffer(self, buffer: Tensor) -> None:
        """Replace the gradients."""
        self._bucket.buffer.copy_(buffer)

    def gradients(self) -> list[Tensor]:
        """Return the gradients one by one."""
        return list(self._bucket.views)

    def parameters(self) -> list[Tensor]:
        """Return the parameters that the gradients are of."""
        return list(self._bucket.params)

    def index(self) -> int:
        """Return the number of the bucket."""
        return self._number

    def is_last(self) -> bool:
        """Say whether no bucket follows."""
        return self._number == self._count - 1


class _Reduced:
    """An async call that a hook made: its work, and the future of its tensor."""

    def __init__(self, work: Any, tensor: Tensor) -> None:
        self._work, self._tensor = work, tensor
        self._then: list[Callable[[Any], Any]] = []
        self._result: Any = None
        self._waited = False

    def get_future(self) -> _Reduced:
        """Return itself: it is both."""
        return self

    def then(self, callback: Callable[[Any], Any]) -> _Reduced:
        """Call `callback` with this future once it is done."""
        self._then.append(callback)
        return self

    def value(self) -> list[Tensor]:
        """Return the tensor, as the future of a collective does."""
        return [self._tensor]

    def wait(self, *how: Any) -> Any:
        """Wait for the call, then run what was to follow; return what that gave."""
        if not self._waited:
            self._waited = True
            self._work.wait()
            self._result = self._tensor
            for callback in self._then:
                self._result = callback(self)
        return self._result


class _Finished:
    """A future that was there at once (of a hook that sends nothing now)."""

    def __init__(self, result: Any) -> None:
        self._result = result

    def wait(self, *how: Any) -> Any:
        return self._result


def run_hook(hook: Any, state: Any, bucket: GradBucket) -> Any:
    """Call a hook; return what to wait for."""
    kept = {name: getattr(dist, name) for name in _CALLS}
    for name, call in kept.items():
        setattr(dist, name, _followed(call))
    try:
        found = hook(state, bucket)
    finally:
        for name, call in kept.items():
            setattr(dist, name, call)
    if isinstance(found, _Reduced):
        return found
    return _Finished(found.value() if isinstance(found, torch.futures.Future) else found)


_CALLS = ("all_reduce", "broadcast", "reduce")


def _followed(call: Callable[..., Any]) -> Callable[..., Any]:
    """Let an async call return what a hook can chain on."""

    def followed(tensor: Tensor, *how: Any, **more: Any) -> Any:
        work = call(tensor, *how, **more)
        return work if work is None else _Reduced(work, tensor)

    return followed
