"""Estimates of models with a tower, of encoders and of encoder-decoders: FLOPs from the papers, what moves what, and refusals."""

import numpy as np
import pytest

import ironlaw
import paths
from ironlaw.catalog.config_json.read import model_from_config
from ironlaw.errors import IronlawError, QuestionError, UnsupportedError, ValueRangeError
from ironlaw.estimate.layer.counts import total_parameters
from ironlaw.estimate.legality.rules import broken
from ironlaw.estimate.step.rates import flop_by_part

CONFIGS = paths.DATA / "hf_configs" / "towers"
SEES, HEARS = str(CONFIGS / "qwen3-vl-8b.json"), str(CONFIGS / "qwen2-audio-7b.json")
PLAN = {
    "on": "h100-sxm", "gpus": 8, "tp": 1, "pp": 1, "zero": 3, "dp_shard": 8, "micro_batch_size": 1, "global_batch_size": 8,
    "recompute": "none", "framework": "generic",
}  # fmt: skip


def asked(model, **more):
    return ironlaw.estimate(model, **{**PLAN, "seq_len": 2048, **more})


def one(value):
    return float(np.ravel(value)[0])


def step(answer):
    return one(answer.groups[0].step.tree.value)


def parameters(answer):
    return float(total_parameters(answer.groups[0].job.model))


def test_images_add_the_tower_and_nothing_else():
    text, seen = asked(SEES), asked(SEES, images_per_sequence=1, image_size=512)
    assert parameters(seen) - parameters(text) == 576_388_336  # the visual module of Qwen3VLForConditionalGeneration
    flop = flop_by_part(seen.groups[0].job, seen.groups[0].plan)
    # 1024 patches: 27 layers of 4 x 1152^2 + 2 x 1152 x 4304 weights, scores of 1152 channels over all patches, the patches' product, and
    # four projectors (one and three for the layers between) of 4608 x 4608 + 4608 x 4096 on a quarter of the rows
    layers = 27 * (4 * 1152**2 + 2 * 1152 * 4304)
    ends = 1152 * 3 * 2 * 16**2 + 4 * (4608 * 4608 + 4608 * 4096) / 4
    forward = 1024 * (2 * (layers + ends) + 27 * 4 * 1152 * 1024)
    assert one(flop["towers"].value) * 2048 == pytest.approx(3 * forward, rel=1e-9)
    assert step(seen) > step(text)


def test_a_frozen_tower_runs_forward_only_and_has_no_states():
    trained, frozen = (asked(SEES, images_per_sequence=4, image_size=512, frozen_tower=flag) for flag in (False, True))
    assert step(frozen) < step(trained)
    assert one(frozen.groups[0].memory.device) < one(trained.groups[0].memory.device)
    whole, without = (one(flop_by_part(a.groups[0].job, a.groups[0].plan)["towers"].value) for a in (trained, frozen))
    assert without == pytest.approx(whole / 3.0)


def test_lora_freezes_the_tower():
    (group,) = asked(SEES, images_per_sequence=1, image_size=512, lora_rank=16).groups
    assert group.job.model.towers[0].frozen


def test_audio_is_padded_to_whole_clips():
    short, clip, longer = (asked(HEARS, audio_seconds=seconds) for seconds in (10, 30, 31))
    assert step(short) == step(clip)
    once, twice = (one(flop_by_part(a.groups[0].job, a.groups[0].plan)["towers"].value) for a in (clip, longer))
    assert twice == 2.0 * once
    assert longer.groups[0].job.model.towers[0].items == 2.0


def test_a_larger_image_of_llama_4_is_cut_into_tiles():
    """Tiles of 336 pixels and one of the whole image: 2 x 2 + 1 tiles of 576 patches and a class token, 144 tokens of the sequence each."""
    (group,) = asked(str(CONFIGS / "llama-4-scout.json"), images_per_sequence=1, image_size=672, gpus=64, dp_shard=64, ep=16,
                     global_batch_size=64).groups  # fmt: skip
    tower = group.job.model.towers[0]
    assert (tower.items, tower.tokens) == (5.0, 577.0)


def test_bidirectional_attention_is_not_halved():
    """Devlin et al., NAACL 2019: every token of BERT sees all tokens; MFU is then that of the full square."""
    (group,) = asked("bert-large", seq_len=512).groups
    assert one(group.throughput["mfu"].value) == pytest.approx(one(group.throughput["mfu_full_square"].value))


def test_bert_large_has_the_flop_of_its_layers():
    """24 layers of 12 h^2 weights and 4 h s of scores a token, the dense layer before the output layer, and a table of 30522 words."""
    (group,) = asked("bert-large", seq_len=512).groups
    parts = flop_by_part(group.job, group.plan)
    weights = 24 * 12 * 1024**2 + 1024**2 + 30522 * 1024
    assert one(parts["forward"].value) == 2.0 * weights
    assert one(parts["attention_forward"].value) == 24 * 4.0 * 1024 * 512


