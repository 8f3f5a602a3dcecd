"""
Every page that a command writes: a policy before its scripts, all of them named by it, and a
hostile name in each text field stays text.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable
from hashlib import sha256
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from helpers.paths import TESTS
from helpers.star import Star

from commsim.charts.page import policy
from commsim.charts.report import ReportFacts, write_report
from commsim.cli.main import call
from commsim.engine import simulate
from commsim.graph import GraphBuilder
from commsim.libraries import Ideal
from commsim.metrics import measure

HOSTILE = "</script><img src=x onerror=alert(1)>"
FILE = "<img src=x onerror=alert(1)>"  # a file's name holds no slash
LOG = TESTS / "data" / "nccl_tests" / "a100_8_v2.19.4.log"
NODE: dict[str, Any] = {
    "gpu": {"count": 2, "spec": "A100-SXM4-40GB"},
    "pcie": {"generation": 4},
    "nic": {"count": 1, "bandwidth": "100Gbps"},
}
CLUSTER = {"name": HOSTILE, "node": NODE, "nodes": 2, "fabric": {"kind": "fat_tree"}}
PROGRAM = {
    "groups": {HOSTILE: [0, 1, 2, 3]},
    "ranks": {
        rank: [{"compute": "1ms"}, {"all_reduce": {"group": HOSTILE, "bytes": "1MiB"}}]
        for rank in range(4)
    },
}
MODEL = {"layers": 2, "hidden": 256, "heads": 4, "vocab": 1024, "seq_len": 128}
TRAINING = {"model": MODEL, "batch": {"global": 8, "micro": 1}, "parallel": {"dp": 4}}


class Page(HTMLParser):
    """What a browser would make of a page: its policy, its scripts and its elements."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.policies: list[str] = []
        self.scripts: list[str] = []
        self.handlers: list[tuple[str, str]] = []
        self.asked: list[str] = []
        self.inside: list[str] = []
        self._running = False
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "meta" and given.get("http-equiv", "").lower() == "content-security-policy":
            assert not self.scripts, "a script runs before the policy holds"
            self.policies.append(given["content"])
        if tag == "script":
            self._running = "type" not in given
            if self._running:
                self.scripts.append("")
        self.handlers += [(tag, name) for name in given if name.startswith("on")]
        self.asked += [given[name] for name in ("src", "href") if name in given]
        if "srcdoc" in given:
            self.inside.append(given["srcdoc"])

    def handle_endtag(self, tag: str) -> None:
        self._running = self._running and tag != "script"

    def handle_data(self, data: str) -> None:
        if self._running:
            self.scripts[-1] += data


