"""The options of a search: the options of an estimate, the axes to vary, the objective, and the limits to meet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ironlaw.errors import (
    MissingOptionError,
    QuestionError,
    UnknownNameError,
    UnknownOptionError,
    ValueRangeError,
    nearest_names,
    speaking_of,
)
from ironlaw.estimate.planner.space import MESH, VARIANTS, Space, axis_value, read_fixed, read_forbidden, read_space
from ironlaw.question import defaults, synonyms
from ironlaw.question.asked import MEANING, Asked, asked_of
from ironlaw.question.defaults import OFFLOADS, OVERLAPS
from ironlaw.question.forms import check_pairs
from ironlaw.question.kinds import kind
from ironlaw.question.options import OPTIONS, Option, flag
from ironlaw.question.read import is_column, read_options
from ironlaw.question.readers import amount, days, money, one_of, positive, price, switch, text, whole
from ironlaw.question.words import PerParameter

GOALS = ("time", "cost", "energy", "carbon", "gpus")
FRONTS = ("time", "cost", "energy", "carbon", "gpus", "memory")
MOST_GPUS = 1_000_000.0
MOST_TOP = 1000.0


@kind("int", "str", "Sequence[int]", gives="tuple[Any, ...]", least=1, most=MOST_GPUS, samples=("64..256",))
def counts(value: Any, flag: str) -> tuple[float, ...] | tuple[float, float, str]:
    """Read ``1024``; ``256,512,1024``; or ``64..4096`` as its two ends and "range"."""
    if is_column(value):
        if not len(value):
            raise ValueRangeError(f"{flag} is {value!r}, must be one or more counts")
        return tuple(dict.fromkeys(_check_count(v, flag) for v in value))
    low, dots, high = str(value).partition("..")
    if dots:
        ends = _check_count(low, flag), _check_count(high, flag)
        if ends[0] > ends[1]:
            raise ValueRangeError(f"{flag} is {value}: the range ends before it begins")
        return (*ends, "range")
    return tuple(dict.fromkeys(_check_count(v, flag) for v in str(value).split(",")))


def _check_count(value: Any, flag: str) -> float:
    """Refuse a number of accelerators above the limit."""
    number = whole(str(value).strip() if isinstance(value, str) else value, flag)
    if number > MOST_GPUS:
        raise ValueRangeError(f"{flag} is {value}, must be at most {MOST_GPUS:,.0f} accelerators")
    return number


def several(choices: tuple[str, ...]) -> Any:
    """Make a reader of a comma list of names from ``choices``."""

    @kind("str", "Sequence[str]", gives="tuple[str, ...]", metavar="LIST", samples=choices)
    def read(value: Any, flag: str) -> tuple[str, ...]:
        items = value if isinstance(value, (list, tuple)) else str(value).split(",")
        for item in items:
            if item.strip() not in choices:
                raise UnknownNameError(flag, item.strip(), choices)
        return tuple(dict.fromkeys(item.strip() for item in items))

    return read


@kind("str", "Sequence[str]", gives="tuple[str, ...]", metavar="LIST")
def names(value: Any, flag: str) -> tuple[str, ...]:
    """Read a comma list of names."""
    items = value if isinstance(value, (list, tuple)) else str(value).split(",")
    read = tuple(dict.fromkeys(text(item, flag) for item in items))
    if not read:
        raise ValueRangeError(f"{flag} is {value!r}, must be one or more names")
    return read


@kind("str", "Mapping[str, Any]", gives="dict[str, float]", metavar="LIST")
def quotas(value: Any, flag: str) -> dict[str, float]:
    """Read ``h100-sxm=512,a100-sxm-80gb=2048`` as accelerators by name."""
    if isinstance(value, Mapping):
        return {str(name): _check_count(number, flag) for name, number in value.items()}
    quota = {}
    for item in str(value).split(","):
        name, equals, number = item.partition("=")
        if not equals:
            raise QuestionError(f"{flag}: {item.strip()!r} is not ACCELERATOR=N")
        quota[name.strip()] = _check_count(number, flag)
    return quota


@kind("float", "str", "Mapping[str, Any]", gives="Any", unit="USD/h", metavar="PRICE", samples=("2.5",))
def prices(value: Any, flag: str) -> Any:
    """Read a price for all accelerators, or ``h100-sxm=2.5,a100-sxm-80gb=1.2``."""
    if isinstance(value, Mapping):
        return {str(name): price(item, flag) for name, item in value.items()}
    if "=" not in str(value):
        return price(value, flag)
    pairs = [item.partition("=") for item in str(value).split(",")]
    return {name.strip(): price(item.strip(), flag) for name, _, item in pairs}


@kind("str", "Mapping[str, Any]", gives="str", metavar="LIST")
def clauses(value: Any, flag: str) -> str:
    """Read ``tp=8,zero=1``, or the same as a table."""
    return ",".join(f"{axis}={item}" for axis, item in value.items()) if isinstance(value, Mapping) else text(value, flag)


@kind("int", "str", least=1, most=MOST_TOP, samples=("3",))
def how_many(value: Any, flag: str) -> float:
    """Read the number of plans to list."""
    number = whole(value, flag)
    if number > MOST_TOP:
        raise ValueRangeError(f"{flag} is {value}, must be at most {MOST_TOP:g}")
    return number


def each(axis: str) -> Any:
    """Make a reader of a comma list of values of an option."""

    def read(value: Any, flag: str) -> tuple[Any, ...]:
        return tuple(dict.fromkeys(OPTIONS[axis].read(item, flag) for item in names(value, flag)))

    return read


LISTED = {  # axes whose option takes a comma list in a search: its values are compared
    "framework": names, "precision": each("precision"), "cuda_graphs": each("cuda_graphs"), "gradient_dtype": each("gradient_dtype"),
    "weights_dtype": each("weights_dtype"),
}  # fmt: skip
COUNTS = "{:g}..{:g}".format(*defaults.COUNTS)
OWN: dict[str, Option] = {
    "on": Option(names, "accelerators to compare, by catalogue name", "A[,B]", records="accelerators"),
    "gpus": Option(counts, "total accelerators: N, a list, or LO..HI", "N|LO..HI", decided=f"with a limit to meet {COUNTS}"),
    "budget": Option(money, "highest cost of the run, such as 2M", needs=("tokens",)),
    "deadline": Option(days, "longest time of the run, in days", needs=("tokens",)),
    "target_tokens_per_second": Option(amount, "lowest tokens per second", "R"),
    "minimize": Option(one_of(GOALS), f"objective: {', '.join(GOALS)}", "GOAL", decided=f"{defaults.GOAL}; gpus if --gpus is open"),
    "pareto": Option(several(FRONTS), f"objectives of the Pareto front: {', '.join(FRONTS)}", "LIST", decided=",".join(defaults.FRONT)),
    "top": Option(how_many, "list the K best plans", "K", decided=f"the best plans of {defaults.PLANS} kinds"),
    "fix": Option(clauses, "fix axes: AXIS=VALUE,...", "LIST"),
    "forbid": Option(text, "exclude plans: AXIS=VALUE or AXIS>VALUE,...", "LIST"),
    "quota": Option(quotas, "most accelerators of each kind: A=N,...", "LIST"),
    "price": Option(prices, "USD per accelerator hour, provider/term, or A=2.5,B=1.2", "PRICE", decided="newest on-demand price"),
    "failures": Option(switch, "include failures in time and cost", decided="on"),
    "time_limit": Option(positive("s"), "seconds to search, then list the best plans so far", "S", decided=f"{defaults.TIME_LIMIT:g}"),
}  # fmt: skip
AXIS_OPTIONS = (*MESH, "recompute", "zero", "sp", *VARIANTS)  # options of an estimate that fix an axis of the search


@dataclass(frozen=True)
class Question:
    """The checked options of a search."""

    asked: Asked  # options of an estimate, without accelerator, count and axes
    on: tuple[str, ...]
    gpus: tuple[Any, ...]  # counts, or (low, high, "range")
    space: Space
    given: dict[str, Any]  # as the user gave them, for the assumptions
    budget: float | None = None
    deadline: float | None = None
    target: float | None = None
    minimize: str = defaults.GOAL
    pareto: tuple[str, ...] = defaults.FRONT
    top: int | None = None
    quota: Mapping[str, float] | None = None
    failures: bool = True
    time_limit: float = defaults.TIME_LIMIT
    prices: Mapping[str, Any] | None = None  # by accelerator


def read_question(asked: Mapping[str, Any], where: str = "", folders: tuple[str, ...] = ()) -> Question:
    """Read the options of a search. Unknown names and wrong values are errors that name the option and the file."""
    search_options, estimate_options, given = {}, {}, {}
    for raw, value in synonyms.resolve(asked, {**OWN, **OPTIONS}, lambda name: flag(name, where)).items():
        name = raw.replace("-", "_")
        if value is None:
            continue
        given[name] = value
        if name in OWN:
            with speaking_of(name, value):
                search_options[name] = OWN[name].read(value, flag(name, where))
        elif name in OPTIONS:
            estimate_options[name] = value
        else:
            near = nearest_names(name, {**OWN, **OPTIONS})
            hint = ", ".join(near or OWN)
            raise UnknownOptionError(f"unknown option {raw!r}{' in ' + where if where else ''}; nearest: {hint}", option=raw, nearest=near)
    for name in ("model", "on"):
        if name not in given:
            raise MissingOptionError(f"missing {MEANING[name]}", option=name)
    check_pairs(given, {**OPTIONS, **OWN})
    listed = {axis: LISTED[axis](estimate_options.pop(axis), flag(axis, where)) for axis in LISTED if axis in estimate_options}
    estimate_options |= {axis: values[0] for axis, values in listed.items() if len(values) == 1}
    options, fixed = _split_options(read_options(estimate_options, where))
    if isinstance(options.get("tokens"), PerParameter):
        from ironlaw.estimate.bind.model import with_tokens  # numpy, which the help of the verb does without

        options = with_tokens(options, folders)
    prices = search_options.get("price")
    if prices is not None and not isinstance(prices, dict):
        options["price"] = prices
    several_values = {axis: values for axis, values in listed.items() if len(values) > 1}
    space = read_space(options.get("space")).narrowed(
        {**fixed, **(read_fixed(search_options["fix"]) if "fix" in search_options else {})},
        read_forbidden(search_options["forbid"]) if "forbid" in search_options else (),
    )
    space = replace(space, values={**space.values, **several_values}, given=space.given | several_values.keys())
    same = ("budget", "deadline", "pareto", "quota", "failures", "time_limit")  # options that are fields of the question
    question = Question(
        asked=asked_of(options),
        on=search_options["on"],
        gpus=_bind_counts(search_options),
        space=space,
        given=given,
        target=search_options.get("target_tokens_per_second"),
        minimize=search_options.get("minimize") or _usual_goal(search_options),
        top=int(search_options["top"]) if "top" in search_options else None,
        prices=prices if isinstance(prices, dict) else None,
        **{name: search_options[name] for name in same if name in search_options},
    )
    _refuse(question)
    return question


def _usual_goal(search_options: dict[str, Any]) -> str:
    """The objective by default: time; or the fewest accelerators, if their number is open and a deadline or a rate is given."""
    open_count = "gpus" not in search_options or search_options["gpus"][-1] == "range"
    return "gpus" if open_count and {"deadline", "target_tokens_per_second"} & set(search_options) else defaults.GOAL


def _split_options(options: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split options of an estimate: options that fix no axis of the search, and the axes that the other options fix."""
    kept_options, fixed = {}, {}
    for name, value in options.items():
        if OPTIONS[name].column and is_column(value):
            raise QuestionError(f"{flag(name)} has many values: list them in a space file (--space)")
        if name in VARIANTS:
            fixed[name] = value
        elif name in AXIS_OPTIONS and value is not None:
            fixed[name] = float(value) if isinstance(value, (bool, float)) else value
        elif name in ("overlap", "offload"):
            names = OVERLAPS if name == "overlap" else OFFLOADS
            fixed |= {f"{name}_{n.replace('-', '_')}": float(n in value) for n in names}
        else:
            kept_options[name] = value
    return kept_options, {axis: axis_value(axis, value, axis) if isinstance(value, float) else value for axis, value in fixed.items()}


def _bind_counts(search_options: dict[str, Any]) -> tuple[Any, ...]:
    """The numbers of accelerators to try: those given, or a range."""
    if "gpus" in search_options:
        return tuple(search_options["gpus"])
    if not {"budget", "deadline", "target_tokens_per_second"} & set(search_options):
        raise MissingOptionError(
            "missing option --gpus N (or LO..HI), or a limit to size for: --budget, --deadline, --target-tokens-per-second"
        )
    return (*defaults.COUNTS, "range")


def _refuse(question: Question) -> None:
    """Refuse options that contradict each other."""
    for name in question.quota or ():
        if name not in question.on:
            raise QuestionError(f"--quota names {name}, which --on does not list: {', '.join(question.on)}")
    if strange := next((name for name in question.prices or () if name not in question.on), None):
        raise QuestionError(f"--price names {strange}, which --on does not list: {', '.join(question.on)}")
