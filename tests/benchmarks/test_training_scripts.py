"""The fit and the validation of training steps: what rows say, scores, and that errors stay small.

tests/data/training/steps.csv holds 26 published steps, each with its source in the file;
zero_bubble_table5.csv holds the stage times of Qi et al. 2023.
"""

from __future__ import annotations

import csv
import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from helpers.paths import ROOT

from commsim.models.constants import stack_names

BENCHMARKS = ROOT / "benchmarks"
STEPS = ROOT / "tests" / "data" / "training" / "steps.csv"
STAGES = ROOT / "tests" / "data" / "zero_bubble_table5.csv"


@pytest.fixture(scope="module")
def scripts() -> Iterator[Any]:
    """The modules of benchmarks/, importable as they are when run as scripts."""
    sys.path.insert(0, str(BENCHMARKS))
    yield importlib.import_module
    sys.path.remove(str(BENCHMARKS))


@pytest.fixture(scope="module")
def rows(scripts: Any) -> dict[str, Any]:
    return {row.case_id: row for row in scripts("training_rows").read_rows(STEPS)}


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the validation writes for the committed rows, by the closed form."""
    file = tmp_path_factory.mktemp("validation") / "out.json"
    script = BENCHMARKS / "validate_training.py"
    done = subprocess.run(
        [sys.executable, str(script), str(STEPS), "--closed-form", "--json", str(file)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    data: dict[str, Any] = json.loads(file.read_text())
    return data


def test_the_json_has_the_agreed_keys(closed: dict[str, Any]) -> None:
    for figures in closed["suites"].values():
        assert set(figures) == {"n", "skipped", "mape", "median", "constant_mape", "spearman"}
    for row in closed["rows"]:
        assert {"case_id", "suite", "predicted_s", "measured_s", "error", "why_skipped"} <= set(row)
    assert len(closed["rows"]) == 26


@pytest.mark.parametrize(
    ("column", "text", "why"),
    [
        ("hidden", "abc", "no number above zero: hidden 'abc'"),
        ("micro_batch", "0", "no number above zero: micro_batch '0'"),
        ("step_time_s", "n/a", "no step time and no tokens per second"),
        ("gpu", "TPUv4", "nothing is known of the GPU TPUv4"),
        ("precision", "mixed", "nothing is known of A100-SXM4-80GB in mixed"),
        ("layers", "", "the file does not say layers"),
    ],
)
def test_what_cannot_be_read_is_skipped_with_its_reason(
    scripts: Any, column: str, text: str, why: str
) -> None:
    with STEPS.open(newline="") as file:
        record = next(r for r in csv.DictReader(file) if r["case_id"] == "vtrain_m0000")
    row = scripts("training_rows").read_row(record | {column: text})
    assert why in row.skipped
    assert not scripts("training_rows").read_row(record).skipped


def test_only_rows_that_lack_what_a_person_needs_are_skipped(closed: dict[str, Any]) -> None:
    skipped = {row["case_id"]: row["why_skipped"] for row in closed["rows"] if row["why_skipped"]}
    assert set(skipped) == {"opt_175b", "zb_1.5B_24_zbh1", "tf17_dgx1_ResNet-50_1"}
    assert "micro_batch" in skipped["opt_175b"]
    assert "no step time" in skipped["zb_1.5B_24_zbh1"]
    assert "layers" in skipped["tf17_dgx1_ResNet-50_1"]


def test_errors_are_shares_of_what_was_measured(closed: dict[str, Any]) -> None:
    for row in closed["rows"]:
        if row["predicted_s"] is not None:
            share = (row["predicted_s"] - row["measured_s"]) / row["measured_s"]
            assert row["error"] == pytest.approx(share)


def test_published_steps_are_predicted(closed: dict[str, Any]) -> None:
    """The formulas' worst row is a 70B under FSDP; the mean is within 2.5 %."""
    errors = [abs(row["error"]) for row in closed["rows"] if row["error"] is not None]
    assert len(errors) == 23
    assert max(errors) < 0.1
    assert sum(errors) / len(errors) < 0.025


def test_published_forward_backward_and_weight_times(scripts: Any) -> None:
    """Qi et al. 2023, table 9: F, B and W each within 8 per cent."""
    split, fitted = scripts("published_split"), scripts("fitted").load_fitted()
    ratios = split.stage_ratios(split.read_stage_rows(STAGES), fitted)
    assert len(ratios) == 18
    assert all(0.92 < ratio < 1.08 for ratio in ratios)