def hold(text: str) -> None:
    """Check a page, and those inside it."""
    page = Page(text)
    assert len(page.policies) == 1
    assert page.policies[0].startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in page.policies[0].replace("style-src 'unsafe-inline'", "")
    assert page.scripts
    for script in page.scripts:
        digest = b64encode(sha256(script.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in page.policies[0], script[:80]
    assert page.handlers == []
    assert [one for one in page.asked if not one.startswith(("#", "data:,", "page_points/"))] == []
    for inner in page.inside:
        hold(inner)


def test_the_check_sees_what_it_looks_for() -> None:
    good = f"<head>{policy('run()')}</head><script>run()</script>"
    hold(good)
    for bad in (
        good.replace("run()</", "other()</"), good + FILE,
        good.replace("script-src", "script-elem"),
        good + "<script>alert(1)</script>", "<script>run()</script>" + good,
        good + '<a href="https://a.b/">x</a>', good + "<iframe srcdoc='<script>run()</script>'>",
    ):  # fmt: skip
        with pytest.raises(AssertionError):
            hold(bad)


def scenario(folder: Path, **more: Any) -> str:
    """Write a scenario whose names, and whose file's name, are hostile; return its path."""
    path = folder / f"{FILE}.yaml"
    path.write_text(json.dumps({"name": HOSTILE, "cluster": CLUSTER} | more))
    return str(path)


def training(folder: Path, **more: Any) -> str:
    return scenario(folder, workload={"training": TRAINING}, **more)


def cluster(folder: Path) -> str:
    path = folder / f"{FILE}.yaml"
    priced = {"prices": {"gpu_hour": {"price": 2.0, "source": HOSTILE, "date": "2026-01"}}}
    path.write_text(json.dumps(CLUSTER | priced))
    return str(path)


def log(folder: Path) -> str:
    path = folder / f"{FILE}.log"
    path.write_text(LOG.read_text().replace("NVIDIA A100", HOSTILE))
    return str(path)


def msccl(folder: Path) -> str:
    path = folder / f"{FILE}.xml"
    text = (TESTS / "data" / "msccl" / "ring_all_gather.xml").read_text()
    path.write_text(text.replace('name="', f'name="{escape(HOSTILE)}', 1))
    return str(path)


COMMANDS: dict[str, Callable[[Path], list[str]]] = {
    "run": lambda f: ["run", scenario(f, workload={"program": PROGRAM}), "--report", "page.html"],
    "run, what if": lambda f: [
        "run", training(f), "--what-if", "workload.training.batch.micro=1,2",
        "--report", "page.html",
    ],
    "matrix": lambda f: ["run", training(f), "--matrix", "page.html"],
    "topology": lambda f: ["run", training(f), "--topology", "page.html"],
    "gantt": lambda f: ["run", scenario(f, workload={"program": PROGRAM}), "--gantt", "page.html"],
    "faults": lambda f: [
        "run", training(f, faults={"samples": 2, "jitter": [{"spread": 0.1}]}),
        "--report", "page.html",
    ],
    "goodput": lambda f: [
        "run", training(f, goodput={"storage": "50GB/s"}), "--report", "page.html",
    ],
    "jobs": lambda f: [
        "run", scenario(f, jobs=[
            {"name": f"{HOSTILE}{n}", "nodes": 1, "workload": {"program": {
                "ranks": {0: [{"compute": "1ms"}]}}}}
            for n in range(2)
        ]), "--report", "page.html",
    ],
    "compare": lambda f: ["compare", training(f), training(f), "--report", "page.html"],
    "compare logs": lambda f: ["compare", log(f), "dgx-a100", "--report", "page.html"],
    "bench": lambda f: [
        "bench", "all_reduce", "--cluster", cluster(f), "-b", "1K", "-e", "1M",
        "--chart", "page.html",
    ],
    "topo": lambda f: ["topo", cluster(f), "--chart", "page.html"],
    "explain": lambda f: ["explain", msccl(f), "-o", "page.html"],
    "explain together": lambda f: ["explain", "ring", "tree", "-n", "4", "-o", "page.html"],
    "sweep": lambda f: [
        "sweep", training(f), "--executor", "serial", "--vary", "workload.training.batch.micro=1,2",
        "--report", "page.html",
    ],
    "next": lambda f: [
        "next", training(f), "--executor", "serial", "--report", "page.html",
    ],
    "plan": lambda f: [
        "plan", "--model", "gpt2-124m", "--seq-len", "1024", "--batch-tokens", "65536",
        "--tokens", "1e9", "--in", "30d", "--on", cluster(f), "--runs", "1",
        "--most-gpus", "4", "--report", "page.html",
    ],
    "calibrate": lambda f: [
        "calibrate", log(f), "--cluster", "dgx-a100", "--report", "page.html",
    ],
}  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_names_stay_text_and_scripts_are_named(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert call([*COMMANDS[command](tmp_path), "-q"]) == 0
    pages = list(tmp_path.rglob("*.html"))
    assert tmp_path / "page.html" in pages
    for page in pages:  # a sweep writes one per point as well
        hold(page.read_text())


def test_names_of_a_recording_stay_text(tmp_path: Path) -> None:
    build = GraphBuilder()
    world = build.group(HOSTILE, range(2))
    for lane in range(2):
        build.lane(lane)
        build.compute(lane, 10**9, name=HOSTILE, stream=HOSTILE)
        build.collective(lane, world, "all_reduce", 2**20, stream=HOSTILE, name=HOSTILE)
    timeline = simulate(build.build(), Star(2), library=Ideal("ring"))
    write_report(ReportFacts(HOSTILE, timeline, measure(timeline)), tmp_path / "page.html")
    hold((tmp_path / "page.html").read_text())
