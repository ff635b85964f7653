"""Fallacies and pitfalls of training, each beside the number the model itself gives."""

from __future__ import annotations

from typing import Any

from ironlaw import units
from ironlaw.errors import QuestionError
from ironlaw.law import batches, dataloading, flops, formats, scaling, states
from ironlaw.question.assumptions import assume
from ironlaw.questions.answer import Answer, Column, Table
from ironlaw.terms import Term, leaf

MODEL, ON = "gpt-2", "a100-sxm-80gb"
COLUMNS = (Column("fallacy", "what is believed"), Column("said", "what is so"), Column("command", "asked by"))


def table(values: dict[str, Any], folders: tuple[str, ...]) -> Answer:
    """All of them, for a small model and one kind of accelerator, or those that are asked."""
    notes: list[dict[str, Any]] = []
    asked = {"model": MODEL, "on": ON, **values}
    for name in ("model", "on"):
        if name not in values:
            assume(notes, name, asked[name], "default")
    if "gpus" in asked:
        raise QuestionError("--table fallacies compares 1 and 8 accelerators: leave out --gpus")
    asked.setdefault("global_batch_size", 64.0)
    terms: list[Term] = []
    rows = [*_size(terms), *_count(asked, folders), *_rate(terms), *_precision(asked, terms, folders), *_accumulate(asked, folders)]
    rows += _data(terms)
    headline = [f"{len(rows)} beliefs, each beside what the laws and the estimate say of it", f"{rows[0]['fallacy']}: {rows[0]['said']}"]
    return Answer(
        "Fallacies and pitfalls", headline, (Table("fallacies", "Believed, and so", COLUMNS, rows),), terms, {}, notes, folders=folders
    )


def _row(key: str, fallacy: str, said: str, command: str, **numbers: float) -> dict[str, Any]:
    return {"key": key, "fallacy": fallacy, "said": said, "command": command, **numbers}


def _size(terms: list[Term]) -> list[dict[str, Any]]:
    """20B on the compute of a 7B with its 20 tokens a parameter; and what 20B holds."""
    small, large = 7e9, 20e9
    tokens = float(scaling.rule_tokens(small, 20.0))
    compute = float(flops.training(small, tokens))
    fewer = float(scaling.affordable_tokens(compute, large))
    pair = [
        leaf(f"loss of {n / 1e9:g}B on {t / 1e9:.0f}B tokens", scaling.loss, "1", parameters=n, tokens=t, fit=0.0)
        for n, t in ((small, tokens), (large, fewer))
    ]
    held = leaf("static memory of 20B", states.training_static, "B", parameters=large)
    terms += [*pair, held]
    one, other = (float(term.value) for term in pair)
    return [
        _row(
            "size", "a larger model is a better one",
            f"for the compute of 7B on {tokens / 1e9:.0f}B tokens, 20B sees {fewer / 1e9:.0f}B and ends at loss {other:.3f}, not {one:.3f}",
            f"ironlaw scaling --parameters 20B --tokens {fewer / 1e9:.0f}B", small=one, large=other,
        ),
        _row(
            "memory", "20B take 200 GB",
            f"{float(held.value) / 1e9:.0f} GB: gradients and master weights too, before any activation",
            "ironlaw solve --parameters 20B --on h100-sxm --tokens 400B --gpus 8 --mfu 0.4", bytes=float(held.value),
        ),
    ]  # fmt: skip


def _count(asked: dict[str, Any], folders: tuple[str, ...]) -> list[dict[str, Any]]:
    """One and eight accelerators at one global batch, and at a batch of eight sequences, too small to share out."""
    found = {}
    for batch in (asked["global_batch_size"], 8.0):
        rates = [_answer({**asked, "gpus": n, "global_batch_size": batch}, folders)["throughput"]["tokens_per_second"] for n in (1.0, 8.0)]
        found[batch] = rates[1] / rates[0]
    wide, narrow = found[asked["global_batch_size"]], found[8.0]
    command = f"ironlaw lessons {_name(asked)} --on {asked['on']} --table communication-tax --gpus 8 --global-batch-size"
    return [
        _row(
            "count", "8 accelerators are 8 times as fast",
            f"{_name(asked)}: {wide:.2f} times with {asked['global_batch_size']:g} sequences a step, {narrow:.2f} times with 8",
            f"{command} 8", speedup=wide, speedup_small=narrow,
        )
    ]  # fmt: skip


def _rate(terms: list[Term]) -> list[dict[str, Any]]:
    linear, root = (
        leaf(name, law, "1", learning_rate=0.1, tokens_per_step=4096.0, base_tokens_per_step=512.0)
        for name, law in (("linear rule", batches.linear_learning_rate), ("square-root rule", batches.root_learning_rate))
    )
    terms += [linear, root]
    return [
        _row(
            "learning_rate", "a learning rate holds at any batch",
            f"0.1 at 512 is {float(linear.value):g} at 4096 by the linear rule, {float(root.value):.3g} by the square root that Adam takes",
            "ironlaw scaling --parameters 70B --tokens 1.4T --learning-rate 0.1 --base-batch-tokens 512 --global-batch-tokens 4096",
            linear=float(linear.value), root=float(root.value),
        )
    ]  # fmt: skip


