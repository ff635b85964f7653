"""How layers are split over pipeline stages by the rule, for every count of layers and stages."""

from __future__ import annotations

import numpy as np

import ironlaw
from ironlaw.estimate.pipeline.stages import stages
from ironlaw.plan import BY_RULE, Plan

ONE = ironlaw.estimate("llama-3-8b", on="h100-sxm", gpus=1).groups[0].job


def layers_by_stage(layers: int, pp: int) -> list[float]:
    one = np.ones(1)
    columns = dict.fromkeys(Plan.fields, one) | {"pp": pp * one, "first_stage_layers": BY_RULE, "last_stage_layers": BY_RULE}
    classes = stages(ONE.replace(model=ONE.model.replace(num_hidden_layers=layers)), Plan(**columns))
    running = sorted((c for c in classes if c.count[0] > 0), key=lambda c: c.index[0])
    return [c.layers[0] for c in running for _ in range(int(c.count[0]))]


def test_stages_share_all_layers():
    for layers in range(1, 131):
        for pp in range(1, min(layers, 24) + 1):
            held = layers_by_stage(layers, pp)
            assert len(held) == pp
            assert sum(held) == layers
            assert max(held) - min(held) <= 1
            assert held[-1] == min(held), "the last stage holds the loss and takes no extra layer"
            if layers % pp and held[0] > min(held):
                assert layers % pp == pp - 1, "the first stage takes an extra layer only when the middle is full"


def test_the_remainder_goes_to_the_middle():
    assert layers_by_stage(34, 4) == [8, 9, 9, 8]
    assert layers_by_stage(35, 4) == [9, 9, 9, 8]
