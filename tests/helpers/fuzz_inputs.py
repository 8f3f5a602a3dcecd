"""
Every kind of input that somebody else may have written, a small valid one each, and what reads it.

`attempt` reads a damaged one: whatever comes of it is an answer with finite numbers or one of
commsim's own errors.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import math
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import click

import commsim as cs
from commsim.cli.main import call
from commsim.graph import load_graph, save_graph
from commsim.limits import limited_to
from commsim.scenario import read_recipe
from commsim.timeline import load_timeline, save_timeline
from commsim.traces import import_graph
from commsim.units import parse_size
from helpers import fuzz_samples as samples
from helpers.invariants import numbers
from helpers.kept import Account, account
from helpers.mutators import MUTATORS, damaged_words
from helpers.paths import ROOT, TESTS

__all__ = [
    "EACH", "INPUTS", "NOT_KEPT", "SEEDS", "Input", "ReaderError", "Refused", "account_of_answers",
    "answer_of", "attempt", "is_tried", "valid",
]  # fmt: skip

GLOO = TESTS / "data" / "gloo_runs"
CPU_SECONDS = 10
SEEDS = 25_000  # of each kind, over a million in all
_DEAR_SEEDS = 1_000  # of those that run whole steps, or many
_DEAR = {
    "training.yaml", "collectives.yaml", "jobs.yaml", "faults.yaml", "goodput.yaml", "offload.yaml",
    "fabric.yaml", "words7.json", "words8.json", "words9.json", "words10.json", "words12.json",
}  # fmt: skip
_MEMORY = "200MB"  # a run of more than 100,000 operations is refused: in time, by its size
EACH = 12  # of each kind, by default
NOT_KEPT = ("graph.npz", "timeline.npz", "fr_rank0.pickle")
"""Inputs whose bytes depend on the version of a library, or of commsim."""
CODES = {0, 1, 2, 3, 4, 5}


class ReaderError(Exception):
    """What a reader must not do."""


@dataclass(frozen=True)
class Input:
    """A valid file, how it is damaged, and what reads it: from its path to its answer."""

    name: str
    make: Callable[[], bytes]
    ways: tuple[str, ...]
    read: Callable[[Path], Any]


class Refused(NamedTuple):
    """What a damaged input was refused with: the kind of error."""

    error: str


def attempt(kind: Input, seed: int, folder: Path) -> bool:
    """Damage an input by a seed and read it; return whether it was read, not refused.

    Raises:
        ReaderError: another exception, a number that is none, too long, or a wrong exit code.
    """
    return not isinstance(answer_of(kind, seed, folder), Refused)


def answer_of(kind: Input, seed: int, folder: Path) -> Any:
    """Return what the reader of a damaged input says, or that it was refused.

    Raises:
        ReaderError: as `attempt`.
    """
    random = Random(f"{kind.name} {seed}")
    data = valid(kind.name)
    path = folder / kind.name
    if kind.ways == ("words",):
        path.write_text(json.dumps(damaged_words(json.loads(data), random)), errors="replace")
    else:
        path.write_bytes(MUTATORS[random.choice(kind.ways)](data, random))
    before = set(folder.iterdir())
    try:
        with _limited(), limited_to(parse_size(_MEMORY)):
            answer = kind.read(path)
    except (cs.CommsimError, click.ClickException) as error:
        if not str(error) and not isinstance(error, click.ClickException):
            raise ReaderError("an error without a word") from error
        return Refused(type(error).__name__)
    except ReaderError:
        raise
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        raise ReaderError(f"{type(error).__name__}: {error}") from error
    finally:
        new = set(folder.iterdir()) - before
        for one in new:
            if one.is_file():
                one.unlink()
    for where, value in numbers(answer):
        if not math.isfinite(value) or (value < 0 and where.endswith("_s")):
            raise ReaderError(f"{where} is {value}")
    return answer


def is_tried(kind: Input, seed: int) -> bool:
    """Whether a long run tries this seed: of what takes longest, the first ones alone."""
    return seed < _DEAR_SEEDS or kind.name not in _DEAR


def account_of_answers(kind: Input, count: int, folder: Path) -> Account:
    """Return the account of what becomes of a kind's first damaged inputs, by their seed."""
    answers: dict[str, Any] = {}
    for seed in range(count):
        answer = answer_of(kind, seed, folder)
        answers[str(seed)] = answer.error if isinstance(answer, Refused) else answer
    text = json.dumps(answers, default=str).replace(str(folder), "FOLDER")
    return account(json.loads(text), depth=2)


class _TooLong(BaseException):
    pass


@contextlib.contextmanager
def _limited() -> Iterator[None]:
    """Raise after so many seconds of the CPU; in numpy's own code, when that is left."""

    def stop(*_: Any) -> None:
        raise _TooLong(f"more than {CPU_SECONDS} s of CPU")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


