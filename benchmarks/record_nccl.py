"""
Record training scripts that really run by NCCL, several ranks on one GPU if there is no other.

    python benchmarks/record_nccl.py [-o nccl_runs] [--only ddp-2,fsdp2-4] [--mps] [--list]
    python benchmarks/record_nccl.py --keep nccl_runs -o tests/data/nccl_runs/mps --only ddp-2

Needs torch and an NVIDIA GPU. Runs the scripts of `scenarios/scripts` as `torchrun` would, and
keeps of each rank, in a folder of the run's name: the Kineto trace of a step with CUDA's
synchronisation events (`rank0.json`), the PyTorch Execution Trace of that step (`rank0.et.json`),
the flight recorder's dump (`rank0.fr.json`), what NCCL said (`rank0.nccl.log`), and how long steps
took without the profiler (`rank0.steps.json`).

NCCL refuses two ranks on one GPU, unless it takes them for ranks of two machines: each process is
given a host name of its own (`NCCL_HOSTID`), so that they talk by sockets over loopback. Contexts
take turns on the GPU; with `--mps` the ranks are clients of one MPS server and run side by side.
Weights that a script leaves undefined (`to_empty`) are drawn, so that products have data.

`--keep` packs recordings of such a folder as data for tests, without what tells of the machine and
without what commsim does not read: arrows, arguments of what does not communicate, nodes of the
Execution Trace other than calls and groups, lines of the log other than calls and communicators.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from record_gloo import pack, without_machine

HERE = Path(__file__).resolve().parent
SCRIPTS = HERE.parent / "scenarios/scripts"
WARM, TIMED = 2, 5
"""Steps before the clock runs, and while it runs; one more warms the profiler up, one is kept."""
_PATIENCE = 100.0


class Run(NamedTuple):
    """A script of `scenarios/scripts` with its arguments, on so many ranks."""

    script: str
    world: int
    arguments: str


RUNS = {
    "ddp-2": Run("ddp.py", 2, "--model tiny --length 1024"),
    "ddp-4": Run("ddp.py", 4, "--model tiny --length 1024"),
    "fsdp2-4": Run("fsdp2.py", 4, "--model tiny --length 1024"),
    "tp-pp-4": Run("fsdp2_tp_pp.py", 4, "--model tiny --tp 2 --pp 2 --length 512 --microbatches 4"),
    "tp-pp-8": Run("fsdp2_tp_pp.py", 8, "--model tiny --tp 2 --pp 2 --length 512 --microbatches 4"),
    "pp-2": Run("fsdp2_tp_pp.py", 2, "--model tiny --tp 1 --pp 2 --length 1024 --microbatches 4"),
    "ddp-1b-1": Run("ddp.py", 1, "--model 1b --length 2048 --batch 4"),
    "ddp-7b-1": Run("ddp.py", 1, "--model 7b --length 2048"),
    "fsdp2-1b-1": Run("fsdp2.py", 1, "--model 1b --length 4096 --batch 2"),
    "fsdp2-1b-1-recompute": Run("fsdp2.py", 1, "--model 1b --length 4096 --batch 2 --recompute"),
    "ddp-tiny-1": Run("ddp.py", 1, "--model tiny --length 1024"),
    "ddp-1b-2": Run("ddp.py", 2, "--model 1b --length 2048"),
    "fsdp2-1b-2": Run("fsdp2.py", 2, "--model 1b --length 2048"),
}


def main(words: Sequence[str] | None = None) -> None:
    """Record what is asked for, or be one rank of it."""
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("-o", "--output", type=Path, default=Path("nccl_runs"))
    parser.add_argument("--only", help="names of runs, with commas between")
    parser.add_argument("--mps", action="store_true", help="share the GPU by an MPS server")
    parser.add_argument("--list", action="store_true", help="say which runs there are")
    parser.add_argument("--keep", type=Path, help="pack recordings of this folder instead")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args(words)
    if options.rank is not None:
        be_rank(RUNS[options.only], options.rank, options.output)
        return
    names = options.only.split(",") if options.only else list(RUNS)
    if unknown := [name for name in names if name not in RUNS]:
        parser.error(f"no run {', '.join(unknown)}. There are {', '.join(RUNS)}.")
    for name in names:
        run = RUNS[name]
        if options.list:
            print(f"{name}: {run.world} x {run.script} {run.arguments}")
        elif options.keep:
            keep(options.keep / name, options.output / name)
        else:
            began = time.monotonic()
            told = record(name, options.output / name, mps=options.mps)
            print(f"{name}: {told}, {time.monotonic() - began:.0f} s", flush=True)


def record(name: str, folder: Path, *, mps: bool) -> str:
    """Run once, write what each rank leaves into `folder`, and say what came of it."""
    folder.mkdir(parents=True, exist_ok=True)
    ranks = [_start(name, rank, folder, mps=mps) for rank in range(RUNS[name].world)]
    ends = time.monotonic() + _PATIENCE
    while any(rank.poll() is None for rank in ranks) and time.monotonic() < ends:
        if any(rank.poll() for rank in ranks):
            ends = min(ends, time.monotonic() + 5)  # the others may have something to say as well
        time.sleep(0.1)
    hung = [number for number, rank in enumerate(ranks) if rank.poll() is None]
    for rank in ranks:
        rank.kill()
        rank.wait()
    failed = [number for number, rank in enumerate(ranks) if rank.returncode]
    (folder / "store").unlink(missing_ok=True)
    return f"ranks {failed} failed, {hung} of them hung" if failed else "recorded"


def keep(found: Path, folder: Path) -> None:
    """Pack what a recording holds that is read, without what tells of the machine."""
    if not found.is_dir():
        sys.exit(f"{found}: no recording.")
    if folder.resolve() == found.resolve():
        sys.exit(f"{found}: would be replaced by what is kept of it. Name another folder by -o.")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for file in sorted(found.iterdir()):
        if file.suffix == ".json":
            trace = without_machine(json.loads(file.read_text()))
            for event in trace.get("traceEvents", ()):
                event["args"] = _read_of(event)
            for key, needed in _NEEDED.items():
                if key in trace:
                    trace[key] = [item for item in trace[key] if needed(item)]
            pack(json.dumps(trace, separators=(",", ":")), folder / f"{file.name}.gz")
        elif file.name.endswith(".nccl.log"):
            lines = [line for line in file.read_text().splitlines() if _CALLS.search(line)]
            text = "".join(f"host:{line.partition(':')[2]}\n" for line in lines)
            pack(text, folder / f"{file.name}.gz")


_CALLS = re.compile("opCount|Init COMPLETE")
_SPEAKS = re.compile("record_param_comms|c10d::|nccl:")
_TIES = ("stream", "correlation", "device", "bytes")
_NEEDED: dict[str, Callable[[dict[str, Any]], bool]] = {
    "traceEvents": lambda event: event.get("ph") not in ("s", "f"),
    "nodes": lambda node: node["name"] in ("record_param_comms", "## process_group:init ##"),
}


def _read_of(event: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of an event that are read."""
    given: dict[str, Any] = event.get("args", {})
    whole = event.get("cat") in (None, "cuda_sync") or _SPEAKS.match(event["name"])
    return given if whole else {key: value for key, value in given.items() if key in _TIES}


