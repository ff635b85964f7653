"""Published parameter counts of released configs, total and active, and an estimate of each.

``BUILT`` are parameters of the model that huggingface/transformers 5.23.0 builds from the same fields, counted tensor by tensor on the
meta device (read 2026-11-22): an independent count. ``CARDS`` are the rounded figures of model cards, for families whose code is not
in that library.
"""

import json

import numpy as np
import pytest

import ironlaw
import paths
from ironlaw.catalog.config_json.read import READERS, load_config, model_from_config
from ironlaw.estimate.layer.counts import active_parameters, total_parameters

CONFIGS = paths.DATA / "hf_configs"
BUILT = {
    "apertus-70b": 70_599_864_480,
    "apertus-8b": 8_053_338_176,
    "bamba-9b": 9_780_235_392,
    "command-a": 111_057_580_032,
    "command-r-plus": 103_810_674_688,
    "command-r-v01": 34_980_831_232,
    "dbrx": 131_596_523_520,
    "dots.llm1": 142_774_373_888,
    "ernie-4.5-21b-a3b": 21_825_437_888,
    "ernie-4.5-300b-a47b": 299_484_163_264,
    "falcon-180b": 179_522_565_120,
    "falcon-40b": 41_303_293_952,
    "falcon-7b": 6_921_720_704,
    "gemma-3-270m": 268_098_176,
    "glm-4-32b": 32_566_081_536,
    "glm-4-9b": 9_399_951_360,
    "glm-4.7-flash": 29_943_390_976,
    "gpt-j-6b": 6_050_882_784,
    "gpt-neo-2.7b": 2_651_307_520,
    "granite-3.1-3b-a800m": 3_298_793_472,
    "granite-3.1-8b": 8_170_848_256,
    "granite-4.0-h-small": 32_207_337_984,
    "hunyuan-7b": 7_504_568_320,
    "hunyuan-a13b": 80_393_183_232,
    "internlm3-8b": 8_804_241_408,
    "minicpm3-4b": 4_073_875_968,
    "ministral-8b": 8_019_808_256,
    "mistral-large-2411": 122_610_069_504,
    "mistral-small-24b": 23_572_403_200,
    "olmo-2-13b": 13_716_198_400,
    "olmo-3-32b": 32_233_522_176,
    "olmoe-1b-7b": 6_919_161_856,
    "phi-2": 2_779_683_840,
    "phi-3.5-moe": 41_873_153_344,
    "phi-4": 14_659_507_200,
    "seed-oss-36b": 36_151_104_512,
    "smollm3-3b": 3_075_098_624,
    "solar-open-100b": 102_651_793_408,
    "stablelm-2-1.6b": 1_644_515_328,
    "stablelm-2-12b": 12_143_185_920,
    "starcoder": 15_517_456_384,
    "starcoder2-15b": 15_957_889_024,
    "trinity-mini": 26_123_974_400,
    "vaultgemma-1b": 1_038_741_120,
    "xglm-7.5b": 7_492_771_840,
    "yi-34b": 34_388_917_248,
}
# total as its card says it, in parameters, and what one more in its last digit is worth
CARDS = {
    "arctic": (480e9, 10e9),
    "baichuan2-13b": (13e9, 1e9),
    "chatglm3-6b": (6e9, 1e9),
    "exaone-3.5-7.8b": (7.8e9, 0.1e9),
    "exaone-4.0-32b": (32.0e9, 0.1e9),
    "internlm2-20b": (20e9, 1e9),
    "ling-1t": (1e12, 1e12),
    "ling-flash-2.0": (103e9, 1e9),
    "ling-mini-2.0": (16.26e9, 0.01e9),
    "longcat-flash": (560e9, 10e9),
    "openelm-270m": (0.27e9, 0.01e9),
    "qwen-72b": (72e9, 1e9),
}
# active parameters: the card's figure, what its last digit is worth, and how many of the two tables it leaves out
ACTIVE = {
    "arctic": (17e9, 1e9, 0),
    "dbrx": (36e9, 1e9, 0),
    "dots.llm1": (14e9, 1e9, 0),
    "ernie-4.5-300b-a47b": (47e9, 1e9, 0),
    "granite-3.1-3b-a800m": (0.8e9, 0.1e9, 0),
    "granite-4.0-h-small": (9e9, 1e9, 0),
    "hunyuan-a13b": (13e9, 1e9, 0),
    "ling-flash-2.0": (6.1e9, 0.1e9, 0),
    "ling-mini-2.0": (1.43e9, 0.01e9, 0),
    "longcat-flash": (27e9, 1e9, 1),
    "olmoe-1b-7b": (1.3e9, 0.1e9, 0),
    "phi-3.5-moe": (6.6e9, 0.1e9, 0),
    "solar-open-100b": (12e9, 1e9, 0),
    "trinity-mini": (3e9, 1e9, 0),
}
# configs of test_mixtures and test_hybrids with layers of different sizes, indexers, or experts in a latent
FURTHER = {
    "experts/deepseek-v3.2": (671.88e9, None),  # README_WEIGHTS.md of V3: 671 B, and 61 indexers of 13.96 M (worked out below)
    "experts/gemma-4-26b-a4b": (25_233_141_760, 3.8e9),  # built as above; 25.2 B and 3.8 B active on its card
    "experts/glm-5": (744e9, None),  # its card
    "experts/mimo-v2-flash": (308_778_768_832, 15e9),  # built as above; 309 B and 15 B active on its card
    "experts/nemotron-super-49b": (49_867_145_216, None),  # tensors of its checkpoint
    "hybrids/nemotron-3-super-120b-a12b": (120.6e9, 12.7e9),  # its report
    "hybrids/nemotron-3-ultra-550b-a55b": (550e9, 55e9),  # its card
}


