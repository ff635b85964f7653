"""Write docs/scaling-of-defaults.md: the MFU of the plan that ironlaw chooses, over numbers of accelerators.

    python tools/scaling_of_defaults.py                    estimate every cell, write the page
    python tools/scaling_of_defaults.py --models llama-3-8b,llama-3-70b    make only these models; the page names those that are missing
    python tools/scaling_of_defaults.py --keep             use rows that another state of the code has made

Every row is written to build/scaling-of-defaults.jsonl as soon as it is known. A call that was stopped goes on where it was. Rows of
another state of the code are made again. Models are estimated in processes of their own, one for each core (``--jobs``).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "scaling-of-defaults.md"
ROWS = ROOT / "build" / "scaling-of-defaults.jsonl"
MADE_BY = "<!-- written by tools/scaling_of_defaults.py; edit the code it reads, not this page -->"

MODELS = ("llama-3-8b", "llama-3-70b", "qwen-3-235b-a22b", "deepseek-v3")
DEVICES = {"h100-sxm": "H100", "b200-sxm": "B200", "gb200": "GB200", "mi300x": "MI300X", "tpu-v5p": "TPU v5p"}
COUNTS = (
    8, 16, 24, 32, 48, 64, 72, 96, 128, 144, 192, 200, 256, 320, 384, 480, 512, 576, 640, 768,
    896, 1000, 1024, 1280, 1536, 1920, 2000, 2048, 2304, 2560, 3072, 3584, 4096, 5000, 6144, 7168, 8192, 10240, 12288, 16384,
)  # fmt: skip
AWKWARD = (  # numbers that people have, among round ones to compare them with
    1000, 1024, 1100, 1200, 1280, 1300, 1400, 1500, 1536, 1600, 1700, 1792, 1800, 1900, 1920, 2000, 2003, 2048, 2100, 2200, 2304, 2400, 2500,
    2560, 2700, 2800, 3000, 3072, 3200, 3300, 3500, 3584, 3600, 4000, 4096, 4200, 4500, 4800, 5000, 5120, 5500, 6000, 6144, 6400, 7000, 7168,
    7500, 8000, 8191, 8192, 9000, 10000, 10240, 11000, 12000, 12288, 13000, 14000, 14336, 15000, 16000, 16384,
)  # fmt: skip
AWKWARD_OF = (("llama-3-70b", "h100-sxm"), ("deepseek-v3", "h100-sxm"))
AWKWARD_KIND = "awkward"
FALL = 0.10  # of the MFU of the better neighbour: a larger fall must be named, with its remedy
SEQUENCES = 4  # of each accelerator, where the work of each is equal
EQUAL, FIXED = "equal", "fixed"
LARGE = 0.15  # of the MFU: a larger difference of neighbours at equal work is listed with its causes
COVERED = 0.8  # of a fall: the terms that are named have grown by at least so much of it
MOST_NAMED = 8

NETWORK = {  # collectives by the node of the step that holds them
    "tensor parallel": "t", "context parallel": "c", "expert parallel": "e", "sharded data parallel": "s", "stage to stage": "i",
    "exposed gradient reduction": "g", "exposed weight gather": "w", "stragglers and jitter": "j",
}  # fmt: skip
OTHER = {"kernels": "k", "memory_bound": "m", "recomputation": "r", "pipeline": "p", "host": "h", "data": "d", "rest": "u", "network": "n"}
WORDS = {
    "t": "tensor-parallel collectives", "c": "context-parallel collectives", "e": "expert-parallel exchanges",
    "s": "gathers and reductions of sharded weights", "i": "hand-overs between stages", "g": "gradient reduction that nothing hides",
    "w": "gathers of weights that nothing hides", "j": "stragglers and jitter", "n": "other communication",
    "k": "GEMMs slower than peak", "m": "memory-bound work", "r": "recomputation", "p": "pipeline bubble (few micro-batches for a pipeline)",
    "h": "host, optimizer on the host, fixed per-step overhead", "d": "data", "u": "unequal stages and padding",
}  # fmt: skip

Row = Mapping[str, Any]
Key = tuple[str, str, int, str]


def cell(model: str, on: str, gpus: int, kind: str) -> dict[str, Any]:
    """One estimate with its plan left open: MFU, batch, losses by letter, and the plan; ``refused`` where there is none."""
    from ironlaw import estimate
    from ironlaw.errors import IronlawError

    row: dict[str, Any] = {"model": model, "on": on, "gpus": gpus, "kind": kind}
    try:
        found = estimate(model, on=on, gpus=gpus, **({"global_batch_size": SEQUENCES * gpus} if kind == EQUAL else {}))
    except IronlawError as error:
        return {**row, "refused": str(error)}
    if not found.fits[0]:
        return {**row, "refused": "does not fit" if found.legal[0] else "no plan is legal"}
    group, plan = found.groups[0], found.row(0)["plan"]
    return {
        **row,
        "mfu": float(found.mfu[0]),
        "batch": float(np.ravel(group.plan.global_batch_size)[0]),
        "remedies": [str(line) for line in group.warnings if line.code in ("fewer-accelerators", "batch-over-limit")],
        "losses": losses_of(group),
        "plan": short_plan(plan, np.ravel(group.plan.num_microbatches)[0]),
    }


def losses_of(group: Any) -> dict[str, float]:
    """Losses between the peak and the MFU as shares of the step, by letter; with the MFU and the mask of attention they add up to 1."""
    falls = {name: float(np.ravel(value)[0]) for name, value in group.waterfall.items()}
    sent = network_parts(group.step.tree)
    seconds = float(np.ravel(group.step.tree.value)[0])
    losses = {OTHER[name]: value for name, value in falls.items() if name in OTHER and name != "network"}
    losses |= {letter: value / seconds for letter, value in sent.items()}
    losses["n"] = falls["network"] - sum(sent.values()) / seconds
    return losses


def network_parts(tree: Any) -> dict[str, float]:
    """Seconds of a step on the network, by the letter of the node that sends."""
    sums: dict[str, float] = {}

    def visit(node: Any, factor: float, letter: str | None) -> None:
        letter = NETWORK.get(node.name, letter)
        if node.parts:
            for part in node.parts:
                visit(part, factor * float(np.ravel(node.times)[0]), letter)
        elif letter is not None and node.bound is not None:
            bound = node.bound if isinstance(node.bound, str) else ("compute", "hbm", "network")[min(int(np.ravel(node.bound)[0]), 2)]
            if bound == "network":
                sums[letter] = sums.get(letter, 0.0) + float(np.ravel(node.value)[0]) * factor

    visit(tree, 1.0, None)
    return sums


def short_plan(plan: Row, micro_batches: float) -> str:
    """The axes of a plan that are not 1, and what it recomputes and offloads."""
    axes = [f"{name} {plan[name]:g}" for name in ("tp", "pp", "vpp", "cp", "ep") if plan[name] > 1]
    words = [*axes, f"ZeRO {plan['zero']:g}", f"{micro_batches:g} micro-batches of {plan['micro_batch_size']:g}"]
    words += [f"recompute {plan['recompute']}"] if plan["recompute"] != "none" else []
    return ", ".join([*words, *(f"{name} on the host" for name in plan["offload"])])


# What a fall is made of


def fall(before: Row, after: Row) -> float:
    """The relative fall of the MFU; negative where it grows."""
    return 1.0 - float(after["mfu"]) / float(before["mfu"])


def causes(before: Row, after: Row) -> list[tuple[str, float]]:
    """The losses that grew most, with the share of the fall that each makes, until COVERED of it is accounted for.

    Accelerator time per model FLOP is 1 / MFU in units of the peak. A loss that is the share x of a step adds x / MFU to it.
    """
    longer = 1.0 / after["mfu"] - 1.0 / before["mfu"]
    letters = {*before["losses"], *after["losses"]}
    grown = {a: after["losses"].get(a, 0.0) / after["mfu"] - before["losses"].get(a, 0.0) / before["mfu"] for a in letters}
    found: list[tuple[str, float]] = []
    for letter in sorted(grown, key=lambda a: (-grown[a], a)):
        if sum(share for _, share in found) >= COVERED or len(found) == MOST_NAMED:
            break
        found.append((letter, grown[letter] / longer))
    return found


def is_accounted(named: Sequence[tuple[str, float]]) -> bool:
    """True where the named losses make up the fall."""
    return sum(share for _, share in named) >= COVERED


# The page


def neighbours(rows: Mapping[Key, Row], model: str, on: str, kind: str) -> Iterator[tuple[Row, Row]]:
    """Rows of neighbouring counts that have a plan."""
    has = [rows[model, on, gpus, kind] for gpus in COUNTS if "mfu" in rows[model, on, gpus, kind]]
    return pairwise(has)


def models_of(rows: Mapping[Key, Row]) -> list[str]:
    """The models that have a column whose every cell is made."""
    return [model for model in MODELS if devices_of(rows, model)]


def devices_of(rows: Mapping[Key, Row], model: str) -> list[str]:
    """The accelerators of a model whose every cell is made: its columns."""
    return [on for on in DEVICES if all((model, on, *rest) in rows for rest in product(COUNTS, (EQUAL, FIXED)))]


def page(rows: Mapping[Key, Row]) -> str:
    """The page of all columns (a model on an accelerator) whose every cell is made."""
    parts = [MADE_BY, HEAD.format(sequences=SEQUENCES, large=f"{LARGE:.0%}", covered=f"{COVERED:.0%}")]
    if missing := missing_columns(rows):
        parts.append(f"Not made since the rules of the plan last changed: {missing}. The command above makes what is missing.")
    parts.append("| letter | loss |\n| --- | --- |\n" + "\n".join(f"| {letter} | {word} |" for letter, word in sorted(WORDS.items())))
    parts.append(f"## Neighbours that differ by more than {LARGE:.0%} at equal work\n\n{large_changes(rows)}")
    for model in models_of(rows):
        parts.append(
            f"## {title_of(model)}\n\n### At equal work: {SEQUENCES} sequences for each accelerator\n\n{table(rows, model, EQUAL)}"
        )
        parts.append(f"### At the default batch\n\n{table(rows, model, FIXED)}")
    if all(key in rows for key in awkward_keys()):
        parts.append(f"## Awkward numbers\n\n{awkward_table(rows)}")
    else:
        parts.append("## Awkward numbers\n\nNot made since the rules of the plan last changed.")
    return "\n\n".join(parts) + "\n"


def missing_columns(rows: Mapping[Key, Row]) -> str:
    """The columns that the page lacks, by model, for a sentence."""
    lacks = {model: [DEVICES[on] for on in DEVICES if on not in devices_of(rows, model)] for model in MODELS}
    return "; ".join(f"{title_of(model)} on {', '.join(names)}" for model, names in lacks.items() if names)


HEAD = """\
# The chosen plan, from 8 to 16,384 accelerators

