"""Every option of an estimate, one row each. The command line, TOML files, CSV columns, Python, help and schemas read this table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from ironlaw.frozen import Frozen
from ironlaw.question import defaults
from ironlaw.question.decisions import ANSWER, AXIS, BATCH, DATA, FASTEST, MACHINE, MODEL, OF_STAGES, RUN, WASTE, Decision, part_of
from ironlaw.question.kinds import Kind, kind_of
from ironlaw.question.readers import (
    at_least_one,
    duration,
    expert_load,
    expert_placement,
    graphs,
    grid,
    margin,
    model,
    none_or_more,
    one_count,
    one_name,
    one_of,
    oversubscription,
    positive,
    precision,
    price,
    share,
    spread,
    stage,
    stage_layers,
    switch,
    text,
    torus_topology,
    whole,
)  # fmt: skip
from ironlaw.question.words import adapter_targets, batch_tokens, length, offload, overlap, recompute, run_tokens, tokens


class Option(Frozen):
    """One option. Its type, unit, choices and bounds are those of its reader, see ``kinds``."""

    read: Callable[[Any, str], Any]
    says: str  # what it is, without its default
    metavar: str = ""  # how help shows a value; "": as the reader says
    group: str = ""  # the heading of help that it stands under; "": that of its verb
    default: Any = None  # its value where it is not given; None: a record, a rule or the search decides
    decided: str = ""  # who decides where it is not given, or the default in words; "": the default
    also: tuple[str, ...] = ()  # names that other tools give it, with exactly this meaning
    column: bool = False  # Python may give a column of values, one for each row
    names: bool = False  # the value is a set of names: a list of texts is one value, a list of sets is a column
    usual: bool = False  # the short help shows it
    records: str = ""  # the kind of record that it names
    of_job: bool = False  # the job has its value as it is
    search: Decision = AXIS  # what it is to a search for plans
    needs: tuple[str, ...] = ()  # it has no effect without one of these
    excludes: Mapping[str, str] = MappingProxyType({})  # options that it does not go with, and why
    left_out: Mapping[str, str] = MappingProxyType({})  # verbs that do not take it, with the reason
    since: str = "0.1.0"  # the version that has it first

    def __init__(self, read: Callable[[Any, str], Any], says: str, metavar: str = "", **more: Any) -> None:
        super().__init__(read, says, metavar or kind_of(read).metavar, **more)

    @property
    def kind(self) -> Kind:
        """What its reader takes and gives: types, unit, choices and bounds."""
        return kind_of(self.read)

    @property
    def help(self) -> str:
        """Its line in a help text: what it is, and what is taken where it is not given.

        >>> OPTIONS["sp"].help, OPTIONS["network_share"].help[-12:], OPTIONS["gpus"].help
        ('sequence parallelism (default: on where tp > 1)', '(default: 1)', 'total accelerators')
        """
        return f"{self.says} (default: {self.otherwise})" if self.otherwise else self.says

    @property
    def otherwise(self) -> str:
        """What is taken where it is not given, in words; "" where nothing is."""
        return self.decided or _in_words(self.default)


def _in_words(value: Any) -> str:
    """A default as help shows it; "" where there is none."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g}" if isinstance(value, float) else str(value or "")


def heading_of(name: str, option: Option, own: str) -> str:
    """The heading of an option in the help of a verb: its own, that of the option of an estimate with its name, or the verb's."""
    return option.group or (OPTIONS[name].group if name in OPTIONS else own)


def group(heading: str, rows: Mapping[str, Option]) -> dict[str, Option]:
    """Options under one heading of the help, in its order."""
    return {name: option.replace(group=heading) for name, option in rows.items()}


