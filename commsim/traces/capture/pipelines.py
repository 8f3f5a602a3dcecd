"""
Pipelines in a capture: stage and microbatch of what runs, and shapes that stages tell each other.

Stages without `input_args` infer their shapes: torch runs each once, and sends the next what its
outputs look like. Captured ranks run one after the other, so that goes through files, by stage.
What comes from a rank that is captured later (in interleaved schedules) is taken to look like the
outputs of this rank's stage before; that rank checks it. Gradients look like what they are of.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

import functools
import os
import pickle
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch.distributed.pipelining import schedules
from torch.distributed.pipelining import stage as stages
from torch.distributed.pipelining._utils import (
    InferenceMode,
    _derive_grad_metas,
    _StageBackwardMeta,
    _StageForwardMeta,
)

from commsim.traces.capture.recorder import recorder

__all__ = ["install_pipelines"]

_PATIENCE = 300.0  # s: until the stage before, captured at the same time, knows its outputs
_PAUSE = 0.1


def install_pipelines(folder: Path) -> None:
    """Tag what stages run, and pass their metadata through files in `folder`."""
    metadata = _Metadata(folder)
    schedule, stage = schedules._PipelineSchedule, stages.PipelineStage
    schedule._warmup_p2p = lambda self, *how: metadata.warm_up(*how)
    stage._send_meta = lambda self, meta, to: metadata.send(self, meta, to)
    stage._recv_meta = lambda self, source: metadata.receive(self, source)
    for name in ("forward_one_chunk", "backward_one_chunk", "backward_weight_one_chunk"):
        base = stages._PipelineStageBase
        setattr(base, name, _tagged(getattr(base, name)))


class _Metadata:
    """What stages tell each other of their tensors."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.last: Any = None  # outputs of the last stage of this rank

    def warm_up(self, held: list[Any], has_backward: bool, done: bool) -> None:
        """Stand in for the vote on who infers: here each stage that must."""
        for stage in held:
            dynamic = InferenceMode.needs_dynamic(stage._user_meta, has_backward)
            stage._inference_mode = InferenceMode.DYNAMIC if dynamic else InferenceMode.STATIC
            if not dynamic and not stage.is_last:
                outputs = _StageForwardMeta(forward_metas=stage._user_meta.outputs)
                self.send(stage, outputs, stage.stage_index + 1)

    def send(self, stage: Any, meta: Any, to: int) -> None:
        """Keep what a stage says of its outputs for the next; gradients are known there."""
        if not isinstance(meta, _StageForwardMeta):
            return
        self.last = meta
        assumed = self._file(to, "assumed")
        if assumed.exists() and pickle.loads(assumed.read_bytes()) != meta:
            raise ValueError(
                f"PipelineStage: stage {stage.stage_index} has outputs of another shape than a"
                f" stage before, which stage {to} was taken to get: {_WHAT_TO_GIVE}"
            )
        self._write(self._file(to, "inputs"), meta)

    def receive(self, stage: Any, source: int) -> Any:
        """Return what the stage `source` says of its outputs, or of its inputs' gradients."""
        if source > stage.stage_index:
            return _StageBackwardMeta(
                backward_metas=_derive_grad_metas(stage._stage_meta.outputs),
            )
        found = self._file(stage.stage_index, "inputs")
        later = stage.stage_index_to_group_rank[source] > stage.group_rank
        if later and self.last is not None and not found.exists():
            self._write(self._file(stage.stage_index, "assumed"), self.last)
            return self.last
        waited = 0.0
        while not found.exists():
            if later or waited > _PATIENCE:
                raise ValueError(
                    f"PipelineStage: no captured rank has the stage before stage"
                    f" {stage.stage_index}: {_WHAT_TO_GIVE}"
                )
            time.sleep(_PAUSE)
            waited += _PAUSE
        return pickle.loads(found.read_bytes())

    def _file(self, stage: int, what: str) -> Path:
        return self.folder / f"stage-{stage}.{what}"

    def _write(self, file: Path, meta: Any) -> None:
        part = file.with_name(f"{file.name}.{os.getpid()}")
        part.write_bytes(pickle.dumps(meta))
        part.replace(file)  # whole: another rank may be looking for it


_WHAT_TO_GIVE = "give input_args and output_args (tensors on the meta device will do)."


def _tagged(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def tagged(self: Any, *args: Any, **kwargs: Any) -> Any:
        before = recorder.stage, recorder.microbatch
        chunk = args[0] if args else next(v for k, v in kwargs.items() if k.endswith("chunk_id"))
        recorder.stage, recorder.microbatch = self.stage_index, int(chunk)
        try:
            return function(self, *args, **kwargs)
        finally:
            recorder.stage, recorder.microbatch = before

    return tagged
