"""What a configuration must say of a plan: its options, and what follows from them, by name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from math import gcd
from typing import Any

from ironlaw.catalog.model import Model
from ironlaw.estimate.answer.as_data import layers_by_stage, placement_data, plan_data
from ironlaw.estimate.answer.group import Group
from ironlaw.estimate.answer.reproduce import asked_data
from ironlaw.question import defaults
from ironlaw.question.options import GROUPS, OPTIONS

# headings of options that say how a run is asked about, not how it is configured
_ASKED = ("Machine", "Network", "Documents", "Run and cost", "Failures and checkpoints")
_NOT_SAID = {name for heading in _ASKED for name in GROUPS[heading]} | {
    "model", "framework", "global_batch_tokens", "document_length", "space", "margin", "correction", "calibration_version", "dp_shard",
    "first_stage_layers", "last_stage_layers", "layers_per_stage", "overlap", "offload", "expert_load", "load_spread", "routing_noise",
    "expert_imbalance", "cp_balance", "attention_kernel", "micro_batch_size", "global_batch_size", "seq_len", "fp8_scaling",
    "grouped_experts",
}  # fmt: skip
_OFF = (None, False, "off", "none", "", 0, ())
_USUAL = {
    "tp": 1, "pp": 1, "vpp": 1, "cp": 1, "ep": 1, "etp": 1, "dp_replicate": 1, "zero": 0, "flash_attention": "on",
    "objective": "next-token", "precision": None, "optimizer": None,
}  # fmt: skip
_ONLY_WITH = {  # a fact that matters where another is more than one
    "sp": "tp", "schedule": "pp", "vpp": "pp", "cp_method": "cp", "cp_inner": "cp", "microbatch_group": "vpp", "moe_dispatcher": "ep",
    "overlap.tp": "tp", "overlap.pp": "vpp", "overlap.ep": "ep", "zero": "dp_shard",
}  # fmt: skip


def plan_of(group: Group, at: int = 0) -> dict[str, Any]:
    """The plan of a row with the job's options, as ``launch.flags`` takes it: ``stages`` has the layers of each pipeline rank."""
    asked = asked_data(group, at)
    plan = {**asked["given"], **asked["plan"], "fp8_scaling": group.job.fp8_scaling, **plan_data(group, at)}
    plan["stages"] = layers_by_stage(group.job, group.plan, at)
    return plan


def facts_of(group: Group, at: int = 0) -> dict[str, Any]:
    """The facts of a plan: the options of its row, the sizes of its model under ``model.``, and what a framework may want instead.

    accumulation = global batch / (micro-batch x data-parallel ranks); ``rank_batch`` = global batch / data-parallel ranks, in sequences.
    """
    plan, model = plan_of(group, at), group.job.model
    facts = {name: value for name, value in plan.items() if not isinstance(value, (list, dict)) or name == "lora_targets"}
    facts |= {f"overlap.{name}": name in plan["overlap"] for name in defaults.OVERLAPS}
    facts |= {f"offload.{name}": name in plan["offload"] for name in defaults.OFFLOADS}
    facts |= _recomputation(plan["recompute"], group.job.framework.selective_recompute)
    facts |= _machine(group, plan)
    batch, ranks = plan["global_batch_size"], plan["dp"]
    facts |= {"accumulation": plan["num_microbatches"], "rank_batch": batch / ranks, "sequences_per_device": batch / plan["gpus"]}
    facts |= {"shards": plan["dp_shard"] if plan["zero"] else 1, "sharded": bool(plan["zero"]) and plan["dp_shard"] > 1}
    facts |= {"device_batch": plan["micro_batch_size"] * ranks / plan["gpus"], "vendor": group.cluster.accelerator.vendor}
    facts["copies"] = plan["dp_replicate"] if plan["zero"] else plan["dp"]
    facts |= {"compiled": group.job.framework.name.endswith("-compile"), "adapters": bool(plan.get("lora_rank"))}
    facts |= {"routed": bool(model.num_experts), "stages_equal": _are_equal(plan), "layers": model.num_hidden_layers}
    chunks = plan["pp"] * plan["vpp"]
    facts["layers_of_chunk"] = model.num_hidden_layers / chunks if facts["stages_equal"] else None
    if plan.get("tokens") and isinstance(tokens := plan["tokens"], (int, float)):
        facts["steps"] = max(round(tokens / (batch * plan["seq_len"])), 1)
    facts |= {f"model.{name}": getattr(model, name) for name in model.fields}
    facts |= {"hub": hub_name(model), "model_title": model.title}
    facts |= {"method": "lora" if plan.get("lora_rank") else "full"}
    return {name: _plain(value) for name, value in facts.items()} | _mesh(group, at, facts)


