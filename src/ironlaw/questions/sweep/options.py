"""Options of ``ironlaw sweep``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ironlaw.question.forms import Form
from ironlaw.question.kinds import kind
from ironlaw.question.options import OPTIONS as ESTIMATE
from ironlaw.question.options import ROUNDING, Option, taken_by
from ironlaw.question.readers import counts, list_of, model, whole, zero_or_more
from ironlaw.question.words import batch_tokens, length, run_tokens
from ironlaw.questions.sites.options import OPTIONS as SITES


@kind("str", "Sequence[Any]", "dict[str, Any]", gives="tuple[Any, ...]", metavar="LIST")
def models(value: Any, flag: str) -> tuple[Any, ...]:
    """A comma list of names; dimensions (``hidden_size=...,...``) are one model."""
    if isinstance(value, Mapping) or (isinstance(value, str) and "=" in value):
        return (model(value, flag),)
    return list_of(model)(value, flag)


EXCHANGE = (  # passed to sites unchanged
    "wan_bandwidth", "shared_bandwidth", "wan_efficiency", "wan_price", "latency", "exchange", "gradients", "inner_steps",
    "outer_fragments", "overlap_steps",
)  # fmt: skip
EXCHANGE_LISTS = ("exchange", "gradients", "inner_steps")  # every combination is a row of the table of exchanges
OWN: dict[str, Option] = {
    "model": Option(models, "comma list of models", "MODEL[,..]", records="models"),
    "on": ESTIMATE["on"],
    "gpus": Option(counts, "comma list of accelerator counts, or LO..HI, which doubles; every row is then an estimate", "LIST"),
    "tokens": Option(list_of(run_tokens), "comma list of tokens of the run, such as 1.4T, or per parameter: 20x", "LIST"),
    "global_batch_tokens": Option(list_of(batch_tokens), "comma list of tokens per optimizer step", "LIST", decided="the estimate's"),
    "global_batch_size": Option(list_of(whole), "comma list of sequences per optimizer step, instead of tokens", "LIST"),
    "seq_len": Option(list_of(length), "comma list of tokens per sequence", "LIST", decided="the estimate's"),
    "power_cap": Option(
        list_of(ESTIMATE["power_cap"].read), "comma list of power limits of one accelerator, such as 400,500,700 W", "LIST", decided="none"
    ),
    "capacity_factor": Option(
        list_of(zero_or_more("1")),
        "comma list of capacity factors of experts, 0 for none: the time of each beside the share of rows that it drops",
        "LIST",
    ),
    "accumulate": Option(list_of(whole), "comma list of micro-batches k per step: under one plan, with memory, time and money", "LIST"),
    "rounding": ROUNDING,
    "price": ESTIMATE["price"],
    "pue": ESTIMATE["pue"],
    "sites": SITES["sites"].replace(says="sites that share the accelerators, a number or names; adds a table of the exchange between them"),
    **{
        name: SITES[name].replace(says=f"with --sites: {SITES[name].says}", group="", needs=("sites",), excludes={})
        for name in EXCHANGE
        if name not in EXCHANGE_LISTS
    },
    **{
        name: SITES[name].replace(
            read=list_of(SITES[name].read), says=f"with --sites, a comma list: {SITES[name].says}", group="", needs=("sites",)
        )
        for name in EXCHANGE_LISTS
    },
}
PASSED = tuple(taken_by("sweep", OWN))  # passed to estimate unchanged
OPTIONS: dict[str, Option] = {**OWN, **taken_by("sweep", OWN)}
LISTS = (
    "model",
    "gpus",
    "tokens",
    "global_batch_tokens",
    "global_batch_size",
    "seq_len",
    "power_cap",
    "capacity_factor",
)  # every combination is a row
_RUN = ("on", "model", "tokens", "gpus")
_BATCH = "the batch is k micro-batches of every rank"
FORMS = (
    Form(
        "--accumulate by estimate",
        when=("accumulate",),
        needs=_RUN,
        excludes={
            "global_batch_size": _BATCH, "global_batch_tokens": _BATCH, "sites": "it has no table of the exchange",
            "capacity_factor": "it has no table of dropped rows", "rounding": "its steps are rounded up",
            "power_cap": "it compares k under one cap; give one of them",
        },
    ),
    Form("estimates", needs=_RUN),
)  # fmt: skip
EXAMPLES = """\
  ironlaw sweep llama-3-8b,llama-3-70b --on h100-sxm --gpus 256 --tokens 20x --global-batch-tokens 1Mi,4Mi,16Mi
  ironlaw sweep llama-3-8b --on h100-sxm --gpus 64 --tokens 1T --seq-len 4k,8k,32k --global-batch-tokens 4Mi
  ironlaw sweep llama-3-8b --on h100-sxm --gpus 64 --tokens 1T --power-cap 300,400,500,600,700
  ironlaw sweep gpt2-xl --on v100-sxm-32gb --gpus 8 --tokens 10B --micro-batch-size 1 --tp 1 --pp 1 --accumulate 1,2,4,8,16
  ironlaw sweep qwen-3-30b-a3b --on h100-sxm --gpus 64 --tokens 1T --capacity-factor 0,1,1.25,2 --expert-load aux-loss
  ironlaw sweep llama-3-70b --on h100-sxm --gpus 1024 --tokens 20T --global-batch-tokens 4Mi --sites 2 --wan-bandwidth 10GB/s
"""
