"""The techniques that ``optimize`` tries: the options each sets, the roofs it lowers, and what it needs where it cannot be tried."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ironlaw.catalog import load
from ironlaw.catalog.abilities import has
from ironlaw.estimate.answer.group import Group
from ironlaw.estimate.legality.abilities import SELECTIVE, has_overlap
from ironlaw.estimate.memory.total import Layers
from ironlaw.law import activations
from ironlaw.plan import Plan, recompute_columns
from ironlaw.precision import PRECISIONS
from ironlaw.questions.optimize.setting import Setting, bind_loader, order_of
from ironlaw.terms import fold, scalar

Change = Callable[[Setting], "dict[str, Any] | str | None"]
COMPUTE, HBM, NETWORK, PIPELINE, DISPATCH, DATA = "compute", "hbm", "network", "pipeline", "dispatch", "data"
CAPACITY = "memory capacity"
ROOFS = (COMPUTE, HBM, NETWORK, PIPELINE, DISPATCH, DATA, CAPACITY)  # time of a step by its roof, and the memory that limits what fits
RANK = 16.0  # of the adapters that are tried
FUSED = ("megatron", "torchtitan-compile")  # stacks with fused or compiled kernels that are tried where the plan has another
COMPILED = {"torchtune": "torchtune-compile", "huggingface": "huggingface-liger", "fms-acceleration": "fms-acceleration-liger"}


@dataclass(frozen=True)
class Technique:
    """One optimisation.

    ``change`` gives the options it sets on a plan; None where the plan has it already; or a text: what is missing for it to be tried.
    """

    name: str
    moves: str  # operations | peak | efficiency | memory: the term of the iron law it improves, or memory
    axis: str  # algorithm | machine | data: the D.A.M. class
    lowers: tuple[str, ...]  # the roofs that it lowers, the first most
    change: Change
    trains: bool = False  # True: it changes what is trained, or how: adapters, quantised weights, optimizer, batch

    @property
    def moves_time(self) -> bool:
        """True where it moves time from one roof to another, so that its gain has no bound by the time on the roofs it lowers."""
        return CAPACITY in self.lowers or PIPELINE in self.lowers


def _always(_: Setting) -> bool:
    return True


def _set(name: str, value: Any, when: Callable[[Setting], bool] = _always) -> Change:
    """Set an option that has another value."""
    return lambda setting: {name: value} if setting.option(name) != value and when(setting) else None


def _precision(name: str) -> Change:
    """Multiply in a narrower format, where the accelerator has it."""

    def change(setting: Setting) -> dict[str, Any] | str | None:
        now, new, device = setting.group.job.precision, PRECISIONS[name], setting.group.cluster.accelerator
        if new.peak not in device.peak:
            return f"{device.name} has no {new.peak} rate"
        faster = device.peak[new.peak].value > device.peak[now.peak].value
        if name == now.name or new.operand_bytes > now.operand_bytes or not faster:
            return None
        four_bits = {"frozen_weights": ""} if new.narrow and setting.option("frozen_weights") else {}
        return {"precision": name, **four_bits}

    return change


def _multiply(name: str, factor: float, when: Callable[[Setting], bool] = _always) -> Change:
    """Multiply an option that stays a whole number."""

    def change(setting: Setting) -> dict[str, Any] | None:
        value = setting.option(name, 1.0) * factor
        return {name: value} if when(setting) and value >= 1 and value == int(value) else None

    return change


def _ranks(axis: str, factor: float, when: Callable[[Setting], bool] = _always) -> Change:
    """Multiply the ranks of an axis; data parallelism has the rest."""

    def change(setting: Setting) -> dict[str, Any] | None:
        ranks = setting.option(axis, 1.0) * factor
        others = np.prod([setting.option(name, 1.0) for name in ("tp", "pp", "cp") if name != axis])
        left = setting.option("gpus") / (ranks * others)
        if not when(setting) or ranks < 1 or ranks != int(ranks) or left < 1 or left != int(left):
            return None
        return {axis: ranks, **({"vpp": 1.0} if axis == "pp" else {})}

    return change


def _overlap(communication: str, when: Callable[[Setting], bool]) -> Change:
    """Overlap one more kind of communication with computation."""

    def change(setting: Setting) -> dict[str, Any] | str | None:
        stack, model = setting.group.job.framework, setting.group.job.model
        now = setting.option("overlap", frozenset(stack.overlap))
        if communication in now or not when(setting):
            return None
        if communication not in stack.overlap and not has_overlap(stack.able, communication, model):
            latent = " with latent attention" if has(stack.able.overlap, communication) else ""
            return f"{stack.name} does not overlap {communication}{latent}"
        return {"overlap": frozenset({*now, communication})}

    return change


def _zero(stage: float) -> Change:
    """Set a higher ZeRO stage over all data-parallel ranks."""

    def change(setting: Setting) -> dict[str, Any] | str | None:
        ranks = setting.option("dp_replicate", 1.0) * setting.option("dp_shard", 1.0)
        if setting.option("zero", 0.0) >= stage:
            return None
        if ranks * setting.option("cp", 1.0) <= 1.0:
            return "one data-parallel rank has nobody to share with"
        return {"zero": stage, "dp_replicate": 1.0, "dp_shard": ranks}

    return change


def _offload(*names: str) -> Change:
    """Move more tensors to the memory of the host."""

    def change(setting: Setting) -> dict[str, Any] | str | None:
        device, now = setting.group.cluster.accelerator, setting.option("offload", frozenset())
        if device.pcie_bandwidth is None and device.c2c_bandwidth is None:
            return f"{device.name} has no link to the memory of its host in the catalogue"
        return None if set(names) & now else {"offload": frozenset({*now, *names})}

    return change


def _segments(setting: Setting) -> dict[str, Any] | str | None:
    """One checkpoint for as many layers as the law of the best interval says."""
    group = setting.group
    layers = group.job.model.num_hidden_layers / (setting.option("pp", 1.0) * setting.option("vpp", 1.0))
    layer = max(scalar(fold(parts)) for parts in Layers.of(group.job, _kept_whole(group)).saved.values())
    boundary = activations.checkpoint(
        group.plan.tokens, group.job.model.hidden_size, group.plan.tp, group.plan.sp, group.job.precision.activation_bytes
    )
    interval = round(float(activations.optimal_interval(layers, layer, scalar(boundary))))
    if interval <= 1:
        return "one layer for each checkpoint needs least memory here: see full recomputation"
    how = f"segments:{interval}"
    return None if setting.option("recompute") == how else {"recompute": how}


def _kept_whole(group: Group) -> Plan:
    """The plan of a group without recomputation inside its layers, so that a layer's size is that of all it would keep."""
    return group.plan.replace(**dict.fromkeys(SELECTIVE, 0.0))


