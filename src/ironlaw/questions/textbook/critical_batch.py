"""The critical batch as the study of ten sites computes it."""

from __future__ import annotations

from typing import Any

from ironlaw.cautions.record import Sentence
from ironlaw.law import batches
from ironlaw.questions.answer import Answer
from ironlaw.questions.scaling.ask import bind_size
from ironlaw.terms import leaf
from ironlaw.units import show


def ask_critical_batch(values: dict[str, Any], folders: tuple[str, ...]) -> Answer:
    """The critical batch of the study; it uses parameters for compute and tokens for sequences."""
    size = bind_size(values, folders)
    batch = leaf("mistaken batch", batches.batch_of_parameters, "token", parameters=size.active, seq_len=4096.0)
    text = f"the study of ten sites gives {show(batch.value, 'token')}: it uses parameters for compute and tokens for sequences"
    line = Sentence(text, "critical-batch", {"tokens": float(batch.value)})
    return Answer(f"critical batch of {size.name}", [line], terms=[batch], assumptions=size.assumptions, folders=folders)
