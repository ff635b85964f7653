"""The user's own catalogue folders: absent, empty, read once."""

from __future__ import annotations

import importlib
import inspect
import json
from pathlib import Path

import pytest

import ironlaw
from ironlaw.catalog import load
from ironlaw.errors import InputError
from verbs import QUESTIONS


def test_rows_hash_the_catalogue_once(ask, tmp_path, monkeypatch):
    calls, real = [], Path.read_bytes
    load._hash_of.cache_clear()
    monkeypatch.setattr(Path, "read_bytes", lambda self: calls.append(self) or real(self))
    table = tmp_path / "runs.csv"
    table.write_text("model,on,gpus\n" + "llama-3-8b,h100-sxm,8\n" * 5 + "lama,h100-sxm,8\n")
    status, out, _ = ask("estimate", "--rows", table, "--json")
    rows = json.loads(out)
    assert status == 2 and [row["line"] for row in rows] == [2, 3, 4, 5, 6, 7]
    assert "error" in rows[-1] and out == json.dumps(rows, indent=1) + "\n"
    assert len(calls) == len(set(calls))


def test_a_folder_without_records_is_refused(ask, tmp_path):
    status, _, err = ask("catalog", "--catalog", tmp_path, "list")
    assert status == 3 and "no records; expected folders" in err
    (tmp_path / "models").mkdir()
    assert ask("catalog", "--catalog", tmp_path, "list")[0] == 0


ASKED_IN_PYTHON = [getattr(importlib.import_module(f"ironlaw.questions.{verb}"), verb) for verb in QUESTIONS]


@pytest.mark.parametrize("question", [q for q in ASKED_IN_PYTHON if "catalog" in inspect.signature(q).parameters])
def test_a_catalogue_given_as_text_is_one_folder_that_must_exist(question, tmp_path):
    with pytest.raises(InputError, match="gone: no such folder"):  # a text read letter by letter would name the root folder
        question(catalog=str(tmp_path / "gone"))


@pytest.mark.parametrize("verb", [ironlaw.estimate, ironlaw.search])
def test_python_calls_refuse_a_catalogue_folder_that_does_not_exist(verb, tmp_path):
    for catalog in (str(tmp_path / "gone"), [str(tmp_path / "gone")]):
        with pytest.raises(InputError, match="no such folder"):
            verb("llama-3-8b", on="h100-sxm", gpus=8, catalog=catalog)
