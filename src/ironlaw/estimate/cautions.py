"""What a reader must know of a question's own words before trusting the answer."""

from __future__ import annotations

from typing import Any

from ironlaw.cluster import Cluster
from ironlaw.job import Job
from ironlaw.question.defaults import MANY_ACCELERATORS, WARN_SEQUENCE
from ironlaw.question.options import flat, is_column

_ONLY_IN_A_RUN = (
    "price",
    "grid",
    "pue",
    "evaluate_every",
    "evaluation_tokens",
    "checkpoint_every",
    "checkpoint_bandwidth",
    "mttf",
    "restart_time",
)
_ONLY_WITH_EXPERTS = ("expert_imbalance", "capacity_factor", "moe_dispatcher", "grouped_experts")


def cautions(given: dict[str, Any], given_cp: bool, job: Job, cluster: Cluster) -> list[str]:
    """One line for each: constants that are priors, a node that does not go with the device, options without effect."""
    made = []
    device, node, model = cluster.accelerator, cluster.node, job.model
    if cluster.calibration.grade != "measured":
        made.append(f"kernel constants of {device.name} are priors, not fitted to operators measured on it: expect wider errors")
    link = device.scale_up_bandwidth or device.pcie_bandwidth
    if "node" in given and link is not None and abs(node.scale_up_bandwidth.value / link.value - 1.0) > 0.1:
        made.append(f"node {node.name} joins its accelerators by {node.scale_up_bandwidth.text}, {device.name} usually has {link.text}")
    longest = max(_items(given["seq_len"]))
    if longest > model.max_position_embeddings:
        kind = "table of learned positions" if model.position_embedding == "learned" else "stated range"
        made.append(f"seq_len {longest:g} exceeds the model's {kind} of {model.max_position_embeddings}")
    if longest >= WARN_SEQUENCE and not given_cp and max(_items(given["gpus"])) > 1:
        made.append(f"cp is not searched: at seq_len {longest:g} context parallel (--cp, or ironlaw plan, which searches it) may be faster")
    made += [f"--{name.replace('_', '-')} has no effect {why}" for name, why in _idle(given, job) if name in given]
    if "tokens" in given and "mttf" not in given and max(_items(given["gpus"])) >= MANY_ACCELERATORS:
        made.append(
            "failures are counted as independent and accelerators as alike, which is optimistic: on Meta's RSC 1,024 GPUs ran 7.9 h between"
            " failures where the rate of its nodes says 28.8 h; give --mttf measured in jobs of this size"
        )
    return made


def _idle(given: dict[str, Any], job: Job) -> list[tuple[str, str]]:
    """Options that change nothing in this question if they are given, and why."""
    found = []
    if "tokens" not in given:
        found += [(name, "without --tokens: there is no run section") for name in _ONLY_IN_A_RUN]
    elif "evaluate_every" not in given:
        found.append(("evaluation_tokens", "without --evaluate-every"))
    if not job.model.num_experts:
        found += [(name, f"without experts: {job.model.name} is dense") for name in _ONLY_WITH_EXPERTS]
    elif "capacity_factor" in given:
        found.append(("expert_imbalance", "with --capacity-factor, which says how many rows an expert computes"))
    away = {name for names in _items(given.get("offload", frozenset())) for name in names}
    for name, needs in (("offload_fraction", "optimizer"), ("offload_overlap", "optimizer"), ("offload_layers", "activations")):
        if needs not in away:
            found.append((name, f"without --offload {needs}"))
    if "lora_rank" not in given:
        found.append(("lora_targets", "without --lora-rank: everything is trained"))
    if _alone(given, "cp"):
        found.append(("cp_method", "with cp 1"))
    if job.document_length and job.document_length >= max(_items(given["seq_len"])):
        found.append(("document_length", f"from seq_len {max(_items(given['seq_len'])):g} on: a sequence is one document"))
    if _alone(given, "pp"):
        found += [(name, "with pp 1") for name in ("schedule", "microbatch_group", "deferred_wgrad")]
    elif _alone(given, "vpp"):
        found.append(("microbatch_group", "with vpp 1"))
    if _alone(given, "vpp") and any("pp" in names for names in _items(given.get("overlap", frozenset()))):
        found.append(("overlap", "for pp with vpp 1: plain 1F1B waits for its neighbours"))
    return found


def _alone(given: dict[str, Any], axis: str) -> bool:
    """True where the axis is 1 in every row asked, and not left to choose."""
    return axis in given and all(v == 1 for v in _items(given[axis]))


def _items(value: Any) -> list[Any]:
    return flat(value) if is_column(value) else [value]
