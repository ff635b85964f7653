"""A Megatron-LM script as a reading: its own reader gives the options, and the lines of its flags are found by their names."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from ironlaw.errors import InputError, MissingOptionError, QuestionError
from ironlaw.files import read_text
from ironlaw.launch.flags import MEGATRON
from ironlaw.launch.megatron.options import options_from_script
from ironlaw.trainers.entries import Parsed
from ironlaw.trainers.walk import Fact, Told

MARKS = ("num_layers", "hidden_size", "tensor_model_parallel_size", "micro_batch_size")
FLAGS = {flag.option: flag.spelling for flag in MEGATRON} | {
    "recompute": "--recompute-granularity", "sp": "--sequence-parallel", "zero": "--use-distributed-optimizer",
    "vpp": "--num-layers-per-virtual",
    "precision": "--bf16", "optimizer": "--optimizer", "model": "--num-layers", "etp": "--expert-tensor-parallel-size",
    "offload": "--optimizer-cpu-offload", "gradient_dtype": "--grad-reduce-in-bf16", "overlap": "--overlap-grad-reduce",
}  # fmt: skip


def is_megatron(parsed: Parsed) -> bool:
    """True for a script with the arguments of Megatron-LM."""
    return parsed.syntax == "shell" and len({entry.key for entry in parsed.entries} & set(MARKS)) >= 2


def read_script(path: Path, gpus: int | None) -> dict[str, Any]:
    """What a script says, by the fields of a ``Reading``."""
    text = read_text(path, "a launch script")
    lines = text.splitlines()
    told: list[Told] = []
    options: dict[str, Any] = {}
    rules: list[str] = []
    needed: list[str] = []
    try:
        options, rules = options_from_script(text, gpus, "")
    except MissingOptionError as error:
        needed.append("gpus" if "--gpus" in str(error) else "model")
        if needed == ["model"]:
            told.append(Told(str(error), "arguments", None, path.name, 1, 1, "cannot-run"))
    except QuestionError as error:
        word = next((word for word in re.sub(r"[:;,]", " ", str(error)).split() if word.startswith("--")), "")
        told.append(Told(str(error), word or "arguments", None, path.name, *_place(lines, word), "cannot-run"))
    except InputError as error:
        raise InputError(f"{path.name}:1: {error}") from None
    options.pop("on", None)
    origin = {}
    for option, spelling in FLAGS.items():
        if option in options and (line := _place(lines, spelling))[0]:
            origin[option] = Fact(options[option], path.name, spelling, *line, options[option])
    return {
        "options": options,
        "origin": origin,
        "refused": tuple(told),
        "assumed": tuple(Told(rule) for rule in rules),
        "needed": tuple(needed),
    }


def _place(lines: list[str], spelling: str) -> tuple[int, int]:
    """Line and column of the first mention of a flag; 0 where there is none."""
    return next(((number, line.index(spelling) + 1) for number, line in enumerate(lines, 1) if spelling and spelling in line), (0, 0))
