"""Low-rank adapters: which linear layers have one, and their computation, trained parameters and activations.

An adapter is a product in, (tokens, k) by (k, r), a product out, (tokens, r) by (r, n), a scaling of its output, and an
addition to the frozen layer's output, each a separate kernel (NeMo, ``ParallelLinearAdapter.forward`` and ``LoRALinear.forward``;
peft, ``Linear.forward``).
"""

from __future__ import annotations

from typing import Any

from ironlaw.catalog.model import Model
from ironlaw.catalog.records import Framework
from ironlaw.cluster import Cluster
from ironlaw.errors import QuestionError, UnsupportedError
from ironlaw.estimate.layer import experts
from ironlaw.estimate.layer.counts import expert_width
from ironlaw.estimate.layer.frozen_weights import packed
from ironlaw.estimate.layer.kinds import Kind, sized
from ironlaw.estimate.layer.products import linear_shapes, product_key
from ironlaw.estimate.layer.sizes import Operator, Shapes, elementwise, gemm
from ironlaw.job import Job
from ironlaw.plan import Plan
from ironlaw.precision import INPUT_GRADIENT, OUTPUT, WEIGHT_GRADIENT
from ironlaw.terms import Term

Products = dict[str, tuple[Any, Any, Any]]

WHOLE = {
    "query-key-value": "qkv", "query down": "qkv", "query up": "qkv", "key-value down": "qkv", "key-value up": "qkv", "state in": "qkv",
    "attention output": "proj", "state out": "proj", "mlp in": "fc1", "shared expert in": "fc1", "mlp out": "fc2",
    "shared expert out": "fc2",
}  # fmt: skip
GROUPS = {
    "attention": ("qkv", "proj"), "mlp": ("fc1", "fc2"), "all": ("qkv", "proj", "fc1", "fc2", "experts"), "mla_up": ("q_up", "kv_up"),
}  # fmt: skip
OF_LATENT = {  # products of latent attention, and of shared experts, by the names of their adapters
    "query down": "q_down", "query up": "q_up", "key-value down": "kv_down", "key-value up": "kv_up", "shared expert in": "shared_experts",
    "shared expert out": "shared_experts",
}  # fmt: skip
SLICES = {"qkv": ("q", "k", "v"), "fc1": ("gate", "up")}
SCALED, ADDED = 4.0, 6.0  # bytes of a 2-byte element: read and written; two read and one written
OPERATORS = 4.0  # kernels of a pass: two products, the scaling, the addition


# DoRA as peft runs it (Liu et al., DoRA, ICML 2024, equation 5 and section 4.3, https://arxiv.org/abs/2402.09353; peft,
# tuners/lora/dora.py): each pass multiplies the adapter's matrices out, adds them to the frozen weight and takes the norm of each row,
# whose gradient is left out; a trained magnitude over that norm scales the outputs of both products. Bytes of a 2-byte element. Of the
# weight: product scaled (4), added (6), squares summed (2). Of the output, forward: both scaled (8), added (6); backward: the same for
# both gradients (14), and two products summed over the tokens for the magnitude (16)
OF_WEIGHT, OF_OUTPUT, OF_GRADIENT = 12.0, 14.0, 30.0
DORA_OPERATORS = 10.0  # kernels of a pass beside those of LoRA


def is_dora(job: Job) -> bool:
    """True where a trained magnitude scales the rows of the adapted weights."""
    return bool(job.lora_rank) and job.adapter == "dora"


def targets(asked: str, model: Model, framework: Framework) -> tuple[str, ...]:
    """The operators that ``--lora-targets`` names; a group such as attention becomes the linear layers that the framework has for it."""
    operators: list[str] = []
    for name in asked.split(","):
        for operator in GROUPS.get(name, (name,)):
            kept_fused = framework.fused_projections or operator not in SLICES or not sliced(operator, model)
            operators += [operator] if name == operator or kept_fused else SLICES[operator]
    if not model.num_experts and not {"experts", "router"}.isdisjoint(asked.split(",")):
        raise QuestionError(f"--lora-targets {asked}: {model.name} has no experts: leave experts and router out")
    operators = _of_latent(asked, operators, model)
    for fused, parts in SLICES.items():
        if not set(parts).isdisjoint(operators) and fused in operators:
            raise QuestionError(f"--lora-targets {asked}: {fused} already contains {', '.join(parts)}: give {fused}, or its parts")
        if not set(parts).isdisjoint(operators) and not sliced(fused, model):
            raise UnsupportedError(f"--lora-targets {asked}: {model.name} has no {' or '.join(parts)} as a separate matrix: use {fused}")
    return tuple(dict.fromkeys(n for n in operators if model.num_experts or n != "experts"))


