"""Words of other tools and unfinished values are answered with what commsim has for them."""

from __future__ import annotations

from pathlib import Path

import pytest

import commsim as cs
from commsim.cli.main import call
from commsim.errors import did_you_mean

TRAINING = "workload.training."

ANSWERS = [
    ("cluster.fabric.oversubscription=2:1", "'2:1' is not a number. Did you mean 2?"),
    ("cluster.overrides.nic.bandwidth=400G", "Did you mean '400Gbps' or '400GB/s'?"),
    ("cluster.overrides.nic.bandwidth=400GB", "Did you mean '400GB/s'?"),
    ("cluster.overrides.nic.bandwidth=400Gb/s", "Did you mean '400Gbps' or '400GB/s'?"),
    ("cluster.overrides.nic.bandwidth=400GBps", "Did you mean '400GB/s' or '400Gbps'?"),
    ("cluster.overrides.nic.bandwidth=400Gbit", "Did you mean '400Gbps'?"),
    ("cluster.overrides.nic.bandwidth=400Gbits/sec", "Did you mean '400Gbit/s'?"),
    ("cluster.overrides.nic.bandwidth=50gigabytes/s", "unknown unit 'gigabytes/s'. Units: bps"),
    ("cluster.overrides.nic.bandwidth=5bytes/s", "Did you mean '5B/s'?"),
    ("cluster.overrides.nic.latency=5usec", "Did you mean '5us'?"),
    ("cluster.overrides.nic.latency=5milliseconds", "Did you mean '5ms'?"),
    ("cluster.overrides.nic.latency=5min", "unknown unit 'min'. Units: s, ms"),
    ("library.name=NCCL", "unknown library 'NCCL'. Did you mean 'nccl'?"),
    ("library.algo=tre", "Did you mean 'Tree'?"),
    (TRAINING + "parallel.dp=0", "parallel.dp: 0: give 1 or more."),
    (TRAINING + "parallel.dp=-3", "parallel.dp: -3: give 1 or more."),
    ("cluster.nodes=", "cluster.nodes: is empty. Give a whole number or a list."),
    ("faults={slow_links: [{count: 1, left: 2}]}", "faults.slow_links.0.left: 2: give at most 1."),
    ("faults={samples: 100000}", "faults.samples: 100000: give at most 10,000."),
    ("faults={slow_gpus: [{rank: 0, factor: 0}]}", "factor: 0: give more than 0."),
    ("workload=training", "'training' is not a mapping, such as {key: value}. It has: training,"),
    ("cluster.fabric=torus", "Did you mean {kind: torus}?"),
    ("cluster.overrides.nic.bw=400Gbps", "unknown setting 'bw'. Did you mean 'bandwidth'?"),
    ("cluster.overrides.nic.lat=4us", "unknown setting 'lat'. Did you mean 'latency'?"),
    ("cluster.overrides.gpu.size=4GiB", "unknown setting 'size'. Did you mean 'memory'?"),
    ("workload={collectives: [{op: all_reduce, size: 4B}]}", "'size'. Did you mean 'bytes'?"),
    ("faults={slow_gpus: {rank: 1}}", "is not a list. Write a list: [{rank: 1}]."),
    (TRAINING + "compute.efficiency=50%", "'50%' is not a number. Did you mean 0.5?"),
    (TRAINING + "batch.global=50%", "'50%' is not a whole number.\n"),
    (TRAINING + "data_parallel.bucket=25M", "Did you mean '25MB' or '25MiB'?"),
    (TRAINING + "parallel.tensor=8", "unknown setting 'tensor'. Here it is 'tp'."),
    (TRAINING + "data_parallel.kind=zero3", "Write {kind: zero, stage: 3}."),
    (TRAINING + "data_parallel.kind=fsdp2", "Write {kind: fsdp}."),
    (TRAINING + "sequence_parallel=true", f"Write {TRAINING}parallel.sequence_parallel."),
    (TRAINING + "parallel.sequence-parallel=true", "Did you mean 'sequence_parallel'?"),
    (TRAINING + "parallel.sp=true", "Here it is 'parallel.sequence_parallel'."),
    ("workload.nodes=3", "Write cluster.nodes."),
    ("workload.parallel.tp=4", f"Write {TRAINING}parallel.tp."),
    ("cluster.gpu.count=4", "Write cluster.overrides.gpu.count."),
    ("cluster.gpu.memroy=80GiB", "Write cluster.overrides.gpu.memory."),
    ("cluster.gpu=H200", "Write cluster.overrides.gpu."),
    ("cluster.nic=2", "Write cluster.scale.nic."),
    ("cluster.nic={bandwidth: 400Gbps, count: 8}", "Write cluster.overrides.nic or cluster.pri"),
    ("cluster.nodes=[{preset: dgx-h100, nic: {count: 4}}]", "Write cluster.nodes.0.overrides.nic."),
    ("cluster={node: {gpu: {}}, nic: {bandwidth: 1Gbps}}", "Write cluster.node.nic.bandwidth."),
    (TRAINING + "compute.float8=true", "Here it is 'precision: fp8-cs'."),
    (TRAINING + "precision=float8", "Write fp8-cs."),
    (TRAINING + "precision=bfloat16", "Write bf16."),
    ("workload.program={groups: {0: [0, 1]}, ranks: {}}", "0 is not text. Write it in quotes"),
    (TRAINING + "batch.global=8.5", "8.5 is not a whole number."),
    ("cluster=dgx-h100", "Did you mean {preset: dgx-h100}?"),
    ("cluster.preset=h100", "Did you mean 'oci-h100', 'hgx-h100' or 'dgx-h100'?"),
    ("library=ideal", "write library: {name: ideal}."),
    (
        "library.version=2.27",
        "quickstart.yaml: library.version: 2.27 is not text. Write it in quot",
    ),
    ("library={name: ideal, channels: x}", "quickstart.yaml: library.channels: 'x' is not a whole"),
    ("library.algo=treee", "quickstart.yaml: library.algo=treee: 'treee' is none of Tree, Ring,"),
    ("library.proto=LLL", "library.proto=LLL: 'LLL' is none of LL, LL128, Simple. Did you mean"),
    ("cluster.nodes=3.0", "cluster.nodes: 3.0 is written as a fraction. Write 3."),
    (
        "workload.program.ranks.7.0.compute=5ms",
        "{0: {compute: 5ms}} is not a list. Write the whole list: [{compute: 5ms}].",
    ),
    ("library.version=2.27", "'2.27' (behind --set in two kinds: \"'2.27'\")."),
]


