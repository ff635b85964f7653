"""The slide of a comparison: five accelerators at three counts, as one command. A figure is the least of three runs: others share the machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass

from figures import Figure, WrongError

ON = "h100-sxm,b200-sxm,gb200,mi300x,tpu-v5p"
RUNS = 3


@dataclass(frozen=True)
class Slide:
    """A comparison and its budget."""

    name: str
    words: tuple[str, ...]
    seconds: float  # of CPU, at most


SLIDES = (
    Slide("llama-3-70b, 5 accelerators x 3 counts", ("llama-3-70b", "--gpus", "512,1024,2048", "--tokens", "15T"), 5.0),
    Slide(
        "deepseek-v3 fp8, 5 accelerators x 3 counts",
        ("deepseek-v3", "--gpus", "512,1024,2048", "--precision", "fp8", "--tokens", "15T"),
        20.0,
    ),
)


def figures() -> list[Figure]:
    """CPU seconds of each slide, whose output is the same in every run."""
    found = []
    for slide in SLIDES:
        taken, printed = zip(*(_run(slide) for _ in range(RUNS)), strict=True)
        if len(set(printed)) > 1:
            raise WrongError(f"{slide.name}: two runs print different numbers")
        rows = json.loads(printed[0])["estimate"]
        if len(rows) != 15 or not all(row["answer"] for row in rows):
            raise WrongError(f"{slide.name}: {len(rows)} rows, not all of which have a plan")
        found.append(Figure(slide.name, "command", min(taken), "s CPU", slide.seconds))
    return found


def _run(slide: Slide) -> tuple[float, str]:
    """CPU seconds of a command, and what it prints."""
    command = [sys.executable, "-m", "ironlaw", "compare", *slide.words, "--on", ON, "--json"]
    before = os.times()
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system, printed
