"""MODEL as a trainer's configuration: its run as the options of a verb, with what was taken for granted told beside the answer."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from ironlaw.cli.output import print_note
from ironlaw.errors import speaking_of
from ironlaw.question.decisions import AXIS
from ironlaw.question.options import OPTIONS
from ironlaw.trainers.suffixes import may_be_file

SEARCHED = frozenset(
    name for name, option in OPTIONS.items() if option.search is AXIS or name in ("dp_replicate", "dp_shard", "ep", "recompute", "offload")
)  # what a search for plans chooses


def options_of_file(model: Any, flags: Mapping[str, Any], takes: Collection[str], searching: bool = False) -> dict[str, Any] | None:
    """The options that trainers' files give a verb that ``takes`` some; None where MODEL is no such file.

    ``searching``: a verb that looks for the plan keeps the job of the file, and leaves its plan open.
    """
    if not isinstance(model, str) or not may_be_file(model):
        return None
    from ironlaw.question.readers import whole
    from ironlaw.trainers.read import options_of_run

    gpus = flags.get("gpus")
    with speaking_of("gpus", gpus):
        several = isinstance(gpus, (list, tuple)) or (isinstance(gpus, str) and ("," in gpus or ".." in gpus))
        ranks = int(whole(gpus, "--gpus")) if gpus is not None and not several else None
    found = options_of_run(model, ranks, searching)
    if found is None:
        return None
    options, said = found
    for line in said:
        print_note(line)
    dropped = [name for name in options if name not in takes or (searching and name in SEARCHED)]
    if searching and dropped:
        print_note(f"the plan of the file is left open: {', '.join(name for name in dropped if name in SEARCHED)}")
    return {name: value for name, value in options.items() if name not in dropped and (name == "model" or name not in flags)}