def _recompute(how: str) -> Change:
    """Recompute more or less of a layer."""

    def change(setting: Setting) -> dict[str, Any] | str | None:
        if setting.option("recompute", "none") == how:
            return None
        _, _, linear, elementwise, *_ = recompute_columns(how, setting.group.job.framework.selective_recompute)
        if how == "selective" and setting.group.job.flash and not (linear or elementwise):
            return "saves nothing here: flash attention keeps no scores, and those are all that selective recomputation drops"
        return {"recompute": how}

    return change


def _framework(name: str) -> Change:
    """Run the same plan in another stack."""

    def change(setting: Setting) -> dict[str, Any] | str | None:
        now, device = setting.group.job.framework.name, setting.group.cluster.accelerator
        if now == name:
            return None
        vendors = load.record("frameworks", name).able.vendors
        if not has(vendors, device.vendor):
            return f"{name} runs on accelerators of {', '.join(vendors)}, not of {device.vendor}"
        return {"framework": name}

    return change


def _compiled(setting: Setting) -> dict[str, Any] | None:
    """The stack's own compiled or fused variant."""
    name = COMPILED.get(setting.group.job.framework.name)
    return {"framework": name} if name else None


def _flash(setting: Setting) -> dict[str, Any] | str | None:
    if setting.group.job.flash:
        return None
    return {"flash_attention": True} if setting.group.cluster.accelerator.flash_attention else "the accelerator has no such kernel"


def _logits(setting: Setting) -> dict[str, Any] | str | None:
    job = setting.group.job
    if job.chunked_logits:
        return None
    return {"logits": "chunked"} if job.framework.chunk_memory is not None else f"{job.framework.name} has no chunked loss"


