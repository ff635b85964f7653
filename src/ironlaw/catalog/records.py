"""The kinds of thing the catalogue holds. A class here is the schema of its TOML files: field names are the keys.

``quantity(unit)`` declares a sourced number, ``quantities(unit)`` a table of them by name, everything else is plain.
Bandwidth is one direction, per accelerator (or per NIC for a fabric). Peaks are dense.
"""

from __future__ import annotations

from ironlaw.catalog.model import Model, Record
from ironlaw.catalog.schema import Schema, list_of, one, plain_table, quantities, quantity, table_of
from ironlaw.catalog.sourced import Sourced


class Accelerator(Record):
    """One device as a framework counts it: a GPU, an MI250X GCD, one Blackwell GPU of a GB200, a TPU chip."""

    vendor: str
    architecture: str
    usual_node: str
    calibration: str
    flash_attention: bool = True
    fixed_clock: bool = False  # the peak is that of a clock which is held under load; a GPU's is that of its boost clock
    usual_framework: str = ""  # where the vendor's stack is not megatron or fsdp
    memory_capacity: Sourced = quantity("B")
    memory_usable: Sourced | None = quantity("B", required=False)
    hbm_bandwidth: Sourced = quantity("B/s")
    peak: dict[str, Sourced] = quantities("FLOP/s")
    tdp: Sourced = quantity("W")
    scale_up_bandwidth: Sourced | None = quantity("B/s", required=False)
    pcie_bandwidth: Sourced | None = quantity("B/s", required=False)
    c2c_bandwidth: Sourced | None = quantity("B/s", required=False)  # a coherent link to the host's memory, faster than PCIe
    sm_count: Sourced | None = quantity("1", required=False)
    memory_bus_width: Sourced | None = quantity("1", required=False)
    memory_data_rate: Sourced | None = quantity("B/s", required=False)
    peak_sparse: dict[str, Sourced] = quantities("FLOP/s")


class Node(Record):
    """A server: accelerators in it, the size of the scale-up domain they belong to, its NICs and its own power."""

    usual_fabric: str
    scale_up: str  # what joins a domain: nvswitch | pcie | xgmi | xgmi-ring | roce-mesh | ici-torus | nvlink-mesh | ...
    accelerators: Sourced = quantity("1")
    scale_up_size: Sourced = quantity("1")
    scale_up_bandwidth: Sourced = quantity("B/s")
    nics: Sourced = quantity("1")
    host_power: Sourced = quantity("W")
    collective_calibration: str = ""
    torus_axes: Sourced | None = quantity("1", required=False)  # dimensions of a torus
    nic_bandwidth: Sourced | None = quantity("B/s", required=False)  # of one accelerator, where it is not the fabric's
    host_time_ratio: Sourced | None = quantity("1", required=False)  # time to launch an operator over the frameworks' records
    host_memory_bandwidth: Sourced | None = quantity("B/s", required=False)  # of the whole server: channels times their rate
    host_memory_capacity: Sourced | None = quantity("B", required=False)  # of the whole server
    accelerators_per_host_link: Sourced | None = quantity("1", required=False)  # that share one link to the host; absent: one each


class Fabric(Record):
    """What joins nodes: line rate of one NIC, one direction, and its latency."""

    kind: str  # infiniband | roce | efa | ethernet
    nic_bandwidth: Sourced = quantity("B/s")
    latency: Sourced = quantity("s")
    calibration: str = "fabric"


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
    """A power grid: carbon emitted per energy delivered, in a named year."""

    year: int
    intensity: Sourced = quantity("kg/J")


class Site(Record):
    """A place where accelerators stand: where it is, whose grid it is on, and the power it has."""

    latitude: float  # degrees north
    longitude: float  # degrees east
    grid: str
    power: Sourced | None = quantity("W", required=False)  # what the place can draw for machines and cooling; absent: not known


class Fibre(Record):
    """A kind of fibre between sites: how much slower light is in it, and how much longer its way."""

    index: Sourced = quantity("1")  # group index: light in vacuum over light in the fibre
    route_factor: Sourced = quantity("1")  # its length over the way over the ground


class MeasuredPower(Schema):
    """Power of whole nodes, measured over one run, for each accelerator."""

    run: str
    gpus: Sourced = quantity("1")
    accelerator_time: Sourced = quantity("s")
    power: Sourced = quantity("W")


class Power(Record):
    """Measured power of the nodes of one accelerator, for each accelerator: while it computes, while it waits, and the runs themselves."""

    busy: Sourced = quantity("W")
    waiting: Sourced = quantity("W")
    row: tuple[MeasuredPower, ...] = list_of(MeasuredPower)


