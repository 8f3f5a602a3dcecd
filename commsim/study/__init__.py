"""
What people ask for, a room each: run a scenario, bench collectives, replay a trace, compare,
advise, plan, sweep, what to improve next, calibrate, explain.

Nothing is loaded here: a run needs none of the other rooms. `commsim` offers all their functions.
"""

__all__ = ()
