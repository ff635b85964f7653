"""``ironlaw textbook``: formats, communication tax, fallacies, eras, joules; each number by its law, each source with its grade."""

from __future__ import annotations

import json
import shlex

import numpy as np
import pytest

import ironlaw
from ironlaw import textbook
from ironlaw.catalog import load
from ironlaw.catalog.sourced import GRADES, Sourced
from ironlaw.cli.main import main
from ironlaw.errors import IronlawError
from ironlaw.estimate.answer.estimate import answer as estimated
from ironlaw.law import activations, formats, run, states
from ironlaw.questions.textbook.options import CHAPTERS, TABLES
from ironlaw.questions.textbook.tables import read_numbers
from ironlaw.questions.textbook.tables.formats import FORMATS
from ironlaw.terms import scalar


@pytest.mark.parametrize(("name", "dtype"), [("fp32", np.float32), ("fp16", np.float16)])
def test_formats_agree_with_numpy(name, dtype):
    row = next(row for row in textbook("formats")["formats"] if row["format"] == name)
    known = np.finfo(dtype)
    assert (row["largest"], row["normal"], row["subnormal"]) == (known.max, known.smallest_normal, known.smallest_subnormal)
    assert (row["exponent"], row["mantissa"]) == (known.nexp, known.nmant)


