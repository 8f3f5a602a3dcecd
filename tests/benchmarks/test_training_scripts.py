"""The fit and the validation of training steps: what rows say, scores, and that errors stay small.

tests/data/training/steps.csv holds 39 published steps, each with its source in the file;
zero_bubble_table5.csv holds the stage times of Qi et al. 2023.
"""

from __future__ import annotations

import csv
import dataclasses
import json
from typing import Any

import pytest
import yaml
from helpers.paths import ROOT, STEPS
from helpers.scripts import run_script
from helpers.share import later

from commsim.cluster import ClusterSection, build_cluster
from commsim.sections import decode

STAGES = ROOT / "tests" / "data" / "zero_bubble_table5.csv"


MORE = {"vtrain_m0021", "zb_6.2B_64_zb2p", "dgxc_nem_15b_bf16_64", "mlm_jan21_18B"}
"""Rows of 600 to 2,000 operations."""
SLOW = {"mbridge_25.11_LLAMA3_8B_H100-80_8_fp8-cs_41", "foundry_A100-40_1b_2048_8_8x8_bf16",
        "dgxc_l31_8b_fp8_32"}  # fmt: skip
"""Rows of many microbatches or buckets, a second or more each; others of their kind stay."""


@pytest.fixture(scope="module", params=[600, later(2000)])
def largest(request: pytest.FixtureRequest) -> int:
    """Operations of a row above which it is skipped."""
    return int(request.param)


