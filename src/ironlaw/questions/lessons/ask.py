"""What an optimisation can do here: each technique tried on the plan by the model itself, then composed in profile-select-compose order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ironlaw.errors import IronlawError, QuestionError, ValueRangeError
from ironlaw.question import options as words
from ironlaw.question.options import Option
from ironlaw.questions.answer import Answer, Column, Table, need, read

if TYPE_CHECKING:
    from ironlaw.estimate.answer import Estimate
    from ironlaw.questions.lessons.techniques import Technique

CLASSES = {"compute": "algorithm", "hbm": "machine", "network": "machine", "pipeline": "machine", "dispatch": "machine", "data": "data"}
WORTH = 0.005  # of the rate: below it nothing more is composed
OWN_TABLES = ("formats", "communication-tax", "fallacies", "eras", "joules")  # a module each in questions/tables
TABLES = ("optimizers", "checkpoints", "lora", *OWN_TABLES)


def percent(value: Any, flag: str) -> float:
    """A share: ``45%``, or ``0.45``."""
    from ironlaw import units

    share = units.parse(value, "1", flag)
    if not 0.0 <= share <= 1.0:
        raise ValueRangeError(f"{flag} is {value}, must be from 0 % to 100 %")
    return share


def shares(value: Any, flag: str) -> tuple[float, ...]:
    """A comma list of shares: ``0,0.05,15%``."""
    return tuple(percent(one, flag) for one in (value if isinstance(value, (list, tuple)) else str(value).split(",")))


OWN: dict[str, Option] = {
    "most": Option(words.whole, "techniques to compose, one after the other (default: 3)", "N"),
    "gpu_utilization": Option(percent, "measured: of the time, how much the accelerator was busy", "SHARE"),
    "memory_used": Option(percent, "measured: of the memory, how much was in use", "SHARE"),
    "out_of_memory": Option(words.switch, "measured: the run stopped for want of memory", "on|off"),
    "dataset": Option(words.positive("B"), "bytes of the data set, for the rule of thumb on scale", "SIZE"),
    "table": Option(
        words.one_of(TABLES),
        "optimizers (what each keeps), checkpoints (k segments, simple and exact), lora (adapters beside full), formats (of numbers), "
        "communication-tax (a curve, beside the estimate), fallacies, eras (runs and their costs), joules (of a byte)",
        "NAME",
    ),
    "shares": Option(shares, "with --table communication-tax: comma list of its r (default 0,0.05,0.15,0.4)", "LIST"),
}
_LEFT_OUT = ("evaluate_every", "evaluation_tokens", "checkpoint_every", "checkpoint_bandwidth", "mttf", "restart_time")
OPTIONS: dict[str, Option] = {**OWN, **{name: option for name, option in words.OPTIONS.items() if name not in _LEFT_OUT}}


def lessons(model: Any = None, on: str | None = None, **options: Any) -> Answer:
    """What each optimisation does to a plan: ``lessons("llama-3-8b", on="h100-sxm", gpus=64)``."""
    return ask({"model": model, "on": on, **options})


def ask(given: Mapping[str, Any], folders: tuple[str, ...] = ()) -> Answer:
    """The Answer of options as they were given."""
    values = read(given, OPTIONS, "lessons")
    own = {name: values.pop(name) for name in OWN if name in values}
    if "tokens" not in values and own.get("table") != "eras" and (unused := [name for name in ("price", "grid", "pue") if name in values]):
        raise QuestionError(f"--{unused[0]} has no effect without --tokens: give both")
    if "shares" in own and own.get("table") != "communication-tax":
        raise QuestionError("--shares has no effect without --table communication-tax: give both")
    if own.get("table") in OWN_TABLES:
        import importlib

        module = importlib.import_module(f"ironlaw.questions.lessons.tables.{own['table'].replace('-', '_')}")
        given = {**values, "shares": own["shares"]} if "shares" in own else values
        answer: Answer = module.table(given, folders)
        return answer
    if own.get("table") == "lora":
        from ironlaw.questions.lessons.adapters import adapters

        return adapters(values, folders)
    if "table" in own:
        return optimizers(folders) if own["table"] == "optimizers" else checkpoints(values, folders)
    if {"gpu_utilization", "memory_used", "out_of_memory"} & set(own) and "model" not in values:
        return flowchart(own, folders)
    need(values, "model", "on", "gpus")
    return advised(values, own, folders)


def advised(values: dict[str, Any], own: dict[str, Any], folders: tuple[str, ...]) -> Answer:
    """Profile the plan, try every technique on it, compose the best."""
    from ironlaw.estimate.answer import answer

    base = answer(values, folders)
    if base.rows > 1:
        raise QuestionError("lessons takes one plan: give one value for every option")
    row = base.row(0)
    if row["step"]["seconds"] is None:
        raise QuestionError(f"no such plan: {'; '.join(row['warnings'])}")
    held = {**values, **_words_of(row["plan"], values)}
    tried = try_all(held, row, folders)
    steps = compose(held, row, int(own.get("most", 3)), folders)
    bound, shares = row["bound"]["by"], row["bound"]["shares"]
    headline = [
        f"bound by {bound}, an {CLASSES[bound]} limit" if CLASSES[bound] == "algorithm" else f"bound by {bound}, a {CLASSES[bound]} limit",
        _best_line(tried, row),
    ]
    if "gpu_utilization" in own:
        headline.append(f"by the flowchart of utilisation alone (simplified): {classify(own)}")
    if "dataset" in own:
        headline.append(f"by the rule of thumb on scale (simplified): {scale_of(_parameters(base), own['dataset'])}")
    group, _ = base.place_of(0)
    return Answer(
        f"What optimisations do to {row['plan']['model']} on {row['plan']['gpus']} x {row['plan']['accelerator']}",
        headline,
        (_technique_table(tried), _compose_table(steps), _roof_table(shares)),
        (group.step.tree,),
        {"bound": bound, "dam": CLASSES[bound], "plan": row["plan"]},
        row["assumptions"],
        row["warnings"],
        row["memory"]["fits"] or any(item["fits"] for item in tried),
        folders,
    )


def _words_of(plan: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """A row's plan as options that give the same row again."""
    names = ("tp", "pp", "vpp", "cp", "ep", "etp", "dp_replicate", "dp_shard", "zero", "micro_batch_size", "global_batch_size", "seq_len")
    held: dict[str, Any] = {name: float(plan[name]) for name in names}
    held |= {"sp": plan["sp"], "recompute": plan["recompute"], "framework": plan["framework"], "overlap": frozenset(plan["overlap"])}
    return held | {name: values[name] for name in ("offload",) if name in values}