@pytest.mark.parametrize(
    ("case", "stack"),
    [
        ("mlm_jan21_18B", "megatron-2021"),
        ("mlm_2020_A100-40_1B", "megatron-2020"),
        ("korth_t4_22B_layer_sel", "megatron-2022"),
        ("zb_1.5B_24_1f1b", "megatron-2023"),
        ("vtrain_m0000", "megatron-deepspeed"),
        ("mtnlg_2240", "megatron-deepspeed-2021"),
        ("foundry_A100-80_7b_2048_8_6x2_bf16", "torch-fsdp"),
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
    ],
)
def test_the_network_of_a_node(scripts: Any, text: str, gigabytes: float) -> None:
    """A small b is a bit: mistaking it once made a network eight times too fast."""
    network = scripts("training_rows").node_network(text, "A100-80")
    assert network == pytest.approx(gigabytes * 1e9)


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
    ("case", "version", "bucket"),
    [
        ("vtrain_m0000", "2.18", "1000000000B"),  # fp16: 5e8 entries of DeepSpeed
        ("mlm_jan21_18B", "2.18", "2000000000000B"),  # one buffer, larger than any model
        ("foundry_A100-80_7b_2048_8_6x2_bf16", "2.18", None),  # FSDP has none, and overlaps
    ],
)
def test_gradients_are_reduced_as_the_stack_does(
    scripts: Any, rows: dict[str, Any], case: str, version: str, bucket: str | None
) -> None:
    scenario = scripts("engine_step").row_scenario(rows[case], attention="unfused")
    data = scenario["workload"]["training"]["data_parallel"]
    assert scenario["library"] == {"name": "nccl", "version": version}
    assert data.get("bucket") == data.get("first_bucket") == bucket
    assert data.get("overlap", True) == (bucket is None)


def test_every_stack_says_how_it_communicates(scripts: Any) -> None:
    module = scripts("stack_communication")
    assert set(module._table()) == set(stack_names())


def test_ends_of_a_pipeline_have_a_layer_fewer(scripts: Any, rows: dict[str, Any]) -> None:
    layers = scripts("closed_form").layers_per_stage
    assert layers(rows["zb_1.5B_24_1f1b"]) == [2, 3, 3, 3, 3, 3, 3, 2]
    assert layers(rows["mtnlg_2240"]) == [3] * 35
    assert layers(rows["bloom_176b"]) == [5, *[6] * 10, 5]


def test_uniform_pipelines_take_their_closed_forms(scripts: Any, rows: dict[str, Any]) -> None:
    """1F1B without messages: (m + p - 1) T plus what the longest stage adds."""
    import dataclasses

    module, fitted = scripts("closed_form"), scripts("fitted").load_fitted()
    row = rows["zb_6.2B_64_zb2p"]
    stack = fitted.stack("megatron-2023")
    import msgspec

    plain = msgspec.structs.replace(stack, microbatch_ms=0.0, pipeline_loss=0.0)
    links = module.Links(p2p_us=0.0, nvlink=1e9, network=1e9)
    one = dataclasses.replace(row, schedule="1f1b")
    model = module.make_model(one, fitted.generation(row.gpu), plain)
    stages = [module.Stage(3.0, 2.0, 1.0)] * 8
    span = module._pipeline(one, model, stages, links)
    assert span == pytest.approx((64 + 7) * 6.0)
    assert module._pipeline(row, model, stages, links) == pytest.approx(64 * 6.0)
    h1 = dataclasses.replace(row, schedule="zb_h1")
    assert module._pipeline(h1, model, stages, links) == pytest.approx(64 * 6 + 7 * (3 + 2 - 1))


def test_ranks_of_layouts(scripts: Any) -> None:
    spearman = scripts("validate_training").spearman
    assert spearman([1, 2, 3, 4], [10, 20, 30, 40]) == pytest.approx(1.0)
    assert spearman([1, 2, 3, 4], [4, 3, 2, 1]) == pytest.approx(-1.0)
    assert spearman([1, 2, 3], [1, 3, 2]) == pytest.approx(0.5)
    assert spearman([1, 1, 1], [1, 2, 3]) is None


def test_the_constant_guess_leaves_its_row_out(scripts: Any, rows: dict[str, Any]) -> None:
    """Two rows: each is guessed by the efficiency of the other."""
    module = scripts("validate_training")
    pair = [rows["vtrain_s0070"], rows["vtrain_s0110"]]
    first, second = module.constant_errors(pair)
    assert (1 + first) * (1 + second) == pytest.approx(1.0)
    assert module.constant_errors(pair[:1]) == []


