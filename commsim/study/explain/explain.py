"""
Explain: how an algorithm works, step by step, from the very program that is timed.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from commsim.collectives import (
    ALGORITHMS,
    Program,
    Walk,
    default_per_node,
    is_msccl_file,
    is_two_level,
    load_msccl,
    program,
    walk,
)
from commsim.errors import ScenarioError, did_you_mean
from commsim.files import write_text
from commsim.follow import Follow, unfollowed
from commsim.ops import COLLECTIVES, op_of

__all__ = ["Explanation", "explain", "save_together"]

_MOST_RANKS = 128
_MOST_PIECES = 1 << 16  # of all ranks together
_MOST = 1 << 24  # cells of all pictures together, and counters of one


class Explanation(msgspec.Struct, frozen=True, eq=False):
    """An algorithm run step by step; `walk` holds every move and every picture."""

    walk: Walk
    per_node: int = 0

    def __repr__(self) -> str:
        made = self.walk.program
        return (
            f"Explanation({made.op} by {made.algorithm}, n={made.n}, {len(self.walk.stages)} steps)"
        )

    def _repr_html_(self) -> str:
        return self.svg()

    def headline(self) -> tuple[str, str]:
        """Return the title, and a line of figures: steps, messages, bytes."""
        from commsim.charts.explain import headline

        return headline(self.walk)

    def text(self) -> str:
        """Return it in words: per step the messages and the state of every rank."""
        from commsim.charts.explain import explain_text

        return explain_text(self.walk)

    def svg(self) -> str:
        """Return a strip with a panel per step. Raises ScenarioError if they are too many."""
        from commsim.charts.explain import explain_svg

        return explain_svg(self.walk, per_node=self.per_node)

    def html(self) -> str:
        """Return a self-contained page that plays the steps."""
        from commsim.charts.explain import explain_page

        return explain_page(self.walk, per_node=self.per_node)

    def save(self, path: str | Path) -> None:
        """Write .html (a page that plays), .svg (a strip) or .txt.

        Raises:
            ScenarioError: another suffix, or too large to be drawn.
        """
        path = Path(path)
        made = {".html": self.html, ".svg": self.svg, ".txt": self.text}.get(path.suffix)
        if made is None:
            raise ScenarioError(f"{path}: write .html, .svg or .txt.")
        write_text(path, made())


def explain(
    algorithm: str,
    n: int | None = None,
    *,
    op: str | None = None,
    root: int = 0,
    pieces: int = 1,
    per_node: int = 0,
    follow: Follow = unfollowed,
) -> Explanation:
    """Run an algorithm, or an MSCCL XML file, step by step among `n` ranks (4 by default).

    `op` is all_reduce if the algorithm can do it, else the first that it can. `pieces` cuts
    the buffer of pipelined algorithms; `per_node` is the size of a node on two levels. `follow` is
    given a function that says which share of the steps has been run.

    Raises:
        ScenarioError: no such algorithm or op, one that cannot do the other, too many ranks; or
            a file that is wrong, or that is for another op or number of ranks.
    """
    if is_msccl_file(algorithm):
        if root or pieces != 1 or per_node:
            raise ScenarioError(f"{algorithm}: its root, pieces and nodes stand in the file.")
        return _explain_file(algorithm, n, op, follow)
    ranks = 4 if n is None else n
    chosen = op or _usual_op(algorithm)
    if ranks > _MOST_RANKS:
        raise ScenarioError(
            f"-n {ranks}: too many ranks to be looked at. Give at most {_MOST_RANKS}."
        )
    if ranks * pieces > _MOST_PIECES:
        raise ScenarioError(
            f"--pieces {pieces}: too many to be looked at. Give {ranks} ranks at most"
            f" {_MOST_PIECES // ranks} pieces."
        )
    splits = [[1] * ranks] * ranks if chosen == "all_to_all_v" else None
    made = program(
        chosen, algorithm, ranks, root=root, pieces=pieces, per_node=per_node, splits=splits
    )
    _refuse_unused(made, pieces, per_node)
    cells = made.actors * len(made.share)
    if cells * max(made.n, made.steps) > _MOST:
        raise ScenarioError(f"{made!r} is too large to be explained. Take fewer ranks (-n).")
    rows = (per_node or default_per_node(ranks)) if is_two_level(algorithm) else 0
    return Explanation(walk(made, follow), rows)


def save_together(explained: Sequence[Explanation], path: str | Path) -> None:
    """Write algorithms side by side, played on one clock: .html, or .txt after each other.

    Raises:
        ScenarioError: another suffix, or too large to be drawn.
    """
    from commsim.charts.explain import explain_together

    path = Path(path)
    if path.suffix == ".txt":
        write_text(path, "\n\n".join(one.text() for one in explained))
        return
    if path.suffix != ".html":
        raise ScenarioError(f"{path}: several algorithms stand on an .html page, or in .txt.")
    walks = [one.walk for one in explained]
    write_text(path, explain_together(walks, per_node=[one.per_node for one in explained]))


def _refuse_unused(made: Program, pieces: int, per_node: int) -> None:
    """Refuse settings that the algorithm has no use for."""
    if per_node and not is_two_level(made.algorithm):
        raise ScenarioError(
            f"{made.algorithm} knows no nodes: leave --per-node out. Those that do:"
            f" {', '.join(dict.fromkeys(name for _, name in ALGORITHMS if is_two_level(name)))}."
        )
    if pieces > 1 and made.op != "all_to_all_v":
        root = max(made.root, 0)
        other = program(made.op, made.algorithm, made.n, root=root, pieces=2 * pieces)
        if len(other.share) == len(made.share):
            raise ScenarioError(
                f"{made.op} by {made.algorithm} is not cut into pieces: leave --pieces out."
            )


def _usual_op(algorithm: str) -> str:
    possible = [op for op in COLLECTIVES if (op, algorithm) in ALGORITHMS]
    if not possible:
        known = sorted({name for _, name in ALGORITHMS})
        hint = did_you_mean(algorithm, known)
        if algorithm.isdecimal():
            hint = f" Ranks are given as -n {algorithm}."
        if op := op_of(algorithm):
            hint = f" The op is given as --op {op}."
        raise ScenarioError(
            f"there is no algorithm {algorithm!r}.{hint}"
            f" Known: {', '.join(known)}, or an MSCCL file.xml."
        )
    return "all_reduce" if "all_reduce" in possible else possible[0]


def _explain_file(path: str, n: int | None, op: str | None, follow: Follow) -> Explanation:
    made = load_msccl(path).program
    if op is not None and op != made.op:
        raise ScenarioError(f"{path}: is an {made.op}, not {op}. Leave --op out.")
    if n is not None and n != made.n:
        raise ScenarioError(f"{path}: is for {made.n} ranks, not {n}. Leave -n out.")
    return Explanation(walk(made, follow))
