"""The command line: answers, wrong questions, unreadable inputs, exit statuses."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import paths
from ironlaw.cli.main import main
from verbs import ACTIONS

ASK = ["estimate", "llama-3-8b", "--on", "h100-sxm", "--gpus", "64", "--global-batch-size", "256"]
CONFIGS = paths.DATA / "hf_configs"


def refused(result: tuple[int, str, str], status: int, *words: str) -> None:
    """One clear line on stderr, nothing on stdout."""
    code, out, err = result
    assert code == status
    assert out == ""
    assert err.startswith("ironlaw: ")
    assert err.count("\n") == 1
    assert "Traceback" not in err
    for word in words:
        assert word in err, (word, err)


def test_a_question_is_answered_verdict_first(ask):
    status, out, err = ask(*ASK, "--tokens", "1T")
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].startswith("Llama 3 8B on 64 x NVIDIA H100")
    assert lines[1].startswith("fits: ")
    assert lines[2].startswith("step ")
    assert lines[3].startswith("bound by ")
    order = [out.index(t) for t in ("Where the step goes", "Memory of the fullest GPU", "The run of 1 T tokens", "Chosen", "Assumed")]
    assert order == sorted(order)
    assert "\x1b" not in out


def test_json_has_the_keys_of_the_contract(ask):
    status, out, _ = ask(*ASK, "--json", "--tokens", "15T")
    assert status == 0
    row = json.loads(out)
    assert [key for key in row if key not in ("published_layouts", "faster_unmeasured")] == [  # which say something
        "schema_version", "tool_version", "calibration_version", "catalog_hash", "assumptions", "warnings", "headline", "step",
        "error_band", "nearest_runs", "support", "ceiling", "memory", "throughput", "mfu_waterfall", "parameters", "bound", "run", "rules",
        "plan", "legal_values", "not_searched", "placement", "sources", "asked", "records",
    ]  # fmt: skip
    assert {"seconds", "band", "tree"} <= set(row["step"])
    assert {"name", "value", "unit", "law", "parts"} <= set(row["step"]["tree"])
    assert {"allocated", "reserved", "device", "capacity_bytes", "fits", "stage", "band", "tree"} <= set(row["memory"])
    rates = {"tokens_per_second", "tokens_per_second_per_gpu", "model_flop_per_second_per_gpu", "mfu", "mfu_full_square", "hfu", "peak"}
    assert rates <= set(row["throughput"])
    assert {"tokens", "days", "gpu_hours", "usd", "kwh", "kg_co2e"} <= set(row["run"])
    assert {a["origin"] for a in row["assumptions"]} <= {"given", "chosen", "default", "override"}
    assert all(set(s) == {"title", "url", "read", "grade"} for s in row["sources"].values())


def test_explain_shows_formula_inputs_and_sources(ask):
    status, out, _ = ask(*ASK, "--tp", "2", "--explain", "mlp in gemm")
    assert status == 0
    for piece in ("max(flop / (efficiency peak)", "launch", "<- ", "https://", "efficiency = 0.7"):
        assert piece in out, piece
    refused(ask(*ASK, "--explain", "mlp out gem"), 2, "unknown term", "mlp out gemm")
    status, out, _ = ask(*ASK, "--explain")
    assert status == 0
    assert "MFU" in out


def test_does_not_fit_is_status_1(ask):
    status, out, _ = ask("estimate", "gpt-3-175b", "--on", "rtx-4090", "--gpus", "8")
    assert status == 1
    assert "does not fit" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["estimate", "llama-3-8b", "--on", "h1000", "--gpus", "8"], ["unknown accelerator 'h1000'", "h100-sxm"]),
        (["estimate", "lama-3-8b", "--on", "h100-sxm", "--gpus", "8"], ["unknown model 'lama-3-8b'", "llama-3-8b"]),
        ([*ASK, "--tp", "5"], ["gpus do not factor"]),
        (["estimate", "gpt-2-xl", "--on", "h100-sxm", "--gpus", "8", "--tp", "8"], ["tp 8 does not divide num_attention_heads 25"]),
        (["estimate", "llama-3-8b", "--on", "h100-sxm", "--gpus", "7", "--tp", "2"], ["gpus do not factor"]),
        (["estimate", "llama-3-8b", "--on", "h100-sxm", "--gpus", "8", "--global-batch-size", "-8"], ["--global-batch-size is -8"]),
        ([*ASK, "--micro-batch-size", "0"], ["--micro-batch-size is 0"]),
        ([*ASK, "--micro-batch-size", "1.5"], ["--micro-batch-size is 1.5"]),
        ([*ASK, "--micro-batch-size", "3", "--tp", "1", "--pp", "1"], ["micro_batch_size 3 * dp 64 does not divide global_batch_size 256"]),
        ([*ASK, "--tokens", "80GiBs"], ["--tokens", "80GiBs"]),
        ([*ASK, "--tokens", "nan"], ["--tokens"]),
        (["estimate", "llama-3-8b", "--on", "a100-sxm-80gb", "--gpus", "8", "--precision", "fp8"], ["fp8", "bf16"]),
        ([*ASK, "--precision", "bf61"], ["bf61", "bf16"]),
        ([*ASK, "--optimizer", "adamx"], ["adamx", "adamw"]),
        ([*ASK, "--recompute", "some"], ["some", "none"]),
        ([*ASK, "--recompute", "selective:atention"], ["atention", "attention"]),
        ([*ASK, "--overlap", "grad"], ["grad-reduce"]),
        ([*ASK, "--zero", "4"], ["--zero is 4"]),
        ([*ASK, "--cp", "3"], ["gpus do not factor"]),
        ([*ASK, "--ep", "8"], ["ep 8"]),
        ([*ASK, "--schedule", "zerobubble"], ["zerobubble", "zero-bubble"]),
        ([*ASK, "--node", "dgx-h10"], ["unknown node", "dgx-h100"]),
        ([*ASK, "--fabric", "infiniband"], ["unknown fabric", "infiniband-ndr"]),
        ([*ASK, "--framework", "megatrn"], ["unknown framework", "megatron"]),
        ([*ASK, "--tokens", "1T", "--grid", "frnce"], ["unknown grid", "france"]),
        ([*ASK, "--tokens", "1T", "--price", "nobody/on-demand"], ["price", "nobody/on-demand"]),
        ([*ASK, "--price", "-1"], ["--price is -1"]),
        ([*ASK, "--gpus", "eight"], ["--gpus", "eight"]),
        (["estimate", "llama-3-8b", "--gpus", "8"], ["--on ACCELERATOR"]),
        (["estimate", "llama-3-8b", "--on", "h100-sxm"], ["--gpus N"]),
        (["estimate"], ["missing MODEL"]),
        (["estimat"], ["no verb", "estimate"]),
        ([*ASK, "--gpu", "8"], ["--gpu"]),
        (
            ["estimate", "hidden_size=4096,layers=32", "--on", "h100-sxm", "--gpus", "8"],
            ["unknown model field 'layers'", "num_hidden_layers"],
        ),
        (["estimate", "hidden_size=4096,num_hidden_layers=32", "--on", "h100-sxm", "--gpus", "8"], ["missing", "num_attention_heads"]),
        (["catalog", "show", "h100-sx"], ["unknown record", "h100-sxm"]),
        (["catalog", "list", "modes"], ["kind of record", "models"]),
    ],
    ids=lambda v: " ".join(v[-2:]) if isinstance(v, list) and v and v[0] in ("estimate", "catalog", "estimat") else None,
)
def test_a_wrong_question_is_one_line_and_status_2(ask, arguments, words):
    refused(ask(*arguments), 2, *words)


def test_a_unit_typo_in_the_catalogue_names_the_unit(ask, tmp_path):
    folder = tmp_path / "accelerators"
    folder.mkdir()
    shipped = Path(main.__globals__["__file__"]).parents[1] / "catalog" / "data" / "accelerators" / "h100-sxm.toml"
    folder.joinpath("h100-sxm.toml").write_text(shipped.read_text().replace('"80 GiB"', '"80GiBs"', 1))
    refused(ask(*ASK, "--catalog", tmp_path), 3, "80GiBs", "memory_capacity", "GiB", "h100-sxm.toml")


def test_own_records_override_and_add(ask, tmp_path):
    shipped = Path(main.__globals__["__file__"]).parents[1] / "catalog" / "data" / "accelerators" / "h100-sxm.toml"
    folder = tmp_path / "accelerators"
    folder.mkdir()
    folder.joinpath("my-gpu.toml").write_text(shipped.read_text().replace('"80 GiB"', '"160 GiB"', 1).replace("name = ", "# name = "))
    status, out, _ = ask("estimate", "llama-3-8b", "--on", "my-gpu", "--gpus", "8", "--catalog", tmp_path, "--json", "--price", "1")
    assert status == 0
    assert json.loads(out)["plan"]["accelerator"] == "my-gpu"


def config(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "config.json"
    path.write_text(text)
    return path


LLAMA = {
    "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
    "intermediate_size": 14336, "vocab_size": 128256, "max_position_embeddings": 8192,
}  # fmt: skip


def test_a_config_json_as_file_or_folder(ask, tmp_path):
    path = config(tmp_path, json.dumps(LLAMA))
    rest = ["--on", "h100-sxm", "--gpus", "8", "--json"]
    _, by_file, _ = ask("estimate", path, *rest)
    _, by_folder, _ = ask("estimate", tmp_path, *rest)
    _, by_name, _ = ask("estimate", "llama-3-8b", *rest)
    seconds = {json.loads(o)["step"]["seconds"] for o in (by_file, by_folder, by_name)}
    assert len(seconds) == 1


def test_a_config_json_that_cannot_be_used(ask, tmp_path):
    rest = ["--on", "h100-sxm", "--gpus", "8"]
    encoder = json.dumps(
        {"model_type": "deberta", "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "vocab_size": 30522}
    )
    refused(ask("estimate", config(tmp_path, encoder), *rest), 2, "deberta", "encoder")
    refused(ask("estimate", config(tmp_path, json.dumps(LLAMA)[:60]), *rest), 3, "config.json", "line 1")
    refused(ask("estimate", config(tmp_path, json.dumps({**LLAMA, "hidden_size": -1})), *rest), 3, "hidden_size", "-1")
    refused(ask("estimate", config(tmp_path, json.dumps({**LLAMA, "num_experts": 8})), *rest), 2, "num_experts")
    refused(ask("estimate", config(tmp_path, "[]"), *rest), 3, "config.json")
    refused(ask("estimate", tmp_path / "absent" / "config.json", *rest), 3, "config.json")


def test_a_toml_question(ask, tmp_path):
    config(tmp_path, json.dumps(LLAMA))
    path = tmp_path / "run.toml"
    path.write_text('model = "config.json"\n[cluster]\non = "h100-sxm"\ngpus = 64\n[plan]\ntp = 2\n[training]\nglobal_batch_size = 256\n')
    status, out, _ = ask("estimate", path, "--json")
    assert status == 0
    assert json.loads(out)["plan"]["tp"] == 2
    _, flags, _ = ask(*ASK, "--tp", "2", "--json")
    assert json.loads(flags)["step"]["seconds"] == json.loads(out)["step"]["seconds"]
    _, over, _ = ask("estimate", path, "--tp", "4", "--json")
    assert json.loads(over)["plan"]["tp"] == 4


def test_dimensions_in_a_toml_question(ask, tmp_path):
    path = tmp_path / "run.toml"
    path.write_text(
        'on = "a100-sxm-80gb"\ngpus = 8\n[model]\nhidden_size = 2048\nnum_hidden_layers = 24\n'
        "num_attention_heads = 16\nvocab_size = 50257\n"
    )
    status, out, _ = ask("estimate", path, "--json")
    assert status == 0
    assert json.loads(out)["plan"]["model"] == "custom"


@pytest.mark.parametrize(
    ("text", "status", "words"),
    [
        ('model = "llama-3-8b"\non = "h100-sxm"\ngpu = 8\n', 2, ["gpu in run.toml", "gpus"]),
        ('model = "llama-3-8b"\non = "h100-sxm"\ngpus = "many"\n', 2, ["gpus in run.toml", "many"]),
        ('model = "llama-3-8b"\non = \n', 3, ["run.toml", "line 2"]),
        ("gpus = 8\n[plan]\ngpus = 9\n", 2, ["gpus is given twice"]),
    ],
)
def test_a_wrong_toml_question(ask, tmp_path, text, status, words):
    path = tmp_path / "run.toml"
    path.write_text(text)
    refused(ask("estimate", path), status, *words)


def test_rows_of_a_spreadsheet(ask, tmp_path):
    """BOM, CRLF, thousands separators, blank cells, extra columns: one line a row, in order."""
    path = tmp_path / "runs.csv"
    table = 'id,model,on,gpus,tp,pp,global_batch_size,note\r\na,llama-3-8b,h100-sxm,"1,024",2,,2048,fine\r\nb,llama-3-8b,h999,8,1,1,64,\r\n'
    path.write_bytes(b"\xef\xbb\xbf" + table.encode())
    status, out, _ = ask("estimate", "--rows", path)
    lines = out.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("a ")
    assert "1024" in lines[0].replace(",", "")
    assert "unknown accelerator 'h999'" in lines[1]
    assert status == 2
    status, out, _ = ask("estimate", "--rows", path, "--json")
    rows = json.loads(out)
    assert [r["id"] for r in rows] == ["a", "b"]
    assert rows[0]["plan"]["gpus"] == 1024
    assert rows[1]["error"]["code"] == "unknown-name"


def test_rows_take_defaults_from_flags(ask, tmp_path):
    path = tmp_path / "runs.csv"
    path.write_text("model,gpus\nllama-3-8b,8\nllama-3-70b,64\n")
    status, out, _ = ask("estimate", "--rows", path, "--on", "h100-sxm")
    assert status == 0
    assert len(out.splitlines()) == 2


@pytest.mark.parametrize(("content", "words"), [(b"", ["empty"]), (b"\xff\xfe\x00\x01", ["runs.csv"])])
def test_rows_that_cannot_be_read(ask, tmp_path, content, words):
    path = tmp_path / "runs.csv"
    path.write_bytes(content)
    refused(ask("estimate", "--rows", path), 3, *words)
    refused(ask("estimate", "--rows", tmp_path / "absent.csv"), 3, "absent.csv")


def test_rows_without_a_known_column(ask, tmp_path):
    path = tmp_path / "runs.csv"
    path.write_text("colour,weight\nred,3\n")
    status, out, _ = ask("estimate", "--rows", path)
    assert status == 2
    assert "no column names an option" in out


def test_published_tables_are_read_unchanged(ask):
    path = paths.DATA / "published_rows.csv"
    status, out, _ = ask("estimate", "--rows", path)
    with path.open(encoding="utf-8") as file:
        assert len(out.splitlines()) == len(list(csv.DictReader(file)))
    assert status == (1 if "does not fit" in out else 0)
    assert "no:" not in out


def test_the_exit_status_of_rows_is_that_of_the_worst_row(ask, tmp_path):
    path = tmp_path / "runs.csv"
    for extra, expected in (("", 0), ("gpt-3-175b,rtx-4090,8,\n", 1), ("llama-3-8b,h100-sxm,8,3\n", 2)):
        path.write_text("model,on,gpus,tp\nllama-3-8b,h100-sxm,8,2\n" + extra)
        assert ask("estimate", "--rows", path)[0] == expected


@pytest.mark.parametrize(
    ("text", "status", "words"),
    [
        ("model,on,gpus,tp,tp\na,b,8,1,2\n", 3, "twice"),
        ("model,on,gpus\n", 3, "no rows"),
        ("model,on,gpus\nllama-3-8b,h100-sxm,8,9\n", 2, "more cells"),
        ("model,on,gpus,recompute,recompute_fraction\nllama-3-8b,h100-sxm,8,selective,abc\n", 2, "abc"),
        ('model,on,gpus,layers_per_stage,pp\nllama-3-8b,h100-sxm,8,"16,16",2\n', 0, "fits"),
    ],
)
def test_spreadsheets_that_are_odd(ask, tmp_path, text, status, words):
    path = tmp_path / "runs.csv"
    path.write_text(text)
    code, out, err = ask("estimate", "--rows", path)
    assert code == status
    assert words in out + err


def test_a_header_that_looks_like_an_option_is_reported(ask, tmp_path):
    path = tmp_path / "runs.csv"
    path.write_text("model,on,gpus,global_batchsize\nllama-3-8b,h100-sxm,8,64\n")
    _, out, err = ask("estimate", "--rows", path)
    assert len(out.splitlines()) == 1
    assert "global_batch_size" in err


SCRIPT = paths.DATA / "megatron" / "train_gpt.sh"


def test_a_launch_script_is_read_and_never_run(ask):
    status, out, err = ask("estimate", SCRIPT, "--on", "h100-sxm", "--gpus", "64", "--json")
    assert status == 0
    plan = json.loads(out)["plan"]
    assert (plan["tp"], plan["sp"], plan["zero"], plan["global_batch_size"]) == (2, True, 1, 1024)
    assert "no --vocab-size" in err
    status, out, _ = ask("estimate", SCRIPT, "--on", "h100-sxm", "--gpus", "64", "--tp", "4", "--json")
    assert json.loads(out)["plan"]["tp"] == 4
    refused(ask("estimate", SCRIPT, "--gpus", "64"), 2, "--on")
    refused(ask("estimate", SCRIPT.parent / "absent.sh", "--on", "h100-sxm"), 3, "absent.sh")


def test_catalog_list_show_check(ask):
    status, out, _ = ask("catalog", "list", "accelerators")
    assert status == 0
    for name in ("v100-sxm-32gb", "a100-sxm-80gb", "h100-sxm", "h200-sxm", "b200-sxm", "gb200"):
        assert name in out
    status, out, _ = ask("catalog", "show", "h100-sxm")
    assert status == 0
    assert "https://" in out
    assert "hbm_bandwidth = 3.35 TB/s" in out
    status, out, _ = ask("catalog", "show", "h100-sxm", "--json")
    assert json.loads(out)["accelerators"]["hbm_bandwidth"]["value"] == 3.35e12
    status, out, _ = ask("catalog", "check")
    assert status == 0, out


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (('hbm_bandwidth = { value = "3.35 TB/s", source', 'hbm_bandwidth = { value = "3.35 TB/s", sauce'), ["hbm_bandwidth"]),
        (("tdp = {", "tpd = {"), ["tpd", "tdp"]),
        (('value = "3.35 TB/s"', 'value = "33.5 TB/s"'), ["hbm_bandwidth", "bus width"]),
        (("[peak]", "weight = 3\n[peak]"), ["weight"]),
    ],
)
def test_catalog_check_fails_on_what_is_wrong(ask, tmp_path, change, words):
    shipped = Path(main.__globals__["__file__"]).parents[1] / "catalog" / "data" / "accelerators" / "h100-sxm.toml"
    text = shipped.read_text()
    assert change[0] in text
    folder = tmp_path / "accelerators"
    folder.mkdir()
    folder.joinpath("h100-sxm.toml").write_text(text.replace(change[0], change[1], 1))
    status, out, _ = ask("catalog", "--catalog", tmp_path, "check")
    assert status == 1
    for word in words:
        assert word in out, (word, out)


def test_catalog_check_fails_on_a_number_without_a_source(ask, tmp_path):
    folder = tmp_path / "grids"
    folder.mkdir()
    folder.joinpath("here.toml").write_text('title = "Here"\nyear = 2024\nintensity = "300 g/kWh"\n')
    status, out, _ = ask("catalog", "--catalog", tmp_path, "check")
    assert status == 1
    assert "intensity has no source" in out


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ironlaw", *arguments], capture_output=True, text=True, env={**os.environ, **environment}, check=False
    )


@pytest.mark.parametrize("asked", ["", "3"])
def test_the_command_starts_no_threads_of_blas_that_nobody_asked_for(asked):
    answer = "m.main = lambda: 0; m.exit_at_once = lambda _: print(os.environ['OPENBLAS_NUM_THREADS'])"
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    environment |= {"OPENBLAS_NUM_THREADS": asked} if asked else {}
    code = [sys.executable, "-c", f"import os, ironlaw.cli.main as m; {answer}; m.run()"]
    result = subprocess.run(code, capture_output=True, text=True, env=environment, check=True)
    assert result.stdout.strip() == (asked or "1")


def test_the_real_process(tmp_path):
    result = run(*ASK)
    assert result.returncode == 0
    assert "MFU" in result.stdout
    assert run("--version").stdout.startswith("ironlaw, version ")
    helped = run("estimate", "--help")
    assert helped.returncode == 0
    assert "--global-batch-size" in helped.stdout
    assert "Examples:" in helped.stdout
    assert run("estimate", "nothing").returncode == 2


def test_help_and_plain_import_load_nothing_heavy():
    code = "import sys; from ironlaw.cli.main import VERBS, main; main(['--help']); [main([verb, '--help']) for verb in VERBS]; "
    code += "import ironlaw.questions.compare; print(sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "'numpy'" not in loaded
    code = "import sys, ironlaw; ironlaw.estimate; import ironlaw.estimate.answer.estimate; print(sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    for heavy in ("torch", "matplotlib", "pandas", "pyarrow", "scipy", "rich", "pydantic"):
        assert f"'{heavy}'" not in loaded, heavy


@pytest.mark.parametrize("verb", ACTIONS)
def test_a_verb_without_its_action_lists_the_actions(ask, verb):
    status, out, err = ask(verb)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"ironlaw: ironlaw {verb} needs an action: ") and all(action in err for action in ACTIONS[verb])


def test_the_bare_command_prints_its_help(ask):
    status, out, err = ask()
    assert (status, err) == (0, "") and out.startswith("Usage: ironlaw")
