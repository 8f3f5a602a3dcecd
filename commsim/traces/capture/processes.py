"""
Capture a program: one process per distinct role, found from who sends messages to whom.

Rank 0 is captured first. Whoever shares a group with it that messages are sent in does something
else (another pipeline stage), so those are captured too, and so on; all other ranks are taken to do
as the captured rank at their place. The last rank is captured as a check of that.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path

import msgspec

from commsim.errors import ScenarioError, TraceError
from commsim.graph import Graph
from commsim.traces.capture.assemble import assemble, roles_of
from commsim.traces.capture.axes import FoundAxes, message_axes
from commsim.traces.capture.equivalence import difference
from commsim.traces.capture.progress import wait_and_tell
from commsim.traces.capture.records import Recording, load_recording, reason_file

__all__ = ["capture", "record_ranks"]

_AT_ONCE = 2
_MOST_ROLES = 128


def capture(
    script: str | Path,
    *,
    world_size: int,
    ranks: Sequence[int] = (),
    arguments: Sequence[str] = (),
    gpus_per_node: int = 8,
    step: int = 2,
    say: Callable[[str], None] = lambda text: None,
) -> Graph:
    """Return the workload graph of one training step of `script` on `world_size` ranks.

    `ranks` are those with parts of their own; by default they are found. `step` counts the calls
    of the optimizer: the step up to its second call is steady, the first one is not.

    Raises:
        ScenarioError: no script, or ranks outside the world.
        TraceError: torch is missing, the script fails, or ranks taken as equivalent differ.
    """
    path = Path(script)
    _check(path, world_size, ranks, step)
    with tempfile.TemporaryDirectory(prefix="commsim-capture-") as folder:
        record = _recorder(path, world_size, tuple(arguments), gpus_per_node, step, say, folder)
        found = record(dict.fromkeys(ranks)) if ranks else _all_roles(record, world_size, say)
    if world_size > len(found):
        say(f"putting {world_size} ranks together from {len(found)} of them")
    graph = assemble(found, script=path.name)
    if not len(graph):
        raise TraceError(f"{path.name}: ran to its end without any work or communication.")
    return graph


def _check(path: Path, world: int, ranks: Sequence[int], step: int) -> None:
    if not path.is_file():
        raise ScenarioError(f"{path}: there is no such script.")
    if world < 1:
        raise ScenarioError(f"--world-size {world}: give the number of ranks, 1 or more.")
    if step < 1:
        raise ScenarioError(f"--step {step}: give which step to record, from 1.")
    if find_spec("torch") is None:
        raise TraceError("capture runs the script with PyTorch: pip install 'commsim[torch]'.")
    outside = [rank for rank in ranks if not 0 <= rank < world]
    if outside:
        raise ScenarioError(f"--ranks: {outside[0]} is not one of the ranks 0 to {world - 1}.")


Record = Callable[[Iterable[int]], dict[int, Recording]]


def _all_roles(record: Record, world: int, say: Callable[[str], None]) -> dict[int, Recording]:
    """Capture rank 0, whom it exchanges messages with, and so on; check the last rank."""
    found = record([0])
    while True:
        wanted = _neighbours(found)
        if len(wanted) > _MOST_ROLES:
            raise TraceError(
                f"{len(wanted)} ranks exchange messages in groups of their own: too many to"
                " capture each. Name those that differ with --ranks."
            )
        missing = [rank for rank in wanted if rank not in found]
        if not missing:
            break
        found |= record(missing)
    last = world - 1
    if last not in found:
        first = found[0]
        axes = FoundAxes.of(first.groups, world)
        twin = int(roles_of(found, axes)[last])
        what = difference(found[twin], record([last])[last], axes)
        if what:
            raise TraceError(
                f"ranks {twin} and {last} were taken to be equivalent, and are not: {what}\n"
                f"Name the ranks with parts of their own, like --ranks {twin},{last}: every other"
                " rank then does as the nearest of them below it."
            )
        say(f"rank {last} does the same as rank {twin}, as it should.")
    return found


def _neighbours(found: dict[int, Recording]) -> list[int]:
    """Return all ranks in the groups in which captured ranks exchange messages."""
    wanted: dict[int, None] = {}
    for rank, recording in found.items():
        axes = FoundAxes.of(recording.groups, recording.world)
        for name in message_axes(recording, axes):
            wanted.update(dict.fromkeys(axes.row(name, rank)))
    return sorted(wanted)


def _recorder(
    path: Path,
    world: int,
    arguments: tuple[str, ...],
    per_node: int,
    step: int,
    say: Callable[[str], None],
    folder: str,
) -> Record:
    def record(ranks: Iterable[int]) -> dict[int, Recording]:
        return record_ranks(
            path,
            tuple(ranks),
            world=world,
            arguments=arguments,
            per_node=per_node,
            step=step,
            say=say,
            folder=folder,
        )

    return record


def record_ranks(
    script: Path,
    ranks: Sequence[int],
    *,
    world: int,
    arguments: tuple[str, ...] = (),
    per_node: int = 8,
    step: int = 2,
    say: Callable[[str], None] = lambda text: None,
    folder: str | Path = "",
) -> dict[int, Recording]:
    """Capture some ranks of a script, two at a time, each in a process of its own.

    In `folder` (or one of their own) they find what ranks captured before left there.

    Raises:
        TraceError: a process fails; with its reason.
    """
    if not folder:
        with tempfile.TemporaryDirectory(prefix="commsim-capture-") as own:
            return record_ranks(
                script,
                ranks,
                world=world,
                arguments=arguments,
                per_node=per_node,
                step=step,
                say=say,
                folder=own,
            )
    found: dict[int, Recording] = {}
    waiting, running = list(ranks), list[tuple[int, subprocess.Popen[bytes]]]()
    try:
        while waiting or running:
            while waiting and len(running) < _AT_ONCE:
                rank = waiting.pop(0)
                say(f"capturing rank {rank} of {world}")
                job = (script, arguments, rank, world, per_node, step)
                running.append((rank, _start(Path(folder), *job)))
            rank, process = running.pop(0)
            output = str(Path(folder) / f"{rank}.json")
            _check_end(rank, wait_and_tell(process, rank, output, say), Path(folder))
            found[rank] = load_recording(Path(folder) / f"{rank}.json")
    finally:
        for _, process in running:
            process.kill()
    return found


def _start(
    folder: Path,
    script: Path,
    arguments: tuple[str, ...],
    rank: int,
    world: int,
    per_node: int,
    step: int,
) -> subprocess.Popen[bytes]:
    job = folder / f"{rank}.job.json"
    job.write_bytes(
        msgspec.json.encode(
            {
                "script": str(script),
                "arguments": arguments,
                "rank": rank,
                "world": world,
                "per_node": min(per_node, world),  # as torchrun says of a node that is not full
                "step": step,
                "output": str(folder / f"{rank}.json"),
            }
        )
    )
    return _worker(job, folder / f"{rank}.log")


def _worker(job: Path, log: Path) -> subprocess.Popen[bytes]:
    with open(log, "wb") as words:
        return subprocess.Popen(
            [sys.executable, "-m", "commsim.traces.capture.worker", str(job)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=words,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )


def _check_end(rank: int, code: int, folder: Path) -> None:
    """Raise what stopped a capture: the script's own words, else how its process ended."""
    if code == 0:
        return
    told = reason_file(str(folder / f"{rank}.json"))
    if told.exists():
        raise TraceError(f"rank {rank}: {told.read_text(encoding='utf-8')}")
    logged = (folder / f"{rank}.log").read_text(errors="replace").strip().splitlines()
    last = f": {logged[-1][:300]}" if logged else "."
    raise TraceError(f"rank {rank}: its process ended {_ended(code)}{last}")


def _ended(code: int) -> str:
    """Say how a process ended by its code: negative ones are signals."""
    if code >= 0:
        return f"with code {code}"
    names = {int(each): each.name for each in signal.Signals}
    hint = ", maybe for want of memory" if code == -signal.SIGKILL else ""
    return f"by {names.get(-code, f'signal {-code}')}{hint}"
