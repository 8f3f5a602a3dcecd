"""
An algorithm as text: per step which rank sends which chunks to which, and what all hold then.
"""

from __future__ import annotations

from itertools import zip_longest

import numpy as np

from commsim.collectives import Move, Picture, Walk
from commsim.metrics import op_label
from commsim.ops import PAIRED, REDUCING

__all__ = ["actor_name", "explain_text", "headline", "move_text", "place_list", "place_name"]

_MOST_COLUMNS = 24  # places; more are summed up per rank
_MOST_STEPS = 64  # more are left to the page


def headline(walk: Walk) -> tuple[str, str]:
    """Return the title and a line of figures: steps, messages, bytes."""
    program = walk.program
    count = len(walk.stages)
    title = f"{op_label(program.op)} by {program.algorithm}, {program.n} ranks"
    if program.root >= 0:
        title += f", root {program.root}"
    sent = program.bytes_sent
    most = _share(float(sent.max(initial=0.0)))
    whom = "each rank sends" if np.allclose(sent, sent[0]) else "the busiest rank sends"
    figures = [
        f"{count} step{'s' * (count != 1)}",
        f"{len(program)} message{'s' * (len(program) != 1)}",
    ]
    if program.op == "barrier":
        return title, ", ".join([*figures, "tokens only"])
    size = float(program.share.max(initial=0.0))
    return title, ", ".join([*figures, f"chunks of {_share(size)}", f"{whom} {most}"])


def _share(value: float) -> str:
    """Write a share of S as people do: S/4, 1.5 S."""
    if 0 < value < 1 and abs(1 / value - round(1 / value)) < 1e-9:
        return f"S/{round(1 / value)}"
    return "S" if abs(value - 1) < 1e-12 else f"{value:.4g} S"


def actor_name(walk: Walk, actor: int) -> str:
    """Return what an actor is called: rank 3, switch, switch 1."""
    n, switches = walk.program.n, len(walk.program.switches)
    if actor < n:
        return f"rank {actor}"
    return "switch" if switches == 1 else f"switch {actor - n}"


def place_name(walk: Walk, place: int) -> str:
    """Write a place short: its chunk's number; 0:3 for what goes from 0 to 3; i3, o3, s3 and ~3
    for an imported program's input, output, scratch and data in flight."""
    layout, program = walk.program.layout, walk.program
    if layout is None:
        if program.op in PAIRED and len(program.share) == program.n**2:
            return f"{place // program.n}:{place % program.n}"
        return str(place)
    words = layout.names[place].split(" ")
    if words[-1] == "flight":
        return f"~{words[1]}"
    return words[-1] if words[0] == "buffer" else f"{words[0][0]}{words[-1]}"


def place_list(walk: Walk, places: tuple[int, ...], most: int = 6) -> str:
    """Write places short: 3, 0-7, 1 5 9 … (16)."""
    runs: list[list[int]] = []
    for place in places:
        if runs and place == runs[-1][-1] + 1:
            runs[-1].append(place)
        else:
            runs.append([place])
    words = [
        place_name(walk, r[0])
        if len(r) == 1
        else f"{place_name(walk, r[0])}-{place_name(walk, r[-1])}"
        for r in runs
    ]
    if len(words) > most:
        return f"{' '.join(words[: most - 2])} … ({len(places)})"
    return " ".join(words)


def explain_text(walk: Walk) -> str:
    """Return the whole walk as text."""
    title, figures = headline(walk)
    lines = [title, figures, "", *_beside(["start"], _table(walk, walk.start))]
    for number, stage in enumerate(walk.stages[:_MOST_STEPS], start=1):
        moves = [f"step {number}", *(f"  {move_text(walk, move)}" for move in stage.moves)]
        lines += ["", *_beside(moves, _table(walk, stage.after))]
    more = len(walk.stages) - _MOST_STEPS
    if more > 0:
        lines += ["", f"and {more} more steps; -o FILE.html shows them all."]
    return "\n".join([*lines, "", _legend(walk)])


def _legend(walk: Walk) -> str:
    if walk.program.op in REDUCING:
        return "✓ the sum that the op promises there; a number: how many ranks' parts are in it."
    return "✓ where the op promises it; • on its way, or no longer needed."


def move_text(walk: Walk, move: Move) -> str:
    """Say what a message does: 0 → 1  adds 3."""
    n = walk.program.n
    ends = [str(a) if a < n else actor_name(walk, a) for a in (move.source, move.target)]
    verb = "adds" if move.adds else "copies"
    text = f"{ends[0]} → {ends[1]}  {verb} {place_list(walk, move.places)}"
    if move.into != move.places:
        text += f" to {place_list(walk, move.into)}"
    return text


def _table(walk: Walk, picture: Picture) -> list[str]:
    """Return the state of all actors as lines: one column per place, or sums if too many."""
    shown = np.flatnonzero(walk.bare).tolist()
    if len(shown) > _MOST_COLUMNS:
        return [_sum(walk, picture, actor) for actor in range(walk.program.n)]
    names = [place_name(walk, place) for place in shown]
    width = max(2, len(str(walk.program.n)), *(len(name) for name in names))
    head = f"{'chunk':<10}" + " ".join(f"{name:>{width}}" for name in names)
    lines = [head]
    for actor in range(walk.program.actors):
        cells = (f"{_cell(walk, picture, actor, place):>{width}}" for place in shown)
        lines.append(f"{actor_name(walk, actor):<10}" + " ".join(cells))
    return lines


def _cell(walk: Walk, picture: Picture, actor: int, place: int) -> str:
    if picture.chunk[actor, place] < 0:
        return "·"
    if picture.done[actor, place]:
        return "✓"
    if walk.program.op in REDUCING:
        return str(picture.parts[actor, place])
    return "•"


def _sum(walk: Walk, picture: Picture, actor: int) -> str:
    done, promised = int(picture.done[actor].sum()), int(walk.promised[actor].sum())
    return f"{actor_name(walk, actor):<10}{done} of {promised} chunks done"


def _beside(left: list[str], right: list[str]) -> list[str]:
    """Join two columns of lines."""
    width = max(34, max(len(line) for line in left) + 3)
    pairs = zip_longest(left, right, fillvalue="")
    return [f"{a:<{width}}{b}".rstrip() for a, b in pairs]
