"""The loads of experts, as a question gives them: a named shape, or a table from a list or a file; checked against the model.

A file has one number for each expert, for all layers or by layer: JSON (a list, a list of lists, or an object whose ``loads`` is one) or
CSV (a line a layer, or lines of ``layer,expert,load`` under that heading). Numbers are counts of tokens or shares; every layer is
divided by its sum.
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


def bind_expert_load(asked: Asked, model: Model, folders: tuple[str, ...] = ()) -> ExpertLoad | None:
    """The loads that a question gives; None where it gives none."""
    given = asked.expert_load
    if given is None:
        for name in ("expert_placement", "load_spread", "routing_noise"):
            if name in asked.given:
                raise QuestionError(f"--{name.replace('_', '-')} has no effect without {FLAG}, which says how loaded the experts are")
        return None
    if not model.num_experts:
        raise QuestionError(f"{FLAG}: {model.name} has no experts; leave the option out")
    if "expert_imbalance" in asked.given:
        raise QuestionError(f"give --expert-imbalance, one number, or {FLAG}, the loads it follows from; not both")
    layers = sum(kind.count for kind in kinds(model) if kind.routed)
    shares, described = table_of(given, int(model.num_experts), int(layers), model.name, folders)
    how, _, count = asked.expert_placement.partition(":")
    noise = defaults.ROUTING_NOISE if asked.routing_noise is None else asked.routing_noise
    chosen = float(model.num_experts), min(visited(model), float(model.num_experts))
    others = (float(layers), noise, asked.load_spread, how, float(count or 0.0), described)
    return ExpertLoad(_loads(shares.tobytes(), shares.shape, *chosen, *others))


@lru_cache(64)
def _loads(content: bytes, shape: tuple[int, int], *others: Any) -> Loads:
    """Loads that are the same object wherever they have the same content, so that what follows from them is found again."""
    return Loads(np.frombuffer(content).reshape(shape), *others)


def table_of(given: Any, experts: int, layers: int, name: str, folders: tuple[str, ...] = ()) -> tuple[Any, str]:
    """The shares of a model's experts, a row for each layer or one for all, and words that describe them."""
    if not isinstance(given, str):
        return _checked(given, experts, layers, name, FLAG), "given"
    word, colon, number = given.partition(":")
    if word.lower() in SHAPES and (colon or word.lower() == "uniform"):
        return _named(word.lower(), number, experts, layers), given
    published, path = load.names("expert-loads", folders), Path(given)
    if given in published:
        return _published(given, experts, layers, folders), given
    if not is_there(path, follow=False):
        raise UnknownNameError(FLAG, given, (*defaults.EXPERT_LOADS, *published))
    return _checked(_rows_of_file(path), experts, layers, name, str(path)), path.name


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
    except (TypeError, ValueError):
        number = math.nan
    if not 0.0 <= number <= _LARGEST:
        raise ValueRangeError(f"{where}: a load is {units.shorten(value)}, must be a number from 0 to {_LARGEST:g}")
    return number


def _rows_of_file(path: Path) -> list[Any]:
    """The rows of a file of loads."""
    if path.suffix.lower() == ".json":
        tree = read_json(path, "a file of expert loads", FILE_LIMIT, deepest=4)
        tree = tree.get("loads") if isinstance(tree, dict) else tree
        if not isinstance(tree, list):
            raise InputError(f"{path}: no list of loads: a list for each layer, or an object with the key loads")
        return tree
    lines = [row for _, row in read_csv(path, "a file of expert loads", FILE_LIMIT) if any(row)]
    heading = [cell.strip().lower() for cell in lines[0]] if lines else []
    if "expert" not in heading:
        return [list(row) for row in lines]
    return _by_name(path, heading, lines[1:])


def _by_name(path: Path, heading: list[str], lines: list[list[str]]) -> list[list[float]]:
    """Loads from lines that name a layer and an expert."""
    load = next((name for name in ("load", "tokens", "count", "share") if name in heading), None)
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


def _named(word: str, number: str, experts: int, layers: int) -> Any:
    """The shares of a named shape by layer, with the experts in a random order that is always the same."""
    parameter = 0.0 if word == "uniform" else units.parse(number, "1", f"{FLAG} {word}")
    most = {"maxvio": experts - 1.0, "zipf": 20.0, "cv": 100.0}.get(word, 1e6)
    if word == "uniform" and number:
        raise ValueRangeError(f"{FLAG} uniform has no number, got {units.shorten(number)}")
    if not (0.0 <= parameter <= most) or (word == "dirichlet" and parameter < 1e-3):
        raise ValueRangeError(f"{FLAG} {word}:{units.shorten(number)}, must be from {'0.001' if word == 'dirichlet' else '0'} to {most:g}")
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
