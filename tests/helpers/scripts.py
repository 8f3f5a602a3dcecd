"""Python programs run in this process as if started by themselves: imports are paid for once."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from runpy import run_path
from unittest.mock import patch

from commsim.collectives.catalogue import ALGORITHMS
from commsim.libraries.section import LIBRARIES
from commsim.traces.formats.detect import FORMATS
from commsim.workload.schedules.catalogue import SCHEDULES

__all__ = ["Ran", "registries_kept", "run_script"]


@dataclass(frozen=True)
class Ran:
    """What a program printed, and its exit status. An exception of its own goes through."""

    status: int
    out: str
    err: str


@contextmanager
def registries_kept() -> Iterator[None]:
    """Forget what is registered meanwhile."""
    with ExitStack() as stack:
        for registry in (ALGORITHMS, FORMATS, LIBRARIES, SCHEDULES):
            stack.enter_context(patch.object(registry, "_records", dict(registry._records)))
        yield


def run_script(script: Path, *words: str) -> Ran:
    """Run a script with arguments; modules beside it can be imported."""
    out, err = StringIO(), StringIO()
    with (
        patch.object(sys, "argv", [str(script), *words]),
        patch.object(sys, "path", [str(script.parent), *sys.path]),
        redirect_stdout(out),
        redirect_stderr(err),
        registries_kept(),
    ):
        status = 0
        try:
            run_path(str(script), run_name="__main__")
        except SystemExit as end:
            if isinstance(end.code, str):
                print(end.code, file=err)
            status = end.code if isinstance(end.code, int) else int(end.code is not None)
    return Ran(status, out.getvalue(), err.getvalue())
