"""Every default of a question, every policy value, and the names an option may have: each once, with its reason.

Imports nothing heavy, so that help texts, the command line and the laws' callers read the same values.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ironlaw.divisors import divisors

# --- names an option may have

PRECISIONS = (  # those that ship in catalog/data/precisions
    "fp32", "tf32", "fp16", "bf16", "fp8", "fp8-current", "fp8-delayed", "fp8-e4m3", "fp8-row", "fp8-block", "mxfp8", "mxfp4",
    "mxfp4-backward", "mxfp4-weights", "nvfp4", "nvfp4-plain", "nvfp4-pretraining",
)  # fmt: skip
SCHEDULES = ("1f1b", "interleaved", "gpipe", "zero-bubble", "dualpipe")
CP_METHODS = ("ring", "all-to-all", "all-gather", "all-to-all+ring")
DISPATCHERS = ("alltoall", "deepep", "hybridep")
EXPERT_LOADS = ("uniform", "zipf:S", "dirichlet:ALPHA", "maxvio:X", "cv:X")  # shapes of the loads of experts
EXPERT_PLACEMENTS = ("in-order", "balanced", "redundant")
DISPATCH_PRECISIONS = ("wide", "fp8", "fp8-forward")
ATTENTION_PRECISIONS = ("wide", "fp8", "fp8-forward")
CUDA_GRAPHS = ("none", "partial", "full")
GRAPH_MODULES = ("attn", "mlp", "moe", "moe_router", "moe_preprocess", "mamba")  # what Megatron Core's --cuda-graph-scope names
PACKINGS = ("pack", "pack-best-fit", "truncate", "none", "sorted", "pad")  # how documents become sequences
WHOLE_PACKINGS = PACKINGS[:2]  # packs of whole documents
BALANCES = ("none", "sorted", "flops")  # how sequences are dealt to ranks
IN_NETWORK_REDUCTIONS = ("on", "off", "nvls", "sharp")
OVERLAPS = ("grad-reduce", "param-gather", "tp", "pp", "ep")
OFFLOADS = ("optimizer", "activations", "parameters", "nvme")
OFFLOADS_WITH = {"parameters": "optimizer", "nvme": "optimizer"}  # what moves with it
WEIGHTS_DTYPES = {"fp32": 4.0, "bf16": 2.0}  # of weights as they are loaded and updated: bytes
ROUNDINGS = ("up", "down", "exact")  # of the steps of a run
# networks that are no language models: spellings of the lists of operators in questions/roofline/lists
OPERATOR_LISTS = {"resnet50": "resnet-50", "resnet-50": "resnet-50", "dlrm": "dlrm", "unet": "stable-diffusion-unet"}
OPERATOR_LISTS |= {"stable-diffusion-unet": "stable-diffusion-unet"}

# --- the job

SEQ_LEN = 8192.0  # tokens; most models of the last years are pre-trained at this length or half of it
BATCH_TOKENS = 4 * 1024 * 1024  # where the default batch starts: the batch of most published runs of 7 to 180 billion parameters
BATCH_RANGE = 0.25  # of it: how much fewer the default batch may have (and more, where the limit is there), to be divided well
BATCH_LOSS = 0.05  # of the tokens per second of the best batch up to the limit: what a batch nearer to the start may lose
TOKENS_PER_PARAMETER = 20.0  # of a run that gives no tokens; what compute-optimal runs take (Hoffmann et al., 2022)
LEAST_TOKENS = 300e9  # of such a run: what GPT-3 and Pythia were trained on at every size
FINE_TUNED = (16.0, 128.0)  # sequences of a step of published fine-tuning recipes, from QLoRA's of 7 B to Alpaca's and Tulu's
FINE_TUNED_EACH = 8.0  # sequences of a step for each accelerator: the defaults of Hugging Face's TrainingArguments, 8 x 1
NEAR_BATCH = 0.10  # of a batch that the user gave: a batch so near that is much faster is worth a warning
BATCH_COST = 0.10  # of the tokens per second of a near batch: what the given batch must cost to be worth the warning
MUCH_SHARED = 4  # times the divisors that the given batch shares with the accelerators: what a near batch must share to be tried
FEW_SEQUENCES = 10.0  # of a batch: with fewer no other batch is within a tenth
FEWEST_SHARED = 4.0  # a batch to try shares at least one over this of the divisors that the best of them shares with the accelerators
OPTIMIZER = "adamw"
SCHEDULE = "1f1b"
SCHEDULE_RULE = "1f1b, interleaved where vpp > 1"
CP_METHOD = CP_METHODS[0]
DISPATCHER = DISPATCHERS[0]
DISPATCH_PRECISION = DISPATCH_PRECISIONS[0]
ATTENTION_PRECISION = ATTENTION_PRECISIONS[0]
CUDA_GRAPH = CUDA_GRAPHS[0]
PACKING = PACKINGS[0]  # most trainers pack documents into seq_len
BALANCE = BALANCES[0]  # a sampler deals sequences at random
CP = 1.0
ETP = 1.0
LEAST_EQUAL_SHARE = 0.75  # of a domain: a job takes equal shares of all domains where that leaves at most a quarter of each idle
NETWORK_SHARE = 1.0  # of the rate of its NICs: no other job uses the network
EXPERT_IMBALANCE = 1.0  # balanced, as benchmarks of speed force it
EXPERT_PLACEMENT = "in-order"
ROUTING_NOISE = True  # with --expert-load: tokens choose at random with these loads
OFFLOAD_FRACTION = 1.0  # share of the optimizer's states, with --offload optimizer
LORA_TARGETS = "attention"
ADAPTERS = ("lora", "dora")
LORA_RANK = 8  # of --lora and --qlora, which name none: the default of peft's LoraConfig
GRID = "world"
ROUNDING = "up"  # the run sees all its tokens

# --- storage of checkpoints

CHECKPOINTS_KEPT = 2.0  # the newest may be incomplete when a job dies, so the one before it is kept too
CHECKPOINT_OVERHEAD = 0.01  # share of the time that writes may take, for the rate that storage needs

# --- how much memory the best plan keeps free

CERTAINTY = 0.8  # how likely a plan must be to fit before it is called best: as many as an error band is meant to contain
LEAST_MARGIN = 0.01  # share of device memory that is kept free however sure the prediction is

# --- a search

GOAL = "time"
FRONT = ("time", "cost", "energy", "memory")
COUNTS = (1.0, 131072.0)  # total accelerators, where a budget, a deadline or a rate is given instead
PLANS = 5  # plans listed, each of a different kind
NEAR = 0.02  # plans that take at most this much longer than the best are near it: repeated runs of one plan differ by as much
NEAR_PLANS = 4  # of them listed
TIME_LIMIT = 120.0  # seconds

# --- context parallel

USUAL_CONTEXT_RANKS = 8.0  # tried at any length, as a small batch may need them
FEWEST_CONTEXT_TOKENS = 1024.0  # per rank, where more than the usual ranks are tried
LONG_SEQUENCE = 16384.0  # tokens from which the methods of context parallelism differ enough to try each of them
WARN_SEQUENCE = 65536.0  # tokens from which an estimate without context parallel is worth a warning

# --- warnings

USUAL_MFU = (0.40, 0.50)  # MFU of tuned runs
LARGEST_BATCH = 2.0**28  # tokens; four times the largest batch of published runs
MOST_ACCELERATORS = 131072.0  # no published job is larger: more are not tried where a number is looked for
PRICE_DAYS = 90  # between the dates of two prices: what is further apart is worth a warning
MANY_ACCELERATORS = 512.0  # accelerators from which failures that are not independent are worth a warning


IMAGE_SIZE = 448  # pixels of a side where neither question nor config says: 32 x 32 patches of 14, 256 tokens after merging by 4


def seq_len(max_position_embeddings: int) -> float:
    """Tokens of a sequence when none are given: the model's maximum, at most 8192.

    >>> seq_len(131072), seq_len(2048)
    (8192.0, 2048.0)
    """
    return float(min(max_position_embeddings, SEQ_LEN))


def fine_tuning_batch(gpus: float, each: float = FINE_TUNED_EACH) -> float:
    """Sequences of a step of a fine-tuning: ``each`` (8) for each accelerator, at least 16 and at most 128.

    >>> fine_tuning_batch(1), fine_tuning_batch(8), fine_tuning_batch(64), fine_tuning_batch(16, each=2.0)
    (16.0, 64.0, 128.0, 32.0)
    """
    return min(max(each * gpus, FINE_TUNED[0]), FINE_TUNED[1])


def batches(gpus: float, usual: float, least: float, most: float, micro_batch_size: float = 1.0) -> list[float]:
    """Sequences per step to try from ``least`` to ``most``, the nearest to the ``usual`` number first.

    The ranks of data parallel divide both the batch and ``gpus``, so a plan for a batch is a plan for every larger batch that shares the
    same divisors with ``gpus``, and takes no longer for a sequence there. Each octave, counted down from ``most``, is searched on its own.
    Of each set of shared divisors only the largest batch of an octave and the one nearest to the usual number can be wanted. A batch
    that shares less than a quarter of what another of its octave shares is left out: it would leave few ranks to data parallel.
    Batches within 5 % of each other are as near; of these the one that shares most comes first.

    >>> batches(512, 512, 384, 640), batches(1000, 512, 384, 640)
    ([512.0, 640.0], [500.0, 600.0, 625.0])
    >>> batches(1024, 512, 384, 2048)
    [512.0, 1024.0, 2048.0]
    >>> batches(8, 512, 384, 640, micro_batch_size=350)
    [700.0]
    """
    ranks, micro = int(gpus), int(micro_batch_size)
    low, high = math.ceil(least / micro), math.floor(most / micro)
    high = max(low, high)  # one batch is tried where no multiple of large micro-batches is within the range
    tried: set[int] = set()
    while high >= low:
        tried |= _batches_of_octave(ranks, usual / micro, max(high // 2 + 1, low), high)
        high //= 2

    def preference(batch: int) -> tuple[int, int, float]:
        away = abs(math.log(batch * micro / usual))
        return round(away / math.log(1.05)), -math.gcd(batch, ranks), away

    return [float(batch * micro) for batch in sorted(tried, key=preference)]


def widest_batch(batches: Sequence[float], gpus: float) -> float | None:
    """The least of some batches that all layouts of the others divide: it shares with ``gpus`` what each of them shares; or None.

    >>> widest_batch([512.0, 4096.0, 4080.0, 4032.0, 2112.0], 96), widest_batch([512.0, 4095.0], 4096 * 9)
    (2112.0, None)
    """
    shared = {batch: math.gcd(int(batch), int(gpus)) for batch in batches}
    whole = math.lcm(*shared.values())
    return min((batch for batch in batches if shared[batch] == whole), default=None)


def _batches_of_octave(ranks: int, usual: float, low: int, high: int) -> set[int]:
    """Of each set of divisors that batches from ``low`` to ``high`` share with the ranks, the largest and the nearest to the usual one."""
    largest = {shared: high // shared * shared for shared in map(int, divisors(ranks)) if high // shared * shared >= low}
    least = max(largest) / FEWEST_SHARED
    found: set[int] = set()
    for shared, batch in largest.items():
        if shared >= least and math.gcd(batch, ranks) == shared:
            near = round(min(max(usual, low), high) / shared) * shared
            near += shared if near < low else 0
            found |= {batch, near if low <= near <= high else batch}
    return found


def batch_of_ranks(ranks: float, usual: float) -> float:
    """The whole multiple of ``ranks`` that is nearest to the usual number of sequences, at least one of each rank.

    >>> batch_of_ranks(96, 512), batch_of_ranks(997, 512)
    (480.0, 997.0)
    """
    return max(float(round(usual / ranks)), 1.0) * ranks


def sequences_at_once(
    gpus: float | None,
    tp: float | None,
    pp: float | None,
    cp: float | None,
    vpp: float | None,
    micro_batch_size: float | None,
    microbatch_group: float | None = None,
) -> float:
    """Sequences that all data-parallel ranks of a plan start together; with several chunks, for a whole group of micro-batches.

    >>> sequences_at_once(64, tp=4, pp=2, cp=None, vpp=2, micro_batch_size=1)
    16.0
    """
    ranks = (gpus or 1.0) / ((tp or 1.0) * (pp or 1.0) * (cp or 1.0))
    group = 1.0 if vpp in (None, 1.0) else microbatch_group or pp or 1.0
    return max(ranks * (micro_batch_size or 1.0) * group, 1.0)


# storage of a node, where the question gives none
DISK = 3.5e9  # B/s by datasheet, sequential: one NVMe drive on four lanes of PCIe 3
SUSTAINED = 0.5  # share of a datasheet's read rate; typical of NVMe drives under load

# sequences of an example of the objectives that ship, as their records have them: a word that counts examples is read before any record
SEQUENCES_OF_AN_EXAMPLE = {"next-token": 1, "sft": 1, "kto": 1, "distillation": 1, "dpo": 2, "orpo": 2, "simpo": 2, "reward": 2}
