"""``ironlaw sites``: worked cases, relations, refusals, the command."""

from __future__ import annotations

import contextlib
import io
import json
import math
from types import SimpleNamespace

import pytest

import ironlaw
import paths
from ironlaw import sites
from ironlaw.catalog import audit, load
from ironlaw.cli.main import main
from ironlaw.errors import IronlawError
from ironlaw.law import collectives, wide_area
from ironlaw.questions.sites.options import read_places
from ironlaw.questions.sites.places import bind_places, order_ring
from ironlaw.questions.textbook.ten_sites import study

DAY, YEAR = 86400.0, 365.25 * 86400.0
CASES = {case["id"]: case for case in json.loads((paths.DATA / "oracle_sites.json").read_text(encoding="utf-8"))}
ASK = {
    "model": "llama-3-8b", "sites": "jean-zay,el-capitan", "on": "h100-sxm", "gpus": 128, "wan_bandwidth": "10GB/s",
    "tokens": "1T", "global_batch_size": 512, "seq_len": 8192, "tp": 1, "pp": 1, "price": 2.0, "wan_efficiency": 1,
}  # fmt: skip


def answer(**options):
    return sites(**{**ASK, **options})


@pytest.fixture(scope="module")
def plain():
    return answer()


@pytest.fixture(scope="module")
def ten():
    return study({})


# Worked cases of the ten-sites study


def row_of(ten, table, case):
    return next(row for row in ten[table] if row["batch"] == case["inputs"]["gbs"])


def printed(ten, case):
    row = row_of(ten, "printed", case)
    return {
        "t_step_bf16": row["exchange"], "days_bf16": row["bf16"] / DAY, "years_bf16": row["bf16"] / YEAR,
        "ratio_bf16": 100 * row["bf16_share"],
        "years_fp8": row["fp8"] / YEAR, "days_fp8_true": row["fp8"] / DAY, "ratio_fp8": 100 * row["fp8_share"],
        "days_diloco": row["diloco"] / DAY, "ratio_diloco": 100 * row["diloco_share"], "idle_bf16_B": row["idle_bf16"] / 1e9,
        "idle_fp8_B": row["idle_fp8"] / 1e9, "bw_GBs": row["bandwidth"] / 1e9,
    }  # fmt: skip


def corrected(ten, case):
    row = row_of(ten, "corrected", case)
    return {
        "idle_cost_bf16": row["idle_bf16"], "idle_cost_fp8": row["idle_fp8"], "days_fp8": row["fp8"] / DAY,
        "days_diloco_bf16": row["diloco"] / DAY, "ratio_diloco_bf16": 100 * row["diloco_share"], "t_step_ring": row["ring_step"],
        "days_ring": row["ring"] / DAY, "ratio_ring": 100 * row["ring_share"], "days_diloco_ring": row["ring_diloco"] / DAY,
        "ratio_diloco_ring": 100 * row["ring_diloco_share"], "overlap_exposed_s": row["ring_exposed"],
    }  # fmt: skip


def latency(ten, case):
    row = row_of(ten, "latency", case)
    return {
        "total_jc_s": row["lyon"], "idle_jc_gpu_days": row["lyon_gpu_seconds"] / DAY, "cost_jc_usd": row["lyon_usd"],
        "total_ec_s": row["el_capitan"], "idle_ec_gpu_years": row["el_capitan_gpu_seconds"] / YEAR, "cost_ec_usd": row["el_capitan_usd"],
    }  # fmt: skip


def distances(ten, case):
    i = case["inputs"]
    jc = wide_area.great_circle(*i["JEAN_ZAY"], *i["JOLIOT_CURIE"])
    ec = wide_area.great_circle(*i["JEAN_ZAY"], *i["EL_CAPITAN"])
    return {
        "jz_jc_km": jc / 1e3, "jz_ec_km": ec / 1e3, "jz_jc_ms": 1e3 * wide_area.light_time(jc), "jz_ec_ms": 1e3 * wide_area.light_time(ec),
        "jz_ec_fiber_ms": 1e3 * wide_area.fibre_time(ec, 1.0, 299792458 / 2e8),
    }  # fmt: skip


