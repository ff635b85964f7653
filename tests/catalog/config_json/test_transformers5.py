"""Configs as transformers 5 writes them: sizes by layer, experts under other names, composites; counts are in published_parameters.csv."""

import json

import pytest

import ironlaw
import paths
from ironlaw.catalog.config_json.read import load_config, model_from_config
from ironlaw.errors import IronlawError
from ironlaw.estimate.layer.counts import total_parameters

CONFIGS = paths.DATA / "hf_configs" / "transformers5"
FILES = sorted(path.stem for path in CONFIGS.glob("*.json"))


def read(name, change=None):
    config = load_config(CONFIGS / f"{name}.json")
    if change and "text_config" in config:
        config = config | {"text_config": config["text_config"] | change}
    else:
        config = config | (change or {})
    return model_from_config(config, f"{name}.json", name)[0]


def test_a_layer_of_its_own_size_counts_with_it():
    """Gemma 4: a layer of full attention with heads of 512 instead of 256 has 24 = 2 x 8 + 2 x 4 more blocks of 256 x 2304."""
    config = load_config(CONFIGS / "gemma4.json")["text_config"]["per_layer_config"]
    less = {key: value for key, value in config.items() if key != "05"}
    # two norms of queries and keys are narrower too
    assert float(total_parameters(read("gemma4")) - total_parameters(read("gemma4", {"per_layer_config": less}))) == 24 * 256 * 2304 + 512


@pytest.mark.parametrize("bad", [{"99": {"head_dim": 4}}, {"x": {}}, {"3": 7}, {"3": {"num_memory_heads": 2}}, {"3": {"skip": ["mlp"]}}])
def test_a_layer_that_is_not_understood_is_refused(bad):
    with pytest.raises(IronlawError, match="per_layer_config"):
        read("gemma4", {"per_layer_config": bad})


@pytest.mark.parametrize("name", ["lfm3", "olmo_hybrid", "lara_mini", "axk2", "granite_swa", "cohere2_moe", "eurobert", "glm5_next"])
def test_a_new_family_answers(name):
    """With a plan, so that nothing is searched; the FLOPs of a token are at least six for each parameter that multiplies it."""
    answer = ironlaw.estimate(str(CONFIGS / f"{name}.json"), on="h200-sxm", gpus=512, tp=1, pp=1, zero=3, recompute="full",
                              seq_len=4096, global_batch_size=512, micro_batch_size=1)  # fmt: skip
    assert 0.01 < float(answer.mfu[0]) < 0.8


def test_a_short_convolution_is_faster_than_full_attention(tmp_path):
    """LFM3 with attention in place of its convolutions: fewer weights (no gates: 2.5 instead of 4 h^2), a longer step at 32k tokens."""
    asked = {"on": "h200-sxm", "gpus": 8, "tp": 1, "pp": 1, "zero": 1, "recompute": "none", "seq_len": 32768, "global_batch_size": 8,
             "micro_batch_size": 1}  # fmt: skip
    config = load_config(CONFIGS / "lfm3.json")
    attending = config | {"layer_types": ["full_attention"] * config["num_hidden_layers"]}
    attending.pop("sliding_window")
    steps, counts = [], []
    for name, fields in (("conv", config), ("attention", attending)):
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps(fields), encoding="utf-8")
        counts.append(float(total_parameters(model_from_config(fields, "c", "x")[0])))
        steps.append(float(ironlaw.estimate(str(path), **asked).step_seconds[0]))
    assert counts[0] > counts[1]
    assert steps[0] < steps[1]


def test_embeddings_that_see_both_ways():
    model = read("paligemma")
    assert model.bidirectional
    assert not model.replace(bidirectional=False).bidirectional
    assert read("eurobert").bidirectional


def test_every_file_is_read():
    assert len(FILES) >= 44
    for name in FILES:
        assert float(total_parameters(read(name))) > 0
