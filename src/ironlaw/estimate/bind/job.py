"""The job of a question: precision, optimizer, kernels and schedule, as given or as the framework does by default."""

from __future__ import annotations

from typing import Any

from ironlaw.catalog.abilities import has
from ironlaw.catalog.model import Model
from ironlaw.catalog.records import Framework, Objective
from ironlaw.catalog.sourced import ASKED, Sourced
from ironlaw.cluster import Cluster
from ironlaw.errors import QuestionError, UnsupportedError
from ironlaw.estimate.layer.adapters import targets
from ironlaw.estimate.layer.frozen_weights import refuse
from ironlaw.estimate.layer.kinds import kinds
from ironlaw.estimate.layer.uneven import ExpertLoad
from ironlaw.job import Documents, Job, Optimizers
from ironlaw.precision import Precision
from ironlaw.question import defaults
from ironlaw.question.asked import Asked
from ironlaw.question.assumptions import Assumptions, assume, printed
from ironlaw.question.defaults import WEIGHTS_DTYPES
from ironlaw.question.fields import OfJob

Formats = tuple[Precision, Precision]  # of linear layers, and of the products of routed experts
GRADIENT_BYTES = {"fp32": 4.0, "bf16": 2.0}
NARROW = 2.0  # bytes of a stored weight: wider ones are their own fp32 copy


def bind_job(
    asked: Asked,
    model: Model,
    framework: Framework,
    optimizer: Optimizers,
    cluster: Cluster,
    both_formats: Formats,
    assumptions: Assumptions,
    objective: tuple[Objective | None, Model | None] = (None, None),
    documents: Documents | None = None,
    expert_load: ExpertLoad | None = None,
) -> Job:
    """The Job of a question; what the framework decides is added to ``assumptions``."""
    formats, of_experts = both_formats
    flash = _decide_flash(asked, model, framework, cluster, assumptions)
    if "overlap" not in asked.given:
        assume(assumptions, "overlap", printed(frozenset(framework.overlap)), "default")
    refuse(asked.frozen_weights, asked.lora_rank, formats)
    framework = _set_weights(asked, framework, formats, assumptions)
    framework = _set_gradient_bytes(asked, framework, formats)
    if stores_narrow(framework, formats):
        optimizer = optimizer.on_narrow_weights()
    if formats.name == "fp16":
        assume(assumptions, "loss scaling", "dynamic; no step is skipped for an infinity", "default")
    scaling, gather = _bind_narrow(asked, framework, formats, assumptions) if formats.narrow else _bind_wide(asked, framework, formats)
    _check_attention_precision(asked, cluster, flash)
    _check_cache(asked, framework)
    _assume_layers(model, assumptions)
    same = {name: getattr(asked, name) for name in OfJob.fields}  # taken as they are
    decided = {
        "model": model,
        "framework": framework,
        "precision": formats,
        "expert_precision": "" if of_experts is formats else of_experts.name,
        "expert_formats": of_experts,
        "optimizer": optimizer,
        "flash": flash,
        "objective": objective[0],
        "teacher": objective[1],
        "documents": documents,
        "mtp_stage": None if asked.mtp_stage is None else int(asked.mtp_stage),
        "cp_domain": cluster.node.scale_up_size.value,
        "expert_load": expert_load,
        "lora_targets": targets(_decide_targets(asked, framework), model, framework) if asked.lora_rank else (),
        "chunked_logits": _decide_logits(asked, framework, assumptions),
        "fp8_scaling": scaling,
        "fp8_param_gather": gather,
        "schedule": asked.schedule or _first_of(framework.able.schedules, defaults.SCHEDULE),
        "cp_method": asked.cp_method if "cp_method" in asked.given else _first_of(framework.able.cp, asked.cp_method),
    }
    return Job(**{**same, **decided})


def _first_of(names: tuple[str, ...], usual: str) -> str:
    """The usual name where a stack has it, or is not known; else the first that it has."""
    return usual if has(names, usual) or not names else names[0]


