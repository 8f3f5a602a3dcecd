"""The chart options: each writes its file, says so, and says what is missing."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from commsim.cli.commands.charts import CHARTS, write_chart
from commsim.cli.main import call
from commsim.study.replay import replay


def figures(path: Path) -> list[dict[str, Any]]:
    """Return the figures of a page."""
    found = re.search(r'id="figures">(.*?)</script>', path.read_text(), re.DOTALL)
    assert found is not None
    shown: list[dict[str, Any]] = json.loads(found.group(1).replace("<\\/", "</"))
    return shown


def titles(path: Path) -> list[str]:
    return [figure["layout"]["title"]["text"] for figure in figures(path)]


def test_run_writes_every_chart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = {kind: tmp_path / f"{kind}.html" for kind in CHARTS}
    options = [word for kind, path in files.items() for word in (f"--{kind}", str(path))]
    ring = ["--set", "library.name=ideal", "--set", "library.algo=ring"]
    assert call(["run", "quickstart", "-q", *ring, *options]) == 0
    said = capsys.readouterr().out
    for path in files.values():
        assert str(path) in said
    for kind, path in files.items():
        if kind != "gantt":
            assert len(figures(path)) == 1
    page = files["gantt"].read_text()
    assert 'id="viewer"' in page  # zoomed and searched, and a fraction of plotly's size
    assert len(page) < 600_000
    assert "Busiest link" in titles(files["topology"])[0]
    assert "from GPU" in titles(files["matrix"])[0]


def test_a_run_without_a_cluster_has_no_topology(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(["run", "1f1b", "-q", "--topology", str(tmp_path / "t.html")]) == 2
    assert "--topology: this run has no cluster" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_topo_draws_a_cluster_and_its_speeds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chart, matrix = tmp_path / "c.html", tmp_path / "m.html"
    line = ["topo", "dgx-h100", "--nodes", "64", "--chart", str(chart), "--matrix", str(matrix)]
    assert call(line) == 0
    assert f"wrote {chart}" in capsys.readouterr().out
    assert "512 GPUs on 64 nodes" in titles(chart)[0]
    assert len(figures(matrix)[0]["data"][0]["z"]) == 64


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("all_reduce,all_gather", "holds one op, and this bench has all_reduce, all_gather"),
        ("all_reduce --algo ring,tree", "several algorithms"),
    ],
)
def test_what_nccl_tests_json_cannot_hold_is_refused_before_the_work(
    words: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr("commsim.study.bench.bench", None)
    line = ["bench", *words.split(), "--nccl-tests", str(tmp_path / "x.json")]
    assert call(line) == 2
    assert told in capsys.readouterr().err


def test_bench_writes_nccl_tests_json(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    line = ["bench", "all_gather", "--cluster", "dgx-a100", "--nodes", "2", "-q"]
    assert call([*line, "-b", "1M", "-e", "4M", "--nccl-tests", str(path)]) == 0
    assert [row["size"] for row in json.loads(path.read_text())["results"]] == [2**20, 2**21, 2**22]


@pytest.mark.parametrize("launch", ["gpu", "process"])
def test_a_bench_read_back_is_the_bench(
    launch: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Who launched it comes back too: one process for eight GPUs takes twice as long at 8 bytes."""
    path = str(tmp_path / "t.json")
    line = [
        "bench",
        "all_reduce",
        "--cluster",
        "dgx-h100",
        "-q",
        "-b",
        "8",
        "-e",
        "64M",
        "-f",
        "64",
    ]
    more = ["--launch", launch] if launch != "gpu" else []
    assert call([*line, *more, "--nccl-tests", path]) == 0
    capsys.readouterr()
    assert call(["compare", path, "dgx-h100"]) == 0
    told = capsys.readouterr().out.split("(medians)")[0]
    assert set(re.findall(r"[\d.]+%", told)) == {"0.0%"}


def test_run_writes_perfetto(tmp_path: Path) -> None:
    pytest.importorskip("google.protobuf")
    path = tmp_path / "a.pftrace"
    assert call(["run", "1f1b", "-q", "--perfetto", str(path)]) == 0
    assert path.stat().st_size > 1000


def test_a_trace_is_drawn_above_its_replay(shared_data: Path, tmp_path: Path) -> None:
    result = replay(shared_data / "traces" / "dev_param_dlrm_8xV100").result
    path = tmp_path / "breakdown.html"
    assert write_chart("breakdown", result, path) == [path]
    above, below = figures(path)
    assert above["layout"]["title"]["text"].startswith("<b>Measured: ")
    assert below["layout"]["title"]["text"].startswith("<b>Replayed: ")
    assert above["layout"]["xaxis"]["range"] == below["layout"]["xaxis"]["range"]
    assert write_chart("gantt", result, tmp_path / "g.html") == [tmp_path / "g.html"]
    assert '"runs":["measured","replayed"]' in (tmp_path / "g.html").read_text()
    pictures = write_chart("gantt", result, tmp_path / "g.svg")
    assert [path.name for path in pictures] == ["g.measured.svg", "g.svg"]
    assert all(path.read_text().startswith("<svg") for path in pictures)


@pytest.mark.parametrize("suffix", [".png", ".pdf"])
def test_a_picture_needs_kaleido_and_says_so(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    suffix: str,
) -> None:
    import importlib.util

    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "kaleido" else find(name)
    )
    assert call(["topo", "dgx-h100", "--chart", str(tmp_path / f"a{suffix}")]) == 2
    said = capsys.readouterr().err
    assert 'pip install "commsim[png]"' in said
    assert "plotly_get_chrome" in said


def test_what_if_prints_a_table_and_writes_sliders(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page, data = tmp_path / "a.html", tmp_path / "a.json"
    asked = ["--what-if", "microbatches=4,8", "--what-if", "workload.pipeline.schedule=1f1b,none"]
    assert call(["run", "1f1b", *asked, "--report", str(page), "--json", str(data)]) == 0
    out = capsys.readouterr().out
    assert "what if: workload.pipeline.microbatches\n" in out
    assert re.search(r"\n +4 +21 ms +-36\.4% *\n +8 +33 ms +as given *\n", out)
    assert "cannot run" in out
    assert 'id="what-if-1"' in page.read_text()
    found = json.loads(data.read_text())["what_if"]
    assert [point["metrics"] is None for point in found["points"]] == [False, False, True, True]


def test_a_picture_that_cannot_be_drawn_is_refused_before_the_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    chart = tmp_path / "busbw.svg"
    assert call(["bench", "all_reduce", "--cluster", "dgx-h100", "--chart", str(chart)]) == 2
    out, said = capsys.readouterr()
    assert out == ""
    assert 'pip install "commsim[png]"' in said
