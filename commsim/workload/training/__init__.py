"""Training steps: every way of splitting a model, as ops with their bytes, times and memory."""

from commsim.workload.training.build import build_training
from commsim.workload.training.memory import Actions, peak_memory, resident_memory
from commsim.workload.training.plan import TrainingPlan, plan_training
from commsim.workload.training.section import (
    WIDTH,
    BatchSection,
    DataParallelSection,
    ParallelSection,
    TrainingSection,
    check_settings,
)
from commsim.workload.training.stages import make_parts
from commsim.workload.training.work_items import COMPUTE, EXCHANGE, WorkItem

__all__ = [
    "COMPUTE",
    "EXCHANGE",
    "WIDTH",
    "Actions",
    "BatchSection",
    "DataParallelSection",
    "ParallelSection",
    "TrainingPlan",
    "TrainingSection",
    "WorkItem",
    "build_training",
    "check_settings",
    "make_parts",
    "peak_memory",
    "plan_training",
    "resident_memory",
]
