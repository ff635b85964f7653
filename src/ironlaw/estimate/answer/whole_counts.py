"""Counts in JSON are integers: a column of a count is a column of floats, and 512.0 accelerators read badly."""

from __future__ import annotations

from typing import Any

EXACT = 2.0**53  # below it every whole float is the number that was meant

# keys whose values are counts, of what can be counted one by one
COUNTS = frozenset({
    "gpus", "lost_gpus", "min_gpus", "max_gpus", "affordable_gpus", "spare_gpus", "nodes", "tp", "pp", "vpp", "cp", "ep", "etp", "dp",
    "dp_replicate", "dp_shard", "cp_inner", "zero", "micro_batch_size", "global_batch_size", "global_batch_tokens", "num_microbatches",
    "seq_len", "tokens", "sequences", "layers", "steps", "workers", "batches", "lora_rank", "mtp_layers", "microbatch_group",
    "gpus_per_domain", "most_per_domain", "domains", "scale_up_size", "left", "used", "every", "beside", "fragments",
    "total_parameters", "active_parameters", "active", "trained", "published", "published_active", "embedding", "output_layer", "of_one",
    "active_of_one", "number", "visited", "capacity_bytes",
})  # fmt: skip
AS_THEY_ARE = frozenset({"tree", "terms", "laws", "sources", "records"})  # keys below which nothing is a count
OF_COUNTS = frozenset({"parts"})  # objects of counts by name, where they are no list of terms


def whole_counts(data: dict[str, Any]) -> dict[str, Any]:
    """An answer with every count as an integer, where it is whole; other numbers as they are.

    >>> whole_counts({"gpus": 512.0, "step": 7.0, "rows": [{"tp": 4.0, "seq_len": None}], "left": 1.5})
    {'gpus': 512, 'step': 7.0, 'rows': [{'tp': 4, 'seq_len': None}], 'left': 1.5}
    """
    named = data.get("name") if data.keys() >= {"name", "value", "origin"} else None  # an assumption: its value is that of an option
    return {key: _whole_below(value, str(named) if named and key == "value" else key) for key, value in data.items()}


def _whole_below(value: Any, key: str) -> Any:
    """The value of a key with its counts as integers."""
    if isinstance(value, dict):
        if key in OF_COUNTS:
            return {name: whole(item) for name, item in value.items()}
        return value if key in AS_THEY_ARE else whole_counts(value)
    if isinstance(value, list):
        return [_whole_below(item, "" if isinstance(item, dict) else key) for item in value]
    return whole(value) if key in COUNTS else value


def whole(value: Any) -> Any:
    """A whole float as an integer; anything else unchanged.

    >>> whole(3.0), whole(3.5), whole(1e300), whole(None)
    (3, 3.5, 1e+300, None)
    """
    return int(value) if isinstance(value, float) and abs(value) <= EXACT and value.is_integer() else value
