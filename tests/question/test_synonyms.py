"""Names of other tools: each means one option, or is answered with the right one."""

from __future__ import annotations

import json
import re

import pytest

import ironlaw
from ironlaw.catalog import load
from ironlaw.errors import IronlawError, QuestionError
from ironlaw.question import defaults
from ironlaw.question.options import OPTIONS
from ironlaw.question.read import read_options
from ironlaw.question.synonyms import ANSWERS, COMPUTED, SETTINGS, SPELLINGS, is_synonym, resolve
from verbs import options

ASK = ("estimate", "llama-3-8b", "--on", "h100-sxm", "--gpus", "64")


def test_the_table_names_options_and_no_word_twice():
    assert set(SPELLINGS) <= set(OPTIONS)
    assert all(set(meant) <= set(OPTIONS) for meant in SETTINGS.values())
    words = [name for names in (*SPELLINGS.values(), *COMPUTED.values()) for name in names] + [*SETTINGS, *ANSWERS]
    assert len(words) == len(set(words))
    assert not set(words) & set(OPTIONS)
    for value in SETTINGS.values():  # every setting is a value that its option takes
        read_options(value)


@pytest.mark.parametrize(("option", "names"), SPELLINGS.items(), ids=SPELLINGS)
def test_another_spelling_is_the_option(option, names):
    for name in names:
        assert resolve({name: "7"}, OPTIONS) == {option: "7"}
        assert resolve({name.replace("_", "-"): "7"}, OPTIONS) == {option: "7"}
        with pytest.raises(QuestionError, match="give one of them"):
            resolve({name: "7", option: "8"}, OPTIONS)
        assert not is_synonym(name, ["nothing"])


@pytest.mark.parametrize(
    ("given", "means"),
    [
        ({"bf16": True}, {"precision": "bf16"}),
        ({"bf16": "off"}, {}),
        ({"gradient_checkpointing": "true"}, {"recompute": "full"}),
        ({"activation_checkpointing": "selective"}, {"recompute": "selective"}),
        ({"activation_checkpointing": False}, {"recompute": "none"}),
        ({"qlora": True}, {"lora_rank": 8, "frozen_weights": "nf4"}),
        ({"qlora": True, "lora_rank": 64}, {"lora_rank": 64, "frozen_weights": "nf4"}),
        ({"use_distributed_optimizer": True}, {"zero": 1}),
        # gpus = tp pp cp dp
        ({"dp": 8, "tp": 4, "pp": 2}, {"tp": 4, "pp": 2, "gpus": 64.0}),
        ({"dp": 8, "tp": 4, "pp": 2, "gpus": 128}, {"tp": 4, "pp": 2, "gpus": 128, "cp": 2.0}),
        ({"dp": 8, "zero": 0}, {"zero": 0, "dp_shard": 1.0, "dp_replicate": 8.0}),
        ({"dp": 8, "zero": 3}, {"zero": 3, "dp_shard": 8.0, "dp_replicate": 1.0}),
        ({"dp": 8, "dp_shard": 4, "dp_replicate": 2}, {"dp_shard": 4, "dp_replicate": 2}),
        # batch = micro-batch dp passes
        (
            {"gradient_accumulation_steps": 4, "micro_batch_size": 2, "dp": 8, "tp": 1, "pp": 1},
            {"micro_batch_size": 2, "tp": 1, "pp": 1, "gpus": 8.0, "global_batch_size": 64.0},
        ),
        (
            {"num_microbatches": "16", "mbs": "1", "gpus": "64", "tp": "2", "pp": "4", "cp": "1"},
            {"gpus": "64", "tp": "2", "pp": "4", "cp": "1", "micro_batch_size": "1", "global_batch_size": 128.0},
        ),
    ],
)
def test_a_name_of_another_tool_sets_exactly_what_it_means(given, means):
    assert resolve(given, OPTIONS) == means


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({"bf16": True, "precision": "fp8"}, "--bf16 and --precision both set --precision"),
        ({"dp": 8}, "--dp-shard N"),
        ({"dp": 8, "tp": 4, "pp": 2, "gpus": 100}, "is not 100 gpus"),
        ({"dp": 8, "tp": 4, "pp": 2, "gpus": 64, "cp": 2}, "is not 64 gpus"),
        ({"dp": 8, "dp_shard": 4, "dp_replicate": 4}, "is 16"),
        ({"dp": 2.5, "zero": 1}, "whole number"),
        ({"gradient_accumulation_steps": 4, "global_batch_size": 64}, "give one of them"),
        ({"gradient_accumulation_steps": 4, "micro_batch_size": 2}, "needs --dp"),
        ({"gradient_accumulation_steps": 4, "gpus": 8, "tp": 1, "pp": 1, "cp": 1}, "needs --micro-batch-size"),
        ({"qlora": "maybe"}, "must be on or off"),
        *(({name: 1}, f"--{name.replace('_', '-')} ") for name in ANSWERS),
    ],
)
def test_a_name_without_an_exact_meaning_is_answered(given, word):
    with pytest.raises(QuestionError, match="--") as told:
        resolve(given, OPTIONS)
    assert word in str(told.value) and "\n" not in str(told.value)


