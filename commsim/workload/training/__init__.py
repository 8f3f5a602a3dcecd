"""Training steps: every way of splitting a model, as ops with their bytes, times and memory."""

from commsim.workload.training.build import build_training
from commsim.workload.training.checks import check_settings
from commsim.workload.training.defaults import with_defaults, with_stack
from commsim.workload.training.gathering import gathered, gathered_again, reduced
from commsim.workload.training.memory import Actions, peak_memory, resident_memory
from commsim.workload.training.plan import TrainingPlan, plan_shared_as, plan_training
from commsim.workload.training.section import (
    WIDTH,
    BatchSection,
    DataParallelSection,
    ParallelSection,
    TrainingSection,
)
from commsim.workload.training.stage_compiler import StageOps
from commsim.workload.training.stages import EMBEDDING, HEAD, LAYER, Unit, divide_layers, make_parts
from commsim.workload.training.work_items import COMPUTE, EXCHANGE, WorkItem

__all__ = [
    "COMPUTE",
    "EMBEDDING",
    "EXCHANGE",
    "HEAD",
    "LAYER",
    "WIDTH",
    "Actions",
    "BatchSection",
    "DataParallelSection",
    "ParallelSection",
    "StageOps",
    "TrainingPlan",
    "TrainingSection",
    "Unit",
    "WorkItem",
    "build_training",
    "check_settings",
    "divide_layers",
    "gathered",
    "gathered_again",
    "make_parts",
    "peak_memory",
    "plan_shared_as",
    "plan_training",
    "reduced",
    "resident_memory",
    "with_defaults",
    "with_stack",
]
