"""The loads of experts, as a question gives them: a named shape, or a table from a list or a file; checked against the model.

A file has one number for each expert, for all layers or by layer: JSON (a list, a list of lists, or an object whose ``loads`` is one) or
CSV (a line a layer, one column with a line an expert, or lines of ``layer,expert,load`` under that heading). Numbers are counts of tokens
or shares; every layer is divided by its sum.

A token visits an expert at most once, so that an expert of a mixture with top-k routing gets at most one in k of the rows: measured loads
above that are refused, and a shape that passes it is cut there, the rest of the experts taking what is cut off.
"""

from __future__ import annotations

import math
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from ironlaw import units
from ironlaw.catalog import load
from ironlaw.catalog.model import Model
from ironlaw.errors import InputError, QuestionError, UnknownNameError, ValueRangeError
from ironlaw.estimate.layer.counts import visited
from ironlaw.estimate.layer.kinds import kinds
from ironlaw.estimate.layer.uneven import ExpertLoad, Loads
from ironlaw.files import is_there, read_csv, read_json
from ironlaw.question import defaults
from ironlaw.question.asked import Asked

FLAG = "--expert-load"
FILE_LIMIT = 16_000_000  # bytes: a thousand layers of a thousand experts
SEED = 0  # of the order of experts in a named shape, and of the draws of dirichlet: the same question has the same answer
_LARGEST = 1e18  # tokens
LOAD_NAMES = ("load", "tokens", "count", "share")  # headings of a column of loads


def bind_expert_load(asked: Asked, model: Model, folders: tuple[str, ...] = ()) -> ExpertLoad | None:
    """The loads that a question gives; None where it gives none."""
    given = asked.expert_load
    if given is None:
        if model.num_experts and asked.expert_imbalance > (most := model.num_experts / visited(model)):
            raise ValueRangeError(f"--expert-imbalance {asked.expert_imbalance:g}: must be from 1 to {most:g}{_reason(model)}")
        return None
    if not model.num_experts:
        raise QuestionError(f"{FLAG}: {model.name} has no experts; leave the option out")
    layers = sum(kind.count for kind in kinds(model) if kind.routed)
    chosen = float(model.num_experts), min(visited(model), float(model.num_experts))
    shares, described = table_of(given, int(model.num_experts), int(layers), model.name, folders, chosen[1])
    how, _, count = asked.expert_placement.partition(":")
    noise = defaults.ROUTING_NOISE if asked.routing_noise is None else asked.routing_noise
    others = (float(layers), noise, asked.load_spread, how, float(count or 0.0), described)
    return ExpertLoad(_loads(shares.tobytes(), shares.shape, *chosen, *others))


def _reason(model: Model) -> str:
    """Why no expert has more than a multiple of the mean."""
    return f": a token of {model.name} visits {visited(model):g} of {model.num_experts} experts, each at most once"


@lru_cache(64)
def _loads(content: bytes, shape: tuple[int, int], *others: Any) -> Loads:
    """Loads that are the same object wherever they have the same content, so that what follows from them is found again."""
    return Loads(np.frombuffer(content).reshape(shape), *others)


def table_of(
    given: Any, experts: int, layers: int, name: str, folders: tuple[str, ...] = (), visited_experts: float = 1.0
) -> tuple[Any, str]:
    """The shares of a model's experts, a row for each layer or one for all, and words that describe them."""
    most = 1.0 / visited_experts
    if not isinstance(given, str):
        return _possible(_checked(given, experts, layers, name, FLAG), most, name, FLAG), "given"
    word, colon, number = given.partition(":")
    if word.lower() in SHAPES and (colon or word.lower() == "uniform"):
        return _cut(_named(word.lower(), number, experts, layers, experts * most), most, given)
    published, path = load.names("expert-loads", folders), Path(given)
    if given in published:
        return _cut(_published(given, experts, layers, folders), most, given)
    if not is_there(path, follow=False):
        raise UnknownNameError(FLAG, given, (*defaults.EXPERT_LOADS, *published))
    return _possible(_checked(_rows_of_file(path, experts, name), experts, layers, name, str(path)), most, name, str(path)), path.name


