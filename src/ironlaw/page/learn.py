"""Pages that teach one thing each: a slider, a sentence that changes with it, a figure, three reasons. Drawn from plain data of answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from htpy import Element, Node, a, code, div, h2, p, section, span

from ironlaw.figures.of_rows import flop_parts
from ironlaw.figures.table import draw
from ironlaw.page.estimate import memory_block, roofs_block
from ironlaw.page.figure import live_block
from ironlaw.page.parts import Cell, block, rows_table
from ironlaw.page.words import DASH, FIXED, change, figure, quantity, share, whole

Answer = Any


class Stop(NamedTuple):
    """A stop of a slider: its value in words, the sentence, what follows from it, and the figure with its numbers."""

    value: str
    verdict: str
    lead: str
    content: Node


class Reason(NamedTuple):
    """A short reason: its title, its text, and a command that shows it."""

    title: str
    text: str
    command: str = ""


class Lesson(NamedTuple):
    """A page: its title, what the slider moves, its stops, where it begins, the reasons, the same as a question of the page."""

    title: str
    slider: str
    stops: Sequence[Stop]
    first: int
    reasons: Sequence[Reason]
    question: str


def reasons_block(reasons: Sequence[Reason], question: str) -> Element:
    """The reasons side by side; the last leads to the question."""
    return div(".reasons")[
        (
            section[
                h2[one.title],
                p[one.text],
                one.command and p[code[one.command]],
                one is reasons[-1] and a(href=question)["Open as a question"],
            ]
            for one in reasons
        )
    ]


# --- the roofline


def roofline_stops(answers: Sequence[tuple[str, Answer]], tokens: Sequence[int], subject: str) -> list[Stop]:
    """Operators of a layer at each number of tokens.

    Parameters
        answers: of each operator its name and its roofline, whose rows are the stops
        tokens: of each stop
        subject: whose layer on which accelerator
    """
    columns = [[{**answer["operators"][at], "operator": name} for name, answer in answers] for at in range(len(tokens))]
    turns = next((tokens[at] for at, column in enumerate(columns) if all(one["roof"] == "compute" for one in _products(column))), None)
    return [_roofline_stop(column, count, turns, subject) for column, count in zip(columns, tokens, strict=True)]


def _products(column: Sequence[Answer]) -> list[Answer]:
    """The matrix products of a layer."""
    return [one for one in column if one["operator"] not in ("attention", "norm", "SwiGLU")]


def _roofline_stop(column: Sequence[Answer], tokens: int, turns: int | None, subject: str) -> Stop:
    """One number of tokens."""
    ridge = max(one["ridge_point"] for one in _products(column))
    bound = {one["roof"] for one in _products(column)}
    if bound == {"compute"}:
        verdict = f"With {whole(tokens)} tokens the products compute."
    elif turns is None:
        verdict = f"With {whole(tokens)} tokens the products wait for memory."
    else:
        verdict = (
            f"With {whole(tokens)} tokens {'some' if len(bound) > 1 else 'the'} products wait for memory; with {whole(turns)} they compute."
        )
    lead = (
        "An operator can be no faster than its arithmetic allows and no faster than its bytes arrive. Which of the two binds depends on "
        f"one number: how many operations it does for each byte. Here the two meet at {ridge:.0f}."
    )
    rows = [
        [
            Cell([span(class_=f"swatch {one['roof']}"), one["operator"]]),
            Cell(f"{one['intensity']:.3g}", True),
            Cell(quantity(one["least_time"], "s"), True),
            Cell(DASH if one["expected_time"] is None else quantity(one["expected_time"], "s"), True),
            Cell(DASH if one["expected_time"] is None else share(one["least_time"] / one["expected_time"], 0), True),
        ]
        for one in column
    ]
    heads = [Cell("Operator"), Cell("FLOP/B", True), Cell("Least", True), Cell("Expected", True), Cell("Of roof", True)]
    spec = draw("roofline", {"title": subject, "operators": list(column), "headline": []})
    content = [
        live_block("roofline", spec),
        block("Operators of a layer", rows_table(heads, rows, caption="Operators of a layer"), aside=subject),
    ]
    return Stop(f"{whole(tokens)} tokens", verdict, lead, content)


# --- 6 N D


def six_nd_stops(answers: Sequence[Answer]) -> list[Stop]:
    """FLOP of a token at each length of the sequence."""
    spec = draw("flop-token", list(answers))
    return [_six_nd_stop(answer, spec) for answer in answers]


def _six_nd_stop(answer: Answer, spec: Any) -> Stop:
    """One length of the sequence."""
    parts, length = flop_parts(answer), answer["plan"]["seq_len"]
    counted, rule = sum(parts.values()), 6.0 * answer["parameters"]["active"]
    part = parts["attention"] / counted
    verdict = f"At {whole(length)} tokens attention is {share(part, 0)} of the arithmetic."
    lead = (
        f"Each parameter multiplies and adds once for each token: 2 FLOP. Backward does it twice more. "
        f"So 6 N is {quantity(rule, 'FLOP')} a token; what is computed is {quantity(counted, 'FLOP')}, {change(counted / rule - 1.0)}."
    )
    listed = (
        ("forward, 2 a parameter that multiplies", parts["forward"]),
        ("backward, 4 a parameter", parts["backward"]),
        ("attention, forward and backward", parts["attention"]),
        ("counted", counted),
        ("6 N, all parameters", rule),
    )
    rows = [[Cell(name), Cell(quantity(size, "FLOP"), True), Cell(share(size / counted), True)] for name, size in listed]
    heads = [Cell("FLOP of a token"), Cell("Size", True), Cell("Of counted", True)]
    return Stop(
        f"{whole(length)} tokens",
        verdict,
        lead,
        [live_block("flop-token", spec), block("A token of training", rows_table(heads, rows, caption="FLOP of a token"))],
    )


# --- checkpointing


def checkpointing_stops(answer: Answer) -> list[Stop]:
    """Memory and time of each way to recompute."""
    rows, spec = answer["checkpoints"], draw("checkpointing", answer)
    return [_checkpointing_stop(one, rows[0], spec, str(answer["title"])) for one in rows]


def _checkpointing_stop(one: Answer, base: Answer, spec: Any, subject: str) -> Stop:
    """One way to recompute."""
    if one is base:
        verdict = f"Keeping everything takes {quantity(one['device'], 'B')}."
    else:
        saved, longer = base["device"] - one["device"], one["seconds"] / base["seconds"] - 1.0
        kept = "the input of every layer" if one["how"] == "full" else f"the input of one layer in {one['interval']:.0f}"
        verdict = f"Keeping {kept} saves {quantity(saved, 'B')} and takes {change(longer, 0).removeprefix('+')} longer."
    lead = (
        "Backward needs what forward computed. Checkpointing keeps a part of it and computes the rest again: one more forward pass, "
        "a third of a step's arithmetic."
    )
    cells = (
        ("memory of the fullest accelerator", quantity(one["device"], "B")),
        ("step", quantity(one["seconds"], "s")),
        ("checkpoints", whole(one["checkpoints"])),
        ("activations, exact form", quantity(one["exact"], "B")),
        ("activations, textbook's simple form", quantity(one["simple"], "B")),
    )
    rows = [[Cell(name), Cell(text, True)] for name, text in cells]
    heads = [Cell(str(one["how"])), Cell("", True)]
    content = [
        live_block("checkpointing", spec),
        block(f"Recompute {one['how']}", rows_table(heads, rows, caption="This way"), aside=subject),
    ]
    return Stop(str(one["how"]), verdict, lead, content)


# --- parallelism


def parallelism_stops(answers: Sequence[Answer]) -> list[Stop]:
    """Memory and roofs at each degree of tensor parallelism, all else held."""
    spec = draw("memory-batch", list(answers))
    best = min((answer for answer in answers if answer["memory"]["fits"]), key=lambda answer: answer["step"]["seconds"], default=None)
    return [_parallelism_stop(answer, best, spec) for answer in answers]


def _parallelism_stop(answer: Answer, best: Answer | None, spec: Any) -> Stop:
    """One degree of tensor parallelism."""
    degree, memory, seconds = answer["plan"]["tp"], answer["memory"], figure(answer["step"]["seconds"], "s")
    network, held = share(answer["bound"]["shares"]["network"], 0), quantity(memory["device"], "B")
    if not memory["fits"]:
        verdict = f"With tp {degree} it does not fit: {held} of {quantity(memory['capacity_bytes'], 'B')}."
    elif best is answer:
        verdict = f"With tp {degree} it fits and is fastest: {seconds} a step, {network} of it network."
    else:
        verdict = f"With tp {degree} it fits, and a step takes {seconds}, {network} of it network."
    lead = (
        "Tensor parallelism splits every product over accelerators. Each holds less, and they wait for each other twice in every layer. "
        "All else is held here: pipeline, batch, micro-batch."
    )
    content = [memory_block(answer), roofs_block(answer), live_block("memory-batch", spec)]
    return Stop(f"tp{FIXED}{degree}", verdict, lead, content)
