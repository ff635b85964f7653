"""The table of options, the typed question made of it, and the defaults that help lines state."""

from __future__ import annotations

import pytest

from ironlaw import units
from ironlaw.errors import QuestionError, UnitError
from ironlaw.estimate.bind.question import NOTED
from ironlaw.question.asked import SCALARS, Asked, asked_of, with_options
from ironlaw.question.fields import Row
from ironlaw.question.options import OPTIONS
from ironlaw.question.read import read_options


def test_every_option_is_a_field_and_every_field_an_option():
    assert {name for name, option in OPTIONS.items() if option.column} == set(Row._fields)
    assert {name for name, option in OPTIONS.items() if not option.column} == SCALARS
    assert all(option.help for option in OPTIONS.values())


def shown(value):
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else value


UNSET = {"capacity_factor", "microbatch_group", "cp_inner", "document_length", "offload_layers", "lora_rank"}  # 0 stands for a rule
SEARCHED = {"moe_dispatcher"}  # the constant is that of a whole plan; a search takes what the stack has


@pytest.mark.parametrize("name", sorted(SCALARS - UNSET))
def test_a_help_line_states_the_constant_default(name):
    default = getattr(Asked(), name)
    if default not in (None, "", ()):
        states = f"; {shown(default)} with a whole plan given)" if name in SEARCHED else f"(default: {shown(default)}"
        assert states in OPTIONS[name].help


@pytest.mark.parametrize(
    ("name", "states"), [("cp", "(default: searched; {} with a whole plan given)"), ("etp", "(default: {}; a --space file can list others")]
)
def test_a_help_line_states_the_rule_of_a_column(name, states):
    assert states.format(shown(NOTED[name])) in OPTIONS[name].help


def test_columns_become_rows_and_single_values_are_in_every_row():
    asked = asked_of(read_options({"gpus": [8, 16], "tp": 4, "sp": "on", "schedule": "gpipe"}))
    assert [(row.gpus, row.tp, row.sp, row.pp) for row in asked.rows] == [(8.0, 4.0, True, None), (16.0, 4.0, True, None)]
    assert (asked.schedule, asked.optimizer) == ("gpipe", "adamw")
    assert asked.given == {"gpus": "2 values", "tp": 4, "sp": True, "schedule": "gpipe"}


def test_columns_of_unlike_length_are_refused():
    with pytest.raises(QuestionError, match="gpus has 2 values, other columns 3"):
        asked_of({"gpus": [8.0, 16.0], "tp": [1.0, 2.0, 4.0]})
    with pytest.raises(QuestionError, match="0 values"):
        asked_of({"gpus": []})


def test_an_option_can_be_opened_again():
    asked = with_options(asked_of({"global_batch_tokens": 4e6, "gpus": 8.0}), {"global_batch_tokens": None, "global_batch_size": 512.0})
    assert asked.global_batch_tokens is None
    assert asked.given == {"gpus": 8, "global_batch_size": 512}


def test_reading_a_quantity_takes_time_in_proportion_to_its_length():
    """A number behind which a million blanks stand is refused at once: no part of it is read twice."""
    for text in (f"1{' ' * 1_000_000}y", f"1x{' ' * 1_000_000}y", f"{'1_' * 500_000}y", f"1e{'5' * 1_000_000}y"):
        with pytest.raises(UnitError):
            units.parse(text, "B/s", "nic_bandwidth")