def _possible(shares: Any, most: float, name: str, where: str) -> Any:
    """Shares of which none is above that of an expert that every token visits."""
    layer, expert = (int(at) for at in np.unravel_index(int(np.argmax(shares)), shares.shape))
    largest = float(shares[layer, expert])
    if largest > most * (1.0 + 1e-9):
        times = f"{largest * shares.shape[1]:.4g} times the mean, at most {most * shares.shape[1]:.4g} is possible"
        raise ValueRangeError(
            f"{where}: layer {layer}, expert {expert} has {largest:.4g} of the rows, but a token of {name} visits {1.0 / most:g} different"
            f" experts, so that one gets at most {most:.4g} of them ({times})"
        )
    return shares


def _cut(shares: Any, most: float, given: str) -> tuple[Any, str]:
    """Shares of a shape, cut where every token visits an expert, and its words; the other experts take what is cut off, in proportion.

    >>> _cut(np.array([[0.6, 0.3, 0.1]]), 0.5, "zipf:2")[0].tolist()
    [[0.5, 0.375, 0.125]]
    """
    even = 1.0 / shares.shape[1]
    if float(shares.max()) <= most * (1.0 + 1e-9):
        return shares, given
    if most <= even * (1.0 + 1e-9):
        return np.full(shares.shape, even), f"{given}, even: every token visits every expert"
    full = np.zeros(shares.shape, dtype=bool)
    cut = shares
    while np.any(cut > most * (1.0 + 1e-12)):  # at most once an expert: each time at least one more is full
        full |= cut > most * (1.0 + 1e-12)
        left = np.where(full, 0.0, np.maximum(shares, 1e-300))
        room = 1.0 - most * full.sum(axis=1, keepdims=True)
        cut = np.where(full, most, left * (room / left.sum(axis=1, keepdims=True)))
    return cut, f"{given}, cut at {most / even:.4g} times the mean"


def _checked(rows: Any, experts: int, layers: int, name: str, where: str) -> Any:
    """A table of loads as shares; an error names what the model has."""
    listed = [isinstance(row, (list, tuple)) for row in rows]
    if not listed or any(listed) != all(listed):
        raise ValueRangeError(f"{where}: a list of one number for each expert, or a list of such lists, one for each layer")
    table: list[Any] = list(rows) if listed[0] else [list(rows)]
    for index, row in enumerate(table):
        if len(row) != experts:
            raise ValueRangeError(f"{where}: layer {index} has {len(row)} loads, {name} has {experts} experts in a layer")
    if len(table) not in (1, layers):
        raise ValueRangeError(f"{where}: loads of {len(table)} layers, {name} has {layers} routed layers: give 1 or {layers}")
    values = np.array([[_number(value, where) for value in row] for row in table])
    sums = values.sum(axis=1, keepdims=True)
    if not np.all(sums > 0):
        raise ValueRangeError(f"{where}: layer {int(np.argmin(sums))} has no load at all: a layer needs at least one expert with tokens")
    return values / sums


def _number(value: Any, where: str) -> float:
    """A load: a number from 0."""
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not 0.0 <= number <= _LARGEST:
        raise ValueRangeError(f"{where}: a load is {units.shorten(value)}, must be a number from 0 to {_LARGEST:g}")
    return number


def _rows_of_file(path: Path, experts: int, name: str) -> list[Any]:
    """The rows of a file of loads for a model with so many experts in a layer."""
    if path.suffix.lower() == ".json":
        tree = read_json(path, "a file of expert loads", FILE_LIMIT, deepest=4)
        tree = tree.get("loads") if isinstance(tree, dict) else tree
        if not isinstance(tree, list):
            raise InputError(f"{path}: no list of loads: a list for each layer, or an object with the key loads")
        return tree
    lines = [row for _, row in read_csv(path, "a file of expert loads", FILE_LIMIT) if any(row)]
    heading = [cell.strip().lower() for cell in lines[0]] if lines else []
    if "expert" in heading:
        return _by_name(path, heading, lines[1:], experts, name)
    rows = [list(row) for row in lines]
    if len(rows) > 1 and all(len(row) == 1 for row in rows):  # a line an expert, perhaps under a heading
        return [row[0] for row in (rows[1:] if heading[0] in LOAD_NAMES else rows)]
    return rows