@pytest.mark.parametrize("one", FORMATS, ids=lambda one: one.name)
def test_formats_agree_with_their_codes_written_out(one):
    """All codes of the narrow formats; the first and the last codes of the wide ones."""
    exponents, steps = 2 ** int(one.exponent_bits), 2 ** int(one.mantissa_bits)
    bias = 2 ** (int(one.exponent_bits) - 1) - 1
    last = (exponents - 1) * steps - 1 if one.infinities else exponents * steps - 1 - int(one.nan_code)
    codes = range(1, last + 1) if last < 1000 else (1, steps - 1, steps, last)
    values = [
        (1 + code % steps / steps) * 2.0 ** (code // steps - bias) if code >= steps else code / steps * 2.0 ** (1 - bias) for code in codes
    ]
    assert float(formats.largest(one.exponent_bits, one.mantissa_bits, one.infinities, one.nan_code)) == max(values)
    assert float(formats.least_subnormal(one.exponent_bits, one.mantissa_bits)) == min(values)
    assert float(formats.least_normal(one.exponent_bits)) == values[codes.index(steps)]


def test_rates_of_formats_are_the_dense_rates_of_the_catalogue():
    found = textbook("formats")
    assert {row["accelerator"] for row in found["rates"]} == set(load.names("accelerators"))
    row = next(row for row in found["rates"] if row["accelerator"] == "h100-sxm")
    device = load.record("accelerators", "h100-sxm")
    assert row["fp8"] == device.peak["fp8"].value and row["nvfp4"] is None and row["loss_scaling"] == "no"
    (volta,) = textbook("formats", on="v100-sxm-32gb")["rates"]
    assert volta["chosen"] == "fp16" and volta["loss_scaling"] == "of the loss" and volta["bf16"] is None
    assert found["loss scale of fp16"] == 2**15
    assert not textbook("formats", on="h100-sxm").warnings and textbook("formats", on="mi300x").warnings


def test_the_communication_tax_has_both_curves():
    """Errata E003-23: at 256 accelerators Amdahl's curve has an efficiency of 7.3, 2.5 and 1.0 %, a constant share 95, 85 and 60 %."""
    found = textbook("communication-tax")
    curve, share = found["curve"][-1], found["constant_share"][-1]
    assert [round(100 * curve[f"r{r}"] / 256, 1) for r in (0.05, 0.15, 0.4)] == [7.3, 2.5, 1.0]
    assert [share[f"r{r}"] for r in (0.05, 0.15, 0.4)] == pytest.approx([243.2, 217.6, 153.6])
    assert curve["r0"] == share["r0"] == 256
    limits = [float(run.amdahl_speedup(1e12, r)) for r in (0.05, 0.15, 0.4)]
    assert limits == pytest.approx([20.0, 1 / 0.15, 2.5], rel=1e-6)


def test_the_communication_tax_includes_the_estimate_of_a_model():
    found = textbook("communication-tax", "llama-3-8b", on="h100-sxm", gpus=16, global_batch_size=64, offload="none", shares="5%")
    rows = {row["gpus"]: row for row in found["estimate"]}
    assert rows[1.0]["why_not"] == "does not fit" and rows[1.0]["speedup"] is None
    ask = {"model": "llama-3-8b", "on": "h100-sxm", "global_batch_size": 64.0, "offload": "none"}
    rates = [estimated({**ask, "gpus": n}).row(0)["throughput"]["tokens_per_second"] for n in (2.0, 16.0)]
    assert rows[16.0]["speedup"] == pytest.approx(rates[1] / rates[0])
    for row in rows.values():
        if row["r"]:
            more = row["gpus"] / 2.0
            assert more * float(run.amdahl_speedup(more, row["r"])) / more == pytest.approx(row["speedup"])


def test_fallacies_have_the_numbers_of_laws_and_estimates():
    rows = {row["key"]: row for row in textbook("fallacies")["fallacies"]}
    assert set(rows) == {"size", "memory", "count", "learning_rate", "precision", "half_memory", "accumulation", "data"}
    assert rows["memory"]["bytes"] == float(states.training_static(20e9)) == 320e9
    assert rows["size"]["large"] > rows["size"]["small"]
    ask = {"model": "gpt-2", "on": "a100-sxm-80gb", "global_batch_size": 64.0}
    rates = [estimated({**ask, "gpus": n}).row(0)["throughput"]["tokens_per_second"] for n in (1.0, 8.0)]
    assert rows["count"]["speedup"] == pytest.approx(rates[1] / rates[0]) and rows["count"]["speedup_small"] < rows["count"]["speedup"] < 8
    assert rows["learning_rate"]["linear"] == pytest.approx(0.8) and rows["learning_rate"]["root"] == pytest.approx(0.1 * 8**0.5)
    assert 0 < rows["half_memory"]["saved"] < 0.5 and rows["precision"]["faster"] > 1
    assert rows["accumulation"]["memory_times"] > 1 and rows["accumulation"]["longer"] >= 0
    assert (rows["data"]["serial"], rows["data"]["overlapped"]) == (90.0, 55.0)


@pytest.mark.parametrize("command", [row["command"] for row in textbook("fallacies")["fallacies"]])
def test_the_command_of_a_fallacy_runs(command, capsys):
    assert main(shlex.split(command)[1:]) in (0, 1), capsys.readouterr().err
    capsys.readouterr()


def test_eras_compute_their_operations():
    rows = {row["run"]: row for row in textbook("eras", price=2)["eras"]}
    assert rows["AlexNet"]["flop"] == pytest.approx(3 * 2 * 724.4e6 * 1.2e6 * 90, rel=0.01)
    assert rows["PaLM 540B"]["flop"] == 6 * 540.35e9 * 780e9
    assert rows["PaLM 540B"]["today"] == pytest.approx(6 * 540.35e9 * 780e9 / (0.4 * 989e12) / 3600 * 2)
    assert rows["GPT-4"]["flop"] is None and rows["GPT-4"]["today"] is None
    years = [int(row["year"]) for row in rows.values()]
    assert years == sorted(years)


@pytest.mark.parametrize("name", ["eras", "joules"])
def test_every_number_of_a_table_has_a_source_of_a_grade(name):
    found, sources = read_numbers(name)
    items = found["run"] if name == "eras" else [*found["tier"], found["arithmetic"]]
    used = {item[key] for item in items for key in ("source", "tokens_source") if key in item}
    assert used == set(sources)
    for source in sources.values():
        assert source.grade in GRADES and source.url.startswith("https://") and source.read
    for item in items:
        assert ("tokens" in item) == ("tokens_source" in item)


def test_joules_of_a_step_are_bytes_times_their_energy():
    found = textbook("joules", "llama-3-8b", on="h100-sxm", gpus=64, tp=4, pp=2, global_batch_size=128)
    rows = {row["what"]: row for row in found["step"]}
    tiers = {row["tier"]: row for row in found["joules"]}
    moving = found["energy of moving"]
    assert sum(row["joules"] for row in rows.values()) == pytest.approx(float(found["energy of the board"]))
    assert sum(row["share"] for row in rows.values()) == pytest.approx(1.0)
    parts = [row["joules"] for name, row in rows.items() if name != "all else on the board"]
    assert sum(parts) == pytest.approx(float(moving))
    assert tiers["HBM2E"]["joules_per_byte"] == pytest.approx(48e-12)
    term = next(t for t in found.terms if t.name == "a gigabyte through HBM2E")
    assert isinstance(term.inputs["energy_per_byte"], Sourced) and term.inputs["energy_per_byte"].source.grade == "vendor"
    one = textbook("joules", "llama-3-8b", on="h100-sxm", gpus=8, tp=8, global_batch_size=128)
    assert "over nic" not in {row["what"] for row in one["step"]}


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"shares": "0.1"}, "missing CHAPTER: optimizers"),
        ({"chapter": "eras", "shares": "0.1"}, "shares has no effect with textbook eras: leave one out; it takes grid, mfu"),
        ({"chapter": "communication-tax", "shares": "1.5"}, "100 %"),
        ({"chapter": "communication-tax", "model": "llama-3-8b"}, "missing argument on"),
        ({"chapter": "fallacies", "gpus": 8}, "gpus does not go with textbook fallacies: the table sets it itself"),
        ({"chapter": "joules", "model": "llama-3-8b", "on": "h100-sxm"}, "missing argument gpus"),
        ({"chapter": "formats", "on": "nosuch"}, "unknown accelerator"),
        ({"chapter": "format"}, "formats"),
    ],
)
def test_what_is_refused(asked, says):
    with pytest.raises(IronlawError, match=says):
        textbook(**asked)


