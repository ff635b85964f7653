"""The words of an address: options of a verb, and those of the page beside them."""

from __future__ import annotations

from collections.abc import Mapping

VERSUS = "versus"  # the word whose value is the question that an answer is compared with

HELD = "held"  # the word whose value names the axes of the plan that the page holds: given to the question, but by a slider
OF_PAGE = (VERSUS, HELD)
NEVER_HELD = ("model", "on", "gpus", "global_batch_size")  # what is asked about


def options_of(given: Mapping[str, str]) -> dict[str, str]:
    """The options of an address, without the words of the page and what is empty.

    >>> options_of({"model": "gpt-2", "gpus": "", "versus": "model=bert"})
    {'model': 'gpt-2'}
    """
    return {name: value for name, value in given.items() if value != "" and name not in OF_PAGE}


def open_of(given: Mapping[str, str]) -> dict[str, str]:
    """The options of an address without those that the page holds.

    >>> open_of({"model": "gpt-2", "tp": "2", "pp": "1", "held": "pp"})
    {'model': 'gpt-2', 'tp': '2'}
    """
    held = given.get(HELD, "").split(",")
    return {name: value for name, value in options_of(given).items() if name not in held or name in NEVER_HELD}
