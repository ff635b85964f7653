"""Documents put into sequences: one row for each way, with what a sequence then has of real tokens, computed tokens and pieces.

A way says how long its pieces are, how many tokens of a sequence are computed, and what the micro-batches of a step hold. First fit and
best fit are run on a sample of documents in a random order with a fixed seed; all else follows from the distribution without a sample.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from ironlaw.estimate.documents.histogram import Histogram
from ironlaw.frozen import Frozen
from ironlaw.law import lengths as law

SEED = 20261123
SEQUENCES, LEAST, MOST = 1024, 4096, 32768  # of a sample: packed sequences that are wanted, fewest and most documents
POOL = 50.0  # micro-batches that are sorted by length together: transformers' group_by_length


class Pieces(Frozen):
    """Sequences that stand for all: the pieces in them, and the tokens of each."""

    lengths: Any  # of every piece that attention stays in [token]; padding counts where the kernel computes it
    sequence: Any  # the sequence that a piece is in
    computed: Any  # tokens of every sequence, padding included [token]
    real: Any  # of them, tokens of documents [token]
    shares: Any  # how likely each sequence is
    context: Any = 1.0  # context ranks that each sequence is split over, where they follow its longest document
    whole: Any = 1.0  # such sequences that have the tokens of a room together

    @property
    def mean_computed(self) -> float:
        """Mean tokens of a sequence [token]."""
        if np.all(self.computed == self.computed[0]):
            return float(self.computed[0])
        return float(np.sum(self.computed * self.shares))

    @property
    def mean_real(self) -> float:
        """Mean tokens of documents in a sequence, at most those computed, which the sum of full packs may pass by its rounding [token]."""
        return min(float(np.sum(self.real * self.shares)), self.mean_computed)

    def work(self, keys: Callable[[Any], Any]) -> Any:
        """Query-key pairs of every sequence, where ``keys(length)`` is what a query of a piece sees on average."""
        pairs = self.lengths * keys(self.lengths)
        return np.bincount(self.sequence, weights=pairs, minlength=self.computed.size) * self.whole


class Packing(Frozen):
    """One way to put documents into sequences."""

    name: str
    pieces: Callable[[Histogram, float, float], Pieces]  # of a distribution, the tokens of a sequence and the sequences of a micro-batch
    place: Callable[[Any, Any], Any] | None = None  # the pack of every piece, where packs hold whole documents
    by_micro_batch: bool = False  # the padding of a sequence depends on the others of its micro-batch
    loses: bool = False  # tokens beyond seq_len are lost


def _padded(lengths: Histogram, real: Histogram, mean: float) -> Pieces:
    """One document a sequence, padded to ``lengths``; ``real`` are the documents' lengths, ``mean`` their mean."""
    share = np.minimum(mean / lengths.mean, 1.0) if real is not lengths else 1.0
    number = np.arange(lengths.lengths.size)
    return Pieces(lengths.lengths, number, lengths.lengths, lengths.lengths * share, lengths.shares)


def _to_longest(documents: Histogram, seq_len: float, micro_batch: float) -> Pieces:
    real = documents.capped(seq_len)
    return _padded(real.largest_of(micro_batch), real, real.mean)


def _to_alike(documents: Histogram, seq_len: float, micro_batch: float) -> Pieces:
    """Documents of a pool sorted by length: a micro-batch is padded to the longest of its neighbours."""
    real = documents.capped(seq_len)
    if micro_batch <= 1.0:
        return _padded(real, real, real.mean)
    rank = np.arange(1.0, POOL + 1.0) * micro_batch / (POOL * micro_batch + 1.0)  # expected shares below the longest of each
    padded = Histogram.of((tokens, 1.0) for tokens in real.quantile(rank))
    return _padded(padded, real, real.mean)


def _to_seq_len(documents: Histogram, seq_len: float, micro_batch: float) -> Pieces:
    del micro_batch
    real = documents.capped(seq_len)
    return _padded(Histogram.of([(seq_len, 1.0)]), real, real.mean)


