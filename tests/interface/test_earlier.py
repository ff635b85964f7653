"""Names of earlier versions: verbs, options and chapters are read as today's, in questions and in saved answers."""

from __future__ import annotations

import json

import pytest

import ironlaw
from ironlaw import earlier
from ironlaw.cli.main import VERBS, main
from ironlaw.errors import ConflictError, InputError
from ironlaw.questions.textbook.options import CHAPTERS
from verbs import MODULES

SITES = ("sites", "llama-3-70b", "--on", "h100-sxm", "--gpus", "64", "--sites", "2", "--wan-bandwidth", "1GB/s", "--tokens", "1T")
SITES += ("--mfu", "0.4", "--global-batch-tokens", "4M")


def test_the_table_names_what_there_is():
    assert set(earlier.VERBS.values()) <= set(VERBS) and not set(earlier.VERBS) & set(VERBS)
    for verb, renamed in earlier.OPTIONS.items():
        table = MODULES[verb].OPTIONS
        assert set(renamed.values()) <= set(table) and not set(renamed) & set(table), verb
    for moved in earlier.MOVED:
        assert moved.option not in MODULES[moved.verb].OPTIONS, moved
        assert moved.chapter in ("", *CHAPTERS)


def test_an_earlier_option_is_the_option_on_the_command_line_and_in_python(capsys):
    printed = []
    for name in ("--every", "--inner-steps"):
        assert main([*SITES, name, "100", "--json"]) == 0
        printed.append(json.loads(capsys.readouterr().out))
    assert printed[0] == printed[1] and printed[0]["asked"]["given"]["inner_steps"]
    bill = {"gpu_hours": 1e6, "on": "h100-sxm", "gpus": 64, "reserved_price": 2}
    assert ironlaw.money(**bill, utilisation=0.5).headline == ironlaw.money(**bill, utilization=0.5).headline
    with pytest.raises(ConflictError, match="give it once"):
        ironlaw.money(**bill, utilisation=0.5, utilization=0.5)


def test_an_answer_saved_under_earlier_names_is_asked_again_and_compared(tmp_path, capsys):
    assert main(["optimize", "--gpu-utilization", "45%", "--json"]) == 0
    new = json.loads(capsys.readouterr().out)
    old = {**new, "asked": {**new["asked"], "verb": "lessons"}}
    table = ironlaw.textbook("optimizers", parameters="7B").to_dict()
    moved = {**table, "asked": {"verb": "lessons", "given": {"table": "optimizers", "parameters": "7B"}}}
    for name, data in (("new", new), ("old", old), ("table", table), ("moved", moved)):
        (tmp_path / f"{name}.json").write_text(json.dumps(data))
    for a, b in (("old", "new"), ("moved", "table")):
        assert main(["diff", str(tmp_path / f"{a}.json"), str(tmp_path / f"{b}.json")]) == 0
        assert "The answers are the same" in capsys.readouterr().out
        assert main(["again", str(tmp_path / f"{a}.json")]) == 0, capsys.readouterr()


@pytest.mark.parametrize("version", [3, "1", True, None])
def test_a_version_that_is_not_read_is_named(version):
    with pytest.raises(InputError, match="this version reads 1 and 2: ask again"):
        earlier.check_version(version, "a.json", ": ask again")
