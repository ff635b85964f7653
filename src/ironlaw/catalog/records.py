"""The kinds of record in the catalogue. A class here is the schema of its TOML files: field names are the keys.

``quantity(unit)`` declares a sourced number, ``quantities(unit)`` a table of them by name, everything else is plain.
Bandwidth is one direction, per accelerator (or per NIC for a fabric). Peaks are dense.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeVar

from ironlaw.catalog.abilities import ANYTHING, Can, Choice
from ironlaw.catalog.model import Model, Record
from ironlaw.catalog.optimizer import Optimizer
from ironlaw.catalog.schema import Schema, list_of, optional_record, plain_table, quantities, quantity, record_of, signed, table_of, word
from ironlaw.catalog.sourced import Source, Sourced

T = TypeVar("T")


class Accelerator(Record):
    """One device as a framework counts it: a GPU, an MI250X GCD, one Blackwell GPU of a GB200, a TPU chip."""

    vendor: str
    architecture: str
    usual_node: str
    calibration: str
    kernels_of: str = ""  # architecture whose kernels and workspaces count where a framework names none for its own; "": none
    flash_attention: bool = True
    flash_3: bool = False  # FlashAttention-3 has kernels for it
    dispatchers: tuple[str, ...] = ()  # of tokens to experts, that run on it beside the plain all-to-all
    fp8_one_layout: bool = False  # fp8 products read an operand in either orientation; else along the sum alone, so both are stored
    stochastic_rounding: bool = True  # casts to 4 bits can round at random, where the device has such formats
    fixed_clock: bool = False  # the peak is at a clock that is sustained under load; a GPU's is at its boost clock
    memory_capacity: Sourced = quantity("B")
    memory_usable: Sourced | None = quantity("B", required=False)
    hbm_bandwidth: Sourced = quantity("B/s")
    peak: dict[str, Sourced] = quantities("FLOP/s")
    tdp: Sourced = quantity("W")
    full_power: Sourced | None = quantity("W", required=False)  # of the same part without its power limit; absent: tdp
    least_power: Sourced | None = quantity("W", required=False)  # lowest limit that the driver accepts; absent: not known
    scale_up_bandwidth: Sourced | None = quantity("B/s", required=False)
    pcie_bandwidth: Sourced | None = quantity("B/s", required=False)
    c2c_bandwidth: Sourced | None = quantity("B/s", required=False)  # coherent link to host memory, faster than PCIe
    sm_count: Sourced | None = quantity("1", required=False)
    shared_memory_capacity: Sourced | None = quantity("B", required=False)  # of all multiprocessors
    shared_memory_bandwidth: Sourced | None = quantity("B/s", required=False)
    l2_capacity: Sourced | None = quantity("B", required=False)
    l2_bandwidth: Sourced | None = quantity("B/s", required=False)
    memory_bus_width: Sourced | None = quantity("1", required=False)
    memory_data_rate: Sourced | None = quantity("B/s", required=False)
    peak_sparse: dict[str, Sourced] = quantities("FLOP/s")

    @property
    def usable_memory(self) -> float:
        """Bytes that a job may use."""
        return float((self.memory_usable or self.memory_capacity).value)

    def row_of(self, table: Mapping[str, T], otherwise: T) -> T:
        """The row of a framework's table by architecture: that of the accelerator's own, else of the one whose kernels it runs."""
        return table.get(self.architecture, table.get(self.kernels_of, otherwise))


BIT = 0.125  # bytes: the least that an element takes
WIDEST = 10.0  # of an error band, in log
SLICE = re.compile(r"[1-9]\d{0,5}(x[1-9]\d{0,5})*", re.ASCII)  # chips of each axis


class Node(Record):
    """A server: its accelerators, the size of their scale-up domain, its NICs and the power of the rest."""

    like: str = ""  # the node whose record has what this one does not say
    usual_fabric: str
    scale_up: str  # links of a domain: nvswitch | pcie | xgmi | xgmi-ring | roce-mesh | ici-torus | nvlink-mesh | ...
    accelerators: Sourced = quantity("1", least=1.0)
    scale_up_size: Sourced = quantity("1", least=1.0)
    scale_up_bandwidth: Sourced = quantity("B/s")
    nics: Sourced = quantity("1")
    host_power: Sourced = quantity("W")
    collective_calibration: str = ""
    nvls: bool = False  # the switches of a domain add (NVLink SHARP)
    bridge_bandwidth: Sourced | None = quantity("B/s", required=False)  # of a link that joins the accelerators by pairs: 0 and 1, 2 and 3
    torus_axes: Sourced | None = quantity("1", required=False, least=1.0, most=8.0)  # dimensions of a torus
    slices: tuple[str, ...] = ()  # of a torus, which a job can have: chips of each axis, such as 2x4
    slice_cube: Sourced | None = quantity("1", required=False, least=1.0)  # chips of the cube that larger slices are whole numbers of
    wraps_from: Sourced | None = quantity(
        "1", required=False
    )  # of a torus without cubes: chips of an axis whose ends are joined, and multiples
    last_axis_share: Sourced | None = quantity("1", required=False)  # part of a chip's links on the last axis, where axes differ
    nic_bandwidth: Sourced | None = quantity("B/s", required=False)  # per accelerator, where it differs from the fabric's
    host_time_ratio: Sourced | None = quantity("1", required=False)  # time to launch an operator, over that in the framework's record
    host_memory_bandwidth: Sourced | None = quantity("B/s", required=False)  # of the server: channels times their rate
    host_memory_capacity: Sourced | None = quantity("B", required=False)  # of the server
    nvme_bandwidth: Sourced | None = quantity("B/s", required=False)  # of all drives of the server, one direction
    accelerators_per_host_link: Sourced | None = quantity("1", required=False, least=1.0)  # that share one link to the host; absent: one


class Instance(Schema):
    """One instance type that a cloud rents: its accelerators, its network, and the node record that describes it."""

    name: str
    accelerator: str
    gpus: Sourced = quantity("1")
    node: str = ""
    network: Sourced | None = quantity("B/s", required=False)  # for the accelerators, of the whole instance, one direction
    missing: str = ""  # why there is no node record


class Cloud(Record):
    """The instance types of one cloud that people train on."""

    provider: str  # as price lists name it
    also: tuple[str, ...] = ()  # other names of it in price lists
    instance: tuple[Instance, ...] = list_of(Instance)


class Fabric(Record):
    """The network between nodes: line rate of one NIC, one direction, and latency; its switches, where it is a fat tree."""

    kind: str  # infiniband | roce | efa | ethernet
    nic_bandwidth: Sourced = quantity("B/s")
    latency: Sourced = quantity("s")
    calibration: str = "fabric"
    switch_radix: Sourced | None = quantity(
        "1", required=False, least=1.0
    )  # ports of a switch at the NIC's rate; absent: no fat tree, or not known
    switch_power: Sourced | None = quantity("W", required=False)  # of one switch at most, with its transceivers
    oversubscription: Sourced | None = quantity("1", required=False)  # rate of a pod's NICs over that of the links that leave it
    pod_size: Sourced | None = quantity("1", required=False, least=1.0)  # accelerators of a pod, where the fabric is one that was built
    nics_per_node: Sourced | None = quantity("1", required=False)  # of a node that usually has another fabric; absent: the node's NICs
    sharp: Sourced | None = quantity("1", required=False)  # version of SHARP, by which its switches add; absent: they do not
    rail_optimised: bool = False  # NICs of one position in all nodes share leaf switches


class Price(Schema):
    """One dated price of one accelerator-hour."""

    provider: str
    region: str
    term: str  # on-demand | reserved-1y | reserved-3y | spot
    date: str
    currency: str
    per_hour: Sourced = quantity("USD/s")
    note: str = ""


class PriceList(Record):
    """The prices of one accelerator, oldest first; appended to, never edited."""

    price: tuple[Price, ...] = list_of(Price)


class Grid(Record):
    """A power grid: carbon emitted per energy delivered, in a named year, and by hour where that is known."""

    year: int
    intensity: Sourced = quantity("kg/J")
    hourly: dict[str, Sourced] = quantities("kg/J")  # of every hour of the day in UTC, "0" to "23"


class Site(Record):
    """A data centre, or a city with data centres: its place, its power grid, its price of electricity, and its power."""

    latitude: float = signed()  # degrees north
    longitude: float = signed()  # degrees east
    grid: str
    power: Sourced | None = quantity("W", required=False)  # for machines and cooling; absent: unknown
    electricity_price: Sourced | None = quantity("USD/J", required=False)  # of large consumers there; absent: unknown


class Fibre(Record):
    """A kind of fibre between sites: speed of light in it, length over the distance, and what of its rate carries data."""

    index: Sourced = quantity("1")  # group index: speed of light in vacuum over that in the fibre
    route_factor: Sourced = quantity("1")  # length of the fibre over the distance on the ground
    efficiency: Sourced = quantity("1")  # share of the line rate that data takes


class MeasuredPower(Schema):
    """Power of whole nodes over one run, per accelerator."""

    run: str
    gpus: Sourced = quantity("1")
    accelerator_time: Sourced = quantity("s")
    power: Sourced = quantity("W")


class Power(Record):
    """Measured power of whole nodes, per accelerator: while computing, while waiting, and the runs behind both."""

    busy: Sourced = quantity("W")
    waiting: Sourced = quantity("W")
    row: tuple[MeasuredPower, ...] = list_of(MeasuredPower)


class Ownership(Record):
    """Costs of owned machines besides their price."""

    life: Sourced = quantity("s")
    electricity_price: Sourced = quantity("USD/J")
    hosting_price: Sourced = quantity("USD/J")
    household_energy: Sourced = quantity("J")  # in a month


class Lengths(Record):
    """How long the documents of a training set are, in tokens: a named distribution, counts by length, or buckets with counts."""

    spec: str = ""  # a distribution by name, such as lognormal:mean=1024,sigma=1.5
    counts: tuple[str, ...] = ()  # "first: documents of that length, of the next length, ..."
    buckets: dict[str, Sourced] = quantities("1")  # "low..high" -> documents
    documents: Sourced | None = quantity("1", required=False)
    mean: Sourced | None = quantity("token", required=False)  # as published, to check the rest against


class FailureLog(Record):
    """Published failures of a run or cluster: counts over a time, and figures to check predictions against."""

    gpus: Sourced = quantity("1")
    time: Sourced | None = quantity("s", required=False)
    failures: Sourced | None = quantity("1", required=False)  # unplanned stops of a job
    causes: dict[str, Sourced] = quantities("1")  # by component, not all
    job_mttf: Sourced | None = quantity("s", required=False)  # measured on jobs of this size
    node_mttf: Sourced | None = quantity("s", required=False)  # computed from the failure rate of single nodes
    goodput: Sourced | None = quantity("1", required=False)
    parameters: Sourced | None = quantity("parameter", required=False)
    checkpoint_size: Sourced | None = quantity("B", required=False)
    checkpoint_time: Sourced | None = quantity("s", required=False)
    checkpoint_interval: Sourced | None = quantity("s", required=False)
    checkpoint_share: Sourced | None = quantity("1", required=False)  # share of the run spent on checkpoints


class Product(Schema):
    """One of the three matrix products of a linear layer: output, data gradient (of the input) or weight gradient."""

    operands: str  # formats of the two operands
    peak: str  # the accelerator's peak that is its roof
    gemm: str  # the calibration's constants for it
    narrow: bool = False  # its operands are cast from the wide precision
    source: Source


class Operand(Schema):
    """A narrow tensor: elements of ``bits``, and a scale of ``scale_bits`` for each block of ``rows`` by ``columns`` elements."""

    element: str  # E4M3 | E5M2 | E2M1
    bits: int
    scale: str = ""
    scale_bits: int = 0
    rows: int = 1
    columns: int = 0  # 0: the scale is one of a row or of the tensor, and takes no room beside the elements
    stored_rows: int = 0  # rows of a block for which a scale is stored, where fewer than the block has; 0: as rows
    source: Source


class Recipe(Record):
    """A precision as a recipe: the formats of a linear layer's products, what is cast and kept for them, and what stays wide.

    ``rotated`` names operands that a random Hadamard transform is applied to before the cast, as "input of weight_gradient";
    ``rotated_back`` names the gradients that are transformed back after their product.
    """

    like: str = ""  # the recipe whose record has what this one does not say
    known_as: str = ""  # the name under which frameworks' records have facts about it; "": its own
    wide: str = ""  # the precision of all that is not narrow; "": this one
    exactness: str  # what is known of the loss against wider training
    stays_wide: tuple[str, ...] = ()  # parts of a model that are never narrow
    wide_parts: tuple[str, ...] = ()  # parts that could be narrow and are not: shared experts | further-token layers
    master_weights: bool
    parameter_bytes: Sourced = quantity("B")  # a weight as it is stored outside its cast copies
    activation_bytes: Sourced = quantity("B", least=BIT)  # an activation outside narrow operands, a gradient between layers
    forward: Product = record_of(Product)
    data_gradient: Product | None = optional_record(Product)  # absent: as forward
    weight_gradient: Product | None = optional_record(Product)  # absent: as forward
    input: Operand | None = optional_record(Operand)
    weight: Operand | None = optional_record(Operand)
    gradient: Operand | None = optional_record(Operand)
    one_scale: bool = False  # a tensor has one scale, so that both orientations hold the same numbers
    scaling: str = word("", "current", "delayed", default="")  # of recipes with one scale; "": the framework's
    scale_reads: Sourced | None = quantity("1", required=False)  # reads of a tensor to find its scales before the cast; absent: 0
    wide_at_start: Sourced | None = quantity("1", required=False)  # share of the layers kept wide at the start; absent: 0
    wide_at_end: Sourced | None = quantity("1", required=False)  # the same at the end
    hadamard: Sourced | None = quantity("1", required=False)  # elements of a random Hadamard transform; absent: no transforms
    hadamard_reads: Sourced | None = quantity("1", required=False)  # further reads of a tensor that is cast transformed and otherwise
    rotated: tuple[str, ...] = ()
    rotated_back: tuple[str, ...] = ()
    mask_bits: Sourced | None = quantity("1", required=False)  # kept beside each element of a saved input, in bits; absent: 0
    stochastic: tuple[str, ...] = ()  # tensors that are rounded at random
    random_bits: Sourced | None = quantity("1", required=False)  # random bits made for an element that is rounded so; absent: 0
    rounded_weights: bool = False  # products are wide, of weights rounded to the narrow format


class PublishedLoad(Record):
    """How uneven the experts of a layer were in a published run, by the way its router is balanced."""

    experts: Sourced = quantity("1")  # of a layer of the published model
    visited: Sourced = quantity("1")  # by a token
    busiest: Sourced = quantity("1")  # load of the busiest expert over the mean
    deviation: Sourced | None = quantity("1", required=False)  # of the loads over their mean


class Layout(Schema):
    """How a stack split a model over accelerators in published runs; ``source`` is that of its plain numbers."""

    name: str
    title: str
    kind: str  # of model: dense | mixture
    parameters: Sourced = quantity("parameter")  # of the model that ran
    on: str  # the accelerator
    gpus: tuple[int, ...]  # that runs had
    seq_len: int
    precisions: tuple[str, ...]  # that runs had
    framework: str
    tp: int = 1
    pp: int = 1
    vpp: int = 1
    cp: int = 1
    ep: int = 1
    etp: int = 1
    zero: int = 0
    micro_batch_size: int
    recompute: str = ""  # "": not published, so the best is taken
    overlap: tuple[str, ...] = ()  # that its fastest run turned on beside what the stack overlaps by default
    count_embedding: bool = False
    runs: tuple[str, ...] = ()  # rows of the table of published runs that ran it
    source: Source


class LayoutList(Record):
    """The published layouts on the accelerators of one architecture."""

    layout: tuple[Layout, ...] = list_of(Layout)


class Framework(Record):
    """A training stack's defaults: the kernels it launches, the types it stores, the communication it overlaps."""

    like: str = ""  # the framework whose record has what this one does not say
    engine: str = ""  # what splits the work, by which evidence counts: megatron (its mesh and pipelines), fsdp (shards whole layers), xla
    attention_kernel: str = word("flash", "unfused")  # the default where the device has both
    flash_generation: dict[str, str] = plain_table()  # architecture -> kernel generation
    default_zero: int = 1
    selective_recompute: tuple[str, ...] = ("attention",)
    legacy: bool = False  # from before 2023: slower hosts, more Python between kernels
    generation_cache: bool = False  # a forward pass may keep keys and values of all layers, as generation needs them
    compiled_recompute: bool = False  # the compiler removes the last product of a recomputed block, which backward does not need
    gather_unit: str = word("layer", "matrix", default="layer")  # of ZeRO 3: a wrapped module, or each operand, by the compiler
    overlap: tuple[str, ...] = ("grad-reduce", "param-gather", "pp")
    weights_dtypes: tuple[str, ...] = ()  # types in which it can load and update weights: fp32, bf16; empty: as the record says alone
    can: Can | None = optional_record(Can)  # what it can run; absent: not known, so anything
    fused_projections: bool = True  # q, k and v are one matrix, gate and up another; an adapter covers the whole matrix
    fused_host_optimizer: bool = False  # the update in the host is one kernel; else the operations of the device's, one after the other
    offload_gradients_early: bool = False  # gradients are copied to the host during the last backward pass, not after it
    parameter_bytes: Sourced | None = quantity("B", required=False)  # stored weights; absent: as the precision says
    frozen_bytes: Sourced | None = quantity("B", required=False)  # stored weights beside adapters; absent: as the precision says
    adapter_bytes: Sourced | None = quantity("B", required=False)  # stored weights of adapters; absent: as the precision says
    gradient_bytes: Sourced = quantity("B")
    gradient_reduce_bytes: Sourced = quantity("B")
    operators_per_layer: Sourced = quantity("1")
    operators_per_routed_layer: Sourced = quantity("1")  # router, permutation, dispatch, in addition
    operators_per_expert: Sourced = quantity("1")  # per local expert, where experts are not one grouped kernel
    expert_launches: dict[str, Sourced] = quantities(
        "1"
    )  # narrow precision -> launches of an expert's product, mean over passes; absent: 3
    expert_bias_bytes: Sourced | None = quantity("B", required=False)  # of an expert's output, forward; absent: its product adds the bias
    expert_bias_bytes_backward: Sourced | None = quantity("B", required=False)  # the same for its gradient
    expert_bias_operators: Sourced | None = quantity("1", required=False)  # launches per local expert, forward
    host_time_per_operator: Sourced = quantity("s")
    norm_bytes: Sourced = quantity("B")  # HBM bytes per element of the normalised tensor, forward
    residual_bytes: Sourced = quantity("B")  # per element of the residual addition
    rotary_bytes: Sourced = quantity("B")  # per element of queries and keys
    activation_bytes: Sourced = quantity("B")  # per element of the MLP's wide tensors
    score_bytes: Sourced = quantity("B")  # per attention score, mask and softmax of unfused attention, forward
    dropout_bytes: Sourced | None = quantity("B", required=False)  # per element, forward, inside the addition; absent: a separate kernel
    attention_copies: dict[str, Sourced] = quantities("B")  # per element of flash attention's inputs and output, and backward
    fused_bias_gradients: bool = False  # the GEMM of a weight gradient also sums the bias gradient
    backward_traffic_ratio: Sourced = quantity("1")  # bytes of a norm's backward over its forward
    output_formats: dict[str, str] = plain_table()  # format of the output layer's products: output | again (in backward) | gradients
    loss_bytes: Sourced = quantity("B")  # HBM bytes per logit, forward and backward
    logit_memory: Sourced = quantity("B")  # bytes in memory per logit at the peak
    chunked_output: bool = False  # output layer and loss are one function of chunks of tokens: backward computes the logits again
    fused_loss_memory: Sourced | None = quantity("B", required=False)  # the same where the loss is compiled and cannot run in place
    chunked_logits: bool = False  # by default the output layer and the loss run on a chunk of the logits at a time
    chunk_memory: Sourced | None = quantity("B", required=False)  # bytes in memory per logit of a chunk; absent: it has no chunked loss
    whole_memory: Sourced | None = quantity("B", required=False)  # of all logits, beside a chunk; absent: none
    chunk_tokens: Sourced | None = quantity("token", required=False)  # tokens of a chunk; absent: all
    chunk_parts: Sourced | None = quantity("1", required=False)  # equal parts that tokens are split into; absent: chunk_tokens
    chunk_vocabulary: Sourced | None = quantity("1", required=False)  # of the vocabulary in a chunk; absent: all
    chunk_as_hidden: bool = False  # a chunk has as many tokens as make its logits no more than the hidden state of all tokens
    head_gradient_bytes: Sourced | None = quantity("B", required=False)  # whole gradient of a chunked output layer; absent: none
    head_gradient_frozen: bool = False  # it is made also where the output layer is frozen
    counts_examples: bool = False  # its batches count examples of the objective: pairs with DPO
    fine_tuning_batch: Sourced | None = quantity("1", required=False)  # sequences a step for each accelerator; absent: it pre-trains too
    lora_targets: str = ""  # layers that have an adapter by default; absent: the attention's
    # kept for each element of the input of an adapter, by each adapter apart: its cast or dropped copy, a mask; absent: one shared input
    adapter_input_bytes: Sourced | None = quantity("B", required=False)
    nf4_bytes: Sourced | None = quantity("B", required=False)  # a weight in nf4 with its scales; absent: scales quantised again
    packs_after_loading: bool = False  # all frozen weights are on the device in 16 bits before four bits are made of them; else one by one
    packed_inputs: bool = False  # a product with four-bit weights keeps its input, though its weight is frozen
    packed_output: bool = False  # four-bit weights beside adapters include the output layer's
    unpacked_copies: Sourced | None = quantity("1", required=False)  # of a weight, in 16 bits, while its product runs; absent: 1
    # of a hidden state between layers with weights packed by bitsandbytes, where no FSDP casts it; absent: as the precision says
    packed_hidden_bytes: Sourced | None = quantity("B", required=False)
    repeated_keys: bool = False  # keys and values are repeated, one for each query head, before attention, and kept so
    norm_copies: Sourced | None = quantity("B", required=False)  # kept for each element of a norm's input beside it; absent: none
    flat_weights: bool = False  # with ZeRO 1 all weights are copied into one buffer beside them when the optimizer is made
    autocast: bool = False  # products cast fp32 weights and fp32 inputs to 16 bits, unless FSDP holds the weights in 16 bits
    lazy_gradients: bool = False  # the backward pass allocates gradients, the update frees them; else they stay between steps
    whole_gradients: bool = False  # gradients of several micro-batches are summed before they are reduced: whole on every rank
    # beside a pipeline ZeRO 3 keeps the weights that it gathered until the step ends, and gradients are summed whole as they are reduced
    whole_with_pp: bool = False
    frozen_hooks: bool = False  # ZeRO 3 keeps the gradient of each layer's input until the backward pass ends where weights are frozen
    optimizer_copies: Sourced | None = quantity("1", required=False)  # copies of one moment of all weights that the update makes
    saved_activation_tensors: Sourced = quantity("1")  # wide MLP tensors stored for backward, besides gate and up
    saved_expert_rows: Sourced | None = quantity("1", required=False)  # stored copies of the rows sent to gated experts; absent: 2
    expert_row_gradients: Sourced | None = quantity("1", required=False)  # copies of these rows that backward holds at once; absent: 1
    row_copies: Sourced | None = quantity("1", required=False)  # HBM passes of a routed row outside its expert; absent: by dispatcher
    row_copies_backward: Sourced | None = quantity("1", required=False)  # the same for its gradient; absent: as forward
    padding_copies: Sourced | None = quantity("1", required=False)  # further passes in narrow formats, to pad experts to whole blocks
    routing_bytes: Sourced | None = quantity("B", required=False)  # HBM bytes per token and expert, forward; absent: one fused kernel
    routing_bytes_backward: Sourced | None = quantity("B", required=False)  # absent: as forward
    expert_tile: Sourced | None = quantity("1", required=False)  # rows of a tile of a grouped GEMM; absent: 128
    straddling_tiles: bool = False  # a tile may have rows of two experts and is computed for both; else each expert starts a tile
    expert_streams: Sourced | None = quantity("1", required=False)  # streams on which single experts run; absent: one grouped kernel
    fused_wgrad: bool = False  # the GEMM of a weight gradient adds to the stored gradient
    async_tensor: bool = False  # the all-reduce of an input gradient over tp overlaps the weight gradient
    narrow_inputs: Sourced | None = quantity("1", required=False)  # 1: a linear layer stores its cast input; absent: the wide one
    narrow_weights: Sourced | None = quantity("1", required=False)  # 1: weights are cast once a step and stored; absent: cast at every use
    narrow_sequence: Sourced | None = quantity("1", required=False)  # 1: sequence parallelism gathers the cast tensor
    fused_norms: Sourced | None = quantity("1", required=False)  # 1: with delayed scaling a norm writes the next GEMM's cast input
    fused_scales: Sourced | None = quantity(
        "1", required=False
    )  # 1: the kernel that writes a tensor also finds its scale; absent: a separate pass
    casts_once: Sourced | None = quantity("1", required=False)  # 1: a tensor is cast once for all its GEMMs
    narrow_with_one_scale: bool = False  # the fields on narrow tensors apply only where a tensor has one scale
    one_layout: bool = False  # it stores one orientation of a tensor with one scale, where the device's products read either
    fp8_scaling: str = "current"  # default scaling of the precision fp8: current | delayed
    param_gather: dict[str, Sourced] = quantities("B")  # precision -> bytes gathered per weight with fp8_param_gather
    default_param_gather: tuple[str, ...] = ()  # of the precisions in param_gather, those with fp8_param_gather on by default
    usual_optimizer: str = ""  # of a question that names the framework and no optimizer; "": the default of all
    optimizer_passes: Sourced = quantity("1")  # traffic over that of a fused optimizer
    allocator_slack: Sourced = quantity("1")
    workspace: Sourced = quantity("B")
    workspaces: dict[str, Sourced] = quantities("B")  # architecture -> workspace, where libraries need more or less
    grouped_workspaces: dict[str, Sourced] = quantities("B")  # architecture -> in addition, with grouped GEMMs of experts
    context: Sourced = quantity("B")
    communicator: Sourced = quantity("B")

    # what a published run with the stack has where its source does not say
    experts_follow_tp: bool = False  # experts are split as the other layers: etp is tp
    experts_on_shards: bool = False  # experts are sharded with the weights, over no ranks of their own: ep is 1, etp is tp
    micro_batch_per_device: bool = False  # the micro-batch counts the sequences of a device, not of the devices that share them by tp
    delays_wgrad: bool = False  # weight gradients are delayed where the exchange of experts overlaps
    adapters_sharding: str = ""  # of a run with adapters; "": open
    own_shapes: bool = False  # its publisher measured models of other shapes than it released under their names
    same_on: dict[str, str] = plain_table()  # vendor -> the record of the same stack on its accelerators

    @property
    def able(self) -> Can:
        """What it can run: its table, or anything where it has none."""
        return self.can or ANYTHING