def _cut_stream(documents: Histogram, seq_len: float, micro_batch: float) -> Pieces:
    """The stream of documents cut every ``seq_len`` tokens, from a sample: each sequence is full."""
    del micro_batch
    number = int(np.clip(SEQUENCES * seq_len / documents.mean, LEAST, MOST))
    ends = np.cumsum(documents.sample(number, SEED))
    full = max(int(ends[-1] // seq_len), 1)
    cuts = np.arange(1.0, full + 1.0) * seq_len
    borders = np.union1d(ends[ends <= cuts[-1]], cuts)
    lengths = np.diff(borders, prepend=0.0)
    sequence = np.minimum((borders - 0.5) // seq_len, full - 1.0).astype(np.int64)
    whole = np.full(full, seq_len)
    return Pieces(lengths, sequence, whole, whole, np.full(full, 1.0 / full))


def _packed(place: Callable[[Any, float], Any]) -> Callable[[Histogram, float, float], Pieces]:
    def pieces(documents: Histogram, seq_len: float, micro_batch: float) -> Pieces:
        """Packs of whole documents and of the chunks of longer ones."""
        del micro_batch
        cut = documents.chunked(seq_len)
        number = int(np.clip(SEQUENCES * seq_len / cut.mean, LEAST, MOST))
        lengths = cut.sample(number, SEED)
        sequence = place(lengths, seq_len)
        real = np.bincount(sequence, weights=lengths)
        return Pieces(lengths, sequence, np.full(real.size, seq_len), real, np.full(real.size, 1.0 / real.size))

    return pieces


def first_fit(lengths: Any, capacity: Any) -> Any:
    """The number of the pack of every piece: the first pack with room for it, in the order of the pieces.

    ``capacity``: tokens of the pack that each piece opens, one for all or one for each.

    >>> first_fit(np.array([6.0, 5.0, 4.0, 5.0]), 10.0).tolist()
    [0, 1, 0, 1]
    """
    least, opened, made = float(np.min(lengths)), 0, 0
    rooms = np.broadcast_to(np.asarray(capacity, dtype=np.float64), lengths.shape)
    room, number = np.zeros(256), np.zeros(256, dtype=np.int64)
    packs = np.empty(len(lengths), dtype=np.int64)
    for piece, tokens in enumerate(lengths.tolist()):
        fits = room[:opened] >= tokens
        at = int(fits.argmax()) if opened else 0
        if not opened or not fits[at]:
            if opened == room.size:
                room, number = np.resize(room, 2 * opened), np.resize(number, 2 * opened)
            at, room[opened], number[opened] = opened, rooms[piece], made
            opened, made = opened + 1, made + 1
        packs[piece] = number[at]
        room[at] -= tokens
        if room[at] < least:  # a full pack takes no more time
            room[at : opened - 1], number[at : opened - 1] = room[at + 1 : opened].copy(), number[at + 1 : opened].copy()
            opened -= 1
    return packs


def best_fit(lengths: Any, capacity: Any) -> Any:
    """The number of the pack of every piece, the longest first: the pack that it leaves least room in.

    ``capacity``: tokens of the pack that each piece opens, one for all or one for each.

    >>> best_fit(np.array([2.0, 6.0, 5.0, 4.0, 3.0]), 10.0).tolist()
    [1, 0, 1, 0, 1]
    """
    packs = np.empty(len(lengths), dtype=np.int64)
    opens = np.broadcast_to(np.asarray(capacity, dtype=np.float64), lengths.shape)
    rooms: list[tuple[float, int]] = []
    made = 0
    for piece in np.argsort(-lengths, kind="stable").tolist():
        tokens = float(lengths[piece])
        at = bisect_left(rooms, (tokens, -1))
        left, number = rooms.pop(at) if at < len(rooms) else (float(opens[piece]), made)
        made += number == made
        packs[piece] = number
        if left > tokens:
            insort(rooms, (left - tokens, number))
    return packs


PACKINGS = {
    row.name: row
    for row in (
        Packing("none", _to_longest, by_micro_batch=True, loses=True),
        Packing("sorted", _to_alike, by_micro_batch=True, loses=True),
        Packing("pad", _to_seq_len, loses=True),
        Packing("pack", _packed(first_fit), first_fit),
        Packing("pack-best-fit", _packed(best_fit), best_fit),
        Packing("truncate", _cut_stream),
    )
}


@lru_cache(maxsize=256)
def pieces_of(documents: Histogram, packing: str, seq_len: float, micro_batch: float, cp: float = 1.0) -> Pieces:
    """The sequences of a distribution that is packed in one way; the same for every plan with this length and this micro-batch.

    With ``cp`` above 1 a pack has as many tokens, and is split over as many context ranks, as the document that opens it needs.
    """
    place = PACKINGS[packing].place
    if cp <= 1.0 or place is None:
        return PACKINGS[packing].pieces(documents, seq_len, micro_batch)
    return _by_length(documents, place, seq_len, cp)


def _by_length(documents: Histogram, place: Callable[[Any, Any], Any], seq_len: float, cp: float) -> Pieces:
    """A sample of packs that each have as many context ranks as their longest document needs.

    A rank computes as many tokens of every pack, so the share of a pack in its time is proportional to the pack's ranks.
    """
    tokens_per_rank = seq_len / cp
    cut = documents.chunked(seq_len)
    lengths = cut.sample(int(np.clip(SEQUENCES * seq_len / cut.mean, LEAST, MOST)), SEED)
    needed = law.context_ranks(lengths, tokens_per_rank, cp)
    pack = place(lengths, needed * tokens_per_rank)  # of each document
    ranks = np.zeros(int(pack.max()) + 1)  # of each pack
    np.maximum.at(ranks, pack, needed)
    packs_at_once = cp / ranks
    real = np.bincount(pack, weights=lengths) * packs_at_once
    computed = np.full(real.size, seq_len)
    return Pieces(lengths, pack, computed, real, ranks / ranks.sum(), ranks, packs_at_once)


@lru_cache(maxsize=1024)
def of_context(pieces: Pieces, ranks: float) -> tuple[float, Pieces]:
    """The share of the computed tokens in packs of so many context ranks, and these packs alone; one full piece where there are none."""
    context, every = (np.broadcast_to(column, pieces.computed.shape) for column in (pieces.context, pieces.whole))
    kept = np.flatnonzero(context == ranks)
    if not kept.size:
        return 0.0, Pieces(pieces.computed[:1], np.zeros(1, dtype=np.int64), pieces.computed[:1], pieces.computed[:1], np.ones(1))
    number = np.full(pieces.computed.size, -1)
    number[kept] = np.arange(kept.size)
    own = number[pieces.sequence]
    whole = every[kept]
    share = float(pieces.shares[kept].sum())
    alone = Pieces(
        pieces.lengths[own >= 0], own[own >= 0], pieces.computed[kept] / whole, pieces.real[kept] / whole, pieces.shares[kept] / share
    )
    return share, alone


def sampled_lengths(pieces: Pieces) -> tuple[Any, Any]:
    """Lengths of the pieces of a sample, and the share of the computed tokens in each; padding sees no key."""
    weights = pieces.lengths * (pieces.whole * pieces.shares)[pieces.sequence]
    return pieces.lengths, weights / pieces.mean_computed


def piece_lengths(documents: Histogram, packing: str, seq_len: float, micro_batch: float) -> tuple[Any, Any]:
    """Lengths of the pieces that attention stays in, and the share of the computed tokens in each; padding sees no key, if it is a piece.

    From the distribution, not from the sample, where packing keeps documents whole or cuts them in chunks of ``seq_len``.
    """
    pieces = pieces_of(documents, packing, seq_len, micro_batch)
    if PACKINGS[packing].loses:  # the kernel computes the padding of a padded document
        tokens = pieces.lengths * pieces.shares
        return pieces.lengths, tokens / tokens.sum()
    if packing == "truncate":
        tokens = documents.lengths * documents.shares
        return law.piece_length(documents.lengths, seq_len), tokens / tokens.sum()
    cut = documents.chunked(seq_len)
    tokens = cut.lengths * cut.shares
    return cut.lengths, tokens / tokens.sum() * (pieces.mean_real / pieces.mean_computed)
