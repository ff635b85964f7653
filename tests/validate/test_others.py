"""Predictions of another tool, scored on the rows of a table beside ours."""

from __future__ import annotations

import json

import numpy as np
import pytest

from ironlaw.errors import InputError
from ironlaw.validate.others import SHIPPED, compare, read_predictions, shipped
from ironlaw.validate.predict import times
from ironlaw.validate.runs import read_runs
from ironlaw.validate.score import score
from made_runs import GPT, ready


def written(path, text):
    path.write_text(text, encoding="utf-8")
    return path


def test_a_tool_is_scored_beside_ours(tmp_path):
    p = ready({"family": "a"}, {"family": "b"}, {"family": "b"})
    scored = score(p, times(p), [], np.full(3, 0.1))
    path = written(tmp_path / "p.csv", f"id,step_time_s,lo,hi\n0,{1.1 * p.measured[0]},1,9\n2,{0.8 * p.measured[2]},,\n")
    found = compare(read_predictions(path, {"0", "1", "2"}), scored)
    assert (found["rows"], found["scored"], found["not_scored"]) == (2, 2, [])
    assert [row["group"] for row in found["groups"]] == ["a", "b"]
    assert found["all"]["theirs"]["median_abs_error"] == pytest.approx(0.15)
    assert found["all"]["theirs"]["bias"] == pytest.approx(-0.05)
    assert found["all"]["theirs"]["band_coverage"] == 1.0
    ours = np.abs(scored.error[[0, 2]])
    assert found["all"]["ours"]["median_abs_error"] == pytest.approx(np.median(ours))
    assert found["groups"][1]["ours"]["worst"] == pytest.approx(float(scored.error[2]))
    assert [row["error"] for row in found["predictions"]] == pytest.approx([0.1, -0.2])


def test_our_own_predictions_as_a_file_score_as_ours(tmp_path):
    p = ready({}, {"gpus": "16", "global_batch_seqs": "512"})
    scored = score(p, times(p), [], np.full(2, 0.1))
    lines = [f"{i},{t},{t * np.exp(-0.1)},{t * np.exp(0.1)}" for i, t in enumerate(scored.predicted)]
    found = compare(read_predictions(written(tmp_path / "p.csv", "id,step_time_s,lo,hi\n" + "\n".join(lines)), {"0", "1"}), scored)["all"]
    for name, value in found["ours"].items():
        assert found["theirs"][name] == pytest.approx(value), name


def test_a_rate_is_a_step_time(tmp_path):
    p = ready({})
    scored = score(p, times(p), [])
    rate = 256 * 2048 / 8 / (1.25 * p.measured[0])
    found = compare(read_predictions(written(tmp_path / "p.csv", f"id,tokens_per_s_per_gpu\n0,{rate}\n"), {"0"}), scored)
    assert found["all"]["theirs"]["bias"] == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("id,step_time_s\nnem-001,3\n", "line 2: no row 'nem-001' .*nearest: nemo-001"),
        ("id,step_time_s\nnemo-001,3\nnemo-001,4\n", "line 3: nemo-001 is given twice, first in line 2"),
        ("id,step_time_s\nnemo-001,fast\n", "line 2: step_time_s is 'fast'"),
        ("id,step_time_s\nnemo-001,\n", "line 2: step_time_s is ''"),
        ("id,step_time_s\nnemo-001,-3\n", "must be a number above 0"),
        ("id,step_time_s,lo,hi\nnemo-001,3,4,5\n", "line 2: step_time_s 3 must lie between lo and hi"),
        ("id,step_time_s,lo,hi\nnemo-001,3,2,\n", "both or neither"),
        ("id,step_time_s,lo\nnemo-001,3,2\n", "both columns lo and hi"),
        ("id,seconds\nnemo-001,3\n", "needs a column id and one of step_time_s"),
        ("id,step_time_s,tokens_per_s_per_gpu\nnemo-001,3,4\n", "needs a column id and one of"),
        ("name,step_time_s\nnemo-001,3\n", "needs a column id"),
    ],
)
def test_a_wrong_table_says_what_is_wrong_and_where(tmp_path, text, why):
    with pytest.raises(InputError, match=why):
        read_predictions(written(tmp_path / "p.csv", text), {"nemo-001", "nemo-002"})


def test_the_command_scores_a_tool(tmp_path, table, ask):
    runs = table({**GPT, "id": "one"}, {**GPT, "id": "two"}, {**GPT, "id": "out", "gpus": ""})
    path = written(tmp_path / "tool.csv", "id,step_time_s\ntwo,5.0\nout,1\n")
    status, out, err = ask("validate", "--predictions", path, "--runs", runs, "--json")
    assert (status, err) == (0, "")
    told = json.loads(out)
    assert told["all"]["theirs"]["median_abs_error"] == pytest.approx(0.25)
    assert told["not_scored"] == [{"id": "out", "line": 3, "reason": "no number of accelerators: gpus"}]
    assert ask("validate", "--predictions", written(tmp_path / "x.csv", "id,step_time_s\nthree,5.0\n"), "--runs", runs)[0] == 3
    assert ask("validate", "--predictions", path, "--mine", runs)[0] == 2
    assert "their median" in ask("validate", "--predictions", path, "--runs", runs)[1]


def test_shipped_predictions_are_of_rows_of_the_table():
    known = {run.id for run in read_runs()[0]}
    for path in SHIPPED.glob("*.csv"):
        assert len(read_predictions(path, known).rows) > 0, path.name


def test_a_tool_without_a_row_in_the_table_is_left_out():
    p = ready({})
    assert shipped(score(p, times(p), [])) == []