class GemmConstants(Schema):
    """Constants of ``max(FLOP/(efficiency peak) + fill, bytes/(bandwidth_fraction HBM)) + launch``, and the error of their fit."""

    efficiency: Sourced = quantity("1")
    bandwidth_fraction: Sourced = quantity("1")
    fill: Sourced | None = quantity("s", required=False)  # absent: none
    launch: Sourced = quantity("s")
    rows_bandwidth_fraction: Sourced | None = quantity("1", required=False)  # of HBM, for copies of rows around grouped GEMMs
    rows: Sourced | None = quantity("1", required=False)
    held_out_error: Sourced | None = quantity("1", required=False)
    dense_error: Sourced | None = quantity("1", required=False)  # of grouped GEMMs predicted with the dense constants
    runtime_difference: Sourced | None = quantity("1", required=False)  # of another runtime on the same shapes: the noise


class AttentionConstants(Schema):
    """Constants of flash attention: efficiency ``e s / (s + saturation_length) R / (R + saturation_rows)``, R the query rows of the
    kernel, and the time of backward over forward."""

    forward_efficiency: Sourced = quantity("1")
    saturation_length: Sourced = quantity("1")
    saturation_rows: Sourced | None = quantity("1", required=False)  # absent: any number of rows fills the device
    backward_time_ratio: Sourced = quantity("1")
    launch: Sourced = quantity("s")
    rows: Sourced | None = quantity("1", required=False)
    held_out_error: Sourced | None = quantity("1", required=False)


