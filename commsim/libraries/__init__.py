"""
Whose rules: libraries turn ops into plans over the links of a cluster.

In: a `Request` (op, bytes, ranks) and a cluster. Out: a `Plan`: what each link carries, and how
long it takes on idle links. `nccl`, `gloo`, `ideal` are built in; `recorded` repeats a trace.
"""

from commsim.libraries.gloo import awaited_members
from commsim.libraries.ideal import Ideal
from commsim.libraries.library import Library, links_of, plan_of
from commsim.libraries.plan import (
    Copy,
    Delays,
    Plan,
    PlanPart,
    PlanPhase,
    Request,
    RoutedProgram,
    Start,
)
from commsim.libraries.recorded import Recorded
from commsim.libraries.section import (
    LIBRARIES,
    LibraryKind,
    LibrarySection,
    make_library,
    register_library,
    usual_library,
)
from commsim.libraries.several import Libraries, for_groups, library_of

__all__ = [
    "LIBRARIES",
    "Copy",
    "Delays",
    "Ideal",
    "Libraries",
    "Library",
    "LibraryKind",
    "LibrarySection",
    "Plan",
    "PlanPart",
    "PlanPhase",
    "Recorded",
    "Request",
    "RoutedProgram",
    "Start",
    "awaited_members",
    "for_groups",
    "library_of",
    "links_of",
    "make_library",
    "plan_of",
    "register_library",
    "usual_library",
]
