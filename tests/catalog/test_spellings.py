"""Names as people, hubs, clouds and launch scripts write them: each is found, refused with a reason, or answered with candidates."""

from __future__ import annotations

import pytest

from ironlaw.catalog import load
from ironlaw.catalog.spellings import find_name
from ironlaw.errors import UnknownNameError, UnsupportedError

MODELS = {
    "llama-3-70b": (
        "Llama 3 70B", "llama3:70b", "llama3-70b", "Llama3_70B", "LLAMA-3-70B", "Meta-Llama-3-70B", "Meta-Llama-3-70B-Instruct",
        "meta-llama/Meta-Llama-3-70B", "meta-llama/Meta-Llama-3-70B-Instruct", "llama3:70b-instruct", "llama370b",
    ),
    "llama-3-8b": ("Llama 3 8B", "llama3:8b", "meta-llama/Meta-Llama-3-8B", "Meta-Llama-3-8B-Instruct", "Nous/Meta-Llama-3-8B"),
    "llama-3.1-8b": ("meta-llama/Llama-3.1-8B-Instruct", "Meta-Llama-3.1-8B", "llama3.1:8b", "Llama 3.1 8B", "llama-3.1-8b-base"),
    "llama-3.1-70b": ("meta-llama/Llama-3.1-70B", "llama3.1:70b", "Llama-3.1-70B-Instruct", "llama_3.1_70b"),
    "llama-2-7b": ("meta-llama/Llama-2-7b-hf", "meta-llama/Llama-2-7b-chat-hf", "llama2:7b", "llama2:7b-chat", "Llama 2 7B", "llama2-7b"),
    "llama-2-13b": ("meta-llama/Llama-2-13b-hf", "llama2:13b", "Llama-2-13B-Chat", "llama2-13b", "llama_2_13b"),
    "llama-2-70b": ("meta-llama/Llama-2-70b-chat-hf", "llama2:70b", "Llama 2 70B", "llama2-70b"),
    "mixtral-8x7b": ("mistralai/Mixtral-8x7B-v0.1", "mistralai/Mixtral-8x7B-Instruct-v0.1", "mixtral:8x7b", "Mixtral 8x7B"),
    "mixtral-8x22b": ("mistralai/Mixtral-8x22B-Instruct-v0.1", "mixtral:8x22b"),
    "mistral-7b": ("mistralai/Mistral-7B-v0.1", "mistralai/Mistral-7B-Instruct-v0.1", "Mistral 7B", "mistral:7b"),
    "mistral-7b-v0.3": ("mistralai/Mistral-7B-v0.3", "mistralai/Mistral-7B-Instruct-v0.3"),  # another vocabulary, so another model
    "gemma-2-9b": ("google/gemma-2-9b", "google/gemma-2-9b-it", "gemma2:9b", "Gemma 2 9B"),
    "gemma-3-27b": ("google/gemma-3-27b-it", "google/gemma-3-27b-pt", "gemma3:27b"),
    "qwen-3-30b-a3b": ("Qwen/Qwen3-30B-A3B", "Qwen3-30B-A3B-Thinking-2507", "Qwen/Qwen3-30B-A3B-Instruct-2507", "qwen3:30b-a3b"),
    "qwen-2.5-7b": ("Qwen/Qwen2.5-7B", "Qwen/Qwen2.5-7B-Instruct", "qwen2.5:7b", "Qwen 2.5 7B"),
    "deepseek-v3": ("deepseek-ai/DeepSeek-V3", "deepseek-ai/DeepSeek-V3-0324", "deepseek-ai/DeepSeek-V3-Base", "DeepSeek V3"),
    "gpt-oss-120b": ("openai/gpt-oss-120b", "gpt_oss_120b"),
    "gpt-oss-20b": ("openai/gpt-oss-20b", "gpt-oss:20b"),
    "gpt-3-175b": ("gpt3-175b", "GPT-3 175B", "gpt3_175b"),
    "gpt-2": ("gpt2", "GPT 2", "openai-community/gpt2"),
}  # fmt: skip
OTHERS = {
    "sites": {
        "boardman": ("oregon", "US West (Oregon)", "us-west-2"), "ashburn": ("virginia", "N. Virginia", "US East (N. Virginia)", "eastus"),
        "columbus": ("ohio", "US East (Ohio)"), "dublin": ("ireland", "Europe (Ireland)", "North Europe"), "boydton": ("East US 2",),
        "frankfurt": ("Frankfurt", "Europe (Frankfurt)", "eu-central-1"), "london": ("UK South", "London"),
    },
    "accelerators": {
        "h100-sxm": ("H100", "h100sxm", "H100 SXM", "H100_SXM"), "a100-sxm-80gb": ("A100 80GB", "A100-SXM-80GB", "a100 sxm 80gb"),
        "mi300x": ("MI300X", "mi 300x"), "tpu-v5p": ("TPUv5p", "TPU v5p"), "rtx-4090": ("RTX4090", "rtx 4090"),
        "v100-sxm-32gb": ("Tesla V100-SXM2-32GB",),
    },
    "frameworks": {"megatron": ("Megatron-LM", "megatron lm"), "torchtitan": ("torch titan", "TorchTitan")},
}  # fmt: skip
CASES = [("models", text, name) for name, texts in MODELS.items() for text in texts]
CASES += [(kind, text, name) for kind, names in OTHERS.items() for name, texts in names.items() for text in texts]


