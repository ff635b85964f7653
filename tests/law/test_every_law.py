"""One test for all laws: whoever adds a function to a module of ``MODULES`` has written its test.

What is checked is read from the docstring: the unit and domain of every parameter, the unit of the answer, and

    Where: a > b; c >= d          relations between parameters that belong to the domain
    Factor [unit]: text           the unit of the constant a law multiplies by (2 FLOP for each multiply-add)
    Offset [unit, ...]: text      units that scaling cannot test, because the law adds a constant or mixes powers of them
"""

from __future__ import annotations

import doctest
import inspect
import re
import warnings
from pathlib import Path

import numpy as np
import pytest

import paths
from ironlaw.law import (
    activations,
    batches,
    collectives,
    compressed,
    cost,
    dataloading,
    energy,
    exchanges,
    experts,
    fabrics,
    flops,
    formats,
    goodput,
    inference,
    kernels,
    lengths,
    masks,
    mixers,
    overlap,
    ownership,
    parameters,
    pipeline,
    pods,
    residuals,
    run,
    scaling,
    scans,
    states,
    three_roof,
    torus,
    traffic,
    wide_area,
)

MODULES = (
    activations,
    batches,
    collectives,
    compressed,
    cost,
    dataloading,
    energy,
    exchanges,
    experts,
    fabrics,
    flops,
    formats,
    goodput,
    inference,
    kernels,
    lengths,
    masks,
    mixers,
    overlap,
    ownership,
    parameters,
    pipeline,
    pods,
    residuals,
    run,
    scaling,
    scans,
    states,
    three_roof,
    torus,
    traffic,
    wide_area,
)
LAWS = {
    f"{module.__name__.rsplit('.', 1)[1]}.{name}": law
    for module in MODULES
    for name, law in inspect.getmembers(module, inspect.isfunction)
    if law.__module__ == module.__name__ and not name.startswith("_")
}
NOTATION = paths.ROOT / "docs" / "notation.md"
BASES = ("B", "s", "FLOP", "token", "USD", "kg", "J", "h", "m")
DOMAINS = ("> 0", ">= 0", ">= 1", "in [0, 1]", "0 or 1", "any")
ROWS = 64


class Described:
    """What a law's docstring declares."""

    def __init__(self, name, law):
        self.name, self.law, self.text = name, law, inspect.getdoc(law) or ""
        self.signature = list(inspect.signature(law).parameters)
        self.units, self.domains = {}, {}
        block = self.text.partition("\nParameters")[2].partition("\nReturns")[0]
        for found in re.finditer(r"^ +(\w+) \[([^\]]+)\]:?[ ]*(.*)$", block, re.MULTILINE):
            parameter, unit, rest = found.groups()
            self.units[parameter] = unit
            self.domains[parameter] = _domain(rest)
        returns = re.search(r"^Returns[^\[\n]*\[([^\]]+)\]", self.text, re.MULTILINE)
        self.unit = returns[1] if returns else None
        factor = re.search(r"^Factor \[([^\]]+)\]:", self.text, re.MULTILINE)
        self.factor = factor[1] if factor else "1"
        offset = re.search(r"^Offset \[([^\]]+)\]:", self.text, re.MULTILINE)
        self.offset = offset[1].split(", ") if offset else []
        where = re.search(r"^Where: (.*)$", self.text, re.MULTILINE)
        self.relations = where[1].split("; ") if where else []


def _domain(rest):
    for domain in DOMAINS:
        if rest == domain or rest.endswith(", " + domain) or rest.startswith((domain + " ", domain + ":")):
            return domain
    return None


def dimensions(unit):
    """Exponents of the base units; a watt is a joule a second, a parameter is a count.

    >>> dimensions("USD/s") == {"USD": 1, "s": -1}
    True
    """
    exponents = dict.fromkeys(BASES, 0)
    for position, symbol in enumerate(unit.split("/")):
        sign = 1 if position == 0 else -1
        for base, power in {"W": {"J": 1, "s": -1}, "1": {}, "parameter": {}, "bool": {}}.get(symbol, {symbol: 1}).items():
            exponents[base] += sign * power
    return {base: power for base, power in exponents.items() if power}


