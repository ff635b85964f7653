"""What a layer computes across tokens: the functions that every kind of mixer has. ``mixers.MIXERS`` is the table of all of them.

Nothing else in ironlaw compares the name of a mixer. Each function gets the job and the model with the sizes of the layer's kind.
"""

from __future__ import annotations

from typing import Any

from ironlaw.catalog.model import Model
from ironlaw.cluster import Cluster
from ironlaw.estimate.layer.sizes import Shapes
from ironlaw.job import Job
from ironlaw.plan import Plan
from ironlaw.terms import Term

Products = dict[str, tuple[Any, Any, Any]]


class Mixer:
    """A layer without a mixer: no weights, no computation, nothing kept. Each other mixer overrides what it has."""

    name = "none"
    prefix = "attention-free "  # of the name of its layers
    blocks = 0.0  # residual blocks of a layer that are mixers
    attends = False  # its computation grows with the square of the sequence, and it may be recomputed without the rest of the layer
    launches = 0.0  # kernels of a forward pass beside the kernels of any layer
    graph_module = "attn"  # what Megatron Core's scope of CUDA graphs calls it
    assumed = ""  # what is assumed of its kernels, where those of training stacks are not public
    crosses = False  # it attends to what a tower made, not to its own sequence
    windowed = False  # every layer sees the model's window, and perhaps more
    exchanges = False  # context ranks trade tokens for whole sequences of some heads

    def parameters(self, model: Model) -> Any:
        """Count the parameters of one layer's mixer."""
        return 0.0

    def matmul(self, model: Model) -> Any:
        """Count the weights that multiply each token."""
        return 0.0

    def replicated(self, model: Model) -> tuple[Any, ...]:
        """Count the parameters that tensor parallelism does not split; the caller adds them up from left to right."""
        return ()

    def replicated_linear(self, model: Model) -> float:
        """Count the weights among them that a narrow format applies to."""
        return 0.0

    def products(self, job: Job, s: Shapes) -> Products:
        """List the matrix products of a forward pass by name: (m, n, k)."""
        return {}

    def core(self, cluster: Cluster, job: Job, plan: Plan, s: Shapes, backward: bool = False) -> list[Term]:
        """Time the part that works across tokens, in one pass."""
        return []

    def memory_bound(self, cluster: Cluster, job: Job, s: Shapes, ratio: float, backward: bool) -> list[Term]:
        """Time the operators between the products and the core; ``ratio``: of bytes in this pass to the bytes in the record."""
        return []

    def exchange(self, cluster: Cluster, job: Job, plan: Plan, s: Shapes) -> Term:
        """Time one exchange of tokens and heads between context ranks, of a mixer that exchanges them."""
        raise NotImplementedError

    def cast_inputs(self, model: Model) -> float:
        """Count the cast inputs of linear layers that are kept for each element of the hidden state."""
        return 1.0

    def kept_wide(self, job: Job, s: Shapes) -> Any:
        """Count the elements of linear layers' inputs that another operator keeps wide."""
        return 0.0

    def activations(self, job: Job, plan: Plan, s: Shapes, cast_share: float, core_kept: Any) -> list[Term]:
        """List the tensors that are kept for the backward pass.

        ``cast_share``: bytes kept of a linear layer's input over its bytes in the wide type. ``core_kept``: the share of the layers
        that do not recompute the core.
        """
        return []