def _of_latent(asked: str, operators: list[str], model: Model) -> list[str]:
    """The operators that the model has of those in OF_LATENT; UnsupportedError where one that is named is missing.

    Where queries have no latent, ``mla_up`` is the up-projection of keys and values alone.
    """
    has = {
        "q_down": model.q_lora_rank, "q_up": model.q_lora_rank, "kv_down": model.kv_lora_rank, "kv_up": model.kv_lora_rank,
        "shared_experts": model.shared_expert_intermediate_size,
    }  # fmt: skip
    missing = [name for name in operators if not has.get(name, True)]
    named = asked.split(",")
    for name in missing:
        if name in named or not model.kv_lora_rank:
            raise UnsupportedError(f"--lora-targets {asked}: {model.name} has no {name}: leave it out")
    return [name for name in operators if name not in missing]


def sliced(name: str, model: Model) -> bool:
    """True where a fused matrix of the model has parts: queries, keys and values of plain attention, a gate."""
    return not model.kv_lora_rank if name == "qkv" else model.gated_mlp


def adapted(job: Job, s: Shapes, kind: Kind) -> Products:
    """The products (m, n, k) beside which a layer has an adapter, outside its routed experts."""
    if not job.lora_rank or not kind.trained:
        return {}
    products: Products = {}
    for name, (m, n, k) in linear_shapes(job, s, kind).items():
        group = WHOLE.get(name, "")
        if {group, OF_LATENT.get(name, group)} & set(job.lora_targets) or (name == "state in" and "q" in job.lora_targets):
            products[name] = (m, n, k)
        elif name == "query-key-value":
            parts = {"k": s.kv_heads * s.head_dim, "v": s.kv_heads * s.head_dim}
            parts = {"q": n - parts["k"] - parts["v"], **parts}
            products |= {f"{LONG[part]} of attention": (m, parts[part], k) for part in SLICES["qkv"] if part in job.lora_targets}
        elif group == "fc1":
            products |= {f"{name.removesuffix(' in')} {part}": (m, n / 2.0, k) for part in SLICES["fc1"] if part in job.lora_targets}
    if kind.routed and "router" in job.lora_targets:
        products["router"] = (s.sequence_tokens, float(job.model.num_experts), s.hidden)
    return products


LONG = {"q": "queries", "k": "keys", "v": "values"}
INTO = {"attention": "qkv", "gate": "fc1", "up": "fc1"}  # the last word of a part of a product -> the input that the parts share


def on_experts(job: Job, kind: Kind) -> bool:
    """True where the routed experts of a layer have adapters, a pair for each of an expert's two products."""
    return bool(job.lora_rank) and kind.trained and kind.routed and "experts" in job.lora_targets


def parameters(job: Job, kind: Kind) -> tuple[Any, Any]:
    """Trained parameters of the adapters of one layer: (outside its experts, in them)."""
    job = job.replace(model=sized(job.model, kind))
    ends: Any = 0.0
    magnitudes: Any = 0.0
    for _, n, k in adapted(job, Shapes.whole(job), kind).values():
        ends = ends + n + k
        magnitudes = magnitudes + (n if is_dora(job) else 0.0)
    routed = job.model.num_experts * expert_ends(job) if on_experts(job, kind) else 0.0
    return job.lora_rank * ends + magnitudes, job.lora_rank * routed


def visited(job: Job, kind: Kind) -> Any:
    """Parameters of one layer's adapters that a token is multiplied by."""
    common, routed = parameters(job, kind)
    return common + routed * (job.model.num_experts_per_tok / job.model.num_experts if routed else 0.0)


def expert_ends(job: Job) -> float:
    """Inputs and outputs of one expert's two products."""
    wide = job.model.moe_intermediate_size * (2.0 if job.model.gated_mlp else 1.0)
    return 2.0 * expert_width(job.model) + wide + job.model.moe_intermediate_size


def _routed(job: Job, plan: Plan, s: Shapes) -> Products:
    """The two products of a rank's experts, all rows in one."""
    rows, wide, hidden = experts.rows(job, plan, s), experts.width(job, plan), float(expert_width(job.model))
    return {"experts in": (rows, wide, hidden), "experts out": (rows, hidden, job.model.moe_intermediate_size / plan.etp)}


def _multiply(cluster: Cluster, job: Job, plan: Plan, name: str, mnk: tuple[Any, Any, Any], key: Operator, grouped: bool) -> Term:
    """One product of an adapter, or (``grouped``) of all adapters of a rank's experts."""
    if grouped:
        return experts.grouped_gemm(cluster, job, plan, name, *mnk, key)
    return gemm(cluster, job, name, *mnk, wide=True, key=key)


def _all_adapted(job: Job, plan: Plan, s: Shapes, kind: Kind) -> list[tuple[str, tuple[Any, Any, Any], bool]]:
    """The name and size of each product that has an adapter, and whether it is one of the routed experts."""
    routed = _routed(job, plan, s) if on_experts(job, kind) else {}
    return [
        (name, mnk, grouped) for products, grouped in ((adapted(job, s, kind), False), (routed, True)) for name, mnk in products.items()
    ]