@pytest.mark.parametrize(
    ("verb", "asked", "chapter"), [("optimize", {"shares": "0.2"}, "CHAPTER"), ("sweep", {"parameters": "7B"}, "sweep")]
)
def test_an_option_of_a_chapter_is_refused_elsewhere_by_the_name_of_the_chapter(verb, asked, chapter):
    with pytest.raises(IronlawError, match=f"it belongs to ironlaw textbook {chapter}"):
        getattr(ironlaw, verb)("llama-3-8b", on="h100-sxm", gpus=8, **asked)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("optimize --table optimizers --parameters 7B", "textbook optimizers --parameters 7B"),
        ("lessons gpt-2 --table=checkpoints", "textbook checkpoints gpt-2"),
        ("sites --model-of ten-sites", "textbook ten-sites"),
        ("scaling --parameters 70B --tokens 1T --model-of ten-sites", "textbook critical-batch --parameters 70B --tokens 1T"),
        (
            "sweep --parameters 7B --on h100-sxm --tokens 20x --global-batch-tokens 1M --step-time 1s --mfu 0.4",
            "textbook sweep --parameters 7B --on h100-sxm --tokens 20x --global-batch-tokens 1M --step-time 1s --mfu 0.4",
        ),
    ],
)
def test_an_earlier_spelling_answers_the_chapter(old, new, capsys):
    printed = []
    for command in (old, new):
        assert main([*command.split(), "--json"]) == 0
        printed.append(json.loads(capsys.readouterr().out))
    assert printed[0] == printed[1] and printed[0]["asked"]["verb"] == "textbook"


