"""Answer ``ironlaw textbook three-roof``: accelerators by the three-roof model, corrected or as the cost-of-bandwidth note prints it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ironlaw.cautions.record import Caution, Sentence
from ironlaw.cautions.table import caution
from ironlaw.errors import MissingOptionError
from ironlaw.estimate.bind.model import bind_model
from ironlaw.estimate.layer.counts import active_parameters, total_parameters
from ironlaw.question import defaults
from ironlaw.question.assumptions import Assumptions, assume
from ironlaw.questions.answer import Answer
from ironlaw.questions.compare.candidates import Hardware
from ironlaw.questions.compare.named import accelerators_of, asked_of, by_full_name, refuse_above_peak, say_model
from ironlaw.questions.compare.prices import best_metric, bind_hardware, price_warnings, rank_prices, simple_prices
from ironlaw.questions.compare.tables import fixes, price_table
from ironlaw.questions.textbook import first_order, three_roof_words
from ironlaw.questions.textbook.first_order import Textbook
from ironlaw.questions.textbook.three_roof import Knobs


def ask_three_roof(values: dict[str, Any], folders: tuple[str, ...]) -> Answer:
    """The three-roof model of every accelerator at every count or target, its prices, and what helps against its bounds."""
    training = values.get("task", "training") == "training"
    if training and not {"gpus", "target_tokens_per_second"} & set(values):
        raise MissingOptionError("missing option --gpus N, or --target-tokens-per-second R", option="gpus")
    on = accelerators_of(values, folders)
    for name in ("price", "peak", "bandwidth", "nic"):
        values[name] = by_full_name(values.get(name, {}), name, on, folders)
    model, left_out = bind_model(values["model"], folders)
    notes: Assumptions = []
    if "seq_len" not in values:
        values["seq_len"] = defaults.seq_len(model.max_position_embeddings)
        assume(notes, "seq_len", values["seq_len"], "default")
    hardware = [bind_hardware(name, values, folders) for name in on]
    knobs = first_order.knobs_of(values, model, folders)
    if training:
        refuse_above_peak(hardware, asked_of(values), float(knobs.active))
    books = _read_books(hardware, values, knobs)
    cost = {
        book.hardware.name: book.first_order.usd_per_million_tokens
        for book in reversed(books)
        if book.first_order.usd_per_million_tokens is not None
    }
    ranking = rank_prices(hardware, cost)
    return Answer(
        title=f"{say_model(model)} {'trained' if training else 'run forward'} on {', '.join(on)}, by the three-roof model",
        headline=[*_say_least(books), *three_roof_words.say_three_roofs(hardware, books, cost, knobs, values)],
        tables=(
            *three_roof_words.tables(books, knobs, values),
            price_table(hardware),
            simple_prices(ranking, "the three-roof model"),
            fixes({book.first_order.bound for book in books}),
        ),
        terms=[
            *first_order.intensities(knobs, values),
            *(term for one in hardware for term in one.terms),
            *(term for book in books for term in book.terms),
        ],
        values={
            "metric": best_metric(ranking),
            "metrics": ranking,
            "rule_pick": three_roof_words.rule_pick(books),
            "parameters": {"total": float(total_parameters(model)), "active": float(active_parameters(model))},
        },
        assumptions=[*notes, *(item for one in hardware for item in one.assumptions)],
        warnings=_warnings(hardware, books, left_out, training),
        feasible=any(math.isfinite(book.first_order.gpus) for book in books),
        folders=folders,
    )


def _read_books(hardware: Sequence[Hardware], values: Mapping[str, Any], knobs: Knobs) -> list[Textbook]:
    """The model of every accelerator at every count or target, the lowest rent first."""
    books, asked = [], asked_of(values)
    for gpus, target in asked:
        for one in hardware:
            label = one.name if len(asked) == 1 else f"{one.name} at {gpus or target or 0:,.0f}"
            device = replace(one.device, name=label)
            own = {**values, "gpus": gpus, "target_tokens_per_second": target}
            first_order.check_replica(own, knobs, device)
            numbers, real, terms, lines = first_order.answer_first_order(own, knobs, device, one.price, one.dense_peak)
            books.append(Textbook(one, label, numbers, real, tuple(terms), tuple(lines)))
    return sorted(books, key=lambda book: book.first_order.usd_per_hour if math.isfinite(book.first_order.usd_per_hour) else math.inf)


def _say_least(books: Sequence[Textbook]) -> list[str]:
    """The accelerators of the lowest rent; nothing where no count answers, or no price is known."""
    best = books[0].first_order
    if not math.isfinite(best.usd_per_hour):
        return []
    text = (
        f"lowest rent: {best.gpus:,.0f} x {books[0].label}, {best.usd_per_hour:,.0f} USD/h, {best.tokens_per_second:,.0f} tokens/s, "
        f"bound by {best.bound}"
    )
    told = {"accelerator": books[0].hardware.name, "gpus": best.gpus, "usd_per_hour": best.usd_per_hour}
    return [Sentence(text, "lowest-rent", told)]


def _warnings(hardware: Sequence[Hardware], books: Sequence[Textbook], left_out: Sequence[str], training: bool) -> list[Caution]:
    """What a reader must know: prices first, then what the model leaves out."""
    lines = [caution("left-out", item=item) for item in left_out]
    if training:
        lines += price_warnings(hardware)
    lines += [line for part in [one.warnings for one in hardware] + [book.warnings for book in books] for line in part]
    return [*lines, *(three_roof_words.warnings(books) if training else [])]