def try_all(held: dict[str, Any], row: Mapping[str, Any], folders: tuple[str, ...]) -> list[dict[str, Any]]:
    """Every technique alone on the plan: rate, memory, the bound of Amdahl's law, and what it clashes with; best first."""
    from ironlaw.questions.lessons.techniques import TECHNIQUES, clashes

    plan = {**row["plan"], "optimizer": held.get("optimizer", "adamw")}
    changes = {t.name: t.change(plan) for t in TECHNIQUES}
    made = []
    for technique in TECHNIQUES:
        change = changes[technique.name]
        if change is not None:
            made.append({**tried(technique, held, change, row, folders), "clashes": ", ".join(clashes(technique, changes))})
    return sorted(made, key=lambda item: (-item["fits"], -(item["gain"] if item["gain"] is not None else -2.0)))


def tried(
    technique: Technique, held: dict[str, Any], change: dict[str, Any], row: Mapping[str, Any], folders: tuple[str, ...]
) -> dict[str, Any]:
    """One technique on one plan. The rate counts tokens, so that a larger batch is compared fairly."""
    shares = row["bound"]["shares"]
    addressed = sum(shares[roof] for roof in technique.roofs)
    told: dict[str, Any] = {
        "technique": technique.name,
        "moves": technique.moves,
        "dam": technique.axis,
        "at_best": addressed / (1.0 - addressed) if technique.roofs and addressed < 1.0 else None,
        "gain": None,
        "memory": None,
        "fits": False,
        "why_not": "",
        "change": {name: sorted(v) if isinstance(v, frozenset) else v for name, v in change.items()},
    }
    found = _row({**held, **change}, folders)
    if isinstance(found, str):
        return {**told, "why_not": found}
    return {
        **told,
        "gain": found["throughput"]["tokens_per_second"] / row["throughput"]["tokens_per_second"] - 1.0,
        "memory": found["memory"]["device"] - row["memory"]["device"],
        "fits": found["memory"]["fits"],
        "why_not": "" if found["memory"]["fits"] else "does not fit",
    }