@pytest.mark.parametrize("name", sorted(set(TABLES) - {"optimizers", "checkpoints", "lora", "limits", "precisions"}))
def test_the_command_prints_every_table(name, capsys):
    assert main(["textbook", name]) == 0
    page = capsys.readouterr().out
    assert page.splitlines()[0] and "nan" not in page
    assert main(["textbook", name, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["headline"] and told["terms"]
    assert main(["textbook", name, "--explain"]) == 0
    assert "=" in capsys.readouterr().out
    assert main(["textbook", name, "--format", "csv"]) == 0
    assert capsys.readouterr().out


EXERCISE = "hidden_size=5120,num_hidden_layers=40,num_attention_heads=40,intermediate_size=20480,vocab_size=50257,gated_mlp=off,dropout=on"


@pytest.mark.parametrize("tp", [1, 2, 4, 8])
@pytest.mark.parametrize("sp", ["on", "off"])
@pytest.mark.parametrize("micro", [1, 8])
def test_a_layer_of_the_table_is_the_textbooks_where_attention_is_not_fused(tp, sp, micro):
    asked = {"tp": tp, "sp": sp, "seq_len": 4096, "micro_batch_size": micro, "flash_attention": "off"}
    found = textbook("checkpoints", EXERCISE, **asked)
    assert scalar(found["one layer"]) == pytest.approx(scalar(found["one layer, textbook"]), rel=1e-12)
    rows = {row["how"]: row for row in found["checkpoints"]}
    layer, boundary = scalar(found["one layer"]), scalar(found["one checkpoint"])
    assert rows["none"]["exact"] == pytest.approx(40 * layer)
    assert rows["segments:4"]["exact"] == pytest.approx(float(activations.checkpointed_exact(40, 4, layer, boundary)))
    best = min((row for row in rows.values() if row["interval"]), key=lambda row: row["exact"])
    assert best["interval"] == max(round(float(activations.optimal_interval(40, layer, boundary))), 1)


def test_checkpoints_of_a_plan_are_its_estimates_with_the_plan_held():
    plan = {"on": "h100-sxm", "gpus": 8, "tp": 2, "pp": 2, "vpp": 1, "zero": 1, "micro_batch_size": 1, "global_batch_size": 64}
    rows = {row["how"]: row for row in textbook("checkpoints", "llama-3-8b", **plan)["checkpoints"]}
    for how in ("none", "full", "segments:4"):
        group = ironlaw.estimate("llama-3-8b", **plan, recompute=how)
        assert (rows[how]["device"], rows[how]["seconds"]) == (group.device_bytes[0], group.step_seconds[0])
    assert rows["none"]["interval"] is None and rows["full"]["checkpoints"] == 16.0  # of 32 layers on two stages


@pytest.mark.parametrize("precision", ["bf16", "fp32", "fp16"])
def test_static_memory_of_adam_is_16_bytes_in_every_wide_precision(precision):
    found = textbook("optimizers", parameters="7B", precision=precision)
    rows = {row["optimizer"]: row for row in found["optimizers"]}
    assert rows["adamw"]["static"] == 16.0 and rows["adamw"]["traffic"] == 28.0
    memory = {row["optimizer"]: row for row in found["memory"]}
    assert memory["adamw"]["static"] == 112e9 == float(states.training_static(7e9)) and memory["adamw"]["states"] == 56e9
    for name, row in memory.items():
        assert row["static"] == pytest.approx(7e9 * rows[name]["static"])
    assert [rows[name]["textbook"] for name in ("sgd", "momentum", "rmsprop", "adamw")] == [2, 3, 4, 5]
    assert [rows[name]["multiple"] for name in ("sgd", "momentum", "rmsprop", "adamw")] == [1, 2, 2, 3]


def test_the_optimizers_of_a_model_count_its_parameters():
    rows = {row["optimizer"]: row for row in textbook("optimizers", "gpt-2-xl")["memory"]}
    assert rows["adamw"]["gigabytes"] == pytest.approx(16 * 1.5576, rel=1e-3)
    assert rows["galore8bit"]["static"] < rows["galore"]["static"] < rows["adamw-bf16"]["static"]


@pytest.mark.parametrize("name", ["rmsprop", "lion"])
def test_optimizers_with_one_moment_hold_as_much_as_momentum(name):
    ask = {
        "model": "llama-3-8b",
        "on": "h100-sxm",
        "gpus": 8,
        "tp": 1,
        "pp": 1,
        "zero": 1,
        "micro_batch_size": 1,
        "recompute": "full",
        "framework": "generic",
    }
    sizes = [ironlaw.estimate(**ask, optimizer=optimizer).device_bytes[0] for optimizer in (name, "momentum", "adamw")]
    assert sizes[0] == sizes[1] < sizes[2]


def test_eras_take_a_share_of_the_peak_a_grid_and_a_pue():
    asked = {"price": 2, "grid": 100, "pue": 1.0}
    first, second = ({row["run"]: row for row in textbook("eras", mfu=mfu, **asked)["eras"]} for mfu in (0.25, 0.5))
    for name in ("today", "joules", "kg_co2e"):
        assert first["GPT-3 175B"][name] == pytest.approx(2 * second["GPT-3 175B"][name])
    row = second["GPT-3 175B"]
    assert row["kg_co2e"] == pytest.approx(row["joules"] / 3.6e6 * 0.1)


def test_accumulation_costs_time_money_energy_and_carbon():
    cheap, dear = ({row["key"]: row for row in textbook("fallacies", price=price, grid=100)["fallacies"]} for price in (1, 3))
    assert dear["accumulation"]["usd"] == pytest.approx(3 * cheap["accumulation"]["usd"])
    row = cheap["accumulation"]
    for name in ("usd", "joules", "kg_co2e"):
        assert row[f"{name}_accumulated"] / row[name] == pytest.approx(1 + row["longer"])


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"chapter": "optimizers", "tp": 2}, "with textbook optimizers: leave one out; it takes MODEL, parameters, precision"),
        ({"chapter": "optimizers", "model": "gpt-2", "parameters": "7B"}, "not both"),
        ({"chapter": "formats", "model": "gpt-2"}, "MODEL has no effect with textbook formats"),
        ({"chapter": "eras", "tp": 2}, "tp has no effect"),
        ({"chapter": "checkpoints", "model": "gpt-2", "recompute": "full"}, "textbook checkpoints: the table sets it itself"),
        ({"chapter": "communication-tax", "tp": 2}, "it takes MODEL, gpus, shares, and with MODEL this one too"),
        ({"chapter": "checkpoints"}, "missing argument model"),
    ],
)
def test_options_that_a_table_does_not_read_are_refused_by_name(asked, says):
    with pytest.raises(IronlawError, match=says):
        textbook(**asked)


