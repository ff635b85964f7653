"""Make Kineto traces of a language model's training step from an estimate, so that the reader can be tested on a run of known parts.

``make_run`` simulates the step of an estimate with two clocks a rank: a host that calls operators one after the other, and a device with
a stream for computation and one for communication. Every leaf of the step tree becomes kernels that take the leaf's time, multiplied by
a factor of the caller; a collective ends when the last rank has joined and the bytes are sent. The trace has the form of
``torch.profiler``: operators with their sizes, launches, kernels, annotations.

Supported are FSDP and Megatron plans without a pipeline, or with two stages under the 1F1B schedule; no mixtures of experts, no context
parallelism, no offloading.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

NS = 1_000_000_000
BASE = 1_700_000_000 * NS
COMPUTE_STREAM, NETWORK_STREAM, PIPELINE_STREAM = 7, 20, 24
MAIN, ENGINE = 100, 200  # threads: Python's, and the one of the autograd engine
BF16, FP8, FP32 = "c10::BFloat16", "c10::Float8_e4m3fn", "float"
DEVICES = {"h100-sxm": "NVIDIA H100 80GB HBM3", "a100-sxm-80gb": "NVIDIA A100-SXM4-80GB"}
GEMM = "nvjet_tst_128x256_64x4_1x2_h_bz_coopA_NNT"
GEMM_FP8 = "nvjet_qqtst_128x256_128x4_2x1_v_bz_TNT"
NCCL = {
    "all_gather": ("_allgather_base", "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"),
    "reduce_scatter": ("_reduce_scatter_base", "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"),
    "all_reduce": ("allreduce", "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"),
    "send_recv": ("coalesced", "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"),
}
KERNELS = {
    "flash": "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4, false, false, cutlass::bfloat16_t>, true>"
    "(pytorch_flash::Flash_fwd_params)",
    "flash backward": "void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Flash_bwd_kernel_traits<128, 64, 128, 8, 2, 4, 2,"
    " false, false, cutlass::bfloat16_t>, true>(pytorch_flash::Flash_bwd_params)",
    "norm": "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float, true>(int, float)",
    "norm backward": "void at::native::(anonymous namespace)::layer_norm_grad_input_kernel_vectorized<c10::BFloat16, float, true>(int)",
    "add": "void at::native::vectorized_elementwise_kernel<8, at::native::CUDAFunctor_add<c10::BFloat16>, std::array<char*, 3ul> >(int)",
    "mul": "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl<at::native::BinaryFunctor<float, float, float,"
    " at::native::binary_internal::MulFunctor<float> > >(int, float)",
    "silu": "void at::native::vectorized_elementwise_kernel<4, at::native::(anonymous namespace)::silu_kernel(at::TensorIteratorBase&)>()",
    "cast": "void at::native::unrolled_elementwise_kernel<at::native::float8_copy_kernel_cuda(at::TensorIteratorBase&)>(int)",
    "softmax": "void at::native::(anonymous namespace)::cunn_SoftMaxForward<4, float, float, float>(float*, float const*, int)",
    "softmax backward": "void at::native::(anonymous namespace)::cunn_SoftMaxBackward<4, float, float, float>(float*, float*, long)",
    "look-up": "void at::native::(anonymous namespace)::indexSelectLargeIndex<c10::BFloat16, long, unsigned int, 2, 2, -2, true>(int)",
    "scatter": "void at::native::(anonymous namespace)::compute_grad_weight<c10::BFloat16, long>(long const*, c10::BFloat16 const*)",
    "adamw": "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::TensorListMetadata<4>,"
    " at::native::(anonymous namespace)::FusedAdamMathFunctor<float, 4, (ADAM_MODE)1, false> >(float)",
}


@dataclass(frozen=True)
class Changes:
    """Deviations of the run from the estimate; the default has none."""

    steps: int = 3
    terms: Mapping[str, float] = field(default_factory=dict)  # leaf (regular expression) -> factor of its time
    operations: Mapping[str, float] = field(default_factory=dict)  # collective -> factor of its whole time, hidden time included
    slow: Mapping[int, float] = field(default_factory=dict)  # rank -> factor of its kernels' times
    stall: Mapping[int, float] = field(default_factory=dict)  # rank -> seconds its host is late at the start of each step
    loader: float | Mapping[int, float] = 0.0  # seconds to fetch a batch (on these ranks), while nothing is computed
    call: float = 4e-6  # seconds of the host for an operator
    overlap: float = 0.5  # share of a layer's computation that its collectives run beside
    clocks: Mapping[int, int] = field(default_factory=dict)  # rank -> ns its host's clock is ahead
    sync: bool = True  # whether the host waits for the device at the end of a step
    early: int = 0  # kernels of the previous step, whose launches are not in the file


@dataclass
class MadeRun:
    """The files and true times of a made run, in nanoseconds by rank."""

    files: dict[int, Path]
    steps: dict[int, list[int]]  # when the first kernel of each step began, on the true clock
    end: dict[int, int]  # of the last kernel
    transfer: dict[tuple[Any, ...], int]  # of each meeting
    skew: dict[tuple[Any, ...], int]  # of all ranks together, from each one's start to the latest

    def step(self, rank: int) -> float:
        """Mean seconds from the first kernel of a step to that of the next."""
        begins = self.steps[rank]
        return (begins[-1] - begins[0]) / (len(begins) - 1) / NS


@dataclass(frozen=True)
class Op:
    """One kernel and the operator that launches it."""

    leaf: str
    seconds: float
    name: str
    kernel: str
    dims: list[Any]
    types: list[str]
    values: list[str] = field(default_factory=list)
    around: tuple[str, list[Any], list[str]] | None = None  # an operator around it


@dataclass(frozen=True)
class Meet:
    """A collective of some ranks: ``exposed`` seconds of it behind the computation before it."""

    leaf: str
    operation: str
    exposed: float
    members: tuple[int, ...]
    group: str
    elements: int
    hides: bool = True


@dataclass(frozen=True)
class Host:
    """An action of the host: ``work``, ``late`` (the device waits), ``sync``, or ``evaluate`` and ``done`` of a backward function."""

    what: str
    seconds: float = 0.0
    text: str = ""


class Tree:
    """The step of an estimate by names of nodes."""

    def __init__(self, row: Mapping[str, Any]) -> None:
        self.root = row["step"]["tree"]
        chunk = self.part(self.root, "micro-batches")
        self.layer = self.part(chunk, "layers")
        self.embedding = self.part(self.part(chunk, "embedding"), "embedding")
        self.output = self.part(self.part(chunk, "output layer and loss"), "output layer and loss")
        self.hand_over = self.part(self.part(chunk, "stage to stage"), "hand-over")

    @staticmethod
    def part(node: Mapping[str, Any], name: str) -> dict[str, Any]:
        """The part with this name, or an empty part."""
        return next((p for p in node["parts"] if p["name"] == name), {"name": name, "value": 0.0, "parts": []})

    def leaf(self, node: Mapping[str, Any], name: str) -> float:
        """The seconds of a leaf, with its own repetitions."""
        return float(self.part(node, name)["value"])


class Program:
    """The actions of one rank in a step, from the estimate's leaves."""

    def __init__(self, row: Mapping[str, Any], model: Any, rank: int) -> None:
        self.tree, self.plan, self.model, self.rank = Tree(row), row["plan"], model, rank
        p = self.plan
        tp, dp = p["tp"], p["dp"]
        place, replica, self.stage = rank % tp, rank // tp % dp, rank // (tp * dp)
        self.tensor_group = tuple(rank - place + i for i in range(tp))
        self.data_group = tuple(place + tp * (i + dp * self.stage) for i in range(dp))
        self.pair = tuple(sorted((place + tp * (replica + dp * s)) for s in range(p["pp"])))
        self.tokens = p["micro_batch_size"] * p["seq_len"]
        self.fp8 = p["precision"].startswith("fp8")
        self.last = self.stage == p["pp"] - 1
        self.layers = round(model.num_hidden_layers / p["pp"])

    def step(self) -> Generator[Any, None, None]:
        """All actions of a step, in the order of the host."""
        count = int(self.plan["num_microbatches"])
        if self.plan["pp"] == 1:
            for _ in range(count):
                yield from self.forward()
                yield from self.backward()
        elif self.stage == 0:  # 1F1B of two stages: one forward ahead, then one of each
            yield from self.forward()
            yield from self.hand_over(1)
            for _ in range(count - 1):
                yield from self.forward()
                yield from self.hand_over(2)
                yield from self.backward()
            yield from self.hand_over(1)
            yield from self.backward()
        else:
            yield from self.hand_over(1)
            for i in range(count):
                yield from self.forward()
                yield from self.backward()
                yield from self.hand_over(2 if i < count - 1 else 1)
        yield from self.update()

    # one micro-batch

    def forward(self) -> Generator[Any, None, None]:
        tree, m = self.tree, self.model
        if self.stage == 0:
            yield self.rows("look-up", "aten::embedding", "look-up", tree.leaf(tree.embedding, "look-up"))
        for _ in range(self.layers):
            yield from self.gather("exposed gather, forward")
            node = tree.part(tree.layer, "forward")
            yield from self.layer_forward(node, whole=True)
            yield from self.tensor("forward")
            yield Host("late", tree.leaf(tree.layer, "host dispatch") / 2.0)
        if self.last:
            out = tree.output
            both = tree.leaf(out, "exposed gather and scatter")
            if self.plan["zero"] == 3 and self.plan["dp"] > 1:
                yield self.meet("exposed gather and scatter", "all_gather", both / 3.0, m.vocab_size * m.hidden_size)
            yield self.norm("final norm", tree.leaf(out, "final norm") / 3.0)
            yield self.linear("output gemm", tree.leaf(out, "output gemm"), m.hidden_size, m.vocab_size // self.plan["tp"], wide=True)
            if self.plan["tp"] > 1:
                yield self.tensor_meet("all-reduce", "all_reduce", tree.leaf(out, "all-reduce"))
            yield self.pointwise("cross-entropy", tree.leaf(out, "cross-entropy") * 0.4, "aten::_log_softmax", "softmax", m.vocab_size)

    def layer_forward(self, node: Mapping[str, Any], whole: bool, matrices: bool = True, core: bool = True) -> Generator[Any, None, None]:
        """The operators of a layer; in a recomputation only those that run again."""
        tree, m, tp = self.tree, self.model, self.plan["tp"]
        heads, kv = m.num_attention_heads, m.num_key_value_heads
        small = node if whole else tree.part(node, "memory-bound operators again")
        large = node if whole else tree.part(node, "linear layers again")
        attention = node if whole else tree.part(node, "attention core again")
        gate = 2 if m.gated_mlp else 1
        yield self.norm("norms", tree.leaf(small, "norms"))
        for name in ("casts", "weight casts"):
            if casts := tree.leaf(small, name):
                yield self.pointwise(name, casts, "aten::copy_", "cast", m.hidden_size)
        if matrices:
            width = (heads + 2 * kv) * m.head_dim // tp
            yield self.linear("query-key-value gemm", tree.leaf(large, "query-key-value gemm"), m.hidden_size, width)
        yield self.pointwise("rotary embedding", tree.leaf(small, "rotary embedding"), "aten::mul", "mul", heads * m.head_dim // tp)
        if core:
            yield self.flash(tree.leaf(attention, "flash attention"), backward=False)
        if matrices:
            yield self.linear("attention output gemm", tree.leaf(large, "attention output gemm"), heads * m.head_dim // tp, m.hidden_size)
        yield self.pointwise("residuals", tree.leaf(small, "residuals"), "aten::add", "add", m.hidden_size)
        if matrices:
            yield self.linear("mlp in gemm", tree.leaf(large, "mlp in gemm"), m.hidden_size, gate * m.intermediate_size // tp)
        yield self.pointwise(
            "activation function", tree.leaf(small, "activation function"), "aten::silu", "silu", m.intermediate_size // tp
        )
        if matrices:
            yield self.linear("mlp out gemm", tree.leaf(large, "mlp out gemm"), m.intermediate_size // tp, m.hidden_size)

    def backward(self) -> Generator[Any, None, None]:
        tree, m = self.tree, self.model
        if self.last:
            out = tree.output
            yield Host("evaluate", text="LogSoftmaxBackward0")
            seconds = tree.leaf(out, "cross-entropy") * 0.6
            yield self.pointwise("cross-entropy", seconds, "aten::_log_softmax_backward_data", "softmax backward", m.vocab_size)
            yield Host("done")
            yield Host("evaluate", text="MmBackward0")
            both = tree.leaf(out, "exposed gather and scatter")
            if self.plan["zero"] == 3 and self.plan["dp"] > 1:
                yield self.meet("exposed gather and scatter", "all_gather", both / 3.0, m.vocab_size * m.hidden_size)
            for kind in ("dgrad", "wgrad"):
                seconds = tree.leaf(out, f"output {kind}")
                yield self.gradient(f"output {kind}", seconds, m.hidden_size, m.vocab_size // self.plan["tp"], kind, wide=True)
            if self.plan["zero"] == 3 and self.plan["dp"] > 1:
                yield self.meet("exposed gather and scatter", "reduce_scatter", both / 3.0, m.vocab_size * m.hidden_size)
            yield from self.summed(out)
            yield self.norm("final norm", tree.leaf(out, "final norm") * 2.0 / 3.0, backward=True)
            yield Host("done")
        for i in range(self.layers):
            yield Host("evaluate", text="AddBackward0")
            yield from self.gather("exposed gather and scatter, backward", 0.5)
            yield from self.again(i)
            yield from self.layer_backward()
            yield from self.summed(tree.layer)
            yield Host("done")
            yield from self.tensor("backward")
            yield from self.scatter()
            yield Host("late", tree.leaf(tree.layer, "host dispatch") / 2.0)
        if self.stage == 0:
            yield Host("evaluate", text="EmbeddingBackward0")
            yield self.rows("scatter-add", "aten::embedding_dense_backward", "scatter", tree.leaf(tree.embedding, "scatter-add"))
            yield from self.summed(tree.embedding)
            yield Host("done")
            if self.plan["tp"] > 1:
                yield self.tensor_meet("all-reduce", "all_reduce", tree.leaf(tree.embedding, "all-reduce"))

    def summed(self, node: Mapping[str, Any]) -> Generator[Any, None, None]:
        """Add the gradients of this micro-batch to those of the earlier ones."""
        if seconds := self.tree.leaf(node, "gradient accumulation"):
            yield self.pointwise("gradient accumulation", seconds, "aten::add_", "add", self.model.hidden_size)

    def again(self, i: int) -> Generator[Any, None, None]:
        """Recompute layer ``i``: where the estimate recomputes a share of every layer, that share of the layers recomputes everything."""
        node = self.tree.part(self.tree.layer, "recompute")
        if not node["value"]:
            return
        linear, core = (self.part_of(self.tree.part(node, n), i) for n in ("linear layers again", "attention core again"))
        yield from self.layer_forward(node, whole=False, matrices=linear, core=core)

    @staticmethod
    def part_of(node: Mapping[str, Any], i: int) -> bool:
        times = float(node.get("times") or (1.0 if node["value"] else 0.0))
        return int((i + 1) * times) > int(i * times)

    def layer_backward(self) -> Generator[Any, None, None]:
        tree, m, tp = self.tree, self.model, self.plan["tp"]
        node = tree.part(tree.layer, "backward")
        heads, kv, gate = m.num_attention_heads, m.num_key_value_heads, 2 if m.gated_mlp else 1
        for name in ("casts", "weight casts"):
            if casts := tree.leaf(node, name):
                yield self.pointwise(name, casts, "aten::copy_", "cast", m.hidden_size)
        yield from self.both(node, "mlp out", m.intermediate_size // tp, m.hidden_size)
        seconds = tree.leaf(node, "activation function")
        yield self.pointwise("activation function", seconds, "aten::silu_backward", "silu", m.intermediate_size // tp)
        yield from self.both(node, "mlp in", m.hidden_size, gate * m.intermediate_size // tp)
        yield self.pointwise("residuals", tree.leaf(node, "residuals"), "aten::add", "add", m.hidden_size)
        yield from self.both(node, "attention output", heads * m.head_dim // tp, m.hidden_size)
        yield self.flash(tree.leaf(node, "flash attention"), backward=True)
        yield self.pointwise("rotary embedding", tree.leaf(node, "rotary embedding"), "aten::mul", "mul", heads * m.head_dim // tp)
        yield from self.both(node, "query-key-value", m.hidden_size, (heads + 2 * kv) * m.head_dim // tp)
        yield self.norm("norms", tree.leaf(node, "norms"), backward=True)

    def both(self, node: Mapping[str, Any], name: str, inner: int, outer: int) -> Generator[Any, None, None]:
        for kind in ("dgrad", "wgrad"):
            yield self.gradient(f"{name} {kind}", self.tree.leaf(node, f"{name} {kind}"), inner, outer, kind)

    # kernels

    def linear(self, leaf: str, seconds: float, inner: int, outer: int, wide: bool = False) -> Op:
        around = ("aten::linear", [[1, self.tokens, inner], [outer, inner], []], [BF16, BF16, ""])
        return self.product(leaf, seconds, (self.tokens, inner), (inner, outer), wide, around)

    def gradient(self, leaf: str, seconds: float, inner: int, outer: int, kind: str, wide: bool = False) -> Op:
        if kind == "dgrad":
            return self.product(leaf, seconds, (self.tokens, outer), (outer, inner), wide)
        return self.product(leaf, seconds, (outer, self.tokens), (self.tokens, inner), wide)

    def product(self, leaf: str, seconds: float, a: tuple[int, int], b: tuple[int, int], wide: bool, around: Any = None) -> Op:
        if self.fp8 and not wide:
            dims = [list(a), list(b), [], [], [], [], [], []]
            return Op(leaf, seconds, "aten::_scaled_mm", GEMM_FP8, dims, [FP8, FP8, FP32, FP32, "", "", "Scalar", "Scalar"], [], around)
        return Op(leaf, seconds, "aten::mm", GEMM, [list(a), list(b)], [BF16, BF16], ["", ""], around)

    def flash(self, seconds: float, backward: bool) -> Op:
        m, p = self.model, self.plan
        b, s = p["micro_batch_size"], p["seq_len"]
        q, k = ([b, h // p["tp"], s, m.head_dim] for h in (m.num_attention_heads, m.num_key_value_heads))
        if not backward:
            values = ["", "", "", "0.", "True", "False", "0.088"]
            name = "aten::_scaled_dot_product_flash_attention"
            return Op("flash attention", seconds, name, KERNELS["flash"], [q, k, k, [], [], [], []], [BF16] * 3 + ["Scalar"] * 4, values)
        values = [""] * 8 + [str(s), str(s), "0.", "True", "", "", "0.088"]
        types = [BF16] * 5 + [FP32, "", "", *["Scalar"] * 3, "Scalar", "", "", "Scalar"]
        dims = [q, q, k, k, q, [b, q[1], s], [], [], [], [], [], [], [], [], []]
        name = "aten::_scaled_dot_product_flash_attention_backward"
        return Op("flash attention", seconds, name, KERNELS["flash backward"], dims, types, values)

    def norm(self, leaf: str, seconds: float, backward: bool = False) -> Op:
        x = [self.tokens, self.model.hidden_size]
        name = "aten::_fused_rms_norm_backward" if backward else "aten::_fused_rms_norm"
        return Op(leaf, seconds, name, KERNELS["norm backward" if backward else "norm"], [x, [], [x[1]], []], [BF16, "", BF16, "Scalar"])

    def pointwise(self, leaf: str, seconds: float, name: str, kernel: str, width: int) -> Op:
        x = [self.tokens, width]
        types = [BF16, FP8] if kernel == "cast" else [BF16, BF16]
        return Op(leaf, seconds, name, KERNELS[kernel], [x, [1] if name == "aten::mul" else x], types)

    def rows(self, leaf: str, name: str, kernel: str, seconds: float) -> Op:
        m = self.model
        return Op(leaf, seconds, name, KERNELS[kernel], [[m.vocab_size, m.hidden_size], [self.tokens]], [BF16, "long int"])

    # collectives

    def gather(self, leaf: str, share: float = 1.0) -> Generator[Any, None, None]:
        if self.plan["zero"] == 3 and self.plan["dp"] > 1:
            node = self.tree.part(self.tree.layer, "sharded data parallel")
            yield self.meet(leaf, "all_gather", self.tree.leaf(node, leaf) * share, self.layer_weights())

    def scatter(self) -> Generator[Any, None, None]:
        node = self.tree.part(self.tree.layer, "sharded data parallel")
        leaf = "exposed gather and scatter, backward"
        seconds = self.tree.leaf(node, leaf) * 0.5 + self.tree.leaf(node, "exposed scatter, backward")
        if self.plan["dp"] > 1 and (self.plan["zero"] == 3 or seconds):
            yield self.meet(leaf, "reduce_scatter", seconds, self.layer_weights())

    def tensor(self, way: str) -> Generator[Any, None, None]:
        """Tensor-parallel collectives of a layer, as many a pass as in the estimate."""
        if self.plan["tp"] == 1:
            return
        node = self.tree.part(self.tree.layer, "tensor parallel")
        parts = {part["name"]: part for part in node["parts"]}
        late = parts.get("overlapped with backward")
        summed = 0.5 if late is None else 1.0
        for group, share in (("all-gathers", 1.0), ("all-reduces", summed), ("reduce-scatters", summed)):
            yield from self.tensor_group_of(parts[group], share if way == "forward" else 1.0 - share)
        if way == "backward":
            yield from self.tensor_group_of(parts["all-gathers of gradients"], 1.0)
        pieces = parts.get("overlapped with GEMMs", {"parts": []})
        for found in (late or {"parts": []})["parts"] if way == "backward" else ():
            yield from self.tensor_shown(found, float(found["value"]))
        for found in pieces["parts"]:
            if ("of gradients" in found["name"]) == (way == "backward"):
                yield from self.tensor_shown(found, float(found["value"]) * float(pieces.get("times", 1.0)))

    def tensor_group_of(self, found: Any, share: float) -> Generator[Any, None, None]:
        leaf = found["parts"][0]["name"]
        for _ in range(round(float(found.get("times", 1.0 if found["value"] else 0.0)) * share) if found["value"] else 0):
            yield self.tensor_meet(leaf, leaf.partition(" of ")[0].replace("-", "_"), self.tree.leaf(found, leaf))

    def tensor_shown(self, found: Any, seconds: float) -> Generator[Any, None, None]:
        """The exposed part of a collective that overlaps a product."""
        if seconds:
            (operation,) = re.findall(r"^(all-gather|all-reduce|reduce-scatter)", found["name"])
            yield self.tensor_meet(found["name"], operation.replace("-", "_"), seconds)

    def tensor_meet(self, leaf: str, operation: str, seconds: float) -> Meet:
        return Meet(
            leaf, operation, seconds, self.tensor_group, f"tp{self.tensor_group[0]}", self.tokens * self.model.hidden_size, hides=False
        )

    def hand_over(self, messages: int) -> Generator[Any, None, None]:
        seconds = self.tree.leaf(self.tree.hand_over, "p2p") * messages
        yield Meet("p2p", "send_recv", seconds, self.pair, f"pp{self.pair[0]}", self.tokens * self.model.hidden_size, hides=False)

    def meet(self, leaf: str, operation: str, seconds: float, elements: int, hides: bool = True) -> Meet:
        return Meet(leaf, operation, seconds, self.data_group, f"dp{self.data_group[0]}", elements, hides)

    def layer_weights(self) -> int:
        m = self.model
        attention = m.hidden_size * m.head_dim * 2 * (m.num_attention_heads + m.num_key_value_heads)
        return int(attention + 3 * m.hidden_size * m.intermediate_size)

    # the end of a step

    def update(self) -> Generator[Any, None, None]:
        tree, root, p = self.tree, self.tree.root, self.plan
        weights = self.layer_weights() * self.layers // p["tp"]
        everybody = tuple(range(p["gpus"]))
        if p["dp"] > 1:
            operation = "reduce_scatter" if p["zero"] in (1, 2) else "all_reduce"
            if p["zero"] < 3:
                yield self.meet("exposed gradient reduction", operation, tree.leaf(root, "exposed gradient reduction"), weights)
        if p["gpus"] > 1:  # the norm of the gradients, where everybody waits for everybody
            yield Meet(
                "stragglers and jitter", "all_reduce", tree.leaf(root, "stragglers and jitter") or 2e-5, everybody, "world", 1, False
            )
        if casts := tree.leaf(root, "weight casts"):
            yield self.pointwise("weight casts", casts, "aten::copy_", "cast", self.model.hidden_size)
        shard = p["dp"] if p["zero"] else 1
        sizes = [[weights // shard]]
        yield Op("optimizer", tree.leaf(root, "optimizer"), "aten::_fused_adamw_", KERNELS["adamw"], [sizes] * 4, ["TensorList"] * 4)
        if p["dp"] > 1 and p["zero"] in (1, 2):
            yield self.meet("exposed weight gather", "all_gather", tree.leaf(root, "exposed weight gather"), weights, hides=False)
        yield Host("sync")
        yield Host("work", tree.leaf(root, "fixed per-step overhead"))


class Rank:
    """The host and the device of one rank, and the events of their profile."""

    def __init__(self, program: Program, changes: Changes) -> None:
        self.program, self.changes, self.rank = program, changes, program.rank
        self.events: list[dict[str, Any]] = []
        self.host = self.device = self.network = 0
        self.steps: list[int] = []
        self.correlation = self.external = 0
        self.thread = MAIN
        self.open: list[tuple[str, int, int]] = []
        self.computed = 0  # [ns] of the device since it last waited or asked for something to be hidden
        self.first = True

    def run(self) -> Generator[tuple[tuple[Any, ...], Meet, int, int], int, None]:
        """Run all steps; stop at each collective until the caller sends its end."""
        count: dict[str, int] = {}
        for _ in range(self.changes.early):
            self.write("kernel", GEMM, self.device, self.device + 100_000, {"stream": COMPUTE_STREAM, "device": 0, "correlation": 10**9})
            self.device += 100_000
        for number in range(self.changes.steps):
            begun = self.host
            self.first = True
            loader = self.changes.loader
            if load := loader if isinstance(loader, float) else loader.get(self.rank, 0.0):
                loaded = self.host + ns(load)
                name = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
                self.write("user_annotation", name, self.host, loaded, {}, MAIN)
                self.host = loaded
            if late := self.changes.stall.get(self.rank):
                self.work(late)
            for item in self.program.step():
                if isinstance(item, Op):
                    self.compute(item)
                elif isinstance(item, Meet):
                    if len(item.members) > 1:
                        at = count[item.group] = count.get(item.group, 0) + 1
                        yield from self.meet(item, (item.group, at))
                else:
                    self.act(item)
            self.write("user_annotation", f"ProfilerStep#{number + 5}", begun, self.host, {}, MAIN)

    # the host

    def act(self, item: Host) -> None:
        if item.what == "evaluate":
            self.thread = ENGINE
            self.open.append((f"autograd::engine::evaluate_function: {item.text}", self.host, ENGINE))
            self.host += 2000
        elif item.what == "done":
            name, since, thread = self.open.pop()
            self.host += 1000
            self.write("cpu_op", name, since, self.host, {"External id": self.next_external()}, thread)
            self.thread = MAIN
        elif item.what == "sync" and self.changes.sync:
            until = max(self.host, self.device, self.network) + 5_000
            self.write("cuda_runtime", "cudaStreamSynchronize", self.host, until, {"correlation": self.next_correlation()}, MAIN)
            self.host = until
        elif item.what == "late" and item.seconds:
            self.work(item.seconds)
        elif item.what == "work" and item.seconds:
            self.work(item.seconds, behind=self.changes.sync)

    def work(self, seconds: float, behind: bool = True) -> None:
        """Let the host make calls without a launch; ``behind``: after the device has caught up, so that the device waits."""
        since = max(self.host, self.device, self.network) if behind else self.host
        until = since + ns(seconds)
        while since < until:
            end = min(since + 400_000, until)
            self.write("cpu_op", "aten::empty", since, end, {"External id": self.next_external()}, self.thread)
            since = end
        self.host = until

    def launch(self, op: Op | Meet, name: str, arguments: dict[str, Any]) -> tuple[int, int, int]:
        """Run an operator that launches one kernel; return the time of the launch, and its two numbers."""
        cost = ns(self.changes.call)
        since, called = self.host, self.host + cost // 2
        external, correlation = self.next_external(), self.next_correlation()
        runtime = {"External id": external, "correlation": correlation}
        self.write("cuda_runtime", "cudaLaunchKernel", called, called + cost // 4, runtime, self.thread)
        self.host += cost
        self.write("cpu_op", name, since, self.host, {"External id": external, **arguments}, self.thread)
        if isinstance(op, Op) and op.around is not None:
            arguments = {"External id": self.next_external(), "Input Dims": op.around[1], "Input type": op.around[2]}
            self.write("cpu_op", op.around[0], since - 1, self.host + 1, arguments, self.thread)
            self.host += 2
        return called + min(cost // 4, 2_000), external, correlation

    # the device

    def compute(self, op: Op) -> None:
        seconds = op.seconds * self.changes.slow.get(self.rank, 1.0) * factor(self.changes.terms, op.leaf)
        arguments: dict[str, Any] = {"Input Dims": op.dims, "Input type": op.types}
        if op.values:
            arguments["Concrete Inputs"] = op.values
        arrived, external, correlation = self.launch(op, op.name, arguments)
        start = max(self.device, arrived)
        self.waited(start)
        self.device = start + ns(seconds)
        arguments = {"device": 0, "stream": COMPUTE_STREAM, "correlation": correlation, "External id": external}
        self.write("kernel", op.kernel, start, self.device, arguments)
        self.computed += self.device - start

    def waited(self, start: int) -> None:
        if self.first:
            self.steps.append(start)
            self.first = False
            self.computed = 0
        elif start > self.device:
            self.computed = 0

    def meet(self, item: Meet, key: tuple[Any, ...]) -> Generator[Any, int, None]:
        arrived, external, correlation = self.launch(item, "record_param_comms", self.asked(item))
        ready = max(self.device, arrived)
        self.waited(ready)
        hidden = min(int(self.computed * self.changes.overlap), max(0, self.device - self.network)) if item.hides else 0
        hidden = min(hidden, max(0, ready - arrived))
        start = ready - hidden
        end = yield key, item, start, hidden
        collective, kernel = NCCL[item.operation]
        stream = PIPELINE_STREAM if item.operation == "send_recv" else NETWORK_STREAM
        arguments = {"correlation": correlation, "External id": external, **self.asked(item), "Collective name": collective}
        self.write("kernel", kernel, start, end, {"device": 0, "stream": stream, **arguments})
        self.network = end
        if item.hides or end > self.device:
            self.computed = 0  # the next one is asked for no earlier than this one
        self.device = max(self.device, end)

    def asked(self, item: Meet) -> dict[str, Any]:
        n = len(item.members)
        small, large = item.elements // n, item.elements
        given = {"all_gather": (small, large), "reduce_scatter": (large, small)}.get(item.operation, (large, large))
        return {
            "Collective name": NCCL[item.operation][0], "In msg nelems": given[0], "Out msg nelems": given[1], "dtype": "BFloat16",
            "Group size": n, "Process Group Name": item.group, "Process Group Ranks": str(list(item.members)),
        }  # fmt: skip

    # what is written

    def next_external(self) -> int:
        self.external += 1
        return self.external

    def next_correlation(self) -> int:
        self.correlation += 1
        return self.correlation

    def write(self, cat: str, name: str, start: int, end: int, args: dict[str, Any], thread: int = 0) -> None:
        ahead = self.changes.clocks.get(self.rank, 0) + NS
        place = (0, args["stream"]) if cat == "kernel" else (9000 + self.rank, thread)
        event = {
            "ph": "X",
            "cat": cat,
            "name": name,
            "pid": place[0],
            "tid": place[1],
            "ts": (start + ahead) / 1000,
            "dur": (end - start) / 1000,
        }
        self.events.append(event | {"args": args})

    def data(self) -> dict[str, Any]:
        plan = self.program.plan
        return {
            "schemaVersion": 1,
            "deviceProperties": [{"id": 0, "name": DEVICES[plan["accelerator"]], "numSms": 132}],
            "distributedInfo": {"backend": "nccl", "rank": self.rank, "world_size": plan["gpus"], "nccl_version": "2.21.5"},
            "cuda_runtime_version": 12040,
            "record_shapes": 1,
            "baseTimeNanoseconds": BASE,
            "traceEvents": self.events,
        }


def ns(seconds: float) -> int:
    """Whole nanoseconds."""
    return round(seconds * NS)


def factor(factors: Mapping[str, float], name: str) -> float:
    """The factor of the first pattern that fits the whole name."""
    return next((by for pattern, by in factors.items() if re.fullmatch(pattern, name)), 1.0)


def make_run(estimate: Any, folder: Path, ranks: tuple[int, ...] | None = None, changes: Changes | None = None, **more: Any) -> MadeRun:
    """Write the trace of each of ``ranks`` (default: all) into ``folder``; other ranks are never late."""
    changes = replace(changes or Changes(), **more)
    row = estimate.row(0)
    group, _ = estimate.place_of(0)
    ranks = tuple(range(row["plan"]["gpus"])) if ranks is None else ranks
    machines = {rank: Rank(Program(row, group.job.model, rank), changes) for rank in ranks}
    made = MadeRun({}, {}, {}, {}, {})
    run_together(machines, changes, made)
    for rank, machine in machines.items():
        path = folder / f"rank{rank}.json"
        path.write_bytes(msgspec.json.encode(machine.data()))
        made.files[rank] = path
        made.steps[rank] = machine.steps
        made.end[rank] = max(machine.device, machine.network)
    return made


def run_together(machines: Mapping[int, Rank], changes: Changes, made: MadeRun) -> None:
    """Run every rank to its next collective, and further when all simulated ranks have joined."""
    runs = {rank: machine.run() for rank, machine in machines.items()}
    waiting: dict[tuple[Any, ...], dict[int, tuple[Meet, int, int]]] = {}
    ready: list[tuple[int, int | None]] = [(rank, None) for rank in runs]
    while ready:
        rank, end = ready.pop()
        try:
            key, item, start, hidden = runs[rank].send(end)  # type: ignore[arg-type]
        except StopIteration:
            continue
        here = waiting.setdefault(key, {})
        here[rank] = (item, start, hidden)
        if set(here) == set(item.members) & set(machines):
            starts = [s for _, s, _ in here.values()]
            hides = min(h for _, _, h in here.values())
            takes = ns((hides / NS + item.exposed * factor(changes.terms, item.leaf)) * factor(changes.operations, item.operation))
            made.transfer[key], made.skew[key] = takes, sum(max(starts) - s for s in starts)
            ready += [(one, max(starts) + takes) for one in here]
            del waiting[key]
    if waiting:
        raise RuntimeError(f"ranks wait for each other forever: {list(waiting)[:3]}")
