"""
The timeline: what happened, and when; the second of commsim's two waists.

`table` holds the columns, `file` keeps them on disk.
"""

from commsim.timeline.file import load_timeline, save_timeline
from commsim.timeline.table import Cause, LinkUse, Memory, Timeline

__all__ = ["Cause", "LinkUse", "Memory", "Timeline", "load_timeline", "save_timeline"]
