"""The validation that ships: complete, at once, and that of today."""

from __future__ import annotations

import csv
import json

import pytest

from ironlaw.validate import session
from ironlaw.validate.runs import RUNS
from ironlaw.validate.shipped import link, read_shipped, rounded, runs_digest


def test_every_prediction_says_what_ran_where_and_when():
    with RUNS.open(encoding="utf-8", newline="") as file:
        rows = {row["id"]: row for row in csv.DictReader(file)}
    found = read_shipped()
    assert found["runs_sha256"] == runs_digest(), "the runs changed: run python tools/predictions.py"
    assert len(found["predictions"]) == found["scored"] and found["rows"] == len(rows)
    for one in found["predictions"]:
        row = rows[one["id"]]
        assert (one["family"], one["date"]) == (row["family"], row["year"]) and one["gpus"] == int(row["gpus"])
        assert one["model"] and one["accelerator"] and one["format"] and one["stack"]["record"]
        assert one["error"] == pytest.approx(one["predicted_s"] / one["measured_s"] - 1.0, abs=1e-5)
    assert sum(one["url"] is None for one in found["predictions"]) == 0
    assert {group["family"] for group in found["groups"]} <= {one["family"] for one in found["predictions"]}


def test_the_command_reads_it(ask):
    status, out, _ = ask("validate", "predictions", "--json")
    data = json.loads(out)
    assert status == 0 and len(data["predictions"]) == data["scored"] > 800 and data["catalog_hash"]
    assert len(ask("validate", "predictions", "--format", "csv:predictions")[1].splitlines()) == data["scored"] + 1
    assert "headline: median error" in ask("validate", "predictions")[1]
    status, _, err = ask("validate", "predictions", "--memory")
    assert status == 2 and "--memory" in err


@pytest.mark.parametrize(("place", "found"), [
    ("mlcommons/results_v4.0:a/gpt3/result_*.txt", "https://github.com/mlcommons/results_v4.0/tree/HEAD/a/gpt3"),
    ("pytorch/torchtitan:docs/performance.md@0413364349", "https://github.com/pytorch/torchtitan/blob/0413364349/docs/performance.md"),
    ("github:a/b@HEAD:c/d.py + e/* (words)", "https://github.com/a/b/blob/HEAD/c/d.py"),
    ("https://example.org/x", "https://example.org/x"), ("", None), ("a talk in spring", None),
])  # fmt: skip
def test_a_link_names_the_file_that_was_read(place, found):
    assert link(place) == found


@pytest.mark.slow
def test_what_ships_is_what_is_computed():
    """Computed anew, every figure is the one that ships: else run python tools/predictions.py."""
    today, shipped = rounded(session.data(session.validate())), read_shipped()
    for now, then in zip(today["predictions"], shipped["predictions"], strict=True):
        assert now["id"] == then["id"] and now["predicted_s"] == pytest.approx(then["predicted_s"], rel=1e-5)
        assert now["band"] == pytest.approx(then["band"], rel=1e-5) and now["url"] == then["url"]
    assert json.loads(json.dumps(today["headline"])) == pytest.approx(shipped["headline"], rel=1e-4)
    assert [group["key"] for group in today["groups"]] == [group["key"] for group in shipped["groups"]]