ROUNDING = Option(one_of(defaults.ROUNDINGS), f"rounding of steps: {', '.join(defaults.ROUNDINGS)}", "HOW", decided=defaults.ROUNDING)
TOKENS_PER_SECOND = Option(
    tokens, "measured tokens per second of all accelerators, such as 150k: its MFU, its loss and likely causes", "RATE"
)
STEP = "it looks at one step"  # reasons of verbs that leave an option out
SEVERAL = "a run at several sites counts no evaluations, checkpoints and failures"
COMPARED = "it compares steps, which this does not change"
OF_MONEY = {"roofline": STEP, "data": "it counts no money and no energy"}
OF_RUN = {"roofline": STEP, "optimize": COMPARED, "textbook": COMPARED, "sites": SEVERAL}
OF_EVALUATION = {**OF_RUN, "solve": "it counts the steps of the run alone"}
OF_FAILURES = {**OF_RUN, "data": "it counts no failures"}
OF_RESTART = {name: why for name, why in OF_FAILURES.items() if name != "sites"}
OF_DOCUMENTS = {"roofline": "its sequences are alike, --lengths are other ones there"}
ENDS = dict.fromkeys(("first_stage_layers", "last_stage_layers"), "both place layers")
ALONE = {  # verbs that ask about no plan of a training run: why they take few options of an estimate
    "inference": "it serves a model and trains none",
    "scaling": "it knows neither machine nor plan",
    "fleet": "the options of a job stand in its file",
    "diff": "it compares saved answers",
    "again": "the question stands in the file",
}
OPTIONS: dict[str, Option] = {
    **group("Model", {
        "model": Option(model,
            "model: a catalogue name, a config.json (file or folder), or hidden_size=...,num_hidden_layers=...",
            usual=True, records="models", search=MODEL),
        "mtp_layers": Option(none_or_more, "multi-token-prediction layers", decided="the model's", search=MODEL),
        "images_per_sequence": Option(none_or_more, "images that the vision tower reads for each sequence", default=0.0,
            decided="0, no tower", search=DATA),
        "image_size": Option(whole, "pixels of a side of an image", "PIXELS",
            decided=f"the config's, else {defaults.IMAGE_SIZE}", search=DATA),
        "audio_seconds": Option(positive("s"), "audio that the audio tower reads for each sequence, such as 30s",
            "TIME", decided="none", search=DATA),
        "encoder_seq_len": Option(length, "tokens that an encoder-decoder reads; --seq-len are those of its decoder",
            decided="the model's", search=DATA),
        "frozen_tower": Option(switch, "the towers' weights are not trained", decided="off; with LoRA on",
            search=MODEL),
    }),
    **group("Machine", {
        "on": Option(text, "accelerator, by catalogue name", "ACCELERATOR", default="", usual=True,
            also=("accelerator", "device", "hardware", "gpu_type", "gpu_name", "gpu_model"), records="accelerators",
            search=MACHINE),
        "gpus": Option(one_count, "total accelerators", column=True, usual=True,
            also=("num_gpus", "n_gpus", "ngpus", "gpu_count", "world_size", "num_accelerators", "num_devices",
                "num_chips"), search=MACHINE),
        "node": Option(text, "node, by catalogue name", decided="the accelerator's usual one", usual=True,
            records="nodes", search=MACHINE),
        "fabric": Option(text, "fabric between nodes", decided="the node's usual one", also=("interconnect", "network"),
            records="fabrics", search=MACHINE),
        "scale_up_size": Option(whole, "accelerators joined by scale-up links", decided="the node's", search=MACHINE),
        "gpus_per_domain": Option(whole, "accelerators of each scale-up domain that the job takes",
            decided="as its groups divide", search=FASTEST),
        "topology": Option(torus_topology, "chips of each axis of a slice of a torus, such as 4x4x8",
            decided="the most cubic slice", also=("slice", "tpu_topology", "slice_shape"), search=MACHINE),
        "power_cap": Option(positive("W"), "power limit of one accelerator, such as 500W", "POWER",
            decided="none, its rated power", search=MACHINE),
    }),
    **group("Network", {
        "nic_bandwidth": Option(positive("B/s"), "NIC bandwidth per accelerator and direction, such as 50GB/s", "RATE",
            decided="the node's", search=MACHINE),
        "network_share": Option(share,
            "part of the NICs' bandwidth that other jobs leave to this one, above 0 and at most 1",
            default=defaults.NETWORK_SHARE, search=MACHINE),
        "oversubscription": Option(oversubscription,
            "rate of the NICs of a pod over that of the links that leave it, such as 3:1",
            decided="the fabric's, else 1", search=MACHINE),
        "pod_size": Option(whole,
            "with --oversubscription, accelerators that reach each other at the NICs' whole rate: of a leaf switch,"
            " of the leaves of all rails, or of a pod",
            decided="the fabric's, else a leaf, times the rails if rail-optimised", search=MACHINE),
        "rail_optimised": Option(switch, "NICs of one position in all nodes share leaf switches",
            decided="the fabric's", search=MACHINE),
        "in_network_reduction": Option(one_of(defaults.IN_NETWORK_REDUCTIONS),
            "all-reduces that switches add: nvls, in an NVSwitch domain; sharp, gradients on InfiniBand; on, both"
            " where there are; off, none", "HOW", decided="nvls where NCCL took it when it was measured",
            search=MACHINE),
    }),
    **group("Job", {
        "framework": Option(one_name, "training framework",
            decided="the accelerator's usual one, else fsdp with --gpus 1 or --tp 1 --pp 1, else megatron", usual=True,
            also=("stack",), records="frameworks", search=Decision("framework")),
        "global_batch_size": Option(whole, "sequences per optimizer step", column=True,
            decided=f"about {defaults.BATCH_TOKENS / 2**20:g} Mi tokens", usual=True,
            also=("gbs", "global_batch", "train_batch_size", "total_train_batch_size"), search=BATCH),
        "global_batch_tokens": Option(batch_tokens,
            "tokens per optimizer step, such as 4M (4 Mi), instead of --global-batch-size", usual=True,
            also=("batch_tokens", "tokens_per_batch", "tokens_per_step"), search=BATCH,
            excludes={"global_batch_size": "the other is in sequences"}),
        "seq_len": Option(length, "tokens per sequence, such as 4096 or 128k", column=True,
            decided=f"the model's maximum, at most {defaults.SEQ_LEN:g}", usual=True,
            also=("seq_length", "sequence_length", "context_length", "context_len", "max_length", "max_seq_len",
                "max_seq_length", "max_sequence_length"), search=BATCH),
        "document_length": Option(length, "mean length of packed documents, weighted by length", default=0.0,
            decided="seq_len", of_job=True, search=DATA),
        "optimizer": Option(text, "optimizer: `ironlaw catalog list optimizers`", default=defaults.OPTIMIZER,
            decided=f"{defaults.OPTIMIZER}, or the framework's", also=("optim",), records="optimizers",
            search=Decision("optimizer")),
        "optimizer_rank": Option(whole, "rank of the gradients of --optimizer galore",
            decided="a quarter of each matrix's smaller side", search=part_of("optimizer galore")),
        "space": Option(text, "file of the values to try where the plan is open", "FILE", decided="the built-in space",
            search=ANSWER),
        "margin": Option(margin,
            "share of device memory to keep free, such as 5%: a plan that leaves less does not fit",
            decided="0 for a given plan; a chosen plan keeps as much as makes it 80 % likely to fit",
            also=("memory_margin",), search=ANSWER),
        "correction": Option(text, "factor on step time from your own runs, a file of ironlaw validate --mine", "TOML",
            decided="none", search=ANSWER, left_out={"roofline": "its operators have the times of the laws"}),
        "calibration_version": Option(text, "version of the fitted and measured constants", "VERSION",
            decided="the newest", search=ANSWER),
    }),
    **group("Documents", {
        "lengths": Option(text,
            "lengths of the documents: a file (CSV, JSON, JSONL, one a line), a catalogue name, or fixed:2048,"
            " uniform:LO..HI, lognormal:median=800,sigma=1.1, zipf:s=1.5,max=8192, 512=3,4096=1", "FILE|SPEC",
            decided="all as --document-length", search=DATA,
            excludes={"document_length": "the first is a distribution, the second one length"},
            left_out={"roofline": "--lengths are sequences of attention there"}),
        "packing": Option(one_of(defaults.PACKINGS),
            "documents of --lengths into sequences of seq_len: pack (first fit), pack-best-fit, truncate (one stream,"
            " cut), none (padded to the longest of the micro-batch), sorted (the same, neighbours alike), pad (to"
            " seq_len)", "HOW", default=defaults.PACKING, search=Decision("packing of documents", "documents"), left_out=OF_DOCUMENTS),
        "balance": Option(one_of(defaults.BALANCES),
            "sequences of --lengths dealt to ranks: none (at random), sorted (ranks run alike ones), flops", "HOW",
            default=defaults.BALANCE, search=Decision("balance of documents", "documents"), left_out=OF_DOCUMENTS),
        "cp_by_length": Option(switch,
            "each micro-batch of --lengths takes the context ranks that its longest document needs", default=False,
            search=Decision("context ranks by length", "documents"), left_out=OF_DOCUMENTS),
    }),
    **group("Plan", {
        "tp": Option(whole, "tensor-parallel size", column=True, decided="searched", usual=True,
            also=("tensor_parallel", "tensor_parallel_size", "tensor_model_parallel_size", "tensor_parallelism",
                "tensor_parallel_degree", "tp_size"), search=AXIS),
        "sp": Option(switch, "sequence parallelism", column=True, decided="on where tp > 1",
            also=("sequence_parallel",), search=AXIS),
        "pp": Option(whole, "pipeline-parallel size", column=True, decided="searched", usual=True,
            also=("pipeline_parallel", "pipeline_parallel_size", "pipeline_model_parallel_size", "pipeline_parallelism",
                "pipeline_parallel_degree", "pp_size"), search=AXIS),
        "vpp": Option(whole, "model chunks per pipeline rank", column=True, decided="searched",
            also=("virtual_pipeline_parallel_size", "virtual_pipeline_model_parallel_size", "virtual_pipeline_size"),
            search=AXIS),
        "cp": Option(whole, "context-parallel size", column=True,
            decided=f"searched; {defaults.CP:g} with a whole plan given",
            also=("context_parallel", "context_parallel_size", "context_parallel_degree", "cp_size"), search=AXIS),
        "dp_replicate": Option(whole, "data-parallel replicas", column=True, decided="searched",
            also=("data_parallel_replicate_degree",), search=AXIS),
        "dp_shard": Option(whole, "data-parallel shards", column=True, decided="searched",
            also=("data_parallel_shard_degree", "fsdp_size"),
            search=Decision(settled="the ranks that the other axes leave")),
        "zero": Option(stage, "ZeRO stage: 0 none, 1 shards states, 2 gradients too, 3 weights too", column=True,
            decided="searched", usual=True, also=("zero_stage", "deepspeed_stage", "zero_level"), search=AXIS),
        "micro_batch_size": Option(whole, "sequences per micro-batch on one data-parallel rank", column=True,
            decided="searched", usual=True,
            also=("mbs", "micro_batch", "microbatch_size", "per_device_train_batch_size", "per_device_batch_size",
                "train_micro_batch_size_per_gpu"), search=AXIS),
        "recompute": Option(recompute,
            "activation checkpointing (recomputation): none; selective[:OPERATORS]; full, every layer; segments:K,"
            " all layers with one checkpoint for K layers; every:K, one layer in K; share:F, of the layers",
            column=True, decided="searched", usual=True,
            also=("recomputation", "activation_recomputation", "activation_recompute"),
            search=Decision("other shares and operators to recompute", "recomputation", partly=True)),
        "overlap": Option(overlap,
            f"communication that overlaps computation: {', '.join(defaults.OVERLAPS)}; none; all (without ep)",
            column=True, names=True, decided="the framework's", search=AXIS),
    }),
    **group("Pipeline", {
        "schedule": Option(one_of(defaults.SCHEDULES), f"pipeline schedule: {', '.join(defaults.SCHEDULES)}",
            decided=defaults.SCHEDULE_RULE, also=("pipeline_schedule", "pipeline_parallel_schedule"), search=AXIS),
        "microbatch_group": Option(whole, "micro-batches that a chunk runs in a row, interleaved schedule", default=0.0,
            decided="pp", of_job=True, search=FASTEST),
        "layers_per_stage": Option(stage_layers, "layers of every pipeline stage, comma separated", default=(),
            decided="even", of_job=True, search=Decision("layers of inner stages", "uneven stages"),
            excludes=ENDS),
        "first_stage_layers": Option(none_or_more, "layers of the first pipeline stage", column=True, decided="even",
            search=OF_STAGES),
        "last_stage_layers": Option(none_or_more, "layers of the last pipeline stage", column=True, decided="even",
            search=AXIS),
        "mtp_stage": Option(none_or_more,
            "stage, from 0, of the multi-token-prediction layers; needs --layers-per-stage", decided="the last",
            search=part_of("layers_per_stage")),
        "count_embedding": Option(switch, "count embedding and loss as layers when splitting stages", default=False,
            of_job=True, search=OF_STAGES,
            excludes=ENDS),
        "deferred_wgrad": Option(whole,
            "micro-batches whose output-layer weight gradient waits for the end of the pipeline", default=0.0,
            of_job=True, search=FASTEST),
    }),
    **group("Context parallel", {
        "cp_method": Option(one_of(defaults.CP_METHODS), f"context-parallel method: {', '.join(defaults.CP_METHODS)}",
            "HOW", default=defaults.CP_METHOD,
            search=Decision("context-parallel method", "short context", partly=True)),
        "cp_inner": Option(whole, "ranks of one all-to-all group of all-to-all+ring", default=0.0,
            decided="the largest in a scale-up domain that divides the key heads", of_job=True, search=FASTEST),
        "cp_balance": Option(switch, "each context rank takes one chunk from either end of the sequence", default=True,
            of_job=True, search=FASTEST),
    }),
    **group("Mixture of experts", {
        "ep": Option(whole, "expert-parallel size", column=True, decided="searched",
            also=("expert_parallel", "expert_parallel_size", "expert_model_parallel_size", "expert_parallel_degree",
                "ep_size"), search=Decision(where="experts")),
        "etp": Option(whole, "tensor-parallel size of one expert", column=True,
            decided=f"{defaults.ETP:g}; a --space file can list others to search",
            also=("expert_tensor_parallel", "expert_tensor_parallel_size"),
            search=Decision("expert tensor parallelism", "expert tensor ranks")),
        "moe_dispatcher": Option(one_of(defaults.DISPATCHERS),
            f"all-to-all of experts: {', '.join(defaults.DISPATCHERS)}", "HOW",
            decided=f"the fastest that the framework has; {defaults.DISPATCHER} with a whole plan given",
            default=defaults.DISPATCHER, also=("moe_token_dispatcher_type",), of_job=True,
            search=Decision(where="experts")),
        "dispatch_precision": Option(one_of(defaults.DISPATCH_PRECISIONS),
            "format of dispatched rows: fp8, fp8-forward (gradients stay wide), wide (two bytes)",
            default=defaults.DISPATCH_PRECISION, of_job=True, search=Decision("precision of dispatch", "expert ranks")),
        "capacity_factor": Option(positive("1"), "expert capacity over the mean load", default=0.0, decided="dropless",
            also=("moe_expert_capacity_factor", "moe_capacity_factor"), of_job=True,
            search=Decision("expert capacity", "experts")),
        "expert_imbalance": Option(at_least_one, "load of the busiest expert rank over the mean",
            default=defaults.EXPERT_IMBALANCE, decided=f"{defaults.EXPERT_IMBALANCE:g}, balanced", of_job=True,
            search=DATA),
        "expert_load": Option(expert_load,
            "loads of experts: a file (CSV, JSON), one number an expert, by layer or for all; a record;"
            f" {', '.join(defaults.EXPERT_LOADS)}", search=DATA,
            excludes={"expert_imbalance": "it follows from the loads"}),
        "expert_placement": Option(expert_placement,
            "with --expert-load, experts on ranks: in-order, balanced, or redundant:R, which copies the busiest into"
            " R more slots", default=defaults.EXPERT_PLACEMENT, search=Decision("placement of experts", "loads"),
            needs=("expert_load",)),
        "load_spread": Option(spread,
            "with --expert-load, deviation of an expert's load from step to step over its mean, such as 0.1",
            default=0.0, search=DATA,
            needs=("expert_load",)),
        "routing_noise": Option(switch,
            "with --expert-load, tokens choose at random with these loads; off: every micro-batch has them",
            decided="on", search=DATA,
            needs=("expert_load",)),
        "grouped_experts": Option(switch, "grouped GEMM for the experts of a rank", default=True, of_job=True,
            search=FASTEST),
        "delay_wgrad_compute": Option(switch, "run weight gradients during the all-to-all of --overlap ep",
            default=False, of_job=True, search=FASTEST),
    }),
    **group("Precision and kernels", {
        "precision": Option(precision, f"format of linear layers: {', '.join(defaults.PRECISIONS)}",
            decided="bf16, or fp16 where the device lacks it", usual=True,
            also=("dtype", "mixed_precision", "compute_dtype", "torch_dtype"), records="precisions",
            search=Decision("precision")),
        "expert_precision": Option(precision, "format of the routed experts' products", default="",
            decided="--precision", records="precisions", search=Decision("precision of experts", "narrow experts")),
        "fp8_scaling": Option(one_of(("current", "delayed")), "scaling of --precision fp8: current, delayed", "HOW",
            decided="the framework's", search=FASTEST),
        "fp8_param_gather": Option(switch, "store and all-gather fp8 or fp4 weights as fp8 or fp4",
            decided="off; torchtitan in fp8: on", search=Decision("narrow weight gathers", "narrow weights")),
        "bf16_layers_at_start": Option(none_or_more, "first layers kept in bf16 under a narrow precision", default=0.0,
            search=FASTEST),
        "bf16_layers_at_end": Option(none_or_more, "last layers kept in bf16 under a narrow precision", default=0.0,
            search=FASTEST),
        "gradient_dtype": Option(one_of(("fp32", "bf16")), "format of stored and reduced gradients",
            decided="the framework's", search=Decision("type of gradients", "gradient types")),
        "weights_dtype": Option(one_of(tuple(defaults.WEIGHTS_DTYPES)),
            "type that weights are loaded, stored and updated in: fp32, or bf16 (pure bf16: gradients and Adam's"
            " moments are bf16 too, and no fp32 copy is kept)", decided="the framework's",
            also=("load_dtype", "weight_dtype", "param_dtype", "params_dtype", "optimization_dtype"),
            search=Decision("type of weights", "weight types")),
        "flash_attention": Option(switch, "flash attention", decided="on where device and framework have it",
            also=("flash_attn", "use_flash_attn", "use_flash_attention"), search=FASTEST),
        "attention_kernel": Option(one_of(("flash-1", "flash-2", "flash-3")), "flash-attention generation", default="",
            decided="the framework's", of_job=True, search=Decision("attention kernel", "older attention")),
        "attention_precision": Option(one_of(defaults.ATTENTION_PRECISIONS),
            "format of attention's two products: fp8, fp8-forward (backward stays wide), wide",
            default=defaults.ATTENTION_PRECISION, of_job=True,
            search=Decision("precision of attention", "fp8 attention")),
        "cuda_graphs": Option(graphs,
            f"CUDA graphs: none, partial (attn,mlp,mamba), full, or a list of {', '.join(defaults.GRAPH_MODULES)}",
            default=defaults.CUDA_GRAPH, of_job=True, search=Decision("CUDA graphs", "graphs")),
        "fused_loss": Option(switch, "compiled loss, which stores one more fp32 copy of the logits", default=False,
            of_job=True, search=FASTEST),
        "logits": Option(one_of(("whole", "chunked")),
            "the output layer and the loss hold all logits at once, or a chunk at a time", "HOW",
            decided="the framework's", search=FASTEST),
        "key_value_cache": Option(switch,
            "a recomputed layer keeps its keys and values, where the model's generation cache (use_cache) was left on",
            default=False, of_job=True, also=("use_cache",), search=WASTE),
        "optimizer_in_backward": Option(switch,
            "update each weight in the backward pass and free its gradient: less memory, one micro-batch a step",
            default=False, of_job=True, search=FASTEST),
    }),
    **group("Offloading", {
        "offload": Option(offload,
            "move to host memory: optimizer, activations, parameters (and gradients and optimizer: FSDP cpu_offload,"
            " ZeRO-3 offload_param); nvme: optimizer states on NVMe; none", column=True, names=True, decided="none",
            search=Decision("offloading", "offloading")),
        "offload_layers": Option(whole, "layers per stage that offload activations", default=0.0, decided="all",
            of_job=True, search=Decision("layers of offloading", "offloaded activations")),
        "offload_fraction": Option(share, "share of optimizer states that --offload optimizer moves", "X",
            default=defaults.OFFLOAD_FRACTION, of_job=True,
            search=Decision("share of offloading", "offloaded optimizer")),
        "offload_overlap": Option(switch, "the host updates one tensor while others are copied", default=False,
            of_job=True, search=Decision("overlap of offloading", "offloaded optimizer")),
    }),
    **group("Fine-tuning", {
        "lora_rank": Option(whole, "rank of LoRA adapters; all other weights are frozen", default=0.0,
            decided="no adapters", usual=True, also=("lora_r", "lora_dim"), of_job=True, search=MODEL),
        "lora_sets": Option(whole, "sets of LoRA adapters in memory, of which one is trained", default=1.0, of_job=True,
            search=MODEL),
        "lora_targets": Option(adapter_targets,
            "layers with an adapter: attention, mlp, all, or of q, k, v, qkv, proj, fc1, gate, up, fc2, experts,"
            " router, shared_experts; of latent attention q_down, q_up, kv_down, kv_up, mla_up",
            default=defaults.LORA_TARGETS, also=("lora_target_modules", "target_modules"), search=MODEL),
        "adapter": Option(one_of(defaults.ADAPTERS),
            f"kind of adapter with --lora-rank: {', '.join(defaults.ADAPTERS)}", default=defaults.ADAPTERS[0],
            of_job=True, search=MODEL),
        "frozen_weights": Option(one_of(("fp8", "nf4", "gptq", "mxfp4", "int8")),
            "format of frozen weights with LoRA: fp8; nf4, gptq, mxfp4 (4 bits); int8", default="",
            decided="as trained weights", of_job=True, search=Decision("format of frozen weights", "adapters")),
        "frozen_layers": Option(none_or_more, "first layers, with the embedding, that are not trained", default=0.0,
            search=MODEL),
    }),
    **group("Post-training", {
        "objective": Option(text,
            "what is trained: next-token, sft, dpo, kto, orpo, simpo, reward, distillation, or your own", default="",
            decided="next-token", records="objectives", search=MODEL),
        "teacher": Option(model, "model whose outputs --objective distillation reads", decided="none", records="models",
            search=MODEL),
        "precomputed_reference": Option(switch,
            "the reference's outputs were computed before the run and come with the data", default=False, of_job=True,
            search=MODEL),
    }),
    **group("Run and cost", {
        "tokens": Option(run_tokens, "tokens of the whole run, such as 15T, or per parameter: 20x",
            decided="one step only", usual=True, also=("train_tokens", "num_tokens", "total_tokens", "training_tokens"),
            search=RUN, left_out={"roofline": STEP}),
        "price": Option(price, "USD per accelerator hour, or provider/term", decided="newest on-demand price",
            usual=True, also=("price_per_hour", "hourly_price", "gpu_price", "price_per_gpu_hour"), search=RUN, left_out=OF_MONEY),
        "grid": Option(grid, "carbon intensity: a region, or g/kWh", decided="world average", usual=True,
            records="grids", search=RUN, left_out=OF_MONEY),
        "pue": Option(at_least_one, "power usage effectiveness of the data centre", decided="the catalogue's",
            search=RUN, left_out=OF_MONEY),
        "evaluate_every": Option(whole, "steps between evaluations", "STEPS", decided="no evaluations",
            also=("eval_interval", "eval_steps"), search=RUN, left_out=OF_EVALUATION),
        "evaluation_tokens": Option(tokens, "tokens per evaluation, forward only", decided="one batch", search=RUN, left_out=OF_EVALUATION),
    }),
    **group("Failures and checkpoints", {
        "mttf": Option(duration, "mean time to failure of one accelerator, such as 50000h", decided="Llama 3's",
            search=RUN, left_out=OF_FAILURES),
        "restart_time": Option(duration, "time from failure to training again, such as 15min",
            decided="at most Llama 3's", search=RUN, left_out=OF_RESTART),
        "checkpoint_every": Option(whole, "steps between checkpoints", "STEPS",
            decided="the interval that loses least time", also=("save_interval", "save_steps"), search=RUN, left_out=OF_RUN),
        "checkpoint_bandwidth": Option(positive("B/s"), "total storage bandwidth for checkpoints, such as 100GB/s",
            "RATE", decided="BLOOM's per accelerator", search=RUN, left_out=OF_RUN),
    }),
}  # fmt: skip
GROUPS: dict[str, tuple[str, ...]] = {  # headings of the help, in its order
    heading: tuple(name for name, option in OPTIONS.items() if option.group == heading)
    for heading in dict.fromkeys(option.group for option in OPTIONS.values())
}


def taken_by(verb: str, own: Mapping[str, Option] = MappingProxyType({})) -> dict[str, Option]:
    """The options of an estimate that a verb takes as they are: all but those that it reads in another way, ``own``, or leaves out."""
    return {name: option for name, option in OPTIONS.items() if name not in own and verb not in option.left_out}


def why_left_out(name: str, verb: str) -> str:
    """Why a verb leaves out an option of an estimate; "" where it does not say.

    >>> why_left_out("mttf", "sites"), why_left_out("tp", "inference")
    ('a run at several sites counts no evaluations, checkpoints and failures', 'it serves a model and trains none')
    """
    return OPTIONS[name].left_out.get(verb) or ALONE.get(verb, "") if name in OPTIONS else ""


def flag(name: str, where: str = "") -> str:
    """The option as the user wrote it: ``--global-batch-size``, or ``global_batch_size in run.toml``."""
    return f"{name} in {where}" if where else f"--{name.replace('_', '-')}"
