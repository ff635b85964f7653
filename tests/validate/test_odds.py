"""Odds to fit against what ran, every stack by the spread of the others; and the readers of the tables behind them."""

from __future__ import annotations

import json

import numpy as np
import pytest

import paths
from ironlaw.validate import fits, fits_readers, odds

TABLES = {
    "fms-acceleration": paths.DATA / "fits" / "fms_acceleration_all.csv",
    "litgpt": paths.DATA / "fits" / "litgpt.csv",
    "ms-swift": paths.DATA / "fits" / "ms_swift.csv",
    "prime-rl": fits.SHIPPED,
}


@pytest.fixture(scope="module")
def tables():
    return {stack: fits.fits(path) for stack, path in TABLES.items()}


def test_at_both_ends_at_most_one_in_twenty_ends_otherwise(tables):
    found = odds.odds([row for rows in tables.values() for row in rows])
    assert set(found["stacks"]) == set(TABLES) and found["holds"]
    assert found["likely"] >= 250 and found["likely_failed"] <= 0.05 * found["likely"]
    assert found["unlikely"] >= 40 and found["unlikely_ran"] <= 0.05 * found["unlikely"]
    assert all(counts["holds"] for counts in found["stacks"].values())


def test_between_the_ends_more_ran_of_what_is_called_likelier(tables):
    ran = [b["ran"] / b["rows"] for b in odds.odds([row for rows in tables.values() for row in rows])["bins"]]
    assert ran == sorted(ran)


def test_counts_of_made_rows():
    asked = fits.Asked({}, True)
    failed = fits.Asked({}, False, "out of memory")

    def row(said, how, stack="a"):
        return fits.Fit("", 1, "", how, stack=stack, held_out=said)

    rows = [row(0.95, asked), row(0.95, failed), row(1.0, asked), row(0.05, failed), row(0.09, asked, "b"), row(0.3, failed, "b")]
    found = odds.odds(rows)
    assert (found["likely"], found["likely_failed"], found["unlikely"], found["unlikely_ran"]) == (3, 1, 2, 1)
    assert [b["rows"] for b in found["bins"]] == [2, 1, 0, 3] and not found["holds"]
    assert found["stacks"]["b"]["unlikely_ran"] == 1 and found["bins"][3]["said"] == pytest.approx(2.9 / 3)


def test_every_stack_is_scored_by_a_spread_without_it(tables):
    """prime-rl has a narrow spread of its own; by the wide one of the others its runs near the limit are less certain."""
    rows = [row for row in tables["prime-rl"] if row.held_out is not None and 0.5 < row.held_out < 0.99]
    assert rows and all(row.held_out < row.probability for row in rows)
    for stack in ("litgpt", "ms-swift", "fms-acceleration"):  # without a spread of their own
        assert all(row.held_out == row.probability for row in tables[stack] if row.held_out is not None)


def test_peaks_of_adapters_in_litgpt(tables):
    """Its attention repeats keys and values, and each adapter keeps a dropped copy of its input."""
    lora = [row.error for row in tables["litgpt"] if row.error is not None and row.asked.options.get("lora_rank")]
    wide = [row.error for row in tables["litgpt"] if row.error is not None and not row.asked.options.get("frozen_weights")]
    assert len(lora) == 18 and np.median(np.abs(lora)) <= 0.10
    assert len(wide) == 10 and max(np.abs(wide)) <= 0.05


def test_a_peak_below_its_own_states_contradicts_its_row(tables):
    """3,821 million parameters of Phi-3 in bf16 with AdamW are 8 bytes each: 28.5 GiB, on a card of 24 that is said to have run."""
    (row,) = [row for row in tables["litgpt"] if row.line == 17]
    assert row.held_out is None and "below the 28.5 GiB of weights, gradients and states" in row.reason
    assert 8 * 3.821e9 / 2**30 == pytest.approx(28.5, abs=0.05)