def error_of(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert call(arguments) == 2
    text = capsys.readouterr().err
    for word in ("Expected", "got str", "object", "array", "null", "Traceback"):
        assert word not in text
    return text


@pytest.mark.parametrize(("setting", "answer"), ANSWERS)
def test_a_setting_is_answered_with_the_right_one(
    setting: str, answer: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert answer in error_of(["run", "quickstart", "--set", setting], capsys)


@pytest.mark.parametrize(
    ("name", "text", "answer"),
    [
        ("c.yaml", "preset: dgx-h100\nnodes: 2\n", "is a cluster file, not a scenario"),
        ("nemo.yaml", "trainer: {num_nodes: 4}\nmodel: {}\n", "looks like a NeMo configuration"),
        ("titan.toml", "[parallelism]\n", "a TOML file, as torchtitan reads"),
        ("nemo.yaml", "trainer: {num_nodes: 4}\n", "nemo.yaml scenario.yaml` makes one of it"),
        ("titan.toml", "[parallelism]\n", "titan.toml scenario.yaml` makes one of it"),
        ("ds.json", '{"zero_optimization": {}}', "looks like a DeepSpeed configuration"),
        ("miss.yaml", "workload: {training: {}}\n", "'workload.training.model' and 'workload"),
    ],
)
def test_a_file_of_another_tool_is_recognized(
    name: str, text: str, answer: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_text(text)
    assert answer in error_of(["run", str(tmp_path / name)], capsys)


def test_a_folder_a_cluster_and_a_command_are_told_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "is a folder" in error_of(["run", str(tmp_path)], capsys)
    assert "is a cluster, not a scenario" in error_of(["run", "dgx-h100"], capsys)
    told = "is a recording, not a scenario: DLRM on 8 V100"
    assert told in error_of(["run", "example-dlrm"], capsys)
    assert "Here it is `commsim run`" in error_of(["simulate", "quickstart"], capsys)


LISTS = {
    "workload.collectives.0.op": "workload={collectives: [{op: all_redcue, bytes: 1MiB}]}",
    "faults.jitter.1.spread": "faults.jitter=[{spread: 0.1}, {spread: x}]",
    "workload.program.groups.b.ranks.0": "workload.program={ranks: {}, groups: {b: {ranks: [x]}}}",
    "workload.program.ranks.0.0.compute": "workload={program: {ranks: {0: [{compute: 2}]}}}",
    "cluster.nodes.1.count": "cluster={nodes: [{preset: dgx-h100}, {preset: dgx-h100, count: 0}]}",
}  # fmt: skip


@pytest.mark.parametrize(("path", "setting"), LISTS.items())
def test_an_error_names_a_path_that_set_takes(
    path: str, setting: str, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["run", "quickstart", "--set", setting]
    assert f" {path}: " in error_of(line, capsys)
    assert "'pasted'" in error_of([*line, "--set", f"{path}=pasted"], capsys)


def test_blanks_around_an_equals_sign_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    line = ["run", "quickstart", "--set", "cluster.nodes", "=", "4"]
    assert "(= 4). Write no blanks around '='" in error_of(line, capsys)


def test_a_place_in_brackets_is_answered_with_the_path(capsys: pytest.CaptureFixture[str]) -> None:
    line = ["run", "quickstart", "--set", "workload.collectives[0].bytes=1MiB"]
    assert "Write --set workload.collectives.0.bytes=1MiB." in error_of(line, capsys)


@pytest.mark.parametrize(
    ("option", "path"),
    [
        ("--nodes", "cluster.nodes"), ("--cluster", "cluster.preset"), ("--algo", "library.algo"),
        ("--tp", "workload.training.parallel.tp"),
        ("--global-batch-size", "workload.training.batch.global"),
    ],
)  # fmt: skip
def test_an_option_that_is_a_setting_is_answered_with_its_path(
    option: str, path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in ("run", "advise", "next"):
        told = error_of([command, "quickstart", option, "4"], capsys)
        assert f"no such option {option}: it is a setting. Write --set {path}=VALUE." in told


@pytest.mark.parametrize("command", [["bench", "all_reduce", "--cluster"], ["topo"]])
@pytest.mark.parametrize(
    ("setting", "path"),
    [
        ("nic.bandwidth=200Gbps", "overrides.nic.bandwidth"),
        ("cluster.overrides.nic.bandwidth=200Gbps", "overrides.nic.bandwidth"),
        ("cluster.overrides.nic.bandwidht=200Gbps", "overrides.nic.bandwidth"),
        ("cluster.nodes=4", "nodes"),
    ],
)
def test_a_setting_of_a_cluster_is_named_by_its_path_in_the_cluster(
    command: list[str], setting: str, path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    line = [*command, "dgx-h100", "--set", setting]
    assert f"Write {path}. Known" in error_of(line, capsys)


@pytest.mark.parametrize("value", ["-5", "'-5'", "-4G", "9e18", "0.3", "'" + "9" * 60 + "'"])
def test_no_size_is_suggested_that_would_be_refused(
    value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    setting = f"workload={{collectives: [{{op: all_reduce, bytes: {value}}}]}}"
    told = error_of(["run", "quickstart", "--set", setting], capsys)
    assert "bytes: " in told
    assert "Did you mean" not in told


def test_equally_near_words_are_all_named_and_far_ones_never() -> None:
    known = ["zero-1", "zero-2", "zero-3", "ddp"]
    assert did_you_mean("zero-4", known).count("zero-") == 3
    assert did_you_mean("ddpp", known) == " Did you mean 'ddp'?"
    assert did_you_mean("xylophone", known) == ""


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("nic.bandwith=800Gbps", "Write --set cluster.overrides.nic.bandwidth=800Gbps."),
        ("compute.stack=torchtitan", "--set workload.training.compute.stack=torchtitan"),
        ("nic.bandwidth=800Gbps", "--set cluster.overrides.nic.bandwidth=800Gbps"),
        ("nodes=4", "Write --set cluster.nodes=4."),
    ],
)
def test_a_path_without_its_beginning_is_completed(words: str, meant: str) -> None:
    for ask in (cs.run, cs.next_dollar):
        with pytest.raises(cs.ScenarioError, match="paths begin at the top") as refused:
            ask("quickstart", [words])
        assert meant in str(refused.value)
