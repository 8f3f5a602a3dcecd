"""What a published row of a training step says: software, network, precision, layout."""

from __future__ import annotations

import csv
from typing import Any

import pytest
from helpers.paths import STEPS

from commsim.sections import decode
from commsim.workload import TrainingSection
from commsim.workload.training.defaults import with_defaults


@pytest.mark.parametrize(
    ("case", "stack"),
    [
        ("mlm_jan21_18B", "megatron-2021"),
        ("mlm_2020_A100-40_1B", "megatron-2020"),
        ("korth_t4_22B_layer_sel", "megatron-2022"),
        ("zb_1.5B_24_1f1b", "megatron-2023"),
        ("vtrain_m0000", "megatron-deepspeed"),
        ("mtnlg_2240", "megatron-deepspeed-2021"),
        ("foundry_A100-80_7b_2048_8_6x2_bf16", "llm-foundry"),
        ("tt_8b_fsdp8_compile", "torchtitan-2024"),
        ("kempner_02_7B_2", "kempnerforge"),
        ("dgxc_l31_8b_bf16_32", "nemo"),
    ],
)
def test_the_words_of_a_row_tell_its_software(rows: dict[str, Any], case: str, stack: str) -> None:
    assert rows[case].stack == stack


@pytest.mark.parametrize(
    ("text", "gigabytes"),
    [
        ("8xHDR200 (200GB/s/node), DGX A100 Selene, NVLink3 600GB/s", 200),
        ("4xHDR200 800Gb/s per node (vTrain config inter_node_bandwidth=800)", 100),
        ("1600Gb/s node-node RoCE, NVLink3", 200),
        ("4xOmniPath100 (50GB/s/node), NVLink3", 50),
        ("8xNDR400", 400),
        ("RoCE, up to 4 nodes of 8", 100),
        ("4xH200 NVLink per node, InfiniBand (400G NDR/GPU presumed)", 200),
    ],
)
def test_the_network_of_a_node(scripts: Any, text: str, gigabytes: float) -> None:
    """A small b is a bit: mistaking it once made a network eight times too fast."""
    network = scripts("row_network").node_network(text, "A100-80")
    assert network == pytest.approx(gigabytes * 1e9)


def test_fp8_of_a_table_is_the_recipe_of_its_software(scripts: Any) -> None:
    record = {
        "case_id": "x", "suite": "x", "layers": "32", "hidden": "4096", "heads": "32",
        "seq": "8192", "gpu": "B200", "n_gpus": "8", "global_batch": "128",
        "step_time_s": "4", "precision": "fp8",
    }  # fmt: skip
    read = scripts("training_rows").read_row
    bridge = read(record | {"source": "NVIDIA-NeMo/Megatron-Bridge docs [25.09]"})
    first = read(record | {"source": "NeMo 25.02 (DGX-B200)"})
    other = read(record | {"source": "NVIDIA/dgxc-benchmarking (NeMo 24.12)"})
    assert [row.precision for row in (bridge, first, other)] == ["fp8-cs", "fp8-cs", "fp8"]
    assert [row.stack for row in (bridge, first, other)] == ["nemo", "nemo-25.02", "nemo"]
    assert read(record | {"precision": "bf16", "source": "Megatron-Bridge"}).precision == "bf16"


def test_an_owner_of_constants_may_have_a_dot_in_its_name(scripts: Any) -> None:
    fitted = scripts("fitted").load_fitted()
    assert fitted.parts("nemo-26.06.cpu_us") == ("nemo-26.06", ["cpu_us"])
    assert fitted.parts("nemo.cpu_us") == ("nemo", ["cpu_us"])
    assert fitted.parts("hopper.flash.fa2.forward") == ("hopper", ["flash", "fa2", "forward"])
    moved = fitted.replaced({"nemo-26.06.cpu_us": 3.0})
    assert moved.value("nemo-26.06.cpu_us") == 3.0
    assert moved.value("nemo.cpu_us") == fitted.value("nemo.cpu_us")


def test_a_stack_column_decides(scripts: Any) -> None:
    record = {"stack": "torchtitan", "source": "NVIDIA/Megatron-LM", "layers": "2"}
    rule = scripts("training_rows")._rule("Megatron-LM")
    assert rule["stack"] == "megatron"
    assert scripts("training_rows")._software(record, rule) == "torchtitan"


def test_the_zero_bubble_runs_untied_their_embeddings(rows: dict[str, Any]) -> None:
    """Tied ones would make the two ends of a zero-bubble pipeline wait for each other."""
    assert not rows["zb_6.2B_64_zb2p"].shape.tied_embeddings
    assert rows["vtrain_m0000"].shape.tied_embeddings


def test_the_zero_bubble_runs_had_a_vocabulary_of_their_own(scripts: Any) -> None:
    """Tables list GPT-2's; what a file says otherwise is taken as it is."""
    with STEPS.open(newline="") as file:
        record = {r["case_id"]: r for r in csv.DictReader(file)}
    read = scripts("training_rows").read_row
    bubble = record["zb_6.2B_64_zb2p"]
    assert bubble["vocab"] == record["zb_1.5B_24_1f1b"]["vocab"] == "50304"
    assert read(bubble).shape.vocab == 32128
    assert read(bubble | {"vocab": "128000"}).shape.vocab == 128000
    gpt = next(r for r in record.values() if r["suite"] == "vtrain_multi")
    assert read(gpt | {"vocab": "50304"}).shape.vocab == 50304


@pytest.mark.parametrize(
    ("case", "version", "bucket", "overlap"),
    [
        ("vtrain_m0000", "2.18", 1_000_000_000, False),  # fp16: 5e8 entries of DeepSpeed
        ("mlm_jan21_18B", "2.18", 2_000_000_000_000, False),  # one buffer, larger than any model
        ("dgxc_nem_15b_bf16_64", None, 80_000_000, True),  # 4e7 entries in bf16
        ("foundry_A100-80_7b_2048_8_6x2_bf16", "2.18", None, None),  # FSDP has none
    ],
)
def test_gradients_are_reduced_as_the_stack_does(
    scripts: Any, rows: dict[str, Any], case: str, version: str | None, bucket: int | None,
    overlap: bool | None,
) -> None:  # fmt: skip
    scenario = scripts("engine_step").row_scenario(rows[case])
    assert scenario["library"].get("version") == version
    section = decode(scenario["workload"]["training"], TrainingSection, case)
    data = with_defaults(section, where=case)[0].data_parallel
    assert (data.bucket, data.first_bucket, data.overlap) == (bucket, bucket, overlap)


def test_ends_of_a_pipeline_have_a_layer_fewer(scripts: Any, rows: dict[str, Any]) -> None:
    layers = scripts("step_compute").layers_per_stage
    assert layers(rows["zb_1.5B_24_1f1b"]) == [2, 3, 3, 3, 3, 3, 3, 2]
    assert layers(rows["mtnlg_2240"]) == [3] * 35
    assert layers(rows["bloom_176b"]) == [5, *[6] * 10, 5]


def test_ranks_of_layouts(scripts: Any) -> None:
    spearman = scripts("validate_training").spearman
    assert spearman([1, 2, 3, 4], [10, 20, 30, 40]) == pytest.approx(1.0)
    assert spearman([1, 2, 3, 4], [4, 3, 2, 1]) == pytest.approx(-1.0)
    assert spearman([1, 2, 3], [1, 3, 2]) == pytest.approx(0.5)
    assert spearman([1, 1, 1], [1, 2, 3]) is None