def read(name, change=None):
    folder = "" if "/" in name else "families/"
    config = load_config(CONFIGS / f"{folder}{name}.json") | (change or {})
    return model_from_config(config, f"{name}.json", name)[0]


@pytest.mark.parametrize("name", BUILT)
def test_a_config_has_the_count_of_its_class_in_transformers(name):
    """To a part in a hundred thousand: what is left are numbers a head or an expert, buffers of one and parameters of the other."""
    assert float(total_parameters(read(name))) == pytest.approx(BUILT[name], rel=1e-5)


@pytest.mark.parametrize("name", CARDS)
def test_a_config_has_the_count_of_its_card(name):
    published, digit = CARDS[name]
    assert float(total_parameters(read(name))) == pytest.approx(published, abs=digit)


@pytest.mark.parametrize("name", ACTIVE)
def test_a_config_has_the_active_count_of_its_card(name):
    published, digit, tables = ACTIVE[name]
    model = read(name)
    active = float(active_parameters(model)) - tables * model.vocab_size * model.hidden_size
    assert active == pytest.approx(published, abs=digit)


@pytest.mark.parametrize("name", FURTHER)
def test_layers_of_different_sizes_have_their_published_count(name):
    total, active = FURTHER[name]
    model = read(name)
    assert float(total_parameters(model)) == pytest.approx(total, rel=0.005)
    if active is not None:
        assert float(active_parameters(model)) == pytest.approx(active, rel=0.035)


def test_every_excerpt_has_a_count():
    assert {path.stem for path in (CONFIGS / "families").glob("*.json")} == set(BUILT) | set(CARDS)


@pytest.mark.parametrize("name", [*BUILT, *CARDS, *FURTHER])
def test_every_config_answers(name):
    folder = "" if "/" in name else "families/"
    answer = ironlaw.estimate(str(CONFIGS / f"{folder}{name}.json"), on="h200-sxm", gpus=512, tp=1, pp=1, zero=3, recompute="full",
                              seq_len=4096, global_batch_size=512, micro_batch_size=1)  # fmt: skip
    assert 0.0 < float(answer.step_seconds[0]) < 1e4
    assert 0.01 < float(answer.mfu[0]) < 0.8
    assert np.isfinite(answer.device_bytes[0])


def test_the_page_lists_every_type_that_is_read():
    page = (paths.ROOT / "docs" / "how-to" / "add-a-model.md").read_text(encoding="utf-8")
    assert [name for name in READERS if f"`{name}`" not in page] == []


def test_excerpts_have_fields_only():
    for path in (CONFIGS / "families").glob("*.json"):
        assert len(json.loads(path.read_text(encoding="utf-8"))) < 40
