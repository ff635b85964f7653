"""Every figure: it draws the numbers of its answer, says them in a sentence, has colours of the tokens alone, and compiles."""

from __future__ import annotations

import importlib.util
import itertools
import json
import re

import pytest

from figures.answers import MADE, answer_of, asked
from ironlaw.errors import QuestionError, UnknownNameError
from ironlaw.figures import marks, table, theme
from ironlaw.figures.table import FIGURES, data_of, draw, rows_of

GIB = 2.0**30
HAS_CONVERTER = importlib.util.find_spec("vl_convert") is not None


def drawn(name):
    return draw(name, answer_of(name, FIGURES[name].verb))


def column(name, key):
    return [row[key] for row in rows_of(drawn(name))]


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_is_plain_data_with_a_title_a_sentence_and_rows(name):
    spec = drawn(name)
    assert json.loads(json.dumps(spec, allow_nan=False)) == spec
    assert spec["$schema"] == marks.SCHEMA and spec["title"]["text"] and len(spec["description"]) > 20
    assert rows_of(spec) and data_of(spec) and table.csv_of(spec).count("\n") == len(rows_of(spec)) + 1
    assert spec["width"] >= 330 and spec["height"] >= 110


@pytest.mark.parametrize("name", FIGURES)
def test_the_colours_of_a_figure_are_tokens(name):
    spec = drawn(name)
    marked = json.dumps([{key: value for key, value in one.items() if key != "data"} for one in spec["layer"]])
    assert not re.search(r'"#[0-9a-f]{3,8}"', marked)
    for shade in theme.THEMES:
        whole = json.dumps(theme.dressed(spec, shade))
        assert not re.search(r'"@[\w-]+"', whole) and theme.tokens(shade)["ink"] in whole
        assert theme.dressed(spec, shade)["data"] == spec["data"]


@pytest.mark.skipif(not HAS_CONVERTER, reason="vl-convert is missing: pip install ironlaw[figures]")
@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_compiles(name):
    import vl_convert

    from ironlaw.figures.convert import VERSION

    compiled = vl_convert.vegalite_to_vega(theme.dressed(drawn(name)), vl_version=VERSION)
    assert compiled["marks"] and compiled["description"] == drawn(name)["description"]


def test_an_answer_that_another_verb_gave_is_refused():
    with pytest.raises(QuestionError, match="draws an answer of `ironlaw plan`: this one has no pareto"):
        draw("pareto-memory", asked("estimate"))
    with pytest.raises(QuestionError, match="several estimates"):
        draw("scaling", asked("estimate"))
    with pytest.raises(QuestionError, match="one answer"):
        draw("roofs", asked("scaling"))
    with pytest.raises(UnknownNameError, match="nearest: waterfall"):
        draw("waterfal", asked("estimate"))


def test_every_answer_draws_the_figures_of_its_verb():
    for verb in ("estimate", "plan", "diagnose", "roofline", "compare", "validate"):
        specs = table.drawn_of(verb, asked(verb))
        assert specs and all(FIGURES[name].verb == verb for name in specs)
    assert "pipeline" not in table.drawn_of("estimate", asked("estimate")) and "ranks" not in table.drawn_of("diagnose", asked("diagnose"))


# --- the numbers


def test_memory_is_that_of_the_answer():
    memory = asked("estimate")["memory"]
    assert sum(column("memory-bar", "GiB")) * GIB == pytest.approx(memory["device"])
    ends = [row["to"] for row in rows_of(drawn("memory-bar"))]
    assert ends == sorted(ends) and ends[-1] * GIB == pytest.approx(memory["device"])
    for answer in asked("memory-batch"):
        at = str(answer["plan"]["micro_batch_size"])
        sizes = [row["GiB"] for row in rows_of(drawn("memory-batch")) if row["micro_batch_size"] == at]
        assert sum(sizes) * GIB == pytest.approx(answer["memory"]["device"])


def test_the_roofs_share_the_step():
    shares = dict(zip(column("roofs", "kind"), column("roofs", "share"), strict=True))
    assert sum(shares.values()) == pytest.approx(1.0)
    assert all(shares[kind] == part for kind, part in asked("estimate")["bound"]["shares"].items() if part > 0.0)


def test_the_losses_lead_from_the_peak_to_the_mfu():
    rows = rows_of(drawn("waterfall"))
    assert rows[-1]["share"] == asked("estimate")["mfu_waterfall"]["mfu"]
    assert 1.0 - sum(row["share"] for row in rows[1:-1]) == pytest.approx(rows[-1]["share"])
    for before, after in itertools.pairwise(rows[:-1]):
        assert after["to"] == pytest.approx(before["from"] or before["to"])


def test_the_first_level_of_the_tree_is_the_step_but_for_what_is_too_small():
    rows = rows_of(drawn("step-tree"))
    seconds = asked("estimate")["step"]["seconds"]
    top = sum(row["seconds"] for row in rows if row["path"].count("/") == 1)
    assert 0.98 * seconds < top <= seconds * (1.0 + 1e-12)
    said = re.search(r"(\d+) smaller terms are not drawn", drawn("step-tree")["description"])
    assert said and int(said[1]) > 0