def tgcc(ten, case):
    metres = sites(**{**ASK, "sites": ["jean-zay", case["inputs"]["TGCC"]]})["links"][0]["metres"]
    return {"km": metres / 1e3, "us": 1e6 * wide_area.light_time(metres)}


def constant_share(ten, case):
    return {key: wide_area.effective_accelerators(case["inputs"]["N"], float(key[1:])) for key in case["expected"]}


ANSWERS = {"S004-06": printed, "S004-07": corrected, "S004-10": latency, "S004-08": distances, "S004-09": tgcc, "S003-58": constant_share}


@pytest.mark.parametrize("name", sorted(CASES))
def test_case(name, ten):
    case = CASES[name]
    found = ANSWERS[name[:7]](ten, case)
    assert set(found) == set(case["expected"])
    for key, expected in case["expected"].items():
        assert float(found[key]) == pytest.approx(expected, rel=case["rel_tol"], abs=0.0), key


def test_the_study_counts_computation_and_waiting_together(ten):
    """Errata E004-12: 1M, bf16, the study's pipe: 231.6 and 30,181.8 days."""
    row = next(row for row in ten["corrected"] if row["batch"] == 1e6)
    assert row["total"] / DAY == pytest.approx(231.6 + 30181.8, abs=0.1)
    assert row["total_usd"] == pytest.approx(row["compute_usd"] + row["idle_bf16"])


def test_the_cost_of_waiting_hardly_depends_on_the_batch(ten):
    """Errata E004-2: it varied four thousand times as printed."""
    right, wrong = ([row["idle_bf16"] for row in ten[table]] for table in ("corrected", "printed"))
    assert max(right) / min(right) < 1.1
    assert max(wrong) / min(wrong) > 3900


# Relations between the numbers of an answer


def test_the_step_inside_a_site_is_that_of_the_estimate(plain):
    one = ironlaw.estimate("llama-3-8b", on="h100-sxm", gpus=64, global_batch_size=256, seq_len=8192, tp=1, pp=1)
    assert plain["compute_seconds"] == float(one.step_seconds[0])


def test_the_run_is_computation_and_waiting_and_costs_both(plain):
    steps, exposed = float(plain["steps"]), float(plain["exposed"])
    seconds = float(plain["seconds"][0])
    assert seconds == pytest.approx(steps * (plain["compute_seconds"] + exposed), rel=1e-12)
    assert float(plain["cost"]) == pytest.approx(128 * seconds * 2.0 / 3600, rel=1e-12)
    assert float(plain["cost_of_waiting"]) == pytest.approx(128 * steps * exposed * 2.0 / 3600, rel=1e-12)


def test_an_exchange_is_a_ring_all_reduce_with_latency(plain):
    link = plain["links"][0]
    assert link["fibre"] == pytest.approx(1.3 * 1.468 * link["light"], rel=1e-12)
    size = 2.0 * load_parameters("llama-3-8b")
    assert float(plain["exchange"]) == float(collectives.ring_all_reduce(2, size, 10e9, link["fibre"]))


def load_parameters(name):
    from ironlaw.estimate.layer.counts import total_parameters

    return float(total_parameters(load.record("models", name)))


def test_a_shared_network_is_split_evenly(plain):
    assert float(answer(wan_bandwidth=None, shared_bandwidth="20GB/s")["exchange"]) == pytest.approx(float(plain["exchange"]))
    assert float(answer(wan_bandwidth="10GB/s,40GB/s")["exchange"]) == float(plain["exchange"])


def test_rarer_smaller_and_overlapped_exchanges_wait_less(plain):
    waits = [
        float(answer(**more)["exposed"])
        for more in (
            {"gradients": "fp32"},
            {},
            {"gradients": "int8"},
            {"inner_steps": 10},
            {"inner_steps": 100},
            {"inner_steps": 100, "overlap_steps": 1},
        )
    ]
    assert waits == sorted(waits, reverse=True)
    assert float(answer(inner_steps=100, overlap_steps=100)["exposed"]) == 0.0


def test_pieces_cost_latency_and_nothing_else(plain):
    whole, pieces = (answer(inner_steps=100, outer_fragments=n) for n in (1, 10))
    extra = 9 * 2 * plain["links"][0]["fibre"] / 100
    assert float(pieces["exposed"]) == pytest.approx(float(whole["exposed"]) + extra, rel=1e-9)


