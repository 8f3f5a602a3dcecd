"""What is kept of a recording of NCCL: all that is read, and nothing that tells of the machine."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.kineto_writer import late_rank

from commsim.traces import load_trace

CALL = (
    "vm:7:7 [0] NCCL INFO AllReduce: opCount 0 sendbuff 0x1 recvbuff 0x2 count 8 datatype 7 op 0"
    " root 0 comm 0x5 [nranks=2] stream 0x7"
)


@pytest.fixture
def found(tmp_path: Path) -> Path:
    """A recording of two ranks, with arrows, strides and a log beside."""
    folder = tmp_path / "raw/ddp-2"
    folder.mkdir(parents=True)
    for rank in range(2):
        record = late_rank(rank)
        for event in record.events:
            event["args"]["Input Strides"] = [[128, 1]]
        content = record.content() | {"traceName": "/tmp/work/rank.json"}
        content["traceEvents"].append({"ph": "s", "name": "ac2g", "id": 1, "pid": 1, "tid": 1})
        (folder / f"rank{rank}.json").write_text(json.dumps(content))
    (folder / "rank0.nccl.log").write_text(f"vm:7:7 [0] NCCL INFO Loaded /opt/x.so\n{CALL}\n")
    (folder / "rank0.err").write_text("a warning")
    return folder


def test_what_is_kept_reads_as_the_whole(found: Path, tmp_path: Path, scripts: Any) -> None:
    words = ["--keep", str(found.parent), "-o", str(tmp_path / "kept"), "--only", "ddp-2"]
    scripts("record_nccl").main(words)
    kept = tmp_path / "kept/ddp-2"
    names = ["rank0.json.gz", "rank0.nccl.log.gz", "rank1.json.gz"]
    assert sorted(file.name for file in kept.iterdir()) == names
    texts = [gzip.decompress(file.read_bytes()).decode() for file in sorted(kept.iterdir())]
    assert texts[1] == CALL.replace("vm", "host") + "\n"
    assert not any(word in texts[0] for word in ("ac2g", "/tmp/work"))
    assert texts[0].count("Strides") == 3  # of the call alone: of that all is kept
    before, after = load_trace(found), load_trace(kept)
    for column in ("start", "end", "cause"):
        one, other = getattr(before.timeline(), column), getattr(after.timeline(), column)
        assert np.array_equal(one, other)
    assert before.graph().groups == after.graph().groups
    assert before.graph().collectives.size.tolist() == after.graph().collectives.size.tolist()


def test_a_recording_that_is_not_there_leaves_what_was_kept(
    found: Path, tmp_path: Path, scripts: Any
) -> None:
    words = ["--keep", str(found.parent), "-o", str(tmp_path / "kept"), "--only", "ddp-4"]
    (tmp_path / "kept/ddp-4").mkdir(parents=True)
    with pytest.raises(SystemExit, match="ddp-4: no recording"):
        scripts("record_nccl").main(words)
    assert (tmp_path / "kept/ddp-4").is_dir()


def test_a_recording_is_not_kept_in_its_own_place(found: Path, scripts: Any) -> None:
    words = ["--keep", str(found.parent), "-o", str(found / ".."), "--only", "ddp-2"]
    with pytest.raises(SystemExit, match="would be replaced"):
        scripts("record_nccl").main(words)
    assert (found / "rank0.json").is_file()


def test_a_run_that_there_is_not_is_told(capsys: pytest.CaptureFixture[str], scripts: Any) -> None:
    with pytest.raises(SystemExit):
        scripts("record_nccl").main(["--list", "--only", "ddp-2,ddp-3"])
    assert "no run ddp-3. There are ddp-2, ddp-4" in capsys.readouterr().err