def test_a_pass_of_a_pipeline_is_an_event_of_the_timeline():
    found = asked("pipeline")["timeline"]
    rows = rows_of(drawn("pipeline"))
    assert len(rows) == len(found["events"]["start"]) and max(row["end_ms"] for row in rows) <= found["seconds"] * 1e3 + 1e-3
    assert {row["stage"] for row in rows} == {f"stage {at}" for at in range(found["stages"])}


def test_rates_are_those_of_the_rows_and_lie_in_their_bands():
    for name, key in (("batch-curve", "global_batch_size"), ("scaling", "gpus")):
        for row, answer in zip(rows_of(drawn(name)), asked(name), strict=True):
            assert row[key] == answer["plan"][key] and row["tokens_per_second"] == answer["throughput"]["tokens_per_second"]
            assert row["low"] < row["tokens_per_second"] < row["high"]
    with pytest.raises(QuestionError, match="global batch size"):
        draw("batch-curve", [*asked("batch-curve")[:1], *asked("batch-curve")[:1]])


def test_a_token_takes_what_the_model_counts():
    for answer in asked("flop-token"):
        parts = {
            row["part"].partition(",")[0]: row
            for row in rows_of(drawn("flop-token"))
            if row["tokens"] == f"{answer['plan']['seq_len']:,.0f}"
        }
        assert parts["backward"]["gflop"] == 2.0 * parts["forward"]["gflop"]
        # scores and their product with values: 2 FLOP each for every element of half a matrix in each layer, three times with backward
        expected = 3.0 * 2.0 * 2.0 * 32 * 4096 * answer["plan"]["seq_len"] / 2.0
        assert parts["attention"]["gflop"] * 1e9 == pytest.approx(expected, rel=1e-3)


def test_nothing_on_the_front_of_plans_beats_another():
    rows = rows_of(drawn("pareto-memory"))
    best = asked("plan")["plans"][0]
    assert [row["step_seconds"] for row in rows] == sorted(row["step_seconds"] for row in rows)
    assert [row["GiB"] for row in rows] == sorted((row["GiB"] for row in rows), reverse=True)
    front = {(one["step_seconds"], one["device_bytes"]) for one in asked("plan")["pareto"] if one["gpus"] == best["plan"]["gpus"]}
    assert {(row["step_seconds"], row["bytes"]) for row in rows} <= front


def test_plans_sizes_and_advice_are_those_of_the_search():
    answer = asked("plan")
    assert column("plans", "step_seconds") == [one["step"]["seconds"] for one in answer["plans"]]
    assert sorted(row * 1e6 for row in column("size-money", "million_usd")) == pytest.approx(
        sorted(one["usd"] for one in answer["sizes"]["by_gpus"])
    )
    gains = [one["gain"] for one in answer["advice"] if one["about"] == "resource"]
    assert column("advice", "gain") == sorted(gains, reverse=True)


def test_the_parts_of_a_window_sum_to_it():
    file = asked("diagnose")["files"][0]
    assert sum(column("partition", "ms")) * 1e3 == pytest.approx(file["window"]["wall_us"])
    assert sum(column("gaps", "ms")) * 1e3 == pytest.approx(sum(one["us"] for one in file["gap_classes"]))
    assert len(rows_of(drawn("timeline"))) == sum(len(lane["kind"]) for lane in file["lanes"])
    assert column("roof-gains", "at_most") == [one["gain"][1] for one in asked("diagnose")["verdict"]["ranking"]]


def test_every_rank_has_its_wait_in_every_collective():
    meetings = asked("ranks")["ranks"]["meetings"]
    rows = rows_of(drawn("ranks"))
    assert len(rows) == sum(len(one["wait_ns"]) for one in meetings)
    assert sum(row["wait_ms"] for row in rows) * 1e6 == pytest.approx(sum(sum(one["wait_ns"].values()) for one in meetings))


def test_an_operator_is_below_its_roof():
    for row, one in zip(rows_of(drawn("roofline")), asked("roofline")["operators"], strict=True):
        assert row["tflops"] * 1e12 * row["seconds"] == pytest.approx(one["flop"]) and row["tflops"] <= row["roof_tflops"]
        assert row["roof_tflops"] * 1e12 == one["attainable_rate"]


def test_the_operators_of_a_step_have_the_roofs_of_their_device():
    answer = asked("overlap")
    spec = draw("roofline", answer)
    peak = max(point["tflops"] for one in spec["layer"] for point in one.get("data", {}).get("values", ()) if "roof" in point)
    assert peak == pytest.approx(989.0) and all(row["tflops"] < peak for row in rows_of(spec))
    assert len(rows_of(spec)) == sum(1 for one in answer["operators"] if one["flop"] and one["bytes"])