def _plain(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _recomputation(how: str, usual: Iterable[str]) -> dict[str, Any]:
    """The kind of recomputation, its number, and the operators that are recomputed where they are not the framework's own.

    >>> _recomputation("every:2", ()), _recomputation("selective:attention", ("attention",))["recompute_parts"]
    ({'recompute_kind': 'every', 'recompute_number': 2, 'recompute_parts': ''}, '')
    """
    kind, _, rest = how.partition(":")
    number = float(rest) if re.fullmatch(r"[\d.]+", rest) else None
    parts = rest if number is None and set(rest.split(",")) != set(usual) else ""
    return {"recompute_kind": kind, "recompute_number": _plain(number), "recompute_parts": parts}


def _machine(group: Group, plan: Mapping[str, Any]) -> dict[str, Any]:
    """Nodes, and accelerators of each."""
    each = min(group.cluster.node.accelerators.value, plan["gpus"])
    return {"gpus_per_node": each, "nodes": max(-(-plan["gpus"] // each), 1)}


def _mesh(group: Group, at: int, facts: Mapping[str, Any]) -> dict[str, int]:
    """The mesh axes inside a scale-up domain (``ici.``) and across domains (``dcn.``): the axes that communicate most are filled in first.

    The ranks of experts are ranks of the sharding too, and are taken from it.
    """
    left = int(min(placement_data(group, at)["gpus_per_domain"], facts["gpus"]))
    experts = int(facts["ep"])
    sizes = {"tp": facts["tp"], "cp": facts["cp"], "ep": experts, "dp_shard": facts["shards"] / experts, "dp_replicate": facts["copies"]}
    mesh: dict[str, int] = {}
    for axis, size in (sizes | {"pp": facts["pp"]}).items():
        inner = gcd(int(size), left) if float(size).is_integer() else 1
        left //= inner
        mesh |= {f"ici.{axis}": inner, f"dcn.{axis}": int(size) // inner}
    return mesh


def with_recipe(facts: Mapping[str, Any], models: Mapping[str, str]) -> dict[str, Any]:
    """Facts with the name that a framework has for the model, whole and in its two parts.

    >>> with_recipe({"model": "a"}, {"a": "llama3 8B"})["recipe_size"], with_recipe({"model": "b"}, {})["recipe"]
    ('8B', None)
    """
    named = models.get(facts["model"])
    family, _, size = (named or "").replace(" ", ".", 1).partition(".")
    return {**facts, "recipe": named, "recipe_family": family or None, "recipe_size": size or None}


def _are_equal(plan: Mapping[str, Any]) -> bool:
    return len(set(plan["stages"])) == 1 and plan["stages"][0] % plan["vpp"] == 0


_HUB = re.compile(r"([\w.-]+/[\w.-]+), config\.json")


def hub_name(model: Model) -> str | None:
    """The name of a model on the hub: that of the configuration from which its record was made; None where it has another source."""
    match = _HUB.match(model.source.title) if model.source else None
    return match[1] if match else None


def must_be_said(facts: Mapping[str, Any], overlapped: Iterable[str]) -> dict[str, Any]:
    """The facts that a configuration may not leave out: options of the plan that are not what every framework does without a word.

    ``overlapped`` is what the framework overlaps by itself.
    """
    named = {name: value for name, value in facts.items() if name in OPTIONS and name not in _NOT_SAID and name not in ("recompute",)}
    named |= {name: value for name, value in facts.items() if name.startswith("offload.")}
    named |= {name: value for name, value in facts.items() if name.startswith("overlap.") and name.partition(".")[2] not in overlapped}
    named |= {"recompute_kind": facts["recompute_kind"], "recompute_parts": facts["recompute_parts"]}
    named |= {name: facts[name] for name in ("model", "micro_batch_size", "global_batch_size", "seq_len")}
    if facts["copies"] > 1 and not facts["sharded"]:
        named["sharded"] = False
    if not facts["stages_equal"]:
        named["stages"] = "of unequal length"
    return {name: value for name, value in named.items() if not _is_usual(name, value, facts)}


def _is_usual(name: str, value: Any, facts: Mapping[str, Any]) -> bool:
    """True for a value that needs no words."""
    if name in _ONLY_WITH and facts.get(_ONLY_WITH[name], 1) in (0, 1):
        return True
    if name in ("sp", "sharded"):
        return False
    if name == "dp_replicate" and not facts["sharded"]:  # plain data parallelism, whose copies follow from the accelerators
        return True
    default = OPTIONS[name].default if name in OPTIONS else None
    return value in _OFF or value == _USUAL.get(name, default)