class ElementwiseConstants(Schema):
    """Constants of memory-bound kernels: the fraction of HBM bandwidth they reach, and launch time."""

    bandwidth_fraction: Sourced = quantity("1")
    launch: Sourced = quantity("s")


class GroupConstants(Schema):
    """Constants of a collective for one number of ranks."""

    bandwidth_fraction: Sourced = quantity("1")
    half_size: Sourced = quantity("B")
    latency: Sourced = quantity("s")


class CollectiveConstants(Schema):
    """Constants of ``latency + S f / (b sqrt(S)/(sqrt(S)+sqrt(half_size)))``; ``b`` is bandwidth_fraction times the line rate.

    They apply to groups of at least ``ranks`` ranks; ``smaller`` has those of smaller groups, by number of ranks. A single set
    applies to all groups.
    """

    bandwidth_fraction: Sourced = quantity("1")
    half_size: Sourced = quantity("B")
    latency: Sourced = quantity("s")
    ranks: Sourced | None = quantity("1", required=False)
    smaller: dict[str, GroupConstants] = table_of(GroupConstants)
    rows: Sourced | None = quantity("1", required=False)
    held_out_error: Sourced | None = quantity("1", required=False)


OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "point_to_point")  # which every calibration has constants for


class Calibration(Record):
    """Constants of the kernel and collective laws, fitted to measured operators of one device or fabric.

    ``gemm`` by precision: efficiency (of dense peak), bandwidth_fraction (of HBM), fill and launch [s].
    ``experts`` by precision: the same for grouped GEMMs of experts; absent: those of ``gemm``.
    ``attention`` by kernel generation (flash-2, flash-3), and mla for latent attention, where flash's constants do not fit:
    forward_efficiency, saturation_length [tokens], saturation_rows, backward_time_ratio, launch.
    ``collective`` by operation and number of ranks: bandwidth_fraction (of the tier's line rate), half_size [B], latency [s].
    """

    version: str
    like: str = ""  # the record that has what this one does not say: constants carried to a device without measurements
    grade: str  # measured | prior
    device: str = ""  # the accelerator of the measurements; empty for a fabric
    software: str
    gemm: dict[str, GemmConstants] = table_of(GemmConstants)
    experts: dict[str, GemmConstants] = table_of(GemmConstants)
    attention: dict[str, AttentionConstants] = table_of(AttentionConstants)
    elementwise: ElementwiseConstants | None = optional_record(ElementwiseConstants)
    collective: dict[str, CollectiveConstants] = table_of(CollectiveConstants)


