"""
Steps that `record_nccl.py` recorded, as figures small enough to keep: `validate_captures.py`.

    python benchmarks/recorded_steps.py nccl_runs/* -o tests/data/captured_steps/recorded.json.gz

Of each rank: seconds of steps without the profiler, bytes of memory at the peak, kernels and their
time by phase and kind, the shapes of its products, and its calls of the last step in order.
"""

from __future__ import annotations

import argparse
import gzip
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from commsim.traces.formats.files import documents
from commsim.traces.formats.flight_recorder import read_flight_recorder

__all__ = ["Call", "RankSteps", "RunSteps", "kind_of", "product_name", "read_steps"]

PHASES = ("forward", "backward", "optimizer")
KINDS = (
    ("products", ("mm", "addmm", "bmm")),
    ("attention", ("scaled_dot_product", "attention_")),
    ("norms", ("rms_norm", "layer_norm")),
    ("embedding", ("embedding",)),
    ("loss", ("log_softmax", "nll_loss")),
    ("copies", ("copy", "cat", "chunk_cat", "clone")),
)
"""Ops of torch by kind, told by what their names begin with or hold; all others: elementwise."""


class Call(NamedTuple):
    """A rank's part in communication: S of nccl-tests in bytes; `peer` of a message, else -1."""

    op: str
    ranks: tuple[int, ...]
    size: int
    dtype: str
    peer: int


class RankSteps(msgspec.Struct):
    """What a rank did. `work` is [phase, kind, kernels, microseconds]; `order` numbers `calls`."""

    seconds: list[float]
    peak_bytes: int
    reserved_bytes: int
    work: list[tuple[str, str, int, float]]
    products: dict[str, int]
    calls: list[Call]
    order: list[int]


class RunSteps(msgspec.Struct):
    """A recorded run: a script with its arguments, and each of its ranks."""

    script: str
    arguments: str
    gpu: str
    torch: str
    nccl: str
    ranks: list[RankSteps]


def kind_of(names: Sequence[str]) -> str:
    """Return the kind of work that an op is: the first that it or an op around it is of."""
    plain = [name.rpartition("::")[2].lstrip("_") for name in names]
    for kind, parts in KINDS:
        if any(name == part if kind == "products" else part in name
               for name in plain for part in parts):  # fmt: skip
            return kind
    return "elementwise"


def product_name(m: int, k: int, n: int) -> str:
    """Return how the product [m, k] x [k, n] is called here."""
    return f"{m}x{k}x{n}"


def read_steps(path: Path) -> dict[str, RunSteps]:
    """Return the recorded runs of a kept file by name."""
    return msgspec.json.decode(gzip.decompress(path.read_bytes()), type=dict[str, RunSteps])


def main() -> None:
    """Read folders of recordings, and write their figures."""
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    options = parser.parse_args()
    runs = {}
    for folder in sorted(options.folders):
        if (folder / "rank0.steps.json").exists():
            runs[folder.name] = _run(folder)
            print(f"{folder.name}: {len(runs[folder.name].ranks)} ranks", flush=True)
    data = msgspec.json.encode(runs)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_bytes(gzip.compress(data, mtime=0))


def _run(folder: Path) -> RunSteps:
    from record_nccl import RUNS

    run = RUNS[folder.name]
    about = msgspec.json.decode((folder / "rank0.steps.json").read_bytes())
    ranks = [_rank(folder, rank) for rank in range(run.world)]
    return RunSteps(run.script, run.arguments, about["gpu"], about["torch"], about["nccl"], ranks)


def _rank(folder: Path, rank: int) -> RankSteps:
    about = msgspec.json.decode((folder / f"rank{rank}.steps.json").read_bytes())
    trace = msgspec.json.decode((folder / f"rank{rank}.json").read_bytes())
    ops = _Ops(trace["traceEvents"])
    calls = list(_calls(folder / f"rank{rank}.fr.json", _step_of(trace)))
    known = list(dict.fromkeys(calls))
    return RankSteps(
        [round(s, 6) for s in about["seconds"]],
        about["peak_bytes"],
        about["reserved_bytes"],
        ops.work(),
        ops.products(),
        known,
        [known.index(call) for call in calls],
    )


