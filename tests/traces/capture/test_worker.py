"""The process of a captured rank: what it tells the script of the run, and why it stopped."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from commsim.errors import TraceError
from commsim.traces.capture.records import (
    CapturedMemory,
    CapturedWork,
    Recording,
    load_recording,
    save_recording,
)
from commsim.traces.capture.worker import Job, _causes, _environment, _reason, _Steps


@pytest.mark.parametrize(
    ("rank", "local", "node"), [(0, 0, 0), (7, 7, 0), (8, 0, 1), (13, 5, 1), (16, 0, 2)]
)
def test_a_rank_has_its_place_on_a_node_as_torchrun_says(
    rank: int, local: int, node: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: dict[str, str] = {}
    with monkeypatch.context() as patch:
        patch.setattr(os, "environ", told)
        _environment(Job("x.py", (), rank, 24, 8, 2, "x"))
    assert told == {
        "RANK": str(rank), "WORLD_SIZE": "24", "LOCAL_RANK": str(local), "LOCAL_WORLD_SIZE": "8",
        "GROUP_RANK": str(node), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500",
        "OMP_NUM_THREADS": "1", "TORCHELASTIC_RUN_ID": "capture",
    }  # fmt: skip


def failure(script: Path, text: str) -> BaseException:
    """Return what a script of that text raises."""
    script.write_text(text)
    try:
        exec(compile(text, str(script), "exec"), {})
    except BaseException as error:
        return error
    raise AssertionError(text)


def test_a_reason_names_the_last_line_of_the_script_and_helps(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    plain = failure(script, "def f():\n    raise ValueError('no\\nmore')\n\nf()\n")
    assert _reason(plain, str(script)) == "train.py, line 2: ValueError: no"
    assert _reason(plain, str(tmp_path / "other.py")) == "ValueError: no"
    assert _reason(KeyError(), "x.py") == "KeyError: "
    told = _reason(RuntimeError("CUDA error: no device"), "x.py")
    assert told.startswith(
        "RuntimeError: CUDA error: no device\nA kernel that exists only on a GPU"
    )
    named = type("DataDependentOutputException", (Exception,), {})("x")
    assert _reason(named, "x.py").endswith("Let the captured program skip that branch.")


def test_what_an_error_was_raised_from_is_said_once() -> None:
    first, second, third = ValueError("a\nb"), KeyError(), TypeError("c")
    first.__cause__, second.__cause__ = second, third
    assert _causes(first) == "; caused by KeyError: ; caused by TypeError: c"
    third.__cause__ = first
    assert _causes(first) == "; caused by KeyError: ; caused by TypeError: c"
    assert _causes(ValueError("x")) == ""


def test_before_any_module_runs_the_model_is_built() -> None:
    steps = _Steps(2)
    assert (steps.wanted, steps.ended, steps.begun, steps.kept) == (2, 0, False, None)


WORK = CapturedWork("mm", 0, 1.0, 2)


@pytest.mark.parametrize("name", ["x.json", "x.json.gz"])
def test_a_recording_is_read_as_it_was_written(name: str, tmp_path: Path) -> None:
    recording = Recording(3, 4, "2.9", (), ("compute",), (WORK,), CapturedMemory(1, 2, 3, 4, 5))
    save_recording(recording, tmp_path / name)
    assert load_recording(tmp_path / name) == recording
    assert ((tmp_path / name).read_bytes()[:2] == b"\x1f\x8b") == name.endswith(".gz")
    for broken in (b"{}", b"\x1f\x8bxx", b"\x1f\x8b", b""):
        (tmp_path / name).write_bytes(broken)
        with pytest.raises(TraceError, match="is not a recording of a captured rank"):
            load_recording(tmp_path / name)


def test_what_a_record_does_not_say() -> None:
    assert (WORK.product, WORK.phase, WORK.again, WORK.stage, WORK.microbatch) == (
        None, 0, False, -1, -1,
    )  # fmt: skip
    assert (WORK.alloc, WORK.free) == (0, 0)
    assert CapturedMemory().peak == CapturedMemory().parameters == CapturedMemory().other == 0
    bare = Recording(3, 4, "2.9", (), (), (), CapturedMemory())
    assert (bare.parameters, bare.notes) == (0, ())