class Systems(Record):
    """Global constants: effects between operators, and defaults of a site.

    Those in ``validate/data/constants.toml`` are fitted on published runs; the others are cited.
    """

    compute_sustained: Sourced = quantity("1")  # rate of a matrix kernel inside a step, over its benchmark
    bandwidth_sustained: Sourced = quantity("1")  # the same for memory-bound kernels
    attention_backward: Sourced = quantity("1")  # time of attention backward, over its record
    older_flash: Sourced = quantity("1")  # rate of flash attention 2 where the architecture has a newer kernel, over its record
    first_flash: Sourced = quantity("1")  # rate of flash attention 1 over 2
    fp8_flash: Sourced | None = quantity("1", required=False)  # share of the fp8 peak that flash attention reaches, over its share in bf16
    scale_up_sustained: Sourced = quantity("1")  # rate of a collective in a domain inside a step, over its benchmark
    fabric_sustained: Sourced = quantity("1")  # the same on the fabric
    tp_exposed: Sourced = quantity("1")  # share of overlapped tensor-parallel communication that is not hidden
    overlap_slowdown: Sourced = quantity("1")
    gradient_window: Sourced = quantity("1")
    legacy_host_time: Sourced = quantity("1")  # time of a launch in a stack from before 2023, over its record
    operators_per_collective: Sourced | None = quantity("1", required=False)  # host time to start a collective, in operators; absent: none
    step_overhead: Sourced = quantity("s")  # per step, outside all operators
    scale_loss: Sourced = quantity("1")  # share of the step lost with each doubling of domains
    host_memory_bandwidth: Sourced = quantity("B/s")  # of a server whose record has none
    nvme_bandwidth: Sourced = quantity("B/s")  # of a server whose record has none
    host_bandwidth_fraction: Sourced = quantity("1")  # share of host memory bandwidth that a host optimizer reaches
    idle_power_fraction: Sourced = quantity("1")
    voltage_floor: Sourced | None = quantity("1", required=False)  # clock over that at full power below which the voltage stays; absent: 0
    least_power_fraction: Sourced | None = quantity("1", required=False)  # lowest power limit over full power where a record has none
    pue: Sourced = quantity("1")
    accelerator_mttf: Sourced = quantity("s", least=1.0)  # accelerator time per failure that stops a job, with host and network failures
    restart_time: Sourced = quantity("s")  # from a failure to training again, without the time of repeated steps
    checkpoint_bandwidth: Sourced = quantity("B/s", least=1.0)  # per accelerator, while all write