@cache
def valid(name: str) -> bytes:
    """Return the valid content of an input."""
    return next(kind.make() for kind in INPUTS if kind.name == name)


def _run(path: Path) -> Any:
    return cs.run(path).to_dict()


def _imported(path: Path) -> Any:
    return _simulated(import_graph(path).graph)


def _replayed(path: Path) -> Any:
    return cs.replay(path).result.to_dict()


def _simulated(graph: cs.Graph) -> Any:
    """Run as the textbook would."""
    timeline = cs.simulate(graph, cs.Cluster.preset("dgx-h100"), library=cs.Ideal())
    return cs.measure(timeline).to_dict()


def _measured(path: Path) -> Any:
    return cs.measure(load_timeline(path)).to_dict()


def _compared(path: Path) -> Any:
    other = path.parent / f"valid-{path.name}"
    other.write_bytes(valid(path.name))
    return cs.compare(other, path).to_dict()


def _cluster(path: Path) -> Any:
    return _called(["topo", str(path)])


def _algorithm(path: Path) -> Any:
    cluster = cs.Cluster.preset("dgx-h100")
    library = cs.LibrarySection("ideal", algo=str(path))
    return cs.bench(cluster, "all_reduce", "1MiB", library=library).to_dict()


def _schedule(path: Path) -> Any:
    pipeline = {"stages": 4, "microbatches": 8, "schedule": path.name, "forward": "1ms",
                "backward": "2ms"}  # fmt: skip
    file = path.parent / "pipeline.yaml"
    file.write_text(json.dumps({"workload": {"pipeline": pipeline}}))
    return cs.run(file).to_dict()


def _recipe(path: Path) -> Any:
    return read_recipe(path, cluster="dgx-h100", nodes=1).data


def _called(words: list[str]) -> Any:
    told, sink = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(told), contextlib.redirect_stderr(sink):
        code = call(words)
    if code not in CODES:
        raise ReaderError(f"exit code {code}")
    if code and not sink.getvalue() and not told.getvalue():
        raise ReaderError(f"exit code {code} without a word")
    answer = told.getvalue().lower()
    for word in words:  # what was asked for may be called nan, and is named
        if "nan" in word.lower():
            answer = answer.replace(word.lower().rpartition("=")[2], "")
    if "Traceback" in sink.getvalue() or " nan" in answer:
        raise ReaderError((sink.getvalue() + told.getvalue())[-300:])
    if code:
        raise cs.CommsimError(sink.getvalue() or told.getvalue())
    return {"printed": told.getvalue()}


def _command(path: Path) -> Any:
    words = [word for word in json.loads(path.read_text()) if "\0" not in word]
    here = Path.cwd()
    os.chdir(path.parent)
    try:
        return _called(words)
    finally:
        os.chdir(here)


def _arguments(path: Path) -> Any:
    """Python: what a notebook passes."""
    asked = json.loads(path.read_text())
    if not isinstance(asked, dict):
        return {}
    preset, bench = asked.get("preset"), asked.get("bench")
    if not isinstance(preset, dict) or not isinstance(bench, dict):
        return {}
    known = {"name", "nodes", "fabric", "overrides"}
    if set(preset) <= known and "name" in preset and set(bench) <= {"op", "sizes", "library"}:
        cluster = cs.Cluster.preset(**preset)
        if cluster.world_size <= 64 and {"op", "sizes"} <= set(bench):
            cs.bench(cluster, bench["op"], bench["sizes"], library=bench.get("library", "auto"))
    return cs.run(asked.get("run", "")).to_dict()


def _file(*parts: str) -> Callable[[], bytes]:
    return lambda: TESTS.joinpath("data", *parts).read_bytes()


def _unpacked(*parts: str) -> Callable[[], bytes]:
    return lambda: gzip.decompress(TESTS.joinpath("data", *parts).read_bytes())


def _catalogue(name: str) -> Callable[[], bytes]:
    return lambda: (ROOT / "scenarios" / f"{name}.yaml").read_bytes()


def _text(text: str) -> Callable[[], bytes]:
    return lambda: text.encode()


def _plain(data: Any) -> Callable[[], bytes]:
    return lambda: json.dumps(data).encode()


def _result() -> bytes:
    from commsim.files import json_bytes

    return json_bytes(cs.run("1f1b").to_dict())


def _bench() -> bytes:
    from commsim.files import json_bytes

    return json_bytes(cs.bench(cs.Cluster.preset("dgx-h100"), "all_reduce", "1MiB").to_dict())


def _through(write: Callable[[Path], object], suffix: str) -> bytes:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"x{suffix}"
        write(path)
        return path.read_bytes()


def _graph() -> bytes:
    return _through(lambda path: save_graph(cs.run("sub-groups").timeline.graph, path), ".npz")


def _timeline() -> bytes:
    return _through(lambda path: save_timeline(cs.run("quickstart").timeline, path), ".npz")


