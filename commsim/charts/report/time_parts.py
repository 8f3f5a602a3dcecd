"""
Sections on where the time goes: the breakdown per rank or stage, bubbles, the critical path.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from commsim.charts.report.facts import ReportFacts, ReportSection
from commsim.charts.report.markup import BarPart, legend, percent, stack, table, text
from commsim.charts.theme import ACCOUNT, shorten
from commsim.metrics import Limit, Metrics, RankTimes, bubbles, limit_name, limit_remarks, op_label
from commsim.units import format_time

__all__ = ["breakdown_section", "bubble_section", "limits_section", "path_section", "waits_section"]

_ROWS = 16  # ranks that are shown one by one
_PIECES = 600  # of the critical path's strip
_LONGEST = 10
_NUMBERS = re.compile(r"\d+")


def breakdown_section(facts: ReportFacts) -> ReportSection | None:
    """Return what each rank, or each stage, spends its step on; None without any time."""
    metrics = facts.metrics
    rows, lead = _rows(metrics)
    if not rows or not metrics.step_time_s:
        return None
    measured = _rows(facts.measured[1])[0] if facts.measured else []
    longest = max(times.whole_s for _, times in (*rows, *measured)) or 1.0
    if not measured:
        rows = _merge_equal(rows)
    lines = []
    for at, (label, times) in enumerate(rows):
        if facts.measured and at < len(measured):
            lines.append(_line(f"{label}, measured", measured[at][1], longest))
            label = f"{label}, replayed"
        lines.append(_line(label, times, longest))
    used = [
        (part.look, part.label) for part in ACCOUNT if any(getattr(t, part.key) for _, t in rows)
    ]
    body = legend(used) + _sheet(["", "", "compute", "exposed", "waiting", "idle"], lines)
    return ReportSection("breakdown", "Where the time goes", lead, body)


def _merge_equal(rows: list[tuple[str, RankTimes]]) -> list[tuple[str, RankTimes]]:
    """Join neighbours that would read the same, under the names of the first and the last."""
    joined: list[list[tuple[str, RankTimes]]] = []
    for row in rows:
        if joined and _look_of(joined[-1][0][1]) == _look_of(row[1]):
            joined[-1].append(row)
        else:
            joined.append([row])
    return [(_joined_label(same), same[0][1]) for same in joined]


def _look_of(times: RankTimes) -> tuple[object, ...]:
    return times.multiplicity, *(f"{value:.4g}" for value in _seconds(times))


def _joined_label(same: list[tuple[str, RankTimes]]) -> str:
    first, last = same[0], same[-1]
    if len(same) == 1:
        return first[0]
    if first[0].startswith("stage"):
        return _stages([times.stage or 0 for _, times in same])
    times = first[1].multiplicity
    return f"ranks {first[1].rank} to {last[1].rank}" + (f", each ×{times:,}" if times > 1 else "")


def _line(label: str, times: RankTimes, longest: float) -> Sequence[str]:
    whole = times.whole_s or 1.0
    parts = [
        BarPart(part.look, seconds / longest, f"{part.label} {format_time(seconds * 1e12)}")
        for part, seconds in zip(ACCOUNT, _seconds(times), strict=True)
    ]
    shares = (
        times.compute_s,
        times.exposed_transfer_s + times.exposed_copy_s,
        times.waiting_s + times.host_s,
        times.idle_s,
    )
    return [text(label), stack(parts), *(percent(part / whole) for part in shares)]


def _seconds(times: RankTimes) -> list[float]:
    return [getattr(times, part.key) for part in ACCOUNT]


def _sheet(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    return table(head, lines, right=range(2, len(head)), look="bars")


def _rows(metrics: Metrics) -> tuple[list[tuple[str, RankTimes]], str]:
    """Return (label, times) per stage if there are stages, else per rank; and how they are."""
    ranks = metrics.ranks
    stages = sorted({row.stage for row in ranks if row.stage is not None})
    if len(stages) > 1:
        rows = [
            (f"stage {stage}", _mean([row for row in ranks if row.stage == stage]))
            for stage in stages
        ]
        lead = "Mean over the ranks of each stage" if len(ranks) > len(stages) else ""
        return rows, lead
    if len(ranks) <= _ROWS:
        return [(_rank(row), row) for row in ranks], ""
    order = sorted(ranks, key=lambda row: (row.compute_s, row.rank))
    picked = np.linspace(0, len(order) - 1, _ROWS).round().astype(int).tolist()
    shown = [order[at] for at in picked]
    return [(_rank(row), row) for row in shown], (
        f"{_ROWS} of {len(ranks):,} ranks, evenly from the one that computes least to the one that"
        " computes most"
    )


def _rank(row: RankTimes) -> str:
    return f"rank {row.rank}" + (f" ×{row.multiplicity:,}" if row.multiplicity > 1 else "")


def _mean(rows: list[RankTimes]) -> RankTimes:
    weight = sum(row.multiplicity for row in rows)

    def mean(key: str) -> float:
        return float(sum(getattr(row, key) * row.multiplicity for row in rows)) / weight

    keys = (*(part.key for part in ACCOUNT), "comm_s")
    return RankTimes(rows[0].rank, weight, rows[0].stage, *(mean(key) for key in keys))


def limits_section(facts: ReportFacts) -> ReportSection | None:
    """Return what the step would be shorter without, those that save most first."""
    step = facts.metrics.step_time_s
    if not facts.limits or not step:
        return None
    rows = [
        [
            text(limit_name(limit)) + _to_try(limit),
            percent(limit.removed_s / step),
            "" if limit.halved_s is None else percent(limit.halved_s / step),
        ]
        for limit in facts.limits
    ]
    lead = (
        "The plan of this run timed again without each part, and with half of it. Not a new run:"
        " transfers keep the contention that they had"
    )
    lead += "".join(f". {one[0].upper()}{one[1:]}" for one in limit_remarks(facts.limits))
    body = table(["part", "gone", "half"], rows, right=(1, 2))
    return ReportSection("limits", "What the step would save", lead, body)


def _to_try(limit: Limit) -> str:
    """Return the setting that halves a limit, on a line below it."""
    if limit.setting is None:
        return ""
    return f"<br><small>half: <code>--set {text(limit.setting)}</code></small>"


def waits_section(facts: ReportFacts) -> ReportSection | None:
    """Return which rank waits for which, the longest first; None without waits."""
    step = facts.metrics.step_time_s
    if not facts.waits or not step:
        return None
    rows = [
        [
            f"rank {wait.rank}",
            f"rank {wait.peer}" + ("" if wait.stage is None else f", stage {wait.stage}"),
            wait.kind,
            format_time(wait.seconds * 1e12),
            percent(wait.seconds / step),
        ]
        for wait in facts.waits[:_LONGEST]
    ]
    more = len(facts.waits) - len(rows)
    lead = "Bubble: the other works on another stage; skew: it does the same, and is later" + (
        f". {len(rows)} of {len(facts.waits)} pairs" if more else ""
    )
    body = table(["who waits", "for whom", "", "time", "of the step"], rows, right=(3, 4))
    return ReportSection("waits", "Who waits for whom", lead, body)


def bubble_section(facts: ReportFacts) -> ReportSection | None:
    """Return the bubble of each pipeline stage, None without stages."""
    found = bubbles(facts.timeline)
    if found is None or len(found.stage) < 2:
        return None
    rows: list[list[str]] = []
    labels: list[list[int]] = []
    for stage, fraction, ratio in zip(
        found.stage.tolist(), found.stage_fraction.tolist(), found.stage_ratio.tolist(), strict=True
    ):
        bar = stack(
            [BarPart("compute", 1 - fraction, "at work"), BarPart("idle", fraction, "bubble")]
        )
        cells = [bar, percent(fraction), f"{ratio:.3f}"]
        if rows and rows[-1] == cells:
            labels[-1].append(stage)
        else:
            rows.append(cells)
            labels.append([stage])
    lines = [[_stages(same), *cells] for same, cells in zip(labels, rows, strict=True)]
    mean = f"mean fraction {percent(found.fraction)}, ratio {found.ratio:.3f}"
    lead = (
        f"{mean[0].upper()}{mean[1:]}. Fraction: part of {format_time(found.span)} in which a stage"
        " is not at work; ratio: the same over the time at work."
    )
    body = legend([("compute", "at work"), ("idle", "bubble")])
    return ReportSection(
        "bubble", "Bubble per stage", lead, body + _sheet(["", "", "fraction", "ratio"], lines)
    )


def _stages(same: list[int]) -> str:
    return f"stage {same[0]}" if len(same) == 1 else f"stages {same[0]} to {same[-1]}"


_LOOKS = {
    "compute": "compute", "cpu": "cpu", "copy": "copy", "delay": "delay", "send_recv": "p2p",
    "all_reduce": "comm", "reduce": "comm", "reduce_scatter": "comm",
}  # fmt: skip


def path_section(facts: ReportFacts) -> ReportSection | None:
    """Return the chain that sets the step time: by kind, by link, and its longest pieces."""
    pieces = facts.metrics.critical_path
    whole = sum(piece.seconds for piece in pieces)
    if not whole:
        return None
    kinds: dict[str, float] = {}
    links: dict[str, float] = {}
    for piece in pieces:
        kinds[piece.kind] = kinds.get(piece.kind, 0.0) + piece.seconds
        if piece.link is not None:
            links[piece.link] = links.get(piece.link, 0.0) + piece.seconds
    order = sorted(kinds.items(), key=lambda item: -item[1])
    lead = f"The chain that the {format_time(whole * 1e12)} are made of, in order of time"
    rows = [
        [
            text(_kind(kind)),
            stack([BarPart(_look(kind), spent / whole, _kind(kind))]),
            percent(spent / whole),
            format_time(spent * 1e12),
        ]
        for kind, spent in order
    ]
    body = f"<div><h3>By kind</h3>{_sheet(['', '', 'share', 'time'], rows)}</div>"
    columns = []
    if links:
        held = sorted(links.items(), key=lambda item: -item[1])[:_LONGEST]
        rows = [
            [text(shorten(link, 48)), format_time(spent * 1e12), percent(spent / whole)]
            for link, spent in held
        ]
        columns.append(
            ("Held back by a link", table(["link", "time", "share"], rows, right=(1, 2)))
        )
    columns.append(("By op", _sums(_by_op(facts), "what", whole)))
    columns.append(("By rank", _sums(_by_rank(facts), "rank", whole)))
    body += "".join(f"<div><h3>{title}</h3>{made}</div>" for title, made in columns)
    return ReportSection(
        "path",
        "Critical path",
        lead,
        f'{_strip(facts, whole)}<div class="side">{body}</div>',
        wide=True,
    )


def _sums(found: dict[str, tuple[int, float]], what: str, whole: float) -> str:
    """Return a table of (pieces, seconds) per label, the longest first."""
    most = sorted(found.items(), key=lambda item: -item[1][1])[:_LONGEST]
    rows = [
        [
            text(shorten(label, 48)),
            f"{count:,}",
            format_time(spent * 1e12),
            percent(spent / whole),
        ]
        for label, (count, spent) in most
    ]
    return table([what, "pieces", "time", "share"], rows, right=(1, 2, 3))


def _by_op(facts: ReportFacts) -> dict[str, tuple[int, float]]:
    """Sum the path by name; names that differ in numbers alone count as one ("B layer …")."""
    names: dict[str, set[str]] = {}
    for piece in facts.metrics.critical_path:
        names.setdefault(_NUMBERS.sub("…", piece.op), set()).add(piece.op)
    found: dict[str, tuple[int, float]] = {}
    for piece in facts.metrics.critical_path:
        label = _NUMBERS.sub("…", piece.op)
        label = label if len(names[label]) > 1 else piece.op
        count, spent = found.get(label, (0, 0.0))
        found[label] = count + 1, spent + piece.seconds
    return found


def _by_rank(facts: ReportFacts) -> dict[str, tuple[int, float]]:
    found: dict[str, tuple[int, float]] = {}
    for piece in facts.metrics.critical_path:
        count, spent = found.get(str(piece.rank), (0, 0.0))
        found[str(piece.rank)] = count + 1, spent + piece.seconds
    return found


def _strip(facts: ReportFacts, whole: float) -> str:
    """Return the chain as one bar in order of time; neighbours of one kind are drawn as one."""
    joined: list[tuple[str, float]] = []
    for piece in facts.metrics.critical_path:
        before = joined.pop()[1] if joined and joined[-1][0] == piece.kind else 0.0
        joined.append((piece.kind, before + piece.seconds))
    if len(joined) > _PIECES:
        return ""
    return stack(
        (
            BarPart(_look(kind), spent / whole, f"{_kind(kind)} {format_time(spent * 1e12)}")
            for kind, spent in joined
        ),
        tall=True,
    )


def _look(kind: str) -> str:
    return _LOOKS.get(kind, "gather")


def _kind(kind: str) -> str:
    return {"cpu": "host thread", "send_recv": "send/recv"}.get(kind, op_label(kind))
