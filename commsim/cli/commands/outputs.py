"""
The files that `run` and `replay` can write, as options and as the writing of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from commsim.cli.commands.charts import CHARTS, write_chart
from commsim.cli.terminal import (
    STDOUT,
    Console,
    OutputFile,
    OutputFolder,
    ProgressLine,
    json_option,
    limits_table,
    quiet_option,
    say_notes,
    summary,
    verbose_option,
    what_if_table,
    working,
)

if TYPE_CHECKING:
    from commsim.study.next_dollar.what_if import WhatIfGrid
    from commsim.study.run import Result

__all__ = ["Outputs", "output_options"]

_Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

_OUT_OF_MEMORY = 5  # exit code
_DRAWN = (".html", ".svg", ".png", ".pdf")
_OPTIONS: tuple[_Decorator, ...] = (
    json_option,
    click.option(
        "--report", "-o", type=OutputFile(".html"), metavar="F.html",
        help="Write one page with everything: timeline, bubbles, links, memory, what was assumed.",
    ),
    *(
        click.option(
            f"--{chart.name}", type=OutputFile(*_DRAWN), metavar="F.html|.svg|.png|.pdf",
            help=chart.help,
        )
        for chart in CHARTS.values()
    ),
    click.option(
        "--perfetto", type=OutputFile(".json", ".json.gz", ".pftrace"),
        metavar="F.json|.json.gz|.pftrace",
        help="Write a trace that Perfetto (ui.perfetto.dev) opens.",
    ),
    click.option(
        "--kineto", type=OutputFolder(), metavar="DIR",
        help="Write a torch.profiler trace per rank, for HolisticTraceAnalysis and the like.",
    ),
    click.option("--csv", type=OutputFolder(), metavar="DIR", help="Write the tables as CSV."),
    click.option(
        "--allow-oom", is_flag=True,
        help="Exit with 0 although it does not fit in memory (else 5).",
    ),
    verbose_option,
    quiet_option,
)  # fmt: skip


def output_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options for what it can write, as one argument: `outputs`."""

    @wraps(command)
    def gathered(**given: Any) -> Any:
        names = (
            "json_path",
            "report",
            "perfetto",
            "kineto",
            "csv",
            "quiet",
            "verbose",
            "allow_oom",
        )
        charts = {kind: path for kind in CHARTS if (path := given.pop(kind)) is not None}
        options = {name: given.pop(name) for name in names}
        return command(outputs=Outputs(charts=charts, **options), **given)

    optioned: Callable[..., Any] = gathered
    for option in reversed(_OPTIONS):
        optioned = option(optioned)
    return optioned


class Outputs(msgspec.Struct, frozen=True):
    """What a user asked to be written; `charts` by the name of their option."""

    json_path: Path | None
    report: Path | None
    charts: dict[str, Path]
    perfetto: Path | None
    kineto: Path | None
    csv: Path | None
    quiet: bool = False
    verbose: bool = False
    allow_oom: bool = False

    @property
    def json_only(self) -> bool:
        """Whether stdout belongs to JSON alone."""
        return self.json_path == STDOUT

    def console(self) -> Console:
        """Return where the command speaks."""
        return Console(quiet=self.quiet, json_only=self.json_only)

    def finish(
        self,
        result: Result,
        console: Console,
        *,
        what_if: WhatIfGrid | None = None,
        below: Sequence[str] = (),
    ) -> int:
        """Write all files, then print the answer, its table and its notes; return the exit code.

        With `what_if` the report has its sliders, and its table follows; then what is `below`.
        """
        with working("writing files", quiet=self.quiet) as told:
            written = [str(path) for path in self._write(result, what_if, told)]
        memory = result.metrics.memory_gib
        fits = memory is None or bool(memory["fits"])
        if not fits:
            console.show(console.alarm(f"Does not fit in memory: {result.memory}."))
        console.show(console.strong(result.headline.replace("\N{NO-BREAK SPACE}", " ")))
        console.show("")
        console.show(
            summary(
                result.metrics, written, console, memory=result.memory, span_name=result.span_name
            )
        )
        if what_if is not None:
            console.show("")
            console.show(what_if_table(what_if))
        for part in below:
            console.show("")
            console.show(part)
        if self.verbose and result.limits:
            console.show("")
            console.show(limits_table(result))
        say_notes(result.notes, console, verbose=self.verbose)
        if self.json_only:
            from commsim.files import json_bytes

            more = {} if what_if is None else {"what_if": what_if.to_dict()}
            console.write(json_bytes({**result.to_dict(), **more}).decode())
        if fits or self.allow_oom:
            return 0
        console.say("commsim: exit code 5: it does not fit; --allow-oom makes that 0.")
        return _OUT_OF_MEMORY

    def _write(self, result: Result, what_if: WhatIfGrid | None, told: ProgressLine) -> list[Path]:
        written: list[Path] = []
        if self.json_path is not None and not self.json_only:
            more = {} if what_if is None else {"what_if": what_if.to_dict()}
            from commsim.files import write_json

            write_json({**result.to_dict(), **more}, self.json_path)
            written.append(self.json_path)
        if self.report is not None:
            told.say(f"writing {self.report}")
            (what_if or result).report(self.report)
            written.append(self.report)
        for kind, path in self.charts.items():
            told.say(f"drawing {path}")
            written += write_chart(kind, result, path)
        if self.perfetto is not None:
            from commsim.export import write_chrome, write_perfetto

            told.say(f"writing {self.perfetto}")
            write = write_perfetto if self.perfetto.suffix == ".pftrace" else write_chrome
            write(result.timeline, self.perfetto)
            written.append(self.perfetto)
        if self.kineto is not None:
            from commsim.export import write_kineto

            told.say(f"writing {self.kineto}")
            written += write_kineto(result.timeline, self.kineto)
        if self.csv is not None:
            from commsim.export import write_csv

            told.say(f"writing {self.csv}")
            written += write_csv(result.timeline, result.to_dict(), self.csv)
        return written