Nothing but the model, the accelerator and their number is given; ironlaw chooses the plan, as `ironlaw estimate MODEL --on ACCELERATOR \
--gpus N` does. A cell is the MFU of the chosen plan in per cent. An awkward number of accelerators should cost no more than the laws say.

`python tools/scaling_of_defaults.py` makes this page. The command goes on where it was stopped.

- **At equal work** the batch grows with the number of accelerators: {sequences} sequences for each.
- **At the default batch** the question gives no batch. It starts at 4 Mi tokens and grows where that pays, up to a limit
  ([the rule](rules.md#the-batch)).
- **Awkward numbers** have few divisors. A star marks an answer that names how many accelerators to leave idle, and what that gives.

The letters behind a number say why it is lower than the number above it. They name the losses that grew most, the largest first, until they
make up {covered} of the fall; `?` would mark a fall that they do not account for. A loss is counted in accelerator time for each model FLOP.
`-` means that no plan fits, or that none is legal."""


def title_of(model: str) -> str:
    """The name of a model that people read."""
    from ironlaw.estimate.bind.model import bind_model

    return str(bind_model(model, ())[0].title)


def letters(named: Sequence[tuple[str, float]]) -> str:
    """The letters of the losses that make up a fall."""
    return "".join(letter for letter, _ in named) + ("" if is_accounted(named) else "?")


def table(rows: Mapping[Key, Row], model: str, kind: str) -> str:
    """MFU by count and accelerator, each fall with its letters."""
    made = devices_of(rows, model)
    why = {(b["on"], b["gpus"]): letters(causes(a, b)) for on in made for a, b in neighbours(rows, model, on, kind) if fall(a, b) > 0.0}
    lines = ["| accelerators | " + " | ".join(DEVICES[on] for on in made) + " |", "| ---: |" + " --- |" * len(made)]
    for gpus in COUNTS:
        cells = []
        for on in made:
            row = rows[model, on, gpus, kind]
            cells.append(f"{100.0 * row['mfu']:.1f} {why.get((on, gpus), '')}".strip() if "mfu" in row else "-")
        lines.append(f"| {gpus:,} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def unnamed_falls(rows: Sequence[Row]) -> list[Row]:
    """Of rows of one model and accelerator in the order of their counts, those whose MFU is more than FALL below the better of two neighbours.

    An answer that names what to do instead is not among them.
    """
    found = []
    for at, row in enumerate(rows):
        near = [other["mfu"] for other in rows[max(at - 1, 0) : at + 2] if other is not row and "mfu" in other]
        if "mfu" in row and near and row["mfu"] < (1.0 - FALL) * max(near) and not row["remedies"]:
            found.append(row)
    return found


def awkward_table(rows: Mapping[Key, Row]) -> str:
    """MFU and batch at awkward numbers at the default batch, and the falls that no answer names."""
    heads = [f"{title_of(model)} on {DEVICES[on]} | sequences" for model, on in AWKWARD_OF]
    lines = ["| accelerators | " + " | ".join(heads) + " |", "| ---: |" + " ---: | ---: |" * len(AWKWARD_OF)]
    for gpus in AWKWARD:
        cells = []
        for model, on in AWKWARD_OF:
            row = rows[model, on, gpus, AWKWARD_KIND]
            cells.append(f"{100.0 * row['mfu']:.1f}{'*' * bool(row['remedies'])} | {row['batch']:,.0f}" if "mfu" in row else "- | -")
        lines.append(f"| {gpus:,} | " + " | ".join(cells) + " |")
    falls = [row for of in AWKWARD_OF for row in unnamed_falls([rows[(*of, gpus, AWKWARD_KIND)] for gpus in AWKWARD])]
    named = ", ".join(f"{title_of(row['model'])} on {row['gpus']:,}" for row in falls) or "none"
    return "\n".join(lines) + f"\n\nMore than {FALL:.0%} below the better neighbour without a line that says what to do: {named}."


def large_changes(rows: Mapping[Key, Row]) -> str:
    """Each change of more than LARGE between neighbours at equal work, with the losses that make it and both plans."""
    lines = []
    for model, on in ((model, on) for model in models_of(rows) for on in devices_of(rows, model)):
        for before, after in neighbours(rows, model, on, EQUAL):
            lower, higher = (after, before) if fall(before, after) > 0.0 else (before, after)
            if fall(higher, lower) > LARGE:
                what = ", ".join(f"{WORDS[letter]} ({share:.0%} of it)" for letter, share in causes(higher, lower))
                lines.append(
                    f"- {title_of(model)} on {DEVICES[on]}, {before['gpus']:,} to {after['gpus']:,}: {before['mfu']:.1%} to {after['mfu']:.1%}."
                    f" What makes {lower['gpus']:,} slower: {what}. Plans: {before['plan']}; then {after['plan']}."
                )
    return "\n".join(lines) or "There is none."


# Making the rows


def keys(models: Iterable[str] = MODELS) -> list[Key]:
    """Every cell: model, accelerator, count, kind of batch."""
    return list(product(models, DEVICES, COUNTS, (EQUAL, FIXED)))


def awkward_keys(models: Iterable[str] = MODELS) -> list[Key]:
    """The cells at awkward numbers."""
    return [(*of, gpus, AWKWARD_KIND) for of in AWKWARD_OF if of[0] in models for gpus in AWKWARD]


def state_of_code() -> str:
    """A digest of the code and the catalogue that answers depend on."""
    digest = hashlib.sha256()
    rooms = ("catalog", "estimate", "law", "question")
    for path in sorted(p for room in rooms for p in (ROOT / "src" / "ironlaw" / room).rglob("*") if p.suffix in (".py", ".toml")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def read_rows(state: str | None) -> dict[Key, Row]:
    """The rows that are made; of a state of the code, or of any (None). Of several the last."""
    rows = [json.loads(line) for line in ROWS.read_text(encoding="utf-8").splitlines()] if ROWS.is_file() else []
    return {(r["model"], r["on"], r["gpus"], r["kind"]): r for r in rows if state in (None, r["state"])}


def make_rows(wanted: Sequence[Key], state: str, jobs: int) -> None:
    """Estimate cells in processes; each row is written when it is known."""
    ROWS.parent.mkdir(exist_ok=True)
    os.environ["OMP_NUM_THREADS"] = "1"
    with ProcessPoolExecutor(jobs) as pool, ROWS.open("a", encoding="utf-8") as file:
        for future in as_completed([pool.submit(cell, *key) for key in wanted]):
            file.write(json.dumps({**future.result(), "state": state}) + "\n")
            file.flush()


def main() -> int:
    """Make what is missing, then write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--keep", action="store_true", help="use rows that another state of the code has made")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_args()
    state = state_of_code()
    known, models = read_rows(None if options.keep else state), options.models.split(",")
    make_rows([key for key in (*keys(models), *awkward_keys(models)) if key not in known], state, options.jobs)
    rows = read_rows(None if options.keep else state)
    PAGE.write_text(page(rows), encoding="utf-8")
    missing = [key for key in (*keys(), *awkward_keys()) if key not in rows]
    if missing:
        print(
            f"{len(missing)} of {len(keys()) + len(awkward_keys())} cells are not made yet: the page has {', '.join(models_of(rows)) or 'no model'}"
        )
    return 1 if missing else 0


if __name__ == "__main__":
    raise SystemExit(main())