def test_halves_are_drawn_by_suite(scripts: Any, rows: dict[str, Any]) -> None:
    module = scripts("fit_compute")
    usable = [row for row in rows.values() if not row.skipped]
    mine, others = module.halves(usable, 1)
    assert {r.case_id for r in mine} | {r.case_id for r in others} == {r.case_id for r in usable}
    assert not {r.case_id for r in mine} & {r.case_id for r in others}
    assert {r.suite for r in mine} == {r.suite for r in usable}
    assert module.halves(usable, 1) == (mine, others)


def test_a_fit_finds_constants_again(scripts: Any, rows: dict[str, Any]) -> None:
    """Steps made by known constants: from elsewhere, the fit comes back to them."""
    import dataclasses

    module, fitted = scripts("fit_compute"), scripts("fitted").load_fitted()
    place, other = "ampere.matmul_efficiency", "megatron-2021.stream"
    chosen = [p for p in module.read_parameters() if p.place in (place, other)]
    loose = [dataclasses.replace(p, stray=50.0) for p in chosen]
    known = fitted.replaced({place: 0.7, other: 2.0})
    made = [
        dataclasses.replace(row, measured=module.predict(row, known))
        for row in rows.values()
        if row.stack == "megatron-2021"
    ]
    found = module.fit(made, [], fitted, loose, simulated=None)
    assert found.value(place) == pytest.approx(0.7, rel=0.01)
    assert found.value(other) == pytest.approx(2.0, rel=0.05)


def test_links_follow_the_engine_and_not_what_was_measured(
    scripts: Any, rows: dict[str, Any]
) -> None:
    """The engine has links of its own: those of the closed form must not explain its errors."""
    import dataclasses

    module, base = scripts("fit_compute"), scripts("fitted").load_fitted()
    usable = [row for row in rows.values() if not row.skipped and row.shape.vocab > 1]
    links = ("links.nvlink", "links.ring_us", "megatron-2021.pipeline_loss")
    places = (*links, "megatron-2021.stream")
    parameters = [
        dataclasses.replace(p, stray=50.0) for p in module.read_parameters() if p.place in places
    ]
    elsewhere = base.replaced({"links.nvlink": 0.65, "links.ring_us": 80})
    engine = {row.case_id: module.predict(row, elsewhere) for row in usable}
    before = module.with_ratios(engine, usable, base)
    after = module.fit_links(usable, base, parameters, before)
    off = [sum(abs(r - 1) for r in one.ratios.values()) for one in (before, after)]
    assert off[1] < 0.1 * off[0]
    assert after.base.value("links.nvlink") == pytest.approx(0.65, rel=0.02)
    stack = "megatron-deepspeed"
    assert after.base.stack(stack).stream == base.stack(stack).stream
    fitted = module.fit(usable, [], after.base, parameters, simulated=after)
    kept = {p.place for p in parameters if fitted.value(p.place) == after.base.value(p.place)}
    assert kept == set(links)


def test_a_row_that_the_engine_ran_keeps_the_links_of_its_ratio(
    scripts: Any, rows: dict[str, Any]
) -> None:
    module, base = scripts("fit_compute"), scripts("fitted").load_fitted()
    row, other = rows["zb_6.2B_64_zb2p"], rows["zb12_6.2B_m4_1f1b"]
    simulated = module.with_ratios({row.case_id: 5.0}, [row, other], base)
    assert simulated.predict(row, base) == pytest.approx(5.0)
    moved = base.replaced({"links.p2p_us": 900, "megatron-2023.pipeline_loss": 0.1})
    assert simulated.predict(row, moved) == pytest.approx(5.0)
    assert simulated.predict(other, moved) == module.predict(other, moved)
    assert module.predict(other, moved) > 1.01 * module.predict(other, base)
    slower = base.replaced({"megatron-2023.stream": 2.0})
    assert simulated.predict(row, slower) > 5.1


def test_the_engine_runs_what_a_row_describes(scripts: Any, rows: dict[str, Any]) -> None:
    engine, fitted = scripts("engine_step"), scripts("fitted").load_fitted()
    for case in ("mlm_2020_A100-40_8B", "vtrain_s0110", "zb12_6.2B_m4_1f1b"):
        seconds = engine.engine_seconds(rows[case], fitted)
        assert seconds == pytest.approx(rows[case].measured, rel=0.1), case