def test_a_kernel_that_does_not_exist_says_nothing_of_memory(tables):
    """All four runs of FlashAttention-3 on Blackwell failed; the kernel is for Hopper."""
    rows = [row for row in tables["prime-rl"] if "no kernel for blackwell" in row.reason]
    assert len(rows) == 4 and all(row.held_out is None for row in rows)


def test_norms_that_peft_widens_double_the_checkpoints_beside_packed_weights(tables):
    """32 layers by 16,384 tokens by 4,096 by 2 bytes are 4 GiB: measured 19.250 against 15.249 GiB of one job, with and without."""
    with_peft, without = (next(row for row in tables["fms-acceleration"] if row.line == line) for line in (42, 58))
    assert 32 * 16384 * 4096 * 2 == 4 * 2**30
    assert with_peft.predicted_bytes - without.predicted_bytes == pytest.approx(4 * 2**30)
    assert with_peft.asked.measured_bytes - without.asked.measured_bytes == pytest.approx(4 * 2**30, rel=0.01)
    errors = [row.error for row in tables["fms-acceleration"] if row.group == "huggingface, adapters" and row.error is not None]
    assert max(np.abs(errors)) <= 0.1


LITGPT = "config,model,seq_len,micro_batch,machine,peak_memory"
SWIFT = "tuner,Model Type,Quantization,GPU Memory (GiB),Max Length,Batch Size,Gradient Checkpointing,Use Flash Attn,LoRA Target Modules"


@pytest.mark.parametrize(
    ("header", "row", "why"),
    [
        (LITGPT, "a/other.yaml,llama-2-7b,512,1,1xA10G,1 GB", "config is 'a/other.yaml'"),
        (LITGPT, "a/lora.yaml,lama-2-7b,512,1,1xA10G,1 GB", "unknown model 'lama-2-7b'"),
        (LITGPT, "a/lora.yaml,llama-2-7b,512,1,A10G,1 GB", "no accelerator"),
        (LITGPT, "a/lora.yaml,llama-2-7b,512,1,1xA10G,much", "peak_memory is 'much'"),
        (LITGPT, "a/lora.yaml,llama-2-7b,512,1,1xA10G,1 TB", "peak_memory is '1'"),
        (SWIFT, "lora,qwen-7b-chat,int8 (gptq),20,,,,,", "int8 (gptq) weights are not modelled"),
        (SWIFT, "lora,qwen-7b-chat,,20,,,perhaps,,", "Gradient Checkpointing is 'perhaps'"),
        (SWIFT, "lora,qwen-7b-chat,,20,,,,\u2718,", "attention without flash"),
        (SWIFT, "lora,qwen-7b-chat,,20,,,,,everything", "LoRA Target Modules is 'everything'"),
        (SWIFT, "lora,qwen-7b-chat,,-1,,,,,", "GPU Memory (GiB) is '-1'"),
        (SWIFT, "lora,qwen-7b-chat,,20,2.5,,,,", "Max Length is '2.5'"),
    ],
)
def test_a_row_that_cannot_be_asked_says_why(tmp_path, header, row, why):
    path = tmp_path / "fits.csv"
    path.write_text(f"{header}\n{row}\n", encoding="utf-8")
    (found,) = fits.fits(path)
    assert found.held_out is None and why in found.reason


def test_adapters_of_a_configuration_are_those_of_its_file():
    assert fits_readers.adapters_of("phi-3") == {"lora_rank": 8.0, "lora_targets": "qkv,proj,gate,up,fc2"}
    assert fits_readers.adapters_of("falcon-7b") == {"lora_rank": 32.0, "lora_targets": "qkv"}


def test_the_command_prints_the_odds(ask):
    status, out, err = ask("validate", "--fits", TABLES["litgpt"], "--json")
    assert (status, err) == (0, "")
    found = json.loads(out)["fits"]["odds"]
    assert found["holds"] and found["stacks"]["litgpt"]["rows"] == 20 and found["bins"][0]["rows"] == 1
    status, out, _ = ask("validate", "--fits", TABLES["litgpt"])
    assert status == 0 and "Said to fit, by the spread of other stacks: what ran of how many" in out
    assert "| litgpt | 0 of 1 |" in out