def _graphs(setting: Setting) -> dict[str, Any] | str | None:
    stack = setting.group.job.framework
    if setting.group.job.cuda_graphs == "full":
        return None
    return {"cuda_graphs": "full"} if has(stack.able.cuda_graphs, "full") else f"no full graph of {stack.name} is known"


def _gradients(setting: Setting) -> dict[str, Any] | str | None:
    stack = setting.group.job.framework
    if stack.gradient_bytes.value <= 2.0 or setting.group.job.precision.parameter_bytes > 2.0:
        return None
    return {"gradient_dtype": "bf16"} if "bf16" in stack.able.gradient_dtypes else f"{stack.name} is not known to store gradients in bf16"


def _optimizer(name: str) -> Change:
    """Another optimizer, where its states are smaller."""

    def change(setting: Setting) -> dict[str, Any] | str | None:
        now, other = setting.group.job.optimizer.matrices, load.record("optimizers", name)
        if not setting.group.job.precision.master_weights and other.master_bytes.value == 0.0:
            return f"weights in {setting.group.job.precision.name} have no master copy to leave out"
        smaller = other.state_bytes + other.master_bytes.value < now.state_bytes + now.master_bytes.value
        return {"optimizer": name} if smaller else None

    return change


def _in_backward(setting: Setting) -> dict[str, Any] | str | None:
    if setting.group.job.optimizer_in_backward:
        return None
    if scalar(setting.group.plan.num_microbatches) > 1:
        return "needs one micro-batch a step: several add up a gradient that has to be kept"
    return {"optimizer_in_backward": True}


def _adapters(frozen: str) -> Change:
    """Train adapters on frozen weights, which may be quantised."""

    def change(setting: Setting) -> dict[str, Any] | str | None:
        job = setting.group.job
        if setting.option("frozen_layers"):
            return "--frozen-layers is another way to train less"
        if job.lora_rank and (not frozen or job.frozen_weights == frozen):
            return None
        options = {} if job.lora_rank else {"lora_rank": RANK, "lora_targets": "all"}
        if not frozen:
            return options
        if frozen == "fp8":
            device = setting.group.cluster.accelerator
            return {**options, "frozen_weights": "fp8", "precision": "fp8"} if "fp8" in device.peak else f"{device.name} has no fp8 rate"
        wide = {"precision": "bf16" if "bf16" in setting.group.cluster.accelerator.peak else "fp16"} if job.precision.narrow else {}
        return {**options, "frozen_weights": frozen, **wide}

    return change


_NEEDS_LOADER = "the question has no input pipeline: give --transform-time or --token-rate with --workers, --disk or --shared-storage"


def _prefetch(setting: Setting) -> dict[str, Any] | str | None:
    if not setting.loader:
        return _NEEDS_LOADER
    if order_of(setting.loader) == "overlapped":
        return "batches are prepared beside the step already; --stages serial describes a loop that waits for each batch"
    return {"stages": "overlapped", **({} if setting.loader.get("prefetch_factor", 1.0) else {"prefetch_factor": 2.0})}


def _workers(setting: Setting) -> dict[str, Any] | str | None:
    if not setting.loader:
        return _NEEDS_LOADER
    now = setting.loader.get("workers")
    if now is None:
        return None  # as many as are needed are counted
    needed = scalar(bind_loader(setting, setting.group, []).needed)
    return {"workers": needed} if needed > now else None


def _mixture(change: Change) -> Change:
    """For mixtures of experts alone."""
    return lambda setting: change(setting) if setting.group.job.model.num_experts else None


def _dispatcher(name: str, title: str) -> Change:
    """Send the rows of tokens to their experts by another dispatcher."""

    def change(setting: Setting) -> dict[str, Any] | str | None:
        job = setting.group.job
        if job.moe_dispatcher == name or setting.option("ep", 1.0) == 1.0:
            return None
        return {"moe_dispatcher": name} if has(job.framework.able.dispatchers, name) else f"{job.framework.name} has no {title}"

    return change


