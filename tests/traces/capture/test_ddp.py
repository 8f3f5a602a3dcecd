"""torch's DDP as captures stand in for it: what a script leaves out is what torch leaves out."""

from __future__ import annotations

import inspect

import pytest

torch = pytest.importorskip("torch")


def test_defaults_of_ddp_are_torchs() -> None:
    from commsim.traces.capture.ddp import DistributedDataParallel as Ours

    theirs = inspect.signature(torch.nn.parallel.DistributedDataParallel.__init__).parameters
    for name, parameter in inspect.signature(Ours.__init__).parameters.items():
        if name in theirs and parameter.default is not parameter.empty:
            default = theirs[name].default
            if name == "broadcast_buffers" and default is None:
                default = True  # as newer torch reads what is left out
            assert parameter.default == default, name
