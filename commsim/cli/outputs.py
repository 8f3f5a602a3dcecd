"""
The files that `run` and `replay` can write, as options and as the writing of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from commsim.cli.console import Console
from commsim.cli.params import STDOUT, OutputFile, OutputFolder, json_option, quiet_option
from commsim.cli.summary import summary

if TYPE_CHECKING:
    from commsim.study import Result

__all__ = ["Outputs", "output_options"]

_Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

_OPTIONS: tuple[_Decorator, ...] = (
    json_option,
    click.option(
        "--gantt", type=OutputFile(".html", ".svg", ".png"), metavar="F.html|.svg|.png",
        help="Draw every rank on one timeline.",
    ),
    click.option(
        "--links", type=OutputFile(".html", ".svg", ".png"), metavar="F.html",
        help="Draw the use of the busiest links over time.",
    ),
    click.option(
        "--perfetto", type=OutputFile(".json", ".json.gz"), metavar="F.json|.json.gz",
        help="Write a trace that Perfetto (ui.perfetto.dev) opens.",
    ),
    click.option("--csv", type=OutputFolder(), metavar="DIR", help="Write the tables as CSV."),
    quiet_option,
)  # fmt: skip


def output_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options for what it can write."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@dataclass(frozen=True, slots=True)
class Outputs:
    """What a user asked to be written."""

    json_path: Path | None
    gantt: Path | None
    links: Path | None
    perfetto: Path | None
    csv: Path | None

    @property
    def json_only(self) -> bool:
        """Whether stdout belongs to JSON alone."""
        return self.json_path == STDOUT

    def finish(self, result: Result, console: Console) -> None:
        """Write all files, then print the closing table."""
        written = self._write(result)
        console.show(summary(result.metrics, written))
        if self.json_only:
            from commsim.study.files import json_bytes

            console.write(json_bytes(result.to_dict()).decode())

    def _write(self, result: Result) -> list[str]:
        written: list[str] = []
        if self.json_path is not None and not self.json_only:
            result.save_json(self.json_path)
            written.append(str(self.json_path))
        if self.gantt is not None:
            _draw(result, self.gantt)
            written.append(str(self.gantt))
        if self.links is not None:
            from commsim.charts import link_use, save_figure

            save_figure(link_use(result.timeline), self.links)
            written.append(str(self.links))
        if self.perfetto is not None:
            from commsim.export import write_chrome

            write_chrome(result.timeline, self.perfetto)
            written.append(str(self.perfetto))
        if self.csv is not None:
            from commsim.export import write_csv

            written += [
                str(path) for path in write_csv(result.timeline, result.to_dict(), self.csv)
            ]
        return written


def _draw(result: Result, path: Path) -> None:
    from commsim.charts import gantt, gantt_svg, save_figure
    from commsim.study.files import write_aside

    if path.suffix == ".svg":
        text = gantt_svg(result.timeline, metrics=result.metrics)
        write_aside(path, lambda aside: aside.write_text(text, encoding="utf-8"))
    else:
        save_figure(gantt(result.timeline, metrics=result.metrics), path)
