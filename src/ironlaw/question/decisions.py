"""What every option of an estimate is to a search for plans: an axis, a decision that it leaves as it is, or none of its decisions.

A page lists the decisions that are left as they are under *Not searched* (``estimate.planner.unsearched``). An option with neither
words nor a reason is an axis of the space that ships; in a space that does not vary it, it is listed by its name.
"""

from __future__ import annotations

from typing import NamedTuple


class Decision(NamedTuple):
    """One option as a decision of the search."""

    words: str = ""  # how a page names it
    where: str = ""  # the only plans that it changes, a row of ``estimate.planner.unsearched.PLACES``; "": all
    partly: bool = False  # listed although the space varies it: some of its values are not tried
    settled: str = ""  # why it is no decision of a search


AXIS = Decision()
MODEL = Decision(settled="says what is trained")
MACHINE = Decision(settled="says what it runs on")
DATA = Decision(settled="says what is read")
BATCH = Decision(settled="says how much a step learns from; where it is open, it is chosen before the plan")
RUN = Decision(settled="belongs to the run, and changes no step")
ANSWER = Decision(settled="says how the answer is made")
FASTEST = Decision(settled="no held plan of tests/search/test_not_searched.py gains 1 % by another value")
OF_STAGES = Decision(settled="the splits of last_stage_layers have it")


def part_of(option: str) -> Decision:
    """A detail of another option, which changes nothing without it."""
    return Decision(settled=f"a part of {option}")


DECISIONS: dict[str, Decision] = {
    # --- decisions of the stack and its kernels, in the order of a page
    "framework": Decision("framework"),
    "precision": Decision("precision"),
    "expert_precision": Decision("precision of experts", "narrow experts"),
    "attention_precision": Decision("precision of attention", "fp8 attention"),
    "attention_kernel": Decision("attention kernel", "older attention"),
    "dispatch_precision": Decision("precision of dispatch", "expert ranks"),
    "fp8_param_gather": Decision("narrow weight gathers", "narrow weights"),
    "gradient_dtype": Decision("type of gradients", "gradient types"),
    "weights_dtype": Decision("type of weights", "weight types"),
    "optimizer": Decision("optimizer"),
    "cuda_graphs": Decision("CUDA graphs", "graphs"),
    "etp": Decision("expert tensor parallelism", "expert tensor ranks"),
    "capacity_factor": Decision("expert capacity", "experts"),
    "expert_placement": Decision("placement of experts", "loads"),
    "offload": Decision("offloading", "offloading"),
    "offload_overlap": Decision("overlap of offloading", "offloaded optimizer"),
    "offload_fraction": Decision("share of offloading", "offloaded optimizer"),
    "offload_layers": Decision("layers of offloading", "offloaded activations"),
    "frozen_weights": Decision("format of frozen weights", "adapters"),
    "balance": Decision("balance of documents", "documents"),
    "packing": Decision("packing of documents", "documents"),
    "cp_by_length": Decision("context ranks by length", "documents"),
    "layers_per_stage": Decision("layers of inner stages", "uneven stages"),
    "cp_method": Decision("context-parallel method", "short context", partly=True),
    "recompute": Decision("other shares and operators to recompute", "recomputation", partly=True),
    # --- axes of the space that ships
    **dict.fromkeys(("tp", "sp", "pp", "vpp", "cp", "dp_replicate", "zero", "micro_batch_size", "last_stage_layers"), AXIS),
    **dict.fromkeys(("overlap", "schedule"), AXIS),
    **dict.fromkeys(("ep", "moe_dispatcher"), Decision(where="experts")),
    "dp_shard": Decision(settled="the ranks that the other axes leave"),
    **dict.fromkeys(("count_embedding", "first_stage_layers"), OF_STAGES),
    # --- defaults that no plan of the test is faster without
    **dict.fromkeys(("fp8_scaling", "bf16_layers_at_start", "bf16_layers_at_end", "microbatch_group", "deferred_wgrad"), FASTEST),
    **dict.fromkeys(("fused_loss", "delay_wgrad_compute", "grouped_experts", "flash_attention", "cp_inner", "cp_balance"), FASTEST),
    **dict.fromkeys(("gpus_per_domain", "logits", "optimizer_in_backward"), FASTEST),
    # --- no decision of a plan
    **dict.fromkeys(("model", "mtp_layers", "frozen_tower", "frozen_layers", "objective", "teacher", "precomputed_reference"), MODEL),
    **dict.fromkeys(("lora_rank", "lora_targets", "adapter", "lora_sets"), MODEL),
    **dict.fromkeys(("on", "gpus", "node", "fabric", "scale_up_size", "topology", "nic_bandwidth", "power_cap", "network_share"), MACHINE),
    **dict.fromkeys(("oversubscription", "pod_size", "rail_optimised", "in_network_reduction"), MACHINE),
    **dict.fromkeys(("images_per_sequence", "image_size", "audio_seconds", "encoder_seq_len", "document_length", "lengths"), DATA),
    **dict.fromkeys(("expert_imbalance", "expert_load", "load_spread", "routing_noise"), DATA),
    **dict.fromkeys(("global_batch_size", "global_batch_tokens", "seq_len"), BATCH),
    **dict.fromkeys(("tokens", "price", "grid", "pue", "evaluate_every", "evaluation_tokens", "mttf", "restart_time"), RUN),
    **dict.fromkeys(("checkpoint_every", "checkpoint_bandwidth"), RUN),
    **dict.fromkeys(("space", "margin", "correction", "calibration_version"), ANSWER),
    "optimizer_rank": part_of("optimizer galore"),
    "mtp_stage": part_of("layers_per_stage"),
}
