"""
`commsim calibrate` and `commsim check`: a cluster against what was measured on it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from commsim._version import __version__
from commsim.cli.terminal import (
    INPUT,
    STDOUT,
    Console,
    GroupedCommand,
    NcclVersion,
    OutputFile,
    Percent,
    columns,
    json_option,
    limit_option,
    quiet_option,
    working,
)
from commsim.units import format_size

if TYPE_CHECKING:
    from commsim.study.calibrate import Calibration, StepCalibration

__all__ = ["calibrate", "check"]

_FAILED = 1
_logs = click.argument("logs", type=INPUT, nargs=-1, required=True, metavar="LOG...")
_some_logs = click.argument("logs", type=INPUT, nargs=-1, metavar="[LOG...]")
_cluster = click.option(
    "--cluster",
    type=INPUT,
    required=True,
    metavar="PRESET|FILE",
    help="What should have been measured.",
)
_version = click.option(
    "--nccl-version",
    "version",
    type=NcclVersion(),
    metavar="V",
    help="The NCCL that should have run, like 2.27.",
)


class _Placement(click.ParamType[tuple[int, int]]):
    """2x8: nodes, and GPUs on each."""

    name = "placement"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, int]:
        """Return nodes and GPUs, or fail as a usage error."""
        found = re.fullmatch(r"(\d{1,6})x(\d{1,6})", str(value).lower())
        if found and int(found[1]) > 0 < int(found[2]):
            return int(found[1]), int(found[2])
        self.fail(f"{value!r}: give nodes and GPUs on each, like 2x8.", param, ctx)


_on = click.option(
    "--on",
    type=_Placement(),
    metavar="NxG",
    help="Nodes and GPUs on each, like 2x8, if a log does not list its devices.",
)


@click.command(cls=GroupedCommand)
@_some_logs
@_cluster
@_version
@_on
@click.option(
    "--trace",
    "traces",
    type=INPUT,
    multiple=True,
    metavar="PATH",
    help="Kineto traces of training steps: slow GPUs, host launch.",
)
@click.option(
    "--training",
    type=INPUT,
    metavar="SCENARIO",
    help="The training of --trace: fits the speed of the GPUs.",
)
@click.option(
    "-o",
    "--output",
    type=OutputFile(".yaml", ".yml"),
    metavar="F.yaml",
    help="Write the fitted cluster: every command takes it.",
)
@limit_option
@json_option
@click.option(
    "--report",
    type=OutputFile(".html"),
    metavar="F.html",
    help="Measured, as given and fitted, a chart for each table.",
)
@quiet_option
def calibrate(
    logs: tuple[str, ...],
    cluster: str,
    version: str | None,
    on: tuple[int, int] | None,
    traces: tuple[str, ...],
    training: str | None,
    output: Path | None,
    json_path: Path | None,
    report: Path | None,
    quiet: bool,
) -> None:
    """Say what is broken on a cluster, and fit a few of its figures to logs and recorded steps.

    LOG is what a test of nccl-tests printed, its -J JSON, or what PARAM's comms benchmark printed.
    """  # fmt: skip
    if not logs and not traces:
        raise click.UsageError("give LOG of a benchmark, --trace of training steps, or both.")
    if training is not None and not traces:
        raise click.UsageError("--training says what --trace recorded: give that as well.")
    if not logs and report is not None:
        raise click.UsageError("--report draws tables of benchmarks: give LOG as well.")
    from commsim.study.calibrate import calibrate as study_calibrate
    from commsim.study.calibrate import calibrate_steps

    console = Console(quiet=quiet, json_only=json_path == STDOUT)
    found = paced = None
    if logs:
        with working("reading logs", quiet=quiet) as told:
            found = study_calibrate(
                logs, cluster, version=version, on=on, progress=told.say, follow=told.follow
            )
        _show(found, cluster, console)
    if traces:
        with working("reading traces", quiet=quiet) as told:
            paced = calibrate_steps(traces, cluster, training=training, progress=told.say)
        _show_steps(paced, console)
    _write(found, paced, console, output=output, json_path=json_path, report=report, quiet=quiet)


def _write(
    found: Calibration | None,
    paced: StepCalibration | None,
    console: Console,
    *,
    output: Path | None,
    json_path: Path | None,
    report: Path | None,
    quiet: bool,
) -> None:
    """Write what was asked for; the cluster has what logs say of links, and steps of GPUs."""
    from commsim.files import json_bytes, write_json
    from commsim.study.calibrate import joined, save_cluster

    told = {"schema": 1, "commsim": __version__} if found is None else found.to_dict()
    if paced is not None:
        told |= {"training": paced.to_dict()}
    if json_path == STDOUT:
        console.write(json_bytes(told).decode())
    elif json_path is not None:
        write_json(told, json_path)
        console.say(f"wrote {json_path}")
    if output is not None:
        save_cluster(joined(found, paced), output)
        console.say(f"wrote {output}")
    if report is not None and found is not None:
        with working(f"drawing {report}", quiet=quiet):
            found.save(report)
        console.say(f"wrote {report}")


def _show_steps(found: StepCalibration, console: Console) -> None:
    for one in found.slow:
        console.show(f"slow GPU: {one.says}")
    if not found.slow and len({step.rank for step in found.steps}) > 1:
        console.show("no GPU computes 10% longer than the others")
    if found.times is not None:
        console.show(f"GPUs compute {found.times:.3g} times as long as given")
    if found.launch_s is not None:
        console.show(f"a launch takes {found.launch_s * 1e6:.3g} us")
    if found.before is not None and found.after is not None:
        console.show(
            f"compute of steps left out of the fit: off by {found.before:.1%} as given,"
            f" {found.after:.1%} fitted"
        )
    for note in found.notes:
        console.say(f"note: {note}")


def _show(found: Calibration, cluster: str, console: Console) -> None:
    finding = found.finding
    for told in found.out_of_line:
        console.show(f"out of line: {told}")
    if finding is None and not found.out_of_line:
        console.show("nothing that is broken explains the times better than the machine as given")
    elif finding is not None:
        console.show(f"found: {finding.fault.name}")
        console.show(f"  {finding.fault.says}")
        console.show(f"  off by {finding.before:.0%} without it, by {finding.after:.0%} with it")
        if finding.also:
            console.show(f"  as likely: {', '.join(finding.also)}")
        console.show(
            "  the fitted cluster has this fault, to predict what it costs: accept the machine"
            f" against the cluster as given (commsim check LOG... --cluster {cluster})"
        )
    rows = [("figure", "given", "fitted")]
    for factor, times in found.factors:
        unit = 1e9 if factor.is_time else 1.0
        name = f"{factor.path} (ns)" if factor.is_time else factor.path
        given = factor.value * unit
        rows.append((name, f"{given:.4g}", f"{given * times:.4g}"))
    console.show("\n" + columns(rows, right=(1, 2)))
    console.show(f"\nmedian error {found.before:.1%} as given, {found.after:.1%} fitted")
    for what, (before, after) in found.left_out.items():
        console.show(f"  {what} left out of the fit: {before:.1%}, {after:.1%}")
    for note in found.notes:
        console.say(f"note: {note}")


@click.command(cls=GroupedCommand)
@_logs
@_cluster
@_version
@_on
@click.option(
    "--tolerance",
    type=Percent(),
    default=0.1,
    show_default="10%",
    metavar="SHARE",
    help="How much slower than the cluster's file it may be.",
)
@limit_option
@json_option
@quiet_option
def check(
    logs: tuple[str, ...],
    cluster: str,
    version: str | None,
    on: tuple[int, int] | None,
    tolerance: float,
    json_path: Path | None,
    quiet: bool,
) -> int:
    """Check benchmark logs against a cluster's file: exit with 1 if it is slower.

    Sizes are judged in three bands by their medians. For acceptance tests, and for CI.
    """  # fmt: skip
    from commsim.study.calibrate import check as study_check

    console = Console(quiet=quiet, json_only=json_path == STDOUT)
    with working("checking tables", quiet=quiet) as told:
        found = study_check(
            logs, cluster, tolerance=tolerance, version=version, on=on, progress=told.count
        )
    rows = [("", "table", "sizes", "rows", "slower by", "worst", "by", "than")]
    rows += [
        (
            "ok" if band.passed else "FAILED", band.table, band.band, f"{band.rows}",
            f"{band.slower:+.1%}", format_size(band.worst), f"{band.by:+.1%}", band.against,
        )
        for band in found.bands
    ]  # fmt: skip
    for fault in found.faults:
        console.show(
            f"{cluster} was fitted to a broken machine ({fault}): passing is no slower than that\n"
        )
    console.show(columns(rows, right=(3, 4, 5, 6)))
    if json_path == STDOUT:
        from commsim.files import json_bytes

        console.write(json_bytes(found.to_dict()).decode())
    elif json_path is not None:
        from commsim.files import write_json

        write_json(found.to_dict(), json_path)
    return 0 if found.passed else _FAILED
