"""Small valid inputs, as text or plain data: what `fuzz_inputs` damages."""

from __future__ import annotations

__all__ = [
    "CHAKRA", "CLUSTER", "COLLECTIVES", "FLIGHT", "GOAL", "NCCL_LOG", "PARAM", "TRAINING", "WORDS",
]  # fmt: skip

CHAKRA = {
    "workload_graph": [
        {"Id": 1, "Name": "a", "NodeType": 4, "is_cpu_op": False, "runtime": 5, "data_deps": []},
        {"Id": 2, "Name": "b", "NodeType": 7, "comm_type": 0, "comm_size": 4096, "data_deps": [1]},
    ]
}
PARAM = [
    {"comms": "init", "pg_id": 0, "global_ranks": [0, 1]},
    {"comms": "all_to_allv", "req": 1, "in_msg_size": 10, "out_msg_size": 10,
     "in_split": [5, 5], "dtype": "Int", "pg_id": 0},
    {"comms": "wait", "req": 1},
    {"comms": "send", "dst_rank": 1, "src_rank": 0, "in_msg_size": 5, "dtype": "Int"},
]  # fmt: skip
GOAL = (
    "num_ranks 2\nrank 0 {\na: calc 500\nb: send 1024b to 1 tag 5 cpu 0\nb requires a\n}\n"
    "rank 1 {\na: recv 1024b from 0 tag 5\nb: calc 7\nb irequires a\n}\n"
)
NCCL_LOG = (
    "h:1:1 [0] NCCL INFO AllReduce: opCount a sendbuff 0x1 recvbuff 0x2 count 18 datatype 7 op 0"
    " root 0 comm 0x55 [nranks=2] stream 0x7\n"
)
FLIGHT = {
    "version": "2.10",
    "entries": [
        {"record_id": at, "pg_id": 0, "process_group": ["0", "default_pg"],
         "collective_seq_id": at, "p2p_seq_id": 0, "profiling_name": "nccl:all_reduce",
         "is_p2p": False, "input_sizes": [[256, 4]], "input_dtypes": ["BFloat16"],
         "output_sizes": [[256, 4]], "output_dtypes": ["BFloat16"], "state": "completed",
         "time_created_ns": at}
        for at in (1, 2)
    ],
    "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}},
}  # fmt: skip
CLUSTER = """
preset: dgx-h100
nodes: 2
fabric: {kind: fat_tree, oversubscription: 2, nodes_per_leaf: 1}
overrides: {nic: {bandwidth: 200Gbps}, gpu: {count: 4}}
scale: {nic: 2, compute: 0.5}
"""
TRAINING = """
cluster: {preset: dgx-h100}
workload:
  training:
    model: {layers: 2, hidden: 256, heads: 4, vocab: 1024, seq_len: 128}
    parallel: {dp: 2, tp: 2, pp: 2}
    data_parallel: {kind: zero, stage: 1}
    batch: {global: 8, micro: 1}
library: {name: nccl, env: {NCCL_PROTO: Simple}}
engine: {network: fluid, fold: auto}
faults: {samples: 2, slow_gpus: [{rank: 1, factor: 1.3}], jitter: [{spread: 0.1}]}
"""
COLLECTIVES = """
cluster: {preset: dgx-h100, nodes: 2}
library: {name: nccl}
engine: {network: steps}
workload:
  collectives:
  - {op: all_reduce, bytes: 1MiB, group: [0, 1, 8, 9]}
  - {op: broadcast, bytes: 1MiB, group: [2, 3], root: 2}
  - {op: all_to_all_v, group: [4, 5], splits: [[0, 4kB], [2kB, 0]]}
"""
WORDS = [
    "run 1f1b --set workload.pipeline.stages=3 --json x.json",
    "bench all_reduce --cluster dgx-h100 -b 8 -e 1M --algo ring --library ideal",
    "topo dgx-h100 --nodes 2 --nccl",
    "compare 1f1b gpipe --tolerance 0.1",
    "explain ring --op all_reduce -n 4",
    "sweep 1f1b --vary workload.pipeline.microbatches=2,4 --executor serial",
    "presets show 1f1b",
    "next ddp",
    "run ddp --set workload.training.batch.global=64 --what-if bucket,nvlink --limit 1GB",
    "advise ddp --executor serial --set workload.training.batch.global=32",
    "bench all_to_all --cluster dgx-a100 --nodes 2 -b 1K -e 1M -f 4 -d half --library gloo",
    "bench broadcast --cluster aws-p5 -g 4 -b 64K -e 64K --proto LL --env NCCL_MAX_NCHANNELS=4",
    "replay example-dlrm --comm modelled --cluster dgx-h100 --set compute.scale=0.5",
    "new training -o mine.yaml",
    "explain binomial --op broadcast -n 8 --root 3 -o x.html",
    "sweep 1f1b --vary workload.pipeline.stages=2..8x2 --zip --executor serial --csv x.csv",
]
