"""
Record small training programs that really run by Gloo, as data for tests.

    python benchmarks/record_gloo.py [-o tests/data/gloo_runs] [--only ddp-4,tp-2] [--repeats 6]

Needs torch. Every program of `gloo_programs` runs on processes of this machine. One step of each
run is kept, per rank: the Kineto trace (`rank0.json.gz`), the PyTorch Execution Trace
(`rank0.et.json.gz`; of some runs), the flight recorder's dump (`rank0.fr.json`; of `ddp-2` as the
pickle that torch writes by itself, `rank0.fr.pickle`), and what the program told
torch.distributed (`rank0.calls.json`), which was taken in a step of its own. A step begins with a
barrier. Of several repeats the one with the shortest steps stays: the others were held up by the
machine (ranks ask for the highest priority, which only root is given). Names of hosts, files and
processes are taken out; nothing else is changed.
`ddp-4-late` is `ddp-4` with 30 ms more on rank 2 at the start of the step. `random-SEED-WORLD` is
a program of `gloo_random`.
"""

from __future__ import annotations

import argparse
import faulthandler
import gzip
import json
import math
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from multiprocessing.connection import wait
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent
_PATIENCE = 120  # seconds until a rank counts as hung: it says where, and ends
_GRACE = 2.0


class Run(NamedTuple):
    """A program on so many processes; `late` = (rank, seconds) added to that rank's step.

    `pickled`: the flight recorder's dump is kept as a pickle instead of JSON.
    """

    program: str
    world: int
    late: tuple[int, float] = (0, 0.0)
    execution_trace: bool = False
    pickled: bool = False


RUNS = {
    "ddp-2": Run("ddp", 2, execution_trace=True, pickled=True),
    "ddp-4": Run("ddp", 4),
    "ddp-4-late": Run("ddp", 4, late=(2, 0.030)),
    "ddp-join-2": Run("ddp-join", 2),
    "ddp-real-2": Run("ddp-real", 2),
    "fsdp2-2": Run("fsdp2", 2),
    "fsdp2-4": Run("fsdp2", 4),
    "tp-2": Run("tp", 2),
    "fsdp2-tp-4": Run("fsdp2-tp", 4),
    "gpipe-2": Run("gpipe", 2),
    "1f1b-2": Run("1f1b", 2),
    "1f1b-4": Run("1f1b", 4),
    "1f1b-4-late": Run("1f1b", 4, late=(1, 0.030)),
    "interleaved-2": Run("interleaved", 2),
    "p2p-2": Run("p2p", 2, execution_trace=True),
    "p2p-4": Run("p2p", 4),
}


def run_of(name: str) -> Run:
    """Return the run of a name; random programs are known by theirs."""
    if name.startswith("random-"):
        return Run(name, int(name.split("-")[2]))
    return RUNS[name]


def main() -> None:
    """Record what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("-o", "--output", type=Path, default=HERE.parent / "tests/data/gloo_runs")
    parser.add_argument("--only", help="names of runs, with commas between")
    parser.add_argument("--repeats", type=int, default=6)
    options = parser.parse_args()
    for name in options.only.split(",") if options.only else RUNS:
        best = min((record(name) for _ in range(options.repeats)), key=lambda found: found[0])
        if best[0] == math.inf:
            sys.exit(f"{name}: no repeat came to its end.")
        keep(best[1], options.output / name)
        size = sum(file.stat().st_size for file in (options.output / name).iterdir())
        print(
            f"{name}: longest and mean step {best[0] / 1e3:.1f} ms together, {size / 1000:.0f} kB"
        )


def record(name: str) -> tuple[float, Path]:
    """Run once; return the ranks' longest and mean step in us, added, and the recording."""
    folder = Path(tempfile.mkdtemp(prefix="gloo-"))
    run = run_of(name)
    if not ran(run.world, record_rank, run, folder):
        shutil.rmtree(folder)
        return math.inf, folder
    (folder / "store").unlink(missing_ok=True)
    traces = [file for file in folder.glob("rank*.json") if file.suffixes == [".json"]]
    steps = [last_step(file) for file in traces]
    return max(steps) + sum(steps) / len(steps), folder


def ran(world: int, be_rank: Callable[..., None], *arguments: object) -> bool:
    """Call be_rank(rank, *arguments) in a process per rank; say whether all ended well."""
    start = _starter()
    ranks = [
        start.Process(target=_be_rank, args=(be_rank, rank, *arguments)) for rank in range(world)
    ]
    for process in ranks:
        process.start()
    return ended(ranks)


@cache
def _starter() -> ForkServerContext:
    """Return what starts ranks, with torch imported once for all of them: that takes long."""
    os.environ.update(OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo", TORCH_FR_BUFFER_SIZE="2000")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["__main__", "torch.distributed.pipelining", "torch.profiler", "numpy"]
    )
    return context


