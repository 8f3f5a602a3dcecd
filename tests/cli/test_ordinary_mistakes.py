"""What newcomers write: an argument in the wrong place, another command's file, other units."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.paths import ROOT

from commsim.cli.main import call

LOG = str(ROOT / "examples/nccl-tests/all_reduce.log")
SCENARIO = str(ROOT / "scenarios/1f1b.yaml")
PLAN = ["plan", "--model", "llama3-8b", "--tokens", "2T", "--on", "dgx-h100", "--in", "30d"]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (["bench", "all_reduce", "all_gather"], "(all_gather). Write several ops with commas, as"),
        (["bench", "all_reduce", "dgx-h100"], "(dgx-h100). Write several ops with commas, as all_"),
        (["run", "1f1b", "--set", "cluster.nodes", "4"], "(4). Write --set cluster.nodes=VALUE."),
        (["sweep", "1f1b", "--vary", "a.b", "1,2"], "(1,2). Write --vary a.b=VALUE."),
        (["run", "1f1b", "ddp"], "(ddp). `commsim compare` takes several scenarios"),
        (["run", "1f1b", "--vary", "a=1,2"], "no such option --vary: `commsim sweep` has it"),
        (["1f1b"], "there is no command '1f1b'. `commsim run 1f1b` runs a scenario."),
        (["mine.yaml"], "there is no command 'mine.yaml'. `commsim run mine.yaml` runs"),
        (["bench", "all_reduce", "-f", "two"], "'two': give a number, like 2 or 1.5."),
        ([*PLAN, "--budget", "1M"], "'1M': give a number, like 2000000 or 2e6."),
        (["presets", "dgx-h100"], "`commsim presets show dgx-h100` prints that one."),
        (["presets", "show", "dgx-h10"], "no preset 'dgx-h10' to show. Did you mean 'dgx-h100'?"),
        (["explain", "ring", "4"], "no algorithm '4'. Ranks are given as -n 4."),
        (["explain", "ring", "allgather"], "The op is given as --op all_gather."),
        (["next", "quickstart", "--price", "nics=3"], "there is none of that. Did you mean 'nic'?"),
        (["topo", LOG], "all_reduce.log: is a file, and a cluster file ends in .yaml."),
        (["bench", "all_reduce", "--cluster", LOG], "a cluster file ends in .yaml."),
        ([*PLAN, "--seq-len", "8k"], "'8k': give a whole number of 1 or more, without letters."),
        ([*PLAN, "--seq-len", "many"], "'many': give a whole number of 1 or more.\n"),
        ([*PLAN, "--seq-len", str(10**15)], "give a whole number from 1 to 1,000,000,000,000."),
        ([*PLAN, "--seq-len", "9" * 40], "give a whole number from 1 to 1,000,000,000,000."),
        (["run", "1f1b.yml"], "no such file. '1f1b', without .yml, is a scenario that comes with"),
        (["run", LOG], "is no scenario, which is a mapping (name:, cluster:, workload:). Traces"),
    ],
    ids=lambda part: " ".join(part[:1]) if isinstance(part, list) else "",
)
def test_the_answer_says_what_to_write(
    line: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(line) == 2
    assert told in capsys.readouterr().err


def test_a_tab_in_yaml_is_called_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "x.yaml"
    file.write_text("cluster:\n\tpreset: dgx-h100\n")
    assert call(["run", str(file)]) == 2
    assert (
        "line 2, column 1: a tab stands here, and YAML is indented with" in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("file", "told"),
    [
        (LOG, "A table of nccl-tests is for `commsim check`"),
        (SCENARIO, "A scenario is for `commsim run`."),
    ],
)
def test_a_file_of_another_command_is_named_with_it(
    file: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(["replay", file]) == 3
    assert f"{file}: not a format that is read. {told}" in capsys.readouterr().err
