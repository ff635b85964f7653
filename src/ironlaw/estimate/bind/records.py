"""From names to numbers: the only place where a catalogue record meets a question.

``job`` and ``cluster`` look up what the options name and fill in each record's usual companions; every choice made on
the user's behalf is written into ``assumptions``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ironlaw.catalog import load
from ironlaw.catalog.config_json.dimensions import model_from_dimensions
from ironlaw.catalog.model import Model
from ironlaw.catalog.records import Calibration, Framework, Node, Systems
from ironlaw.catalog.sourced import ASKED, Sourced
from ironlaw.cluster import Cluster
from ironlaw.errors import CatalogError, InputError, QuestionError, UnsupportedError, ValueRangeError
from ironlaw.estimate.layer.adapters import targets
from ironlaw.estimate.layer.frozen_weights import refuse
from ironlaw.job import PRECISIONS, Job, Precision
from ironlaw.law import kernels

Assumptions = list[dict[str, Any]]


def assume(assumptions: Assumptions, name: str, value: Any, origin: str) -> None:
    """Write down what was taken for ``name`` and why: given, chosen, default or override."""
    assumptions.append({"name": name, "value": value, "origin": origin})


def bind_model(asked: Any, folders: tuple[str, ...] = ()) -> tuple[Model, list[str]]:
    """The model a question names: a catalogue name, a config.json, or dimensions; and what of it is left out."""
    if isinstance(asked, Mapping) or asked.startswith("hidden_size=") or ("=" in asked and "," in asked):
        return model_from_dimensions(asked), []
    path = Path(asked).expanduser()
    if path.suffix == ".json" or path.is_dir() or (path.exists() and "/" in asked):
        from ironlaw.catalog.config_json import read

        config = read.load_config(path)
        name = path.parent.resolve().name if path.name == "config.json" else path.stem
        return read.model_from_config(config, str(path), name)
    if "/" in asked and not load.aliases(folders)["models"].get(load.fold_name(asked)):
        raise InputError(f"{asked}: no such file or folder (a model is a catalogue name, a config.json, or dimensions)")
    model = load.record("models", asked, folders)
    if min(model.hidden_size, model.num_hidden_layers, model.num_attention_heads, model.num_key_value_heads, model.vocab_size) < 1:
        raise CatalogError(f"model {model.name}: sizes must be at least 1 (ironlaw catalog check says which are not)")
    return model, []


def plain_model(model: Model) -> Model:
    """A model as it is computed: one expert that every token visits is a dense MLP of its width."""
    if model.num_experts != 1 or model.shared_expert_intermediate_size:
        return model
    return model.replace(num_experts=0, num_experts_per_tok=0, intermediate_size=model.moe_intermediate_size)


def freeze(model: Model, layers: int) -> Model:
    """A model whose first layers are not trained."""
    if layers >= model.num_hidden_layers:
        raise ValueRangeError(
            f"--frozen-layers {layers} leaves nothing of {model.num_hidden_layers} layers to train (--lora-rank trains adapters)"
        )
    return model.replace(frozen_layers=layers)


def keep_wide(model: Model, precision: str, start: int, end: int) -> Model:
    """A model whose first and last layers stay in bf16 where the precision is narrow."""
    if not PRECISIONS[precision].narrow:
        raise QuestionError(f"--bf16-layers-at-start and --bf16-layers-at-end go with a narrow precision, {precision} is none")
    if start + end > model.num_hidden_layers:
        raise ValueRangeError(
            f"{start} layers in bf16 at the start and {end} at the end are more than the model's {model.num_hidden_layers}"
        )
    if model.frozen_layers:
        raise UnsupportedError("--bf16-layers-at-start and --bf16-layers-at-end: not with --frozen-layers in this version")
    return model.replace(wide_layers_at_start=start, wide_layers_at_end=end)


def bind_narrow(options: dict[str, Any], framework: Framework, precision: Precision, assumptions: Assumptions) -> dict[str, Any]:
    """How the Job scales, keeps and sends what is narrow: by the user's word or the framework's habit."""
    if not precision.narrow:
        for name in ("fp8_scaling", "fp8_param_gather"):
            if options.get(name):
                raise QuestionError(f"--{name.replace('_', '-')} {_said(options[name])}: {precision.name} casts nothing")
        return {}
    scaling = options.get("fp8_scaling", framework.fp8_scaling)
    if not precision.one_scale:
        if "fp8_scaling" in options:
            raise QuestionError(f"--fp8-scaling {scaling}: only fp8 has a scale for a tensor, {precision.name} has scales for parts of it")
    elif "fp8_scaling" not in options:
        assume(assumptions, "fp8_scaling", scaling, "default")
    habit = framework.default_param_gather and precision.name in framework.param_gather
    gather = options.get("fp8_param_gather", habit)
    if gather and precision.name not in framework.param_gather:
        known = ", ".join(framework.param_gather) or "none"
        raise UnsupportedError(
            f"--fp8-param-gather on: {framework.name} gathers no weights in {precision.name} (known: {known}); name another --framework"
        )
    if "fp8_param_gather" not in options:
        assume(assumptions, "fp8_param_gather", "on" if gather else "off", "default")
    if not any(options.get(f"bf16_layers_at_{end}") for end in ("start", "end")):
        assume(assumptions, "layers in bf16", "0", "default")
    return {"fp8_scaling": scaling, "fp8_param_gather": gather}


def _said(value: Any) -> str:
    """A switch or a name as it was written."""
    return "on" if value is True else str(value)


def bind_job(options: dict[str, Any], model: Model, framework: Framework, flash_device: bool, assumptions: Assumptions) -> Job:
    """The Job: precision, optimizer and attention kernel by the user's word or the framework's habit."""
    precision = PRECISIONS[options["precision"]]
    if "flash_attention" in options:
        flash = options["flash_attention"]
    else:
        flash = flash_device and framework.attention_kernel == "flash"
        assume(assumptions, "flash_attention", "on" if flash else "off", "default")
    if flash and not flash_device:
        raise QuestionError("--flash-attention on: this accelerator has no flash attention kernel; use off")
    if "overlap" not in options:
        assume(assumptions, "overlap", ",".join(sorted(framework.overlap)) or "none", "default")
    refuse(options.get("frozen_weights", ""), options.get("lora_rank", 0.0), precision)
    if "gradient_dtype" in options:
        size = Sourced({"fp32": 4.0, "bf16": 2.0}[options["gradient_dtype"]], "B", options["gradient_dtype"], None, "given")
        framework = framework.replace(gradient_bytes=size, gradient_reduce_bytes=size)
    elif not precision.master_weights:  # parameters of four bytes have gradients of four bytes, which nothing casts on their way
        size = Sourced(precision.parameter_bytes, "B", f"{precision.parameter_bytes:g} B, as the weights of {precision.name}", ASKED)
        framework = framework.replace(gradient_bytes=size, gradient_reduce_bytes=size)
    if precision.name == "fp16":
        assume(assumptions, "loss scaling", "dynamic; no step is skipped for an infinity", "default")
    return Job(
        model,
        framework,
        precision,
        options["optimizer"],
        flash,
        count_embedding=options["count_embedding"],
        expert_imbalance=options.get("expert_imbalance", 1.0),
        capacity_factor=options.get("capacity_factor", 0.0),
        dispatch_precision=options.get("dispatch_precision", "wide"),
        moe_dispatcher=options.get("moe_dispatcher", "alltoall"),
        layers_per_stage=options.get("layers_per_stage", ()),
        mtp_stage=int(options["mtp_stage"]) if "mtp_stage" in options else None,
        cp_method=options.get("cp_method", "ring"),
        cp_inner=options.get("cp_inner", 0.0),
        cp_balance=options.get("cp_balance", True),
        document_length=options.get("document_length", 0.0),
        offload_layers=options.get("offload_layers", 0.0),
        offload_fraction=options.get("offload_fraction", 1.0),
        offload_overlap=options.get("offload_overlap", False),
        lora_rank=options.get("lora_rank", 0.0),
        lora_targets=targets(options.get("lora_targets", "attention"), model, framework) if options.get("lora_rank") else (),
        frozen_weights=options.get("frozen_weights", ""),
        attention_kernel=options.get("attention_kernel", ""),
        cuda_graphs=options.get("cuda_graphs", "none"),
        schedule=options.get("schedule", "1f1b"),
        microbatch_group=options.get("microbatch_group", 0.0),
        deferred_wgrad=options.get("deferred_wgrad", 0.0),
        fused_loss=options.get("fused_loss", False),
        delay_wgrad_compute=options.get("delay_wgrad_compute", False),
        grouped_experts=options.get("grouped_experts", True),
        **bind_narrow(options, framework, precision, assumptions),
    )


def bind_precision(on: str, folders: tuple[str, ...]) -> str:
    """The precision nobody named: bf16, or fp16 on a device without it."""
    accelerator = load.record("accelerators", on, folders)
    return "bf16" if "bf16" in accelerator.peak or "fp16" not in accelerator.peak else "fp16"


def given_links(node: Node, options: dict[str, Any]) -> Node:
    """A node whose scale-up domain or NICs the question states: NICs are then one an accelerator at the given rate."""
    if "scale_up_size" in options:
        size = float(options["scale_up_size"])
        node = node.replace(scale_up_size=Sourced(size, "1", f"{size:g}", None, "given"))
    if "nic_bandwidth" in options:
        rate = float(options["nic_bandwidth"])
        node = node.replace(nic_bandwidth=Sourced(rate, "B/s", f"{rate / 1e9:g} GB/s", None, "given"))
    return node


def assume_host(node: Node, systems: Systems, assumptions: Assumptions) -> None:
    """What is taken of the host that optimizer states or activations go to."""
    known, usual = node.host_memory_bandwidth, systems.host_memory_bandwidth
    told = usual.text + f", a usual server: {node.name} does not say" if known is None else known.text
    assume(assumptions, "host memory bandwidth", told, "default")
    room = node.host_memory_capacity
    assume(assumptions, "host memory", f"not known of {node.name}, not checked" if room is None else room.text, "default")
    if node.accelerators_per_host_link is None:
        assume(assumptions, "links to the host", "one an accelerator", "default")


def bind_cluster(options: dict[str, Any], folders: tuple[str, ...], assumptions: Assumptions) -> Cluster:
    """The Cluster: accelerator, its usual node and fabric unless named, and the calibration of each tier."""
    accelerator = load.record("accelerators", options["on"], folders)
    node_name = options.get("node", accelerator.usual_node)
    node = load.record("nodes", node_name, folders)
    fabric = load.record("fabrics", options.get("fabric", node.usual_fabric), folders)
    node = given_links(node, options)
    for kind, record in (("accelerators", accelerator), ("nodes", node), ("fabrics", fabric)):
        if folders_of := load.overrides(kind, record.name, folders):
            assume(assumptions, load.SINGULAR[kind], f"{record.name} from {folders_of}", "override")
    if "node" not in options:
        assume(assumptions, "node", node.name, "default")
    if "fabric" not in options:
        assume(assumptions, "fabric", fabric.name, "default")
    calibration: Calibration = load.record("calibration", accelerator.calibration, folders)
    scale_up = load.record("calibration", node.collective_calibration, folders) if node.collective_calibration else calibration
    if options.get("offload") and accelerator.pcie_bandwidth is None and accelerator.c2c_bandwidth is None:
        raise UnsupportedError(f"--offload: {accelerator.name} has no pcie_bandwidth in the catalogue")
    systems = load.record("systems", "default", folders)
    if options.get("offload"):
        assume_host(node, systems, assumptions)
    reference = load.record("accelerators", calibration.device, folders)
    clock = None
    if accelerator.tdp.value < reference.tdp.value and accelerator.name != reference.name:
        idle = systems.idle_power_fraction.value * reference.tdp.value
        clock = float(kernels.power_limited_clock(accelerator.tdp.value, reference.tdp.value, idle))
        assume(
            assumptions, "sustained clock", f"{clock:.3f} of {reference.name} ({accelerator.tdp.text} of {reference.tdp.text})", "default"
        )
    asked = PRECISIONS[options["precision"]]
    if asked.peak not in accelerator.peak or asked.gemm not in calibration.gemm or asked.wide not in accelerator.peak:
        usable = [p.name for p in PRECISIONS.values() if p.peak in accelerator.peak and p.gemm in calibration.gemm]
        raise UnsupportedError(f"--precision {asked.name}: {accelerator.name} has no such matrix rate; it has {', '.join(usable)}")
    return Cluster(
        accelerator, node, fabric, calibration, reference, scale_up, load.record("calibration", fabric.calibration, folders), systems, clock
    )
