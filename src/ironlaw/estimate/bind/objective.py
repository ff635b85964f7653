"""The objective of a question: its record, the teacher of a distillation, and what the two refuse."""

from __future__ import annotations

from typing import Any

from ironlaw.catalog import load
from ironlaw.catalog.model import Model
from ironlaw.catalog.records import Objective
from ironlaw.errors import QuestionError, UnsupportedError
from ironlaw.estimate.bind.model import bind_model, plain_model
from ironlaw.estimate.pipeline.schedules import SCHEDULES
from ironlaw.question import defaults
from ironlaw.question.asked import Asked
from ironlaw.question.assumptions import Assumptions, assume

VOCABULARIES = 0.01  # by how much two vocabularies may differ: padding of one of them


def bind_objective(asked: Asked, folders: tuple[str, ...], notes: Assumptions) -> tuple[Objective | None, Model | None]:
    """The objective, None where a step is that of the next token, and the teacher, None where there is none."""
    _check_adapter(asked)
    record = load.record("objectives", asked.objective or "next-token", folders)
    if record.reference != "teacher" and asked.teacher is not None:
        raise QuestionError(f"--teacher: --objective {record.name} has no teacher; give --objective distillation, or leave --teacher out")
    if asked.precomputed_reference and record.reference != "policy":
        raise QuestionError(f"--precomputed-reference on: --objective {record.name} has no frozen reference; leave the option out")
    if record.reference == "teacher" and asked.teacher is None:
        raise QuestionError(f"--objective {record.name}: give the model whose logits it learns as --teacher MODEL")
    if record.is_plain:
        return None, None
    if asked.schedule is not None and not runs_passes_of(record, asked.schedule):
        raise UnsupportedError(f"--schedule {asked.schedule} is not modelled with --objective {record.name}: use 1f1b or interleaved")
    if record.reference == "policy" and not asked.precomputed_reference:
        copy = "the frozen weights without the adapters" if asked.lora_rank else "a frozen copy of the model, sharded as the model is"
        assume(notes, "reference", f"{copy}; its forward pass runs in every step", "default")
    return record, None if asked.teacher is None else plain_model(bind_model(asked.teacher, folders)[0])


def runs_passes_of(objective: Objective | None, schedule: str) -> bool:
    """Whether the passes that an objective runs beside the training are modelled with a schedule: not with one of two directions."""
    return objective is None or not objective.reference_passes or SCHEDULES[schedule].stages_per_rank == 1.0


def check_teacher(teacher: Model | None, model: Model) -> None:
    """Raise QuestionError where a teacher has another vocabulary: the loss compares logits word by word."""
    if teacher is not None and abs(teacher.vocab_size - model.vocab_size) > VOCABULARIES * model.vocab_size:
        raise QuestionError(
            f"--teacher {teacher.name} has {teacher.vocab_size:,} words, {model.name} {model.vocab_size:,}: distillation from logits needs"
            " one vocabulary"
        )


def scored(model: Model, objective: Objective | None) -> Model:
    """A model with the output layer of its objective: one score of a token instead of logits."""
    if objective is None or not objective.scores:
        return model
    return model.replace(scores=1, tie_word_embeddings=False, output_bias=False, num_nextn_predict_layers=0)


def _check_adapter(asked: Asked) -> None:
    """Refuse kinds of adapter where they are not modelled."""
    if asked.adapter == defaults.ADAPTERS[0]:
        return
    if not asked.lora_rank:
        raise QuestionError(f"--adapter {asked.adapter}: give the rank of the adapters as --lora-rank")
    unread: set[Any] = {"experts", "all"} & set(asked.lora_targets.split(","))
    if "experts" in unread:
        raise UnsupportedError(f"--adapter {asked.adapter} is not modelled on routed experts: give --lora-targets attention,mlp")
