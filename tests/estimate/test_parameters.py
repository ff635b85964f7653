"""The parameters of an answer: published counts, sums of their parts, adapters and frozen layers."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

import ironlaw
from ironlaw.catalog import load
from ironlaw.estimate.answer.parameters import parameters_data
from ironlaw.estimate.bind.model import plain_model
from ironlaw.estimate.layer.kinds import kinds

MODELS = {name: plain_model(load.record("models", name)) for name in load.names("models")}


def counts_of(model):
    return parameters_data(SimpleNamespace(model=model, lora_rank=0.0))


@pytest.mark.parametrize("name", MODELS)
def test_kinds_and_tables_add_up_and_agree_with_the_published_count(name):
    counts = counts_of(MODELS[name])
    counted = [row for row in counts["kinds"] if row["counted"]]
    for whole in ("total", "active"):
        assert sum(row[whole] for row in counted) + counts["embedding"] + counts["output_layer"] == pytest.approx(counts[whole], rel=1e-12)
    of_towers = {kind.name for kind in kinds(MODELS[name]) if kind.place == "tower"}
    assert sum(row["layers"] for row in counted if row["name"] not in of_towers) == MODELS[name].num_hidden_layers
    for row in counts["kinds"]:
        experts = row.get("experts", {"number": 0.0, "of_one": 0.0})
        assert sum(row["parts"].values()) + experts["number"] * experts["of_one"] == row["of_one"]
    if "published" in counts:
        assert counts["total"] == pytest.approx(counts["published"], rel=0.005)
    assert counts["active"] <= counts["total"] == counts["trained"]


@pytest.mark.parametrize("name", [name for name, model in MODELS.items() if model.published_active_parameters is not None])
def test_active_parameters_are_near_the_published_ones(name):
    """Some count the embedding, some the output layer, some neither; published to the last digit printed."""
    counts, (number, prefix) = counts_of(MODELS[name]), MODELS[name].published_active_parameters.text.split()[:2]
    last_digit = {"B": 1e9, "M": 1e6}[prefix] * 10.0 ** -len(number.partition(".")[2])
    tables = counts["embedding"] + counts["output_layer"]
    assert counts["active"] - tables - last_digit <= counts["published_active"] <= counts["active"] + last_digit


def test_counts_worked_by_hand():
    counts = counts_of(MODELS["llama-3-8b"])
    (layers,) = counts["kinds"]
    assert layers["parts"] == {"attention": 41_943_040.0, "norms": 8192.0, "mlp": 176_160_768.0}
    assert (counts["embedding"], counts["output_layer"]) == (128256 * 4096, 128256 * 4096 + 4096)
    assert counts["total"] == 8_030_261_248


def test_adapters_and_frozen_layers_train_less():
    def trained(**more):
        return ironlaw.estimate("llama-3-8b", on="h100-sxm", gpus=8, **more).row(0)["parameters"]

    adapters = trained(lora_rank=16, lora_targets="q,v", framework="generic")
    assert adapters["trained"] == 32 * 16 * ((4096 + 4096) + (4096 + 1024))  # of q and of v: in and out
    frozen = trained(frozen_layers=8)
    assert frozen["trained"] == frozen["total"] - 8 * 218_112_000 - 128256 * 4096
    assert adapters["total"] == frozen["total"] == 8_030_261_248


def test_the_page_says_how_large_the_model_is(ask):
    def model_line(*question):
        return next(line for line in ask("estimate", *question)[1].splitlines() if line.startswith("model: "))[7:]

    dense = model_line("llama-3-70b", "--on", "h100-sxm", "--gpus", "512")
    assert dense == "70.6 B parameters: 80 layers of 856 M, embedding and output layer 2.1 B"
    routed = model_line("deepseek-v3", "--on", "h800", "--gpus", "2048")
    assert routed.startswith(
        "671 B parameters, 37.6 B active: 3 dense layers at the front of 583 M, 58 routed layers of 11.5 B (585 M active), "
    )
    adapted = model_line("llama-3-8b", "--on", "h100-sxm", "--gpus", "8", "--lora-rank", "16")
    assert adapted.startswith("8.03 B parameters, 13.6 M trained: ")  # q, k and v each with their own, as the chosen Transformers has them


def test_the_table_is_explained_and_its_name_is_a_term(ask):
    asked = ("qwen-3-30b-a3b", "--on", "h100-sxm", "--gpus", "16", "--explain")
    table = ask("estimate", *asked, "parameters")[1]
    data = json.loads(ask("estimate", *asked[:-1], "--json")[1])["parameters"]
    assert f"parameters: {data['total']:,.0f}, active for a token: {data['active']:,.0f}" in table
    assert "128 experts" in table
    assert "step" not in table
    assert "nearest: parameters" in ask("estimate", *asked, "paramters")[2]