ASKED = {
    "checkpoints": {"model": "gpt-2"},
    "lora": {"model": "llama-3-8b", "on": "h100-sxm", "gpus": 8},
    "precisions": {"model": "llama-3-8b", "on": "b200-sxm", "gpus": 8, "precisions": "bf16,fp8"},
    "limits": {"model": "llama-3-8b", "on": "h100-sxm", "tokens": "200B", "dataset": "800GB"},
    "sweep": {"parameters": "7B", "on": "h100-sxm", "tokens": "20x", "global_batch_tokens": "1M", "step_time": "1s", "mfu": 0.4},
    "three-roof": {"model": "llama-3-8b", "on": "h100-sxm", "gpus": 64, "formulas": "as-printed"},
    "critical-batch": {"parameters": "70B", "tokens": "1T"},
}


@pytest.mark.parametrize("name", CHAPTERS)
def test_every_sentence_of_a_chapter_has_a_code_of_its_own(name):
    answer = textbook(name, **ASKED.get(name, {}))
    told = answer.to_dict()["headline"]
    codes = [one["code"] for one in told]
    assert codes and not {"answer", "detail"} & set(codes)
    assert len(set(codes)) == len(codes) or name in ("eras",)  # which tells of several runs
    json.dumps(told, allow_nan=False)