def _chakra() -> bytes:
    def write(path: Path) -> None:
        cs.convert(GLOO / "p2p-2", path.parent / "c", to="chakra")
        found = sorted(path.parent.rglob("*0.et"))
        path.write_bytes(found[0].read_bytes())

    return _through(write, ".0.et")


INPUTS: tuple[Input, ...] = (
    *(
        Input(f"{name}.yaml", make, ("yaml", "yaml", "yaml", "lines", "bytes"), _run)
        for name, make in {
            "training": _text(samples.TRAINING),
            "collectives": _text(samples.COLLECTIVES),
            "batched": _catalogue("batched-exchange"),
            "libraries": _catalogue("two-libraries"),
            "pipeline": _catalogue("zero-bubble"),
            "interleaved": _catalogue("interleaved"),
            "jobs": _catalogue("two-jobs"),
            "faults": _catalogue("faults"),
            "goodput": _catalogue("goodput"),
            "server": _catalogue("parameter-server"),
            "offload": _catalogue("zero-offload"),
            "graph": _catalogue("graph"),
            "staging": _catalogue("gloo-staging"),
            "fabric": _catalogue("dragonfly"),
        }.items()
    ),
    Input("cluster.yaml", _text(samples.CLUSTER), ("yaml", "yaml", "lines"), _cluster),
    Input("nccl.xml", _file("nccl", "dgx_a100.xml"), ("xml", "xml", "bytes"), _cluster),
    Input("msccl.xml", _file("msccl", "ring_all_reduce.xml"), ("xml", "xml", "bytes"), _algorithm),
    Input("tests.log", _file("nccl_tests", "a100_8_v2.19.4.log"), ("lines", "bytes"), _compared),
    Input("tests.json", _file("nccl_tests", "h100_8.json"), ("json", "json", "bytes"), _compared),
    Input("rank0.json", _unpacked("gloo_runs", "p2p-2", "rank0.json.gz"), ("json", "json", "bytes"),
          _replayed),
    Input("et_rank0.json", _unpacked("gloo_runs", "p2p-2", "rank0.et.json.gz"),
          ("json", "json", "bytes"), _imported),
    Input("chakra.0.json", _plain(samples.CHAKRA), ("json", "json", "bytes"), _imported),
    Input("chakra.0.et", _chakra, ("bytes",), _imported),
    Input("param_rank0.json", _plain(samples.PARAM), ("json", "json", "bytes"), _imported),
    Input("x.goal", _text(samples.GOAL), ("lines", "lines", "bytes"), _imported),
    Input("run.log", _text(samples.NCCL_LOG * 3), ("lines", "lines", "bytes"), _imported),
    Input("fr_rank0.json", _plain(samples.FLIGHT), ("json", "json", "bytes"), _imported),
    Input("fr_rank0.pickle", _file("gloo_runs", "ddp-2", "rank0.fr.pickle"), ("bytes",), _imported),
    Input("graph.npz", _graph, ("arrays", "arrays", "arrays", "bytes"),
          lambda path: _simulated(load_graph(path))),
    Input("timeline.npz", _timeline, ("arrays", "arrays", "arrays", "bytes"), _measured),
    Input("result.json", _result, ("json", "json", "bytes"), _compared),
    Input("bench.json", _bench, ("json", "json", "bytes"), _compared),
    Input("schedule.csv", _file("torch_schedules", "ScheduleInterleaved1F1B.comms.csv"),
          ("table", "table", "bytes"), _schedule),
    Input("titan.toml",
          _text('[model]\nname = "llama3"\nflavor = "8B"\n[training]\nseq_len = 8192\n'
          "local_batch_size = 2\n[parallelism]\ntensor_parallel_degree = 2\n"),
          ("lines", "lines", "bytes"), _recipe),
    Input("megatron.sh", _text("ARGS=(\n--num-layers 80 --hidden-size 8192\n"
          "--num-attention-heads 64 --seq-length 4096 --vocab-size 32000 --swiglu\n)\n"
          "torchrun --nproc_per_node 8 pretrain_gpt.py ${ARGS[@]} --tensor-model-parallel-size 8"
          " --micro-batch-size 1 --global-batch-size=128\n"), ("lines", "lines", "bytes"), _recipe),
    *(Input(f"words{at}.json", _plain(line.split()), ("words",), _command)
      for at, line in enumerate(samples.WORDS)),
    Input("arguments.json", _plain({
        "preset": {"name": "dgx-h100", "nodes": 2, "fabric": {"kind": "fat_tree"}},
        "bench": {"op": "all_reduce", "sizes": "1MiB", "library": "nccl"},
        "run": {"workload": {"pipeline": {"stages": 2, "microbatches": 4, "forward": "1ms",
                "backward": "2ms"}}}}), ("json",), _arguments),
)  # fmt: skip
