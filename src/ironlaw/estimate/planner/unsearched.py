"""What a search leaves as it is: the options that its space does not vary, that the stack has, and that could gain.

The list is made from the rows of ``question.options``, the values of the space and the table ``can`` of the framework. It is for the
plan of an answer; of a search that lists many plans, for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from ironlaw.catalog.abilities import ANY, has
from ironlaw.cluster import Cluster
from ironlaw.estimate.layer.attention import flash_constants
from ironlaw.estimate.planner.rows import columns_of
from ironlaw.estimate.planner.space import Space
from ironlaw.job import Job
from ironlaw.question.decisions import Decision
from ironlaw.question.defaults import LONG_SEQUENCE
from ironlaw.question.options import OPTIONS


class Ran(NamedTuple):
    """What the places read: the job, its cluster, and the axes of its plan; an axis that is missing may have any value."""

    job: Job
    cluster: Cluster
    plan: Mapping[str, Any]
    documents: bool
    adapters: bool

    def above_one(self, axis: str) -> bool:
        """True where an axis of the plan is above 1, or not known."""
        return bool(self.plan.get(axis, 2.0) > 1.0)


def _has_several(names: Collection[str]) -> bool:
    """True where a stack has more than one of some names, or is not known."""
    return len(names) > 1 or names == ANY


def _narrow(ran: Ran) -> bool:
    return "fp8" in ran.cluster.accelerator.peak


def _may_offload(ran: Ran) -> bool:
    device = ran.cluster.accelerator
    linked = device.pcie_bandwidth is not None or device.c2c_bandwidth is not None
    return linked and bool(ran.job.framework.able.offload)


PLACES: dict[str, tuple[Callable[[Ran], bool], str]] = {  # where an option may change a plan, and what that is called
    "": (lambda _: True, "always"),
    "experts": (lambda ran: bool(ran.job.model.num_experts), "mixtures"),
    "expert ranks": (lambda ran: bool(ran.job.model.num_experts) and ran.above_one("ep"), "ep > 1"),
    "narrow experts": (lambda ran: bool(ran.job.model.num_experts) and _narrow(ran), "mixtures on devices with fp8"),
    "expert tensor ranks": (lambda ran: bool(ran.job.model.num_experts) and ran.job.framework.able.etp, "mixtures, if the stack has it"),
    "loads": (lambda ran: ran.job.expert_load is not None, "with expert_load"),
    "fp8 attention": (lambda ran: ran.job.flash and _narrow(ran), "fused attention on devices with fp8"),
    "older attention": (
        lambda ran: ran.job.flash and flash_constants(ran.cluster, ran.job)[1] < 1.0,
        "the stack runs an older kernel than the device has",
    ),
    "narrow weights": (lambda ran: ran.job.precision.narrow and not ran.job.fp8_param_gather, "precisions with cast weights"),
    "gradient types": (lambda ran: _has_several(ran.job.framework.able.gradient_dtypes), "the stack has several"),
    "weight types": (lambda ran: len(ran.job.framework.weights_dtypes) > 1, "the stack has several"),
    "graphs": (lambda ran: bool(ran.job.framework.able.cuda_graphs), "the stack has them"),
    "offloading": (_may_offload, "the stack has it, and the device a link to its host"),
    "offloaded optimizer": (lambda ran: bool(ran.plan.get("offload_optimizer", 0.0)), "with offload optimizer"),
    "offloaded activations": (lambda ran: bool(ran.plan.get("offload_activations", 0.0)), "with offload activations"),
    "adapters": (lambda ran: ran.adapters, "with lora_rank"),
    "documents": (lambda ran: ran.documents, "with lengths"),
    "uneven stages": (lambda ran: ran.above_one("pp") and ran.job.framework.able.stages == "any", "pp > 1, if the stack has uneven stages"),
    "short context": (
        lambda ran: ran.above_one("cp") and _has_several(ran.job.framework.able.cp) and ran.plan.get("seq_len", 0.0) < LONG_SEQUENCE,
        f"cp > 1, sequences below {LONG_SEQUENCE:,.0f} tokens",
    ),
    "recomputation": (
        lambda ran: ran.plan.get("recompute", "full") != "none" and has(ran.job.framework.able.recompute, "selective"),
        "plans that recompute",
    ),
}


def unsearched(space: Space, job: Job, cluster: Cluster, given: Collection[str], plan: Mapping[str, Any]) -> tuple[str, ...]:
    """The options that a search left as they are, in the order of a page; ``given``: those that the question fixes."""
    ran = Ran(job, cluster, plan, job.documents is not None, job.lora_rank > 0.0)
    fixed = {*given, *space.given}
    left = (name for name, option in OPTIONS.items() if not {name, *columns_of(name)} & fixed and _is_left(name, option.search, space))
    return tuple(name for name in left if PLACES[OPTIONS[name].search.where][0](ran))


def _is_left(name: str, decision: Decision, space: Space) -> bool:
    """True for a decision that a space does not vary, or not with all its values."""
    if decision.settled:
        return False
    return decision.partly or not any(space.varies(axis) for axis in columns_of(name))


def describe_unsearched(names: Collection[str]) -> str:
    """Options that were not searched as a page lists them.

    >>> describe_unsearched(("framework", "gradient_dtype", "ep"))
    'framework, type of gradients, ep'
    """
    return ", ".join(OPTIONS[name].search.words or name for name in names)
