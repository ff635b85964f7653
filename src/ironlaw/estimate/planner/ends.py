"""Layers of the first and the last pipeline stage to try: fewer than the other stages have, where that shortens a step.

The first stage has the embedding; the last has the output layer, the loss and the layers for further tokens, which take as long as
layers. With equal layers the other stages wait for the last one.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from ironlaw.catalog.model import Model
from ironlaw.estimate.layer.counts import attention_width, matmul_per_layer, output_matrix
from ironlaw.estimate.layer.kinds import kinds
from ironlaw.estimate.pipeline.stages import stages, unpaired_stages
from ironlaw.job import Job
from ironlaw.plan import BY_RULE, plan_with

Ends = tuple[float, float]
RULE: Ends = (BY_RULE, BY_RULE)
GAIN = 0.02  # of the slowest stage: for a smaller gain only the rule is tried
FAR = 0.1  # of the slowest stage: for a larger gain the rule is not tried


@lru_cache(256)
def loss_in_layers(model: Model, seq_len: float) -> float:
    """Work of the last stage beside its layers, in mean layers of the model, by forward FLOPs."""

    def flop(kind: Any) -> float:
        attended = 2.0 * seq_len * attention_width(model) if kind.mixer.attends else 0.0  # causal: half the square
        return float(2.0 * matmul_per_layer(model, kind) + attended)

    layers = [(kind.count, flop(kind)) for kind in kinds(model) if kind.place not in ("end", "tower")]
    mean_layer = sum(count * layer_flop for count, layer_flop in layers) / sum(count for count, _ in layers)
    further = sum(kind.count * flop(kind) for kind in kinds(model) if kind.place == "end")
    heads = (1.0 + model.num_nextn_predict_layers) * 2.0 * float(output_matrix(model))
    return (heads + further) / mean_layer


def balanced_ends(job: Job, pp: float, seq_len: float) -> list[Ends]:
    """The splits to try: the rule for all stages, and the first and last stage that give the slowest stage least work, if that is less.

    Two changes are tried: the embedding and the loss count as one layer each (Megatron's
    ``--account-for-embedding-in-pipeline-split`` and ``--account-for-loss-in-pipeline-split``), and the last stage gets the number of
    layers that balances it, rounded down and up (``--decoder-last-pipeline-num-layers``). The rule is tried too, as its first stage,
    which has the most micro-batches in flight, may hold fewer layers. Where its slowest stage has a tenth more work the rule is left
    out, so that the space does not double.
    """
    if pp == 1.0 or job.layers_per_stage or job.count_embedding:
        return [RULE]
    loss = loss_in_layers(job.model, seq_len)
    layers = float(job.model.num_hidden_layers)
    level = (layers + loss) / pp - loss
    tried = [RULE, _count_ends(job, pp), *((BY_RULE, n) for n in sorted({np.floor(level), np.ceil(level)}) if 0.0 <= n < layers)]
    first, last = np.array(tried).T
    plan = plan_with(pp=np.full(len(tried), pp), first_stage_layers=first, last_stage_layers=last)
    pace: Any = 0.0
    fewest: Any = np.inf
    for stage in stages(job, plan):
        pace = np.maximum(pace, np.where(stage.count > 0, stage.layers + loss * stage.head, 0.0))
        fewest = np.minimum(fewest, np.where(stage.count > 0, stage.layers + stage.embedding + stage.head, np.inf))
    pace = np.where(fewest >= 1.0, pace, np.inf)
    best = int(np.argmin(pace))
    if pace[best] >= (1.0 - GAIN) * pace[0]:
        return [RULE]
    return [tried[best]] if pace[best] < (1.0 - FAR) * pace[0] else [RULE, tried[best]]


def _count_ends(job: Job, pp: float) -> Ends:
    """Layers of the first and last stage where the embedding and the loss count as one layer each."""
    named = {s.name: s for s in unpaired_stages(job.replace(count_embedding=True), plan_with(pp=np.array([pp])))}
    return float(named["first"].layers[0]), float(named["last"].layers[0])
