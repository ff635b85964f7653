"""A mixer that scans a state instead of attending: the base of the linear attentions and of Mamba.

All project tokens to queries, keys, values and gates, convolve them over a few tokens, run a chunked scan whose cost
grows with the sequence and not with its square, and project back.
"""

from __future__ import annotations

from typing import Any

from ironlaw.catalog.model import Model
from ironlaw.cluster import Cluster
from ironlaw.estimate.fabric import group_links
from ironlaw.estimate.layer.mixer import Mixer, Products
from ironlaw.estimate.layer.sizes import Shapes, elementwise, kernel
from ironlaw.job import Job
from ironlaw.law import activations
from ironlaw.plan import Plan
from ironlaw.terms import Term, leaf

BACKWARD_FLOP = 2.0


class StateMixer(Mixer):
    """A mixer that scans a state along the sequence. Tensor-parallel ranks split its heads as they split attention heads."""

    blocks = 1.0
    exchanges = True
    layout_kernels = (0.0, 0.0)  # of convolution and gates: forward and backward
    scan_kernels = (0.0, 0.0)

    @property
    def launches(self) -> float:  # type: ignore[override]
        """Count the kernels that the forward of a layer launches for its state."""
        return self.layout_kernels[0] + self.scan_kernels[0]

    def widths(self, model: Model) -> tuple[float, float, float]:
        """Return (columns of the input projection, columns convolved, columns of the output projection's input)."""
        raise NotImplementedError

    def moved(self, job: Job, ratio: float, backward: bool) -> tuple[float, float]:
        """Return (bytes of an element, elements of a token) that convolution, gates and copies read and write."""
        raise NotImplementedError

    def scan(self, job: Job, plan: Plan, share: Any, backward: bool) -> tuple[Any, Any]:
        """Return (FLOPs of a forward pass, bytes moved in this pass) of the scan of a ``share`` of the heads."""
        raise NotImplementedError

    def products(self, job: Job, s: Shapes) -> Products:
        """List the two projections, sharded by heads."""
        into, _, out = self.widths(job.model)
        share = s.heads / job.model.num_attention_heads
        return {"state in": (s.tokens, into * share, s.hidden), "state out": (s.tokens, s.hidden, out * share)}

    def memory_bound(self, cluster: Cluster, job: Job, s: Shapes, ratio: float, backward: bool) -> list[Term]:
        """Time the short convolution, its activation, the gates, and the copies into the scan's layout."""
        size, elements = self.moved(job, ratio, backward)
        moved = size * (s.heads / job.model.num_attention_heads) * s.tokens * elements
        return [elementwise(cluster, "convolution and gates", moved, self.layout_kernels[1 if backward else 0])]

    def core(self, cluster: Cluster, job: Job, plan: Plan, s: Shapes, backward: bool = False) -> list[Term]:
        """Time the chunked scan of the state. Context ranks scan whole sequences for their share of heads."""
        flop, moved = self.scan(job, plan, s.heads / job.model.num_attention_heads, backward)
        flop = flop * (BACKWARD_FLOP if backward else 1.0)
        wide, launches = job.precision.wide, self.scan_kernels[1 if backward else 0]
        return [kernel(cluster, "state scan", flop, moved, wide, cluster.gemm(wide), launches=launches)]

    def exchange(self, cluster: Cluster, job: Job, plan: Plan, s: Shapes) -> Term:
        """Send the scan's inputs out by heads, and its output back by tokens."""
        _, mixed, out = self.widths(job.model)
        size = (mixed + 2.0 * out) * (s.heads / job.model.num_attention_heads) * s.tokens * job.precision.activation_bytes
        return group_links.all_to_all(cluster, plan, "heads for tokens", plan.cp, size, plan.tp)

    def activations(self, job: Job, plan: Plan, s: Shapes, cast_share: float, core_kept: Any) -> list[Term]:
        """List the projections before and after the convolution, and the scan's output."""
        into, mixed, out = self.widths(job.model)
        share = s.heads / job.model.num_attention_heads
        width = (into + mixed + (1.0 + cast_share) * out) * share
        e = job.precision.activation_bytes
        return [leaf("attention", activations.mlp, "B", tokens=s.tokens, intermediate_size=width, saved=1.0, tp=1.0, bytes_per_element=e)]
