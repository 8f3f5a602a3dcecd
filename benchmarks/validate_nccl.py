"""
Compare commsim's graph search and its choices with what NCCL's own code decided.

    python benchmarks/validate_nccl.py DIR [--topo DIR] [--json FILE]

DIR holds, per system and node count, `meta_SYSTEM_NODES.json` (NCCL's graphs and version),
`decisions_SYSTEM_NODES.csv` (what it chose per operation and size), `costs_…csv` (what it
predicted for every algorithm and protocol), `p2p_…csv` (sends and receives), and in `topo/` (or
the folder that `--topo` names) the topology file of each system. `ENV.txt` may set NCCL
variables: lines `NCCL_X=Y sys=SYSTEM nodes=N`. What is missing is said in one line each and left
out.

Two questions are asked apart: does commsim choose alike given NCCL's own graphs, and does it
choose alike with the graphs of its own search? The JSON holds the second wherever a topology
file allows it. A choice counts where NCCL's runner-up costs over 1 % more.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nccl_folder import Case, Row, cases

from commsim.errors import CommsimError
from commsim.libraries.nccl.communicator.communicator import communicator_from_xml
from commsim.libraries.nccl.communicator.record import recorded_communicator
from commsim.libraries.nccl.shapes import Algorithm, Choice, Communicator, Protocol, SearchGraph
from commsim.libraries.nccl.tuning.algo_filter import FUNCTIONS
from commsim.libraries.nccl.tuning.choose import Tuner
from commsim.libraries.nccl.tuning.nvls import nvls_setup
from commsim.libraries.nccl.tuning.p2p import PeerToPeer
from commsim.libraries.nccl.tuning.tables import tables_of

OPS = {function: op for op, function in FUNCTIONS.items()}
UNDECIDED = 0.01
SAME_COST = 1e-3
DETAILS = {
    "threads": ("nthreads", "threads"),
    "chunk": ("chunk_bytes", "chunk"),
    "slice": ("slice_bytes", "slice"),
    "lo": ("count_lo", "count_lo"),
    "mid": ("count_mid", "count_mid"),
    "hi": ("count_hi", "count_hi"),
}
"""Columns of the decisions beside choice and channels, and the fields of a Choice."""


@dataclass
class Tally:
    """How much agrees, of how much; what does not, one entry each."""

    right: Counter[str] = field(default_factory=Counter)
    asked: Counter[str] = field(default_factory=Counter)
    wrong: list[dict[str, Any]] = field(default_factory=list)

    def count(self, what: str, same: bool, **where: Any) -> None:
        """Count one comparison, and keep it if it fails."""
        self.asked[what] += 1
        self.right[what] += same
        if not same:
            self.wrong.append({"what": what, **where})

    def add(self, other: Tally) -> None:
        """Add another tally's counts."""
        self.right += other.right
        self.asked += other.asked
        self.wrong += other.wrong

    def share(self, what: str) -> float | None:
        """Return the fraction that agrees, None if nothing was asked."""
        return self.right[what] / self.asked[what] if self.asked[what] else None


# -- the comparisons -------------------------------------------------------------------------


def choices(case: Case, comm: Communicator, graphs: str) -> Tally:
    """Compare what NCCL chose with what commsim chooses on `comm`."""
    tally, tuner = Tally(), Tuner(comm, case.knobs)
    for row in case.decisions:
        where = {"case": case.name, "graphs": graphs, "op": row["op"], "size": row["size_bytes"]}
        op, size = OPS.get(row["op"]), int(row["size_bytes"])
        if op is None:
            tally.count("choice", False, **where, found="an operation that commsim does not know")
            continue
        try:
            chosen = tuner.choose(op, size)
            every = tuner.candidates(op, [size])
        except CommsimError as error:
            tally.count("choice", False, **where, found=str(error))
            continue
        _choice(tally, case, row, chosen, where)
        pair = Algorithm[row["algo"]], Protocol[row["proto"]]
        if pair in every:
            _details(tally, row, every[pair][0], where)
        else:
            tally.count("channels", False, **where, found="not usable here")
        _predictions(tally, case, row, {key: each[0] for key, each in every.items()}, where)
    return tally


