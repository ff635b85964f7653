"""Held-out errors of the published runs may not grow unnoticed: ``ratchet.json`` stores the errors of each family."""

from __future__ import annotations

import importlib.util
import json

import pytest

import paths

PATH = paths.ROOT / "tools" / "ratchet.py"


@pytest.fixture(scope="module")
def ratchet():
    spec = importlib.util.spec_from_file_location("ratchet", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def measured(ratchet):
    return ratchet.measure()


def test_no_family_is_predicted_worse_than_it_was(ratchet, measured):
    lines = ratchet.worse(ratchet.read(), measured)
    assert not lines, "\n".join([*lines, "these figures may only fall"])


def test_every_family_of_the_headline_is_in_the_file(ratchet, measured):
    assert set(ratchet.read()) == set(measured), "run python tools/ratchet.py"


@pytest.mark.slow
def test_best_plans_are_no_worse_than_they_were(ratchet):
    lines = ratchet.worse_plans(ratchet.read_plans(), ratchet.measure_plans())
    assert not lines, "\n".join([*lines, "run python tools/ratchet.py --plans and say why"])


def test_the_file_of_best_plans_has_every_figure(ratchet):
    assert set(ratchet.read_plans()) == set(ratchet.PLANS)


def test_a_figure_of_best_plans_gets_worse_upwards_or_downwards(ratchet):
    old = dict.fromkeys(ratchet.PLANS, 1.0)
    for name, slack in ratchet.PLANS.items():
        way = 1.0 if slack >= 0.0 else -1.0
        within, beyond = ({**old, name: 1.0 + slack + way * step} for step in (-1e-6, 1e-6))
        assert ratchet.worse_plans(old, within) == [] and len(ratchet.worse_plans(old, beyond)) == 1
        assert ratchet.tightened_plans(old, beyond) == old


def test_growth_beyond_the_slack_and_missing_families_are_reported(ratchet):
    old = {"a": {"n": 3, "median": 0.05, "p90": 0.1}, "b": {"n": 1, "median": 0.2, "p90": 0.2}}
    new = {"a": {"n": 4, "median": 0.0519, "p90": 0.1021}, "c": {"n": 1, "median": 0.9, "p90": 0.9}}
    assert ratchet.worse(old, new) == ["b: no run is scored any more", "a: p90 |error| 10.00% -> 10.21%"]
    assert ratchet.worse(old, old) == []
    assert [m[:2] for m in ratchet.moved(old, {**old, "a": {**old["a"], "n": 4}})] == [("a", "n")]


def test_a_check_writes_nothing_and_prints_what_moved(ratchet, monkeypatch, tmp_path, capsys):
    file = tmp_path / "ratchet.json"
    file.write_text('{"a": {"n": 1, "median": 0.1, "p90": 0.1}}', encoding="utf-8")
    monkeypatch.setattr(ratchet, "FILE", file)
    monkeypatch.setattr(ratchet, "measure", lambda: {"a": {"n": 1, "median": 0.2, "p90": 0.1}})
    before = file.read_text(encoding="utf-8")
    assert ratchet.main(["--check"]) == 1
    assert "10.00% -> 20.00%" in capsys.readouterr().out
    assert file.read_text(encoding="utf-8") == before
    assert ratchet.main([]) == 1  # it only tightens
    assert file.read_text(encoding="utf-8") == before
    monkeypatch.setattr(ratchet, "measure", lambda: {"a": {"n": 2, "median": 0.05, "p90": 0.101}, "b": {"n": 1, "median": 0.3, "p90": 0.4}})
    capsys.readouterr()
    assert ratchet.main([]) == 0
    written = json.loads(file.read_text(encoding="utf-8"))
    assert written == {"a": {"n": 2, "median": 0.05, "p90": 0.1}, "b": {"n": 1, "median": 0.3, "p90": 0.4}}
    monkeypatch.setattr(ratchet, "measure", lambda: written)
    assert ratchet.main(["--check"]) == 0
    assert "nothing moved" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="2"):
        ratchet.main(["--chek"])