def _start(name: str, rank: int, folder: Path, *, mps: bool) -> subprocess.Popen[bytes]:
    import torch

    several = torch.cuda.device_count() >= RUNS[name].world
    given = {
        "RANK": rank, "WORLD_SIZE": RUNS[name].world, "LOCAL_RANK": rank if several else 0,
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": 29511,
        "TORCH_FR_BUFFER_SIZE": 4000, "TORCH_NCCL_TRACE_BUFFER_SIZE": 4000,
        "NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,ENV,GRAPH,TUNING,COLL",
        "NCCL_DEBUG_FILE": folder / f"rank{rank}.nccl.log",
    }  # fmt: skip
    if not several:
        given |= {"NCCL_HOSTID": f"host{rank}", "NCCL_SOCKET_IFNAME": "lo", "NCCL_IB_DISABLE": 1}
    if mps:
        given |= {"CUDA_MPS_PIPE_DIRECTORY": "/tmp/mps", "CUDA_MPS_LOG_DIRECTORY": "/tmp/mps"}
    words = [__file__, "--only", name, "--rank", str(rank), "-o", str(folder)]
    with open(folder / f"rank{rank}.err", "wb") as told:
        return subprocess.Popen(
            [sys.executable, *words],
            env=os.environ | {key: str(value) for key, value in given.items()},
            stdout=told,
            stderr=told,
        )


