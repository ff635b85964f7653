"""The cards of ``catalog list KIND --json``: what a picker shows beside a name."""

from __future__ import annotations

import json

import pytest

from ironlaw.catalog.records import KINDS
from ironlaw.catalog.sourced import GRADES


@pytest.mark.parametrize("kind", KINDS)
def test_every_record_of_a_kind_has_a_card(ask, kind):
    data = json.loads(ask("catalog", "list", kind, "--json")[1])
    assert [card["name"] for card in data["cards"]] == data[kind]
    assert all(card["title"] and set(card["grades"]) <= set(GRADES) for card in data["cards"])


def test_accelerators_and_models_have_sizes_and_rates(ask):
    found = {card["name"]: card for card in json.loads(ask("catalog", "list", "accelerators", "--json")[1])["cards"]}
    assert found["h100-sxm"]["peak"]["bf16"] == 989e12 and found["h100-sxm"]["hbm_bandwidth"] == 3.35e12
    assert {card["kernels"] for card in found.values()} == {"measured", "prior"}
    assert all(card["memory_bytes"] > 1e9 and card["peak"] for card in found.values())
    models = {card["name"]: card for card in json.loads(ask("catalog", "list", "models", "--json")[1])["cards"]}
    assert models["llama-3-8b"]["parameters"] == 8030261248 and models["mixtral-8x7b"]["experts"] == 8
    assert models["mixtral-8x7b"]["active_parameters"] < models["mixtral-8x7b"]["parameters"]


def test_the_list_of_all_kinds_has_names_alone(ask):
    data = json.loads(ask("catalog", "list", "--json")[1])
    assert data.keys() == set(KINDS) and all(isinstance(name, str) for names in data.values() for name in names)
