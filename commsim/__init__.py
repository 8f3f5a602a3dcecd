"""
commsim: simulate and look at the collective communication of training clusters.

    import commsim as cs

    result = cs.run("quickstart")
    result.gantt().show()
    cs.bench(cs.Cluster.preset("dgx-h100", nodes=4), "all_reduce", "1GiB", algo="ring")

What is named here is loaded at first use, so that importing commsim is quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from commsim._version import __version__
from commsim.errors import (
    CommsimError,
    DeadlockError,
    ScenarioError,
    TopologyError,
    TraceError,
    UnitError,
)

if TYPE_CHECKING:
    from commsim.cluster import Cluster
    from commsim.engine import simulate
    from commsim.graph import Graph, GraphBuilder, load_graph, save_graph
    from commsim.libraries import Ideal, LibrarySection, Recorded, make_library
    from commsim.metrics import bound, measure
    from commsim.study import (
        Result,
        advise,
        bench,
        compare,
        convert,
        explain,
        replay,
        run,
    )
    from commsim.timeline import Timeline
    from commsim.traces import load_trace

_WHERE = {
    "Cluster": "cluster",
    "Graph": "graph",
    "GraphBuilder": "graph",
    "Ideal": "libraries",
    "LibrarySection": "libraries",
    "Recorded": "libraries",
    "Result": "study",
    "Timeline": "timeline",
    "advise": "study",
    "bench": "study",
    "bound": "metrics",
    "compare": "study",
    "convert": "study",
    "explain": "study",
    "load_graph": "graph",
    "load_trace": "traces",
    "make_library": "libraries",
    "measure": "metrics",
    "replay": "study",
    "run": "study",
    "save_graph": "graph",
    "simulate": "engine",
}

__all__ = [
    "Cluster",
    "CommsimError",
    "DeadlockError",
    "Graph",
    "GraphBuilder",
    "Ideal",
    "LibrarySection",
    "Recorded",
    "Result",
    "ScenarioError",
    "Timeline",
    "TopologyError",
    "TraceError",
    "UnitError",
    "__version__",
    "advise",
    "bench",
    "bound",
    "compare",
    "convert",
    "explain",
    "load_graph",
    "load_trace",
    "make_library",
    "measure",
    "replay",
    "run",
    "save_graph",
    "simulate",
]


def __getattr__(name: str) -> Any:
    """Load a public name from its room at first use (PEP 562)."""
    if name not in _WHERE:
        raise AttributeError(f"module 'commsim' has no attribute {name!r}")
    return getattr(import_module(f"commsim.{_WHERE[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
