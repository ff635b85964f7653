"""Configurations of trainers where a measurement or a model is asked for: the refusal says what the file is, and who reads it."""

from __future__ import annotations

import re

# trainer, and keys: of every group at least one is in the file; the first row that fits names it
TRAINERS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("torchtune", ("_component_",)),
    ("axolotl", ("base_model", "micro_batch_size|sequence_len|datasets")),
    ("LLaMA-Factory", ("finetuning_type|cutoff_len", "model_name_or_path|stage")),
    ("DeepSpeed", ("zero_optimization|train_micro_batch_size_per_gpu|train_batch_size",)),
    ("Accelerate", ("compute_environment|mixed_precision", "distributed_type")),
    ("TRL or the Hugging Face Trainer", ("per_device_train_batch_size",)),
)
_KEY = re.compile(r"""^[\s{,-]*["']?(\w+)["']?\s*:""", re.MULTILINE)
_JSON_KEY = re.compile(r'"(\w+)"\s*:')


def trainer_of(text: str) -> str | None:
    """What a configuration is, and how its run is asked for; None for a text that is no configuration of a known trainer.

    >>> trainer_of("base_model: x/y\\nadapter: lora\\nmicro_batch_size: 2\\n")
    'a configuration of axolotl, of a run and no measurement: ironlaw read FILE says what it means, ironlaw estimate FILE asks for its run'
    >>> trainer_of("step 1 loss: 2.0")
    """
    keys = {*_KEY.findall(text), *_JSON_KEY.findall(text)}
    for trainer, groups in TRAINERS:
        if all(keys & set(group.split("|")) for group in groups):
            asks = "ironlaw read FILE says what it means, ironlaw estimate FILE asks for its run"
            return f"a configuration of {trainer}, of a run and no measurement: {asks}"
    return None
