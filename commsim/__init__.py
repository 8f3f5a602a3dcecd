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

from commsim._version import __version__

TYPE_CHECKING = False
"""As in `typing`, which takes as long to import as all else that is imported here."""

if TYPE_CHECKING:
    from typing import Any

    from commsim.cluster import Cluster
    from commsim.collectives import Ask, Program, ProgramBuilder, register_algorithm
    from commsim.engine import simulate
    from commsim.errors import (
        CommsimError,
        DeadlockError,
        ScenarioError,
        TopologyError,
        TraceError,
        UnitError,
    )
    from commsim.export import convert
    from commsim.graph import Graph, GraphBuilder, load_graph, save_graph
    from commsim.libraries import (
        Ideal,
        Library,
        LibrarySection,
        Plan,
        Recorded,
        Request,
        make_library,
        register_library,
    )
    from commsim.metrics import bound, measure
    from commsim.models import model_presets
    from commsim.scenario import Scenario, presets
    from commsim.sections import Section
    from commsim.study.advise import advise
    from commsim.study.bench import bench
    from commsim.study.calibrate import (
        Calibration,
        CheckResult,
        StepCalibration,
        calibrate,
        calibrate_steps,
        check,
    )
    from commsim.study.compare import compare
    from commsim.study.explain import explain
    from commsim.study.next_dollar import NextDollar, next_dollar
    from commsim.study.next_dollar.what_if import WhatIfGrid, what_if
    from commsim.study.plan import ClusterPlan, plan
    from commsim.study.replay import replay
    from commsim.study.run import Result, run
    from commsim.study.sweep import Sweep, sweep
    from commsim.timeline import Timeline
    from commsim.traces import load_trace
    from commsim.workload.schedules import Action, ScheduleAsk, Work, register_schedule

_WHERE = {
    "Action": "workload.schedules",
    "Ask": "collectives",
    "Calibration": "study.calibrate",
    "CheckResult": "study.calibrate",
    "Cluster": "cluster",
    "ClusterPlan": "study.plan",
    "CommsimError": "errors",
    "DeadlockError": "errors",
    "Graph": "graph",
    "GraphBuilder": "graph",
    "Ideal": "libraries",
    "Library": "libraries",
    "LibrarySection": "libraries",
    "NextDollar": "study.next_dollar",
    "Plan": "libraries",
    "Program": "collectives",
    "ProgramBuilder": "collectives",
    "Recorded": "libraries",
    "Request": "libraries",
    "Result": "study.run",
    "Scenario": "scenario",
    "ScenarioError": "errors",
    "ScheduleAsk": "workload.schedules",
    "Section": "sections",
    "StepCalibration": "study.calibrate",
    "Sweep": "study.sweep",
    "Timeline": "timeline",
    "TopologyError": "errors",
    "TraceError": "errors",
    "UnitError": "errors",
    "WhatIfGrid": "study.next_dollar.what_if",
    "Work": "workload.schedules",
    "advise": "study.advise",
    "bench": "study.bench",
    "calibrate": "study.calibrate",
    "calibrate_steps": "study.calibrate",
    "check": "study.calibrate",
    "bound": "metrics",
    "compare": "study.compare",
    "convert": "export",
    "explain": "study.explain",
    "load_graph": "graph",
    "load_trace": "traces",
    "make_library": "libraries",
    "measure": "metrics",
    "model_presets": "models",
    "next_dollar": "study.next_dollar",
    "plan": "study.plan",
    "presets": "scenario",
    "register_algorithm": "collectives",
    "register_library": "libraries",
    "register_schedule": "workload.schedules",
    "replay": "study.replay",
    "run": "study.run",
    "save_graph": "graph",
    "simulate": "engine",
    "sweep": "study.sweep",
    "what_if": "study.next_dollar.what_if",
}

__all__ = [
    "Action",
    "Ask",
    "Calibration",
    "CheckResult",
    "Cluster",
    "ClusterPlan",
    "CommsimError",
    "DeadlockError",
    "Graph",
    "GraphBuilder",
    "Ideal",
    "Library",
    "LibrarySection",
    "NextDollar",
    "Plan",
    "Program",
    "ProgramBuilder",
    "Recorded",
    "Request",
    "Result",
    "Scenario",
    "ScenarioError",
    "ScheduleAsk",
    "Section",
    "StepCalibration",
    "Sweep",
    "Timeline",
    "TopologyError",
    "TraceError",
    "UnitError",
    "WhatIfGrid",
    "Work",
    "__version__",
    "advise",
    "bench",
    "bound",
    "calibrate",
    "calibrate_steps",
    "check",
    "compare",
    "convert",
    "explain",
    "load_graph",
    "load_trace",
    "make_library",
    "measure",
    "model_presets",
    "next_dollar",
    "plan",
    "presets",
    "register_algorithm",
    "register_library",
    "register_schedule",
    "replay",
    "run",
    "save_graph",
    "simulate",
    "sweep",
    "what_if",
]


def __getattr__(name: str) -> Any:
    """Load a public name from its room at first use (PEP 562); a function checks its arguments."""
    if name not in _WHERE:
        raise AttributeError(f"module 'commsim' has no attribute {name!r}")
    found = getattr(import_module(f"commsim.{_WHERE[name]}"), name)
    if name[0].islower():
        from commsim.arguments import checked

        found = checked(found)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
