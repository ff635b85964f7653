"""Towers, encoders and encoder-decoders read from config.json: parameters, tokens, and what is refused.

``BUILT`` are parameters of the class that huggingface/transformers 5.23.0 builds from the same fields, counted tensor by tensor on the
meta device (read 2026-11-23): an independent count of the whole model, tower and projector included.
"""

import pytest

import paths
from ironlaw.catalog.config_json.read import load_config, model_from_config
from ironlaw.catalog.config_json.towers import READERS
from ironlaw.errors import UnsupportedError
from ironlaw.estimate.layer.counts import total_parameters

CONFIGS = paths.DATA / "hf_configs"
BUILT = {
    "encoders/bart-large": 406_291_456,
    "encoders/bert-base": 110_106_428,
    "encoders/bert-large": 336_226_108,
    "encoders/modernbert-base": 149_655_232,
    "encoders/modernbert-large": 395_881_664,
    "encoders/roberta-large": 355_412_057,
    "encoders/t5-11b": 11_307_321_344,
    "encoders/t5-3b": 2_851_598_336,
    "encoders/t5-base": 222_903_552,
    "encoders/t5-large": 737_668_096,
    "encoders/t5-small": 60_506_624,
    "encoders/vit-base": 86_567_656,
    "encoders/vit-giant": 1_012_611_432,
    "encoders/vit-gigantic": 1_844_440_680,
    "encoders/vit-huge": 632_045_800,
    "encoders/vit-large": 304_326_632,
    "encoders/whisper-large-v3": 1_543_490_560,
    "towers/gemma-3-27b": 27_432_406_640,
    "towers/gemma-4-26b-a4b": 25_805_933_872,
    "towers/kimi-k2.5": 1_026_879_353_328,
    "towers/llama-4-scout": 108_641_793_536,
    "towers/llava-1.5-7b": 7_063_427_072,
    "towers/mistral-small-3.1-24b": 23_340_272_640 + 131072 * 5120,  # the class ties the tables, the config does not
    "towers/qwen-2-vl-7b": 8_291_375_616,
    "towers/qwen-2.5-vl-7b": 8_292_166_656,
    "towers/qwen-3.5-27b": 27_356_728_560,
    "towers/qwen2-audio-7b": 8_397_094_912,
    "towers/qwen3-vl-235b-a22b": 235_670_022_896,
    "towers/qwen3-vl-8b": 8_767_123_696,
}


def read(name, change=None):
    config = load_config(CONFIGS / f"{name}.json") | (change or {})
    return model_from_config(config, f"{name}.json", name)


def whole(model):
    """The model with every tower taking part."""
    return model.replace(towers=tuple(tower.replace(items=1.0, tokens=tower.tokens or 256.0) for tower in model.towers))


@pytest.mark.parametrize("name", BUILT)
def test_the_whole_model_has_the_count_of_its_class(name):
    """To a part in a hundred thousand: what is left are scales of a layer and positions that the class does not store."""
    assert float(total_parameters(whole(read(name)[0]))) == pytest.approx(BUILT[name], rel=1e-5)


@pytest.mark.parametrize("name", [name for name in BUILT if name.startswith("towers/")])
def test_a_tower_takes_no_part_until_a_question_gives_it_something_to_read(name):
    model, left_out = read(name)
    (tower,) = model.towers
    assert tower.items == 0.0
    assert any(f"{tower.name} tower" in line for line in left_out)
    assert float(total_parameters(model)) == float(total_parameters(model.replace(towers=())))


def test_vision_transformers_have_the_counts_of_dosovitskiy():
    """Dosovitskiy et al., An Image is Worth 16x16 Words, ICLR 2021, table 1: ViT-Base 86 M, -Large 307 M, -Huge 632 M."""
    for name, published, digit in (("base", 86e6, 1e6), ("large", 307e6, 3e6), ("huge", 632e6, 1e6)):
        assert float(total_parameters(read(f"encoders/vit-{name}")[0])) == pytest.approx(published, abs=digit)


def test_t5_has_the_counts_of_raffel():
    """Raffel et al., JMLR 2020, section 3.7: 60 M, 220 M, 770 M, 3 B (2.8 B in the text), 11 B."""
    for name, published, digit in (("small", 60e6, 1e6), ("base", 220e6, 5e6), ("3b", 2.8e9, 0.1e9), ("11b", 11e9, 0.5e9)):
        assert float(total_parameters(read(f"encoders/t5-{name}")[0])) == pytest.approx(published, abs=digit)


def test_a_tower_of_an_unknown_type_is_left_out_and_named():
    model, left_out = read("towers/llava-1.5-7b", {"vision_config": {"model_type": "never_heard_of", "hidden_size": 8}})
    assert model.towers == ()
    assert left_out == ["vision tower (never_heard_of)"]


def test_the_how_to_lists_every_tower_that_is_read():
    page = (paths.ROOT / "docs" / "how-to" / "train-a-vision-language-model.md").read_text(encoding="utf-8")
    assert [name for name in READERS if f"`{name}`" not in page] == []


def test_features_of_encoders_that_are_not_modelled_are_refused():
    for name, change, says in (
        ("encoders/bert-base", {"is_decoder": True}, "BERT as a decoder"),
        ("encoders/bert-base", {"position_embedding_type": "relative_key"}, "relative to each key"),
        ("encoders/modernbert-base", {"mlp_bias": True}, "biases in its layers"),
        ("encoders/bart-large", {"normalize_before": True}, "norms before its blocks"),
    ):
        with pytest.raises(UnsupportedError, match=says):
            read(name, change)