class Objective(Record):
    """What a step trains towards: the sequences of one example, the passes that train nothing, and the models that they need."""

    sequences: int = 1  # of one example, which a micro-batch holds together: 2 for a chosen and a rejected answer
    reference: str = word("", "policy", "teacher", default="")  # whose outputs the loss reads, too: of a frozen copy, of another model
    reference_passes: int = 0  # forward passes of that model over a batch
    extra_passes: int = 0  # forward passes of the trained model without gradient
    scores: bool = False  # the output layer predicts one number of a token, not its logits
    fine_tunes: bool = False  # it trains answers from trained weights: its default batch is that of a fine-tuning
    reference_logits: Sourced | None = quantity("B", required=False)  # for each logit of the other model that is alive beside the loss

    @property
    def is_plain(self) -> bool:
        """True where a step is that of the next token: one sequence an example, no other model, no further pass."""
        return self.sequences == 1 and not (self.reference or self.extra_passes or self.scores)


class Bands(Record):
    """Error bands at one coverage: the parts of a half-width in log, and the law by which own runs correct others."""

    coverage: Sourced = quantity("1", most=0.999)
    width: dict[str, Sourced] = quantities(
        "1", most=WIDEST
    )  # part of a step's half-width -> what it is for a multiple of 1; see estimate.answer.bands
    level: dict[str, Sourced] = quantities(
        "1", most=WIDEST
    )  # share, reach: correlation of errors of one publisher's runs; see estimate.evidence.correction
    memory: dict[str, Sourced] = quantities("1", most=WIDEST)  # half-widths by framework, by "framework on accelerator", and "any"
    memory_centre: dict[str, Sourced] = quantities(
        "1", least=-WIDEST, most=WIDEST
    )  # median of log(measured / predicted), by the same names
    difference: dict[str, Sourced] = quantities("1", most=WIDEST)  # half-widths of log(ratio of two plans of one job, predicted / measured)
    told_apart: Sourced = quantity("1")  # least predicted difference of two plans of one job whose order is trusted
    gain_slope: Sourced | None = quantity("1", required=False)  # measured over predicted log ratio of two plans of one job; absent: 1


KINDS: dict[str, type] = {
    "accelerators": Accelerator,
    "nodes": Node,
    "fabrics": Fabric,
    "models": Model,
    "prices": PriceList,
    "clouds": Cloud,
    "grids": Grid,
    "sites": Site,
    "fibres": Fibre,
    "power": Power,
    "ownership": Ownership,
    "failures": FailureLog,
    "lengths": Lengths,
    "expert-loads": PublishedLoad,
    "layouts": LayoutList,
    "frameworks": Framework,
    "choices": Choice,
    "precisions": Recipe,
    "optimizers": Optimizer,
    "calibration": Calibration,
    "systems": Systems,
    "objectives": Objective,
    "bands": Bands,
}
