"""``ironlaw runs add``: what a label and a number may be."""

from __future__ import annotations

import json

import paths

TRACE = paths.DATA / "measured" / "v100_resnet50_nw0.json.gz"


def test_a_diagnosis_added_again_names_the_label_it_replaces(ask, tmp_path):
    store = tmp_path / "runs.sqlite"
    diagnosis = tmp_path / "diagnosis.json"
    diagnosis.write_text(ask("diagnose", TRACE, "--json")[1])
    assert "warning" not in ask("runs", "add", diagnosis, "--label", "main", "--store", store)[1]
    again = ask("runs", "add", diagnosis, "--label", "candidate", "--store", store)[1]
    assert "its label was main and is now replaced" in again
    assert "replaced" not in ask("runs", "add", diagnosis, "--label", "candidate", "--store", store)[1]


def test_a_number_beyond_floats_is_refused_before_it_is_stored(ask, tmp_path):
    data = json.loads(ask("diagnose", TRACE, "--json")[1])
    data["verdict"]["gain"][0] = 10**400
    huge = tmp_path / "huge.json"
    huge.write_text(json.dumps(data))
    status, out, err = ask("runs", "add", huge, "--store", tmp_path / "runs.sqlite")
    assert (status, out) == (3, "") and "digits" in err
