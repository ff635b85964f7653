"""What an examiner with inputs of his own found: pipes, terminals, strange files and long tables, each through the command."""

from __future__ import annotations

import copy
import gzip
import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import ironlaw
import paths
from ironlaw.catalog import load
from ironlaw.cli import main as command_line
from ironlaw.errors import InputError
from ironlaw.questions.inference.ask import inference
from ironlaw.report.estimate import bar

DATA = paths.DATA / "measured"
TRACE = DATA / "v100_resnet50_nw0.json.gz"
ASK = ["estimate", "llama-3-8b", "--on", "h100-sxm", "--gpus", "8"]


@pytest.fixture
def ask(capsys):
    def asked(*words):
        status = command_line.main(list(map(str, words)))
        out, err = capsys.readouterr()
        return status, out, err

    return asked


def process(*words, **kwargs):
    environment = {**os.environ, **kwargs.pop("env", {})}
    return subprocess.run([sys.executable, "-m", "ironlaw", *words], capture_output=True, env=environment, check=False, **kwargs)


# Pipes and terminals


def test_a_closed_pipe_is_no_answer_of_no():
    shell = f"{sys.executable} -m ironlaw catalog list | head -n 1 >/dev/null; exit ${{PIPESTATUS[0]}}"
    child = subprocess.run(["bash", "-c", shell], capture_output=True, check=False)
    assert (child.returncode, child.stderr) == (0, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_standard_error_that_cannot_be_written_leaves_the_status():
    with open("/dev/full", "w") as full:
        child = subprocess.run(
            [sys.executable, "-m", "ironlaw", "estimate", "lama", "--on", "h100-sxm", "--gpus", "8"], stderr=full, check=False
        )
    assert child.returncode == 2


def test_bars_are_number_signs_where_blocks_cannot_be_written(monkeypatch):
    blocks = bar(0.5)
    page = process(*ASK, env={"PYTHONIOENCODING": "ascii"}).stdout.decode("ascii")
    assert "?" not in page and "############" in page
    assert blocks == "█" * 12


def test_a_message_is_one_line_without_what_a_terminal_obeys(ask):
    status, out, err = ask("diagnose", "gone\x1b[31m\nfile.json")
    assert (status, out) == (3, "")
    assert err.count("\n") == 1 and "\x1b" not in err and "gone?[31m file.json" in err


@pytest.mark.parametrize(("verb", "known"), [("runs", "gate"), ("catalog", "check")])
def test_a_verb_of_verbs_alone_says_in_one_line_what_it_lacks(ask, verb, known):
    status, out, err = ask(verb)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"ironlaw: ironlaw {verb} lacks what to do") and known in err


def test_the_bare_command_prints_its_help(ask):
    status, out, err = ask()
    assert (status, err) == (0, "") and out.startswith("Usage: ironlaw")


# Traces


@pytest.fixture(scope="module")
def events():
    return json.loads(gzip.open(TRACE).read())


def written(path, data, before=b"", form="utf-8"):
    path.write_bytes(before + json.dumps(data).encode(form))
    return path


def test_a_byte_order_mark_is_passed_over(ask, tmp_path, events):
    status, out, _ = ask("diagnose", written(tmp_path / "bom.json", events, before=b"\xef\xbb\xbf"))
    assert status == 0 and "host-bound, by data" in out


def test_utf_16_is_told_by_name(ask, tmp_path, events):
    status, _, err = ask("diagnose", written(tmp_path / "wide.json", events, form="utf-16"))
    assert status == 3 and "UTF-16" in err and "UTF-8" in err


@pytest.mark.parametrize(("content", "says"), [(gzip.compress(b""), "unpacks to nothing"), (b" \n\n", "white space")])
def test_nothing_is_told_as_nothing(ask, tmp_path, content, says):
    path = tmp_path / "empty"
    path.write_bytes(content)
    status, _, err = ask("diagnose", path)
    assert status == 3 and says in err


