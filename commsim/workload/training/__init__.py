"""Training steps: every way of splitting a model, as ops with their bytes, times and memory."""

from commsim.workload.training.build import build_training
from commsim.workload.training.memory import peak_memory
from commsim.workload.training.plan import TrainingPlan, plan_training
from commsim.workload.training.section import TrainingSection

__all__ = [
    "TrainingPlan",
    "TrainingSection",
    "build_training",
    "peak_memory",
    "plan_training",
]
