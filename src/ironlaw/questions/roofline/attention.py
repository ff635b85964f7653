"""Flash against standard attention: what each stores, moves and computes, and what kernels as measured take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ironlaw import units
from ironlaw.estimate.answer import estimate
from ironlaw.estimate.layer.passes import FLASH_BACKWARD_FLOP, UNFUSED_BACKWARD_FLOP
from ironlaw.job import PRECISIONS
from ironlaw.law import traffic
from ironlaw.questions.answer import Column, Table
from ironlaw.questions.roofline import operators, roofs
from ironlaw.terms import Term, leaf, plain, total

KERNELS = {"flash": ("flash attention",), "standard": ("attention batched gemms", "attention mask, softmax, dropout")}


def shapes(values: Mapping[str, Any]) -> list[tuple[float, ...]]:
    """The shapes asked for: one, or one for each of ``lengths``."""
    batch, heads, seq_len, width = values["attention"]
    return [(batch, heads, length, width) for length in values.get("lengths", (seq_len,))]


def with_expected(device: roofs.Device, found: list[roofs.Under], values: Mapping[str, Any], folders: tuple[str, ...]) -> list[roofs.Under]:
    """Each with what the estimate of a layer of its shape takes for it; flash only with the causal mask the estimate counts."""
    if device.cluster is None or "peak" in values or "bandwidth" in values:
        return found
    return [replace(u, expected=_expected(device, u.operator, values, folders)) for u in found]


def _expected(device: roofs.Device, one: operators.Operator, values: Mapping[str, Any], folders: tuple[str, ...]) -> Term | None:
    flash = one.name.startswith("flash")
    counted = values.get("causal", True) and device.cluster is not None and device.cluster.accelerator.flash_attention
    if one.dtype not in ("bf16", "fp16") or (flash and not counted):
        return None
    tree = _tree(one.shape, one.dtype, values, folders, "" if flash else "standard")
    return total("expected time", [_single(tree[f"forward/{name}"]) for name in KERNELS["flash" if flash else "standard"]])


def _tree(shape: tuple[float, ...], dtype: str, values: Mapping[str, Any], folders: tuple[str, ...], version: str) -> Term:
    """The step of one layer of that shape: with the device's flash kernel, with one of a generation, or ``standard`` with none."""
    batch, heads, seq_len, width = shape
    flash = version != "standard"
    model = {
        "hidden_size": heads * width,
        "num_attention_heads": heads,
        "num_key_value_heads": values.get("kv_heads", heads),
        "head_dim": width,
        "num_hidden_layers": 1,
        "vocab_size": 1,
    }
    asked: dict[str, Any] = {"gpus": 1, "micro_batch_size": batch, "global_batch_size": batch, "seq_len": seq_len, "flash_attention": flash}
    named = {name: values[name] for name in ("node", "fabric", "framework") if name in values}
    named |= {"attention_kernel": version} if version in VERSIONS else {}
    return estimate(model, on=values["on"], precision=dtype, catalog=folders, **asked, **named).groups[0].step.tree


VERSIONS = ("flash-1", "flash-2", "flash-3")
COLUMNS = (
    Column("length", "tokens", "1"),
    Column("version", "kernel"),
    Column("forward", "forward", "s"),
    Column("backward", "backward", "s"),
    Column("rate", "rate, both", "FLOP/s"),
    Column("share", "of the peak", "%"),
    Column("times", "times unfused", "1"),
)