@pytest.mark.parametrize(("every", "status"), [(1, 4), (5, 4), (12, 0)])  # of 9,096 device events 96 %, 19 %, 8 % are lost; 10 % may be
def test_events_whose_times_are_lost_are_no_waiting(ask, tmp_path, events, every, status):
    broken = copy.deepcopy(events)
    kernels = [e for e in broken["traceEvents"] if e.get("cat") == "Kernel"]
    for event in kernels[::every]:
        event["dur"] = None
    found, out, _ = ask("diagnose", written(tmp_path / "lost.json", broken), "--json")
    verdict = json.loads(out)["verdict"]
    assert found == status and (verdict["roof"] is None) == (status == 4)
    if status == 4:
        assert "cannot be read" in verdict["says"]


def test_names_of_kernels_cannot_move_the_cursor(ask, tmp_path, events):
    evil = copy.deepcopy(events)
    for event in evil["traceEvents"]:
        if event.get("cat") == "Kernel":
            event["name"] = "gemm\x1b[2J\x07" + event["name"]
    status, out, _ = ask("diagnose", written(tmp_path / "evil.json", evil))
    assert status == 0 and "gemm?[2J?" in out and not {"\x1b", "\x07"} & set(out)


# The store


def test_a_diagnosis_kept_again_says_which_label_it_lost(ask, tmp_path):
    store = tmp_path / "runs.sqlite"
    diagnosis = tmp_path / "diagnosis.json"
    diagnosis.write_text(ask("diagnose", TRACE, "--json")[1])
    assert "warning" not in ask("runs", "add", diagnosis, "--label", "main", "--store", store)[1]
    again = ask("runs", "add", diagnosis, "--label", "candidate", "--store", store)[1]
    assert "it was labelled main, which no longer names it" in again
    assert "no longer" not in ask("runs", "add", diagnosis, "--label", "candidate", "--store", store)[1]


def test_a_number_beyond_floats_is_refused_before_it_is_kept(ask, tmp_path):
    data = json.loads(ask("diagnose", TRACE, "--json")[1])
    data["verdict"]["gain"][0] = 10**400
    status, out, err = ask("runs", "add", written(tmp_path / "huge.json", data), "--store", tmp_path / "runs.sqlite")
    assert (status, out) == (3, "") and "digits" in err


# Tables and the catalogue


def test_rows_read_the_catalogue_for_its_hash_once(ask, tmp_path, monkeypatch):
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


def test_a_folder_without_records_is_no_catalogue(ask, tmp_path):
    status, _, err = ask("catalog", "--catalog", tmp_path, "list")
    assert status == 3 and "holds no records" in err
    (tmp_path / "models").mkdir()
    assert ask("catalog", "--catalog", tmp_path, "list")[0] == 0


@pytest.mark.parametrize("question", ["compare", "solve", "sites", "scaling", "sweep", "money", "goodput", "data", "roofline"])
def test_a_catalogue_given_as_text_is_one_folder_that_must_be_there(question, tmp_path):
    asked = getattr(importlib.import_module(f"ironlaw.questions.{question}"), question)
    with pytest.raises(InputError, match="gone: no such folder"):  # the letters of a text named the root of the file system among others
        asked(catalog=str(tmp_path / "gone"))


@pytest.mark.parametrize("verb", [ironlaw.estimate, ironlaw.search])
def test_a_folder_that_is_not_there_is_no_catalogue_in_python_either(verb, tmp_path):
    for catalog in (str(tmp_path / "gone"), [str(tmp_path / "gone")]):
        with pytest.raises(InputError, match="no such folder"):
            verb("llama-3-8b", on="h100-sxm", gpus=8, catalog=catalog)


def test_a_price_of_an_accelerator_that_is_not_asked_for_is_refused(ask):
    asked = ["plan", "llama-3-8b", "--on", "h100-sxm", "--gpus", "8", "--global-batch-size", "64", "--tokens", "1T"]
    status, _, err = ask(*asked, "--price", "b200-sxm=1")
    assert status == 2 and "--price names b200-sxm" in err and "h100-sxm" in err


def test_the_axes_of_a_space_have_the_keys_of_every_answer(ask):
    out = ask("plan", "llama-3-8b", "--on", "h100-sxm", "--gpus", "8", "--global-batch-size", "64", "--describe-space", "--json")[1]
    assert {"schema_version", "tool_version", "catalog_hash", "assumptions", "warnings", "axes"} <= set(json.loads(out))