def _choice(tally: Tally, case: Case, row: Row, chosen: Choice, where: Mapping[str, Any]) -> None:
    ours, theirs = (chosen.algorithm.name, chosen.protocol.name), (row["algo"], row["proto"])
    costs = case.costs.get((row["op"], int(row["size_bytes"])), {})
    ranked = sorted(costs.values())
    if ours != theirs and len(ranked) > 1 and ranked[1] <= ranked[0] * (1 + UNDECIDED):
        tally.asked["undecided"] += 1
        return
    tally.count("choice", ours == theirs, **where, expected="/".join(theirs), found="/".join(ours))


def _details(tally: Tally, row: Row, choice: Choice, where: Mapping[str, Any]) -> None:
    used, most = int(row["nchannels"]), int(row.get("nmaxchannels") or choice.max_channels)
    same = (used, most) == (choice.channels, choice.max_channels)
    tally.count("channels", same, **where, expected=used, found=choice.channels)
    for what, (column, name) in DETAILS.items():
        if row.get(column):
            expected, found = int(row[column]), getattr(choice, name)
            tally.count(what, expected == found, **where, expected=expected, found=found)


def _predictions(
    tally: Tally,
    case: Case,
    row: Row,
    every: Mapping[tuple[Algorithm, Protocol], Choice],
    where: Mapping[str, Any],
) -> None:
    own = {(row["algo"], row["proto"]): float(row["predicted_us"])}
    costs = case.costs.get((row["op"], int(row["size_bytes"])), own)
    found = {(a.name, p.name): choice.selection_us for (a, p), choice in every.items()}
    for pair, expected in costs.items():
        ours = found.get(pair)
        same = ours is not None and abs(ours - expected) <= SAME_COST * expected
        tally.count("cost", same, **where, pair="/".join(pair), expected=expected, found=ours)
    for pair in found.keys() - costs.keys() if costs is not own else ():
        tally.count("cost", False, **where, pair="/".join(pair), expected=None, found=found[pair])


def sends(case: Case, comm: Communicator, graphs: str) -> Tally:
    """Compare channels, chunks and order of sends and receives, and the settings of NVLS."""
    tally, plan = Tally(), PeerToPeer(comm, case.knobs)
    nvls = nvls_setup(comm, tables_of(comm.version), case.knobs)
    recorded: dict[str, Any] = {
        "p2pnChannels": plan.channels,
        "p2pnChannelsPerPeer": plan.per_peer,
        "p2pChunkSize": plan.chunk,
        "p2pSchedGroupSize": plan.group,
        "p2pSchedule_rank0": [[each.send, each.recv] for each in plan.schedule(0)],
    }
    if case.record.get("nvlsChannels"):
        recorded["nvlsChannels"] = nvls.channels
        recorded["nvlsChunkSize"] = nvls.chunk
        recorded["nvlsTreeMaxChunkSize"] = nvls.tree_chunk
    where = {"case": case.name, "graphs": graphs}
    for name, found in recorded.items():
        if name in case.record:
            expected = case.record[name]
            tally.count("p2p", found == expected, **where, op=name, expected=expected, found=found)
    for row in case.p2p:
        message = plan.message(int(row["bytes_per_peer"]), remote=row["scope"] == "remote")
        found = (message.channels, message.protocol.name, message.chunk, message.steps)
        columns = ("nchannels_per_peer", "proto", "chunk_bytes", "nsteps_per_channel")
        expected = tuple(row[name] for name in columns)
        same = expected == tuple(str(each) for each in found)
        at = {"op": row["pattern"], "size": row["bytes_per_peer"], "scope": row["scope"]}
        tally.count("p2p", same, **where, **at, expected=list(expected), found=list(found))
    return tally


def searched(case: Case, comm: Communicator) -> Tally:
    """Compare the graphs of commsim's search with NCCL's: channels and their bandwidths."""
    tally = Tally()
    recorded = recorded_communicator(case.record, where=case.name)
    for name, graph in recorded.graphs.items():
        ours, theirs = _summary(comm.graphs.get(name)), _summary(graph)
        where = {"case": case.name, "graphs": "search", "op": name}
        tally.count("search", ours == theirs, **where, expected=theirs, found=ours)
    where = {"case": case.name, "graphs": "search", "op": "nChannels"}
    expected = recorded.channels
    tally.count(
        "search", comm.channels == expected, **where, expected=expected, found=comm.channels
    )
    return tally


