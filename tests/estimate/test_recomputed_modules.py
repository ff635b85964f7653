"""Modules that selective recomputation names: what each saves, computes again and sends again."""

from __future__ import annotations

import numpy as np
import pytest

import ironlaw
from ironlaw.errors import QuestionError
from ironlaw.estimate.layer.counts import weights_of_modules
from ironlaw.plan import RECOMPUTE_MODULES
from ironlaw.question.words import RECOMPUTABLE
from ironlaw.terms import scalar

HELD = {
    "on": "h100-sxm", "gpus": 2048, "tp": 1, "pp": 16, "vpp": 1, "cp": 1, "ep": 64, "zero": 1, "micro_batch_size": 1,
    "global_batch_size": 8192, "seq_len": 4096, "overlap": "none", "framework": "megatron",
}  # fmt: skip
LAYERS, HEADS, WIDTH = 62, 128, 128 + 64  # DeepSeek-V3 with its layer for a further token; queries and keys of a head
TOKENS = 4096


def group(how, model="deepseek-v3", **asked):
    return ironlaw.estimate(model, **{**HELD, **asked}, recompute=how).groups[0]


def test_every_module_of_a_plan_has_a_word():
    assert set(RECOMPUTE_MODULES) < set(RECOMPUTABLE) and set(weights_of_modules(group("none").job.model)) == set(
        RECOMPUTE_MODULES.values()
    )


@pytest.fixture(scope="module")
def none():
    return group("none")


def activations(answer):
    """Bytes of the activations of the fullest stage."""
    (found,) = (term for term in answer.memory.tree.parts[0].parts[0].parts if term.name == "activations")
    return scalar(found)


def repeated_flop(answer, none):
    """FLOP for a token that are computed a second time."""
    rates = [float(np.ravel(of.throughput["hfu"].value / of.throughput["tokens_per_second"].value)[0]) for of in (answer, none)]
    return (rates[0] - rates[1]) * 989.4e12 * HELD["gpus"]


def test_up_projections_of_latent_attention_are_computed_again_and_their_heads_are_not_kept(none):
    """Megatron Core's mla_up_proj: 62 layers of 1,536 x 128 x 192 and 512 x 128 x 256 weights; heads of micro-batches."""
    again = group("selective:mla_up_proj")
    weights = LAYERS * HEADS * (1536 * WIDTH + 512 * 256)
    assert repeated_flop(again, none) == pytest.approx(2 * weights, rel=0.01)
    of_layer = TOKENS * HEADS * (WIDTH + WIDTH + 128) * 2
    saved = activations(none) - activations(again)
    assert saved / of_layer == pytest.approx(4 * 15, abs=1e-6)  # the second of 16 stages: four layers, 15 micro-batches in flight


def test_modules_are_not_repeated_twice(none):
    """Shared experts belong to the mixture, and all products hold every module's."""
    moe, both = group("selective:moe"), group("selective:moe,shared_experts")
    assert scalar(both.step.tree) == scalar(moe.step.tree) and activations(both) == activations(moe)
    shared = group("selective:shared_experts")
    assert repeated_flop(shared, none) == pytest.approx(2 * 59 * 3 * 7168 * 2048, rel=0.01)
    assert scalar(none.step.tree) < scalar(shared.step.tree) < scalar(moe.step.tree)
    linear, more = group("selective:linear"), group("selective:linear,up-projection,mlp,shared-experts")
    assert repeated_flop(more, none) == pytest.approx(repeated_flop(linear, none))


def test_the_mlp_of_a_mixture_is_that_of_its_dense_layers(none):
    mlp = group("selective:mlp")
    assert repeated_flop(mlp, none) == pytest.approx(2 * 3 * 3 * 7168 * 18432, rel=0.01)  # three layers in front
    held = {"gpus": 64, "pp": 1, "ep": None, "tp": 8, "global_batch_size": 64}
    dense, kept = (group(how, "llama-3-8b", **held) for how in ("selective:mlp", "none"))
    rows = TOKENS * 14336 / 8 * 2  # elements of 2 bytes of one wide tensor of a layer
    assert (activations(kept) - activations(dense)) / (32 * rows) == pytest.approx(3, abs=0.35)  # gate, up and their product


def test_recomputed_experts_dispatch_their_rows_again(none):
    def sent(answer):
        def walk(term):
            return scalar(term) if "expert parallel" in term.name else sum(walk(part) for part in term.parts)

        return walk(answer.step.tree)

    assert sent(group("selective:moe")) == pytest.approx(1.5 * sent(none), rel=0.02)  # three passes instead of two


@pytest.mark.parametrize(
    ("model", "how", "lacks"), [("llama-3-8b", "selective:moe", "moe"), ("mixtral-8x7b", "selective:mla_up_proj", "up-projection")]
)
def test_a_module_that_no_layer_has_is_refused(model, how, lacks):
    with pytest.raises(QuestionError, match=f"has no {lacks} to recompute"):
        ironlaw.estimate(model, on="h100-sxm", gpus=64, recompute=how)
