"""What the documents of a job make of the sequences of each plan: columns over the plans.

A plan's ``seq_len`` is the room of a sequence. What is computed of it, what of that is real, and how far attention reaches depend on that
room, on the sequences of a micro-batch and, where context ranks follow the documents, on ``cp``; each combination is looked at once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, lru_cache, partial
from typing import Any

import numpy as np

from ironlaw.catalog.model import Model
from ironlaw.estimate.documents.keys import keys_seen
from ironlaw.estimate.documents.packing import PACKINGS, Packing, Pieces, of_context, piece_lengths, pieces_of, sampled_lengths
from ironlaw.estimate.documents.slowest import Slowest, Work, slowest
from ironlaw.frozen import Frozen
from ironlaw.job import Documents, Job
from ironlaw.plan import Plan

Sizes = tuple[float, float, float]  # room of a sequence, sequences of a micro-batch, and context ranks where they follow the documents


class Level(Frozen):
    """The sequences of a batch that take so many context ranks, and what they would be as the whole batch."""

    ranks: float  # at most those of the plan
    share: Any  # of the computed tokens, by plan
    sequences: Sequences
    plan: Plan  # with the same accelerators, and as many tokens and micro-batches in a step


class Sequences(Frozen):
    """The sequences that documents become in every plan of a batch; with a ``level`` only those on so many context ranks."""

    documents: Documents
    sizes: tuple[Sizes, ...]  # each that a plan has
    which: Any  # the sizes of every plan
    level: float = 0.0  # context ranks, at most those of the plan; 0: all sequences

    @classmethod
    def of(cls, documents: Documents, plan: Plan) -> Sequences:
        """The sequences of every plan."""
        together = plan.micro_batch_size if PACKINGS[documents.packing].by_micro_batch else 1.0
        columns = np.broadcast_arrays(plan.seq_len, together, plan.cp if documents.cp_by_length else 1.0)
        sizes, which = np.unique(np.stack([np.ravel(column) for column in columns], axis=1), axis=0, return_inverse=True)
        return cls(documents, tuple((float(a), float(b), float(c)) for a, b, c in sizes), which.reshape(columns[0].shape))

    @property
    def packing(self) -> Packing:
        """How documents become sequences."""
        return PACKINGS[self.documents.packing]

    def column(self, read: Callable[[Sizes], float]) -> Any:
        """A column over the plans of what is read of their sizes."""
        return np.array([read(sizes) for sizes in self.sizes])[self.which]

    def pieces(self, sizes: Sizes) -> Pieces:
        """The sequences of some sizes."""
        every = pieces_of(self.documents.lengths, self.documents.packing, *sizes)
        return of_context(every, min(self.level, sizes[2]))[1] if self.level else every

    def piece_lengths(self, sizes: Sizes) -> tuple[Any, Any]:
        """Lengths of the pieces that attention stays in, and the share of the computed tokens in each."""
        if sizes[2] > 1.0:
            return sampled_lengths(self.pieces(sizes))
        return piece_lengths(self.documents.lengths, self.documents.packing, *sizes[:2])

    @cached_property
    def computed(self) -> Any:
        """Mean tokens of a sequence that are computed [token]."""
        return self.column(lambda sizes: self.pieces(sizes).mean_computed)

    @cached_property
    def real(self) -> Any:
        """Mean tokens of documents in a sequence [token]."""
        return self.column(lambda sizes: self.pieces(sizes).mean_real)

    @cached_property
    def fullest(self) -> Any:
        """Tokens of the fullest sequence [token]."""
        return self.column(lambda sizes: float(np.max(self.pieces(sizes).computed)))

    @cached_property
    def span(self) -> Any:
        """Length of the piece that a random token with keys is in [token]."""

        def of(sizes: Sizes) -> float:
            lengths, shares = self.piece_lengths(sizes)
            return float(np.sum(lengths * shares) / np.sum(shares))

        return self.column(of)

    def keys(self, seen: Callable[[Any], Any]) -> Any:
        """Mean of what the query of a computed token sees, where that of a piece sees ``seen(length)``."""

        def of(sizes: Sizes) -> float:
            lengths, shares = self.piece_lengths(sizes)
            return float(np.sum(seen(lengths) * shares))

        return self.column(of)

    def real_keys(self, seen: Callable[[Any], Any]) -> Any:
        """Mean of what the query of a token of a document sees, inside the document."""
        if not self.packing.loses:
            return self.keys(seen) * self.computed / self.real

        def of(sizes: Sizes) -> float:
            cut = self.documents.lengths.capped(sizes[0])
            return float(np.sum(cut.lengths * cut.shares * seen(cut.lengths))) / cut.mean

        return self.column(of)

    @cached_property
    def kept(self) -> Any:
        """Share of the tokens of the documents that are trained on: 1 where none is cut off."""
        if not self.packing.loses:
            return self.column(lambda _: 1.0)
        return self.column(lambda sizes: self.documents.lengths.capped(sizes[0]).mean / self.documents.lengths.mean)

    @cached_property
    def of_sequence(self) -> Any:
        """Mean documents of a sequence."""
        return self.real / (self.documents.lengths.mean * self.kept)

    @cached_property
    def groups(self) -> Any:
        """Groups of context ranks that run at once, over those of plans whose sequences all take ``cp``."""
        if not self.documents.cp_by_length:
            return 1.0
        return self.column(lambda sizes: float(np.sum((pieces := self.pieces(sizes)).shares * pieces.whole)))

    def levels(self, plan: Plan) -> list[Level]:
        """One level for each number of context ranks that sequences take; ranks that a level does not need are data-parallel instead."""
        found: list[Level] = []
        most = float(np.max(plan.cp))
        for level in (2.0**power for power in range(int(np.ceil(np.log2(most))) + 1)):
            ranks = np.minimum(level, plan.cp)
            share = self.column(lambda sizes, level=level: of_context(self.replace(level=0.0).pieces(sizes), min(level, sizes[2]))[0])
            share = np.where(level < 2.0 * plan.cp, share, 0.0)  # counted once, where the level is more than all ranks
            freed = plan.cp / ranks
            own = plan.replace(
                cp=ranks, dp_shard=plan.dp_shard * freed, global_batch_size=plan.global_batch_size * freed, seq_len=plan.seq_len / freed
            )
            found.append(Level(level, share, self.replace(level=level), own))
        return found

    def slowest(self, model: Model, plan: Plan, ranks: Any, in_step: Any) -> tuple[Slowest, Slowest]:
        """The slowest of ``ranks`` in every plan, by tokens and by the work of attention: each a Slowest of columns.

        Groups of ``in_step`` ranks meet in every micro-batch.
        """
        together = 1.0 if self.packing.by_micro_batch else plan.micro_batch_size
        columns = np.broadcast_arrays(self.which, together, plan.num_microbatches, ranks * self.groups, in_step * self.groups)
        shape = columns[0].shape
        distinct, which = np.unique(np.stack([np.ravel(column) for column in columns], axis=1), axis=0, return_inverse=True)
        works = [works_of(self.pieces(sizes), model) for sizes in self.sizes]
        found = []
        for kind in (0, 1):
            each = [
                slowest(works[int(at)][kind], self.documents.balance, *(max(float(n), 1.0) for n in numbers)) for at, *numbers in distinct
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