class Ownership(Record):
    """What machines of one's own cost besides their price: defaults of a site."""

    life: Sourced = quantity("s")
    electricity_price: Sourced = quantity("USD/J")
    hosting_price: Sourced = quantity("USD/J")
    household_energy: Sourced = quantity("J")  # of one month


class FailureLog(Record):
    """What is published about the failures of a run or a cluster: counts over a time, and figures to check predictions by."""

    gpus: Sourced = quantity("1")
    time: Sourced | None = quantity("s", required=False)
    failures: Sourced | None = quantity("1", required=False)  # that stopped a job, not planned
    causes: dict[str, Sourced] = quantities("1")  # some of them, by component
    job_mttf: Sourced | None = quantity("s", required=False)  # measured in jobs of this size
    node_mttf: Sourced | None = quantity("s", required=False)  # what the rate of single nodes says for them
    goodput: Sourced | None = quantity("1", required=False)
    parameters: Sourced | None = quantity("parameter", required=False)
    checkpoint_size: Sourced | None = quantity("B", required=False)
    checkpoint_time: Sourced | None = quantity("s", required=False)
    checkpoint_interval: Sourced | None = quantity("s", required=False)
    checkpoint_share: Sourced | None = quantity("1", required=False)  # of the run, spent on checkpoints


class Framework(Record):
    """What a training stack does by default: which kernels it launches, how it stores, what it overlaps."""

    attention_kernel: str  # flash | unfused: what runs where the device has both
    flash_generation: dict[str, str] = plain_table()  # architecture -> kernel generation
    default_zero: int = 1
    selective_recompute: tuple[str, ...] = ("attention",)
    legacy: bool = False  # a stack of before 2023: slower hosts, more Python between kernels
    compiled_recompute: bool = False  # the compiler drops what backward does not need of a recomputed block: its last product
    gather_unit: str = "layer"  # what ZeRO 3 gathers at a time: layer (a wrapped module) | matrix (the compiler gathers each operand)
    overlap: tuple[str, ...] = ("grad-reduce", "param-gather", "pp")
    pairs_micro_batches: bool = False  # can run the forward of one micro-batch beside the backward of another, layer by layer
    fused_projections: bool = True  # queries, keys and values are one matrix, gate and up another: adapters stand beside the whole
    offload_gradients_early: bool = False  # gradients leave for the host beside the last backward pass, not behind it
    parameter_bytes: Sourced | None = quantity("B", required=False)  # stored weights; absent: the precision's own
    gradient_bytes: Sourced = quantity("B")
    gradient_reduce_bytes: Sourced = quantity("B")
    operators_per_layer: Sourced = quantity("1")
    operators_per_routed_layer: Sourced = quantity("1")  # router, permutation, dispatch: on top
    operators_per_expert: Sourced = quantity("1")  # of an expert on the rank: one launch a GEMM where they are not one kernel
    host_time_per_operator: Sourced = quantity("s")
    norm_bytes: Sourced = quantity("B")  # HBM bytes moved per element of the normalised tensor, forward
    residual_bytes: Sourced = quantity("B")  # per element of the hidden state and residual addition
    rotary_bytes: Sourced = quantity("B")  # per element of queries and keys
    activation_bytes: Sourced = quantity("B")  # per element of the MLP's wide tensors
    score_bytes: Sourced = quantity("B")  # per attention score, mask and softmax of unfused attention, forward
    dropout_bytes: Sourced | None = quantity("B", required=False)  # per element, forward, beside the addition; absent: a kernel of its own
    attention_copies: dict[str, Sourced] = quantities("B")  # per element of flash attention's inputs and output, and backward
    fused_bias_gradients: bool = False  # the product of a weight gradient sums that of the bias
    backward_traffic_ratio: Sourced = quantity("1")  # of a norm: bytes backward over those forward
    loss_bytes: Sourced = quantity("B")  # HBM bytes moved per logit, forward and backward
    logit_memory: Sourced = quantity("B")  # bytes alive per logit at the peak
    fused_loss_memory: Sourced | None = quantity("B", required=False)  # the same where the loss is compiled and cannot work in place
    saved_activation_tensors: Sourced = quantity("1")  # wide MLP tensors kept for backward beyond gate and up
    saved_expert_rows: Sourced | None = quantity("1", required=False)  # copies of rows sent to gated experts that are kept; absent: 2
    row_copies: Sourced | None = quantity("1", required=False)  # times a routed row crosses HBM beside its expert; absent: by dispatcher
    row_copies_backward: Sourced | None = quantity("1", required=False)  # and its gradient; absent: as forward
    padding_copies: Sourced | None = quantity("1", required=False)  # crossings more in narrow formats, to fill experts to whole blocks
    routing_bytes: Sourced | None = quantity("B", required=False)  # HBM bytes for each token and expert, forward; absent: one fused kernel
    routing_bytes_backward: Sourced | None = quantity("B", required=False)  # absent: as forward
    expert_tile: Sourced | None = quantity("1", required=False)  # rows of a grouped product's tile; absent: 128
    straddling_tiles: bool = False  # a tile may hold rows of two experts and is then computed for each; else experts start a tile
    expert_streams: Sourced | None = quantity("1", required=False)  # experts launched one by one, side by side; absent: one kernel
    fused_wgrad: bool = False  # a weight gradient is added to the stored one inside its product
    async_tensor: bool = False  # the sum of an input gradient over tensor-parallel ranks runs beside the weight gradient
    narrow_inputs: Sourced | None = quantity("1", required=False)  # 1: the cast input of a linear layer is kept; absent: the wide one
    narrow_weights: Sourced | None = quantity("1", required=False)  # 1: weights are cast once a step and kept; absent: at every use
    narrow_sequence: Sourced | None = quantity("1", required=False)  # 1: sequence parallelism gathers the cast tensor
    fused_norms: Sourced | None = quantity(
        "1", required=False
    )  # 1: with delayed scaling a norm writes the cast input of the product behind
    fused_scales: Sourced | None = quantity("1", required=False)  # 1: the kernel that makes a tensor finds its scale; absent: a pass before
    casts_once: Sourced | None = quantity("1", required=False)  # 1: a tensor is cast once for all its products, whatever of it is kept
    narrow_with_one_scale: bool = False  # what is said of narrow tensors holds where a tensor has one scale, and not elsewhere
    one_layout: tuple[str, ...] = ()  # architectures where one orientation of a tensor with one scale serves all products
    fp8_scaling: str = "current"  # what the precision fp8 means where nobody says: current | delayed
    param_gather: dict[str, Sourced] = quantities("B")  # precision -> a weight as gathered where it is kept narrow (fp8_param_gather)
    default_param_gather: bool = False  # fp8_param_gather where nobody says, for the precisions of param_gather
    optimizer_passes: Sourced = quantity("1")  # times the fused optimizer's traffic
    allocator_slack: Sourced = quantity("1")
    workspace: Sourced = quantity("B")
    workspaces: dict[str, Sourced] = quantities("B")  # architecture -> the same where the libraries ask for more or less
    grouped_workspaces: dict[str, Sourced] = quantities("B")  # architecture -> on top, where a rank's experts are one grouped product
    context: Sourced = quantity("B")
    communicator: Sourced = quantity("B")


