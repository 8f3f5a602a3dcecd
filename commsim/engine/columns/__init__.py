"""
The compiled executor: a run as tables of records, and functions over them that numba compiles.

In: a graph, a cluster, a library, a planner. Out: the timeline that the engine on SimPy finds, to
the picosecond. Each module follows one of the engine's: `streams`, `meetings` (`rendezvous`),
`flows` and `filling` (`fluid_network`, `fair_share`), `gpus` (`sharing`), `events` (`clock`);
`layout` makes the tables, `loop` runs them.
"""

from commsim.engine.columns.executor import ColumnsEngine, NotInColumnsError

__all__ = ["ColumnsEngine", "NotInColumnsError"]
