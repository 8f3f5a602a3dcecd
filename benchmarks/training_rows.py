"""
Rows of published training steps, read from a CSV like `training.csv`.

What the columns do not say is computed here and nowhere else: which GPU of the table is meant,
how fast a node's network is, and which software ran (`stacks.yaml`, by what source and note say).
A row that lacks what a person would need as well carries the reason in `skipped`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, cast

import yaml
from msgspec.structs import replace
from row_network import node_network, node_nics
from table import read_table

from commsim.cluster import GpuSpec
from commsim.cluster.nodes.gpus import gpu_spec
from commsim.models import (
    RECOMPUTE_MODULES,
    Experts,
    ModelShape,
    Recompute,
    Split,
    model_names,
    model_preset,
    peak_name,
    stack_constants,
)

HERE = Path(__file__).parent
GPUS = {
    "V100-32": "V100-SXM3-32GB",
    "V100-16": "V100-SXM2-16GB",
    "V100": "V100-SXM2-32GB",
    "A100-40": "A100-SXM4-40GB",
    "A100-80": "A100-SXM4-80GB",
    "A100": "A100-SXM4-80GB",
    "H100-80": "H100-SXM5-80GB",
    "H100-96": "H100-SXM5-80GB",
    "H100": "H100-SXM5-80GB",
    "H800": "H800-SXM5-80GB",
    "H200": "H200-SXM-141GB",
    "GH200": "GH200-96GB",
    "B200": "B200-SXM-180GB",
    "GB200": "GB200-per-GPU",
    "GB300": "GB300-per-GPU",
    "B300": "B300-SXM-288GB",
    "MI300X": "MI300X",
    "MI250X": "MI250X",
}
SLOWER = {"H100-96": (2.4e12, 0.85, 96 * 10**9)}
"""Parts that are no GPU of the table: memory's bytes/s, share of the peak by power, bytes.

H100-96: HBM2e and 500 W, as Meta's Grand Teton has it; the share is an estimate."""
SCHEDULES = {
    "1f1b_i": "interleaved_1f1b",
    "interleaved": "interleaved_1f1b",
    "interleaved_1f1b": "interleaved_1f1b",
    "zbh1": "zb_h1",
    "zbh2": "zb_h2",
    "zb1p": "zb_1p",
    "zb2p": "zb_2p",
    "zbv": "zb_v",
}
NUMBERS = (
    *("layers", "hidden", "heads", "kv_heads", "ffn", "seq", "n_gpus", "gpus_per_node"),
    *("dp", "tp", "pp", "vpp", "ep", "cp", "micro_batch", "global_batch"),
)
NEEDED = ("layers", "hidden", "heads", "seq", "gpu", "n_gpus", "global_batch")


@dataclass(frozen=True, slots=True)
class Row:
    """One published step: the model, the layout, the machine, the software, the time."""

    case_id: str
    suite: str
    measured: float
    skipped: str = ""
    shape: ModelShape | None = None
    gpu: str = ""
    stack: str = ""
    precision: str = "bf16"
    gpus: int = 0
    node: int = 8
    network: float = 0.0
    nics: int = 0
    dp: int = 1
    tp: int = 1
    pp: int = 1
    vpp: int = 1
    cp: int = 1
    ep: int = 1
    zero: int = 0
    sequence_parallel: bool = False
    recompute: Recompute = "none"
    flash: bool = False
    schedule: str = "1f1b"
    micro: int = 1
    batch: int = 1
    seq: int = 0
    attention: str = ""
    """The attention that ran where that is not the stack's own."""
    tp_overlap: str = ""
    gradients: str = ""
    shard: int = 0
    capacity: float = 0.0
    """What an expert takes over the mean, where tokens are dropped."""
    cuda_graph: str = ""
    memory: float = 0.0
    """Bytes of the fullest GPU as measured; 0 where they were not."""
    assumed: str = ""
    note: str = field(default="", repr=False)
    slower: tuple[float, float, int] | None = None

    @property
    def split(self) -> Split:
        """What one rank computes of one microbatch."""
        loss = stack_constants(self.stack).loss_parallel
        dispatcher = stack_constants(self.stack).dispatcher
        return Split(
            self.micro, self.seq, self.tp, self.sequence_parallel, self.cp, self.ep, loss,
            self.capacity, dispatcher,
        )  # fmt: skip

    @property
    def is_layer(self) -> bool:
        """Whether a layer was published and no step: rows of models without a vocabulary."""
        return self.shape is not None and self.shape.vocab == 1

    @property
    def sharded(self) -> bool:
        """Whether parameters are gathered unit by unit."""
        return self.zero == 3 or self.schedule == "fsdp"

    @property
    def gpu_spec(self) -> GpuSpec:
        """The GPU, as slow as its part is."""
        spec = gpu_spec(self.gpu)
        if self.slower is None:
            return spec
        bandwidth, share, size = self.slower
        tflops = {name: round(value * share, 3) for name, value in spec.tflops.items()}
        return replace(spec, memory_bandwidth=bandwidth, tflops=tflops, memory_bytes=size)

    @property
    def microbatches(self) -> int:
        """Microbatches per step and pipeline."""
        return max(1, round(self.batch / (self.dp * self.micro)))


