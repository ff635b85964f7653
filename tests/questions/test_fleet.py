"""``ironlaw fleet``: runs of a file as estimates answer them, their schedule, what is idle, what meets deadlines, refusals of the file."""

from __future__ import annotations

import csv
import io
import json
import math
from itertools import permutations, product

import pytest

import ironlaw
from ironlaw import fleet
from ironlaw.cli.main import main
from ironlaw.errors import InputError, IronlawError, QuestionError
from ironlaw.questions.fleet.schedule import Limits, Mode, Placed, Score, Task, earliest, score_of

POOL = '[[pool]]\nname = "all"\non = "h100-sxm"\ngpus = 64\nprice = 2.0\n'
BIG = '[[job]]\nname = "big"\nmodel = "llama-3-8b"\ntokens = "200B"\nglobal_batch_size = 128\ngpus = [16, 32, 64]\nvalue = 3\n'
TINY = '[[job]]\nname = "tiny"\nmodel = "qwen-3-0.6b"\ntokens = "400B"\nglobal_batch_size = 256\ngpus = [16, 32]\n'
DAY = 86400.0


@pytest.fixture
def write(tmp_path):
    def write_(*parts):
        path = tmp_path / "jobs.toml"
        path.write_text("\n".join(parts))
        return str(path)

    return write_


def estimated(name, gpus):
    options = {"big": {"model": "llama-3-8b", "tokens": "200B", "global_batch_size": 128},
               "tiny": {"model": "qwen-3-0.6b", "tokens": "400B", "global_batch_size": 256}}[name]  # fmt: skip
    return ironlaw.estimate(**options, on="h100-sxm", gpus=gpus, price=2.0).groups[0].run


def test_each_run_is_the_estimate_of_its_count(write):
    answer = fleet(write(POOL, BIG, TINY), counts=True)
    assert {(row["job"], row["gpus"]) for row in answer["counts"]} == {("big", 16), ("big", 32), ("big", 64), ("tiny", 16), ("tiny", 32)}
    for row in answer["counts"]:
        run = estimated(row["job"], row["gpus"])
        assert row["seconds"] == float(run.failures.seconds.value[0])
        assert row["watts"] == float(run.power.value[0])
    for row in answer["jobs"]:
        run = estimated(row["job"], row["gpus"])
        assert row["end"] - row["start"] == pytest.approx(float(run.failures.seconds.value[0]))
        assert row["usd"] == float(run.usd_with_failures.value[0])
        assert row["joules"] == float(run.joules_with_failures.value[0])


def test_a_small_fleet_is_the_best_of_all_orders_and_counts(write):
    """Three jobs at a few counts, every order of them tried with the times of the estimates."""
    more = BIG.replace('"big"', '"late"').replace("200B", "60B").replace("value = 3", "value = 1\ndeadline = 2")
    answer = fleet(write(POOL, BIG, TINY, more), counts=True)
    tasks = []
    for name, deadline, value in (("big", 90.0, 3.0), ("tiny", 90.0, 1.0), ("late", 2.0, 1.0)):
        rows = [row for row in answer["counts"] if row["job"] == name]
        tasks.append(Task(tuple(Mode(0, row["gpus"], row["seconds"], row["watts"]) for row in rows), deadline * DAY, value))
    limits, best = Limits((64.0,), (math.inf,)), Score(*[math.inf] * 4)
    for modes in product(*(task.modes for task in tasks)):
        for order in permutations(range(3)):
            placed = []
            for at in order:
                placed.append(Placed(at, modes[at], earliest(placed, modes[at], limits)))
            best = min(best, score_of(placed, tasks))
    assert answer["exact"]
    assert answer["end"] == pytest.approx(best.end, rel=1e-9)
    assert answer["missed_value"] == best.missed
    assert answer["least_end"] <= answer["end"]


def test_used_and_idle_time_add_up_to_the_reservation(write):
    answer = fleet(write(POOL, BIG, TINY), days=30)
    pool = answer["pools"][0]
    used = sum(row["gpus"] * (row["end"] - row["start"]) / 3600.0 for row in answer["jobs"])
    assert pool["reserved_gpu_hours"] == 64 * 30 * 24
    assert pool["used_gpu_hours"] == pytest.approx(used)
    assert pool["idle_gpu_hours"] == pytest.approx(64 * 30 * 24 - used)
    assert pool["idle_usd"] == pytest.approx(2.0 * pool["idle_gpu_hours"])
    assert pool["usd"] == 64 * 30 * 24 * 2.0


def test_the_headline_adds_cost_and_energy_up(write):
    answer = fleet(write(POOL, BIG, TINY))
    usd, joules = (sum(row[key] for row in answer["jobs"]) for key in ("usd", "joules"))
    assert f"the runs take {joules / 3.6e9:.3g} MWh and cost {usd:,.0f} USD" in answer.headline


def test_time_after_the_reservation_is_not_idle_time_of_it(write):
    answer = fleet(write(POOL, BIG.replace("[16, 32, 64]", "[64]")), days=1)
    assert answer.exit_status == 1
    assert answer["pools"][0]["idle_gpu_hours"] == pytest.approx(0.0)


