"""
The result of a run: its timeline, its metrics, and the JSON that they make.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import msgspec

from commsim._version import __version__
from commsim.files import write_json
from commsim.metrics import Limit, Metrics, Wait, limits, waits
from commsim.timeline import Timeline
from commsim.units import format_time

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from commsim.charts import ReportFacts, Residents
    from commsim.cluster import Cluster
    from commsim.libraries import Library
    from commsim.workload import TrainingFacts

__all__ = ["Result"]

STEP = "step time"


class Result(msgspec.Struct, frozen=True, dict=True):
    """What a scenario came to. `extra` holds further keys of the JSON (a replay's errors).

    `command` runs it again. What it ran on (`cluster`, `library`), what is known of the training
    step, and the measured run that a replay is held against are None if there is none.
    `memory` says whether it fits the fullest GPU, "" if nothing is known of it.
    """

    scenario: str
    timeline: Timeline
    metrics: Metrics
    notes: tuple[str, ...] = ()
    extra: dict[str, Any] = msgspec.field(default_factory=dict)
    command: str = ""
    cluster: Cluster | None = None
    library: Library | None = None
    training: TrainingFacts | None = None
    measured: tuple[Timeline, Metrics] | None = None
    memory: str = ""
    twice: Mapping[str, str] = MappingProxyType({})
    """The setting that makes each kind of link, and compute, twice as fast."""
    preface: str = ""
    """What the headline says first: of a run with faults, how it compares with a healthy one."""

    def __repr__(self) -> str:
        step = format_time(self.metrics.step_time_s * 1e12)
        return f"Result({self.scenario!r}, step {step}, {self.timeline!r})"

    def _repr_html_(self) -> str:
        from commsim.charts.figures import result_html

        return result_html(self.scenario, self.metrics, self.notes)

    @cached_property
    def limits(self) -> tuple[Limit, ...]:
        """What the step would be shorter without, those that save most first."""
        return limits(
            self.timeline, library=self.library, cluster=self.cluster, settings=self.twice
        )

    @cached_property
    def waits(self) -> tuple[Wait, ...]:
        """Who waits for whom, longest first."""
        return waits(self.timeline)

    @property
    def span_name(self) -> str:
        """What `metrics.step_time_s` is of: a step, or all of several jobs."""
        return "all jobs" if len(self.extra.get("jobs", ())) > 1 else STEP

    @cached_property
    def headline(self) -> str:
        """How long it takes, and what costs most of the time that is not compute."""
        return self._said(self.limits)

    def _said(self, limits: Sequence[Limit]) -> str:
        from commsim.metrics import finding

        subject = "" if self.span_name == STEP else "All together take"
        told = finding(self.timeline, self.metrics, limits, subject=subject)
        return f"{self.preface} {told}" if self.preface else told

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON of `commsim run`; every key is always there, null if unknown."""
        return {
            "schema": 1,
            "commsim": __version__,
            "scenario": self.scenario,
            "headline": self.headline,
            **self.metrics.to_dict(),
            "limits": [msgspec.structs.asdict(limit) for limit in self.limits],
            "waits": [msgspec.structs.asdict(wait) for wait in self.waits],
            "notes": list(self.notes),
            **self.extra,
        }

    def save_json(self, path: str | Path) -> None:
        """Write `to_dict` to a file."""
        write_json(self.to_dict(), Path(path))

    def gantt(self) -> Figure:
        """Return the run as a Gantt chart."""
        from commsim.charts import gantt

        return gantt(self.timeline, metrics=self.metrics)

    def viewer(self, path: str | Path) -> None:
        """Write the timeline by itself as one self-contained HTML page, to zoom and search."""
        from commsim.charts import write_viewer

        write_viewer(self.facts(), path)

    def report(self, path: str | Path) -> None:
        """Write the run as one self-contained HTML page."""
        from commsim.charts import write_report

        write_report(self.facts(), path)

    def live_head(self) -> dict[str, Any]:
        """Return what a report starts with, before it is known what limits the run."""
        from commsim.charts import live_head

        return live_head(self._facts(self._said(()), (), ()))

    def live_sections(self) -> list[dict[str, Any]]:
        """Return the report's sections, for a page that is there already."""
        from commsim.charts import live_sections

        return live_sections(self.facts())

    def facts(self) -> ReportFacts:
        """Return what a report of it is written from."""
        return self._facts(self.headline, self.limits, self.waits)

    def _facts(
        self, headline: str, limits: tuple[Limit, ...], waits: tuple[Wait, ...]
    ) -> ReportFacts:
        from commsim.charts import FaultDraws, ReportFacts

        faults = self.extra.get("faults")
        draws = None
        if faults is not None:
            steps = tuple(draw["step_time_s"] for draw in faults["draws"])
            draws = FaultDraws(faults["healthy_step_time_s"], steps)
        return ReportFacts(
            self.scenario,
            self.timeline,
            self.metrics,
            self.notes,
            headline=headline,
            limits=limits,
            waits=waits,
            command=self.command,
            cluster=self.cluster,
            measured=self.measured,
            resident=self._resident(),
            draws=draws,
            span_name=self.span_name,
        )

    def _resident(self) -> Residents | None:
        from commsim.charts import resident_bytes

        known = self.training
        if known is None:
            return None
        ranks = self.timeline.graph.lane_rank.tolist()
        held = [known.resident[known.device_of_rank[rank]].total for rank in ranks]
        return resident_bytes(held, [known.capacity_of_rank[rank] for rank in ranks])