def read_rows(path: str | Path) -> list[Row]:
    """Return the rows of a CSV file, in its order."""
    return [read_row(record) for record in read_table(path)]


def read_row(record: dict[str, str]) -> Row:
    """Return one row; `skipped` says why where it cannot be predicted."""
    measured = _measured(record)
    base = {"case_id": record.get("case_id", ""), "suite": record.get("suite", "")}
    reason = _missing(record, measured)
    facts: dict[str, Any] = {"skipped": reason} if reason else _facts(record)
    return Row(**base, measured=measured, **facts)  # type: ignore[arg-type]


def _measured(record: dict[str, str]) -> float:
    """Return the step time in seconds, from tokens per second where it is not given; else 0."""
    if _is_number(record.get("step_time_s")):
        return float(record["step_time_s"])
    rate = [
        record.get(key, "") for key in ("tokens_per_s_per_gpu", "global_batch", "seq", "n_gpus")
    ]
    if not all(map(_is_number, rate)):
        return 0.0
    speed, batch, seq, gpus = map(float, rate)
    return batch * seq / (speed * gpus)


def _is_number(text: str | None) -> bool:
    """Return whether a cell holds a number above zero."""
    try:
        return 0 < float(text or "") < float("inf")
    except ValueError:
        return False


def _missing(record: dict[str, str], measured: float) -> str:
    absent = [name for name in NEEDED if not record.get(name)]
    if absent:
        return f"the file does not say {', '.join(absent)}"
    strange = [
        f"{name} {record[name]!r}"
        for name in NUMBERS
        if record.get(name) and not _is_number(record[name])
    ]
    if strange:
        return f"no number above zero: {', '.join(strange)}"
    if not measured:
        return "the file holds no step time and no tokens per second"
    gpu = _gpu(record["gpu"])
    if gpu is None:
        return f"nothing is known of the GPU {record['gpu']}"
    precision = record.get("precision") or "bf16"
    if not gpu_spec(gpu).tflops.get(peak_name(precision)):
        return f"nothing is known of {gpu} in {precision}"
    return ""


def _gpu(name: str) -> str | None:
    if name in GPUS:
        return GPUS[name]
    known = [key for key in GPUS if name.upper().startswith(key)]
    return GPUS[max(known, key=len)] if known else None


def _variant(gpu: str | None, text: str) -> str | None:
    """Return the 80 GB A100 where the row says that its memory variant was only assumed.

    Both suites of that source then fit one set of constants; with 40 GB the single-node one is
    over-predicted wherever it is bound by memory.
    """
    return "A100-SXM4-80GB" if "memory variant assumed" in text else gpu