def _by_name(path: Path, heading: list[str], lines: list[list[str]], experts: int, name: str) -> list[list[float]]:
    """Loads from lines that name a layer and an expert."""
    load = next((name for name in LOAD_NAMES if name in heading), None)
    if load is None:
        raise InputError(f"{path}: no column load, tokens, count or share beside expert")
    places = [heading.index(name) if name in heading else -1 for name in ("layer", "expert", load)]
    rows: dict[str, dict[int, float]] = {}
    for at, line in enumerate(lines, 2):
        if len(line) != len(heading):
            raise InputError(f"{path}: line {at} has {len(line)} cells, the heading has {len(heading)}")
        layer, expert, value = (line[place].strip() if place >= 0 else "" for place in places)
        if not expert.isdecimal() or len(expert) > 6 or int(expert) in rows.setdefault(layer, {}):
            raise InputError(f"{path}: line {at}: expert {units.shorten(expert)} is no number from 0, or is named twice in its layer")
        if int(expert) >= experts:
            raise ValueRangeError(f"{path}: line {at}: expert {expert}: {name} has {experts} experts in a layer, numbered from 0")
        rows[layer][int(expert)] = _number(value, f"{path}, line {at}")
    return [[row.get(expert, 0.0) for expert in range(max(row) + 1)] for row in rows.values()]


# --- named shapes: the loads of a layer's experts, the busiest first


def _uniform(experts: int, number: float) -> Any:
    """All experts alike."""
    del number
    return np.ones(experts)


def _zipf(experts: int, exponent: float) -> Any:
    """The load of the r-th expert is ``r^-exponent``."""
    return np.arange(1.0, experts + 1.0) ** -exponent


def log_normal(experts: int, sigma: float) -> Any:
    """Loads whose logarithms are the quantiles of a normal distribution; the largest is 1."""
    from statistics import NormalDist  # a question without such loads does not pay for it

    z = np.array([NormalDist().inv_cdf((rank + 0.5) / experts) for rank in range(experts)])[::-1]
    return np.exp(sigma * (z - z[0]))


def _sigma_of(experts: int, busiest: float) -> float:
    """The sigma of log-normal loads of which the largest is ``busiest`` times the mean, by halving."""
    low, high = 0.0, 200.0
    for _ in range(80):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if experts / log_normal(experts, middle).sum() < busiest else (low, middle)
    return low


def _max_violation(experts: int, most: float) -> Any:
    """Log-normal loads of which the largest is ``1 + most`` times the mean."""
    return log_normal(experts, _sigma_of(experts, 1.0 + most))


def _deviating(experts: int, deviation: float) -> Any:
    """Log-normal loads with this deviation over their mean."""
    return log_normal(experts, math.sqrt(math.log1p(deviation**2)))


SHAPES = {
    "uniform": _uniform,
    "zipf": _zipf,
    "maxvio": _max_violation,
    "cv": _deviating,
    "dirichlet": None,
}  # dirichlet is drawn anew for each layer


def _named(word: str, number: str, experts: int, layers: int, busiest: float) -> Any:
    """The shares of a named shape by layer, with the experts in a random order that is always the same.

    ``busiest``: rows of an expert that every token visits, over the mean.
    """
    parameter = 0.0 if word == "uniform" else units.parse(number, "1", f"{FLAG} {word}")
    most = {"maxvio": busiest - 1.0, "zipf": 20.0, "cv": 100.0}.get(word, 1e6)
    if word == "uniform" and number:
        raise ValueRangeError(f"{FLAG} uniform has no number, got {units.shorten(number)}")
    if not (0.0 <= parameter <= most) or (word == "dirichlet" and parameter < 1e-3):
        least = "0.001" if word == "dirichlet" else "0"
        why = f": an expert that every token visits has {busiest:.4g} times the mean" if word == "maxvio" else ""
        raise ValueRangeError(f"{FLAG} {word}:{units.shorten(number)}, must be from {least} to {most:g}{why}")
    if word == "uniform":
        return np.full((1, experts), 1.0 / experts)
    shape = SHAPES[word]
    if shape is None:
        return np.random.default_rng(SEED).dirichlet(np.full(experts, parameter), size=layers)
    return _shuffled(shape(experts, parameter), layers)


def _published(name: str, experts: int, layers: int, folders: tuple[str, ...]) -> Any:
    """The shares of a published run: log-normal loads as wide as those whose busiest expert it reports, for this number of experts."""
    found = load.record("expert-loads", name, folders)
    return _shuffled(log_normal(experts, _sigma_of(int(found.experts.value), found.busiest.value)), layers)


def _shuffled(loads: Any, layers: int) -> Any:
    """Shares by layer, each layer in a random order of its own that is always the same."""
    random = np.random.default_rng(SEED)
    return np.stack([random.permutation(loads / loads.sum()) for _ in range(layers)])
