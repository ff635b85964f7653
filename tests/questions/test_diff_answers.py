"""The difference of two answers of a verb that answers in tables."""

from __future__ import annotations

import json
from typing import Any

import pytest

QUESTIONS = {
    "compare": ("llama-3-8b", "--on", "h100-sxm,mi300x"),
    "money": ("llama-3-8b", "--on", "h100-sxm", "--tokens", "1T"),
    "solve": ("llama-3-8b", "--on", "h100-sxm", "--tokens", "1T", "--solve-for", "time"),
    "sweep": ("llama-3-8b", "--on", "h100-sxm", "--tokens", "1T"),
    "goodput": ("llama-3-8b", "--on", "h100-sxm", "--tokens", "1T"),
}


@pytest.fixture
def saved(ask, tmp_path) -> Any:
    """Answers of a verb on 8 and on 16 accelerators, in files."""

    def save(verb: str) -> list[Any]:
        paths = []
        for gpus in (8, 16):
            path = tmp_path / f"{verb}{gpus}.json"
            path.write_text(ask(verb, *QUESTIONS[verb], "--gpus", gpus, "--json")[1])
            paths.append(path)
        return paths

    return save


@pytest.mark.parametrize("verb", QUESTIONS)
def test_the_option_and_the_values_that_moved_are_listed(verb, saved, ask):
    a, b = saved(verb)
    status, out, _ = ask("diff", a, b, "--json")
    found = json.loads(out)
    assert (status, found["verb"]) == (1, verb)
    assert found["inputs"] == [{"option": "gpus", "a": "8", "b": "16"}]
    assert found["versions"] == []
    for row in found["values"]:
        assert row["difference"] == pytest.approx(row["b"] - row["a"], rel=1e-12)
    assert any(row["a"] == 8 and row["b"] == 16 for row in found["values"])
    assert found["headline"][0]["text"].startswith("Changed: 1 option")


@pytest.mark.parametrize("verb", QUESTIONS)
def test_the_same_answer_differs_in_nothing(verb, saved, ask):
    a, _ = saved(verb)
    status, out, _ = ask("diff", a, a)
    assert (status, "The answers are the same." in out) == (0, True)


def test_rows_in_another_order_are_paired_by_their_names(saved, ask, tmp_path):
    a, _ = saved("compare")
    data = json.loads(a.read_text())
    for name, rows in data.items():
        if isinstance(rows, list) and name not in ("headline", "warnings", "assumptions"):
            data[name] = rows[::-1]
    b = tmp_path / "reversed.json"
    b.write_text(json.dumps(data))
    assert ask("diff", a, b)[0] == 0


def test_another_version_of_the_catalogue_is_named(saved, ask, tmp_path):
    a, _ = saved("money")
    b = tmp_path / "other.json"
    b.write_text(json.dumps({**json.loads(a.read_text()), "catalog_hash": "another"}))
    status, out, _ = ask("diff", a, b)
    assert status == 0
    assert "from another version" in out and "catalog_hash" in out


def test_answers_of_two_verbs_are_refused(saved, ask):
    status, _, err = ask("diff", saved("money")[0], saved("solve")[0])
    assert (status, "compare two answers of one verb" in err) == (2, True)


@pytest.mark.parametrize(("key", "value"), [("asked", 5), ("asked", {"given": {}}), ("assumptions", 3), ("assumptions", [3])])
def test_a_broken_file_is_refused_in_one_line(key, value, saved, ask, tmp_path):
    a, _ = saved("money")
    b = tmp_path / "broken.json"
    b.write_text(json.dumps({**json.loads(a.read_text()), key: value}))
    status, _, err = ask("diff", a, b)
    assert (status, err.count("\n"), key in err) == (3, 1, True)
