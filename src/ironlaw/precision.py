"""The Precision: how the matrix products of linear layers are computed, in plain values from a recipe of the catalogue."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache

from ironlaw.catalog import load
from ironlaw.catalog.records import Operand, Recipe
from ironlaw.catalog.sourced import Sourced
from ironlaw.errors import CatalogError
from ironlaw.frozen import Frozen
from ironlaw.law.formats import stored_bytes
from ironlaw.question import defaults

OUTPUT, INPUT_GRADIENT, WEIGHT_GRADIENT = "output", "input gradient", "weight gradient"  # what a matrix product computes
INPUT, WEIGHT, GRADIENT = "input", "weight", "gradient"  # the tensors that products of a linear layer read
READ_BY = {INPUT: (OUTPUT, WEIGHT_GRADIENT), WEIGHT: (OUTPUT, INPUT_GRADIENT), GRADIENT: (INPUT_GRADIENT, WEIGHT_GRADIENT)}


SHARED, FURTHER = "shared experts", "further-token layers"  # parts of a model that a recipe may keep wide


class ProductFormat(Frozen):
    """How one product of a linear layer is computed: its roof, its calibration constants, and whether its operands are cast."""

    peak: str
    gemm: str
    narrow: bool = False


class Precision(Frozen):
    """A precision: the formats in which parameters, activations and operands of products are stored, computed and moved.

    ``products`` has the roof and the constants of each product of a linear layer; ``peak`` and ``gemm`` are those of its first narrow
    one. Attention and the output projection stay in ``wide``. ``operand_bytes`` counts an operand with its scales. Where a precision is
    ``narrow`` its operands are cast from ``wide``: ``weight_bytes`` is a cast weight in one orientation, ``scale_reads`` how often a
    tensor is read to find its scales before it is cast, and ``one_scale`` says that a tensor has one, so that both orientations hold the
    same numbers. The framework record says what it stores and sends in the narrow format, under the name ``known_as``.
    """

    name: str
    gemm: str
    peak: str
    wide: str
    parameter_bytes: float
    activation_bytes: float
    operand_bytes: float
    master_weights: bool
    products: dict[str, ProductFormat]
    narrow: bool = False
    weight_bytes: float = 0.0
    gradient_bytes: float = 0.0  # of a cast output gradient, with its scales
    scale_reads: float = 0.0
    one_scale: bool = False
    known_as: str = ""
    scaling: str = ""  # current | delayed; "": the framework's
    wide_at_start: float = 0.0  # share of the layers that stay wide
    wide_at_end: float = 0.0
    wide_parts: tuple[str, ...] = ()
    hadamard: float = 0.0  # elements of a random Hadamard transform; 0: no transforms
    hadamard_reads: float = 0.0
    rotated: tuple[tuple[str, str], ...] = ()  # (tensor, product) of operands that are transformed before the cast
    rotated_back: tuple[str, ...] = ()  # tensors whose gradients are transformed back
    rounds_at_random: bool = False  # some tensors are, where they are cast
    mask_bytes: float = 0.0  # kept beside an element of a saved cast input
    rounded_weights: bool = False  # wide products of weights that are rounded to the narrow format

    def product(self, computes: str) -> ProductFormat:
        """How the product that computes something is computed; one without a name, as the output is."""
        return self.products[computes or OUTPUT]

    def uses(self, tensor: str) -> float:
        """Narrow products that read a tensor, each in an orientation of its own: 0, 1 or 2."""
        return float(sum(self.products[computes].narrow for computes in READ_BY[tensor]))

    def rotations(self, tensor: str) -> float:
        """Orientations of a tensor that are transformed before the cast."""
        return float(sum(one == tensor for one, _ in self.rotated))


_PRODUCTS = {"forward": OUTPUT, "data_gradient": INPUT_GRADIENT, "weight_gradient": WEIGHT_GRADIENT}


def precision_of(name: str, folders: tuple[str, ...] = ()) -> Precision:
    """The precision of a name, from its record in the catalogue."""
    return _precision(load.record("precisions", name, folders))


@lru_cache(64)
def _precision(record: Recipe) -> Precision:
    """The plain values of a recipe's record."""
    tables = {computes: getattr(record, field) or record.forward for field, computes in _PRODUCTS.items()}
    products = {computes: ProductFormat(t.peak, t.gemm, t.narrow) for computes, t in tables.items()}
    unknown = next((part for part in record.wide_parts if part not in (SHARED, FURTHER)), None)
    if unknown is not None:
        raise CatalogError(f"precision {record.name}: wide_parts has {unknown!r}, expected {SHARED} or {FURTHER}")
    first = next((p for p in products.values() if p.narrow), products[OUTPUT])
    wide = record.activation_bytes.value
    return Precision(
        name=record.name,
        gemm=first.gemm,
        peak=first.peak,
        wide=record.wide or record.name,
        parameter_bytes=record.parameter_bytes.value,
        activation_bytes=wide,
        operand_bytes=_stored(record.input, wide),
        master_weights=record.master_weights,
        products=products,
        narrow=first.narrow or record.rounded_weights,
        weight_bytes=_stored(record.weight, 0.0),
        gradient_bytes=_stored(record.gradient, wide),
        scale_reads=_number(record.scale_reads),
        one_scale=record.one_scale,
        known_as=record.known_as or record.name,
        scaling=record.scaling,
        wide_at_start=_number(record.wide_at_start),
        wide_at_end=_number(record.wide_at_end),
        wide_parts=record.wide_parts,
        hadamard=_number(record.hadamard),
        hadamard_reads=_number(record.hadamard_reads),
        rotated=tuple(_read_operand(text, record.name) for text in record.rotated),
        rotated_back=record.rotated_back,
        rounds_at_random=bool(record.stochastic),
        mask_bytes=_number(record.mask_bits) / 8.0,
        rounded_weights=record.rounded_weights,
    )


def _number(value: Sourced | None) -> float:
    return 0.0 if value is None else value.value


def _stored(operand: Operand | None, wide: float) -> float:
    """Bytes of an element of a narrow tensor with its share of a scale; ``wide`` for a tensor that is never cast."""
    if operand is None:
        return wide
    block = (operand.stored_rows or operand.rows) * operand.columns
    return float(stored_bytes(operand.bits, operand.scale_bits if block else 0.0, block or 1.0))


def _read_operand(text: str, name: str) -> tuple[str, str]:
    """The tensor and the product of an operand that a record names, such as "input of weight_gradient"."""
    tensor, _, product = text.partition(" of ")
    if tensor not in READ_BY or _PRODUCTS.get(product) not in READ_BY[tensor]:
        known = ", ".join(f"{t} of {field}" for t, read in READ_BY.items() for field, c in _PRODUCTS.items() if c in read)
        raise CatalogError(f"precision {name}: rotated has {text!r}, expected one of: {known}")
    return tensor, _PRODUCTS[product]


class _Shipped(Mapping[str, Precision]):
    """The precisions that ship, by name; a record is read when it is first asked for."""

    def __getitem__(self, name: str) -> Precision:
        if name not in defaults.PRECISIONS:
            raise KeyError(name)
        return precision_of(name)

    def __iter__(self) -> Iterator[str]:
        return iter(defaults.PRECISIONS)

    def __len__(self) -> int:
        return len(defaults.PRECISIONS)


PRECISIONS: Mapping[str, Precision] = _Shipped()
