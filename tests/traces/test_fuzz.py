"""Damaged files of every format: a graph or one clear error, never anything else."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from random import Random

import pytest
from helpers.fuzz_samples import CHAKRA, PARAM
from helpers.paths import TESTS

from commsim.errors import TraceError
from commsim.traces import import_graph

GLOO = TESTS / "data" / "gloo_runs"
WILD = (b"9223372036854775808", b"-1", b"1e308", b"null", b"[]", b"{}", b'"x"', b"NaN",
        b"99999999999999999999999", b"true")  # fmt: skip


def seeds() -> dict[str, bytes]:
    return {
        "fr_rank0.pickle": (GLOO / "ddp-2/rank0.fr.pickle").read_bytes(),
        "et_rank0.json": gzip.decompress((GLOO / "p2p-2/rank0.et.json.gz").read_bytes()),
        "kineto_rank0.json": gzip.decompress((GLOO / "p2p-2/rank0.json.gz").read_bytes()),
        "param_rank0.json": json.dumps(PARAM).encode(),
        "chakra.0.json": json.dumps(CHAKRA).encode(),
        "x.goal": b"num_ranks 2\nrank 0 {\na: calc 500\nb: send 1024b to 1 tag 5 cpu 0\n"
        b"b requires a\n}\nrank 1 {\na: recv 1024b from 0 tag 5\nb: calc 7\nb irequires a\n}\n",
        "run.log": b"h:1:1 [0] NCCL INFO AllReduce: opCount a sendbuff 0x1 recvbuff 0x2 count 18 "
        b"datatype 7 op 0 root 0 comm 0x55 [nranks=2] stream 0x7\n",
    }


def damaged(seed: bytes, random: Random) -> bytes:
    """Return a file with bytes changed, its end lost, a number gone wild, or a part twice."""
    data, way = bytearray(seed), random.randrange(4)
    if way == 0:
        for _ in range(random.randint(1, 8)):
            data[random.randrange(len(data))] = random.randrange(256)
    elif way == 1:
        del data[random.randrange(len(data)) :]
    elif way == 2:
        numbers = list(re.finditer(rb"(?<![\w.])\d+(?![\w.])", seed))
        if numbers:
            chosen = random.choice(numbers)
            data[chosen.start() : chosen.end()] = random.choice(WILD)
    else:
        begin = random.randrange(len(data))
        data[begin:begin] = data[begin : begin + random.randint(1, 40)]
    return bytes(data)


@pytest.mark.parametrize("name", seeds())
def test_the_whole_file_is_read(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(seeds()[name])
    assert len(import_graph(path).graph) > 0


@pytest.mark.share(0.6)
@pytest.mark.parametrize("name", seeds())
def test_a_damaged_file_is_read_or_refused(tmp_path: Path, name: str) -> None:
    random, path, refused = Random(name), tmp_path / name, 0
    for _ in range(120):
        path.write_bytes(damaged(seeds()[name], random))
        try:
            import_graph(path)
        except TraceError as error:
            refused += 1
            assert len(str(error)) < 3000  # noqa: PT017
    assert 0 < refused < 120


@pytest.mark.parametrize("name", ["chakra.0.json", "fr_rank0.json", "x.json", "a.0.et"])
@pytest.mark.parametrize("head", [b"[", b'{"entries":', b'{"workload_graph": [', b'[{"comms":'])
def test_a_million_brackets_are_refused(tmp_path: Path, name: str, head: bytes) -> None:
    path = tmp_path / name
    path.write_bytes(head + b"[" * 1_000_000)
    with pytest.raises(TraceError):
        import_graph(path)


def test_a_rank_of_two_to_the_63_is_refused(tmp_path: Path) -> None:
    (tmp_path / "rank0.json").write_text(json.dumps([
        {"comms": "send", "dst_rank": 2**63, "src_rank": 0, "in_msg_size": 5, "dtype": "Int"},
        {"comms": "init", "pg_id": 0, "global_ranks": [0, 2**40]},
        {"comms": "all_reduce", "pg_id": 0, "in_msg_size": 5, "dtype": "Int"},
    ]))  # fmt: skip
    with pytest.raises(TraceError, match="not a rank"):
        import_graph(tmp_path)
