"""``ironlaw inference``: worked numbers, relations, refusals, the command."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from ironlaw import inference
from ironlaw.catalog import load
from ironlaw.cli.main import main
from ironlaw.errors import UnsupportedError
from ironlaw.estimate.layer.counts import total_parameters
from ironlaw.law import inference as law


def test_operations_of_a_token_are_two_for_each_weight():
    assert float(law.forward_flop(1, 70e9, 0, 80, 8192)) == 140e9


def test_cache_of_a_token():
    """Llama 3 70B: 2 x 80 layers x 8 heads x 128 x 2 B = 320 KiB; DeepSeek-V3: 61 x (512 + 64) x 2 B."""
    assert inference("llama-3-70b", on="h100-sxm", gpus=8)["cache_room"][0]["cache"] == 320 * 1024
    assert inference("deepseek-v3", on="h200-sxm", gpus=16)["cache_room"][0]["cache"] == 61 * 576 * 2


@pytest.mark.parametrize(
    ("name", "gpus", "prompt", "layers", "of_a_token"),
    [
        # layers that keep all, layers that keep a window, the window; bytes of a token and layer: 2 x heads x head_dim x 2
        ("gpt-oss-120b", 1, 32768, (18, 18, 128), 2 * 8 * 64 * 2),
        ("gemma-3-27b", 8, 131072, (10, 52, 1024), 2 * 16 * 128 * 2),
        ("llama-4-scout", 8, 32768, (12, 36, 8192), 2 * 8 * 128 * 2),
        ("gemma-3-27b", 8, 512, (62, 0, 0), 2 * 16 * 128 * 2),  # shorter than the window: as if there were none
    ],
)
def test_a_window_or_chunk_bounds_what_is_kept(name, gpus, prompt, layers, of_a_token):
    full, local, window = layers
    kept = full * (prompt + 1) + local * window
    cache = inference(name, on="h200-sxm", gpus=gpus, prompt=prompt, generate=1)["cache_room"][0]
    assert cache["sequence"] == kept * of_a_token


def test_layers_that_share_keys_and_values_keep_none():
    """Gemma 4 E2B: of 35 layers 20 use those of a layer before; 12 of the 15 others see 512 tokens, 3 have heads of 512 instead of 256."""
    cache = inference("gemma-4-e2b", on="h100-sxm", prompt=8191, generate=1)["cache_room"][0]["sequence"]
    assert cache == 2 * 2 * (3 * 8192 * 512 + 12 * 512 * 256)


def test_a_window_makes_long_prompts_and_tokens_cheaper():
    model = load.record("models", "gemma-3-27b")
    time = {part: inference("gemma-3-27b", on="h200-sxm", gpus=8, prompt=65536)[part] for part in ("prompt", "one token")}
    wide = {part: inference(dimensions(model), on="h200-sxm", gpus=8, prompt=65536)[part] for part in ("prompt", "one token")}
    assert all(float(time[part][0]) < float(wide[part][0]) for part in time)


def dimensions(model):
    """The sizes of a model without its windows."""
    names = (
        "hidden_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "head_dim",
        "intermediate_size",
        "vocab_size",
    )
    return ",".join(f"{name}={getattr(model, name)}" for name in names) + ",gated_mlp=on,tie_word_embeddings=on"


def test_one_sequence_reads_every_weight_once_a_token():
    """A token of a dense model cannot be faster than its weights and cache pass through the memory."""
    answer = inference("llama-3-8b", on="h100-sxm", batch=1)
    weights = 2.0 * float(total_parameters(load.record("models", "llama-3-8b")))
    bandwidth = load.record("accelerators", "h100-sxm").hbm_bandwidth.value
    assert 1.0 / answer["tokens_per_second"] > weights / bandwidth
    assert 1.0 / answer["tokens_per_second"] < 1.6 * weights / bandwidth


def test_a_larger_batch_narrower_weights_and_shorter_prompts_are_faster():
    rate = {b: inference("llama-3-8b", on="h100-sxm", batch=b)["tokens_per_second"] for b in (1, 8, 64)}
    assert rate[1] < rate[8] < rate[64]
    assert rate[64] / 64 < rate[8] / 8 <= rate[1]
    narrow, wide = (inference("llama-3-8b", on="h100-sxm", weight_dtype=d)["tokens_per_second"] for d in ("fp8", "bf16"))
    assert narrow > 1.5 * wide
    short, long = (inference("llama-3-8b", on="h100-sxm", prompt=p, batch=32)["tokens_per_second"] for p in (512, 8192))
    assert short > long


def test_few_tokens_of_a_mixture_read_few_of_its_experts():
    one, many = (float(inference("mixtral-8x7b", on="h200-sxm", batch=b)["one token"][0]) for b in (1, 64))
    dense = 2.0 * 46.7e9 / load.record("accelerators", "h200-sxm").hbm_bandwidth.value
    assert one < 0.6 * dense < many


def test_a_model_that_does_not_fit_exits_with_1(capsys):
    assert main(["inference", "llama-3-70b", "--on", "h100-sxm"]) == 1
    assert "does not fit" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["llama-3-8b"], "missing option --on"),
        (["llama-3-8b", "--on", "h1000"], "nearest"),
        (["llama-3-8b", "--on", "h100-sxm", "--gpus", "7"], "does not divide"),
        (["llama-3-8b", "--on", "h100-sxm", "--batch", "0"], "--batch"),
        (["llama-3-8b", "--on", "h100-sxm", "--weight-dtype", "fp2"], "--weight-dtype"),
    ],
)
def test_wrong_questions(capsys, arguments, says):
    assert main(["inference", *arguments]) == 2
    out, err = capsys.readouterr()
    assert says in err and not out


def test_the_command(capsys):
    base = ["inference", "llama-3-70b", "--on", "h100-sxm", "--gpus", "8", "--batch", "32"]
    assert main([*base, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["fits"] and data["tokens_per_second"] > 0 and data["terms"]["cache"]["unit"] == "B"
    assert main([*base, "--explain", "cache"]) == 0
    assert "2 tokens layers heads head_dim bytes" in capsys.readouterr().out


@pytest.mark.parametrize("name", load.names("accelerators"))
def test_every_device_serves_in_a_type_that_it_multiplies(name):
    """A device without bf16 serves fp16; a 16-bit type that a device lacks is refused by name with the one it has."""
    device = load.record("accelerators", name)
    rates = [dtype for dtype in ("bf16", "fp16") if dtype in device.peak and dtype in load.record("calibration", device.calibration).gemm]
    usual = inference("llama-3-8b", on=name, price=1.0)  # not every device is rented
    for dtype in rates:
        given = inference("llama-3-8b", on=name, weight_dtype=dtype, cache_dtype=dtype, price=1.0)
        assert given["weights"] == usual["weights"] and given["prompt"] > 0  # both have two bytes
    assert inference("llama-3-8b", on=name, weight_dtype="int4", price=1.0)["weights"] == usual["weights"] / 4
    for dtype in {"bf16", "fp16"} - set(rates):
        with pytest.raises(UnsupportedError, match=f"weight_dtype {dtype}: {name} has no such matrix rate; it has {rates[0]}$"):
            inference("llama-3-8b", on=name, weight_dtype=dtype)


def test_products_run_at_the_rate_of_the_weights_type(tmp_path):
    """In a compute-bound prompt a device whose fp16 rate is half its bf16 rate takes twice as long with weights in fp16."""
    (tmp_path / "accelerators").mkdir()
    text = (load.SHIPPED / "accelerators" / "h100-sxm.toml").read_text(encoding="utf-8")
    half = re.sub(r'(?m)^(fp16 = \{ value = ")[^"]*', r"\g<1>494.5 TFLOP/s", text)
    (tmp_path / "accelerators" / "h100-sxm.toml").write_text(half, encoding="utf-8")
    wide, narrow = (
        float(np.ravel(inference("llama-3-8b", "h100-sxm", prompt=65536, weight_dtype=d, catalog=(str(tmp_path),))["prompt"])[0])
        for d in ("bf16", "fp16")
    )
    assert narrow == pytest.approx(2.0 * wide, rel=0.05)


def test_long_prompts_are_not_printed_in_millions_of_milliseconds():
    first = " ".join(inference("llama-3-70b", "h100-sxm", gpus=8, batch=100_000).headline)
    assert "(100000 together)" in first and ",000 ms" not in first and "ms (100000" not in first
