"""Moments before the first step: relations, and worked bytes."""

from __future__ import annotations

import json

import numpy as np
import pytest

from ironlaw.estimate.answer.estimate import answer
from ironlaw.question.read import read_options

GIB = 2.0**30
PARAMETERS = 8030261248  # of Llama 3 8B
WIDE = {
    "model": "llama-3-8b", "on": "h100-sxm", "gpus": 64, "framework": "megatron", "tp": 1, "pp": 1, "zero": 1, "micro_batch_size": 1,
    "seq_len": 512, "recompute": "full", "global_batch_size": 128,
}  # fmt: skip


def memory(folders=(), **options):
    return answer(read_options(options), folders).groups[0].memory


def allocated(folders=(), **options):
    return float(np.ravel(memory(folders, **options).allocated)[0])


def test_a_distributed_optimizer_copies_all_weights_beside_them():
    """Weights and their flat copy in 2 bytes, the buffer of gradients in 4: 8 bytes a parameter, more than a step with 64 ranks."""
    assert allocated(**WIDE) == pytest.approx(8 * PARAMETERS, rel=1e-3)
    assert allocated(**WIDE, gradient_dtype="bf16") == pytest.approx(6 * PARAMETERS, rel=1e-3)


@pytest.mark.parametrize(
    "change", [{"zero": 0}, {"zero": 2}, {"framework": "fsdp", "zero": 3}, {"micro_batch_size": 16, "recompute": "none", "gpus": 8}]
)
def test_a_step_is_the_peak_where_nothing_is_copied_or_it_needs_more(change):
    tree = memory(**{**WIDE, **change}).tree["allocated"]
    assert sum(float(np.ravel(part.value)[0]) for part in tree.parts if part.name == "more while initialising") == 0.0
    assert float(np.ravel(tree["activations"].value)[0]) > 0.0


def test_adapters_alone_are_copied():
    tree = memory(**{**WIDE, "framework": "generic"}, lora_rank=16).tree["allocated"]
    assert all(part.name != "more while initialising" for part in tree.parts)


def test_the_page_names_the_moment(ask):
    question = [word for name, value in WIDE.items() if name != "model" for word in (f"--{name.replace('_', '-')}", value)]
    status, out, _ = ask("estimate", "llama-3-8b", *question)
    assert status == 0 and "fullest at initialising: weights beside their flat copy" in out.splitlines()[1]
    assert json.loads(ask("estimate", "llama-3-8b", *question, "--json")[1])["memory"]["moment"] == "initialising"
    longer = [*question[: question.index("--seq-len")], "--seq-len", 8192, *question[question.index("--seq-len") + 2 :]]
    longer[longer.index("full")] = "none"
    status, out, _ = ask("estimate", "llama-3-8b", *longer)
    assert "fullest at" not in out and json.loads(ask("estimate", "llama-3-8b", *longer, "--json")[1])["memory"]["moment"] == "step"


def test_a_loader_that_packs_last_needs_all_weights_in_16_bits(tmp_path):
    """Llama 2 7B has 6,738,415,616 parameters: 13.48 GB in 16 bits, where a step of QLoRA needs less."""
    folder = tmp_path / "frameworks"
    folder.mkdir()
    for name, last in (("first", "true"), ("apart", "false")):
        (folder / f"{name}.toml").write_text(f'title = "ours"\nlike = "huggingface"\npacks_after_loading = {last}\n')
    asked = {
        "model": "llama-2-7b", "on": "rtx-4090", "gpus": 1, "tp": 1, "pp": 1, "zero": 0, "micro_batch_size": 1, "seq_len": 512,
        "recompute": "full", "global_batch_size": 8, "lora_rank": 8, "frozen_weights": "nf4",
    }  # fmt: skip
    folders = (str(tmp_path),)
    assert allocated(folders, **asked, framework="first") == pytest.approx(2 * 6738415616, rel=1e-3)
    assert allocated(folders, **asked, framework="apart") < 6e9
    assert allocated(folders, **{**asked, "frozen_weights": "gptq"}, framework="first") < 6e9  # read packed
