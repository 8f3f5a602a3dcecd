"""Every input may be a pipe: `<(...)`, /dev/stdin, "-", a FIFO. Every odd file is called so."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from helpers.paths import ROOT

from commsim import input_files
from commsim.cli.main import call

DATA = ROOT / "tests" / "data"
SCENARIO = ROOT / "scenarios" / "1f1b.yaml"
LOG = ROOT / "examples" / "nccl-tests" / "all_reduce.log"
MSCCL = DATA / "msccl" / "ring_all_reduce.xml"
RANKS = [DATA / "gloo_runs" / "p2p-2" / f"rank{rank}.json.gz" for rank in (0, 1)]
CLUSTER = b"preset: dgx-a100\n"
SCHEDULE = b"0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n"
RECIPE = b"[model]\nname = 'llama3'\nflavor = '8B'\n[training]\nseq_len = 4096\n"

Piped = Callable[[bytes | Path], str]


@pytest.fixture
def piped() -> Iterator[Piped]:
    """Return the name of a pipe that holds so much, as a shell's `<(...)` gives it."""
    ends: list[int] = []

    def name(held: bytes | Path) -> str:
        read, write = os.pipe()
        os.write(write, held if isinstance(held, bytes) else held.read_bytes())
        os.close(write)
        ends.append(read)
        return f"/dev/fd/{read}"

    yield name
    for end in ends:
        os.close(end)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (["run", SCENARIO], "step time"),
        (["compare", SCENARIO, "1f1b"], "within 5% of A"),
        (["compare", LOG, CLUSTER], "of A (medians by band)"),
        (["check", LOG, "--cluster", "dgx-a100", "--tolerance", "100%"], "all_reduce"),
        (["calibrate", LOG, "--cluster", CLUSTER], "median error"),
        (["replay", *RANKS], "step time"),
        (["convert", RANKS[0], "OUT.npz"], "wrote"),
        (["convert", RECIPE, "--cluster", "dgx-h100", "OUT.yaml"], "torchtitan"),
        (["convert", SCHEDULE, "OUT.npz"], "pipeline schedule"),
        (["explain", MSCCL], "all-reduce by ring_two_channels"),
        (["topo", CLUSTER], "A100"),
        (["bench", "all_reduce", "-e", "8", "--cluster", CLUSTER], "# ranks: 8"),
        (["bench", "all_reduce", "-g", "4", "-e", "8", "--algo", MSCCL], "# ranks: 4"),
    ],
    ids=lambda part: " ".join(map(str, part[:1])) if isinstance(part, list) else "",
)
def test_a_pipe_is_an_input(
    line: list[str | bytes | Path],
    told: str,
    piped: Piped,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = [word if isinstance(word, str) else piped(word) for word in line]
    code = call([word.replace("OUT", str(tmp_path / "out")) for word in words])
    said = capsys.readouterr()
    assert code == 0, said.err
    assert told in said.out


def test_a_graph_and_a_topology_file_are_looked_at_twice(
    piped: Piped, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    graph, xml = tmp_path / "x.npz", tmp_path / "x.xml"
    assert call(["convert", str(RANKS[0].parent), str(graph)]) == 0
    assert call(["topo", "dgx-h100", "--nccl-xml", str(xml)]) == 0
    assert call(["convert", piped(graph), str(tmp_path / "x.goal")]) == 0
    assert call(["topo", piped(xml)]) == 0
    assert "way 0 to 1" in capsys.readouterr().out


def test_a_schedule_from_a_pipe(
    piped: Piped, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As from a table, in a pipeline and in a training; it is told by its content."""
    table = tmp_path / "order.CSV"
    table.write_bytes(SCHEDULE)
    pipeline = ["run", "1f1b", "--set", "workload.pipeline.stages=2"]
    pipeline += ["--set", "workload.pipeline.microbatches=2"]
    training = ["run", "dp-pp-tp", "--set", "workload.training.batch.global=8"]
    for line, key in ((pipeline, "pipeline"), (training, "training.parallel")):
        told = []
        for name in (piped(SCHEDULE), str(table)):
            assert call([*line, "--set", f"workload.{key}.schedule={name}", "-q"]) == 0
            told.append(capsys.readouterr().out.replace("order.CSV", "schedule"))
        assert told[0] == told[1]


def test_a_sweep_runs_what_a_pipe_holds_and_not_what_it_held(
    piped: Piped, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its workers have no such pipe, and a store may know its name from before."""
    slow = b"0F0,0B0,0F1,0B1\n1F0,1B0,1F1,1B1\n"
    line = ["sweep", "1f1b", "--vary", "workload.pipeline.forward=1ms", "-q"]
    for setting in ("stages=2", "microbatches=2"):
        line += ["--set", f"workload.pipeline.{setting}"]
    found = []
    for held, more in ((SCHEDULE, ["serial"]), (slow, ["serial"]), (slow, ["processes:2"])):
        name = tmp_path / "pipe"
        name.unlink(missing_ok=True)
        name.symlink_to(piped(held))
        store = [] if more == ["processes:2"] else ["--store", str(tmp_path / "kept.sqlite")]
        setting = f"workload.pipeline.schedule={name}"
        assert call([*line, "--set", setting, "--executor", *more, *store]) == 0
        found.append(capsys.readouterr().out)
    assert "failed" not in found[0]
    assert found[0] != found[1] == found[2]


def test_standard_input_is_an_input() -> None:
    for line in (
        ["compare", "-", "1f1b"],
        ["compare", "/dev/stdin", "1f1b"],
        ["sweep", "-", *VARY],
    ):
        with SCENARIO.open("rb") as file:
            done = commsim(line, stdin=file)
        assert done.returncode == 0, done.stderr


def test_standard_input_may_be_a_socket() -> None:
    near, far = socket.socketpair()
    with near, far:
        near.sendall(SCENARIO.read_bytes())
        near.shutdown(socket.SHUT_WR)
        done = commsim(["compare", "-", "1f1b"], stdin=far)
    assert done.returncode == 0, done.stderr


def test_a_pipe_may_hold_more_than_a_device_and_no_more_than_any_trace(
    piped: Piped, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(input_files, "_MOST_OF_DEVICE", 0)
    monkeypatch.setattr(input_files, "_MOST", 5000)
    assert len(input_files.readable(piped(bytes(5000))).read_bytes()) == 5000
    with pytest.raises(OSError, match="holds more than 0 MiB"):
        input_files.readable(piped(bytes(5001)))


def test_a_device_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_files, "_MOST_OF_DEVICE", 2**20)
    with pytest.raises(OSError, match="holds more than 1 MiB"):
        input_files.readable("/dev/zero")


def test_a_file_that_may_not_be_read_is_called_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)  # whoever is root may read all
    assert input_files.file_problem(SCENARIO) == "cannot be read (Permission denied)"


VARY = ["--vary", "workload.pipeline.microbatches=4,8", "--executor", "serial"]


def commsim(line: list[str], **streams: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "commsim", *line]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, **streams)  # type: ignore[call-overload,no-any-return]


def test_no_standard_input_is_said() -> None:
    done = commsim(["compare", "-", "1f1b"], preexec_fn=lambda: os.close(0))
    assert done.returncode == 3
    assert done.stderr == "commsim: -: is closed.\n"


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("loop.yaml", "is a link that leads back to itself"),
        ("lost.yaml", "is a link to gone.yaml, which is not there"),
        ("folder.yaml", "is a folder"),
        ("none.yaml", "there is no such file"),
    ],
)
@pytest.mark.parametrize(
    "line",
    [
        ["run", "FILE"], ["compare", "FILE", "1f1b"], ["check", "FILE", "--cluster", "dgx-a100"],
        ["topo", "FILE"], ["convert", "FILE", "OUT.goal"], ["explain", "FILE.xml"],
    ],
    ids=lambda line: str(line[0]),
)  # fmt: skip
def test_what_is_no_file_is_called_what_it_is(
    line: list[str], name: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    suffix = ".xml" if line[0] == "explain" else ""
    file = tmp_path / f"{name}{suffix}"
    if name.startswith("loop"):
        file.symlink_to(file.name)
    elif name.startswith("lost"):
        file.symlink_to("gone.yaml")
    elif name.startswith("folder"):
        file.mkdir()
    places = {"FILE": str(file), "FILE.xml": str(file), "OUT.goal": str(tmp_path / "out.goal")}
    assert call([places.get(word, word) for word in line]) in (2, 3)
    error = capsys.readouterr().err
    assert name in error
    assert told in error or ("folder" in name and "folder" in error)
