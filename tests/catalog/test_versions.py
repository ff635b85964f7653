"""Earlier sets of constants: each loads whole, has the version of its folder, and is the set that an answer asks for."""

from __future__ import annotations

import json

import numpy as np
import pytest

import ironlaw
from ironlaw.catalog import load
from ironlaw.catalog.audit import audit_file
from ironlaw.cautions.record import sentences
from ironlaw.errors import QuestionError

KEPT = sorted(path.name for path in load.VERSIONS.iterdir() if path.is_dir())
QUESTION = {"model": "llama-3-8b", "on": "h100-sxm", "gpus": 8, "tp": 2, "pp": 1, "recompute": "none"}


def test_a_set_is_kept_and_all_records_that_ship_have_one_version():
    assert KEPT
    assert {load.record("calibration", name).version for name in load.names("calibration")} == {load.constants_version()}
    assert load.constants_version() not in KEPT


@pytest.mark.parametrize("version", KEPT)
def test_every_record_of_a_kept_set_is_whole_and_has_its_version(version):
    folder = load.VERSIONS / version
    files = sorted(folder.glob("*/*.toml"))
    assert {path.parent.name for path in files} <= set(load.CONSTANTS)
    for path in files:
        assert audit_file(path.parent.name, path) == []
        if path.parent.name == "calibration":
            assert load.record("calibration", path.stem, load.with_constants((), version)).version == version


@pytest.mark.parametrize("version", KEPT)
def test_an_answer_has_the_constants_that_it_asks_for(version, ask):
    now, then = ironlaw.estimate(**QUESTION), ironlaw.estimate(**QUESTION, calibration_version=version)
    data = then.row(0)
    assert data["calibration_version"] == version
    assert data["records"]["systems/default"] != now.row(0)["records"]["systems/default"]
    assert data["catalog_hash"] != now.row(0)["catalog_hash"]
    assert any(f"constants are those of {version}; the laws are those of ironlaw" in line for line in sentences(data["warnings"]))
    assert np.isfinite(then.step_seconds[0]) and then.step_seconds[0] != now.step_seconds[0]
    plan = json.loads(ask("plan", "llama-3-8b", "--on", "h100-sxm", "--gpus", "8", "--calibration-version", version, "--json")[1])
    best = plan["plans"][0]
    assert plan["calibration_version"] == best["calibration_version"] == version
    assert best["asked"]["given"]["calibration_version"] == version


def test_the_version_that_ships_is_the_default():
    now, same = ironlaw.estimate(**QUESTION), ironlaw.estimate(**QUESTION, calibration_version=load.constants_version())
    assert same.step_seconds[0] == now.step_seconds[0] and same.row(0)["catalog_hash"] == now.row(0)["catalog_hash"]
    assert sentences(same.row(0)["warnings"]) == sentences(now.row(0)["warnings"])


@pytest.mark.parametrize("version", ["2019.01", "../data", ".", "", "README.md"])
def test_an_unknown_version_names_the_known_ones(version, ask):
    status, _, err = ask("estimate", "llama-3-8b", "--on", "h100-sxm", "--gpus", "8", "--calibration-version", version)
    assert status == 2 and len(err.strip().splitlines()) == 1
    if version:
        assert all(known in err for known in [load.constants_version(), *KEPT]), err


def test_records_of_a_given_folder_go_before_a_kept_set(tmp_path):
    (tmp_path / "systems").mkdir()
    text = (load.SHIPPED / "systems" / "default.toml").read_text()
    mine = text.splitlines()
    at = next(i for i, line in enumerate(mine) if line.startswith("compute_sustained"))
    mine[at] = 'compute_sustained = { value = "0.5", source = "fit" }'
    (tmp_path / "systems" / "default.toml").write_text("\n".join(mine))
    folders = load.with_constants((str(tmp_path),), KEPT[0])
    assert load.record("systems", "default", folders).compute_sustained.value == 0.5
    assert load.record("calibration", "h100-sxm", folders).version == KEPT[0]
    assert load.with_constants(folders, KEPT[0]) == folders
    with pytest.raises(QuestionError):
        load.with_constants((), "2019.01")
