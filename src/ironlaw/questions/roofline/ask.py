"""Which roof an operator, a list of them, a model's step, a collective or a measurement is under.

One question of several (``QUESTIONS``): each is answered by the module named there, and refuses the options of the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ironlaw.errors import QuestionError, UnknownNameError, ValueRangeError
from ironlaw.question.options import OPTIONS as ESTIMATE
from ironlaw.question.options import Option, duration, one_of, positive, switch, text, whole

if TYPE_CHECKING:
    from ironlaw.questions.answer import Answer

DTYPES = ("fp32", "tf32", "fp16", "bf16", "fp8", "fp8-block", "fp8-row", "mxfp8", "nvfp4")
ACTIVATIONS = ("relu", "relu2", "tanh", "sigmoid", "silu", "gelu", "gelu-tanh", "swiglu", "geglu")
NORMS = ("rmsnorm", "layernorm")
OPTIMIZERS = ("adamw", "sgd", "momentum", "adamw-bf16", "adam8bit", "adafactor", "muon")
# short names of the operator lists that ship
CENSUSES = {"resnet50": "resnet-50", "resnet-50": "resnet-50", "dlrm": "dlrm", "unet": "stable-diffusion-unet"}
CENSUSES |= {"stable-diffusion-unet": "stable-diffusion-unet"}
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")


def items(value: Any) -> list[Any]:
    """The items of a comma list (or one joined by x), or of a sequence."""
    if isinstance(value, (list, tuple)):
        return list(value)
    return [item.strip() for item in str(value).replace("x", ",").split(",")]


def sizes(*names: str, more: tuple[str, ...] = ()) -> Callable[[Any, str], tuple[float, ...]]:
    """A reader of one whole number for each name; those of ``more`` may be left out (the last of them may be 0)."""

    def read(value: Any, flag: str) -> tuple[float, ...]:
        given = items(value)
        if not len(names) <= len(given) <= len(names) + len(more):
            raise ValueRangeError(f"{flag} is {value}, must be {','.join(names)}{''.join(f'[,{name}]' for name in more)}")
        return tuple(0.0 if str(item) in ("0", "0.0") and at >= len(names) + 1 else whole(item, flag) for at, item in enumerate(given))

    return read


def named(known: tuple[str, ...], *names: str, alone: bool = False) -> Callable[[Any, str], tuple[Any, ...]]:
    """A reader of ``[NAME,]sizes``: the first known name where none is given; ``alone`` allows the name without sizes."""
    numbers = sizes(*names)

    def read(value: Any, flag: str) -> tuple[Any, ...]:
        given = [value] if isinstance(value, (int, float)) else list(value) if isinstance(value, (list, tuple)) else str(value).split(",")
        first = str(given[0]).strip().lower()
        if first in known:
            if len(given) == 1 and not alone:
                raise ValueRangeError(f"{flag} is {value}, must be [NAME,]{','.join(names)}")
            return (first, *(numbers(given[1:] if len(given) > 2 else given[1], flag) if len(given) > 1 else ()))
        if first[:1].isalpha():
            raise UnknownNameError(flag, str(given[0]), known)
        return (known[0], *numbers(given if len(given) > 1 else given[0], flag))

    return read


def dtypes(value: Any, flag: str) -> tuple[str, str, str]:
    """One format for all operands, or three: first operand, second operand, result."""
    given = [str(item).strip().lower() for item in (value if isinstance(value, (list, tuple)) else str(value).split(","))]
    for name in given:
        if name not in DTYPES:
            raise UnknownNameError(flag, name, DTYPES)
    if len(given) not in (1, 3):
        raise ValueRangeError(f"{flag} is {value}, must be one format, or three: of A, B and C")
    return (given[0], given[0], given[0]) if len(given) == 1 else (given[0], given[1], given[2])


def counts(value: Any, flag: str) -> tuple[float, ...]:
    """A comma list of whole numbers."""
    found = value if isinstance(value, (list, tuple)) else [value] if isinstance(value, (int, float)) else str(value).split(",")
    return tuple(whole(item, flag) for item in found)


def quotients(value: Any, flag: str) -> tuple[tuple[float, float], ...]:
    """A comma list of A/B, two rates each."""
    pairs = []
    for item in value if isinstance(value, (list, tuple)) else str(value).split(","):
        first, slash, second = item.partition("/") if isinstance(item, str) else (item[0], "/", item[1])
        if not slash:
            raise ValueRangeError(f"{flag} is {value}, must be rates A/B of the two devices, such as 20/34")
        pairs.append((positive("1")(first, flag), positive("1")(second, flag)))
    return tuple(pairs)


def points(value: Any, flag: str) -> tuple[tuple[float, float], ...]:
    """A comma list of SIZE:TIME, at least two sizes."""
    found = []
    for item in value if isinstance(value, (list, tuple)) else str(value).split(","):
        size, colon, time = item.partition(":") if isinstance(item, str) else (item[0], ":", f"{item[1]}s")
        if not colon:
            raise ValueRangeError(f"{flag} is {value}, must be SIZE:TIME pairs, such as 1:10ms,1.5:14ms")
        found.append((positive("1")(size, flag), duration(time.strip(), flag)))
    if len({size for size, _ in found}) < 2:
        raise ValueRangeError(f"{flag} is {value}, must hold at least two different sizes")
    return tuple(sorted(found))


CENSUS = (
    "gpus", "node", "fabric", "framework", "seq_len", "micro_batch_size", "global_batch_size", "tp", "sp", "pp", "vpp", "cp", "ep", "etp",
    "dp_replicate", "dp_shard", "zero", "recompute", "precision", "overlap", "flash_attention", "attention_kernel", "cuda_graphs",
    "fp8_scaling", "fp8_param_gather", "bf16_layers_at_start", "bf16_layers_at_end", "scale_up_size", "nic_bandwidth",
)  # fmt: skip
OPTIONS: dict[str, Option] = {
    "model": Option(ESTIMATE["model"].read, "a model: every operator of its training step", "MODEL"),
    "on": ESTIMATE["on"],
    "gemm": Option(sizes("M", "K", "N"), "a matrix product (M, K) x (K, N)", "M,K,N"),
    "attention": Option(sizes("B", "A", "S", "D"), "attention of batch, heads, sequence, head width: flash against standard", "B,A,S,D"),
    "norm": Option(named(NORMS, "TOKENS", "WIDTH"), "rmsnorm (default) or layernorm of tokens and width", "[NAME,]T,H"),
    "softmax": Option(sizes("ROWS", "COLUMNS"), "softmax of rows and columns", "R,C"),
    "activation": Option(
        named((*ACTIVATIONS, "all"), "TOKENS", "WIDTH"),
        f"activation function of tokens and width: {', '.join(ACTIVATIONS)}; all: side by side",
        "NAME,T,W",
    ),
    "optimizer": Option(
        named(OPTIMIZERS, "PARAMETERS", alone=True),
        "optimizer step of so many parameters (default adamw); with a MODEL its name alone",
        "[NAME,]N",
    ),
    "conv": Option(
        sizes("B", "C", "H", "W", "OUT", "K", more=("STRIDE", "PADDING")),
        "convolution: batch, channels, height, width, output channels, kernel side",
        "B,C,H,W,OUT,K[,S[,P]]",
    ),
    "shapes": Option(text, "a CSV of operators: columns operator, shape; name, dtype, count, measured", "FILE"),
    "census": Option(text, "a network by its operators: resnet-50, dlrm, unet (of Stable Diffusion 1); or a TOML file", "NAME"),
    "dtype": Option(dtypes, "format of the operands (default bf16, fp16 where there is none), or three: of A, B and C", "NAME[,B,C]"),
    "beta": Option(switch, "the product is added to C, which is read too (default off)", "on|off"),
    "causal": Option(switch, "attention with a causal mask (default on)", "on|off"),
    "lengths": Option(counts, "comma list of sequence lengths to compare attention at, instead of S", "LIST"),
    "kv_heads": Option(whole, "heads of keys and values (default: as queries)"),
    "on_chip": Option(positive("B"), "on-chip memory of a flash block: shows the published bound of its traffic too", "SIZE"),
    "passes": Option(positive("1"), "times a tensor crosses HBM (default: read and written once, fused)", "X"),
    "batch": Option(counts, "comma list of batches to compare: multiplies rows; with a MODEL micro-batch sizes", "LIST"),
    "tile": Option(sizes("M", "N"), "tile of a matrix product, for waves over multiprocessors (default 128,256)", "M,N"),
    "multiprocessors": Option(whole, "multiprocessors of the device (default: the catalogue's, where it has them)"),
    "peak": Option(positive("FLOP/s"), "peak rate instead of the catalogue's", "RATE"),
    "bandwidth": Option(positive("B/s"), "HBM bandwidth instead of the catalogue's", "RATE"),
    "measured": Option(duration, "measured time of the operator, collective or step: says which roof it is near", "TIME"),
    "samples_per_second": Option(
        positive("1"), "with a MODEL or --census: measured sequences or samples a second of all accelerators", "X"
    ),
    "baseline": Option(duration, "known-good time: a measured one slower by more than --tolerance is a regression (exit 1)", "TIME"),
    "tolerance": Option(positive("1"), "share by which two numbers may differ and count as equal (default 5%)", "X"),
    "collective": Option(one_of(COLLECTIVES), ", ".join(COLLECTIVES), "NAME"),
    "size": Option(positive("B"), "bytes of a collective's whole tensor, such as 22.1MB", "SIZE"),
    "ranks": Option(whole, "ranks of a collective, next to each other"),
    "count": Option(whole, "how often a collective runs: what all of them cost"),
    "ratio": Option(quotients, "measured speeds of --on and --against, such as 20/34,20/33: which roof does the ratio follow", "A/B"),
    "against": Option(text, "the other accelerator of --ratio", "ACCELERATOR"),
    "against_bandwidth": Option(positive("B/s"), "its HBM bandwidth instead of the catalogue's", "RATE"),
    "scaling": Option(points, "times at sizes, such as 1:10ms,1.2:11ms,1.5:14ms: the exponent of time against size", "SIZE:TIME,.."),
    "plot": Option(switch, "draw the roofline (default off)", "on|off"),
    **{name: ESTIMATE[name] for name in CENSUS},
}

OPERATORS = ("gemm", "attention", "norm", "softmax", "activation", "optimizer", "conv", "shapes")
_ROOFS = {"on", "node", "fabric", "framework", "peak", "bandwidth", "plot"}
_MEASURED = {"measured", "baseline", "tolerance"}
_OPERATOR = _ROOFS | _MEASURED | {"dtype", "batch", "multiprocessors"}
# each question, the module that answers it, and the options it takes beside its own
QUESTIONS: dict[str, tuple[str, set[str]]] = {
    "model": ("census", {"on", "optimizer", "batch", "samples_per_second", *_MEASURED, *CENSUS}),
    "gemm": ("operator", _OPERATOR | {"beta", "tile"}),
    "attention": ("operator", _OPERATOR | {"causal", "kv_heads", "on_chip", "lengths"}),
    "norm": ("operator", _OPERATOR | {"passes"}),
    "softmax": ("operator", _OPERATOR | {"passes"}),
    "activation": ("operator", _OPERATOR | {"passes"}),
    "optimizer": ("operator", _OPERATOR - {"batch", "dtype"}),
    "conv": ("operator", _OPERATOR | {"tile"}),
    "shapes": ("operator", (_OPERATOR - _MEASURED - {"batch"}) | {"tile", "causal"}),
    "census": ("listed", (_OPERATOR - {"multiprocessors", "plot"}) | {"optimizer", "samples_per_second"}),
    "collective": ("links", {"on", "node", "fabric", "size", "ranks", "count", "scale_up_size", "nic_bandwidth", *_MEASURED}),
    "ratio": ("scaling", {"on", "against", "bandwidth", "against_bandwidth", "precision", "tolerance"}),
    "scaling": ("scaling", {"tolerance"}),
}


def ask(options: Mapping[str, Any], folders: tuple[str, ...] = ()) -> Answer:
    """The answer to one roofline question."""
    from ironlaw.questions.answer import read

    values = read(options, OPTIONS, "roofline")
    asked = [name for name in QUESTIONS if name in values and not (name == "optimizer" and ("model" in values or "census" in values))]
    if len(asked) > 1:
        raise QuestionError(f"roofline answers one question at a time, given {' and '.join(_told(name) for name in asked)}")
    if not asked and "on" not in values:
        raise QuestionError(
            f"roofline needs MODEL, one of {', '.join('--' + name for name in QUESTIONS if name != 'model')}, or --on alone"
        )
    question = asked[0] if asked else "on"
    module, takes = QUESTIONS.get(question, ("operator", _ROOFS | {"dtype"}))
    for name in values:
        if name not in takes and name != question:
            raise QuestionError(f"--{name.replace('_', '-')} does not go with {_told(question)}")
    if "baseline" in values and "measured" not in values:
        raise QuestionError("--baseline is a known-good time to compare with: give --measured too")
    answer: Answer = import_module(f"ironlaw.questions.roofline.{module}").answer(question, values, folders)
    return answer


def _told(question: str) -> str:
    return {"on": "--on alone", "model": "a MODEL"}.get(question, f"--{question}")


def roofline(model: Any = None, *, catalog: tuple[str, ...] = (), **options: Any) -> Answer:
    """Ask from Python: ``roofline(gemm=(4096, 4096, 4096), on="h100-sxm", measured="200us")``."""
    from ironlaw.catalog import load

    return ask({"model": model, **options}, load.given_folders(catalog))