def test_an_encoder_of_t5_costs_by_the_tokens_that_it_reads():
    """Raffel et al., 2020, section 3.1.2: the decoder of T5 reads 114 tokens where the encoder reads 512."""
    short, long = (asked("t5-large", seq_len=114, encoder_seq_len=length) for length in (512, 1024))
    first, second = (one(flop_by_part(a.groups[0].job, a.groups[0].plan)["towers"].value) * 114 for a in (short, long))
    assert first < second
    encoder = 512 * 24 * (2 * (4 * 1024 * 1024 + 2 * 1024 * 4096) + 4 * 1024 * 512)
    across = 24 * (2 * (512 - 114) * 2 * 1024 * 1024 + 114 * 4 * 1024 * 512)
    assert first == pytest.approx(3 * (encoder + across))
    assert not short.groups[0].job.flash  # its scores have learned biases


def test_the_big_transformer_of_vaswani_has_213_million_parameters():
    """Vaswani et al., 2017, table 3: 213 M; six layers in either stack, 1024 wide, 4096 inside, and about 37,000 shared tokens."""
    sizes = {"d_model": 1024, "d_ff": 4096, "d_kv": 64, "num_heads": 16, "num_layers": 6, "vocab_size": 37000, "n_positions": 512}
    model, _ = model_from_config({"model_type": "t5", "is_encoder_decoder": True, **sizes}, "big", "big")
    assert float(total_parameters(model)) == pytest.approx(213e6, rel=0.01)  # the table's size is about 37,000


def test_vision_transformer_reads_patches():
    """Dosovitskiy et al., 2021: 224 pixels in patches of 14 are 256 tokens and a class token."""
    answer = ironlaw.estimate("vit-h", **PLAN)
    assert one(answer.groups[0].plan.seq_len) == 257.0


@pytest.mark.parametrize(
    ("model", "options", "error", "says"),
    [
        ("llama-3-8b", {"images_per_sequence": 1}, UnsupportedError, "no vision tower"),
        ("llama-3-8b", {"audio_seconds": 30}, UnsupportedError, "no audio tower"),
        ("llama-3-8b", {"encoder_seq_len": 512}, UnsupportedError, "no encoder of text"),
        (SEES, {"frozen_tower": True}, QuestionError, "no tower takes part"),
        (SEES, {"image_size": 448}, QuestionError, "no image is read"),
        (SEES, {"images_per_sequence": 100, "image_size": 1024}, ValueRangeError, "the sequence has"),
        (str(CONFIGS / "gemma-3-27b.json"), {"images_per_sequence": 1, "image_size": 448}, ValueRangeError, "reads images of 896"),
        ("whisper-large-v3", {"audio_seconds": 60, "seq_len": 448}, ValueRangeError, "30 s at most"),
        ("whisper-large-v3", {"encoder_seq_len": 60, "seq_len": 448}, UnsupportedError, "no encoder of text"),
    ],
)
def test_what_a_model_cannot_read_is_refused(model, options, error, says):
    with pytest.raises(error, match=says):
        asked(model, **options)


@pytest.mark.parametrize(
    ("model", "mesh", "says"),
    [
        ("t5-large", {"pp": 2, "dp_shard": 4, "seq_len": 512}, "give pp 1"),
        ("t5-large", {"cp": 2, "dp_shard": 4, "seq_len": 512}, "give cp 1"),
        ("bert-large", {"cp": 2, "dp_shard": 4, "seq_len": 512}, "give cp 1"),
        (SEES, {"cp": 2, "dp_shard": 4, "images_per_sequence": 1, "image_size": 512}, "give cp 1"),
    ],
)
def test_parallelism_that_is_not_modelled_names_what_works(model, mesh, says):
    answer = asked(model, **mesh)
    assert not answer.legal[0]
    (group,) = answer.groups
    assert says in " ".join(broken(group.job, group.plan, group.rules, 0))


def test_a_pipeline_has_the_tower_on_its_first_stage():
    (group,) = asked(SEES, images_per_sequence=2, image_size=512, pp=2, dp_shard=4, zero=1).groups
    assert group.plan.pp[0] == 2.0
    assert step(asked(SEES, images_per_sequence=2, image_size=512, pp=2, dp_shard=4, zero=1)) > 0.0


def test_an_encoder_is_not_served():
    from ironlaw import inference

    with pytest.raises(IronlawError, match="decoders of text"):
        inference("bert-large", on="h100-sxm")