def forward(cluster: Cluster, job: Job, plan: Plan, s: Shapes, kind: Kind) -> list[Term]:
    """The pair of every adapter, forward."""
    terms, rank, sizes = [], job.lora_rank, []
    for name, (m, n, k), grouped in _all_adapted(job, plan, s, kind):
        key = product_key(name, OUTPUT, of_adapter=True)
        terms.append(_multiply(cluster, job, plan, f"{name} adapter", (m, rank, k), key, grouped))
        terms.append(_multiply(cluster, job, plan, f"{name} adapter up", (m, n, rank), key, grouped))
        sizes.append((SCALED + ADDED) * m * n)
        if is_dora(job):
            terms.append(_multiply(cluster, job, plan, f"{name} adapter multiplied out", (k, n, rank), key, grouped))
            sizes.append(OF_WEIGHT * n * k + OF_OUTPUT * m * n)
    return terms + _scaled_and_added(cluster, job, sizes)


def backward(cluster: Cluster, job: Job, plan: Plan, s: Shapes, kind: Kind) -> list[Term]:
    """Gradients of both matrices and of both inputs; the input gradient is added to the one through the frozen weight."""
    terms, rank, sizes = [], job.lora_rank, []
    for name, (m, n, k), grouped in _all_adapted(job, plan, s, kind):
        dgrad, wgrad = (product_key(name, computes, of_adapter=True) for computes in (INPUT_GRADIENT, WEIGHT_GRADIENT))
        up, down = ((m, n, rank), (m, rank, k)) if grouped else ((rank, n, m), (k, rank, m))
        for label, mnk, key in (
            ("dgrad up", (m, rank, n), dgrad),
            ("up wgrad", up, wgrad),
            ("dgrad", (m, k, rank), dgrad),
            ("wgrad", down, wgrad),
        ):
            terms.append(_multiply(cluster, job, plan, f"{name} adapter {label}", mnk, key, grouped))
        sizes.append(SCALED * m * n + ADDED * m * k + (OF_GRADIENT * m * n if is_dora(job) else 0.0))
    return terms + _scaled_and_added(cluster, job, sizes)


def _scaled_and_added(cluster: Cluster, job: Job, sizes: list[Any]) -> list[Term]:
    """One leaf for the scalings and additions of one pass, whose bytes in a 2-byte type are ``sizes``; none without adapters."""
    moved: Any = 0.0
    for size in sizes:
        moved = moved + job.precision.activation_bytes / 2.0 * size
    return [elementwise(cluster, "adapters scaled and added", moved, 2.0 * len(sizes))] if sizes else []


def operators(job: Job, kind: Kind) -> float:
    """Kernels that the adapters of a layer add to a pass; adapters of a rank's experts run as one group."""
    pairs = len(adapted(job, Shapes.whole(job), kind)) + (2.0 if on_experts(job, kind) else 0.0)
    return (OPERATORS + (DORA_OPERATORS if is_dora(job) else 0.0)) * pairs


def keeps_input(job: Job, kind: Kind, *names: str) -> bool:
    """True where a product's input is kept for the backward pass: its weight is trained, or an operator of ``names`` has an adapter.

    Some libraries keep it beside frozen weights of four bits too.
    """
    if not job.lora_rank or keeps_packed_inputs(job):
        return True
    return any(name in job.lora_targets for name in names) or ("experts" in names and on_experts(job, kind))


def keeps_packed_inputs(job: Job) -> bool:
    """True where products with four-bit weights keep their inputs, though the weights are frozen."""
    return job.framework.packed_inputs and packed(job)


def copies_of_inputs(job: Job, s: Shapes, kind: Kind) -> Any:
    """Bytes that adapters outside the experts keep of their inputs, beside what the other terms count.

    ``each adapter: m k adapter_input_bytes, less one shared input m k e for the adapters of one product``. The attention's kernel keeps
    its output, and a packed product its input, so there the adapter's copy is a further one.
    """
    stated, e = job.framework.adapter_input_bytes, job.precision.activation_bytes
    if stated is None:
        return 0.0
    copies: Any = 0.0
    shared: dict[str, Any] = {}
    for name, (m, _, k) in adapted(job, s, kind).items():
        copies = copies + stated.value * e / 2.0 * m * k
        if name != "attention output" and not keeps_packed_inputs(job):
            shared[INTO.get(name.rpartition(" ")[2], name)] = e * m * k
    for size in shared.values():
        copies = copies - size
    return copies


def elements_kept(job: Job, s: Shapes, kind: Kind) -> Any:
    """Elements of each adapter outside the experts that are kept for the backward pass.

    Those between its two products, for the gradient of the second; with DoRA the outputs of the frozen product and of the adapter too,
    for the gradient of the magnitude.
    """
    elements: Any = 0.0
    for m, n, _ in adapted(job, s, kind).values():
        elements = elements + m * job.lora_rank + (2.0 * m * n if is_dora(job) else 0.0)
    return elements
