"""The words of an address: options of a verb, and those of the page beside them."""

from __future__ import annotations

from collections.abc import Mapping

VERSUS = "versus"  # the word whose value is the question that an answer is compared with


def options_of(given: Mapping[str, str]) -> dict[str, str]:
    """The options of an address, without the words of the page and what is empty.

    >>> options_of({"model": "gpt-2", "gpus": "", "versus": "model=bert"})
    {'model': 'gpt-2'}
    """
    return {name: value for name, value in given.items() if value != "" and name != VERSUS}
