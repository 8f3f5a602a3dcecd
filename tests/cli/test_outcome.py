"""How a run ends: exit code 5 where it does not fit, and weight and colour on a terminal alone."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from commsim.cli.main import call
from commsim.cli.terminal.console import Console

TOO_LARGE = """
cluster: {preset: dgx-h100, nodes: 1}
workload:
  training:
    model: {preset: llama2-70b, seq_len: 4096}
    parallel: {dp: 8}
    batch: {global: 8, micro: 1}
"""


@pytest.mark.parametrize(("more", "code"), [((), 5), (("--allow-oom",), 0)])
def test_what_does_not_fit_has_a_code_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: tuple[str, ...], code: int
) -> None:
    path = tmp_path / "large.yaml"
    path.write_text(TOO_LARGE)
    assert call(["run", str(path), *more]) == code
    out, said = capsys.readouterr()
    assert out.splitlines()[1].startswith("Does not fit in memory: ")
    assert ("--allow-oom makes that 0" in said) is (code == 5)


@pytest.mark.parametrize(
    ("terminal", "no_colour", "coloured"),
    [(True, "", True), (True, "1", False), (False, "", False)],
)
def test_colour_is_for_terminals_that_want_it(
    monkeypatch: pytest.MonkeyPatch, terminal: bool, no_colour: str, coloured: bool
) -> None:
    monkeypatch.setenv("NO_COLOR", no_colour)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    console = Console(quiet=False)
    assert ("\x1b[" in console.strong("answer")) is coloured
    assert ("\x1b[31m" in console.alarm("alarm")) is coloured
    assert "answer" in console.strong("answer")


def test_the_table_of_limits_says_what_runs_under_compute(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """98.8 % of a step is compute, and 83.2 % are saved without it: the rest was hidden."""
    assert call(["run", "quickstart", "-v"]) == 0
    assert re.search(
        r"\(compute is 9\d\.\d%, without it 8\d\.\d% is saved: transfers that ran under it would",
        capsys.readouterr().out,
    )


def test_the_table_of_limits_says_why_twice_a_link_is_less_than_half_of_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert call(["run", "tensor-parallel", "-v"]) == 0
    told = capsys.readouterr().out
    assert "(twice NVLink is not twice as fast: the library has as many SMs and channels)" in told
    assert "twice the NICs" not in told  # nothing goes over them


@pytest.mark.parametrize(
    ("precision", "peak"), [("bf16", "of 989 TFLOP/s"), ("fp8", "of 1,979 TFLOP/s")]
)
def test_mfu_says_of_which_peak_it_is(
    capsys: pytest.CaptureFixture[str], precision: str, peak: str
) -> None:
    """The dense peaks of NVIDIA's H100 data sheet, half of those with sparsity."""
    assert (
        call(["run", "quickstart", "-v", "--set", f"workload.training.precision={precision}"]) == 0
    )
    out, said = capsys.readouterr()
    (row,) = [line for line in out.splitlines() if line.startswith("MFU")]
    assert row.endswith(peak)
    assert f"of the dense {precision} peak" in said