def test_every_answer_names_an_option_that_exists():
    for answer in ANSWERS.values():
        flags = [word.strip(",;:") for word in answer.split() if word.startswith("--")]
        verb = re.search(r"ironlaw (\w+) MODEL", answer)  # an answer that writes another verb's command has its options too
        known = {*OPTIONS, "format", "qlora", *(options(verb[1]) if verb else ())}
        assert all(flag[2:].replace("-", "_") in known for flag in flags), answer
        assert flags or "ironlaw catalog list" in answer


def test_an_answer_to_other_words_is_the_answer_to_ours(ask):
    ours = ask(*ASK, "--tp", "2", "--pp", "2", "--global-batch-size", "128", "--micro-batch-size", "1", "--seq-len", "4k",
               "--recompute", "full", "--precision", "bf16", "--cp", "1", "--json")  # fmt: skip
    theirs = ask("estimate", "llama-3-8b", "--accelerator", "h100-sxm", "--world-size", "64", "--tensor-model-parallel-size=2",
                 "--pipeline-parallel", "2", "--dp", "16", "--gradient-accumulation-steps", "8", "--mbs", "1", "--context-length", "4k",
                 "--activation-checkpointing", "--bf16", "--json")  # fmt: skip
    assert ours[0] == theirs[0] == 0
    ours, theirs = json.loads(ours[1]), json.loads(theirs[1])
    assert ours["step"] == theirs["step"] and ours["plan"] == theirs["plan"]


@pytest.mark.parametrize("verb", ["plan", "solve", "optimize", "money", "compare"])
def test_other_words_work_in_every_verb(ask, verb):
    held = ["--fix", "cp=1"] if verb == "plan" else []
    words = [verb, "llama-3-8b", "--on", "h100-sxm", "--num-gpus", "8", "--seq-length", "4k", "--gbs", "64", *held]
    words += ["--tokens", "1T"] if verb in ("solve", "money") else []
    status, out, err = ask(*words, "--json")
    assert status == 0, err
    assert json.loads(out)


def test_python_and_question_files_take_the_same_words(ask, tmp_path):
    asked = ironlaw.estimate("llama-3-8b", accelerator="h100-sxm", num_gpus=8, per_device_train_batch_size=1, seq_length=4096, bf16=True)
    same = ironlaw.estimate("llama-3-8b", on="h100-sxm", gpus=8, micro_batch_size=1, seq_len=4096, precision="bf16")
    assert asked.step_seconds[0] == same.step_seconds[0]
    with pytest.raises(IronlawError, match="batch_size has two readings"):
        ironlaw.estimate("llama-3-8b", on="h100-sxm", gpus=8, batch_size=64)
    path = tmp_path / "run.toml"
    path.write_text('model = "llama-3-8b"\naccelerator = "h100-sxm"\nnum_gpus = 8\nmicro_batch_size = 1\nseq_len = 4096\nbf16 = true\n')
    assert json.loads(ask("estimate", path, "--json")[1])["step"]["seconds"] == same.step_seconds[0]
    path.write_text('model = "llama-3-8b"\non = "h100-sxm"\ngpus = 8\nbatch_size = 8\n')
    status, out, err = ask("estimate", path)
    assert (status, out) == (2, "") and "batch_size in run.toml has two readings" in err


def test_an_option_of_the_verb_is_no_synonym(ask):
    """compare has its own --dp, roofline its own --batch."""
    status, _, err = ask("compare", "llama-3-8b", "--on", "h100-sxm", "--gpus", "8", "--dp", "4", "--three-roof", "as-printed")
    assert (status, err) == (0, "")


def test_the_word_of_a_trainer_counts_what_the_trainer_counts(ask):
    """TRL's per-device batch with DPO is pairs, of two sequences each; the page says both and which the trainer counts."""
    same = (
        "estimate",
        "llama-3-8b",
        "--on",
        "h100-sxm",
        "--gpus",
        "8",
        "--global-batch-size",
        "128",
        "--seq-len",
        "1024",
        "--framework",
        "trl",
    )
    status, pairs, _ = ask(*same, "--objective", "dpo", "--per-device-train-batch-size", "8")
    assert status == 0 and "micro-batch 8 pairs = 16 sequences (trl counts pairs)" in pairs
    assert ask(*same, "--objective", "dpo", "--micro-batch-size", "16")[1] == pairs
    alone = ask(*same, "--per-device-train-batch-size", "8", "--json")[1]
    assert json.loads(alone)["plan"]["micro_batch_size"] == 8
    nemo = ask(*same[:-1], "nemo", "--objective", "dpo", "--micro-batch-size", "16")[1]
    assert "micro-batch 8 pairs = 16 sequences" in nemo and "counts pairs" not in nemo
    status, _, err = ask(*same, "--objective", "dpo", "--per-device-train-batch-size", "many")
    assert status == 2 and err.count("\n") == 1 and "per-device-train-batch-size" in err


def test_examples_have_as_many_sequences_as_the_records_of_objectives_say(ask):
    assert {name: load.record("objectives", name).sequences for name in load.names("objectives")} == defaults.SEQUENCES_OF_AN_EXAMPLE
    status, _, err = ask(
        "estimate", "llama-3-8b", "--on", "h100-sxm", "--gpus", "8", "--objective", "mine", "--per-device-train-batch-size", "8"
    )
    assert status == 2 and err.count("\n") == 1 and "write --micro-batch-size, in sequences" in err
