"""
Whose rules: libraries turn ops into plans over the links of a cluster.
"""

from commsim.libraries.ideal import Ideal
from commsim.libraries.library import Library
from commsim.libraries.plan import Messages, Part, Phase, Plan, Request, Start
from commsim.libraries.recorded import Recorded
from commsim.libraries.section import LibrarySection, make_library

__all__ = [
    "Ideal",
    "Library",
    "LibrarySection",
    "Messages",
    "Part",
    "Phase",
    "Plan",
    "Recorded",
    "Request",
    "Start",
    "make_library",
]
