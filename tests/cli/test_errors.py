"""Whatever a user can cause ends in one clear message and the right exit code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from helpers.closed_pipes import run_unread

from commsim.cli.main import call

PIPELINE = "workload: {pipeline: {stages: 2, microbatches: 2, forward: 1ms, backward: 2ms}}\n"
TRAINING = """
cluster: {preset: dgx-h100, nodes: 2}
workload:
  training:
    model: {preset: gpt2-1.5b, seq_len: 1024}
    parallel: {dp: 4, pp: 2}
    batch: {global: 64, micro: 4}
    compute: {efficiency: 0.5}
"""
BOTH_RECEIVE = """
cluster: {preset: dgx-a100}
workload:
  program:
    ranks:
      0: [{recv: {from: 1, bytes: 1MiB}}, {send: {to: 1, bytes: 1MiB}}]
      1: [{recv: {from: 0, bytes: 1MiB}}, {send: {to: 0, bytes: 1MiB}}]
"""
ONE_ALL_REDUCE = "workload: {collectives: [{op: all_reduce, bytes: 1MiB}]}\n"


def complaint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, *flags: str
) -> tuple[int, str]:
    """Run a scenario; return the exit code and stderr."""
    path = tmp_path / "case.yaml"
    path.write_text(text)
    code = call(["run", str(path), "-q", *flags])
    caught = capsys.readouterr()
    assert "Traceback" not in caught.err
    return code, caught.err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["empty"]),
        ("- 1\n", ["mapping"]),
        ("workload: {", ["line"]),
        (PIPELINE + "clutser: {}\n", ["clutser", "Did you mean 'cluster'"]),
        (PIPELINE.replace("1ms", "1"), ["workload.pipeline", "no unit", "'1ms'"]),
        (PIPELINE.replace("1ms", ".nan"), ["workload.pipeline.forward", "nan"]),
        (PIPELINE.replace("stages: 2", "stages: 0"), ["workload.pipeline.stages"]),
        (PIPELINE.replace("stages: 2", "stages: -3"), ["workload.pipeline.stages"]),
        (PIPELINE.replace("stages: 2,", "stages: 2, schedule: 1f1c,"), ["1f1c", "1f1b"]),
        (
            PIPELINE.replace("stages: 2, microbatches: 2", "stages: 99999, microbatches: 99999"),
            ["workload.pipeline", "99999 stages", "fewer microbatches"],
        ),
        (TRAINING, ["8", "16"]),
        (TRAINING.replace("dgx-h100", "dgx-h10"), ["cluster.preset", "Did you mean 'dgx-h100'"]),
        (
            "cluster: {preset: dgx-h100, overrides: {nic: {bandwdth: 400Gbps}}}\n" + ONE_ALL_REDUCE,
            ["cluster.overrides.nic.bandwdth", "Did you mean 'bandwidth'"],
        ),
        (
            "cluster: {preset: dgx-h100, overrides: {nic: {bandwidth: 400}}}\n" + ONE_ALL_REDUCE,
            ["cluster.overrides.nic.bandwidth", "'400Gbps'"],
        ),
        (
            "cluster: {preset: dgx-h100, overrides: {nic: {count: 6}}}\n" + ONE_ALL_REDUCE,
            ["6 NICs do not divide 8 GPUs evenly", "1, 2, 4, 8"],
        ),
        (
            "cluster: {preset: dgx-h100, fabric: {kind: fattree}}\n" + ONE_ALL_REDUCE,
            ["cluster.fabric.kind", "rail_only", "Did you mean 'fat_tree'"],
        ),
        ("cluster: {preset: dgx-h100, nodes: 0}\n" + ONE_ALL_REDUCE, ["cluster.nodes", "0"]),
        ("cluster: {preset: dgx-h100, nodes: -2}\n" + ONE_ALL_REDUCE, ["cluster.nodes", "-2"]),
        (ONE_ALL_REDUCE, ["cluster"]),
        (
            "cluster: {preset: dgx-h100}\nlibrary: {name: ncl}\n" + ONE_ALL_REDUCE,
            ["library.name", "Did you mean 'nccl'"],
        ),
        (
            "cluster: {preset: dgx-h100}\nlibrary: {name: ideal, algo: rign}\n" + ONE_ALL_REDUCE,
            ["library.algo", "Did you mean 'ring'"],
        ),
        (
            "cluster: {preset: dgx-h100}\nengine: {network: stps}\n" + ONE_ALL_REDUCE,
            ["engine.network", "Did you mean 'steps'"],
        ),
    ],
)
def test_a_wrong_scenario_names_the_field_and_exits_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, words: list[str]
) -> None:
    code, err = complaint(tmp_path, capsys, text)
    assert code == 2
    for word in words:
        assert word in err


def test_two_ranks_that_both_receive_first_exit_4(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, err = complaint(tmp_path, capsys, BOTH_RECEIVE)
    assert code == 4
    assert "rank 0: recv from rank 1" in err
    assert "rank 1: recv from rank 0" in err
    assert "Cycle: rank 0 -> rank 1 -> rank 0" in err


def test_a_rail_only_fabric_says_which_pair_cannot_meet(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (
        "cluster: {preset: dgx-h100, nodes: 2, fabric: {kind: rail_only},"
        " overrides: {nvlink: {kind: none}}}\n"
        "workload: {collectives: [{op: all_reduce, bytes: 1MiB, group: [0, 9]}]}\n"
    )
    code, err = complaint(tmp_path, capsys, text)
    assert code == 2
    assert "cannot reach" in err


@pytest.mark.parametrize("flags", [["--gantt", "x.gif"], ["--json", "no/such/folder/x.json"]])
def test_an_output_that_cannot_be_written_is_refused_before_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str]
) -> None:
    code, err = complaint(tmp_path, capsys, PIPELINE, *flags)
    assert code == 2
    assert flags[1] in err


def test_an_unknown_scenario_suggests_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["run", "quickstrat"]) == 2
    assert "Did you mean 'quickstart'" in capsys.readouterr().err


def test_set_changes_what_the_file_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, err = complaint(tmp_path, capsys, PIPELINE, "--set", "workload.pipeline.forwrd=2ms")
    assert code == 2
    assert "Did you mean 'forward'" in err


def test_as_a_process(tmp_path: Path) -> None:
    """The real thing: exit code, nothing on stdout, one message on stderr."""
    path = tmp_path / "case.yaml"
    path.write_text(BOTH_RECEIVE)
    done = subprocess.run(
        [sys.executable, "-m", "commsim", "run", str(path), "-q"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 4
    assert done.stdout == ""
    assert done.stderr.startswith("commsim: deadlock")


def test_help_needs_no_heavy_library() -> None:
    """`commsim --help` is quick because it loads none of these."""
    code = (
        "import sys; from commsim.cli.main import call; call(['--help']);"
        "print([m for m in ('numpy', 'simpy', 'networkx', 'plotly') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
    for command in (
        "run", "bench", "replay", "compare", "advise", "explain", "capture", "convert", "topo",
        "presets",
    ):  # fmt: skip
        assert f"\n  {command} " in done.stdout


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "mapping"),
        ("preset: dgx-a100\npreset: dgx-1v\n", "second time"),
        ("preset: 3\n", "preset"),
    ],
)
def test_a_cluster_file_is_read_as_strictly(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, words: str
) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(text)
    assert call(["topo", str(path)]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "x" * 10_000], "is neither a file nor a scenario"),
        (["run", "1f1b", "--set", f"workload.pipeline.stages={'9' * 5000}"], "5,000 digits"),
        (["bench", "all_reduce", "--cluster", "dgx-h100", "-n", "9" * 5000], "give a whole number"),
    ],
)
def test_a_word_of_thousands_of_characters_hides_no_message(
    capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    assert call(arguments) == 2
    told = capsys.readouterr().err
    assert words in told
    assert "characters)" in told
    assert len(told) < 500


@pytest.mark.parametrize("key", ["3.5", "~", "3"])
def test_a_key_that_is_no_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], key: str
) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(f"{PIPELINE}{key}: 1\n")
    assert call(["run", str(path)]) == 2
    assert "is not text" in capsys.readouterr().err


def test_help_whose_reader_has_left() -> None:
    """The code of a closed pipe, whatever prints: 1 would say that a comparison failed."""
    done = run_unread("-m", "commsim", "--help")
    assert (done.returncode, done.stderr) == (141, "")
