"""Pipeline schedules: which device does what in which order, by name or from a file."""

from commsim.workload.schedules import built_in as _built_in  # noqa: F401  (registers ours)
from commsim.workload.schedules.actions import PHASE, Action, Pair, Schedule, Work
from commsim.workload.schedules.catalogue import (
    SCHEDULES,
    ScheduleAsk,
    check_name,
    home_of,
    is_laid_out,
    make_schedule,
    register_schedule,
    title_of,
    usual_schedule,
)
from commsim.workload.schedules.csv_file import (
    check_virtual,
    holds_schedule,
    is_schedule_file,
    load_schedule,
    read_schedule,
    write_schedule,
)
from commsim.workload.schedules.memory import live_activations, peak_activations
from commsim.workload.schedules.order import (
    OrderColumns,
    ScheduleStep,
    check_schedule,
    execution_order,
)
from commsim.workload.schedules.pairs import PAIRABLE, paired
from commsim.workload.schedules.times import StageTimes, equal_times

__all__ = [
    "PAIRABLE",
    "PHASE",
    "SCHEDULES",
    "Action",
    "OrderColumns",
    "Pair",
    "Schedule",
    "ScheduleAsk",
    "ScheduleStep",
    "StageTimes",
    "Work",
    "check_name",
    "check_schedule",
    "check_virtual",
    "equal_times",
    "execution_order",
    "holds_schedule",
    "home_of",
    "is_laid_out",
    "is_schedule_file",
    "live_activations",
    "load_schedule",
    "make_schedule",
    "paired",
    "peak_activations",
    "read_schedule",
    "register_schedule",
    "title_of",
    "usual_schedule",
    "write_schedule",
]