def _be_rank(be_rank: Callable[..., None], *arguments: object) -> None:
    """Be one rank in a process of its own; say where it stands if that does not end."""
    import gloo_programs  # noqa: F401  (imports take long on a busy machine, and are no hang)

    with suppress(OSError):  # what else runs on this machine must not hold a rank up
        os.setpriority(os.PRIO_PROCESS, 0, -20)
    be_patient()
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115 (to the end of the process)
    be_rank(*arguments)
    faulthandler.cancel_dump_traceback_later()


def be_patient() -> None:
    """From now on this rank has so long for what it does next until it counts as hung."""
    faulthandler.dump_traceback_later(_PATIENCE, exit=True)


def ended(ranks: Sequence[BaseProcess]) -> bool:
    """Wait for all ranks, end them where one fails or hangs; say whether all ended well."""
    waiting = list(ranks)
    while waiting and not any(rank.exitcode for rank in ranks):
        wait([rank.sentinel for rank in waiting])
        waiting = [rank for rank in waiting if rank.is_alive()]
    time.sleep(_GRACE if waiting else 0)  # the others may have something to say as well
    for rank in ranks:
        rank.kill()
        rank.join()
    return not any(rank.exitcode for rank in ranks)


def last_step(file: Path) -> float:
    """Return the duration of a trace's last profiled step in us."""
    steps = [e for e in events_of(file) if str(e.get("name", "")).startswith("ProfilerStep")]
    return float(max(steps, key=lambda event: event["ts"])["dur"])


def events_of(file: Path) -> list[dict[str, Any]]:
    """Return the events of a trace, packed or not."""
    data = file.read_bytes()
    events: list[dict[str, Any]] = json.loads(
        gzip.decompress(data) if file.suffix == ".gz" else data
    )["traceEvents"]
    return events


def record_rank(rank: int, run: Run, folder: Path) -> None:
    """Be one rank: run the program, and write what was recorded of it."""
    import torch
    import torch.distributed as dist
    from gloo_calls import Calls
    from gloo_programs import PROGRAMS
    from gloo_random import program_of, step_of
    from torch._C._distributed_c10d import _dump_fr_trace, _dump_fr_trace_json

    join_ranks(rank, run.world, folder)
    if run.program.startswith("random-"):
        _, seed, world = run.program.split("-")
        step = step_of(program_of(int(seed), int(world)), rank)
    else:
        step = PROGRAMS[run.program]()
    observer = None
    if run.execution_trace:
        observer = torch.profiler.ExecutionTraceObserver()
        observer.register_callback(str(folder / f"rank{rank}.et.json"))
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU],
        schedule=torch.profiler.schedule(wait=0, warmup=3, active=1, repeat=1),
        record_shapes=True,
        execution_trace_observer=observer,
    ) as profiler:
        for number in range(4):
            dist.barrier()
            if number == 3 and rank == run.late[0]:
                time.sleep(run.late[1])
            step()
            if number == 3:
                if run.pickled:
                    dump = folder / f"rank{rank}.fr.pickle"
                    dump.write_bytes(_dump_fr_trace(includeStackTraces=False))
                else:
                    (folder / f"rank{rank}.fr.json").write_bytes(_dump_fr_trace_json())
            profiler.step()
    profiler.export_chrome_trace(str(folder / f"rank{rank}.json"))
    with Calls() as calls:
        dist.barrier()
        step()
    (folder / f"rank{rank}.calls.json").write_text(calls.to_json())
    dist.barrier()
    dist.destroy_process_group()


def before_all_others() -> None:
    """Ask for a processor whenever there is something to do, which only root is given.

    A fair scheduler lets others end their 4 ms first. Not for ranks that keep all processors busy.
    """
    with suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))


def join_ranks(rank: int, world: int, folder: Path) -> None:
    """Make the process group of all ranks, by a store in a folder."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    store = dist.FileStore(str(folder / "store"), world)
    dist.init_process_group("gloo", rank=rank, world_size=world, store=store)


def keep(found: Path, folder: Path) -> None:
    """Move a recording to where it stays, without what tells of the machine."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for file in sorted(found.iterdir()):
        if file.suffixes == [".json"] or file.name.endswith(".et.json"):
            trace = without_machine(json.loads(file.read_text()))
            pack(json.dumps(trace, separators=(",", ":")), folder / f"{file.name}.gz")
        else:
            shutil.copy(file, folder)
    shutil.rmtree(found)


def pack(text: str, file: Path) -> None:
    """Write a text packed, the same bytes whenever it is done."""
    file.write_bytes(gzip.compress(text.encode(), mtime=0))


def without_machine(trace: dict[str, Any]) -> dict[str, Any]:
    """Return a trace without names of files, hosts and processes of the machine."""
    for key in ("traceName", "host_name", "trace_id"):
        trace.pop(key, None)
    for event in trace.get("traceEvents", ()):
        arguments = event.get("args", {})
        if event.get("name") == "process_name" or "kernel_file" in arguments:
            arguments.pop("kernel_file", None)
            if "name" in arguments:
                arguments["name"] = "python"
    for node in trace.get("nodes", ()):
        node["attrs"] = [a for a in node.get("attrs", ()) if a.get("name") != "kernel_file"]
    return trace


if __name__ == "__main__":
    main()