def be_rank(run: Run, rank: int, folder: Path) -> None:
    """Be one rank: run the script to the end of its recorded step."""
    from torch.optim.optimizer import register_optimizer_step_post_hook

    _draw_weights()
    recorder = Recorder(rank, folder)
    register_optimizer_step_post_hook(recorder.stepped)
    sys.argv = [run.script, *run.arguments.split()]
    sys.path.insert(0, str(SCRIPTS))
    try:
        runpy.run_path(str(SCRIPTS / run.script), run_name="__main__")
    except Recorded:
        os._exit(0)  # a process group that is taken down waits for those that left before


class Recorded(Exception):  # noqa: N818 (not an error)
    """The step is recorded: the script need not go on."""


class Recorder:
    """Counts optimizer steps: times some of them, records one."""

    def __init__(self, rank: int, folder: Path) -> None:
        self.rank, self.folder = rank, folder
        self.ends: list[float] = []
        self.steps = 0
        self.profiler: Any = None

    def stepped(self, *_: object) -> None:
        """Take note of the end of an optimizer's step."""
        import torch

        self.steps += 1
        if WARM <= self.steps <= WARM + TIMED:
            torch.cuda.synchronize()
            self.ends.append(time.perf_counter())
        if self.steps == WARM + TIMED:
            self.profiler = self._profiler()
            self.profiler.__enter__()
        elif self.profiler is not None:
            torch.cuda.synchronize()
            self.profiler.step()
        if self.steps == WARM + TIMED + 2:
            self._write()
            raise Recorded

    def _profiler(self) -> Any:
        from torch._C._profiler import _ExperimentalConfig
        from torch.profiler import ExecutionTraceObserver, ProfilerActivity, profile, schedule

        observer = ExecutionTraceObserver()
        observer.register_callback(str(self._file("et.json")))
        return profile(
            activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA],
            schedule=schedule(wait=0, warmup=1, active=1, repeat=1),
            record_shapes=True,
            execution_trace_observer=observer,
            on_trace_ready=lambda done: done.export_chrome_trace(str(self._file("json"))),
            experimental_config=_ExperimentalConfig(enable_cuda_sync_events=True),
        )

    def _write(self) -> None:
        import torch
        from torch import distributed as dist

        self.profiler.__exit__(None, None, None)
        self.profiler.execution_trace_observer.cleanup()
        c10d = torch._C._distributed_c10d
        if hasattr(c10d, "_dump_nccl_trace_json"):
            self._file("fr.json").write_bytes(c10d._dump_nccl_trace_json())
        seconds = [after - before for before, after in zip(self.ends, self.ends[1:], strict=False)]
        about = {
            "seconds": seconds,
            "torch": torch.__version__,
            "nccl": ".".join(map(str, torch.cuda.nccl.version())),
            "gpu": torch.cuda.get_device_name(),
            "peak_bytes": torch.cuda.max_memory_allocated(),
            "reserved_bytes": torch.cuda.max_memory_reserved(),
        }
        self._file("steps.json").write_text(json.dumps(about))
        dist.barrier()

    def _file(self, suffix: str) -> Path:
        return self.folder / f"rank{self.rank}.{suffix}"


def _draw_weights() -> None:
    import torch
    from torch import nn

    leave = nn.Module.to_empty

    def to_empty(module: nn.Module, **where: Any) -> nn.Module:
        made = leave(module, **where)
        with torch.no_grad():
            for parameter in made.parameters():
                parameter.normal_(0.0, 0.02)
        return made

    nn.Module.to_empty = to_empty  # type: ignore[method-assign]


if __name__ == "__main__":
    main()
