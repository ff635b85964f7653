"""What the documents of a job make of the sequences of each plan: columns over the plans.

A plan's ``seq_len`` is the room of a sequence. What is computed of it, what of that is real, and how far attention reaches depend on that
room and on the sequences of a micro-batch alone, so each pair of them is looked at once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, lru_cache, partial
from typing import Any

import numpy as np

from ironlaw.catalog.model import Model
from ironlaw.estimate.documents.keys import keys_seen
from ironlaw.estimate.documents.packing import PACKINGS, Packing, Pieces, piece_lengths, pieces_of
from ironlaw.estimate.documents.slowest import Slowest, Work, slowest
from ironlaw.frozen import Frozen
from ironlaw.job import Documents, Job
from ironlaw.plan import Plan


class Sequences(Frozen):
    """The sequences that documents become in every plan of a batch."""

    documents: Documents
    room: Any  # tokens that a sequence may have, by plan
    pairs: tuple[tuple[float, float], ...]  # room and sequences of a micro-batch: each pair that a plan has
    which: Any  # the pair of every plan
    micro_batch_size: Any

    @classmethod
    def of(cls, documents: Documents, plan: Plan) -> Sequences:
        """The sequences of every plan."""
        room = np.asarray(plan.seq_len, dtype=np.float64)
        together = np.asarray(plan.micro_batch_size if PACKINGS[documents.packing].by_micro_batch else 1.0, dtype=np.float64)
        both = np.broadcast_arrays(room, together)
        pairs, which = np.unique(np.stack([np.ravel(column) for column in both], axis=1), axis=0, return_inverse=True)
        return cls(documents, plan.seq_len, tuple((float(a), float(b)) for a, b in pairs), which.reshape(both[0].shape), together)

    @property
    def packing(self) -> Packing:
        """How documents become sequences."""
        return PACKINGS[self.documents.packing]

    def column(self, read: Callable[[float, float], float]) -> Any:
        """A column over the plans of what is read of a room and a micro-batch."""
        values = np.array([read(*pair) for pair in self.pairs])
        return values[self.which]

    def pieces(self, room: float, micro_batch: float) -> Pieces:
        """The sequences of one room and one micro-batch."""
        return pieces_of(self.documents.lengths, self.documents.packing, room, micro_batch)

    @cached_property
    def computed(self) -> Any:
        """Mean tokens of a sequence that are computed [token]."""
        return self.column(lambda *pair: self.pieces(*pair).mean_computed)

    @cached_property
    def real(self) -> Any:
        """Mean tokens of documents in a sequence [token]."""
        return self.column(lambda *pair: self.pieces(*pair).mean_real)

    @cached_property
    def fullest(self) -> Any:
        """Tokens of the fullest sequence [token]."""
        return self.column(lambda *pair: float(np.max(self.pieces(*pair).computed)))

    @cached_property
    def span(self) -> Any:
        """Length of the piece that a random token with keys is in [token]."""

        def of(room: float, micro_batch: float) -> float:
            lengths, shares = piece_lengths(self.documents.lengths, self.documents.packing, room, micro_batch)
            return float(np.sum(lengths * shares) / np.sum(shares))

        return self.column(of)

    def keys(self, seen: Callable[[Any], Any]) -> Any:
        """Mean of what the query of a computed token sees, where that of a piece sees ``seen(length)``."""

        def of(room: float, micro_batch: float) -> float:
            lengths, shares = piece_lengths(self.documents.lengths, self.documents.packing, room, micro_batch)
            return float(np.sum(seen(lengths) * shares))

        return self.column(of)

    def real_keys(self, seen: Callable[[Any], Any]) -> Any:
        """Mean of what the query of a token of a document sees, inside the document."""
        if not self.packing.loses:
            return self.keys(seen) * self.computed / self.real

        def of(room: float, micro_batch: float) -> float:
            del micro_batch
            cut = self.documents.lengths.capped(room)
            return float(np.sum(cut.lengths * cut.shares * seen(cut.lengths))) / cut.mean

        return self.column(of)

    @cached_property
    def kept(self) -> Any:
        """Share of the tokens of the documents that are trained on: 1 where none is cut off."""
        if not self.packing.loses:
            return self.column(lambda *_: 1.0)
        return self.column(lambda room, _: self.documents.lengths.capped(room).mean / self.documents.lengths.mean)

    @cached_property
    def of_sequence(self) -> Any:
        """Mean documents of a sequence."""
        return self.real / (self.documents.lengths.mean * self.kept)

    def slowest(self, model: Model, plan: Plan, ranks: Any, in_step: Any) -> tuple[Slowest, Slowest]:
        """The slowest of ``ranks`` in every plan, by tokens and by the work of attention: each a Slowest of columns.

        Groups of ``in_step`` ranks meet in every micro-batch.
        """
        together = 1.0 if self.packing.by_micro_batch else plan.micro_batch_size
        columns = np.broadcast_arrays(self.which, together, plan.num_microbatches, ranks, in_step)
        shape = columns[0].shape
        distinct, which = np.unique(np.stack([np.ravel(column) for column in columns], axis=1), axis=0, return_inverse=True)
        works = [works_of(self.pieces(*pair), model) for pair in self.pairs]
        found = []
        for kind in (0, 1):
            each = [
                slowest(works[int(pair)][kind], self.documents.balance, *(max(float(n), 1.0) for n in numbers))
                for pair, *numbers in distinct
            ]
            table = np.array(each)[which.ravel()]
            found.append(Slowest(*(table[:, field].reshape(shape) for field in range(len(Slowest._fields)))))
        return found[0], found[1]


@lru_cache(maxsize=256)
def works_of(pieces: Pieces, model: Model) -> tuple[Work, Work]:
    """The work of a sequence by tokens, and that of a model's attention."""
    attention = pieces.work(partial(keys_seen, model))
    return Work.of(pieces.computed, pieces.shares), Work.of(attention, pieces.shares)


def sequences_of(job: Job, plan: Plan) -> Sequences | None:
    """The sequences of a job's documents in every plan; None where all documents are alike."""
    if job.documents is None or isinstance(job.documents, Sequences):
        return job.documents
    return Sequences.of(job.documents, plan)


def real_tokens(job: Job, plan: Plan) -> Any:
    """Mean tokens of documents in a sequence of every plan [token]; all of it where all documents are alike."""
    found = sequences_of(job, plan)
    return plan.seq_len if found is None else found.real


def computed(job: Job, plan: Plan) -> tuple[Job, Plan]:
    """A job and plans whose sequences have the mean number of tokens that are computed; unchanged where all documents are alike."""
    if job.documents is None or isinstance(job.documents, Sequences):
        return job, plan
    found = Sequences.of(job.documents, plan)
    return job.replace(documents=found), plan.replace(seq_len=found.computed)


def fullest(job: Job, plan: Plan) -> tuple[Job, Plan]:
    """A job and plans whose sequences have as many tokens as the fullest that is computed."""
    if job.documents is None or isinstance(job.documents, Sequences):
        return job, plan
    found = Sequences.of(job.documents, plan)
    return job.replace(documents=found), plan.replace(seq_len=found.fullest)
