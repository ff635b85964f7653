"""``ironlaw plan``: answers, sizes, advice, limits to relax, tables, exit statuses; and relations between them."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import ironlaw
from ironlaw.cautions.record import sentences
from ironlaw.cli.main import main
from ironlaw.errors import IronlawError
from ironlaw.estimate.pipeline.schedules import SCHEDULES
from ironlaw.search.advice import advise, scaling, sensitivities
from ironlaw.search.as_data import plan_table, search_data
from ironlaw.search.misses import misses
from ironlaw.search.sizing import sizes
from ironlaw.search.why import difference, step_terms

SMALL = {"on": "h100-sxm", "gpus": 16, "global_batch_size": 128, "fix": "vpp=1,cp=1"}
# 30 billion parameters, as in the worked budget question: 30e9 at 4 USD an hour, 2 million, 30 days
THIRTY = (
    "hidden_size=6656,num_hidden_layers=60,num_attention_heads=52,num_key_value_heads=52,intermediate_size=17920,vocab_size=32000,gated_mlp=on,"
    "tie_word_embeddings=off,max_position_embeddings=4096"
)


@pytest.fixture(scope="module")
def found():
    return ironlaw.search("llama-3-8b", **SMALL, tokens="1T")


@pytest.fixture(scope="module")
def data(found):
    return search_data(found)


@pytest.fixture(scope="module", params=["600B", "2T"])
def thirty(request):
    ask = {"on": "h100-sxm", "budget": "2M", "deadline": 30, "price": 4, "seq_len": 4096, "global_batch_size": 1024}
    return ironlaw.search(THIRTY, **ask, tokens=request.param, gpus="64..1024", fix="cp=1"), request.param


@pytest.fixture(scope="module")
def both():
    """70B on 2,048 accelerators, a sequence each: data parallel alone, and the whole space."""
    ask = {"on": "h100-sxm", "gpus": 2048, "global_batch_size": 2048, "seq_len": 2048}
    return ironlaw.search("llama-3-70b", **ask, fix="tp=1,pp=1,cp=1,dp_replicate=1"), ironlaw.search("llama-3-70b", **ask)


def run(capsys, *arguments: str) -> tuple[int, str, str]:
    status = main(["plan", *arguments])
    printed = capsys.readouterr()
    return status, printed.out, printed.err


ASK = ("llama-3-8b", "--on", "h100-sxm", "--gpus", "16", "--global-batch-size", "128", "--fix", "vpp=1,cp=1")


class TestAnswer:
    def test_keys_of_the_contract(self, data):
        assert {"schema_version", "tool_version", "calibration_version", "catalog_hash", "assumptions", "warnings"} <= set(data)
        assert {"rows", "options", "legal", "infeasible", "timed", "seconds"} <= set(data["space"])
        assert {"plans", "pareto", "advice", "sizes", "misses"} <= set(data)
        for plan in data["plans"]:
            assert {"step", "memory", "throughput", "bound", "run", "plan", "why"} <= set(plan)
        json.dumps(data, allow_nan=False)

    def test_the_best_is_the_fastest_listed_and_all_fit(self, data):
        times = [plan["step"]["seconds"] for plan in data["plans"]]
        assert times[0] == min(times)
        assert all(plan["memory"]["fits"] and all(plan["rules"].values()) for plan in data["plans"])

    def test_plans_listed_differ_in_kind(self, found):
        kinds = [choice.kind for choice in found.of_kinds(5)]
        assert len(set(kinds)) == len(kinds) > 1

    def test_why_sums_to_the_difference_of_the_steps(self, found):
        choices = found.of_kinds(3)
        places = [estimate.place_of(row) for estimate, row in found.explained(choices)]
        for choice, (group, at) in zip(choices, places, strict=True):
            assert sum(step_terms(group, at).values()) == pytest.approx(choice.seconds, rel=1e-12)
        told = difference(places[0], places[1])
        assert told[0]["seconds"] == max((row["seconds"] for row in told), key=abs)
        assert sum(row["seconds"] for row in told) == pytest.approx(choices[1].seconds - choices[0].seconds, abs=0.01 * choices[0].seconds)

    def test_plans_too_close_to_rank_tie_and_the_simplest_is_named(self, data):
        best = data["plans"][0]
        for plan in data["plans"][1:]:
            assert plan["tie"] == (plan["step"]["seconds"] < 1.05 * best["step"]["seconds"])
            if plan["tie"] and plan["band"]:
                assert plan["band"][0] < best["band"][1]
        at = data["simplest"]
        assert at == 0 or data["plans"][at]["tie"]

        def ways(plan):
            p = plan["plan"]
            return p["tp"] * p["pp"] * p["cp"] * p["ep"] * p["etp"]

        assert ways(data["plans"][at]) == min(ways(p) for i, p in enumerate(data["plans"]) if i == 0 or p["tie"])

    def test_the_best_plan_keeps_the_margin_and_a_faster_one_that_does_not_is_noted(self):
        data = search_data(ironlaw.search("llama-3-70b", on="h100-sxm", gpus=64, global_batch_size=256, fix="cp=1"), advice=False)
        best, *_, faster = data["plans"]
        assert best["memory"]["keeps_margin"]
        assert faster["note"] and not faster["memory"]["keeps_margin"]
        assert faster["memory"]["fits"] and faster["step"]["seconds"] < best["step"]["seconds"]
        for plan in data["plans"][:-1]:  # what is faster and keeps the margin has more values that nobody measured
            assert bool(plan["note"]) == (plan["step"]["seconds"] < best["step"]["seconds"])

    def test_no_plan_beats_one_of_the_front(self, data):
        points = np.array([list(point["objectives"].values()) for point in data["pareto"]])
        for point in points:
            assert not np.any(np.all(points <= point, axis=1) & np.any(points < point, axis=1))
        assert data["pareto"][0]["step_seconds"] == data["plans"][0]["step"]["seconds"]

    @pytest.mark.parametrize("goal", ["time", "cost", "energy", "carbon", "gpus"])
    def test_goals_order_accelerators_and_counts(self, goal):
        found = ironlaw.search(
            "llama-3-8b",
            on="h100-sxm,a100-sxm-80gb",
            gpus="8,16",
            global_batch_size=64,
            tokens="100B",
            minimize=goal,
            fix="vpp=1,cp=1,pp=1",
        )
        first = found.first(10)
        name = {"time": "time", "cost": "cost", "energy": "energy", "carbon": "carbon", "gpus": "gpus"}[goal]
        values = [float(c.setting.objectives(c.seconds)[name]) for c in first]
        assert values == sorted(values)
        others = [float(s.objectives(s.best)[name]) for s in found.settings if np.isfinite(s.best)]
        assert values[0] == min(others)

    def test_failures_off_ranks_by_the_failure_free_run(self):
        with_them, without = (ironlaw.search("llama-3-8b", **SMALL, tokens="1T", failures=on).settings[0] for on in ("on", "off"))
        assert float(with_them.objectives(1.0)["time"]) > float(without.objectives(1.0)["time"])

    def test_without_tokens_there_is_no_run(self):
        data = search_data(ironlaw.search("llama-3-8b", **SMALL))
        assert data["plans"][0]["run"] is None and data["sizes"]["by_gpus"][0]["usd"] is None


class TestSizes:
    def test_the_budget_question(self, thirty):
        """2 million USD at 4 USD an hour are 500,000 accelerator hours: 694 accelerators for 30 days (the worked budget question)."""
        found, _ = thirty
        end = sizes(found.question, found.settings)["ends"][0]
        assert end["affordable_gpus"] == 694
        assert 64 <= end["min_gpus"] <= end["max_gpus"]
        # one node fewer than the fewest does not keep the deadline, by the run the answer itself shows
        rows = {row["gpus"]: row for row in sizes(found.question, found.settings)["by_gpus"]}
        fewest = rows[end["min_gpus"]]
        assert fewest["answers"] and fewest["days"] <= 30.0 and fewest["usd"] <= 2e6
        below = max((n for n in rows if n < end["min_gpus"]), default=None)
        if below is not None:
            assert not rows[below]["answers"] and (below == end["min_gpus"] - 8 or below < 64)

    def test_more_tokens_need_more(self):
        ask = {
            "on": "h100-sxm",
            "deadline": 30,
            "price": 4,
            "seq_len": 4096,
            "global_batch_size": 1024,
            "gpus": "64..1024",
            "fix": "cp=1,vpp=1",
        }
        fewest = [
            sizes((f := ironlaw.search(THIRTY, tokens=tokens, **ask)).question, f.settings)["ends"][0]["min_gpus"]
            for tokens in ("600B", "2T")
        ]
        assert fewest[0] < fewest[1]

    def test_quota(self):
        found = ironlaw.search(
            "llama-3-8b", on="h100-sxm", gpus="8..64", quota={"h100-sxm": 24}, global_batch_size=192, fix="vpp=1,cp=1,pp=1"
        )
        assert max(s.gpus for s in found.settings) == 24

    def test_the_fewest_accelerators_reach_a_target_rate(self):
        found = ironlaw.search(
            "llama-3-8b", on="h100-sxm", gpus="8..128", target_tokens_per_second=3e5, global_batch_size=512, fix="vpp=1,cp=1,pp=1"
        )
        assert found.question.minimize == "gpus"
        best = found.first(1)[0]
        assert float(best.setting.objectives(best.seconds)["rate"]) >= 3e5
        assert all(float(s.objectives(s.best)["rate"]) < 3e5 for s in found.settings if s.gpus < best.setting.gpus and np.isfinite(s.best))


class TestDataParallelAlone:
    """The sizing question of the source documents: a 70B model on pure data parallelism waits for its network."""

    def test_replicas_of_70b_do_not_fit(self, both):
        alone, _ = both
        whole = ironlaw.search("llama-3-70b", on="h100-sxm", gpus=2048, global_batch_size=2048, seq_len=2048, fix="tp=1,pp=1,cp=1,zero=0")
        assert not whole.first(1) and alone.first(1)[0].values["zero"] == 3

    def test_sharded_plans_wait_for_the_network_and_splitting_the_model_helps(self, both):
        rows = [found.explained(found.first(1))[0][0].row(0) for found in both]
        assert rows[0]["bound"]["by"] == "network" and rows[1]["bound"]["by"] == "compute"
        assert rows[1]["step"]["seconds"] < 0.7 * rows[0]["step"]["seconds"]
        assert rows[1]["plan"]["tp"] * rows[1]["plan"]["pp"] > 1

    def test_shards_of_fewer_ranks_help_too(self, both):
        hybrid = ironlaw.search("llama-3-70b", on="h100-sxm", gpus=2048, global_batch_size=2048, seq_len=2048, fix="tp=1,pp=1,cp=1").first(
            1
        )[0]
        assert hybrid.values["dp_replicate"] > 1
        assert both[1].first(1)[0].seconds < hybrid.seconds < both[0].first(1)[0].seconds

    def test_advice_names_the_network_and_the_batch(self, both):
        choice = both[0].first(1)[0]
        estimate, row = both[0].explained([choice])[0]
        gains = {line["name"]: line["gain"] for line in sensitivities(choice, estimate.place_of(row), both[0].folders)}
        assert gains["NIC bandwidth"] > gains["peak FLOP/s"] and gains["global batch"] > gains["peak FLOP/s"]


class TestAdvice:
    def test_more_of_anything_never_costs_time(self, found):
        choice = found.first(1)[0]
        estimate, row = found.explained([choice])[0]
        told = sensitivities(choice, estimate.place_of(row), found.folders)
        assert [r["gain"] for r in told] == sorted((r["gain"] for r in told), reverse=True)
        for line in told:
            assert line["gain"] >= -1e-12, line
            if line["at_best"] is not None:
                assert line["gain"] <= line["at_best"] + 1e-9, line

    def test_money_follows_time(self, found):
        choice = found.first(1)[0]
        for line in sensitivities(choice, (e := found.explained([choice])[0])[0].place_of(e[1]), found.folders):
            if line["usd"] is not None:
                assert (line["usd"] > 0) == (line["gain"] > 1e-9)

    def test_advice_has_resources_crossovers_and_scaling(self, found):
        choice = found.first(1)[0]
        told = advise(found, choice, found.explained([choice])[0])
        assert {line["about"] for line in told} == {"resource", "crossover", "scaling"}

    def test_a_growing_batch_scales_better_than_a_fixed_one(self, found):
        rows = {row["name"]: {p["gpus"]: p["efficiency"] for p in row["points"]} for row in scaling(found.first(1)[0], found.folders)}
        both = set(rows["batch held"]) & set(rows["batch grown along"])
        assert both
        for gpus in both:
            assert rows["batch grown along"][gpus] >= rows["batch held"][gpus]


class TestMisses:
    @pytest.mark.parametrize(
        ("ask", "constraint"),
        [
            ({"gpus": 1009}, "gpus"),
            ({"gpus": 64, "fix": "tp=3"}, "tp"),
            ({"gpus": 64, "fix": "tp=1,pp=1,cp=1,zero=1,offload_optimizer=off"}, "memory"),
            ({"gpus": 64, "tokens": "15T", "deadline": 30}, "deadline"),
            ({"gpus": 64, "tokens": "1T", "budget": 1000}, "budget"),
            ({"gpus": 64, "target_tokens_per_second": 1e7}, "target_tokens_per_second"),
            ({"gpus": 4096, "global_batch_size": 3, "fix": "pp=1,cp=1"}, "global_batch_size"),
        ],
    )
    def test_relaxing_one_named_limit_is_enough(self, ask, constraint):
        ask = {"on": "h100-sxm", "global_batch_size": 256, **ask}
        found = ironlaw.search("llama-3-70b", **ask)
        assert found.first(3) == [] and found.ranked() == []
        told = {row["constraint"]: row for row in misses(found)}
        assert constraint in told, list(told)
        row = told[constraint]
        if constraint == "memory":
            assert row["needs"] > row["is"]
            return
        if constraint in ("deadline", "budget"):
            relaxed = {**ask, constraint: row["needs"] / (86400.0 if constraint == "deadline" else 1.0) * 1.0001}
        elif constraint == "tp":
            relaxed = {**ask, "fix": f"tp={row['needs']}"}
        else:
            relaxed = {**ask, constraint: row["needs"] * (0.9999 if constraint.startswith("target") else 1)}
        assert ironlaw.search("llama-3-70b", **relaxed).first(1)


class TestCommand:
    def test_page(self, capsys):
        status, out, _ = run(capsys, *ASK, "--tokens", "1T")
        assert status == 0
        for word in ("Best", "why:", "Plans", "What to buy next", "Pareto front of", "legal plans"):
            assert word in out
        assert "\x1b" not in out

    def test_json_csv_and_parquet_hold_the_same_plans(self, capsys, tmp_path):
        status, out, _ = run(capsys, *ASK, "--json")
        listed = json.loads(out)["plans"]
        assert status == 0
        file = tmp_path / "plans.csv"
        assert run(capsys, *ASK, "--csv", str(file))[0] == 0
        rows = list(csv.DictReader(io.StringIO(file.read_text())))
        assert [float(row["step_seconds"]) for row in rows] == [plan["step"]["seconds"] for plan in listed]
        from pyarrow import parquet  # only this test needs it

        file = tmp_path / "plans.parquet"
        assert run(capsys, *ASK, "--parquet", str(file))[0] == 0
        assert parquet.read_table(file)["step_seconds"].to_pylist() == [plan["step"]["seconds"] for plan in listed]

    def test_csv_on_standard_output(self, capsys):
        status, out, _ = run(capsys, *ASK, "--top", "7", "--csv")
        rows = list(csv.DictReader(io.StringIO(out)))
        assert status == 0 and [row["rank"] for row in rows] == [str(i) for i in range(1, 8)]

    def test_estimate_gives_the_same_answer_for_a_listed_plan(self, capsys):
        row = json.loads(run(capsys, *ASK, "--json")[1])["plans"][0]
        plan = row["plan"]
        again = ironlaw.estimate(
            plan["model"], on=plan["accelerator"], framework=plan["framework"], overlap=",".join(plan["overlap"]) or "none",
            offload=",".join(n for n in ("optimizer", "activations") if row["options"][f"offload_{n}"]) or "none",
            **{name: plan[name] for name in ("gpus", "tp", "pp", "vpp", "cp", "ep", "etp", "dp_replicate", "dp_shard", "zero", "sp",
                                             "micro_batch_size", "global_batch_size", "recompute")},
        )  # fmt: skip
        assert again.step_seconds[0] == row["step"]["seconds"]

    def test_question_file(self, capsys, tmp_path):
        file = tmp_path / "question.toml"
        file.write_text('model = "llama-3-8b"\non = "h100-sxm"\ngpus = 16\nglobal_batch_size = 128\n[plan]\nfix = "vpp=1,cp=1"\n')
        assert run(capsys, str(file), "--json")[0] == 0

    def test_describe_space_runs_nothing(self, capsys):
        status, out, _ = run(capsys, *ASK, "--describe-space", "--json")
        told = json.loads(out)
        assert status == 0 and told["axes"]["vpp"]["values"] == [1.0] and told["axes"]["pp"]["size"] is None
        assert told["rows"] == sum(row["rows"] for row in told["settings"]) > 0
        assert told["rows"] == json.loads(run(capsys, *ASK, "--json")[1])["space"]["rows"]

    @pytest.mark.parametrize(
        ("extra", "says"),
        [
            (("--gpus", "1e9"), "at most 1,000,000"),
            (("--gpus", "0"), "--gpus is 0"),
            (("--gpus", "64..8"), "ends before it begins"),
            (("--tokens", "0"), "--tokens is 0"),
            (("--budget", "-3", "--tokens", "1T"), "--budget"),
            (("--budget", "1M"), "--budget has no effect without --tokens"),
            (("--deadline", "soon", "--tokens", "1T"), "--deadline"),
            (("--fix", "tpp=8"), "nearest"),
            (("--fix", "tp"), "AXIS=VALUE"),
            (("--forbid", "tp>0"), "leaves no value"),
            (("--minimize", "speed"), "unknown --minimize"),
            (("--pareto", "time,beauty"), "unknown --pareto"),
            (("--on", "h100smx"), "nearest"),
            (("--quota", "a100-sxm-80gb=8"), "does not list"),
            (("--top", "0"), "--top"),
            (("--precision", "fp3"), "--precision"),
            (("--global-batch-tokens", "1000000", "--global-batch-size", "128"), "not both"),
        ],
    )
    def test_wrong_questions_are_one_line(self, capsys, extra, says):
        status, out, err = run(capsys, *ASK, *extra)
        assert status == 2 and out == "" and says in err
        assert err.count("\n") == 1

    def test_files_that_cannot_be_read_or_written(self, capsys, tmp_path):
        assert run(capsys, *ASK, "--space", str(tmp_path / "none.toml"))[0] == 3
        (tmp_path / "broken.toml").write_text("tp = [1,")
        assert run(capsys, *ASK, "--space", str(tmp_path / "broken.toml"))[0] == 3
        assert run(capsys, *ASK, "--csv", str(tmp_path / "no" / "plans.csv"))[0] == 3

    def test_no_legal_plan_exits_2_and_lists_what_to_relax(self, capsys):
        status, out, _ = run(capsys, "llama-3-70b", "--on", "h100-sxm", "--gpus", "1009", "--global-batch-size", "256")
        assert status == 2 and "No plan meets the question" in out and "1,009 to 1,008" in out

    def test_a_time_limit_gives_the_best_so_far_marked_partial(self, capsys, budget):
        ask = ("deepseek-v3", "--on", "h800", "--gpus", "2048", "--global-batch-size", "15360", "--time-limit", "0.3", "--json")
        with budget(5.0):
            status, out, _ = run(capsys, *ask)
        told = json.loads(out)
        assert told["partial"] and told["space"]["partial"] and any(w.startswith("partial") for w in sentences(told["warnings"]))
        assert status in (0, 1)

    @pytest.mark.slow
    def test_interrupted_prints_the_best_so_far(self):
        handler = "import runpy, signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
        ask = ["-c", f"{handler}; runpy.run_module('ironlaw', None, '__main__')"]  # a suite in the background is deaf to the signal
        ask += ["plan", "deepseek-v3", "--on", "h800", "--gpus", "2048", "--global-batch-size", "15360", "--json"]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        for delay in (1.5, 2.0, 2.5, 3.0, 4.0, 6.0):  # a slow machine still imports at first, and has nothing to print; a quick one is done
            with subprocess.Popen(
                [sys.executable, *ask], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, text=True
            ) as child:
                time.sleep(delay)
                child.send_signal(signal.SIGINT)
                out, err = child.communicate(timeout=600)
            if out and json.loads(out)["partial"]:
                break
        assert json.loads(out)["partial"] and err == ""


def test_axes_of_a_listed_plan_are_chosen_unless_the_question_gives_them(data):
    for plan in data["plans"]:
        told = {one["name"]: (one["value"], one["origin"]) for one in plan["assumptions"]}
        assert {name for name, (_, origin) in told.items() if origin == "given"} <= {*data["asked"]["given"]}
        assert all(told[name] == (plan["plan"][name], "chosen") for name in ("tp", "pp", "zero") if name not in data["asked"]["given"])


def test_tables_are_flat(data):
    for row in plan_table(data):
        assert all(value is None or isinstance(value, (str, int, float, bool)) for value in row.values())


def test_a_wrong_library_call_raises_an_ironlaw_error():
    with pytest.raises(IronlawError, match="unknown option"):
        ironlaw.search("llama-3-8b", on="h100-sxm", gpus=8, batch_sizes=12)


def test_a_price_for_an_accelerator_outside_the_question_is_refused(ask):
    asked = ["plan", "llama-3-8b", "--on", "h100-sxm", "--gpus", "8", "--global-batch-size", "64", "--tokens", "1T"]
    status, _, err = ask(*asked, "--price", "b200-sxm=1")
    assert status == 2 and "--price names b200-sxm" in err and "h100-sxm" in err


@pytest.mark.parametrize("schedule", sorted(SCHEDULES))
def test_every_schedule_is_searched_with_a_pipeline(ask, schedule):
    """A paired schedule has no first and last stage of its own, and its layers are still split by what the loss weighs."""
    asked = "plan llama-3-8b --on h100-sxm --gpus 16 --global-batch-size 16 --fix pp=8,cp=1 --framework generic --schedule"
    status, out, err = ask(*asked.split(), schedule)
    assert (status, err) == (0, "") and "Best:" in out


@pytest.mark.parametrize(("free", "goal", "words"), [("--price", "cost", "no more money"), ("--grid", "carbon", "no more carbon")])
def test_a_goal_that_costs_nothing_is_no_division_by_zero(ask, free, goal, words):
    asked = ["plan", "llama-3-8b", "--on", "h100-sxm", "--gpus", "8", "--global-batch-size", "64", "--fix", "vpp=1,cp=1"]
    status, out, err = ask(*asked, "--tokens", "1T", free, "0", "--minimize", goal)
    assert (status, err) == (0, "") and words in out


def test_an_empty_list_of_counts_is_refused(ask, tmp_path):
    with pytest.raises(IronlawError, match=r"gpus is .*, must be one or more counts"):
        ironlaw.search("llama-3-8b", on="h100-sxm", gpus=[])
    (tmp_path / "question.toml").write_text('model = "llama-3-8b"\non = "h100-sxm"\ngpus = []\n')
    status, out, err = ask("plan", tmp_path / "question.toml")
    assert (status, out) == (2, "") and "must be one or more counts" in err