def _check_cache(asked: Asked, framework: Framework) -> None:
    """Refuse a cache of keys and values in a framework that has none."""
    if asked.key_value_cache and not framework.generation_cache:
        raise UnsupportedError(
            f"--key-value-cache on: {framework.name} has no generation cache: leave it out, or name --framework huggingface"
        )


def _check_attention_precision(asked: Asked, cluster: Cluster, flash: bool) -> None:
    """Refuse attention in fp8 where the device has no such rate, or where attention is not one fused kernel."""
    how = asked.attention_precision
    if how == defaults.ATTENTION_PRECISION:
        return
    if "fp8" not in cluster.accelerator.peak:
        raise QuestionError(f"--attention-precision {how}: {cluster.accelerator.name} has no fp8 rate; leave the option out")
    if not flash:
        raise QuestionError(f"--attention-precision {how} needs a fused kernel: --flash-attention on")


def _assume_layers(model: Model, assumptions: Assumptions) -> None:
    """List what is assumed of layers whose training kernels are not public."""
    for mixer in dict.fromkeys(kind.mixer for kind in kinds(model)):
        if mixer.assumed:
            assume(assumptions, f"{mixer.prefix}layers", mixer.assumed, "default")
    if model.hc_mult:
        assume(
            assumptions, "hyper-connections", "three fused kernels a block (mHC, section 4.3); all streams go to the next stage", "default"
        )
    if model.attn_res_block_size:
        assume(assumptions, "attention residuals", "one fused kernel a block; all sums so far go to the next stage", "default")
    if model.index_topk or any(dict(kind.sizes).get("index_topk") for kind in kinds(model)):
        assume(
            assumptions, "picked keys", "read from cache at the rate of flash attention; the indexer scores in the wide format", "default"
        )


def _decide_targets(asked: Asked, framework: Framework) -> str:
    """The layers that have an adapter: as given, or as the framework does by default."""
    return asked.lora_targets if "lora_targets" in asked.given else framework.lora_targets or asked.lora_targets


def _decide_logits(asked: Asked, framework: Framework, assumptions: Assumptions) -> bool:
    """Whether the loss holds a chunk of the logits at a time: as given, or as the framework does by default."""
    if asked.logits is None:
        if framework.chunk_memory is not None:
            assume(assumptions, "logits", "chunked" if framework.chunked_logits else "whole", "default")
        return framework.chunked_logits
    if asked.logits == "chunked" and framework.chunk_memory is None:
        raise UnsupportedError(f"--logits chunked: {framework.name} has no chunked loss in its record; name another --framework")
    return asked.logits == "chunked"


def _decide_flash(asked: Asked, model: Model, framework: Framework, cluster: Cluster, assumptions: Assumptions) -> bool:
    """Whether attention runs in a flash kernel: as given, or where the device has one and the framework uses it."""
    device = cluster.accelerator.flash_attention
    if asked.flash_attention is None and model.position_embedding == "relative":  # a bias of every score: the kernels have none
        assume(assumptions, "flash_attention", "off: the scores have learned biases", "default")
        return False
    if asked.flash_attention is None:
        flash = device and framework.attention_kernel == "flash"
        assume(assumptions, "flash_attention", "on" if flash else "off", "default")
        return flash
    if asked.flash_attention and not device:
        raise QuestionError("--flash-attention on: this accelerator has no flash attention kernel; use off")
    return asked.flash_attention


def stores_narrow(framework: Framework, precision: Precision) -> bool:
    """True where weights are stored and updated in 16 bits, without an fp32 copy: PyTorch's optimizers then make moments alike.

    Source: torch.optim.AdamW makes both moments with zeros_like(parameter); torchtune and pure bf16 training rely on it.
    """
    stored = framework.parameter_bytes
    return precision.master_weights and stored is not None and stored.value <= NARROW


