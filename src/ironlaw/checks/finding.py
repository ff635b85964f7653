"""One finding, and the table of all kinds of them."""

from __future__ import annotations

from typing import NamedTuple

SEVERITIES = ("error", "warning", "note")


class Kind(NamedTuple):
    """A kind of finding: how severe it is, and what it means."""

    severity: str
    says: str


KINDS: dict[str, Kind] = {
    "unreadable": Kind("error", "the file cannot be read"),
    "cannot-run": Kind("error", "the program would not start with these settings"),
    "contradiction": Kind("error", "two settings say different things of one quantity"),
    "missing-file": Kind("error", "a file that a setting names is not there"),
    "illegal-plan": Kind("error", "the plan breaks a rule of shapes, of divisibility or of the stack"),
    "does-not-fit": Kind("error", "the run needs more memory than the accelerator has"),
    "may-not-fit": Kind("warning", "the run fits by the estimate, with a probability below 80 %"),
    "unknown-setting": Kind("warning", "no setting of the trainer that is known here: perhaps misspelt, or of another version"),
    "known-when-run": Kind("warning", "a value that only the running program knows: the check cannot count it"),
    "not-modelled": Kind("warning", "a setting that changes the answer and is not modelled: the check ends here"),
    "never-used": Kind("warning", "a setting that has no effect beside the others"),
    "old-name": Kind("warning", "a name that newer versions of the trainer do not read"),
    "recomputation-not-needed": Kind("warning", "the run fits with less recomputation, and is faster"),
    "small-micro-batch": Kind("warning", "the run fits with larger micro-batches, and is faster"),
    "offloading-not-needed": Kind("warning", "the run fits without offloading, and is faster"),
    "sharding-more-than-needed": Kind("warning", "the run fits with a lower ZeRO stage, and is faster"),
    "optimizer-not-sharded": Kind("warning", "every rank keeps all optimizer states"),
    "sequence-parallel-off": Kind("warning", "tensor-parallel ranks repeat the work between their products"),
    "overlap-missing": Kind("warning", "communication waits that could run beside computation"),
    "wide-gradients": Kind("warning", "gradients are stored and reduced in fp32"),
    "fp32-products": Kind("warning", "products run in fp32 on a device that has bf16"),
    "attention-not-fused": Kind("warning", "attention writes its scores to memory"),
    "tensor-parallel-across-domains": Kind("warning", "tensor-parallel ranks talk over the slower links between domains"),
    "not-understood": Kind("note", "no configuration of a trainer that is known"),
    "no-machine": Kind("note", "without an accelerator and its number, only the settings were checked"),
}


class Finding(NamedTuple):
    """What is wrong or slow, where, what it costs, and what to change; line and column count from 1, 0 where no line says it."""

    id: str
    message: str
    file: str
    line: int = 0
    column: int = 0
    change: str = ""
    seconds: float | None = None  # that a step takes longer than with the change
    bytes: float | None = None  # that an accelerator needs more than with the change, or than it has

    @property
    def severity(self) -> str:
        """error, warning or note."""
        return KINDS[self.id].severity
