"""
Recordings of real runs that come with commsim: a name stands for their files.

A checkout keeps them in examples/ next to the package; a wheel carries them inside it.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import msgspec

from commsim.errors import TraceError, did_you_mean

__all__ = ["EXAMPLES", "Example", "example_path"]


class Example(msgspec.Struct, frozen=True):
    """A recording: its name, what ran, its place below the folder, a command that uses it."""

    name: str
    summary: str
    place: str
    command: str


EXAMPLES = (
    Example(
        "example-dlrm",
        "DLRM on 8 V100 by NCCL: one profiled step of all ranks, with Execution Traces",
        "dlrm",
        "commsim replay example-dlrm --report dlrm.html",
    ),
    Example(
        "example-fsdp",
        "a small model under FSDP2 on 4 ranks by Gloo: one profiled step",
        "fsdp",
        "commsim replay example-fsdp --report fsdp.html",
    ),
    Example(
        "example-nccl-tests",
        "what all_reduce_perf printed on 8 A100",
        "nccl-tests/all_reduce.log",
        "commsim compare example-nccl-tests dgx-a100",
    ),
)
_PREFIX = "example-"


def example_path(name: str | Path) -> Path:
    """Return the files of an example by its name; any other path as it is.

    Raises:
        TraceError: a name of an example that does not exist.
    """
    word = str(name)
    if not word.startswith(_PREFIX) or Path(word).exists():
        return Path(name)
    known = {example.name: example.place for example in EXAMPLES}
    if word not in known:
        raise TraceError(
            f"{word!r} is no example.{did_you_mean(word, known)} `commsim examples` lists them."
        )
    packaged = Path(str(files("commsim"))) / "_examples"
    folder = packaged if packaged.is_dir() else packaged.parents[1] / "examples"
    return folder / known[word]