def _row(options: dict[str, Any], folders: tuple[str, ...]) -> dict[str, Any] | str:
    """The answer to changed options, or why there is none."""
    from ironlaw.estimate.answer import answer

    try:
        row = answer(options, folders).row(0)
    except IronlawError as error:
        return str(error)
    return row if row["step"]["seconds"] is not None else "; ".join(row["warnings"][-1:])


def compose(held: dict[str, Any], row: dict[str, Any], most: int, folders: tuple[str, ...]) -> list[dict[str, Any]]:
    """Profile, select the technique that gains most and fits, apply it, and profile again."""
    first, steps = row["throughput"]["tokens_per_second"], []
    for number in range(1, most + 1):
        best = next((t for t in try_all(held, row, folders) if t["fits"]), None)
        if best is None or best["gain"] is None or (best["gain"] < WORTH and row["memory"]["fits"]):
            break
        change = {name: frozenset(v) if name in ("overlap", "offload") else v for name, v in best["change"].items()}
        held = {**held, **change}
        found = _row(held, folders)
        if isinstance(found, str):
            break
        steps.append(
            {
                "step": number,
                "profile": row["bound"]["by"],
                "technique": best["technique"],
                "gain": best["gain"],
                "together": found["throughput"]["tokens_per_second"] / first - 1.0,
                "memory": found["memory"]["device"] / found["memory"]["capacity_bytes"],
                "seconds": found["step"]["seconds"],
            }
        )
        row = found
    return steps


def _best_line(tried: Sequence[Mapping[str, Any]], row: Mapping[str, Any]) -> str:
    fitting = [t for t in tried if t["fits"]]
    if not row["memory"]["fits"]:
        frees = [t["technique"] for t in fitting]
        return (
            f"it does not fit; alone, these make it: {', '.join(frees)}" if frees else "it does not fit, and no single technique makes it"
        )
    if not fitting or fitting[0]["gain"] < WORTH:
        return "no technique alone gains half a percent and fits: the plan is at its best here"
    return f"{fitting[0]['technique']} gains most: {fitting[0]['gain']:+.1%} tokens/s"


def classify(own: Mapping[str, Any]) -> str:
    """Document 003's flowchart: below 70 % busy the data, else out of memory or above 90 % of it the memory, else the computation."""
    if own.get("gpu_utilization", 1.0) < 0.7:
        return "data-bound"
    if own.get("out_of_memory") or own.get("memory_used", 0.0) > 0.9:
        return "memory-bound"
    return "compute-bound"


def scale_of(parameters: float, dataset: float) -> str:
    """Document 003's table: what a model and its data call for, by size alone."""
    if dataset > 10e12:
        return "multi-node + streaming"
    if parameters >= 10e9:
        return "multi-node cluster"
    return "single GPU" if parameters < 1e9 else "single node (1-8 GPUs)"


_FIXES = {
    "data-bound": "feed it: prefetch, more loader workers, faster storage; then profile again",
    "memory-bound": "make room: mixed precision, recomputation, accumulation, sharding; then profile again",
    "compute-bound": "use it: larger micro-batches, better kernels, lower precision; then profile again",
}


def flowchart(own: Mapping[str, Any], folders: tuple[str, ...]) -> Answer:
    """The verdict from utilisation alone, labelled as simplified."""
    verdict = classify(own)
    warnings = [
        "a busy accelerator may still wait for memory or network: utilisation counts any kernel; give the model for the full answer"
    ]
    return Answer(
        "Flowchart of utilisation (simplified)", [verdict, _FIXES[verdict]], values={"verdict": verdict}, warnings=warnings, folders=folders
    )


def _parameters(base: Estimate) -> float:
    from ironlaw.estimate.layer.counts import total_parameters

    return float(total_parameters(base.groups[0].job.model))


def _technique_table(tried: Sequence[Mapping[str, Any]]) -> Table:
    columns = (
        Column("technique", "technique"),
        Column("moves", "moves"),
        Column("dam", "class"),
        Column("gain", "tokens/s", "%"),
        Column("at_best", "at best", "%"),
        Column("memory", "memory", "B"),
        Column("fits", "fits"),
        Column("clashes", "instead of"),
        Column("why_not", ""),
    )
    return Table("techniques", "Each alone (at best: Amdahl's law over the roofs it is after)", columns, tried)