def draw(described, rows=ROWS, whole=False, seed=20):
    """Random rows on the domain, some on its edges; ``whole`` draws whole numbers, large ones among them."""
    rng = np.random.default_rng([seed, *described.name.encode()])
    kept = {parameter: np.empty(0) for parameter in described.signature}
    for _ in range(40):
        columns = {p: _column(rng, described.domains[p], 4 * rows, whole) for p in described.signature}
        fits = np.ones(4 * rows, dtype=bool)
        for relation in described.relations:
            fits &= _holds(relation, columns)
        kept = {p: np.concatenate([kept[p], columns[p][fits]])[:rows] for p in described.signature}
    assert all(len(column) == rows for column in kept.values()), f"{described.name}: too few rows fulfil {described.relations}"
    return kept


def _column(rng, domain, rows, whole):
    if domain == "0 or 1":
        return rng.integers(0, 2, rows).astype(float)
    if domain == "in [0, 1]":
        return rng.integers(0, 2, rows).astype(float) if whole else rng.uniform(0.0, 1.0, rows)
    if whole:
        small, large = rng.integers(1, 65, rows), rng.integers(2**31, 2**33, rows)
        value = np.where(rng.uniform(size=rows) < 0.8, small, large).astype(float)
    else:
        value = 10.0 ** rng.uniform(-3.0, 4.0, rows)
    if domain == ">= 1":
        value = np.where(rng.uniform(size=rows) < 0.1, 1.0, np.floor(value) + 1.0 if whole else value + 1.0)
    if domain == ">= 0":
        value = np.where(rng.uniform(size=rows) < 0.05, 0.0, value)
    if domain == "any":
        value = value * rng.choice([-1.0, 0.0, 1.0], rows)
    return value


def _holds(relation, columns):
    left, sign, right = relation.split(" ")
    compare = {">": np.greater, ">=": np.greater_equal, "<": np.less, "<=": np.less_equal}[sign]
    return compare(columns[left], columns[right])


def identical(one, other):
    """The same bits, a nan equal to any nan."""
    one, other = np.asarray(one), np.asarray(other)
    return one.shape == other.shape and one.dtype == other.dtype and np.array_equal(one, other, equal_nan=one.dtype.kind == "f")


@pytest.fixture(autouse=True)
def silence_is_part_of_the_contract():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@pytest.fixture(params=sorted(LAWS))
def law(request):
    return Described(request.param, LAWS[request.param])


def test_docstring_is_complete(law):
    first = law.text.split("\n", 1)[0]
    assert "``" in first, "the first line says what it is and gives the formula in double backticks"
    assert list(law.units) == law.signature, "Parameters lists each parameter, in order, as `name [unit]: text, domain`"
    assert None not in law.domains.values(), f"domains are one of {DOMAINS}: {law.domains}"
    assert law.unit is not None, "Returns [unit]: text"
    for section in ("Source:", "Leaves out:", ">>> "):
        assert f"\n{section}" in law.text, section
    for unit in (law.unit, law.factor, *law.units.values(), *law.offset):
        assert set(dimensions(unit)) <= set(BASES), unit


def test_every_parameter_stands_in_the_notation(law):
    rows = re.findall(r"^\| `(\w+)` \|[^|]*\| ([^|]+) \|$", NOTATION.read_text(encoding="utf-8"), re.MULTILINE)
    notation = {name: units.split(", ") for name, units in rows}
    for parameter, unit in law.units.items():
        assert parameter in notation, f"{parameter} is missing from docs/notation.md"
        assert unit in notation[parameter], f"{parameter} is in {unit} here and in {notation[parameter]} in docs/notation.md"