def test_scores_have_the_keys_of_every_answer(ask, tmp_path):
    shipped = Path(load.__file__).parents[1] / "validate" / "data" / "runs.csv"
    few = tmp_path / "runs.csv"
    few.write_text("".join(shipped.read_text().splitlines(keepends=True)[:4]))
    found = json.loads(ask("validate", "--runs", few, "--json")[1])
    assert {"schema_version", "tool_version", "catalog_hash", "assumptions", "warnings", "headline"} <= set(found)


def test_every_verb_that_reads_the_catalogue_names_its_calibration(ask, tmp_path):
    plan = ("llama-3-8b", "--on", "h100-sxm", "--gpus", "8")
    asked = {
        "estimate": plan, "money": (*plan, "--tokens", "1T"), "goodput": (*plan, "--tokens", "1T"), "solve": (*plan, "--tokens", "1T"),
        "roofline": plan, "inference": ("llama-3-8b", "--on", "h100-sxm"), "compare": plan,
    }  # fmt: skip
    told = {verb: json.loads(ask(verb, *flags, "--json")[1])["calibration_version"] for verb, flags in asked.items()}
    assert set(told.values()) == {load.record("calibration", "h100-sxm").version}

    (tmp_path / "calibration").mkdir()
    shipped = (Path(load.__file__).parent / "data" / "calibration" / "h100-sxm.toml").read_text()
    (tmp_path / "calibration" / "h100-sxm.toml").write_text(shipped.replace('version = "2026.11"', 'version = "mine-1"'))
    own = [json.loads(ask(verb, *asked[verb], "--json", "--catalog", tmp_path)[1])["calibration_version"] for verb in ("estimate", "money")]
    assert own == ["mine-1", "2026.11, mine-1"]


def test_a_wrong_table_of_peaks_is_told_before_the_runs_are_scored(ask, tmp_path, monkeypatch):
    from ironlaw.validate import session

    monkeypatch.setattr(session, "prepare", lambda *a: pytest.fail("the runs were scored first"))
    assert ask("validate", "--peaks", tmp_path / "none.csv")[0] == 3


def test_a_table_of_runs_is_not_walked_once_a_run():
    from ironlaw.validate.predict import prepare
    from ironlaw.validate.runs import RUNS, read_runs

    prepared, _ = prepare(read_runs(RUNS)[0][:20])
    assert prepared.counts is prepared.counts and prepared.families is prepared.families


def test_a_launch_script_whose_flag_lost_its_value(ask, tmp_path):
    script = tmp_path / "train.sh"
    script.write_text("torchrun pretrain_gpt.py --num-layers 32 --hidden-size --num-attention-heads 32 --vocab-size 32000\n")
    status, _, err = ask("estimate", script, "--on", "h100-sxm", "--gpus", "8")
    assert status == 2 and "--hidden-size has no value" in err


# Words


def test_hours_of_accelerators_are_shown_as_hours(ask):
    # 1,024 accelerators for 1.2 million GPU-hours; the explanation said 333.3 h, hours divided by 3,600 once more
    out = ask("money", "--gpu-hours", "1.2M", "--gpus", "1024", "--on", "h100-sxm", "--explain", "gpu hours")[1]
    assert out.splitlines()[0] == "gpu hours: 1,200,000 h"


def test_long_prompts_are_not_told_in_millions_of_milliseconds():
    first = " ".join(inference("llama-3-70b", "h100-sxm", gpus=8, batch=100_000).headline)
    assert "(100000 together)" in first and ",000 ms" not in first and "ms (100000" not in first


def test_what_was_not_counted_is_none_in_an_explanation(ask):
    out = ask(
        "data", "--step-time", "100ms", "--batch", "256", "--sample-size", "150KB", "--transform-time", "8ms", "--on", "h100-sxm",
        "--disk", "3.5GB/s", "--explain",
    )[1]  # fmt: skip
    assert "network = none" in out and "nan" not in out


@pytest.mark.parametrize("verb", ["sites", "money", "goodput"])
def test_help_promises_no_answer_without_tokens_where_there_is_none(ask, verb):
    assert "absent: no run section" not in " ".join(ask(verb, "--help")[1].split())