def _schedule(name: str) -> Change:
    """Run one chunk of layers a stage by another schedule."""

    def change(setting: Setting) -> dict[str, Any] | str | None:
        job = setting.group.job
        if setting.option("pp", 1.0) == 1.0 or setting.option("vpp", 1.0) > 1.0 or job.schedule == name:
            return None
        return {"schedule": name} if has(job.framework.able.schedules, name) else f"{job.framework.name} has no {name} schedule"

    return change


def _is(**least: float) -> Callable[[Setting], bool]:
    """A condition: these degrees of the plan are above a number."""
    return lambda setting: all(setting.option(name, 1.0) > number for name, number in least.items())


def _many_tokens(setting: Setting) -> bool:
    return bool(setting.group.plan.seq_len[0] / (2.0 * setting.option("cp", 1.0)) >= 1024.0)


def _flash_3(setting: Setting) -> dict[str, Any] | str | None:
    job, device = setting.group.job, setting.group.cluster.accelerator
    if not job.flash or job.attention_kernel == "flash-3" or not device.flash_3:
        return None if job.flash else "attention runs without a flash kernel: see flash attention"
    return {"attention_kernel": "flash-3"}


def _data_ranks(setting: Setting) -> float:
    ranks: float = setting.option("dp_replicate", 1.0) * setting.option("dp_shard", 1.0)
    return ranks


