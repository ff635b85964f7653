"""What a training stack can run: the table ``[can]`` of a framework's record, and the order in which frameworks are chosen.

A key that is absent says that nothing is known, and limits nothing; an empty list says that the stack has none.
"""

from __future__ import annotations

from ironlaw.catalog.model import Record
from ironlaw.catalog.schema import Schema, plain_table, word
from ironlaw.catalog.sourced import Source

ANY = ("any",)  # of a list: not known, so nothing is refused
STAGES = (0, 1, 2, 3)  # of ZeRO


class Can(Schema):
    """What a training stack can run. Lists hold the names that options take."""

    source: Source | None = None
    like: str = ""  # the framework whose table has what this one does not say
    since: str = ""  # version or commit of what was read
    vendors: tuple[str, ...] = ANY  # of the accelerators it is described for
    elsewhere: str = ""  # the record of the same stack on accelerators of other makers
    tp: bool = True
    pp: bool = True
    stages: str = word("equal", "any", default="any")  # layers of the pipeline stages
    chunks: str = word("one", "equal", "any", default="any")  # of a pipeline rank; equal: as many layers in each
    unoverlapped_chunks_from: int = 0  # least pp at which several chunks run where their hand-overs do not overlap; 0: any
    schedules: tuple[str, ...] = ANY
    cp: tuple[str, ...] = ANY  # methods of context parallelism; empty: it has none
    ep: bool = True
    etp: bool = True
    dispatchers: tuple[str, ...] = ANY
    zero: tuple[int, ...] = STAGES  # stages of ZeRO, 0 without sharding
    zero_with_pp: tuple[int, ...] = STAGES  # of these, those that run beside a pipeline
    hsdp: bool = True  # replicas of groups that shard (dp_replicate with dp_shard)
    count_embedding: bool = True  # embedding and loss count as layers where stages are split
    recompute: tuple[str, ...] = ANY  # forms: none | selective | every | share | full | segments
    offload: tuple[str, ...] = ANY
    overlap: tuple[str, ...] = ANY  # what it does by default (Framework.overlap) and what a recipe can turn on
    not_with_latent_attention: tuple[str, ...] = ()  # of these, those that attention through latents (kv_lora_rank) turns off
    sp: bool = True  # sequence parallelism beside tp
    sp_with_experts: bool = False  # a mixture with tp runs with sequence parallelism alone
    needs: dict[str, str] = plain_table()  # overlap -> the overlap without which it does not run
    precisions: tuple[str, ...] = ANY
    cuda_graphs: tuple[str, ...] = ANY  # beside none
    gradient_dtypes: tuple[str, ...] = ANY
    optimizers: tuple[str, ...] = ANY
    adapters: tuple[str, ...] = ANY
    frozen_weights: tuple[str, ...] = ANY  # formats of the weights beside adapters, other than that of training
    objectives: tuple[str, ...] = ANY
    # what it has and few people run: used where a question gives it, never proposed. An axis, or an axis with a value: "tp", "zero 3"
    seldom: tuple[str, ...] = ()


ANYTHING = Can(needs={})


class Choice(Record):
    """The frameworks of questions that name none, in order: the first that has everything a question gives runs it."""

    split: tuple[str, ...]  # several accelerators
    flat: tuple[str, ...]  # one accelerator, or tp 1 and pp 1
    otherwise: str  # where none of them has everything


def has(names: tuple[str, ...], name: str) -> bool:
    """True where a list of a table has a name, or is not known.

    >>> has(("ring",), "ring"), has((), "ring"), has(ANY, "ring")
    (True, False, True)
    """
    return name in names or names == ANY