def test_intellect_1_sends_400_times_less():
    """Published: int8 every 100 steps, 400 times less than gradients in fp32."""
    assert answer(inner_steps=100, gradients="int8")["traffic_reduction"] == 400.0


def test_each_site_has_its_own_grid_and_uneven_sites_their_share():
    found = answer(gpus="64,192")
    rows = {row["site"]: row for row in found["by_site"]}
    assert rows["el-capitan"]["power"] == pytest.approx(3 * rows["jean-zay"]["power"])
    france, states = (load.record("grids", name).intensity.value for name in ("france", "united-states"))
    assert rows["el-capitan"]["carbon"] / rows["jean-zay"]["carbon"] == pytest.approx(3 * states / france)
    assert float(found["power"]) == pytest.approx(sum(row["power"] for row in rows.values()))


def test_a_site_with_too_little_power_is_warned_of():
    assert any("jean-zay has 50 kW" in warning for warning in answer(power_limit="50kW,1MW").warnings)
    assert not any("draw" in warning for warning in answer().warnings)


def test_values_per_site_stay_with_their_site():
    """The ring orders the sites differently from the question; the tables do not."""
    asked = ["jean-zay", "el-capitan", "alps", "frontier"]
    found = answer(sites=asked, gpus="64,128,192,256", global_batch_size=640, power_limit="1MW,2MW,3MW,4MW")
    assert [row["site"] for row in found["by_site"]] == asked
    assert [row["link"].split(" - ")[0] for row in found["links"]] != asked
    for row in found["by_site"]:
        at = asked.index(row["site"]) + 1
        assert (row["gpus"], row["limit"]) == (64.0 * at, 1e6 * at)


def test_the_simplified_step_is_six_flop_a_parameter_and_token():
    found = answer(mfu=0.4, global_batch_tokens=4e6, global_batch_size=None, tp=None, pp=None, seq_len=None)
    assert found["compute_seconds"] == pytest.approx(6 * load_parameters("llama-3-8b") * 4e6 / (128 * 0.4 * 989e12), rel=1e-9)
    assert any("simplified" in warning for warning in found.warnings)


def test_the_ring_has_the_shortest_longest_link():
    asked = read_places("jean-zay,el-capitan,lumi,frontier", "--sites")
    order = [place.name for place in order_ring(bind_places(asked, ()))]
    assert order.index("frontier") in (order.index("el-capitan") - 1, order.index("el-capitan") + 1)


# The catalogue


def test_joliot_curie_is_not_in_lyon():
    jean_zay, joliot_curie = (load.record("sites", name) for name in ("jean-zay", "joliot-curie"))
    metres = wide_area.great_circle(jean_zay.latitude, jean_zay.longitude, joliot_curie.latitude, joliot_curie.longitude)
    assert metres == pytest.approx(12.5e3, rel=0.01)


@pytest.mark.parametrize(
    ("line", "said"), [("latitude = 95.0", "not on Earth"), ('grid = "atlantis"', "unknown grid"), ("power = 5.0", "has no source")]
)
def test_the_audit_finds_a_wrong_site(tmp_path, line, said):
    lines = ["latitude = 1.0", "longitude = 2.0", 'grid = "france"']
    lines = [line if one.split(" ")[0] == line.split(" ")[0] else one for one in lines]
    source = '[sources.here]\ntitle = "A"\nurl = "https://a.example"\nread = 2026-11-22\ngrade = "guess"\n'
    path = tmp_path / "nowhere.toml"
    extra = [] if line in lines else [line]
    path.write_text("\n".join(['title = "Nowhere"', 'source = "here"', *lines, *extra, source]), encoding="utf-8")
    assert any(said in problem for problem in audit.audit_file("sites", path))


