"""What a reader must know of a question's own words before trusting the answer."""

from __future__ import annotations

from typing import Any

from ironlaw.estimate.options import flat, is_column
from ironlaw.plan import Cluster, Job

LONG = 65536  # tokens from which context parallel is worth a word
MANY = 512  # accelerators from which failures that are not independent are worth a word
_ONLY_IN_A_RUN = ("price", "grid", "pue", "evaluate_every", "checkpoint_every", "checkpoint_bandwidth", "mttf", "restart_time")


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
    if longest >= LONG and not given_cp and max(_items(given["gpus"])) > 1:
        made.append(f"cp is not searched: at seq_len {longest:g} context parallel (--cp) may be faster")
    for name in _ONLY_IN_A_RUN:
        if name in given and "tokens" not in given:
            made.append(f"--{name.replace('_', '-')} has no effect without --tokens: there is no run section")
    if "tokens" in given and "mttf" not in given and max(_items(given["gpus"])) >= MANY:
        made.append(
            "failures are counted as independent and accelerators as alike, which is optimistic: on Meta's RSC 1,024 GPUs ran 7.9 h between"
            " failures where the rate of its nodes says 28.8 h; give --mttf measured in jobs of this size"
        )
    away = {name for names in _items(given.get("offload", frozenset())) for name in names}
    for name, needs in (("offload_fraction", "optimizer"), ("offload_overlap", "optimizer"), ("offload_layers", "activations")):
        if name in given and needs not in away:
            made.append(f"--{name.replace('_', '-')} has no effect without --offload {needs}")
    if "lora_targets" in given and "lora_rank" not in given:
        made.append("--lora-targets has no effect without --lora-rank: everything is trained")
    alone = "vpp" in given and all(v == 1 for v in _items(given["vpp"]))
    if alone and any("pp" in names for names in _items(given.get("overlap", frozenset()))):
        made.append("--overlap pp has no effect with vpp 1: plain 1F1B waits for its neighbours")
    return made


def _items(value: Any) -> list[Any]:
    return flat(value) if is_column(value) else [value]