class GemmConstants(Schema):
    """Of ``max(FLOP/(efficiency peak) + fill, bytes/(bandwidth_fraction HBM)) + launch``, with the fit's own error."""

    efficiency: Sourced = quantity("1")
    bandwidth_fraction: Sourced = quantity("1")
    fill: Sourced | None = quantity("s", required=False)  # absent: none
    launch: Sourced = quantity("s")
    rows_bandwidth_fraction: Sourced | None = quantity("1", required=False)  # of HBM, by the copies of rows around grouped products
    rows: Sourced | None = quantity("1", required=False)
    held_out_error: Sourced | None = quantity("1", required=False)
    dense_error: Sourced | None = quantity("1", required=False)  # of a grouped product: the dense one's constants on the same rows
    runtime_difference: Sourced | None = quantity("1", required=False)  # of another runtime on the same shapes: the noise floor


class AttentionConstants(Schema):
    """Of flash attention: efficiency ``e s / (s + saturation_length) R / (R + saturation_rows)``, R the query rows of the
    kernel, and the backward's time over the forward's."""

    forward_efficiency: Sourced = quantity("1")
    saturation_length: Sourced = quantity("1")
    saturation_rows: Sourced | None = quantity("1", required=False)  # absent: any number of rows fills the device
    backward_time_ratio: Sourced = quantity("1")
    launch: Sourced = quantity("s")
    rows: Sourced | None = quantity("1", required=False)
    held_out_error: Sourced | None = quantity("1", required=False)


class ElementwiseConstants(Schema):
    """Of memory-bound kernels: the fraction of HBM bandwidth they reach and their launch time."""

    bandwidth_fraction: Sourced = quantity("1")
    launch: Sourced = quantity("s")


class GroupConstants(Schema):
    """The constants of a collective among one number of ranks."""

    bandwidth_fraction: Sourced = quantity("1")
    half_size: Sourced = quantity("B")
    latency: Sourced = quantity("s")


