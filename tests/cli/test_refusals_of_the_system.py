"""What the operating system refuses: one sentence that names the file, and nothing half-written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.closed_pipes import run_unread
from helpers.paths import ROOT

ENV = {"PATH": os.environ["PATH"]}


def commsim(
    *words: str, env: dict[str, str] | None = None, most: int | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command; `most` bytes may be written to one file, as on a full disk."""

    limit = "" if most is None else _FULL.format(most=most)
    script = f"import sys\nfrom commsim.cli.main import entry\n{limit}entry()"
    return subprocess.run(
        [sys.executable, "-B", "-c", script, *words],
        capture_output=True, text=True, check=False, cwd=ROOT, env=env,
    )  # fmt: skip


_FULL = """import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # a write fails, as with no space left
resource.setrlimit(resource.RLIMIT_FSIZE, ({most}, {most}))
"""


VARY = ("--vary", "workload.pipeline.microbatches=4,8", "--executor", "serial")


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (("run", "1f1b", "-o"), "x.html"),
        (("run", "1f1b", "--json"), "x.json"),
        (("run", "1f1b", "--perfetto"), "x.json.gz"),
        (("topo", "dgx-h100", "--nccl-xml"), "x.xml"),
        (("convert", str(ROOT / "tests/data/gloo_runs/p2p-2")), "x.npz"),
        (("convert", str(ROOT / "tests/data/gloo_runs/p2p-2")), "x.goal"),
        (("sweep", "1f1b", *VARY, "--store"), "x.sqlite"),
        (("run", "1f1b", "--csv"), "tables"),
        (("run", "1f1b", "--kineto"), "traces"),
    ],
)
def test_a_full_disk(words: tuple[str, ...], name: str, tmp_path: Path) -> None:
    done = commsim(*words, str(tmp_path / name), most=64)
    assert done.returncode == 2
    assert name in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_store_that_stood_there_stays(tmp_path: Path) -> None:
    store = tmp_path / "x.sqlite"
    store.touch()
    assert commsim("sweep", "1f1b", *VARY, "--store", str(store), most=64).returncode == 2
    assert list(tmp_path.iterdir()) == [store]


@pytest.mark.parametrize(
    "line",
    ["--help", "presets", "topo dgx-a100", "explain ring", "run 1f1b -q", "run 1f1b -q --json -"],
)
def test_standard_output_on_a_full_disk(line: str) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "commsim", *line.split()],
            stdout=full, stderr=subprocess.PIPE, text=True, check=False, cwd=ROOT,
        )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr == "commsim: standard output: No space left on device.\n"


def test_files_are_written_though_standard_output_is_full(tmp_path: Path) -> None:
    """The tables of a sweep are printed before its files are written."""
    table = tmp_path / "x.csv"
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "commsim", "sweep", "1f1b", *VARY, "-q", "--csv", str(table)],
            stdout=full, check=False, cwd=ROOT,
        )  # fmt: skip
    assert done.returncode == 2
    assert len(table.read_text().splitlines()) == 3


@pytest.mark.parametrize("words", ["run 1f1b -q --json", "convert {run} --to goal -q -o"])
def test_a_closed_pipe_by_the_name_of_a_file(words: str) -> None:
    line = words.format(run=ROOT / "tests/data/gloo_runs/p2p-2").split()
    done = run_unread("-m", "commsim", *line, "/dev/stdout", cwd=ROOT)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize(
    "name", [b"new\nline", b"-dash", b"byte\xff\xfe", b"spa ce", "\N{ROCKET} größe".encode()]
)
def test_names_of_any_bytes_without_utf_8(name: bytes, tmp_path: Path) -> None:
    log = (ROOT / "examples/nccl-tests/all_reduce.log").read_bytes()
    beginning = os.fsencode(tmp_path) + b"/" + name
    with open(beginning + b".log", "wb") as file:
        file.write(log)
    words = [b"calibrate", beginning + b".log", b"--cluster", b"dgx-a100"]
    for option, suffix in ((b"-o", b".yaml"), (b"--json", b".json"), (b"--report", b".html")):
        words += [option, beginning + suffix]
    env = ENV | {"LC_ALL": "C", "PYTHONUTF8": "0"}
    done = subprocess.run(
        [sys.executable, "-m", "commsim", *words], capture_output=True, check=False, cwd=ROOT,
        env=env,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = json.loads((tmp_path / os.fsdecode(name + b".json")).read_bytes())
    assert name.decode("utf-8", "replace") in str(told["tables"]).replace("\\n", "\n")
    missing = subprocess.run(
        [sys.executable, "-m", "commsim", "run", beginning], capture_output=True, check=False,
        cwd=ROOT, env=env,
    )  # fmt: skip
    assert missing.returncode == 2
    assert b"Traceback" not in missing.stderr


def test_tables_are_written_all_or_none(tmp_path: Path) -> None:
    """The spans of this run fit where a later table does not."""
    done = commsim("run", "ring-all-reduce", "--csv", str(tmp_path / "x"), most=700)
    assert done.returncode == 2
    assert "links.csv: cannot be written" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_pipe_that_cannot_be_kept(tmp_path: Path) -> None:
    read, write = os.pipe()
    os.write(write, (ROOT / "scenarios" / "1f1b.yaml").read_bytes())
    os.close(write)
    script = f"import sys\nfrom commsim.cli.main import entry\n{_FULL.format(most=64)}entry()"
    done = subprocess.run(
        [sys.executable, "-B", "-c", script, "run", "-"], capture_output=True, text=True,
        check=False, cwd=ROOT, stdin=read, env={**os.environ, "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    os.close(read)
    assert done.returncode == 2
    assert f"standard input: cannot be read (its copy in {tmp_path}: File too" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_traces_of_every_rank_on_a_full_disk(tmp_path: Path) -> None:
    traces = str(ROOT / "tests/data/gloo_runs/p2p-2")
    done = commsim("convert", traces, str(tmp_path / "out"), "--to", "chakra", most=64)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_missing_folder(tmp_path: Path) -> None:
    done = commsim("run", "1f1b", "--json", str(tmp_path / "no" / "x.json"))
    assert done.returncode == 2
    assert "no" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("env", [ENV, {**ENV, "LC_ALL": "C", "PYTHONUTF8": "0"}], ids=["bare", "C"])
def test_no_home_and_no_utf_8(env: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    text = "name: größer – µs\nworkload: {pipeline: {stages: 2, microbatches: 2, forward: 1ms,"
    file.write_text(f"{text} backward: 2ms}}}}\n", encoding="utf-8")
    done = commsim("run", str(file), "-o", str(tmp_path / "x.html"), env=env)
    assert done.returncode == 0, done.stderr
    assert "größer – µs" in (tmp_path / "x.html").read_text(encoding="utf-8")


def test_bytecode_that_a_full_disk_cut_is_said(tmp_path: Path) -> None:
    """Python before 3.12.8 keeps what it could write of a module, and fails on it ever after."""
    script = "from commsim.cli.main import entry\nentry()"

    def presets() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", script, "presets"], capture_output=True, text=True, check=False,
            cwd=ROOT, env=ENV | {"PYTHONPYCACHEPREFIX": str(tmp_path)},
        )  # fmt: skip

    assert presets().returncode == 0
    (kept,) = tmp_path.rglob("commsim/cli/commands/presets.*.pyc")
    kept.write_bytes(kept.read_bytes()[:64])
    done = presets()
    assert done.returncode == 2
    assert "a file is cut off" in done.stderr
    assert "__pycache__" in done.stderr
    assert "Traceback" not in done.stderr
