"""Corrections that a user's runs write and an estimate reads: one run corrects the level near it, and narrows the band."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ironlaw
from ironlaw.errors import InputError, QuestionError
from ironlaw.estimate.answer.bands import level_law
from ironlaw.estimate.evidence.correction import MOST_ROWS, OwnRun, covariance, posterior, read_correction, spread_of, write_correction
from ironlaw.estimate.evidence.distance import distance
from ironlaw.validate.predict import times
from made_runs import GPT, mapped, ready

PLACE = {"stack": "nemo", "device": "h100-sxm", "architecture": "hopper", "format": "bf16", "mixture": False, "adapters": False,
         "hybrid": False, "gpus": 64.0, "seq_len": 8192.0, "parameters": 8e9}  # fmt: skip
FAR = {**PLACE, "device": "tpu-v5p", "architecture": "tpu", "stack": "maxtext", "mixture": True, "gpus": 4096.0}


def own(*ratios, **change):
    return [OwnRun(f"run {i}", {**PLACE, **change}, ratio, 0.2) for i, ratio in enumerate(ratios)]


def test_one_run_corrects_by_the_share_of_its_error(tmp_path):
    path = tmp_path / "ours.toml"
    correction = write_correction(path, own(1.25), path.with_name("our runs.csv"), 0.8, 0.5)
    level = correction.level(PLACE)
    assert float(level.factor[0]) == pytest.approx(1.25**0.8)
    assert float(level.left[0]) == pytest.approx(0.6 * correction.stretch)
    far = correction.level(FAR)
    assert float(far.factor[0]) == pytest.approx(1.0, abs=0.005)
    assert float(far.left[0]) == pytest.approx(correction.stretch, abs=0.005)
    assert correction.label.startswith("our runs.csv, 1 run,")
    assert list(tmp_path.iterdir()) == [path]
    write_correction(path, own(1.1), path, 0.8, 0.5)  # an earlier correction is replaced


@given(st.integers(1, 30), st.floats(0.5, 2.0), st.floats(0.3, 0.95))
def test_more_runs_that_agree_move_the_level_towards_them_and_narrow_the_band(n, ratio, share):
    def said(count):
        gaps = np.zeros((count, count))
        cross = covariance(np.zeros((1, count)), share, 1.0)
        return [float(value[0]) for value in posterior(cross, covariance(gaps, share, 1.0), np.full(count, np.log(ratio)), share)]

    (few, left), (many, less) = said(n), said(n + 1)
    assert abs(few) <= abs(many) + 1e-12
    assert abs(many) <= abs(np.log(ratio)) + 1e-12
    assert 1.0 - share - 1e-9 <= less <= left <= 1.0
    assert few == pytest.approx(np.log(ratio) * n * share / (n * share + 1.0 - share))  # shrinkage of the level of n runs


def test_a_run_says_less_the_further_away_it_is():
    gaps = np.array([0.0, 0.1, 0.3, 1.0, 5.0])
    mean, left = posterior(covariance(gaps[:, None], 0.9, 0.5), np.array([[0.9]]), np.array([0.3]), 0.9)
    assert np.all(np.diff(mean) < 0.0)
    assert np.all(np.diff(left) > 0.0)
    assert mean[0] == pytest.approx(0.27)
    assert mean[-1] == pytest.approx(0.0, abs=1e-4)


def test_runs_that_disagree_widen_the_band():
    matrix = covariance(np.zeros((4, 4)), 0.8, 1.0)
    near, apart = (spread_of(np.array(logs), np.full(4, 0.1), matrix, 0.8) for logs in ([0.05] * 4, [0.5, -0.5, 0.4, -0.4]))
    assert near < 1.0 < apart


def test_a_correction_never_replaces_another_file(tmp_path):
    path = tmp_path / "runs.csv"
    path.write_text("id\n1\n", encoding="utf-8")
    with pytest.raises(QuestionError, match="is not a correction file"):
        write_correction(path, own(1.0), path, 0.8, 0.5)
    assert path.read_text(encoding="utf-8") == "id\n1\n"


def test_a_correction_that_an_estimate_would_refuse_is_not_written(tmp_path):
    path = tmp_path / "ours.toml"
    with pytest.raises(QuestionError, match="check the units"):
        write_correction(path, own(1.0, 1000.0), path, 0.8, 0.5)
    with pytest.raises(QuestionError, match=f"at most {MOST_ROWS}"):
        write_correction(path, own(*[1.0] * (MOST_ROWS + 1)), path, 0.8, 0.5)
    assert not path.exists()


@pytest.mark.parametrize("name", ["", "nowhere/c.toml", "."])
def test_a_failed_correction_leaves_no_file(tmp_path, name):
    with pytest.raises(InputError, match="cannot be written"):
        write_correction(tmp_path / name, own(1.0), tmp_path, 0.8, 0.5)
    assert list(tmp_path.iterdir()) == []


LAW = "share = 0.8\nreach = 0.5\nstretch = 1.0\n"


@pytest.mark.parametrize(
    "text", ["", "factor = 1.0\nhalf_width = 0.1", LAW, f"{LAW}run = 3", f"{LAW}[[run]]\nid = 'a'", "[", LAW.replace("0.8", "nan")]
)
def test_an_invalid_correction_is_refused(tmp_path, text):
    path = tmp_path / "c.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=r"c\.toml"):
        read_correction(str(path))


@pytest.mark.parametrize(("name", "value"), [("gpus", "0"), ("measured_over_predicted", "99"), ("mixture", "1"), ("stack", "3")])
def test_a_wrong_value_of_a_run_is_named(tmp_path, name, value):
    path = tmp_path / "c.toml"
    write_correction(path, own(1.1), path, 0.8, 0.5)
    lines = [f"{name} = {value}" if line.startswith(f"{name} =") else line for line in path.read_text(encoding="utf-8").splitlines()]
    path.write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(InputError, match=name):
        read_correction(str(path))


@pytest.mark.parametrize("number", [1, 3])
def test_runs_of_a_user_correct_an_estimate(tmp_path, table, ask, number):
    """Runs that took 1.25 times their prediction: the question they answer is corrected by nearly as much, and its band is narrower."""
    wanted = 1.25 * float(times(ready({}))[0])
    runs = table(*({**GPT, "id": str(i), "step_time_s": repr(wanted)} for i in range(number)))
    path = tmp_path / "ours.toml"
    status, _, err = ask("validate", "--mine", runs, "--correction", path)
    assert status == 0
    share, _ = level_law()
    factor = 1.25 ** (number * share / (number * share + 1.0 - share))
    assert f"steps times {factor:.3f}" in err
    question = {**mapped().asked[0]}
    plain, ours = (ironlaw.estimate(**question, **more) for more in ({}, {"correction": str(path)}))
    assert ours.step_seconds[0] == pytest.approx(factor * plain.step_seconds[0], rel=1e-4)
    assert ours.mfu[0] == pytest.approx(plain.mfu[0] / factor, rel=1e-4)
    assert sum(float(np.ravel(v)[0]) for v in ours.groups[0].shares.values()) == pytest.approx(1.0)
    step = ours.row()["step"]
    assert step["seconds"] == pytest.approx(factor * sum(p["value"] for p in step["tree"]["parts"]), rel=1e-4)
    widths = [np.log(answer.row()["step"]["band"][1] / answer.row()["step"]["band"][0]) for answer in (plain, ours)]
    assert widths[1] < widths[0]
    json.dumps(ours.row(), allow_nan=False)
    assert [a["origin"] for a in ours.row()["assumptions"] if a["name"] == "correction"][-1] == "override"
    other = {"model": "deepseek-v3", "on": "gb200", "gpus": 256, "tp": 1, "pp": 4, "ep": 64}
    far = [ironlaw.estimate(**other, **more).step_seconds[0] for more in ({}, {"correction": str(path)})]
    assert far[1] == pytest.approx(far[0], rel=0.01)  # another model on another machine


def test_a_table_without_a_scored_run_writes_no_correction(tmp_path, table, ask):
    path = tmp_path / "ours.toml"
    status, out, err = ask("validate", "--mine", table({**GPT, "gpu_type": "unheard-of"}), "--correction", path)
    assert (status, out) == (2, "")
    assert "needs a scored run" in err
    assert not path.exists()


def test_places_of_a_file_are_those_that_were_written(tmp_path):
    path = tmp_path / "c.toml"
    runs = [*own(1.1), *own(0.9, gpus=8.0, stack="", mixture=True)]
    back = write_correction(path, runs, path, 0.8, 0.5)
    for i, run in enumerate(runs):
        there = {name: column[i] for name, column in back.places.items()}
        assert distance(run.place, there) == (0.5 if run.place["stack"] == "" else 0.0)
    np.testing.assert_allclose(back.logs, np.log([run.ratio for run in runs]), rtol=1e-5)