def _compose_table(steps: Sequence[Mapping[str, Any]]) -> Table:
    columns = (
        Column("step", "step", "1"),
        Column("profile", "bound"),
        Column("technique", "selected"),
        Column("gain", "gain", "%"),
        Column("together", "together", "%"),
        Column("memory", "memory used", "%"),
        Column("seconds", "step time", "s"),
    )
    return Table("composed", "Profile, select, compose", columns, steps)


def _roof_table(shares: Mapping[str, float]) -> Table:
    rows = [
        {"roof": roof, "dam": CLASSES[roof], "share": share, "at_best": share / (1.0 - share)}
        for roof, share in shares.items()
        if share > 0
    ]
    columns = (Column("roof", "roof"), Column("dam", "class"), Column("share", "of the step", "%"), Column("at_best", "without it", "%"))
    return Table("roofs", "What removing a roof whole would gain", columns, sorted(rows, key=lambda row: -row["share"]))


def optimizers(folders: tuple[str, ...]) -> Answer:
    """What each optimizer keeps and moves for a parameter."""
    from ironlaw.law.states import OPTIMIZERS

    rows = [
        {
            "optimizer": name,
            "states": kept.state_bytes,
            "master": kept.master_bytes,
            "static": 4.0 + kept.state_bytes + kept.master_bytes,
            "traffic": kept.traffic_bytes,
            "source": kept.source.partition(",")[0],
        }
        for name, kept in OPTIMIZERS.items()
    ]
    columns = (
        Column("optimizer", "optimizer"),
        Column("states", "states", "1"),
        Column("master", "master", "1"),
        Column("static", "all static", "1"),
        Column("traffic", "traffic a step", "1"),
        Column("source", "after"),
    )
    table = Table("optimizers", "Bytes a parameter, with 2-byte weights and gradients", columns, rows)
    return Answer(
        "Optimizers", ["sharding divides states and master weights by the ranks that share them (ZeRO 1)"], (table,), folders=folders
    )


def checkpoints(values: Mapping[str, Any], folders: tuple[str, ...]) -> Answer:
    """Recomputation from k checkpoints: the simple form, the exact one, and what is computed again."""
    from ironlaw.estimate.bind.model import bind_model
    from ironlaw.law import activations
    from ironlaw.terms import leaf

    need(values, "model")
    model, _ = bind_model(values["model"], folders)
    layers, length = float(model.num_hidden_layers), float(values.get("seq_len", min(model.max_position_embeddings, 8192)))
    batch = float(values.get("micro_batch_size", 1.0))
    layer = leaf(
        "one layer", activations.korthikanti_layer, "B", batch=batch, seq_len=length, hidden_size=float(model.hidden_size),
        num_attention_heads=float(model.num_attention_heads), tp=1.0, sp=0.0,
    )  # fmt: skip
    boundary = leaf(
        "one checkpoint", activations.checkpoint, "B", tokens=batch * length, hidden_size=float(model.hidden_size), tp=1.0, sp=0.0,
        bytes_per_element=2.0,
    )  # fmt: skip
    rows = []
    for interval in sorted({1.0, 2.0, 4.0, 8.0, float(round(float(activations.optimal_interval(layers)))), layers}):
        segments = -(-layers // interval)
        rows.append({
            "interval": interval,
            "checkpoints": segments,
            "simple": float(activations.checkpointed_simple(layers, interval, layer.value)),
            "exact": float(activations.checkpointed_exact(layers, interval, layer.value, boundary.value)),
            "again": float(activations.recomputed_layers(layers, segments) / layers) if interval < layers else 0.0,
        })  # fmt: skip
    columns = (
        Column("interval", "layers a segment", "1"),
        Column("checkpoints", "checkpoints", "1"),
        Column("simple", "simple form", "B"),
        Column("exact", "exact form", "B"),
        Column("again", "of a forward, again (simple form)", "%"),
    )
    best = min(rows, key=lambda row: row["exact"])
    return Answer(
        f"Recomputation of {model.name} in segments, one sequence of {length:g} tokens without flash attention",
        [
            f"the square-root rule says {activations.optimal_interval(layers):.2f} layers a segment, of the simple form, in which a"
            " checkpoint is as large as a layer",
            f"exactly, {best['interval']:g} a segment is least: a checkpoint is {boundary.value / layer.value:.1%} of a layer",
        ],
        (Table("checkpoints", "Memory of activations", columns, rows),),
        (layer, boundary),
        folders=folders,
    )
