"""A question as one typed object: a field for every option, and one row for every value of the column options."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from ironlaw.errors import QuestionError
from ironlaw.frozen import Frozen
from ironlaw.question import defaults
from ironlaw.question.assumptions import printed
from ironlaw.question.options import flat, is_column
from ironlaw.question.words import readings_of


class Row(NamedTuple):
    """The options that may be columns, one value each; None is left open."""

    gpus: float | None = None
    global_batch_size: float | None = None
    seq_len: float | None = None
    micro_batch_size: float | None = None
    tp: float | None = None
    sp: bool | None = None
    pp: float | None = None
    vpp: float | None = None
    cp: float | None = None
    ep: float | None = None
    etp: float | None = None
    dp_replicate: float | None = None
    dp_shard: float | None = None
    zero: float | None = None
    recompute: str | None = None
    overlap: frozenset[str] | None = None
    first_stage_layers: float | None = None
    last_stage_layers: float | None = None
    offload: frozenset[str] | None = None


class Asked(Frozen):
    """The options of an estimate. None: not given; a catalogue record, a rule or the search for a plan sets the value."""

    rows: tuple[Row, ...] = (Row(),)
    given: Mapping[str, Any] = MappingProxyType({})  # options the user gave, as the assumptions print them
    readings: tuple[tuple[str, str], ...] = ()  # of values with two readings: what was written, and how it was read

    model: Any = None  # a name, a path, or a table of dimensions
    on: str = ""
    node: str | None = None
    fabric: str | None = None
    scale_up_size: float | None = None
    gpus_per_domain: float | None = None
    topology: tuple[int, ...] | None = None  # chips of each axis
    nic_bandwidth: float | None = None
    power_cap: float | None = None  # W of one accelerator
    network_share: float = defaults.NETWORK_SHARE
    oversubscription: float | None = None
    pod_size: float | None = None
    rail_optimised: bool | None = None
    in_network_reduction: str | None = None
    framework: str | None = None
    global_batch_tokens: float | None = None
    # experts
    expert_imbalance: float = defaults.EXPERT_IMBALANCE
    expert_load: Any = None  # a shape, a file, or rows of numbers; None: expert_imbalance
    expert_placement: str = defaults.EXPERT_PLACEMENT
    load_spread: float = 0.0
    routing_noise: bool | None = None  # with expert_load: on
    moe_dispatcher: str = defaults.DISPATCHER
    dispatch_precision: str = defaults.DISPATCH_PRECISION
    capacity_factor: float = 0.0  # 0: dropless
    grouped_experts: bool = True
    # precision and optimizer
    precision: str | None = None
    expert_precision: str = ""  # as precision
    fp8_scaling: str | None = None
    fp8_param_gather: bool | None = None
    bf16_layers_at_start: float = 0.0
    bf16_layers_at_end: float = 0.0
    optimizer: str = defaults.OPTIMIZER
    optimizer_rank: float | None = None  # the record's share of the smaller side
    gradient_dtype: str | None = None
    weights_dtype: str | None = None  # as the framework's record stores weights
    # pipeline
    schedule: str | None = None
    microbatch_group: float = 0.0  # 0: pp
    deferred_wgrad: float = 0.0
    fused_loss: bool = False
    logits: str | None = None  # the framework's
    optimizer_in_backward: bool = False
    delay_wgrad_compute: bool = False
    layers_per_stage: tuple[int, ...] = ()
    mtp_stage: float | None = None
    count_embedding: bool = False
    mtp_layers: float | None = None
    # towers and encoders
    images_per_sequence: float = 0.0
    image_size: float | None = None
    audio_seconds: float | None = None
    encoder_seq_len: float | None = None
    frozen_tower: bool | None = None
    # kernels
    flash_attention: bool | None = None
    attention_kernel: str = ""  # the framework's
    attention_precision: str = defaults.ATTENTION_PRECISION
    cuda_graphs: str = defaults.CUDA_GRAPH
    # context parallel
    cp_method: str = defaults.CP_METHOD
    cp_inner: float = 0.0  # 0: as many as divide the heads and share a domain
    cp_balance: bool = True
    document_length: float = 0.0  # 0: a sequence is one document
    # documents of many lengths
    lengths: str | None = None  # a file, a record or a distribution by name
    packing: str = defaults.PACKING
    balance: str = defaults.BALANCE
    cp_by_length: bool = False
    # offloading
    offload_layers: float = 0.0  # 0: all
    offload_fraction: float = defaults.OFFLOAD_FRACTION
    offload_overlap: bool = False
    space: str | None = None  # file or name of the space of plans; None: the default space
    margin: float | None = None  # of device memory; None: bands.memory_margin of the framework
    # fine-tuning
    lora_rank: float = 0.0  # 0: everything is trained
    lora_sets: float = 1.0
    lora_targets: str = defaults.LORA_TARGETS
    frozen_weights: str = ""  # as trained weights
    frozen_layers: float = 0.0
    adapter: str = defaults.ADAPTERS[0]
    objective: str = ""  # the next token
    teacher: Any = None
    precomputed_reference: bool = False
    # the run
    tokens: float | None = None
    evaluate_every: float | None = None
    evaluation_tokens: float | None = None
    checkpoint_every: float | None = None
    checkpoint_bandwidth: float | None = None
    mttf: float | None = None
    restart_time: float | None = None
    calibration_version: str | None = None
    correction: str | None = None
    price: float | str | None = None
    grid: float | str | None = None
    pue: float | None = None


SCALARS = frozenset(Asked.fields) - {"rows", "given", "readings"}


def asked_of(options: Mapping[str, Any], only: Collection[str] = ()) -> Asked:
    """Make an Asked of values that ``read_options`` has read: of all, or of the names in ``only``.

    Names that are no option of an estimate are left out.
    """
    return with_options(Asked(), {name: value for name, value in options.items() if not only or name in only})


def with_options(asked: Asked, options: Mapping[str, Any]) -> Asked:
    """A question with more options given, or other values of them; None leaves an option open.

    A list of values for a column option gives as many rows.
    """
    columns = {name: flat(value) if is_column(value) else [value] for name, value in options.items() if name in Row._fields}
    rows = max((len(asked.rows), *(len(column) for column in columns.values())))
    for name, column in columns.items():
        if len(column) not in (1, rows):
            raise QuestionError(f"{name} has {len(column)} values, other columns {rows}: columns must have one length")
    given = {**asked.given, **{name: _summary(value) for name, value in options.items() if name in SCALARS or name in columns}}
    return asked.replace(
        rows=tuple(
            asked.rows[i if len(asked.rows) > 1 else 0]._replace(**{name: c[i if len(c) > 1 else 0] for name, c in columns.items()})
            for i in range(rows)
        ),
        given={name: value for name, value in given.items() if value is not None},
        readings=tuple(dict.fromkeys([*asked.readings, *readings_of(options)])),
        **{name: value for name, value in options.items() if name in SCALARS},
    )


def _summary(value: Any) -> Any:
    return f"{len(value)} values" if is_column(value) else printed(value)


# --- checks that need no record

MEANING = {"model": "argument MODEL", "on": "option --on ACCELERATOR", "gpus": "option --gpus N"}


def require(asked: Asked, *names: str) -> None:
    """Refuse a question that lacks one of ``names``."""
    for name in names:
        if name not in asked.given:
            raise QuestionError(f"missing {MEANING[name]}")


def check(asked: Asked) -> None:
    """Refuse options that contradict each other."""
    given = asked.given
    ends = [name for name in ("first_stage_layers", "last_stage_layers") if name in given]
    if ends and (asked.layers_per_stage or asked.count_embedding):
        other = "layers-per-stage" if asked.layers_per_stage else "count-embedding"
        raise QuestionError(f"--{ends[0].replace('_', '-')} and --{other} both place layers: give one of them")
    if asked.mtp_stage is not None and not asked.mtp_stage < len(asked.layers_per_stage):
        raise QuestionError("--mtp-stage needs --layers-per-stage and must be one of its stages, counted from 0")
    if asked.global_batch_tokens is not None and "global_batch_size" in given:
        raise QuestionError("give --global-batch-size (sequences) or --global-batch-tokens, not both")
    if asked.lengths is not None and "document_length" in given:
        raise QuestionError("give --lengths (the distribution) or --document-length (one length), not both")
    if asked.cp_by_length and asked.packing not in defaults.WHOLE_PACKINGS:
        raise QuestionError(
            f"--cp-by-length packs whole documents, --packing {asked.packing} does not: use {' or '.join(defaults.WHOLE_PACKINGS)}"
        )
    for row in asked.rows:
        if asked.layers_per_stage and row.pp not in (None, float(len(asked.layers_per_stage))):
            stages = len(asked.layers_per_stage)
            raise QuestionError(f"--layers-per-stage lists {stages} stages, --pp asks for {printed(row.pp)} stages")