def test_running_jobs_keep_to_the_limit_of_power(write):
    file = write(POOL, BIG, TINY)
    free, bound = fleet(file), fleet(file, power_limit="60kW")
    assert bound["peak_watts"] <= 60e3 < free["peak_watts"]
    assert bound["end"] >= free["end"]


def test_a_missed_deadline_is_met_by_what_the_answer_names(write):
    """Both jobs need all 64 for most of their time, and the deadlines leave time for one of them."""
    one = BIG.replace("value = 3", "value = 3\ndeadline = 4").replace("[16, 32, 64]", "[16, 32, 64, 128]")
    two = one.replace('"big"', '"other"').replace("value = 3", "value = 2")
    answer = fleet(write(POOL, one, two))
    assert answer.exit_status == 1
    assert [row["job"] for row in answer["jobs"] if not row["met"]] == ["other"]
    remedies = {row["remedy"]: row for row in answer["remedies"]}
    assert remedies["without the job other"]["lost_value"] == 2.0
    assert fleet(write(POOL, one)).exit_status == 0
    more = next(row["gpus"] for name, row in remedies.items() if "more accelerators" in name)
    assert fleet(write(POOL.replace("64", f"{64 + more:g}"), one, two)).exit_status == 0
    fewer = fleet(write(POOL.replace("64", f"{64 + more - 8:g}"), one, two))
    assert fewer.exit_status == 1


def test_a_larger_reservation_never_ends_later(write):
    ends = [fleet(write(POOL.replace("64", str(gpus)), BIG, TINY))["end"] for gpus in (32, 48, 64, 96)]
    assert ends == sorted(ends, reverse=True)


def test_a_job_runs_where_it_may(write):
    pools = POOL + '[[pool]]\nname = "b"\non = "b200-sxm"\ngpus = 32\n'
    answer = fleet(write(pools, BIG + 'on = "b"\n', TINY + 'on = ["h100-sxm"]\n'), counts=True)
    assert {(row["job"], row["pool"]) for row in answer["jobs"]} == {("big", "b"), ("tiny", "all")}
    assert max(row["gpus"] for row in answer["counts"] if row["job"] == "big") == 32


def test_racks_are_taken_whole(write):
    """64 of 72 in one rack: two such jobs take two racks, so both run at once on two racks and one after the other on one."""
    job = BIG.replace("[16, 32, 64]", "[64]")
    file = write(job, job.replace('"big"', '"again"'))
    two, one = (fleet(file, on="gb200", racks=racks) for racks in (2, 1))
    assert {row["held_gpus"] for row in two["jobs"]} == {72.0}
    assert [row["start"] for row in two["jobs"]] == [0.0, 0.0]
    assert one["end"] == pytest.approx(2.0 * two["end"])
    assert one["pools"][0]["gpus"] == 72.0


def test_round_counts_are_tried_where_none_are_listed(write):
    answer = fleet(write(POOL, TINY.replace("gpus = [16, 32]\n", "")), counts=True)
    counts = [row["gpus"] for row in answer["counts"]]
    assert counts == sorted(counts)
    assert set(counts) <= {1, 2, 4, 8, 16, 24, 32, 48, 64}
    assert counts[-1] == 64


def test_a_job_that_no_pool_holds_is_left_out(write):
    huge = BIG.replace("llama-3-8b", "deepseek-v3").replace("[16, 32, 64]", "[8]").replace('"big"', '"huge"')
    answer = fleet(write(POOL, huge, TINY))
    assert answer.exit_status == 1
    assert [(row["job"], row["met"]) for row in answer["jobs"]] == [("tiny", True), ("huge", False)]
    assert [row["remedy"] for row in answer["remedies"]] == ["without the job huge"]


def test_more_accelerators_hold_a_job_that_the_pool_does_not(write):
    """A job that may have 48 accelerators alone fits a pool of 48: 16 more than 32."""
    answer = fleet(write(POOL.replace("64", "32"), BIG.replace("[16, 32, 64]", "[48]")))
    assert answer.exit_status == 1
    assert [(row["remedy"], row["gpus"]) for row in answer["remedies"]] == [("16 more accelerators in all", 16.0)]


def test_the_file_has_days_and_a_limit_that_options_override(write):
    file = write('days = 10\npower_limit = "70 kW"', POOL, TINY)
    assert (fleet(file)["seconds"], fleet(file)["power_limit_watts"]) == (10 * DAY, 70e3)
    assert fleet(file, days=20)["seconds"] == 20 * DAY


