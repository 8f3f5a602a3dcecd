"""
One rank of a captured program: `python -m commsim.traces.capture.worker JOB.json`.

The script runs as `torchrun` would run it, under fake tensors, until its step has been recorded.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

import os
import runpy
import sys
import traceback
from pathlib import Path
from typing import Any

import msgspec

from commsim.graph import Phase

__all__ = ["Job", "main"]


class Job(msgspec.Struct, frozen=True):
    """What one process is to capture, and where the recording (or a reason) goes."""

    script: str
    arguments: tuple[str, ...]
    rank: int
    world: int
    per_node: int
    step: int
    output: str


class _Done(BaseException):
    """The step has been recorded."""


def main(path: str) -> int:
    """Capture one rank; return 0, or 1 with the reason in a file beside the recording's."""
    job = msgspec.json.decode(Path(path).read_bytes(), type=Job)
    _environment(job)
    try:
        _capture(job)
    except _StoppedError as failed:
        from commsim.traces.capture.records import reason_file

        reason_file(job.output).write_text(str(failed), encoding="utf-8")
        return 1
    return 0


class _StoppedError(Exception):
    """Why a capture cannot be: the program's own words, and where it was."""


def _environment(job: Job) -> None:
    local = job.rank % job.per_node
    os.environ.update(
        RANK=str(job.rank),
        WORLD_SIZE=str(job.world),
        LOCAL_RANK=str(local),
        LOCAL_WORLD_SIZE=str(job.per_node),
        GROUP_RANK=str(job.rank // job.per_node),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT="29500",
        OMP_NUM_THREADS="1",
        TORCHELASTIC_RUN_ID="capture",
    )


def _capture(job: Job) -> None:
    import warnings

    warnings.filterwarnings("ignore")
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    from commsim.traces.capture import mode, stand_ins
    from commsim.traces.capture.one_device import OnOneDevice
    from commsim.traces.capture.progress import writing_progress
    from commsim.traces.capture.recorder import recorder

    torch.set_num_threads(1)
    folder = Path(job.output).parent
    stand_ins.install(job.rank, job.world, job.rank % job.per_node, job.per_node, folder)
    steps = _Steps(job.step)
    steps.install()
    sys.argv = [job.script, *job.arguments]
    sys.path.insert(0, str(Path(job.script).resolve().parent))
    try:
        with (
            writing_progress(job.output, steps.how_far),
            OnOneDevice(),
            FakeTensorMode(allow_non_fake_inputs=True),
            mode.Capturing(),
        ):
            try:
                runpy.run_path(job.script, run_name="__main__")
            finally:
                recorder.on = False
    except _Done:
        pass
    except SystemExit as end:
        if end.code not in (None, 0):
            raise _StoppedError(f"the script ended with exit code {end.code}.") from None
    except BaseException as error:
        raise _StoppedError(_reason(error, job.script)) from None
    steps.finish()
    _write(job, steps)


class _Steps:
    """Finds the step to record: from one end of an optimizer's step to the next."""

    def __init__(self, wanted: int) -> None:
        self.wanted = wanted
        self.ended = 0
        self.leader: Any = None
        self.kept: Any = None
        self.begun = False
        self.optimizers: dict[int, Any] = {}

    def install(self) -> None:
        """Ask torch to say when modules run and optimizers step."""
        from torch.nn.modules.module import register_module_forward_pre_hook
        from torch.optim.optimizer import (
            register_optimizer_step_post_hook,
            register_optimizer_step_pre_hook,
        )

        register_module_forward_pre_hook(self._runs)
        register_optimizer_step_pre_hook(self._steps)
        register_optimizer_step_post_hook(self._stepped)

    def how_far(self) -> str:
        """Say which step runs and what it has issued so far."""
        from commsim.traces.capture.recorder import recorder

        if not self.begun:
            return "the script builds its model"
        issued = f"{len(recorder.records):,} kernels, calls and events"
        return f"step {min(self.ended + 1, self.wanted)} of {self.wanted}, {issued}"

    def _runs(self, module: Any, arguments: Any) -> None:
        from commsim.traces.capture.recorder import recorder

        if not self.begun:
            self.begun = True
            recorder.restart(self._memory())

    def _steps(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        from commsim.traces.capture.recorder import recorder

        self.optimizers[id(optimizer)] = optimizer
        recorder.phase = Phase.OPTIMIZER

    def _stepped(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        from commsim.traces.capture.recorder import recorder

        recorder.phase = Phase.FORWARD
        self.leader = self.leader or optimizer
        if optimizer is not self.leader:
            return
        self.ended += 1
        self._keep()
        if self.ended == self.wanted:
            raise _Done
        recorder.restart(self._memory())

    def _keep(self) -> None:
        from commsim.traces.capture.recorder import recorder

        memory = msgspec.structs.replace(recorder.start, peak=recorder.peak)
        self.kept = (tuple(recorder.records), memory)

    def finish(self) -> None:
        """Take the whole program if no optimizer has stepped."""
        if self.kept is None:
            self._keep()

    def _memory(self) -> Any:
        from commsim.traces.capture.recorder import recorder
        from commsim.traces.capture.records import CapturedMemory

        params = [p for o in self.optimizers.values() for g in o.param_groups for p in g["params"]]
        states = [v for o in self.optimizers.values() for s in o.state.values() for v in s.values()]
        parameters, gradients = _held(params), _held([p.grad for p in params])
        optimizer = _held(states)
        rest = max(0, recorder.held - parameters - gradients - optimizer)
        return CapturedMemory(parameters, gradients, optimizer, rest)

    def parameters(self) -> int:
        """Return how many entries the optimizers update, those of other ranks' shards too."""
        params = [p for o in self.optimizers.values() for g in o.param_groups for p in g["params"]]
        return sum(int(p.numel()) for p in params)


def _held(values: list[Any]) -> int:
    """Return the bytes of tensors (of DTensors, the rank's own shard), each storage once."""
    import torch

    storages: dict[int, int] = {}
    for value in values:
        local = getattr(value, "_local_tensor", value)
        if isinstance(local, torch.Tensor):
            storage = local.untyped_storage()
            storages[id(storage)] = storage.nbytes()
    return sum(storages.values())


def _reason(error: BaseException, script: str) -> str:
    """Say what stopped the program, where in it, and what helps."""
    if os.environ.get("COMMSIM_CAPTURE_DEBUG"):
        traceback.print_exception(error)
    lines = traceback.extract_tb(error.__traceback__)
    path = Path(script).resolve()  # a library may have a file of the same name
    own = [line for line in lines if Path(line.filename).resolve() == path]
    where = f"{Path(script).name}, line {own[-1].lineno}: " if own else ""
    words = str(error).strip().splitlines()
    text = f"{where}{type(error).__name__}: {words[0] if words else ''}{_causes(error)}"
    for name, advice in _ADVICE.items():
        if name in type(error).__name__ or name in str(error):
            return f"{text}\n{advice}"
    return text


def _causes(error: BaseException) -> str:
    """Return what an error was raised from, one after the other."""
    found, seen = "", {id(error)}
    while (cause := error.__cause__) is not None and id(cause) not in seen:
        seen.add(id(cause))
        words = str(cause).strip().splitlines()
        found += f"; caused by {type(cause).__name__}: {words[0] if words else ''}"
        error = cause
    return found


_ADVICE = {
    "DynamicOutputShape": "Shapes that depend on data are not known without data. Let the captured "
    "program take a fixed split there (for experts: every expert the same number of tokens).",
    "DataDependent": "A value decides what runs next. Let the captured program skip that branch.",
    "UnsupportedOperator": "This kernel has no fake version. Capture with the ops of torch itself, "
    "or give it one (torch.library.register_fake).",
    "FlexAttention": "It runs on a GPU alone: capture with scaled_dot_product_attention.",
    "CUDA error": "A kernel that exists only on a GPU: capture with the ops of torch itself.",
}


def _write(job: Job, steps: _Steps) -> None:
    import torch

    from commsim.traces.capture.calls import groups_made
    from commsim.traces.capture.recorder import Stream, recorder
    from commsim.traces.capture.records import Recording, save_recording

    records, memory = steps.kept
    save_recording(
        Recording(
            job.rank,
            job.world,
            torch.__version__.partition("+")[0],
            groups_made(),
            tuple(stream.name for stream in Stream.made),
            records,
            memory,
            steps.parameters(),
            tuple(recorder.notes),
        ),
        Path(job.output),
    )


if __name__ == "__main__":
    ended = main(sys.argv[1])
    sys.stderr.flush()
    os._exit(
        ended
    )  # taking fake tensors apart at the end takes long, and has crashed in torch 2.15
