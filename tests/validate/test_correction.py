"""Corrections that a user's runs write and an estimate reads."""

from __future__ import annotations

import json

import numpy as np
import pytest

import ironlaw
from ironlaw.errors import InputError, QuestionError
from ironlaw.estimate.correction import read_correction, write_correction
from ironlaw.validate.predict import times
from made_runs import GPT, mapped, ready


def test_a_correction_comes_back_as_it_was_written(tmp_path):
    path = tmp_path / "ours.toml"
    errors = np.array([1 / 1.1, 1 / 1.2, 1 / 1.3]) - 1.0
    assert write_correction(path, errors, path.with_name("our runs.csv")) == pytest.approx(1.2)
    back = read_correction(str(path))
    assert back.factor == pytest.approx(1.2)
    assert np.log(1.3 / 1.2) <= back.half_width <= np.log(1.2 / 1.1)
    assert back.label.startswith("our runs.csv, 3 runs")
    write_correction(path, errors, path)  # an earlier correction is replaced
    assert list(tmp_path.iterdir()) == [path]


def test_a_correction_never_replaces_another_file(tmp_path):
    path = tmp_path / "runs.csv"
    path.write_text("id\n1\n", encoding="utf-8")
    with pytest.raises(QuestionError, match="is not a correction file"):
        write_correction(path, np.zeros(3), path)
    assert path.read_text(encoding="utf-8") == "id\n1\n"


def test_a_correction_that_an_estimate_would_refuse_is_not_written(tmp_path):
    path = tmp_path / "ours.toml"
    with pytest.raises(QuestionError, match="check the units"):
        write_correction(path, np.full(3, -0.999), path)
    assert not path.exists()


@pytest.mark.parametrize("name", ["", "nowhere/c.toml", "."])
def test_a_failed_correction_leaves_no_file(tmp_path, name):
    with pytest.raises(InputError, match="cannot be written"):
        write_correction(tmp_path / name, np.zeros(3), tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "text", ["", "factor = nan\nhalf_width = 0.1", "factor = 1.0", "factor = true\nhalf_width = 0", "[", "factor = 99"]
)
def test_an_invalid_correction_is_refused(tmp_path, text):
    path = tmp_path / "c.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=r"c\.toml"):
        read_correction(str(path))


def test_runs_of_a_user_correct_an_estimate(tmp_path, table, ask):
    """Three runs that all took 1.25 times their prediction: steps times 1.25, and a band as narrow as they agree."""
    wanted = 1.25 * float(times(ready({}))[0])
    runs = table(*({**GPT, "id": str(i), "step_time_s": repr(wanted)} for i in range(3)))
    path = tmp_path / "ours.toml"
    status, _, err = ask("validate", "--mine", runs, "--correction", path)
    assert status == 0
    assert "steps times 1.250" in err
    question = {**mapped().asked[0]}
    plain, ours = (ironlaw.estimate(**question, **more) for more in ({}, {"correction": str(path)}))
    assert ours.step_seconds[0] == pytest.approx(1.25 * plain.step_seconds[0], rel=1e-4)
    assert ours.mfu[0] == pytest.approx(plain.mfu[0] / 1.25, rel=1e-4)
    assert sum(float(np.ravel(v)[0]) for v in ours.groups[0].shares.values()) == pytest.approx(1.0)
    step = ours.row()["step"]
    parts = step["tree"]["parts"]
    assert step["seconds"] == pytest.approx(1.25 * sum(p["value"] for p in parts), rel=1e-4)
    low, high, _ = step["band"]
    assert np.log(high / low) == pytest.approx(2.0 * read_correction(str(path)).half_width)
    json.dumps(ours.row(), allow_nan=False)
    assert [a["origin"] for a in ours.row()["assumptions"] if a["name"] == "correction"][-1] == "override"


def test_too_few_runs_write_no_correction(tmp_path, table, ask):
    path = tmp_path / "ours.toml"
    status, out, err = ask("validate", "--mine", table(GPT), "--correction", path)
    assert (status, out) == (2, "")
    assert "at least 3" in err
    assert not path.exists()
