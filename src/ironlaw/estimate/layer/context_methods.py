"""Methods of context parallelism: one row each, with the properties that attention, its communication and its memory use.

No other module compares the name of a method.
"""

from __future__ import annotations

from ironlaw.frozen import Frozen
from ironlaw.job import Job


class ContextMethod(Frozen):
    """How ranks that share a sequence share its attention. A method may combine these, as all-to-all+ring does."""

    name: str
    trades_heads: bool = False  # ranks trade heads for tokens before attention, and back behind it
    passes_blocks: bool = False  # keys and values go round a ring of ranks, beside attention
    gathers_keys: bool = False  # every rank gathers all keys and values before attention

    @property
    def has_two_levels(self) -> bool:
        """True where an inner group trades heads and a ring joins these groups."""
        return self.trades_heads and self.passes_blocks


METHODS = {
    row.name: row
    for row in (
        ContextMethod("ring", passes_blocks=True),
        ContextMethod("all-to-all", trades_heads=True),
        ContextMethod("all-gather", gathers_keys=True),
        ContextMethod("all-to-all+ring", trades_heads=True, passes_blocks=True),
    )
}


def method_of(job: Job) -> ContextMethod:
    """The context-parallel method of a job."""
    return METHODS[job.cp_method]