_FORMAT = (COMPUTE, HBM, CAPACITY)
_WIDE = (COMPUTE, HBM, NETWORK, CAPACITY)
TECHNIQUES: tuple[Technique, ...] = (
    *(
        Technique(f"precision {name}", "peak", "machine", roofs, _precision(name))
        for name, roofs in (
            ("tf32", (COMPUTE,)), ("bf16", _WIDE), ("fp16", _WIDE), ("fp8", _FORMAT), ("fp8-row", _FORMAT), ("fp8-block", _FORMAT),
            ("mxfp8", _FORMAT), ("mxfp4", _FORMAT), ("nvfp4", _FORMAT),
        )
    ),
    Technique("flash attention", "efficiency", "machine", (HBM, COMPUTE, CAPACITY), _flash),
    Technique("flash-3 attention kernel", "efficiency", "machine", (COMPUTE,), _flash_3),
    Technique("no recomputation", "operations", "algorithm", (COMPUTE,), _recompute("none")),
    Technique("selective recomputation", "memory", "machine", (CAPACITY,), _recompute("selective")),
    Technique("norms and activations recomputed", "memory", "machine", (CAPACITY,), _recompute("selective:attention,elementwise")),
    Technique("full recomputation", "memory", "machine", (CAPACITY,), _recompute("full")),
    Technique("recomputation in segments", "memory", "machine", (CAPACITY,), _segments),
    Technique("chunked logits", "memory", "machine", (CAPACITY,), _logits),
    Technique("kernels of the compiled variant", "efficiency", "machine", (HBM, DISPATCH), _compiled),
    *(Technique(f"fused kernels of {name}", "efficiency", "machine", (HBM, DISPATCH), _framework(name)) for name in FUSED),
    Technique("CUDA graphs", "efficiency", "machine", (DISPATCH,), _graphs),
    Technique("prefetch of batches", "efficiency", "data", (DATA,), _prefetch),
    Technique("as many loader workers as needed", "efficiency", "data", (DATA,), _workers),
    Technique("sequence parallel", "memory", "machine", (CAPACITY, HBM), _set("sp", True, _is(tp=1))),
    Technique("overlap of tensor parallelism", "efficiency", "machine", (NETWORK,), _overlap("tp", lambda s: s.option("tp", 1.0) > 1.0)),
    Technique("overlap of gradient reduction", "efficiency", "machine", (NETWORK,), _overlap("grad-reduce", lambda s: _data_ranks(s) > 1)),
    Technique(
        "overlap of weight gathering", "efficiency", "machine", (NETWORK,),
        _overlap("param-gather", lambda s: s.option("zero", 0.0) in (1.0, 2.0)),
    ),
    Technique("overlap of stages", "efficiency", "machine", (NETWORK,), _overlap("pp", _is(pp=1, vpp=1))),
    Technique("overlap of experts' all-to-all", "efficiency", "machine", (NETWORK,), _mixture(_overlap("ep", _is(ep=1)))),
    Technique("DeepEP dispatcher", "efficiency", "machine", (NETWORK,), _mixture(_dispatcher("deepep", "DeepEP"))),
    Technique("micro-batch doubled", "efficiency", "machine", (COMPUTE, HBM, DISPATCH), _multiply("micro_batch_size", 2.0)),
    Technique("micro-batch halved", "memory", "machine", (CAPACITY, PIPELINE), _multiply("micro_batch_size", 0.5)),
    Technique("more chunks a stage", "efficiency", "machine", (PIPELINE,), _multiply("vpp", 2.0, _is(pp=1))),
    Technique("zero-bubble schedule", "efficiency", "machine", (PIPELINE,), _schedule("zero-bubble")),
    Technique("half the stages", "efficiency", "machine", (PIPELINE,), _ranks("pp", 0.5)),
    Technique("twice the stages", "memory", "machine", (CAPACITY, NETWORK), _ranks("pp", 2.0)),
    Technique("half the tensor parallelism", "efficiency", "machine", (NETWORK,), _ranks("tp", 0.5)),
    Technique("twice the tensor parallelism", "memory", "machine", (CAPACITY, PIPELINE), _ranks("tp", 2.0)),
    Technique("half the context parallelism", "efficiency", "machine", (NETWORK,), _ranks("cp", 0.5)),
    Technique("twice the context parallelism", "memory", "machine", (CAPACITY, PIPELINE), _ranks("cp", 2.0, _many_tokens)),
    Technique("half the expert parallelism", "efficiency", "machine", (NETWORK,), _mixture(_multiply("ep", 0.5))),
    Technique("twice the expert parallelism", "memory", "machine", (CAPACITY,), _mixture(_multiply("ep", 2.0))),
    Technique("ZeRO 1: optimizer states sharded", "memory", "machine", (CAPACITY,), _zero(1.0)),
    Technique("ZeRO 2: gradients sharded too", "memory", "machine", (CAPACITY,), _zero(2.0)),
    Technique("ZeRO 3: weights sharded too", "memory", "machine", (CAPACITY,), _zero(3.0)),
    Technique("gradients in bf16", "memory", "machine", (CAPACITY, NETWORK, HBM), _gradients),
    Technique("optimizer in the backward pass", "memory", "machine", (CAPACITY,), _in_backward),
    Technique("optimizer in the host", "memory", "machine", (CAPACITY,), _offload("optimizer")),
    Technique("activations in the host", "memory", "machine", (CAPACITY,), _offload("activations")),
    Technique("optimizer and activations in the host", "memory", "machine", (CAPACITY,), _offload("optimizer", "activations")),
    Technique("batch doubled by accumulation", "efficiency", "algorithm", (NETWORK, PIPELINE), _multiply("global_batch_size", 2.0), True),
    Technique("8-bit Adam", "memory", "algorithm", (CAPACITY, HBM), _optimizer("adam8bit"), True),
    Technique("Adafactor", "memory", "algorithm", (CAPACITY, HBM), _optimizer("adafactor"), True),
    Technique("Adam with bf16 states", "memory", "algorithm", (CAPACITY, HBM), _optimizer("adamw-bf16"), True),
    Technique("SGD with momentum", "memory", "algorithm", (CAPACITY, HBM), _optimizer("momentum"), True),
    Technique("adapters (LoRA)", "operations", "algorithm", (COMPUTE, NETWORK, CAPACITY), _adapters(""), True),
    Technique("adapters on nf4 weights (QLoRA)", "memory", "algorithm", (CAPACITY, COMPUTE, NETWORK), _adapters("nf4"), True),
    Technique("adapters on fp8 weights", "peak", "algorithm", (COMPUTE, CAPACITY), _adapters("fp8"), True),
    Technique("adapters on int8 weights", "memory", "algorithm", (CAPACITY,), _adapters("int8"), True),
)  # fmt: skip


def conflicts(technique: Technique, changes: Mapping[str, Collection[str]]) -> tuple[str, ...]:
    """Names of the other techniques that set an option this one sets: only one of them can be used."""
    options = set(changes.get(technique.name, ()))
    return tuple(name for name, others in changes.items() if name != technique.name and options & set(others))
