"""Configurations of trainers in YAML or JSON: which trainer a file is for, by its keys, so that the refusal of the file says what it is."""

from __future__ import annotations

import re

# trainer, the framework that its run is asked with, and keys: of every group at least one is in the file; the first row that fits names it
TRAINERS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("torchtune", "torchtune", ("_component_",)),
    ("axolotl", "axolotl", ("base_model", "micro_batch_size|sequence_len|datasets")),
    ("LLaMA-Factory", "huggingface", ("finetuning_type|cutoff_len", "model_name_or_path|stage")),
    ("DeepSpeed", "deepspeed", ("zero_optimization|train_micro_batch_size_per_gpu|train_batch_size",)),
    ("Accelerate", "huggingface", ("compute_environment|mixed_precision", "distributed_type")),
    ("TRL or the Hugging Face Trainer", "trl", ("per_device_train_batch_size",)),
)
_KEY = re.compile(r"""^[\s{,-]*["']?(\w+)["']?\s*:""", re.MULTILINE)
_JSON_KEY = re.compile(r'"(\w+)"\s*:')


def trainer_of(text: str) -> str | None:
    """What a configuration is, and how its run is asked for; None for a text that is no configuration of a known trainer.

    >>> trainer_of("base_model: x/y\\nadapter: lora\\nmicro_batch_size: 2\\n")
    'a configuration of axolotl, which is not read: give its settings as options, with --framework axolotl'
    >>> trainer_of("step 1 loss: 2.0")
    """
    keys = {*_KEY.findall(text), *_JSON_KEY.findall(text)}
    for trainer, framework, groups in TRAINERS:
        if all(keys & set(group.split("|")) for group in groups):
            return f"a configuration of {trainer}, which is not read: give its settings as options, with --framework {framework}"
    return None