def connections(case: Case, comm: Communicator) -> Tally:
    """Compare rings and trees, channel by channel, as many ranks of each as the record has."""
    tally, recorded = Tally(), recorded_communicator(case.record, where=case.name)
    pairs = {
        "ring": (recorded.rings, comm.rings),
        "tree up": (recorded.trees.up, comm.trees.up),
        "tree down": (recorded.trees.down, comm.trees.down),
    }
    for name, (theirs, ours) in pairs.items():
        for channel in range(min(len(theirs), len(ours))):
            expected = theirs[channel].tolist()
            found = ours[channel].tolist()[: len(expected)]
            where = {"case": case.name, "graphs": "search", "op": name, "channel": channel}
            tally.count("rings", expected == found, **where, expected=expected, found=found)
    return tally


def _summary(graph: SearchGraph | None) -> list[float]:
    """Return channels and bandwidths; a graph without channels is no graph."""
    return [graph.n_channels, graph.bw_intra, graph.bw_inter] if graph and graph.channels else [0]


def own_communicator(case: Case) -> Communicator | None:
    """Return what commsim's own search makes of the case's topology file, if it has one."""
    if case.topology is None:
        return None
    return communicator_from_xml(
        case.topology.read_text(encoding="utf-8"),
        nodes=case.nodes,
        version=str(case.record["nccl"]),
        env=case.knobs,
        source=case.topology.name,
    )


# -- the report ------------------------------------------------------------------------------

COLUMNS = (
    "search",
    "rings",
    "choice",
    "channels",
    "cost",
    "threads",
    "chunk",
    "lo",
    "mid",
    "hi",
    "p2p",
)


def report(name: str, graphs: str, tally: Tally) -> None:
    """Print one line: agreeing of asked, for each kind of comparison."""
    cells = (
        f"{tally.right[what]}/{tally.asked[what]}" if tally.asked[what] else "-" for what in COLUMNS
    )
    print(f"{name:22} {graphs:7}" + "".join(f"{cell:>12}" for cell in cells))


def judge(case: Case) -> tuple[Tally, Tally]:
    """Return the agreement with NCCL's graphs, and the headline: own search if there is one."""
    recorded = recorded_communicator(case.record, where=case.name)
    given = choices(case, recorded, "nccl")
    given.add(sends(case, recorded, "nccl"))
    report(case.name, "nccl", given)
    try:
        own = own_communicator(case)
    except (CommsimError, OSError, UnicodeDecodeError) as error:
        print(f"{case.name}: the own search stops: {error}")
        own = None
    if own is None:
        return given, given
    found = searched(case, own)
    found.add(connections(case, own))
    found.add(choices(case, own, "search"))
    found.add(sends(case, own, "search"))
    report(case.name, "search", found)
    return given, found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("--topo", type=Path, metavar="DIR", help="where the topology files lie")
    parser.add_argument("--json", type=Path, help="write the figures here")
    options = parser.parse_args()
    print(f"{'case':22} {'graphs':7}" + "".join(f"{what:>12}" for what in COLUMNS))
    given, headline, cells = Tally(), Tally(), 0
    for case in cases(options.folder, options.topo):
        try:
            one, other = judge(case)
        except (CommsimError, KeyError, ValueError) as error:
            print(f"{case.name}: skipped: {error}")
            continue
        given.add(one)
        headline.add(other)
        cells += len(case.decisions)
    report("all", "nccl", given)
    report("all", "search", headline)
    figures = {
        "cells": cells,
        "choice_agree": headline.share("choice"),
        "channels_agree": headline.share("channels"),
        "cost_agree": headline.share("cost"),
        "search_agree": headline.share("search"),
        "disagreements": headline.wrong,
    }
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")
    if not cells:
        print(f"{options.folder}: no decisions to compare with.", file=sys.stderr)


if __name__ == "__main__":
    main()
