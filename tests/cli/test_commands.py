"""What the commands print and write."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from commsim.cli.main import call
from commsim.metrics import PARTS

RUN_KEYS = {
    "schema", "commsim", "scenario", "step_time_s", "bubble_fraction", "bubble_ratio", "breakdown",
    "ranks", "mfu", "hfu", "tflops_per_gpu", "tokens_per_s", "tokens_per_s_per_gpu", "memory_gib",
    "collectives", "links", "critical_path", "cost", "notes", "headline", "limits", "waits",
}  # fmt: skip


@pytest.mark.parametrize("name", ["1f1b", "ring-all-reduce", "p2p-blocking", "quickstart"])
def test_every_key_of_the_json_is_there(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["run", name, "--json", "-", "-q"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert set(data) == RUN_KEYS
    parts = data["breakdown"]
    assert sum(parts[f"{part}_s"] for part in PARTS) == pytest.approx(data["step_time_s"], rel=1e-9)
    path = sum(piece["seconds"] for piece in data["critical_path"])
    assert path == pytest.approx(data["step_time_s"], rel=1e-9)


def test_same_scenario_same_bytes(capsys: pytest.CaptureFixture[str]) -> None:
    texts = []
    for _ in range(2):
        call(["run", "ddp", "--json", "-", "-q"])
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1]


def test_run_writes_what_it_is_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [tmp_path / name for name in ("g.svg", "g.html", "l.html", "t.json.gz", "r.json")]
    flags = ["--gantt", str(files[1]), "--links", str(files[2]), "--perfetto", str(files[3]),
             "--json", str(files[4]), "--csv", str(tmp_path / "tables")]  # fmt: skip
    assert call(["run", "ddp", *flags]) == 0
    assert call(["run", "ddp", "--gantt", str(files[0])]) == 0
    out = capsys.readouterr().out
    for path in files:
        assert path.stat().st_size > 1000
        assert f"{path}" in out
    ElementTree.parse(files[0])
    events = json.loads(gzip.decompress(files[3].read_bytes()))["traceEvents"]
    assert {event["ph"] for event in events} >= {"M", "X", "C"}
    assert (tmp_path / "tables" / "spans.csv").read_text().startswith("rank,stream,kind,name")


def test_bench_prints_nccl_tests_columns_and_the_crossover(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--nodes", "2", "--library", "ideal", "--algo", "ring,tree"]
    flags += ["-b", "1K", "-e", "256M", "-f", "64"]
    chart, path = tmp_path / "b.html", tmp_path / "b.json"
    assert call(["bench", "all_reduce", *flags, "--chart", str(chart), "--json", str(path)]) == 0
    out = capsys.readouterr().out
    head = out.splitlines()[:6]
    assert head[1] == "# cluster: 2 x dgx-h100  (by default; --cluster names another)"
    assert head[2:4] == ["# ranks: 16 on 2 nodes", "# library: ideal, network: fluid"]
    assert "algbw (GB/s)  busbw (GB/s)" in head[5]
    data = json.loads(path.read_text())
    assert data["schema"] == 1
    assert [row["size"] for row in data["results"][::2]] == [2**10, 2**16, 2**22, 2**28]
    assert {c["from"]: c["to"] for c in data["crossovers"]} == {"tree": "ring"}
    for row in data["results"]:
        assert row["algbw_gbs"] == pytest.approx(row["size"] / row["time_us"] * 1e-3, rel=1e-6)
        assert row["busbw_gbs"] == pytest.approx(row["algbw_gbs"] * 2 * 15 / 16, rel=1e-6)
    assert chart.stat().st_size > 10_000


def test_bench_says_by_which_protocol_algorithms_compete(
    capsys: pytest.CaptureFixture[str],
) -> None:
    flags = ["--cluster", "snellius-a100", "--nodes", "4", "-b", "16K", "-e", "64M", "-f", "64"]
    assert call(["bench", "all_reduce", *flags, "--algo", "ring,tree"]) == 0
    assert "Ring beats Tree, each by the protocol shown" in capsys.readouterr().out
    assert call(["bench", "all_reduce", *flags, "--algo", "all"]) == 0
    assert "by the protocol shown" not in capsys.readouterr().out


def test_the_account_of_ranks_that_end_apart_is_of_their_mean(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert call(["replay", "example-dlrm"]) == 0
    lines = capsys.readouterr().out.splitlines()
    (at,) = (n for n, line in enumerate(lines) if line.startswith("step time"))
    assert lines[at + 1].split()[:4] == ["mean", "of", "the", "ranks"]
    times = [line.split() for line in lines[at + 1 : lines.index("", at)]]
    shares = [float(line[-1].rstrip("%")) for line in times if line[-1].endswith("%")]
    assert sum(shares) == pytest.approx(100, abs=0.5)


def test_bench_takes_the_words_of_nccl_tests(capsys: pytest.CaptureFixture[str]) -> None:
    """all_reduce_perf -b 1M -e 1M -g 4 -n 20 -w 5, as people have it in their shell's history."""
    words = "bench all_reduce_perf,sendrecv_perf -b 1M -e 1M -g 4 -n 20 -w 5 --cluster dgx-a100"
    assert call(words.split()) == 0
    captured = capsys.readouterr()
    lines = captured.out.splitlines()
    assert lines[2:4] == ["# ranks: 4 on 1 node", "# library: nccl 2.27, network: fluid"]
    assert [line.split()[0] for line in lines[6:]] == ["all_reduce", "send_recv"]
    assert "-n and -w change nothing" in captured.err


def test_presets_and_topo(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["presets"]) == 0
    listing = capsys.readouterr().out
    for name in ("dgx-1v", "dgx-a100", "dgx-h100", "H100-SXM5-80GB", "gpt2-1.5b", "quickstart"):
        assert name in listing
    assert call(["presets", "show", "dgx-h100"]) == 0
    assert "documented" in capsys.readouterr().out
    assert call(["presets", "show", "dgx-h1000"]) == 2
    assert "Did you mean 'dgx-h100'" in capsys.readouterr().err
    assert call(["topo", "dgx-h100", "--nodes", "4"]) == 0
    assert "4 nodes, 32 GPUs" in capsys.readouterr().out