@pytest.fixture(scope="module")
def validated(largest: int, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the validation writes for the committed rows that are not too large."""
    folder = tmp_path_factory.mktemp("validation")
    file, rows = folder / "out.json", folder / "steps.csv"
    lines = STEPS.read_text().splitlines(keepends=True)
    left = SLOW if largest == 600 else set()
    rows.write_text("".join(line for line in lines if line.partition(",")[0] not in left))
    script = ROOT / "benchmarks" / "validate_training.py"
    done = run_script(
        script, str(rows), "--largest", str(largest), "--jobs", "1", "--json", str(file)
    )
    assert done.status == 0, done.err
    data: dict[str, Any] = json.loads(file.read_text())
    return data


def test_the_json_has_the_agreed_keys(validated: dict[str, Any], largest: int) -> None:
    keys = {"n", "skipped", "mape", "bias", "median", "constant_mape", "beats_constant",
            "spearman", "memory_n", "memory_mape", "memory_worst", "false_misfits"}  # fmt: skip
    for figures in validated["suites"].values():
        assert set(figures) == keys
    for row in validated["rows"]:
        assert {"case_id", "suite", "predicted_s", "measured_s", "error", "why_skipped"} <= set(row)
    assert len(validated["rows"]) == (36 if largest == 600 else 39)


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


def test_only_rows_that_lack_what_a_person_needs_are_skipped(
    validated: dict[str, Any], largest: int
) -> None:
    skipped = {r["case_id"]: r["why_skipped"] for r in validated["rows"] if r["why_skipped"]}
    large = {case for case, why in skipped.items() if "operations are more than" in why}
    assert large == {
        "mlm_jan21_39B", "mlm_readme_gpt3_1024", "mtnlg_2240", "bloom_176b",
        *(MORE if largest == 600 else ()),
    }  # fmt: skip
    assert set(skipped) - large == {"opt_175b", "zb_1.5B_24_zbh1", "tf17_dgx1_ResNet-50_1"}
    assert "no step time" in skipped["opt_175b"]
    assert "no step time" in skipped["zb_1.5B_24_zbh1"]
    assert "layers" in skipped["tf17_dgx1_ResNet-50_1"]


def test_what_was_not_run_is_counted_with_its_reason(
    scripts: Any, rows: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing stands in silently for the engine."""
    module = scripts("validate_training")
    chosen = [rows[case] for case in ("opt_175b", "mtnlg_2240")]
    results = module.outcomes(chosen, module.partial(module.by_engine, largest=10))
    module._print(results, rows=False)
    printed = capsys.readouterr().out
    assert "0 of 2 rows by the engine, 2 skipped:" in printed
    assert "218,400 operations are more than --largest 10" in printed


def test_a_micro_batch_that_is_not_published_is_said_to_be_assumed(scripts: Any) -> None:
    with STEPS.open(newline="") as file:
        record = next(r for r in csv.DictReader(file) if r["case_id"] == "vtrain_m0000")
    row = scripts("training_rows").read_row(record | {"micro_batch": ""})
    assert (row.micro, row.assumed, row.skipped) == (1, "micro_batch 1", "")


def test_errors_are_shares_of_what_was_measured(validated: dict[str, Any]) -> None:
    for row in validated["rows"]:
        if row["predicted_s"] is not None:
            share = (row["predicted_s"] - row["measured_s"]) / row["measured_s"]
            assert row["error"] == pytest.approx(share)


def test_published_steps_are_predicted(validated: dict[str, Any], largest: int) -> None:
    errors = {r["case_id"]: r["error"] for r in validated["rows"] if r["error"] is not None}
    assert len(errors) == (25 if largest == 600 else 32)
    assert max(map(abs, errors.values())) < 0.2, errors
    assert sum(map(abs, errors.values())) / len(errors) < 0.06


def test_steps_of_hopper_and_blackwell_are_predicted(
    validated: dict[str, Any], largest: int
) -> None:
    """Twelve rows of seven sources, in bf16 and fp8, by the stacks that their sources name."""
    suites = ("torchtitan", "dgxc_h100_bf16", "dgxc_h100_fp8", "nemo_24_07", "megatron_bridge",
              "nemo_25_02_b200_fp8")  # fmt: skip
    errors = {
        r["case_id"]: r["error"]
        for r in validated["rows"]
        if r["error"] is not None
        and (r["suite"] in suites or "H100" in r["case_id"] or r["case_id"] == "kempner_05_7B_4")
    }
    assert len(errors) == (9 if largest == 600 else 12)
    assert max(map(abs, errors.values())) < 0.12, errors


def test_published_peaks_of_memory_are_predicted(validated: dict[str, Any]) -> None:
    """What `torch.cuda.max_memory_reserved` said, within a tenth; and all of it fits."""
    known = [r for r in validated["rows"] if r["memory_error"] is not None]
    errors = {r["case_id"]: r["memory_error"] for r in known if r["suite"] != "zero_bubble"}
    assert len(errors) >= 4
    assert max(map(abs, errors.values())) < 0.1, errors
    assert all(r["fits"] for r in validated["rows"] if r["fits"] is not None)


def test_published_forward_backward_and_weight_times(scripts: Any) -> None:
    """Qi et al. 2023, table 9: F, B and W each within 8 per cent."""
    split, fitted = scripts("published_split"), scripts("fitted").load_fitted()
    ratios = split.stage_ratios(split.read_stage_rows(STAGES), fitted)
    assert len(ratios) == 18
    assert all(0.92 < ratio < 1.08 for ratio in ratios)


def test_uniform_pipelines_take_their_closed_forms(scripts: Any, rows: dict[str, Any]) -> None:
    """Without messages: 1F1B takes (m + p - 1) T, zero-bubble schedules less of the ramp."""
    module, row = scripts("step_compute"), rows["zb_6.2B_64_zb2p"]
    stages = [module.Stage(3.0, 2.0, 1.0)] * 8
    spans = {
        name: module.pipeline_seconds(dataclasses.replace(row, schedule=name), stages)
        for name in ("1f1b", "zb_2p", "zb_h1", "zb_h2")
    }
    assert spans["1f1b"] == pytest.approx((64 + 7) * 6.0)
    assert spans["zb_2p"] == pytest.approx(64 * 6.0)
    assert spans["zb_h1"] == pytest.approx(64 * 6 + 7 * (3 + 2 - 1))
    assert spans["zb_h2"] == pytest.approx(64 * 6 + 7 * (3 + 2 - 2))


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
    module, fitted = scripts("fit_compute"), scripts("fitted").load_fitted()
    place, other = "ampere.matmul_efficiency", "megatron-2021.stream"
    chosen = [p for p in module.read_parameters() if p.place in (place, other)]
    loose = [dataclasses.replace(p, stray=50.0) for p in chosen]
    known = fitted.replaced({place: 0.7, other: 2.0})
    mine = [row for row in rows.values() if row.stack == "megatron-2021"]
    engine = {row.case_id: 2.0 for row in mine}
    simulated = module.Simulated(engine, mine, fitted)
    made = [dataclasses.replace(row, measured=simulated.predict(row, known)) for row in mine]
    found = module.fit(made, [], fitted, loose, simulated=simulated)
    assert found.value(place) == pytest.approx(0.7, rel=0.01)
    assert found.value(other) == pytest.approx(2.0, rel=0.05)


def test_a_prediction_moves_by_what_the_row_computes(scripts: Any, rows: dict[str, Any]) -> None:
    """The engine's seconds by its own constants; by others, more or less by the compute alone."""
    module, base = scripts("fit_compute"), scripts("fitted").load_fitted()
    seconds = scripts("step_compute").compute_seconds
    row = rows["zb_6.2B_64_zb2p"]
    simulated = module.Simulated({row.case_id: 50.0}, [row], base)
    assert simulated.predict(row, base) == pytest.approx(50.0)
    slower = base.replaced({"megatron-2023.stream": 2.0})
    added = seconds(row, slower) - seconds(row, base)
    assert added > 0
    assert simulated.predict(row, slower) == pytest.approx(50.0 + added)
    other = base.replaced({"torchtitan.stream": 5.0})
    assert simulated.predict(row, other) == pytest.approx(50.0)


def test_a_tangent_says_what_the_model_does_nearby(scripts: Any, rows: dict[str, Any]) -> None:
    """Equal at the file's constants, within a thousandth 3 % beside them in two at once."""
    module, base = scripts("fit_compute"), scripts("fitted").load_fitted()
    places = ("ampere.matmul_efficiency", "megatron-2021.stream", "ampere.spread")
    chosen = [p for p in module.read_parameters() if p.place in places]
    mine = [row for row in rows.values() if row.stack == "megatron-2021"][:3]
    simulated = module.Simulated({row.case_id: 9.0 for row in mine}, mine, base)
    tangent = module.Tangent(simulated, mine, [], base, chosen)
    moved = base.replaced({place: 1.03 * base.value(place) for place in places})
    for row in mine:
        assert tangent.predict(row, base) == pytest.approx(9.0)
        expected = simulated.predict(row, moved)
        assert expected != pytest.approx(9.0, rel=1e-3)
        assert tangent.predict(row, moved) == pytest.approx(expected, rel=1e-3)
    assert tangent.ratios([], moved).size == 0


def test_every_constant_that_is_fitted_is_in_the_file(
    scripts: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Written and read again, all constants are what they were, to the digits of the file."""
    fitted = scripts("fitted")
    places = [p.place for p in scripts("fit_compute").read_parameters()]
    copy = tmp_path / "constants.yaml"
    copy.write_text(fitted.CONSTANTS.read_text())
    monkeypatch.setattr(fitted, "CONSTANTS", copy)
    before = fitted.load_fitted()
    changed = before.replaced(dict.fromkeys(places, 0.321))
    fitted.save_fitted(changed, parameters=places)
    data = yaml.safe_load(copy.read_text())
    read = {**data["generations"], **data["stacks"], **data["recipes"]}
    for place in places:
        value: Any = read
        for name in place.split("."):
            value = value[name]
        assert value == 0.321, place


def test_the_engine_runs_what_a_row_describes(scripts: Any, rows: dict[str, Any]) -> None:
    """Cards of four, parts of less power, layers without a step."""
    engine = scripts("engine_step")
    scenario = engine.row_scenario(rows["kempner_05_7B_4"])
    assert scenario["cluster"]["overrides"]["gpu"] == {"spec": "H200-SXM-141GB", "count": 4}
    scenario = engine.row_scenario(rows["tt_8b_fsdp8_compile"])
    gpu = scenario["cluster"]["overrides"]["gpu"]
    assert gpu["tflops"]["bf16"] == pytest.approx(0.85 * 989.4, rel=0.01)
    half = dataclasses.replace(rows["mlm_2020_V100-32_4B"], gpus=8)  # of a node of sixteen
    cluster = decode(engine.row_scenario(half)["cluster"], ClusterSection, "x")
    assert build_cluster(cluster, "x").world_size == 8
    layer = engine.engine_step(rows["korth_t4_22B_layer_sel"]).seconds
    assert layer == pytest.approx(rows["korth_t4_22B_layer_sel"].measured, rel=0.1)
