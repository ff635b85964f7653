"""Progress bars of Lightning: one bar an epoch, that begins again with the next.

    Epoch 0:  10%|█         | 100/1000 [03:20<30:00,  0.50it/s, v_num=0, train_loss=2.310]

A bar counts batches of one rank: with accumulate_grad_batches above 1, an optimizer step is that many of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from ironlaw.measure.logs import trainer_output
from ironlaw.measure.logs.log import Log, Notes

NAME = "lightning"
SIGNS = (re.compile(rb"\bEpoch \d{1,9}\s?: {1,6}\d{1,3}%\|[^|\n\r]{0,200}\| \d{1,12}/\d{1,12} \[[\d:]{4,12}<"),)
OVERWRITES = True


def read(text: Iterable[str], notes: Notes) -> Log:
    """Read the bars of all epochs."""
    return trainer_output.read(text, notes, NAME)
