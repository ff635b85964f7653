"""At equal work for each accelerator a larger job loses what its network and its stragglers cost, and nothing else."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import ironlaw
from ironlaw.terms import shares

SIZES = (256, 512, 1024, 2048, 4096)  # GB200, in domains of 72
JOBS = {
    "dense": ("llama-3-70b", {"tp": 2, "zero": 1, "framework": "nemo", "seq_len": 8192, "recompute": "none"}, 1),
    "dense, sharded": ("llama-3-70b", {"tp": 2, "zero": 3, "framework": "torchtitan", "seq_len": 8192, "recompute": "none"}, 1),
    "mixture": ("deepseek-v3", {"pp": 4, "vpp": 4, "ep": 32, "zero": 1, "framework": "nemo", "precision": "mxfp8", "seq_len": 4096,
                                "recompute": "selective", "cuda_graphs": "none"}, 8),
    "mixture inside a domain": ("qwen3-30b-a3b", {"ep": 8, "zero": 1, "framework": "nemo", "seq_len": 4096, "recompute": "none"}, 8),
}  # fmt: skip


def parts(model, options, sequences, gpus):
    """Step time, and the part of it that is the network's or is spent waiting for stragglers [s]."""
    asked = {"tp": 1, "pp": 1, "cp": 1, "micro_batch_size": 1, "precision": "bf16", **options}
    (group,) = ironlaw.estimate(model, on="gb200", gpus=gpus, global_batch_size=gpus * sequences, **asked).groups
    tree = group.step.tree
    return float(np.ravel(tree.value)[0]), float(np.ravel(shares(tree)["network"])[0])


@pytest.mark.parametrize("name", JOBS)
def test_a_larger_job_loses_no_more_than_its_network_explains(name):
    model, options, sequences = JOBS[name]
    found = [parts(model, options, sequences, gpus) for gpus in SIZES]
    for (small, sent), (large, more) in pairwise(found):
        assert large - small <= max(more - sent, 0.0) + 1e-6 * small


@pytest.mark.parametrize("name", JOBS)
def test_no_size_falls_off_a_cliff(name):
    """A doubling of the job costs the loss of a doubling of domains, and of its collectives what a ring adds between half and all of its
    ranks: a collective of n ranks moves (n - 1) / n of its bytes, so from 256 ranks on they cost at most a hundredth more, and what they
    hid before may show."""
    model, options, sequences = JOBS[name]
    rate = [1.0 / parts(model, options, sequences, gpus)[0] for gpus in SIZES]
    for small, large in pairwise(rate):
        assert large > 0.95 * small