# Refusals


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"sites": "jean-zay"}, "at least two"),
        ({"sites": "jean-zay,jean-zay"}, "twice"),
        ({"sites": "jean-zay,48.7"}, "has no longitude"),
        ({"sites": "jean-zay,98.7,2"}, "out of range"),
        ({"sites": "jean-zay,jolio-curie"}, "joliot-curie"),
        ({"sites": "5000"}, "more than 1000"),
        ({"gpus": 129}, "evenly"),
        ({"gpus": "64,64,64"}, "3 values for 2 sites"),
        ({"global_batch_size": 511}, "must be whole"),
        ({"wan_bandwidth": None}, "wan_bandwidth"),
        ({"tokens": None}, "tokens"),
        ({"outer_fragments": 2}, "at most one piece a step"),
        ({"inner_steps": 10, "outer_fragments": 5, "overlap_steps": 3}, "before the next"),
        ({"exchange": "pipe"}, "shared_bandwidth"),
        ({"grid": "france,norway,spain"}, "3 values for 2 sites"),
        ({"grid": "oslo=norway"}, "site of grid"),
        ({"mfu": 0.4}, "no effect with mfu"),
        ({"gradients": "bf61"}, "bf16"),
        ({"wan_bandwidth": "0GB/s"}, "more than 0"),
        ({"wan_bandwidth": "10GB"}, "expected B/s"),
        ({"wan_bandwidth": "100"}, "give its unit, such as 100Gb/s"),
        ({"wan_bandwidth": None, "shared_bandwidth": "10"}, "give its unit, such as 10Gb/s"),
        ({"power_limit": "0MW"}, "more than 0"),
        ({"model_of": "ten-sites"}, "has no effect with textbook ten-sites"),
        ({"sites": [("a", "b")]}, "not a LAT,LON"),
        ({"gpus": []}, "empty"),
        ({"route_factor": 1.2, "latency": "10ms"}, "not both"),
        ({"sites": "2", "route_factor": 1.2}, "needs places"),
        ({"beyond": 1}, "no option"),
        ({"tp": 3}, "do not factor"),
    ],
)
def test_wrong_questions_are_refused_in_one_line(options, said):
    with pytest.raises(IronlawError) as error:
        answer(**options)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_a_site_of_the_catalogue_without_power_is_refused(tmp_path):
    folder = tmp_path / "sites"
    folder.mkdir()
    text = (load.SHIPPED / "sites" / "frontier.toml").read_text(encoding="utf-8").replace('40 MW"', '0 MW"', 1)
    (folder / "dark.toml").write_text(text, encoding="utf-8")
    with pytest.raises(IronlawError, match="has no power"):
        answer(sites="jean-zay,dark", catalog=(str(tmp_path),))


# The command


def command(*arguments):
    """The command in this process: its status and what it prints."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(["sites", *arguments])
    return SimpleNamespace(returncode=status, stdout=out.getvalue(), stderr=err.getvalue())


FLAGS = ["llama-3-8b", "--sites", "jean-zay,el-capitan", "--on", "h100-sxm", "--gpus", "128", "--wan-bandwidth", "10GB/s", "--tokens", "1T"]


def test_the_page_prints_waiting_and_links():
    done = command(*FLAGS)
    assert done.returncode == 0, done.stderr
    assert "of waiting for the other sites" in done.stdout
    assert "Links of the ring" in done.stdout


def test_json_has_every_number_and_no_nan():
    done = command(*FLAGS, "--json")
    data = json.loads(done.stdout)
    assert {"links", "by_site", "ways", "terms", "headline", "sources", "mfu"} <= set(data)
    assert all(math.isfinite(row["seconds"]) for row in data["ways"])


def test_explain_shows_formula_and_source():
    done = command(*FLAGS, "--explain", "latency")
    assert "distance route_factor refractive_index / c" in done.stdout
    assert "Corning" in done.stdout


def test_a_wrong_question_is_one_line_and_status_2():
    done = command("llama-3-8b", "--sites", "jean-zay")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1


def test_help_lists_the_options():
    done = command("--help")
    assert "--wan-bandwidth" in done.stdout


def test_sites_take_a_batch_of_tokens_in_the_usual_sequences():
    asked = {"sites": 2, "on": "h100-sxm", "gpus": 64, "tokens": 200e9, "global_batch_tokens": 2**21, "wan_bandwidth": 1e9}
    assert sites("llama-3-8b", **asked).headline == sites("llama-3-8b", seq_len=8192, **asked).headline