class CollectiveConstants(Schema):
    """Of ``latency + S f / (b sqrt(S)/(sqrt(S)+sqrt(half_size)))``; ``b`` is bandwidth_fraction times the line rate.

    The constants are those of ``ranks`` ranks and more; ``smaller`` holds those of smaller groups, by their number of ranks.
    Where only one set is known it serves every group.
    """

    bandwidth_fraction: Sourced = quantity("1")
    half_size: Sourced = quantity("B")
    latency: Sourced = quantity("s")
    ranks: Sourced | None = quantity("1", required=False)
    smaller: dict[str, GroupConstants] = table_of(GroupConstants)
    rows: Sourced | None = quantity("1", required=False)
    held_out_error: Sourced | None = quantity("1", required=False)


class Calibration(Record):
    """Constants of the kernel and collective laws, fitted to measured operators of one device or fabric.

    ``gemm`` by precision: efficiency (of dense peak), bandwidth_fraction (of HBM), fill and launch [s].
    ``experts`` by precision: the same of the grouped products of a rank's experts; absent, those of ``gemm``.
    ``attention`` by kernel generation (flash-2, flash-3), and mla for latent attention where flash's constants are too far off:
    forward_efficiency, saturation_length [tokens], saturation_rows, backward_time_ratio, launch.
    ``collective`` by operation and number of ranks: bandwidth_fraction (of the tier's line rate), half_size [B], latency [s].
    """

    version: str
    grade: str  # measured | prior
    device: str = ""  # the accelerator it was measured on; none for a fabric
    software: str
    gemm: dict[str, GemmConstants] = table_of(GemmConstants)
    experts: dict[str, GemmConstants] = table_of(GemmConstants)
    attention: dict[str, AttentionConstants] = table_of(AttentionConstants)
    elementwise: ElementwiseConstants | None = one(ElementwiseConstants)
    collective: dict[str, CollectiveConstants] = table_of(CollectiveConstants)


class Systems(Record):
    """Effects between operators that no operator table shows, and site defaults: the global constants.

    Those in ``validate.fit.CONSTANTS`` are fitted on published runs; the others are cited.
    """

    compute_sustained: Sourced = quantity("1")  # of its benchmarked rate, what a matrix kernel holds inside a step
    bandwidth_sustained: Sourced = quantity("1")  # the same of memory-bound kernels
    attention_backward: Sourced = quantity("1")  # time of attention's backward pass over what its record says
    older_flash: Sourced = quantity("1")  # rate of flash attention 2 on an architecture that has a kernel of its own, over its record's
    first_flash: Sourced = quantity("1")  # rate of the first flash attention over the second's
    scale_up_sustained: Sourced = quantity("1")  # of its benchmarked rate, what a collective holds inside a step, in a domain
    fabric_sustained: Sourced = quantity("1")  # the same on the fabric
    tp_exposed: Sourced = quantity("1")  # of tensor-parallel communication that is overlapped, the share that still shows
    overlap_slowdown: Sourced = quantity("1")
    gradient_window: Sourced = quantity("1")
    legacy_host_time: Sourced = quantity("1")  # of one launch in a stack of before 2023, over what its record says
    step_overhead: Sourced = quantity("s")  # of every step, outside all operators
    scale_loss: Sourced = quantity("1")  # of the step, lost for each doubling of domains
    host_memory_bandwidth: Sourced = quantity("B/s")  # of a server whose record does not say it
    host_bandwidth_fraction: Sourced = quantity("1")  # of its memory bandwidth, what a host's optimizer reaches
    idle_power_fraction: Sourced = quantity("1")
    pue: Sourced = quantity("1")
    accelerator_mttf: Sourced = quantity("s")  # accelerator time for each failure that stops a job, host and network counted in
    restart_time: Sourced = quantity("s")  # from a failure to work again: noticed, taken out, loaded; what is done again not counted
    checkpoint_bandwidth: Sourced = quantity("B/s")  # what storage takes from one accelerator while all write


class Bands(Record):
    """How wrong an estimate may be: half-widths in log, by what kind of runs support it, at one coverage."""

    coverage: Sourced = quantity("1")
    step: dict[str, Sourced] = quantities("1")
    memory: dict[str, Sourced] = quantities("1")
    told_apart: Sourced = quantity("1")  # predicted difference of two plans of one job from which their order is trusted


KINDS: dict[str, type] = {
    "accelerators": Accelerator,
    "nodes": Node,
    "fabrics": Fabric,
    "models": Model,
    "prices": PriceList,
    "grids": Grid,
    "sites": Site,
    "fibres": Fibre,
    "power": Power,
    "ownership": Ownership,
    "failures": FailureLog,
    "frameworks": Framework,
    "calibration": Calibration,
    "systems": Systems,
    "bands": Bands,
}