def versions(device: roofs.Device, values: Mapping[str, Any], folders: tuple[str, ...]) -> list[Table]:
    """Generations of the flash kernel, and the unfused one, by the constants the estimate has of each; causal only, as it counts."""
    if device.cluster is None or not device.cluster.accelerator.flash_attention or not values.get("causal", True) or "peak" in values:
        return []
    if values["dtype"][0] not in ("bf16", "fp16") or "bandwidth" in values or "batch" in values:
        return []
    peak, rows = plain(device.peaks[PRECISIONS[values["dtype"][0]].peak]), []
    for shape in shapes(values):
        trees = {version: _tree(shape, values["dtype"][0], values, folders, version) for version in ("standard", *VERSIONS)}
        kernels = {version: KERNELS["standard" if version == "standard" else "flash"] for version in trees}
        times = {
            version: [sum(float(tree[f"{way}/{name}"].value.ravel()[0]) for name in kernels[version]) for way in ("forward", "backward")]
            for version, tree in trees.items()
        }
        one = operators.of("attention", shape, values)[0]
        work = float(one.flop.value) * (1.0 + FLASH_BACKWARD_FLOP)
        seen: list[list[float]] = []
        for version, (forward, backward) in times.items():
            if [forward, backward] in seen:  # this architecture has no kernel of that generation: the estimate takes the one before
                continue
            seen.append([forward, backward])
            rate = None if version == "standard" else work / (forward + backward)
            rows.append({
                "length": shape[2], "version": "unfused" if version == "standard" else version, "forward": forward, "backward": backward,
                "rate": rate, "share": None if rate is None else rate / peak, "times": sum(times["standard"]) / (forward + backward),
            })  # fmt: skip
    return [Table("versions", "Kernels by the estimate's constants", COLUMNS, rows)]


def _single(term: Term) -> Term:
    """A leaf of one row as a plain number."""
    inputs = {name: item.item() if hasattr(item, "item") and item.size == 1 else item for name, item in term.inputs.items()}
    return Term(term.name, float(term.value.ravel()[0]), term.unit, term.law, inputs)


def headline(device: roofs.Device, found: list[roofs.Under], values: Mapping[str, Any]) -> tuple[list[str], list[Term], dict[str, Any]]:
    """The last shape: scores that are not stored, bytes, times, FLOPs forward and backward, and the published bound of the traffic."""
    flash, standard = found[-2:]
    batch, heads, seq_len, width = flash.operator.shape
    size = operators.element(flash.operator.dtype)
    scores = leaf("stored scores", traffic.elementwise, "B", elements=batch * heads * seq_len**2, bytes_per_element=size, passes=1.0)
    rows = batch * heads * seq_len * width
    inputs = leaf("queries, keys, values", traffic.elementwise, "B", elements=rows, bytes_per_element=size, passes=3.0)
    memory = leaf("scores over inputs", _over, "1", standard=scores.value, flash=inputs.value)
    less = leaf("bytes, standard over flash", _over, "1", standard=standard.operator.traffic.value, flash=flash.operator.traffic.value)
    more = (1.0 + FLASH_BACKWARD_FLOP) / (1.0 + UNFUSED_BACKWARD_FLOP) - 1.0
    terms = [_called(u.operator.name, term) for u in (flash, standard) for term in (u.intensity, u.floor)] + [scores, inputs, memory, less]
    lines = [
        "; ".join(f"{u.operator.name}: {u.bound} binds at {_show(u.intensity)}, at least {_show(u.floor)}" for u in (flash, standard)),
        f"standard attention stores scores of {_show(scores)}, {float(memory.value):.3g} times its queries, keys and values "
        f"({_show(inputs)}); flash stores none",
        f"standard attention moves {float(less.value):.3g} times the bytes of an ideal flash kernel; "
        "the ratio goes with sequence length over head width",
        f"over forward and backward flash does {more:.1%} more FLOPs on the same mask: backward computes the scores again",
    ]
    extra: dict[str, Any] = {"more_flop": more}
    if "on_chip" in values:
        elements = values["on_chip"] / size
        bound = leaf("elements of a head", traffic.tiled_attention, "1", seq_len=seq_len, head_dim=width, on_chip_elements=elements)
        ratio = leaf("published ratio", _over, "1", standard=seq_len * width + seq_len**2, flash=bound.value)
        terms += [bound, ratio]
        lines.append(
            f"with {elements:,.0f} elements on the chip and no cache behind them the published bound is {float(ratio.value):.3g} times"
        )
    if flash.operator.measured is not None:
        judged = roofs.judge(device, flash, flash.operator.measured)
        lines.append(f"flash measured {units.show(flash.operator.measured, 's', 4)}: {judged.text}")
        terms += roofs.fractions(flash, flash.operator.measured).values()
    return lines, terms, extra


def _called(owner: str, term: Term) -> Term:
    return Term(f"{term.name}, {owner}", term.value, term.unit, term.law, term.inputs)


def _over(standard: Any, flash: Any) -> Any:
    """How many times as much: ``standard / flash``."""
    return standard / flash


def _show(term: Term) -> str:
    return units.show(float(term.value), term.unit, 4)