def test_what_is_hidden_and_what_shows_are_the_collective_alone():
    for one in asked("overlap")["hidden"]:
        parts = [row["seconds"] for row in rows_of(drawn("overlap")) if row["collective"] == one["collective"]]
        assert sum(parts) == pytest.approx(max(one["alone"], one["shown"])) or one["alone"] == 0.0


def test_points_of_a_validation_are_its_predictions():
    answer = asked("validate")
    assert column("error-scatter", "ratio") == [1.0 + one["error"] for one in answer["predictions"]]
    outside = [one for one in answer["predictions"] if one["band"] and not one["band"][0] <= one["measured_s"] <= one["band"][1]]
    assert f"{len(outside)} lie outside their own band" in drawn("error-scatter")["description"]
    assert sorted(column("families", "median_error")) == sorted(one["median_abs_error"] for one in answer["groups"])
    assert column("coverage", "inside") == [one["family_coverage"] for one in answer["bands"]["groups"]]


def test_a_band_of_money_lies_on_the_ray_of_its_rent():
    rows = {row["accelerator"]: row for row in rows_of(drawn("money-time"))}
    for one in asked("compare")["estimate"]:
        row = rows[one["accelerator"]]
        assert row["days"] == one["days_with_failures"] and row["million_usd"] * 1e6 == pytest.approx(one["usd_with_failures"])
        assert row["days_low"] * row["usd_a_day"] == pytest.approx(one["usd_low"])
    assert column("compare", "million_usd") == sorted(column("compare", "million_usd"))


def test_the_steps_and_the_days_of_sites_are_those_of_the_answer():
    answer = asked("sites")
    for one in answer["waiting_by_site"]:
        ends = [row["to"] for row in rows_of(drawn("site-step")) if row["site"].lower() == one["site"]]
        assert ends[-1] == pytest.approx(one["step"] + one["others"] + one["exchange"])
    for row, one in zip(rows_of(drawn("exchange")), answer["intervals"], strict=True):
        assert row["days"] * 86400.0 == one["seconds"] and row["computing_days"] + row["waiting_days"] == pytest.approx(row["days"])
    assert sum(row["chosen"] for row in rows_of(drawn("exchange"))) == 1
    chosen = next(row for row in rows_of(drawn("exchange")) if row["chosen"])
    assert chosen["steps_between"] == 100 and chosen["days"] * 86400.0 == answer["ways"][0]["seconds"]


def test_a_map_has_the_places_of_the_sites_and_land_with_rings_that_close():
    spec = drawn("sites-map")
    assert [(row["latitude"], row["longitude"]) for row in rows_of(spec)] == [
        (p["latitude"], p["longitude"]) for p in asked("sites")["places"]
    ]
    (shape,) = spec["layer"][0]["data"]["values"]
    rings = [ring for polygon in shape["geometry"]["coordinates"] for ring in polygon]
    assert len(rings) > 10 and all(ring[0] == ring[-1] and len(ring) > 3 for ring in rings)
    assert len(json.dumps(spec)) < 60_000
    with pytest.raises(QuestionError, match="two sites or more"):
        draw("sites-map", {**asked("sites"), "places": []})


def test_prices_are_those_of_the_record():
    from ironlaw.catalog import load
    from ironlaw.estimate.bind.money import usual_price

    prices = load.record("prices", "h100-sxm")
    rows = rows_of(drawn("price-history"))
    assert sorted(row["usd_per_hour"] for row in rows) == pytest.approx(sorted(one.per_hour.value * 3600.0 for one in prices.price))
    (used,) = [row for row in rows if row["in_use"]]
    assert used["usd_per_hour"] == pytest.approx(usual_price(prices).per_hour.value * 3600.0)
    with pytest.raises(QuestionError, match="no price"):
        draw("price-history", {"prices": []})


def test_what_a_hue_does_not_tell_is_striped():
    """Waits, idle time and slack have stripes, copies dots: dashes of lines as thick as their bars, which every renderer draws."""

    def striped(name):
        layers = [one for one in drawn(name)["layer"] if "strokeDash" in one["mark"] and "expr" in str(one["mark"].get("strokeWidth"))]
        return [row for one in layers for row in one["data"]["values"]]

    for name in ("partition", "timeline", "gaps", "site-step"):
        found = striped(name)
        assert found and all(row.get("waits") or row["kind"] in ("idle", "slack", "copy") for row in found)
    assert {row["what"] for row in striped("site-step")} == {"waits for a site", "waits for the exchange"}
    assert len(striped("pipeline")) == asked("pipeline")["timeline"]["stages"]


def test_techniques_are_drawn_as_they_are():
    assert [size * GIB for size in column("checkpointing", "GiB")] == pytest.approx(
        [one["device"] for one in asked("checkpointing")["checkpoints"]]
    )
    base = asked("energy-precision")
    rows = {row["precision"]: row for row in rows_of(drawn("energy-precision"))}
    assert rows[base["plan"]["precision"]]["kilojoules"] * 1e3 == base["base"]["joules"] and len(rows) > 1


def test_answers_for_tests_are_those_of_figures():
    assert set(MADE) <= {*FIGURES, *(one.verb for one in FIGURES.values())}
