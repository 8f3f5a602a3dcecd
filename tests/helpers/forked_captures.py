"""Captured processes as forks of one that has torch: to import it is most of a small one's cost."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path

__all__ = ["forking"]

_LOADED = (
    "pytest",  # what a child imports of the process that asks for it
    "commsim.traces.capture.stand_ins",
    "commsim.traces.capture.worker",
    "torch.distributed.checkpoint",
    "torch.distributed.fsdp",
    "torch.distributed.pipelining",
    "torch.distributed.tensor.parallel",
    "torch.utils.checkpoint",
)


class _Forked:
    """A forked capture, as what waits for it and ends it takes a process."""

    def __init__(self, process: BaseProcess) -> None:
        self.process = process

    def wait(self, timeout: float) -> int:
        self.process.join(timeout)
        code = self.process.exitcode
        if code is None:
            raise subprocess.TimeoutExpired("capture", timeout)
        self.process.close()
        return code

    def kill(self) -> None:
        self.process.kill()


def forking() -> Callable[[Path, Path], _Forked]:
    """Return what stands for a new interpreter that works on a job with its words in a log."""
    context = get_context("forkserver")
    context.set_forkserver_preload(list(_LOADED))

    def start(job: Path, log: Path) -> _Forked:
        process = context.Process(target=_work, args=(str(job), str(log)))
        process.start()
        return _Forked(process)

    return start


def _work(job: str, log: str) -> None:
    """Run a job's worker and end as it does, its words in `log`."""
    from commsim.traces.capture.worker import main

    nowhere = os.open(os.devnull, os.O_RDWR)
    written = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream, file in enumerate((nowhere, nowhere, written)):
        os.dup2(file, stream)
    os._exit(main(job))
