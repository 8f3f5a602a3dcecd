"""
The one device of a capture: "cuda" means it wherever torch is told a device.

It is the CPU, under fake tensors: nothing is computed there. `torch.compile` leaves modules as
they are.
"""

# mypy: allow-subclassing-any, allow-untyped-calls

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from commsim.traces.capture.recorder import recorder

__all__ = [
    "GeneratorAnywhere",
    "OnOneDevice",
    "modules_on_one_device",
    "on_one_device_in_backwards",
]


class GeneratorAnywhere(torch.Generator):
    """A generator of random numbers on whatever device is asked for, which are never looked at."""

    def __new__(cls, device: Any = None) -> Any:
        return super().__new__(cls, device="cpu")


class OnOneDevice(TorchFunctionMode):
    """Takes "cuda" for the device that stands in for it, wherever torch is told a device."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is torch.device:
            named = (*args[:1], *kwargs.values())
            there = any(_is_cuda(value) or _is_number(value) for value in named)
            return _here if there else func(*args, **kwargs)
        if func is torch.Tensor.cuda:
            return args[0].to("cpu")
        if func is torch.Tensor.to and len(args) > 1 and _is_number(args[1]):
            args = (args[0], _here, *args[2:])
        if func is torch.Tensor.pin_memory:
            return args[0]
        if any(map(_is_cuda, args)):
            args = tuple(_here if _is_cuda(arg) else arg for arg in args)
        if _is_cuda(kwargs.get("device")) or _is_number(kwargs.get("device")):
            kwargs = kwargs | {"device": _here}
        if kwargs.get("pin_memory"):
            kwargs = kwargs | {"pin_memory": False}
        return func(*args, **kwargs)


def on_one_device_in_backwards() -> None:
    """Let hooks and functions of a backward find the device too: torch takes its mode off there."""
    from torch import autograd

    run = autograd.graph._engine_run_backward

    def on_one_device(*args: Any, **kwargs: Any) -> Any:
        with OnOneDevice():
            return run(*args, **kwargs)

    autograd._engine_run_backward = autograd.graph._engine_run_backward = on_one_device


_here = torch.device("cpu")


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_cuda(value: Any) -> bool:
    if isinstance(value, torch.device):
        return bool(value.type == "cuda")
    return isinstance(value, str) and value.partition(":")[0] == "cuda"


def modules_on_one_device() -> None:
    """Let modules move to the device that stands in, and run as they are written."""
    parse = torch._C._nn._parse_to

    def parse_to(*args: Any, **kwargs: Any) -> Any:
        where = [_here if _is_cuda(one) or _is_number(one) else one for one in args]
        if "device" in kwargs:
            kwargs["device"] = _here
        return parse(*where, **kwargs)

    def compiled(model: Any = None, *how: Any, **more: Any) -> Any:
        recorder.note("torch.compile: the program was captured as eager mode runs it, unfused.")
        return (lambda function: function) if model is None else model

    torch._C._nn._parse_to = parse_to
    torch.compile = compiled
    torch.nn.Module.compile = lambda self, *how, **more: compiled(self)
    torch.nn.Module.cuda = lambda self, device=None: self.to("cpu")
