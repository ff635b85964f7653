"""Layers that are not trained, of models that mix kinds of layer: which they are, and what they save."""

from __future__ import annotations

import pytest

import ironlaw
from ironlaw.catalog import load
from ironlaw.errors import ValueRangeError
from ironlaw.estimate.layer.counts import common_parameters, embedding_parameters, routed_parameters
from ironlaw.estimate.layer.kinds import kinds, layers_of
from ironlaw.estimate.pipeline.stages import stages

MIXED = {
    "deepseek-v2-lite": {"gpus": 8, "tp": 1, "pp": 1, "ep": 8},  # one dense layer in front of 26 routed ones, latent attention
    "nemotron-h-56b": {"gpus": 64, "tp": 8, "pp": 1},  # Mamba, attention and MLP as layers of their own
    "qwen3-next-80b-a3b": {"gpus": 64, "tp": 1, "pp": 1, "ep": 16},  # three linear-attention layers to one that attends
    "gemma-2-9b": {"gpus": 8, "tp": 2, "pp": 1},  # local and global layers in turns
}


def group(name, **more):
    ask = {"on": "h200-sxm", "micro_batch_size": 1, "global_batch_size": 128, "seq_len": 4096, "zero": 1, "framework": "megatron"}
    (one,) = ironlaw.estimate(name, **{**ask, **MIXED[name], "recompute": "none", **more}).groups
    return one


def test_the_first_layers_are_those_at_the_front():
    """DeepSeek-V3: three dense layers, then routed ones. Five frozen are the three and two of the others."""
    model = load.record("models", "deepseek-v3", ()).replace(frozen_layers=5)
    found = {k.name: (k.count, k.trained) for k in kinds(model)}
    assert found["frozen dense layers at the front"] == (3.0, False)
    assert found["frozen routed layers"] == (2.0, False)
    assert found["routed layers"] == (56.0, True)
    assert found["multi-token-prediction layers"] == (1.0, True)
    two = {k.name: k.count for k in kinds(model.replace(frozen_layers=2))}
    assert two["dense layers at the front"] == 1.0 and "frozen routed layers" not in two


@pytest.mark.parametrize("name", MIXED)
def test_every_layer_is_of_one_kind(name):
    model = load.record("models", name, ())
    for n in (0, 1, 2, model.num_hidden_layers // 2, model.num_hidden_layers - 1):
        found = kinds(model.replace(frozen_layers=n))
        assert sum(k.count for k in found if k.place != "end") == pytest.approx(model.num_hidden_layers)
        assert sum(k.count for k in found if not k.trained) == pytest.approx(n)


def test_stages_hold_the_frozen_layers_once():
    """61 layers on four stages, seven of them frozen: the first stage holds all that are, and all stages together each layer."""
    one = group("deepseek-v2-lite", gpus=32, pp=4, ep=8, frozen_layers=7)
    parts = stages(one.job, one.plan)
    frozen = [k for k in kinds(one.job.model) if not k.trained]
    held = [sum(float(layers_of(stage, kind, one.job.model)[0]) for kind in frozen) for stage in parts]
    counts = [float(stage.count[0]) for stage in parts]
    assert sum(h * c for h, c in zip(held, counts, strict=True)) == pytest.approx(7.0)
    assert held[0] == min(7.0, float(parts[0].layers[0]))


@pytest.mark.parametrize("name", MIXED)
def test_frozen_layers_have_no_backward_gradient_state_or_activation(name):
    whole, some = group(name), group(name, frozen_layers=6)
    tree = some.step.tree
    assert tree.value[0] < whole.step.tree.value[0]
    for kind in (k for k in kinds(some.job.model) if not k.trained):
        layer = next(t for t in tree.walk() if t.name == kind.name)
        assert layer["backward"].value == 0.0 and layer["recompute"].value == 0.0
        assert some.memory.tree[f"saved {kind.name}"].value[0] == 0.0
    for state in ("gradients", "optimizer states", "activations"):
        assert some.memory.tree[state].value[0] < whole.memory.tree[state].value[0]
    assert some.memory.tree["weights"].value[0] == whole.memory.tree["weights"].value[0]


def test_the_embedding_below_frozen_layers_is_frozen_too():
    """What has states is the model less its first three layers less the embedding: 6 bytes a weight stay with one rank."""
    one = group("deepseek-v2-lite", gpus=1, ep=1, zero=1, frozen_layers=3, optimizer="adamw", mtp_layers=0)
    model = one.job.model
    kept = [k for k in kinds(model) if k.trained and k.place != "end"]
    trained = sum(k.count * (common_parameters(model, k) + routed_parameters(model, k)) for k in kept)
    head = embedding_parameters(model) + model.hidden_size
    assert one.memory.tree["optimizer states"].value[0] == pytest.approx(8.0 * float(trained + head), rel=1e-9)


def test_zero_frozen_layers_change_nothing():
    for name in MIXED:
        assert group(name, frozen_layers=0).step.tree.value[0] == group(name).step.tree.value[0]


def test_freezing_all_layers_is_refused():
    with pytest.raises(ValueRangeError, match="leaves none of the 27 layers to train"):
        group("deepseek-v2-lite", frozen_layers=27)


def test_frozen_layers_have_no_adapters():
    adapters = {"lora_rank": 16, "framework": "generic"}
    every, half = group("gemma-2-9b", **adapters), group("gemma-2-9b", **adapters, frozen_layers=21)
    assert half.memory.tree["gradients"].value[0] == pytest.approx(0.5 * every.memory.tree["gradients"].value[0])
    frozen = next(t for t in half.step.tree.walk() if t.name == "frozen layers")
    assert not any("adapter" in t.name for t in frozen.walk())