def _set_weights(asked: Asked, framework: Framework, precision: Precision, assumptions: Assumptions) -> Framework:
    """A framework with weights, and the gradients that have their type, in the type that the question loads them in."""
    if asked.weights_dtype is None:
        if framework.weights_dtypes and framework.parameter_bytes is not None and precision.master_weights and not asked.lora_rank:
            stored = framework.parameter_bytes.value
            assume(assumptions, "weights_dtype", next(name for name, width in WEIGHTS_DTYPES.items() if width == stored), "default")
        return framework
    name, width = asked.weights_dtype, WEIGHTS_DTYPES[asked.weights_dtype]
    if name not in framework.weights_dtypes:
        raise UnsupportedError(
            f"--weights-dtype {name}: {framework.name} has no such choice in its record"
            f" (known: {', '.join(framework.weights_dtypes) or 'none'}); name another --framework"
        )
    if not precision.master_weights:
        raise QuestionError(f"--weights-dtype {name}: weights of --precision {precision.name} have its type; leave one of them out")
    size = Sourced(width, "B", name, None, "given")
    reduced = framework.gradient_reduce_bytes if framework.gradient_reduce_bytes.value <= width else size
    return framework.replace(parameter_bytes=size, frozen_bytes=size, gradient_bytes=size, gradient_reduce_bytes=reduced)


def _set_gradient_bytes(asked: Asked, framework: Framework, precision: Precision) -> Framework:
    """A framework with the gradients' bytes that the question gives, or that weights without fp32 masters imply."""
    if asked.gradient_dtype is not None:
        size = Sourced(GRADIENT_BYTES[asked.gradient_dtype], "B", asked.gradient_dtype, None, "given")
    elif not precision.master_weights:  # parameters of four bytes have gradients of four bytes, and these are reduced without a cast
        size = Sourced(precision.parameter_bytes, "B", f"{precision.parameter_bytes:g} B, as the weights of {precision.name}", ASKED)
    else:
        return framework
    return framework.replace(gradient_bytes=size, gradient_reduce_bytes=size)


def _bind_wide(asked: Asked, framework: Framework, precision: Precision) -> tuple[str, bool]:
    """Scaling and gather of a precision that casts nothing: options of a cast are refused."""
    options: dict[str, Any] = {"fp8-scaling": asked.fp8_scaling, "fp8-param-gather": asked.fp8_param_gather}
    for name, value in options.items():
        if value:
            raise QuestionError(f"--{name} {'on' if value is True else value}: {precision.name} casts nothing; leave the option out")
    return framework.fp8_scaling, False


def _bind_narrow(asked: Asked, framework: Framework, precision: Precision, assumptions: Assumptions) -> tuple[str, bool]:
    """How a narrow precision finds the scales of its tensors, and whether weights are kept and gathered narrow."""
    scaling = asked.fp8_scaling or precision.scaling or framework.fp8_scaling
    if precision.scaling and scaling != precision.scaling:
        raise QuestionError(f"--fp8-scaling {scaling}: --precision {precision.name} has {precision.scaling} scales; give fp8")
    if not precision.one_scale:
        if asked.fp8_scaling is not None:
            raise QuestionError(
                f"--fp8-scaling {scaling}: needs --precision fp8, which has one scale for a tensor; {precision.name} has many"
            )
    elif asked.fp8_scaling is None and not precision.scaling:
        assume(assumptions, "fp8_scaling", scaling, "default")
    gathers = precision.known_as in framework.param_gather
    gather = precision.known_as in framework.default_param_gather if asked.fp8_param_gather is None else asked.fp8_param_gather
    if gather and not gathers:
        usable = ", ".join(framework.param_gather) or "none"
        raise UnsupportedError(
            f"--fp8-param-gather on: {framework.name} gathers no weights in {precision.name} (known: {usable}); name another --framework"
        )
    if asked.fp8_param_gather is None:
        assume(assumptions, "fp8_param_gather", "on" if gather else "off", "default")
    if not (asked.bf16_layers_at_start or asked.bf16_layers_at_end or precision.wide_at_start or precision.wide_at_end):
        assume(assumptions, "layers in bf16", "0", "default")
    return scaling, gather