def _precision(asked: dict[str, Any], terms: list[Term], folders: tuple[str, ...]) -> list[dict[str, Any]]:
    """fp32 and half precision: speed, static memory, and what fp16 loses."""
    one = {**asked, "gpus": 1.0, "micro_batch_size": min(8.0, asked["global_batch_size"]), "recompute": "none"}
    full = _answer({**one, "precision": "fp32"}, folders)
    half = _answer({**one, "precision": "fp16"}, folders)
    faster = half["throughput"]["tokens_per_second"] / full["throughput"]["tokens_per_second"]
    least = leaf("least subnormal fp16", formats.least_subnormal, "1", exponent_bits=5.0, mantissa_bits=10.0)
    top = leaf("largest fp16", formats.largest, "1", exponent_bits=5.0, mantissa_bits=10.0, infinities=1.0, nan_code=0.0)
    terms += [least, top]
    less = 1.0 - half["memory"]["allocated"] / full["memory"]["allocated"]
    return [
        _row(
            "precision", "mixed precision is a switch",
            f"{faster:.2f} times as fast as fp32 without tensor cores on {asked['on']}; fp16 loses "
            f"gradients below {float(least.value):.2g} and overflows at {float(top.value):,.0f}: scale the loss, and check it",
            "ironlaw lessons --table formats", faster=faster,
        ),
        _row(
            "half_memory", "mixed precision halves memory",
            f"weights, gradients and states are 16 bytes a parameter in both; activations shrink: {_name(asked)} saves {less:.0%} of all",
            f"ironlaw estimate {_name(asked)} --on {asked['on']} --gpus 1 --precision fp32 "
            f"--global-batch-size {asked['global_batch_size']:g}",
            saved=less,
        ),
    ]  # fmt: skip


def _accumulate(asked: dict[str, Any], folders: tuple[str, ...]) -> list[dict[str, Any]]:
    """The largest micro-batch and the least at one global batch: memory falls, accelerator hours do not."""
    batch = asked["global_batch_size"]
    sizes = [min(16.0, batch), 1.0]
    wide, narrow = (_answer({**asked, "gpus": 1.0, "micro_batch_size": size}, folders) for size in sizes)
    memory = wide["memory"]["allocated"] / narrow["memory"]["allocated"]
    longer = narrow["step"]["seconds"] / wide["step"]["seconds"] - 1.0
    return [
        _row(
            "accumulation", "accumulation saves money",
            f"micro-batch {sizes[0]:g} to 1 takes {memory:.3g} times less memory ({units.show(wide['memory']['allocated'], 'B')} to "
            f"{units.show(narrow['memory']['allocated'], 'B')}) and {longer:+.0%} time, so {longer:+.0%} money",
            f"ironlaw estimate {_name(asked)} --on {asked['on']} --gpus 1 --micro-batch-size 1 --global-batch-size {batch:g}",
            memory_times=memory, longer=longer,
        )
    ]  # fmt: skip


def _data(terms: list[Term]) -> list[dict[str, Any]]:
    """A loader of 35 s beside a step of 55 s: document 003's 90 and 55 s."""
    supply = [
        leaf(f"supply {how}", dataloading.supply_time, "s", fetch=20.0, process=10.0, transfer=5.0, overlapped=at)
        for at, how in enumerate(("serial", "overlapped"))
    ]
    waited = [
        leaf(f"waiting {how}", dataloading.waiting, "s", supply_time=supply[at].value, step_time=55.0, overlapped=at)
        for at, how in enumerate(("serial", "overlapped"))
    ]
    terms += [*supply, *waited]
    serial, beside = (55.0 + float(term.value) for term in waited)
    return [
        _row(
            "data", "the input pipeline can wait",
            f"35 s of it before 55 s of training are {serial:g} s, beside it {beside:g}: {1 - beside / serial:.1%} less time, "
            f"{serial / beside:.2f} times the speed",
            "ironlaw data --step-time 55s --batch 1 --sample-size 1MB --transform-time 35s --workers 1 --on a100-sxm-80gb --timeline on",
            serial=serial, overlapped=beside,
        )
    ]  # fmt: skip


def _answer(asked: dict[str, Any], folders: tuple[str, ...]) -> dict[str, Any]:
    """One plan's answer; refused where there is none."""
    from ironlaw.estimate.answer import answer

    row: dict[str, Any] = answer(asked, folders).row(0)
    if row["step"]["seconds"] is None:
        raise QuestionError(f"{_name(asked)} on {asked['gpus']:g} x {asked['on']}: no such plan; name another model or accelerator")
    return row


def _name(asked: dict[str, Any]) -> str:
    return asked["model"] if isinstance(asked["model"], str) else "the model"
