"""GOAL, the text that LogGOPSim and ATLAHS read: read and written."""

from commsim.traces.formats.goal.reader import is_goal, read_goal
from commsim.traces.formats.goal.writer import write_goal

__all__ = ["is_goal", "read_goal", "write_goal"]