def _step_of(trace: dict[str, Any]) -> tuple[float, float]:
    """Return begin and end of the profiled step, in unix ns."""
    step = next(
        e
        for e in trace["traceEvents"]
        if e.get("cat") == "user_annotation" and e["name"].startswith("ProfilerStep")
    )
    begin = trace["baseTimeNanoseconds"] + 1e3 * step["ts"]
    return begin, begin + 1e3 * step["dur"]


def _calls(path: Path, within: tuple[float, float]) -> Iterator[Call]:
    """Return the calls of a dump that were made in the profiled step."""
    for document in documents(path):
        for call in read_flight_recorder(document).calls:
            if within[0] <= call.time <= within[1]:
                yield Call(call.op, call.ranks, call.size(len(call.ranks)), call.dtype, call.peer)


class _Ops:
    """The ops of a Kineto trace, and which op launched each kernel, in which phase."""

    def __init__(self, events: list[dict[str, Any]]) -> None:
        self.ops = sorted(
            (e for e in events if e.get("cat") == "cpu_op"), key=lambda e: (e["ts"], -e["dur"])
        )
        self.kernels = [e for e in events if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
        self.launched = {
            e["args"]["correlation"]: e
            for e in events
            if e.get("cat") in ("cuda_runtime", "cuda_driver") and "correlation" in e["args"]
        }
        self.optimizer = [
            (e["ts"], e["ts"] + e["dur"])
            for e in events
            if e.get("cat") == "user_annotation" and e["name"].startswith("Optimizer.step")
        ]
        self.above = self._nested()
        self.by_id = {e["args"]["External id"]: e for e in self.ops}
        self.main = next(e["tid"] for e in events if e["name"].startswith("Optimizer.zero_grad"))

    def _nested(self) -> dict[int, list[str]]:
        """Return the names of an op and the ops around it, by its id."""
        open_: dict[int, list[dict[str, Any]]] = defaultdict(list)
        names = {}
        for op in self.ops:
            stack = open_[op["tid"]]
            while stack and stack[-1]["ts"] + stack[-1]["dur"] <= op["ts"]:
                stack.pop()
            stack.append(op)
            names[op["args"]["External id"]] = [one["name"] for one in stack]
        return names

    def work(self) -> list[tuple[str, str, int, float]]:
        """Return kernels and their microseconds by phase and kind; what communicates apart."""
        found: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0, 0.0])
        for kernel in self.kernels:
            names = self.above.get(kernel["args"].get("External id", -1), [])
            launch = self.launched.get(kernel["args"].get("correlation", -1), kernel)
            phase, kind = self._phase(launch), kind_of(names)
            if phase == "optimizer":
                kind = "optimizer"
            if kernel["name"].startswith("nccl"):
                kind = "communication"
            if kernel["cat"] == "gpu_memset":
                kind = "memsets"
            sums = found[phase, kind]
            sums[0] += 1
            sums[1] += kernel["dur"]
        return [(*key, int(n), round(us, 1)) for key, (n, us) in sorted(found.items())]

    def products(self) -> dict[str, int]:
        """Return how many products of each shape ran: recomputation stops within its last."""
        ran = {kernel["args"].get("External id") for kernel in self.kernels}
        products = (op["args"] for op in self.ops if op["name"] == "aten::mm")
        shapes = (args["Input Dims"][:2] for args in products if args["External id"] in ran)
        return dict(sorted(Counter(product_name(*a, b[1]) for a, b in shapes).items()))

    def _phase(self, launch: dict[str, Any]) -> str:
        if any(begin <= launch["ts"] <= end for begin, end in self.optimizer):
            return "optimizer"
        return "forward" if launch["tid"] == self.main else "backward"


if __name__ == "__main__":
    main()