def test_output_scales_as_its_unit_says(law):
    if law.unit == "bool":
        expected_unit: dict[str, int] = {}
    else:
        expected_unit = dimensions(law.unit)
        for base, power in dimensions(law.factor).items():
            expected_unit[base] = expected_unit.get(base, 0) - power
    sample = draw(law)
    before = law.law(**sample)
    for base in BASES:
        if base in law.offset:
            continue
        scaled = {p: column * 4.0 ** dimensions(law.units[p]).get(base, 0) for p, column in sample.items()}
        after = law.law(**scaled)
        if law.unit == "bool":
            assert identical(before, after), base
        else:
            np.testing.assert_allclose(after, before * 4.0 ** expected_unit.get(base, 0), rtol=1e-12, err_msg=base)


def test_rows_equal_scalars_bit_for_bit(law):
    sample = draw(law)
    rows = law.law(**sample)
    for index in range(ROWS):
        for kind in (float, np.float64, np.array):
            one = law.law(**{p: kind(column[index]) for p, column in sample.items()})
            assert np.ndim(one) == 0
            assert identical(np.asarray(one), np.asarray(rows[index])), index
    half = law.law(**{p: column[: ROWS // 2] for p, column in sample.items()})
    assert identical(half, rows[: ROWS // 2]), "a block must not depend on its size"


def test_broadcasting_equals_the_full_grid(law):
    sample = draw(law, rows=12)
    rng = np.random.default_rng(7)
    shape = (2, 3, 4)
    for _ in range(6):
        columns = {}
        for parameter, column in sample.items():
            axes = [size if rng.integers(0, 2) else 1 for size in shape]
            columns[parameter] = column[: int(np.prod(axes))].reshape(axes) if np.prod(axes) <= 12 else column[:4]
        narrow = law.law(**columns)
        spread = np.broadcast_arrays(*columns.values())
        full = law.law(**{p: np.ascontiguousarray(c).ravel() for p, c in zip(columns, spread, strict=True)})
        assert np.shape(narrow) == spread[0].shape, "the answer has the shape of the broadcast inputs, no more"
        assert identical(np.ravel(narrow), full)


def test_integers_equal_floats(law):
    sample = draw(law, whole=True)
    floats = law.law(**sample)
    integers = law.law(**{p: column.astype(np.int64) for p, column in sample.items()})
    assert identical(floats, integers)
    first = law.law(**{p: int(column[0]) for p, column in sample.items()})
    assert identical(np.asarray(first), np.asarray(floats[0]))


def test_finite_and_not_negative_on_the_domain(law):
    for whole in (False, True):
        value = law.law(**draw(law, rows=400, whole=whole))
        assert value.dtype == (bool if law.unit == "bool" else float)
        assert np.all(np.isfinite(value))
        assert np.all(value >= 0)


def test_nan_outside_the_domain(law):
    outside = {"> 0": (0.0, -1.0), ">= 0": (-1.0,), ">= 1": (0.5, 0.0, -3.0), "in [0, 1]": (-0.5, 1.5), "0 or 1": (-1.0, 2.0), "any": ()}
    sample = draw(law)
    for parameter, domain in law.domains.items():
        for bad in (*outside[domain], np.nan):
            value = law.law(**sample | {parameter: np.full(ROWS, bad)})
            assert np.all(~value if law.unit == "bool" else np.isnan(value)), (parameter, bad)
            scalars = {p: float(column[0]) for p, column in sample.items()} | {parameter: float(bad)}
            value = law.law(**scalars)
            assert not value if law.unit == "bool" else np.isnan(value), (parameter, bad)


def test_nan_where_a_relation_is_broken(law):
    for relation in law.relations:
        sample = draw(law)
        left, _, right = relation.split(" ")
        swapped = sample | {left: sample[right], right: sample[left]}
        broken = ~_holds(relation, swapped)
        assert broken.any()
        assert np.all(np.isnan(law.law(**swapped)[broken])), relation


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_worked_examples(module):
    assert doctest.testmod(module).failed == 0


def test_all_modules_of_laws_are_tested():
    """Every module of law/ is in MODULES, so that no law escapes this file."""
    folder = Path(inspect.getfile(flops)).parent
    names = {path.stem for path in folder.glob("*.py") if not path.stem.startswith("_")}
    assert names == {module.__name__.rsplit(".", 1)[1] for module in MODULES}