def _facts(record: dict[str, str]) -> dict[str, Any]:
    text = " ".join(record.get(key, "") for key in ("source", "note", "network", "schedule"))
    rule = _rule(text)
    cells = rule.get("cells", {}).get(record.get("case_id", ""), {})
    record = record | {name: str(value) for name, value in cells.items()}
    number = _numbers(record)
    dp, tp, pp = number("dp"), number("tp"), number("pp")
    schedule = record.get("schedule", "") or "1f1b"
    layers = number("layers")
    vpp = number("vpp") if record.get("vpp") else 0
    schedule = SCHEDULES.get(schedule, schedule)
    if schedule == "interleaved_1f1b" and not vpp:
        vpp = -(-layers // pp)  # one layer per chunk, as the zero-bubble paper runs it
    if schedule == "1f1b" and vpp > 1:
        schedule = "interleaved_1f1b"
    stack, flash = _software(record, rule), record.get("flash_attention") == "1"
    return {
        "shape": _shape(record, rule),
        "attention": record.get("attention") or _attention(stack, flash),
        "tp_overlap": rule.get("tp_overlap", "") or ("ring" if "async TP" in text else ""),
        "gradients": _gradients(record, text, stack),
        "shard": number("gpus_per_node", 8) if re.search(r"\bhsdp\b", text) else 0,
        "capacity": float(rule.get("capacity", 0)),
        "cuda_graph": rule.get("cuda_graph", ""),
        "memory": float(record.get("mem_gib") or 0) * 2**30,
        "assumed": "" if record.get("micro_batch") else "micro_batch 1",
        "gpu": _variant(_gpu(record["gpu"]), text),
        "stack": stack,
        "precision": _precision(record, rule),
        "gpus": number("n_gpus"),
        "node": number("gpus_per_node", 8),
        "network": node_network(record.get("network", ""), record["gpu"]),
        "nics": node_nics(record.get("network", "")),
        "dp": dp,
        "tp": tp,
        "pp": pp,
        "vpp": max(1, vpp),
        "cp": number("cp"),
        "ep": number("ep"),
        "zero": number("zero_stage", 0),
        "sequence_parallel": record.get("sequence_parallel") == "1",
        "recompute": _recompute(record.get("recompute", "") or "none"),
        "flash": flash,
        "schedule": schedule,
        "micro": number("micro_batch"),
        "batch": number("global_batch"),
        "seq": number("seq"),
        "note": text,
        "slower": SLOWER.get(record["gpu"]),
    }


def _recompute(text: str) -> Recompute:
    """Return what runs again: a kind, or the modules of Megatron's that a row joins by "+"."""
    modules = tuple(text.split("+"))
    known = set(modules) <= set(RECOMPUTE_MODULES)
    return cast(Recompute, modules if known else text)


def _attention(stack: str, flash: bool) -> str:
    """Return the attention of a row where it is not its stack's own."""
    if not flash:
        return "unfused"
    return "fa2" if stack_constants(stack).attention == "unfused" else ""


def _gradients(record: dict[str, str], text: str, stack: str) -> str:
    """Return the precision that gradients are reduced in where a row says so."""
    if stack == "llm-foundry":
        return "fp32" if "mp_mode DEFAULT" in text else "bf16"
    return "bf16" if "bf16 grad reduce" in text else ""


def _precision(record: dict[str, str], rule: dict[str, Any]) -> str:
    """Return the precision of a row; where tables only say fp8, its recipe as the rule has it."""
    name = record.get("precision", "") or "bf16"
    return str(rule.get("fp8", name)) if name == "fp8" else name


def _numbers(record: dict[str, str]) -> Any:
    def number(name: str, default: int = 1) -> int:
        return int(float(record.get(name) or default))

    return number


def _shape(record: dict[str, str], rule: dict[str, Any]) -> ModelShape:
    number = _numbers(record)
    vocab, tied = number("vocab", 0), rule.get("tied")
    hidden, heads = number("hidden"), number("heads")
    gated = record.get("gated_mlp") == "1"
    ffn = number("ffn", 4 * hidden)
    experts = None
    if number("n_experts", 0) > 1:
        known = _preset(record)
        if known is not None:
            return known
        experts = Experts(experts=number("n_experts"), top_k=number("top_k", 2), expert_ffn=ffn)
    return ModelShape(
        layers=number("layers"),
        hidden=hidden,
        heads=heads,
        kv_heads=number("kv_heads", heads),
        head_dim=hidden // heads,
        ffn=ffn,
        vocab=max(1, rule.get("vocab", {}).get(vocab, vocab)),
        max_seq=number("seq"),
        gated=gated,
        tied_embeddings=not gated if tied is None else tied,
        learned_position_rows=0 if gated else number("seq"),
        norm_has_bias=not gated,
        linear_bias=not gated,
        qkv_bias=not gated,
        experts=experts,
    )


def _preset(record: dict[str, str]) -> ModelShape | None:
    """Return the preset of a model with experts: a table has no heads' width, no shared experts."""
    wanted = re.sub(r"[^a-z0-9]", "", record["model"].lower())
    for name in model_names():
        if re.sub(r"[^a-z0-9]", "", name) == wanted:
            return model_preset(name).shape
    return None


def _software(record: dict[str, str], rule: dict[str, Any]) -> str:
    """Return the software stack: the column if there is one, else by the words of the row."""
    usual = "torchtitan" if record.get("schedule") == "fsdp" else "megatron"
    return record.get("stack") or rule.get("stack", usual)


def _rule(text: str) -> dict[str, Any]:
    """Return the first rule whose words all occur in a row's text; nothing if none does."""
    for rule in _rules():
        if all(re.search(word, text, re.IGNORECASE) for word in rule["words"]):
            return rule
    return {}


@cache
def _rules() -> list[dict[str, Any]]:
    rules: list[dict[str, Any]] = yaml.safe_load((HERE / "stacks.yaml").read_text())
    return rules
