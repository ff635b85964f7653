"""Options of ``ironlaw roofline``, readers of their values, and the questions it answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ironlaw.errors import UnknownNameError, ValueRangeError
from ironlaw.question import defaults
from ironlaw.question.forms import Form, OneOf
from ironlaw.question.kinds import kind
from ironlaw.question.options import OPTIONS as ESTIMATE
from ironlaw.question.options import TOKENS_PER_SECOND, Option, group, taken_by
from ironlaw.question.readers import duration, list_of, one_of, positive, switch, text, whole
from ironlaw.question.words import length
from ironlaw.questions.data.options import OPTIONS as DATA
from ironlaw.questions.roofline.sized_times import read_sized_times

ACTIVATIONS = ("relu", "relu2", "tanh", "sigmoid", "silu", "gelu", "gelu-tanh", "swiglu", "geglu")
NORMS = ("rmsnorm", "layernorm")
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
CENSUSES = defaults.OPERATOR_LISTS


def sizes(*names: str, more: tuple[str, ...] = ()) -> Callable[[Any, str], tuple[float, ...]]:
    """A reader of one whole number for each name, joined by commas or x; ``more`` names are optional, and the last may be 0."""

    @kind("str", "Sequence[int]", gives="tuple[float, ...]", least=1, metavar=",".join(names))
    def read(value: Any, flag: str) -> tuple[float, ...]:
        """Read the sizes."""
        given = list(value) if isinstance(value, (list, tuple)) else [item.strip() for item in str(value).replace("x", ",").split(",")]
        if not len(names) <= len(given) <= len(names) + len(more):
            raise ValueRangeError(f"{flag} is {value}, must be {','.join(names)}{''.join(f'[,{name}]' for name in more)}")
        return tuple(0.0 if str(item) in ("0", "0.0") and at >= len(names) + 1 else whole(item, flag) for at, item in enumerate(given))

    return read


def named_sizes(choices: tuple[str, ...], default: str, *names: str, alone: bool = False) -> Callable[[Any, str], tuple[Any, ...]]:
    """A reader of ``[NAME,]sizes``; ``alone`` allows the name without sizes."""
    read_sizes = sizes(*names)

    @kind("str", "Sequence[Any]", gives="tuple[Any, ...]", metavar=",".join(("NAME", *names)))
    def read(value: Any, flag: str) -> tuple[Any, ...]:
        """Read the name, if there is one, and the sizes."""
        given = [value] if isinstance(value, (int, float)) else list(value) if isinstance(value, (list, tuple)) else str(value).split(",")
        first = str(given[0]).strip().lower()
        if first in choices or (not choices and first[:1].isalpha()):  # without choices: a name of the catalogue
            if len(given) == 1 and not alone:
                raise ValueRangeError(f"{flag} is {value}, must be [NAME,]{','.join(names)}")
            return (first, *(read_sizes(given[1:] if len(given) > 2 else given[1], flag) if len(given) > 1 else ()))
        if first[:1].isalpha():
            raise UnknownNameError(flag, str(given[0]), choices)
        return (default, *read_sizes(given if len(given) > 1 else given[0], flag))

    return read


@kind("str", "Sequence[str]", gives="tuple[str, str, str]", metavar="NAME", samples=("bf16",))
def dtypes(value: Any, flag: str) -> tuple[str, str, str]:
    """Read one format for all operands, or three: first operand, second operand, result."""
    given = list_of(one_of(defaults.PRECISIONS))(value, flag)
    if len(given) not in (1, 3):
        raise ValueRangeError(f"{flag} is {value}, must be one format, or three: of A, B and C")
    return (given[0], given[0], given[0]) if len(given) == 1 else (given[0], given[1], given[2])


@kind("str", "Sequence[float]", gives="tuple[float, float]", metavar="A/B", samples=("20/34",))
def rate_pair(value: Any, flag: str) -> tuple[float, float]:
    """Read A/B, the rates of two devices."""
    first, slash, second = value.partition("/") if isinstance(value, str) else (value[0], "/", value[1])
    if not slash:
        raise ValueRangeError(f"{flag} is {value}, must be rates A/B of the two devices, such as 20/34")
    return positive("1")(first, flag), positive("1")(second, flag)


NETWORK = ("nic_bandwidth", "network_share", "oversubscription", "pod_size", "rail_optimised", "in_network_reduction")
LINKS = ("node", "fabric", "scale_up_size", "gpus_per_domain", "topology")
STORAGE = ("disk", "storage_network", "sustained", "access_factor")  # options of ironlaw data
OWN: dict[str, Option] = {
    "model": ESTIMATE["model"].replace(says="a model: every operator of its training step"),
    **group("Operator", {
        "gemm": Option(sizes("M", "K", "N"), "matrix product (M, K) x (K, N)", "M,K,N"),
        "attention": Option(sizes("B", "A", "S", "D"), "flash and standard attention: batch, heads, sequence, head width", "B,A,S,D"),
        "norm": Option(
            named_sizes(NORMS, NORMS[0], "TOKENS", "WIDTH"), "rmsnorm or layernorm: tokens, width", "[NAME,]T,H", decided="rmsnorm"
        ),
        "softmax": Option(sizes("ROWS", "COLUMNS"), "softmax: rows, columns", "R,C"),
        "activation": Option(
            named_sizes((*ACTIVATIONS, "all"), ACTIVATIONS[0], "TOKENS", "WIDTH"),
            f"activation function: tokens, width; {', '.join(ACTIVATIONS)}, or all side by side",
            "NAME,T,W",
        ),
        "optimizer": Option(
            named_sizes((), defaults.OPTIMIZER, "PARAMETERS", alone=True),
            "optimizer step: parameters; with a MODEL the name alone",
            "[NAME,]N",
            decided=defaults.OPTIMIZER,
        ),
        "conv": Option(
            sizes("B", "C", "H", "W", "OUT", "K", more=("STRIDE", "PADDING")),
            "convolution: batch, channels, height, width, output channels, kernel side",
            "B,C,H,W,OUT,K[,S[,P]]", decided="stride 1, padding 0",
        ),
        "shapes": Option(text, "CSV file of operators: columns operator, shape; optional name, dtype, count, measured", "FILE"),
        "census": Option(text, "network as a list of operators: resnet-50, dlrm, unet (of Stable Diffusion 1), or a TOML file"),
    }),
    **group("Operands", {
        "dtype": Option(
            dtypes, "format of the operands, or three: of A, B and C", "NAME[,B,C]", decided="bf16, or fp16 on devices without it"
        ),
        "beta": Option(switch, "add the product to C, which is read too", decided="off"),
        "causal": Option(switch, "causal mask", decided="on"),
        "lengths": Option(list_of(length), "sequence lengths of attention to compare, instead of S", "LIST"),
        "kv_heads": Option(whole, "heads of keys and values", decided="as many as of queries"),
        "on_chip": Option(positive("B"), "on-chip memory of a flash block: prints the published bound of its traffic", "SIZE"),
        "passes": Option(positive("1"), "times a tensor crosses HBM", "X", decided="read once and written once, fused"),
        "batch": Option(list_of(whole), "batches to compare: multiplies rows; with a MODEL, micro-batch sizes", "LIST",
            excludes={"micro_batch_size": "the first are sizes to compare"}),
        "tile": Option(sizes("M", "N"), "tile of a matrix product, for waves", "M,N", decided="128,256"),
    }),
    **group("Collective", {
        "collective": Option(one_of(COLLECTIVES), f"collective: {', '.join(COLLECTIVES)}", "NAME"),
        "size": Option(positive("B"), "bytes of a collective's whole tensor, such as 22.1MB", "SIZE",
            excludes={"model": "with --tiers the weights of MODEL are moved"}),
        "ranks": Option(whole, "ranks of a collective, next to each other"),
        "count": Option(whole, "runs of a collective: also prints the time of all", decided="1"),
    }),
    **group("Measurement", {
        "measured": Option(duration, "measured time of the operator, collective or step: names the roof it is near"),
        "samples_per_second": Option(positive("1"), "with a MODEL or --census: measured samples per second of all accelerators", "X"),
        "tokens_per_second": TOKENS_PER_SECOND.replace(says=f"with a MODEL: {TOKENS_PER_SECOND.says}"),
        "baseline": Option(duration, "known-good time: exit status 1 if --measured is slower by more than --tolerance",
            needs=("measured",)),
        "tolerance": Option(positive("1"), "largest relative difference of two numbers that count as equal", "X", decided="5%"),
        "ratio": Option(list_of(rate_pair), "measured speeds of --on and --against, such as 20/34,20/33: which roof explains them", "A/B"),
        "against": Option(text, "the other accelerator of --ratio", "ACCELERATOR", records="accelerators"),
        "against_bandwidth": Option(positive("B/s"), "HBM bandwidth of --against", "RATE", decided="the catalogue's"),
        "scaling": Option(
            read_sized_times,
            "exponent of measured times over sizes: SIZE:TIME[|TIME..][:ALLOCATED[:RESERVED]],.. or a CSV file"
            " (columns size, time; optional p99, allocated, reserved)",
            "LIST|FILE",
        ),
    }),
    **group("Tiers of memory", {
        "tiers": Option(switch, "tiers of memory and links: capacity, bandwidth, time to move MODEL's weights or --size"),
        **{name: DATA[name] for name in STORAGE},
    }),
    **group("Device", {
        "on": ESTIMATE["on"],
        **{name: ESTIMATE[name] for name in (*LINKS, *NETWORK)},
        "multiprocessors": Option(whole, "multiprocessors of the device", decided="the catalogue's"),
        "peak": Option(positive("FLOP/s"), "peak rate", "RATE", decided="the catalogue's"),
        "bandwidth": Option(positive("B/s"), "HBM bandwidth", "RATE", decided="the catalogue's"),
        "plot": Option(switch, "draw the roofline as text; --plot alone is --plot on", decided="off"),
    }),
}  # fmt: skip
OPTIONS: dict[str, Option] = {**OWN, **taken_by("roofline", OWN)}
STEP = tuple(name for name, option in OPTIONS.items() if name in ESTIMATE and option.read is ESTIMATE[name].read)  # of a MODEL


def _form(name: str, module: str, *takes: str, says: str = "") -> Form:
    """The form that one option asks for, with the module of ``roofline`` that answers it."""
    return Form(says or f"--{name}", when=(name,), takes=takes, module=module)


ROOFS = ("on", "node", "fabric", "framework", "peak", "bandwidth", "plot")
MEASURED = ("measured", "baseline", "tolerance")
OF_LINKS = (*LINKS, *NETWORK)
OPERATOR = (*ROOFS, *MEASURED, "multiprocessors")
ONE_OPERATOR = (*OPERATOR, "dtype", "batch")
_FORMS = (
    _form("tiers", "tiers", *OF_LINKS, "on", "model", "size", "precision", *STORAGE),
    _form("model", "model_step", *STEP, "optimizer", "batch", "samples_per_second", "tokens_per_second", "plot", *MEASURED, says="a MODEL"),
    _form("census", "operator_list", *ROOFS[:-1], *MEASURED, "dtype", "batch", "optimizer", "samples_per_second"),
    _form("gemm", "operator_roofs", *ONE_OPERATOR, "beta", "tile"),
    _form("attention", "operator_roofs", *ONE_OPERATOR, "causal", "kv_heads", "on_chip", "lengths"),
    _form("norm", "operator_roofs", *ONE_OPERATOR, "passes"),
    _form("softmax", "operator_roofs", *ONE_OPERATOR, "passes"),
    _form("activation", "operator_roofs", *ONE_OPERATOR, "passes"),
    _form("optimizer", "operator_roofs", *OPERATOR),
    _form("conv", "operator_roofs", *ONE_OPERATOR, "tile"),
    _form("shapes", "operator_roofs", *ROOFS, "multiprocessors", "dtype", "tile", "causal"),
    _form("collective", "collective", *OF_LINKS, "on", "size", "ranks", "count", *MEASURED),
    _form("ratio", "ratio", "on", "against", "bandwidth", "against_bandwidth", "precision", "tolerance"),
    _form("scaling", "exponent", "tolerance"),
)
FORMS = (
    *_FORMS,
    Form(
        "--on alone",
        takes=(*ROOFS, "dtype"),
        needs=(OneOf(("on",), f"roofline needs MODEL, one of {', '.join(f.says for f in _FORMS if f.says != 'a MODEL')}, or --on alone"),),
        module="device",
    ),
)
OPERATORS = tuple(form.when[0] for form in FORMS if form.module == "operator_roofs" and form.when != ("shapes",))
EXAMPLES = """\
  ironlaw roofline --on h100-sxm
  ironlaw roofline llama-3-8b --tiers --on h100-sxm
  ironlaw roofline --gemm 2160,5120,5120 --on h200-sxm --measured 150us
  ironlaw roofline --attention 1,1,4096,64 --on a100-sxm-80gb --causal off
  ironlaw roofline gpt2-xl --on v100-sxm-32gb --gpus 8
  ironlaw roofline --collective all_reduce --size 22.1184MB --ranks 2 --on h200-sxm --measured 0.113ms
  ironlaw roofline --ratio 20/34,20/33 --on h200-sxm --against b200-sxm
  ironlaw roofline --scaling 1:50ms,1.1:55ms,1.5:75ms
"""
