"""The record of an optimizer: what it stores, moves, multiplies and sends for each class of parameters."""

from __future__ import annotations

from ironlaw.catalog.model import Record
from ironlaw.catalog.schema import Schema, list_of, quantity, table_of, word
from ironlaw.catalog.sourced import Sourced

CLASSES = ("matrices", "tables", "vectors")  # weights of linear layers; embedding and output layer; norms and biases
SHAPES = ("parameter", "sides", "rows", "squares", "projector", "projected")  # of a state; see estimate.layer.updates.SHAPES
SIDES = ("m", "n", "r")  # letters of the sides of a product: of the matrix, the smaller first, and the rank of a projection
ZERO_STAGES = ("0", "1", "2", "3")
OPERATIONS = ("all_gather", "all_to_all", "all_reduce", "broadcast")


class State(Schema):
    """One tensor that an optimizer keeps for each weight: its shape, and the bytes of an element."""

    shape: str = "parameter"  # one of SHAPES
    bytes: Sourced = quantity("B")


class MatrixProduct(Schema):
    """A matrix product in the update of a matrix with sides m <= n; the letter r is the rank of a projection."""

    name: str
    rows: str
    columns: str
    inner: str
    times: Sourced = quantity("1")  # in one update
    every: Sourced | None = quantity("1", required=False)  # steps from one to the next; absent: 1
    precision: str = "bf16"
    squares: bool = False  # of a preconditioner: cut into blocks, and left out for sides that have none


class Exchange(Schema):
    """What the ranks that share states send each other between the gradients' reduction and the update; all matrices at once."""

    name: str
    operation: str  # one of OPERATIONS
    zero: tuple[str, ...]  # the ZeRO stages that need it
    times: Sourced = quantity("1")
    bytes: Sourced | None = quantity("B", required=False)  # of an element; absent: as gradients are reduced


class Optimizer(Record):
    """An optimizer beside 2-byte weights and gradients.

    ``traffic`` are bytes read and written in one fused step, with the 2-byte gradient in and the 2-byte weight out; ``flop`` are
    additions, multiplications, divisions and roots of the update rule of one parameter, with what all parameters share done once.
    """

    like: str = ""  # the optimizer whose record has what this one does not say
    updates: tuple[str, ...] = CLASSES  # classes of parameters that it updates itself
    others: str = ""  # the optimizer of the other classes
    on_narrow_weights: str = ""  # the record that holds in a stack without fp32 weights
    whole_matrices: bool = False  # an update needs the whole matrix, not a part of it
    shards: str = word("elements", "matrices", default="elements")  # what ZeRO gives to a rank
    one_by_one: bool = False  # parameters are updated one after another: temporaries are those of one, not a list of all
    paged: bool = False  # states move to the host, page by page, where the device has no room
    master_bytes: Sourced = quantity("B")  # of a copy of the weights beside narrow ones
    traffic: Sourced = quantity("B")
    flop: Sourced = quantity("FLOP")
    states: dict[str, State] = table_of(State)
    product: tuple[MatrixProduct, ...] = list_of(MatrixProduct)
    exchange: tuple[Exchange, ...] = list_of(Exchange)
    block: Sourced | None = quantity("1", required=False)  # side of the blocks that squares are cut into; absent: whole matrices
    largest_side: Sourced | None = quantity("1", required=False)  # a longer side has no square; absent: every side has one
    rank: Sourced | None = quantity("1", required=False)  # of a projection, over the smaller side of the matrix

    @property
    def state_bytes(self) -> float:
        """Bytes of the states that have one element for each parameter."""
        size = 0.0
        for state in self.states.values():
            size += state.bytes.value if state.shape == "parameter" else 0.0
        return size
