"""How far runs are from each other, the published runs nearest to a question, and bands that widen with the distance."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ironlaw
from ironlaw.catalog import load
from ironlaw.cautions.record import sentences
from ironlaw.estimate.answer.bands import PARTS, band_data, coefficients, multiples, parts_of_band, place_of, width_parts
from ironlaw.estimate.evidence.distance import NAMES, SIZES, TRAITS, UNKNOWN, differences, distance, log2
from ironlaw.estimate.evidence.published_runs import COLUMNS, PUBLISHERS, mean_gap, nearest, read_evidence, write_evidence

TEXTS = {"stack": ("fsdp", "nemo", "megatron"), "device": ("h100", "a100"), "architecture": ("hopper", "ampere"), "format": ("bf16", "fp8")}
PLACES = st.fixed_dictionaries(
    {
        **{name: st.sampled_from(values) for name, values in TEXTS.items()},
        **{name: st.booleans() for name in TRAITS},
        **{name: st.floats(1.0, 1e12) for name in SIZES},
    }
)


@given(PLACES, PLACES, PLACES)
def test_the_distance_is_a_metric(a, b, c):
    assert distance(a, a) == 0.0
    assert distance(a, b) == pytest.approx(distance(b, a), abs=1e-12)
    assert distance(a, b) >= 0.0
    assert distance(a, c) <= distance(a, b) + distance(b, c) + 1e-9


@given(PLACES, PLACES, st.sampled_from(sorted(NAMES)))
def test_one_more_difference_is_never_nearer(a, b, name):
    same = {**b, name: a[name]}
    assert distance(a, same) <= distance(a, b)


@given(PLACES, PLACES)
def test_an_unknown_stack_is_further_from_every_run(a, b):
    unknown = {**a, "stack": UNKNOWN}
    assert distance(unknown, b) == pytest.approx(distance(a, b) + (NAMES["stack"] if a["stack"] == b["stack"] else 0.0))
    assert distance(unknown, unknown) == NAMES["stack"]


@given(PLACES, PLACES)
def test_what_differs_is_named_where_there_is_a_distance(a, b):
    same, other = differences(a, b)
    sizes = [abs(np.log2(a[name] / b[name])) for name in SIZES]
    if any(a[name] != b[name] for name in ("stack", "device", "format", *TRAITS)) or max(sizes) > 0.5:
        assert other
    assert not set(same) & set(other)


def test_the_evidence_that_ships_covers_its_publishers():
    evidence = read_evidence()
    assert len(set(evidence.families.tolist())) >= PUBLISHERS
    assert np.all(evidence.numbers["measured_s"] > 0.0)
    assert np.all(evidence.numbers["predicted_s"] > 0.0)
    devices, stacks = set(evidence.places["device"].tolist()), set(evidence.places["stack"].tolist()) - {UNKNOWN}
    assert devices <= set(load.names("accelerators"))
    assert stacks <= set(load.names("frameworks"))


def test_evidence_comes_back_as_it_was_written(tmp_path):
    evidence, path = read_evidence(), tmp_path / "evidence.csv"
    write_evidence(evidence, path)
    back = read_evidence(path)
    assert path.read_text(encoding="utf-8").splitlines()[0] == ",".join(COLUMNS)
    for own, other in zip(evidence, back, strict=True):
        for name in own:
            np.testing.assert_array_equal(own[name], other[name])


def test_the_nearest_runs_are_of_different_publishers_and_leave_one_out():
    evidence = read_evidence()
    at = 0
    place = {name: column[at] for name, column in evidence.places.items()}
    near = nearest(place, evidence)
    families = [str(evidence.families[run.at]) for run in near]
    assert len(set(families)) == len(near) == PUBLISHERS
    assert near[0].gap == pytest.approx(NAMES["stack"] if place["stack"] == UNKNOWN else 0.0)
    assert [run.gap for run in near] == sorted(run.gap for run in near)
    without = nearest(place, evidence, families[0])
    assert families[0] not in [evidence.families[run.at] for run in without]
    assert mean_gap(without) >= mean_gap(near)


# --- bands

QUESTION = {"model": "llama-3-8b", "on": "h100-sxm", "gpus": 64, "tp": 1, "pp": 1, "zero": 3, "micro_batch_size": 1}


def half_width(**change):
    group, at = ironlaw.estimate(**{**QUESTION, "framework": "fsdp", **change}).place_of(0)
    return sum(parts_of_band(group, at).values())


def test_no_part_of_a_width_is_negative_and_the_base_is_not_zero():
    found = coefficients()
    assert set(found) == set(PARTS)
    assert min(found.values()) >= 0.0
    assert found["base"] >= 0.05


def test_an_unknown_stack_widens_the_band():
    named, unnamed = ironlaw.estimate(**QUESTION, framework="fsdp"), ironlaw.estimate(**QUESTION)
    assert named.step_seconds[0] == unnamed.step_seconds[0]  # the same stack, once stated and once assumed
    widths = [np.log(answer.row(0)["step"]["band"][1] / answer.step_seconds[0]) for answer in (named, unnamed)]
    assert widths[1] > widths[0] + 1e-6
    told = band_data(*unnamed.place_of(0))
    assert told["half_width"] == pytest.approx(widths[1])
    way = next(way for way in told["narrower"] if "--framework" in way["what"])
    assert way["half_width"] == pytest.approx(widths[0])


def test_a_question_further_away_never_has_a_narrower_band():
    """Each change takes the question further from every published run than the one before it."""
    evidence = read_evidence()
    group, at = ironlaw.estimate(**QUESTION, framework="fsdp").place_of(0)
    here, law = place_of(group, at), coefficients()
    scales = [mean_gap(nearest({**here, "gpus": gpus}, evidence)) for gpus in (4096.0, 16384.0, 65536.0, 262144.0)]
    assert scales == sorted(scales)
    gaps = [here, {**here, "device": "none"}, {**here, "device": "none", "architecture": "none"}]
    gaps.append({**gaps[-1], "format": "none"})
    widths = [law["distance"] * mean_gap(nearest(place, evidence)) for place in gaps]
    assert widths == sorted(widths)
    found = multiples(group, at, evidence)
    for name in PARTS:
        wider = {**found, name: found[name] + 0.5}
        assert sum(width_parts(wider, law).values()) >= sum(width_parts(found, law).values())


def test_fewer_accelerators_never_narrow_a_band():
    assert half_width(gpus=8, global_batch_size=64) >= half_width(gpus=64) - 1e-12


@pytest.mark.parametrize("device", ["mi300x", "gaudi-3", "trainium-2"])
def test_a_device_that_nobody_scored_has_a_visibly_wider_band(device):
    """Its generation was scored by nobody either: a distance of 1 more from every publisher."""
    question = {"model": "llama-3-70b", "gpus": 512, "framework": "generic"}  # for none of the others runs on each of them
    there, h100 = (sum(parts_of_band(*ironlaw.estimate(**question, on=on).place_of(0)).values()) for on in (device, "h100-sxm"))
    assert device not in set(read_evidence().places["device"].tolist())
    assert there > h100 + 0.05


def test_the_parts_of_a_band_add_up_and_explain_the_answer():
    row = ironlaw.estimate(**QUESTION).row(0)
    low, high, coverage = row["step"]["band"]
    band = row["error_band"]
    assert np.log(high / low) == pytest.approx(2.0 * band["half_width"])
    assert sum(band["parts"].values()) == pytest.approx(band["half_width"])
    assert coverage == band["coverage"] == 0.8
    assert all(way["half_width"] < band["half_width"] for way in band["narrower"])


def test_a_band_has_the_same_digits_with_any_numpy_and_any_order_of_its_parts():
    """numpy's logarithm moves in its last digit between versions, and Python 3.12 adds floats otherwise than 3.11."""
    sizes = [*range(1, 300), 7e9 / 3, 8_030_261_248.0, 1e308]
    assert log2(sizes).tolist() == [math.log2(size) for size in sizes]
    assert [log2(size) for size in sizes] == [math.log2(size) for size in sizes]
    group = ironlaw.estimate("llama-3-8b", on="h100-sxm", gpus=8).groups[0]
    parts = parts_of_band(group, 0)
    assert band_data(group, 0)["half_width"] == math.fsum(reversed(parts.values()))


def test_an_answer_names_the_nearest_published_runs():
    runs = ironlaw.estimate(**QUESTION).row(0)["nearest_runs"]
    assert len({run["family"] for run in runs}) == len(runs) == 3
    for run in runs:
        assert run["error"] == pytest.approx(run["predicted_seconds"] / run["measured_seconds"] - 1.0)
        assert run["same"] or run["differs"]
    assert [run["distance"] for run in runs] == sorted(run["distance"] for run in runs)


def test_a_schedule_that_nobody_scored_has_no_band():
    row = ironlaw.estimate("llama-3-8b", on="h100-sxm", gpus=64, tp=1, pp=4, schedule="zero-bubble").row(0)
    assert row["step"]["band"] is None
    assert row["error_band"] is None
    assert any("no error band" in warning and "zero-bubble" in warning for warning in sentences(row["warnings"]))
    assert row["nearest_runs"]


def test_adapters_have_a_wider_band_than_training_all():
    """Adapters were measured by several publishers: with them left out in turn, their errors are larger."""
    assert half_width(framework="huggingface", lora_rank=16) > half_width(framework="huggingface")