@pytest.mark.parametrize(
    ("parts", "options", "words"),
    [
        ((POOL, BIG.replace("tokens", "tokns")), {}, "unknown field 'tokns' in jobs.toml, job 'big'; nearest: tokens"),
        ((POOL, BIG + "speed = 3\n"), {}, "'speed' in jobs.toml, job 'big'"),
        ((POOL, BIG + 'price = 3\n'), {}, "'price' in jobs.toml, job 'big'"),
        ((POOL, BIG.replace("200B", "many")), {}, "tokens in jobs.toml, job 'big'"),
        ((POOL, BIG + 'deadline = "soon"\n'), {}, "deadline in jobs.toml, job 'big'"),
        ((POOL, BIG.replace("value = 3", "value = -1")), {}, "value in jobs.toml, job 'big'"),
        ((POOL, BIG.replace("[16, 32, 64]", "[0]")), {}, "gpus in jobs.toml, job 'big'"),
        ((POOL, BIG.replace("llama-3-8b", "lama-3-8b")), {}, "unknown model 'lama-3-8b'; nearest: llama-3-8b"),
        ((POOL, BIG + 'on = "al"\n'), {}, "'al' in on in jobs.toml, job 'big'; nearest: all"),
        ((POOL, BIG.replace('tokens = "200B"', "")), {}, "jobs.toml, job 'big': missing tokens"),
        ((POOL, BIG.replace('name = "big"', "")), {}, "jobs.toml, job 1: missing name"),
        ((POOL, BIG, BIG), {}, "two jobs of the name 'big'"),
        ((POOL, POOL, BIG), {}, "two pools of the name 'all'"),
        ((POOL,), {}, r"jobs.toml has no \[\[job\]\]"),
        ((BIG,), {}, r"no \[\[pool\]\]; give on"),
        ((POOL, 'job = "big"'), {}, "'job'|written as"),
        ((POOL.replace("gpus = 64", ""), BIG), {}, "pool 'all': missing gpus, or racks"),
        ((POOL.replace('on = "h100-sxm"', ""), BIG), {}, "pool 'all': missing on"),
        ((POOL.replace("h100-sxm", "h100-smx"), BIG), {}, "nearest: h100-sxm"),
        ((POOL.replace("price", "prize"), BIG), {}, "'prize' in jobs.toml, pool 'all'; nearest: price"),
        (("weeks = 12", POOL, BIG), {}, "unknown field of jobs.toml 'weeks'"),
        ((POOL, BIG), {"on": "h100-sxm", "gpus": 8}, "not both"),
        ((POOL, BIG), {"gpus": 8}, "gpus needs on"),
        ((BIG,), {"on": "h100-sxm"}, "on needs gpus"),
        ((BIG,), {"on": "h100-sxm,gb200", "gpus": 8}, "one for each"),
        ((POOL, *(BIG.replace('"big"', f'"{n}"') for n in range(25))), {}, "at most 24"),
        ((POOL, BIG + "tp = [1, 2]\n"), {}, "several values"),
        ((POOL, BIG.replace('"big"', '"b\\nc"')), {}, "printable"),
        ((POOL, BIG.replace('"big"', '"' + "x" * 41 + '"')), {}, "at most 40"),
        ((POOL, BIG + 'precision = "nvfp4"\n'), {}, "job 'big' in pool 'all': precision nvfp4"),
    ],
)  # fmt: skip
def test_refusals(write, parts, options, words):
    with pytest.raises(QuestionError, match=words) as caught:
        fleet(write(*parts), **options)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_status == 2


def test_a_file_that_cannot_be_read_is_an_error_of_input(write, tmp_path):
    for path in (str(tmp_path / "none.toml"), write("[[job]\n")):
        with pytest.raises(InputError):
            fleet(path)


@pytest.mark.parametrize("value", ["", "nan", "inf", "-1", "1e400", "abc", "5 bananas", "1,2,,3"])
@pytest.mark.parametrize("name", ["days", "power_limit", "on", "gpus", "racks", "counts"])
def test_every_option_refuses_nonsense(write, name, value):
    with pytest.raises(IronlawError):
        fleet(write(BIG), **{"on": "h100-sxm", "gpus": 8, name: value})


def test_all_forms_are_printed(write, capsys):
    file = write(POOL, BIG, TINY)
    assert main(["fleet", file, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert {"jobs", "pools", "plot", "end", "least_end", "exact", "terms"} <= set(data)
    assert main(["fleet", file, "--format", "csv:jobs"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [float(row["end [s]"]) for row in rows] == [row["end"] for row in data["jobs"]]
    assert main(["fleet", file, "--format", "markdown"]) == 0
    assert "```text" in capsys.readouterr().out
    assert main(["fleet", file, "--explain"]) == 0
    assert "big with failures" in capsys.readouterr().out
    assert main(["fleet"]) == 2
    assert "missing" in capsys.readouterr().err


def test_tokens_may_be_per_parameter(write):
    """20 tokens for each of 8.03 G parameters."""
    answer = fleet(write(POOL, BIG.replace("200B", "20x")))
    row = answer["jobs"][0]
    run = ironlaw.estimate("llama-3-8b", on="h100-sxm", gpus=row["gpus"], global_batch_size=128, tokens="20x").groups[0].run
    assert row["end"] == float(run.failures.seconds.value[0])


def test_the_same_file_has_the_same_answer(write, capsys):
    file = write(POOL, BIG, TINY)
    pages = []
    for _ in range(2):
        assert main(["fleet", file]) == 0
        pages.append(capsys.readouterr().out)
    assert pages[0] == pages[1]