def test_there_are_a_hundred_spellings():
    assert len(CASES) >= 100 and len({(kind, text) for kind, text, _ in CASES}) == len(CASES)


@pytest.mark.parametrize(("kind", "text", "name"), CASES, ids=str)
def test_a_spelling_is_found_by_questions_and_by_tables(kind, text, name):
    assert load.resolve(kind, text) == name
    assert load.resolve(kind, find_name(kind, text)) == name


@pytest.mark.parametrize(
    ("text", "base", "option"),
    [
        ("TheBloke/Llama-2-13B-GPTQ", "llama-2-13b", "--qlora"), ("unsloth/llama-3-8b-bnb-4bit", "llama-3-8b", "--frozen-weights nf4"),
        ("Qwen/Qwen2.5-7B-Instruct-AWQ", "qwen-2.5-7b", "--qlora"), ("llama3:70b-q4-k-m", "llama-3-70b", "--qlora"),
        ("some/Llama-2-7B-int8", "llama-2-7b", "--frozen-weights fp8"),
    ],
)  # fmt: skip
def test_quantised_weights_are_named_not_dropped(text, base, option):
    with pytest.raises(UnsupportedError, match="bits") as raised:
        load.resolve("models", text)
    assert base in str(raised.value) and option in str(raised.value)


@pytest.mark.parametrize(("text", "candidates"), [("13b", ("llama-2-13b", "gpt-3-13b")), ("70b", ("llama-3-70b", "llama-2-70b"))])
def test_a_size_alone_lists_its_models(text, candidates):
    with pytest.raises(UnknownNameError) as raised:
        load.resolve("models", text)
    assert all(name in str(raised.value) for name in candidates) and "\n" not in str(raised.value)


def test_another_model_is_never_taken(ask):
    for text in ("llama-4-70b", "qwen-3-9b", "mixtral-7x8b", "owner/own-model", "gpt-5"):
        assert ask("estimate", text, "--on", "h100", "--gpus", "8")[0] in (2, 3)
    status, out, error = ask("estimate", "meta-llama/Llama-3.1-8B-Instruct", "--on", "h100", "--gpus", "8", "--short")
    assert status == 0 and out.startswith("Llama 3.1 8B"), error


def test_every_catalogue_name_is_its_own_spelling():
    for kind in ("models", "accelerators", "sites", "frameworks"):
        assert all(load.resolve(kind, name) == name for name in load.names(kind))
