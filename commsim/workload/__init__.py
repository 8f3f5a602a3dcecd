"""
What must happen: pipelines, training steps, collectives and programs, as workload graphs.

In: a section of a scenario and a cluster. Out: a `Workload`: its graph, roles for folding, and what
is known of the training (FLOPs, tokens, memory).
"""

from commsim.workload.collectives import CollectiveSection, build_collectives
from commsim.workload.pipeline import PipelineSection, build_pipeline
from commsim.workload.program import ProgramSection, build_program
from commsim.workload.result import TrainingFacts, Workload
from commsim.workload.schedules import (
    Action,
    Schedule,
    Work,
    check_schedule,
    execution_order,
    holds_schedule,
    load_schedule,
    make_schedule,
    read_schedule,
    write_schedule,
)
from commsim.workload.section import WorkloadSection, build_workload, chosen_kind
from commsim.workload.training import (
    TrainingSection,
    build_training,
    divide_layers,
    peak_memory,
    with_defaults,
)

__all__ = [
    "Action",
    "CollectiveSection",
    "PipelineSection",
    "ProgramSection",
    "Schedule",
    "TrainingFacts",
    "TrainingSection",
    "Work",
    "Workload",
    "WorkloadSection",
    "build_collectives",
    "build_pipeline",
    "build_program",
    "build_training",
    "build_workload",
    "check_schedule",
    "chosen_kind",
    "divide_layers",
    "execution_order",
    "holds_schedule",
    "load_schedule",
    "make_schedule",
    "peak_memory",
    "read_schedule",
    "with_defaults",
    "write_schedule",
]
