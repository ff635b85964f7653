"""An estimate as HTML, from the plain data of ``ironlaw estimate --json``: the verdict, memory, four numbers, roofs, trees, evidence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from htpy import Element, Node, div, fragment, li, p, span, strong, ul

from ironlaw.page.figure import Draws, no_figure
from ironlaw.page.parts import Branch, Cell, Ghost, Segment, View, block, facts, link, meter, rows_table, strip, tree, value, warning
from ironlaw.page.words import (
    FIXED,
    as_sentence,
    change,
    days,
    energy_of,
    figure,
    interval,
    is_doubtful,
    large,
    money,
    quantity,
    share,
    whole,
)

Answer = Mapping[str, Any]

ROOFS = ("compute", "hbm", "network", "pipeline", "dispatch", "data")
TITLES = {"hbm": "HBM"}
MEMORY = ("weights", "gradients", "optimizer", "activations", "workspace", "slack")  # in the order of the bar
DRAWN = (
    "job",
    "fits",
    "unfit",
    "does-not-fit",
    "step",
    "bound",
    "plan",
    "parameters",
)  # sentences of the headline that the view shows in its own way
OF_OTHERS = ("published-layout", "fastest-without-evidence")  # sentences that stand beside the table of other plans
LEAST = 0.005  # a smaller probability is none
SHOWN = 3  # published runs, and warnings before the rest folds


def verdict(answer: Answer) -> str:
    """The answer in one sentence."""
    memory, run = answer["memory"], answer["run"]
    if not memory["fits"]:
        over = quantity(memory["device"] - memory["capacity_bytes"], "B")
        return f"It does not fit: {quantity(memory['device'], 'B')} of {quantity(memory['capacity_bytes'], 'B')}, {over} over the limit."
    fits = f"It may not fit ({memory['fits_probability']:.0%} likely)" if is_doubtful(memory) else "It fits"
    if run and (taken := run.get("days_with_failures") or run.get("days")) is not None:
        return f"{fits}, and {large(run['tokens'])} tokens take {days(taken)}."
    return f"{fits}, and a step takes {quantity(answer['step']['seconds'], 's')}."


def lead(answer: Answer) -> Node:
    """What binds the step, what would help, how far the step may be from the truth; then whatever else the headline says."""
    said = {one["code"]: one["text"] for one in answer["headline"]}
    sentences = [as_sentence(said["bound"])] if "bound" in said else []
    if band := answer["step"].get("band"):
        low, high, _ = band
        seconds = answer["step"]["seconds"]
        sentences.append(f"The step could be {share(1.0 - low / seconds, 0)} shorter or {share(high / seconds - 1.0, 0)} longer.")
    further = [li[as_sentence(one["text"])] for one in answer["headline"] if one["code"] not in (*DRAWN, *OF_OTHERS)]
    return [p[" ".join(sentences)], further and ul(".further")[further]]


def subject(answer: Answer) -> str:
    """What was asked about, in a line."""
    plan, run = answer["plan"], answer["run"]
    asked = next((one["text"] for one in answer["headline"] if one["code"] == "job"), f"{plan['model']} on {plan['accelerator']}")
    tokens = f", {large(run['tokens'])}{FIXED}tokens" if run and run.get("tokens") else ""
    batch = f"{whole(plan['global_batch_size'])}{FIXED}\u00d7{FIXED}{whole(plan['seq_len'])} tokens"
    named = asked.replace(" x ", " \u00d7 ")
    return f"{named}, batch {batch}{tokens}"


def view(answer: Answer, draws: Draws = no_figure) -> View:
    """The view of an estimate."""
    if broken := next((one for one in answer["headline"] if one["code"] == "no-such-plan"), None):
        return refused(answer, broken)
    return View(subject(answer), verdict(answer), lead(answer), sections(answer, draws), sources_block(answer))


def refused(answer: Answer, broken: Answer) -> View:
    """The view of a plan that breaks a rule: which, and no number."""
    broke = str(broken["text"]).partition(": ")[2].split("; ")
    reasons = [li[one if one.startswith("tp ") else as_sentence(one)] for one in broke]
    others = [one for one in answer.get("warnings") or [] if (one if isinstance(one, str) else one["sentence"]) not in broke]
    further = [p[as_sentence(one["text"])] for one in answer["headline"] if one["code"] != "no-such-plan"]
    content = div(".view")[block("What it breaks", ul(".further")[reasons]), warnings({"warnings": others}), question_block(answer)]
    return View(f"{answer['plan']['model']} on {answer['plan']['accelerator']}", "There is no such plan.", further, content, None)


def sections(answer: Answer, draws: Draws = no_figure, before: Answer | None = None) -> Element:
    """All that stands below the verdict; ``before``: an answer that this one is compared with."""
    return div(".view")[
        div(".view.first-screen")[first_screen(answer, before)],
        div(".columns")[step_block(answer), memory_tree_block(answer)],
        draws("waterfall", answer),
        div(".columns.evidence")[runs_block(answer), band_block(answer)],
        other_plans(answer),
        warnings(answer),
        question_block(answer),
    ]


def first_screen(answer: Answer, before: Answer | None = None) -> list[Node]:
    """What is seen first: memory, what would make it fit, four numbers, roofs."""
    return [memory_block(answer, before), remedies_block(answer), values_block(answer, before), roofs_block(answer)]


def memory_block(answer: Answer, before: Answer | None = None) -> Element:
    """The memory of the fullest accelerator against its limit; a tick where it was ``before``."""
    memory = answer["memory"]
    limit, device = memory["capacity_bytes"], memory["device"]
    sizes = dict.fromkeys(MEMORY, 0.0)
    for kind, size in memory_items(memory["tree"]):
        sizes[kind] = sizes.get(kind, 0.0) + size
    names = {"slack": "allocator slack"}
    segments = [Segment(kind, names.get(kind, kind), quantity(size, "B"), size) for kind, size in sizes.items() if size > 0.0]
    band = memory.get("band")
    most = max(limit * 1.02, device * 1.02, band[1] if band else 0.0)
    words = f"{band[2] * 100:.0f}{FIXED}% band {interval(quantity(band[0], 'B'), quantity(band[1], 'B'))}" if band else ""
    fits = memory["fits"] and not is_doubtful(memory)
    aside: list[Node] = [
        strong(data_explain="device memory")[quantity(device, "B")], f" of {quantity(limit, 'B')} ({share(device / limit, 0)}), ",
        span(class_="good" if fits else "bad")[_likely(memory)],
    ]  # fmt: skip
    described = f"{quantity(device, 'B')} of {quantity(limit, 'B')}, {_likely(memory)}"
    return block(
        "Memory of the fullest GPU",
        meter(
            segments,
            most,
            described,
            (limit, f"limit {quantity(limit, 'B')}"),
            memory.get("margin", 0.0) * limit,
            (band[0], device, band[1], words) if band else None,
            _ticks(most),
            min(before["memory"]["device"], most) if before else None,
        ),
        aside=aside,
    )


def remedies_block(answer: Answer) -> Node:
    """What would make a plan fit: offers, and the nearest numbers of accelerators that work."""
    near = answer.get("nearest_gpus") or []
    offered = [li[_offer(one)] for one in answer.get("offers") or []]
    if not near and not offered:
        return None
    counts = (
        near
        and p[
            "Nearest numbers of accelerators that work: ",
            [[", " if at else "", span(data_set=f"gpus={count:.0f}")[whole(count)]] for at, count in enumerate(near)],
        ]
    )
    return block("What would make it fit", offered and ul(".further")[offered], counts)


def _offer(one: Answer) -> Node:
    """Another way to run, which the page makes a link; what it takes, and how much longer."""
    options = ", ".join(f"{name.replace('_', ' ')} {given}" for name, given in one["options"].items())
    likely = f", {share(one['fits_probability'], 0)} likely to fit" if one.get("fits_probability") is not None else ""
    longer = f" ({one['times_as_long']:.2g} times as long)" if (one.get("times_as_long") or 0.0) >= 1.05 else ""
    takes = f" it takes {quantity(one['device'], 'B')}{likely}; a step takes {quantity(one['step_seconds'], 's')}{longer}."
    return ["With ", span(data_set=urlencode(one["options"]))[options], takes]


def _likely(memory: Answer) -> str:
    """How likely the plan fits, in words."""
    likely = memory.get("fits_probability")
    if likely is None:
        return "fits; no odds" if memory["fits"] else "does not fit"
    return "does not fit" if likely < LEAST else f"{share(likely, 0)} likely to fit"


def memory_items(node: Answer) -> Iterator[tuple[str, float]]:
    """Kind and bytes of the terms of memory that a person knows: below device, reserved and allocated."""
    for part in node["parts"]:
        if part["name"] in ("reserved", "allocated"):
            yield from memory_items(part)
        elif part["total"] > 0.0:
            yield kind_of(part), part["total"]


def kind_of(node: Answer) -> str:
    """The colour of a term: its kind, or the one that most of it is."""
    kinds = node.get("kinds") or {}
    return str(node.get("kind") or (max(kinds, key=lambda name: kinds[name]) if kinds else "rest"))


def _ticks(most: float) -> list[tuple[float, str]]:
    """Four or five round marks of an axis of bytes."""
    unit = 2.0**30 if most >= 2.0**30 else 2.0**20
    size = most / unit
    step = next(s * 10.0**e for e in range(-2, 6) for s in (1, 2, 5) if size / (s * 10.0**e) <= 6.0)
    marks = [at * step for at in range(int(size / step) + 1)]
    name = "GiB" if unit == 2.0**30 else "MiB"
    return [(mark * unit, f"{mark:g}{FIXED}{name}" if mark == marks[-1] else f"{mark:g}") for mark in marks]


def values_block(answer: Answer, before: Answer | None = None) -> Element:
    """Step, run, money and energy, each with its band; where each was ``before``, and the change in percent."""
    step, run = answer["step"], answer["run"]
    band = step.get("band")
    around = (band[0], step["seconds"], band[1]) if band else None
    cells = [value("One step", figure(step["seconds"], "s"), around, _ends(band, "s"), "step", before=_step_before(answer, before))]
    return div(".values")[cells, run and _run_values(run, answer, (before or {}).get("run"))]


def _step_before(answer: Answer, before: Answer | None) -> Ghost | None:
    """How the step was: with another batch its change says nothing, and the batch's is named."""
    if before is None or not before["step"]["seconds"] or not answer["step"]["seconds"]:
        return None
    old = before["step"]["seconds"]
    tokens = [float(one["plan"]["global_batch_size"]) * float(one["plan"]["seq_len"]) for one in (answer, before)]
    if tokens[0] != tokens[1]:
        return Ghost(old, f"batch{FIXED}\u00d7{FIXED}{tokens[0] / tokens[1]:.3g}")
    return _cost_before(answer["step"]["seconds"], old)


def _cost_before(now: float, old: float | None) -> Ghost | None:
    """What something cost: less is better."""
    if not old:
        return None
    moved = now / old - 1.0
    return Ghost(old, change(moved), "good" if moved < -5e-4 else "bad" if moved > 5e-4 else "")


def _ends(band: Sequence[float] | None, unit: str) -> str:
    """The ends of a band in a unit."""
    return interval(quantity(band[0], unit), quantity(band[1], unit)) if band else "no published run like this was scored"


def _run_values(run: Answer, answer: Answer, before: Answer | None) -> list[Element]:
    """Days, money and energy of the run, with failures where they are counted; and what they were ``before``."""
    failing = run.get("days_with_failures") is not None
    suffix = "_with_failures" if failing else ""
    assumed = {one["name"]: str(one["value"]) for one in answer["assumptions"]}

    def banded(name: str) -> tuple[float, float, float] | None:
        band = (run.get("bands") or {}).get(name + suffix)
        return (band[0], run[name + suffix], band[1]) if band else None

    def ghost(name: str) -> Ghost | None:
        return _cost_before(run[name + suffix], (before or {}).get(name + suffix))

    cells = []
    if run.get(f"days{suffix}") is not None:
        band = banded("days")
        words = interval(str(days(band[0])), str(days(band[2]))) if band else ""
        title = "The run, with failures" if failing else "The run, no failures"
        cells.append(value(title, days(run[f"days{suffix}"]), band, words, "run", before=ghost("days")))
    if run.get(f"usd{suffix}") is not None:
        band = banded("usd")
        ends = interval(str(money(band[0])), str(money(band[2]))) if band else ""
        price = f"at {assumed['price'].split(' (')[0]}" if "price" in assumed else ""
        cells.append(value("Money", money(run[f"usd{suffix}"]), band, " ".join(filter(None, (ends, price))), "cost", before=ghost("usd")))
    if run.get(f"kwh{suffix}") is not None:
        band, carbon = banded("kwh"), run.get(f"kg_co2e{suffix}")
        ends = interval(str(energy_of(band[0])), str(energy_of(band[2]))) if band else ""
        grid = f", {assumed['grid'].split(':')[0]}" if "grid" in assumed else ""
        emitted = f"{quantity(carbon, 'kg')} CO\u2082e{grid}" if carbon is not None else ""
        words = "; ".join(filter(None, (ends, emitted)))
        cells.append(value("Energy", energy_of(run[f"kwh{suffix}"]), band, words, "energy", before=ghost("kwh")))
    return cells


def roofs_block(answer: Answer) -> Element:
    """What bounds the step: a bar of roofs."""
    shares, speed = answer["bound"]["shares"], answer["throughput"]
    segments = [Segment(name, TITLES.get(name, name), share(part), part) for name, part in shares.items() if part > 0.0]
    if (rest := 1.0 - sum(one.size for one in segments)) > 5e-4:
        segments.append(Segment("rest", "the rest", share(rest), rest))
    peak = speed["peak"]
    aside: list[Node] = [f"{whole(speed['tokens_per_second'])}{FIXED}tokens/s"]
    if peak and speed["mfu"] is not None:
        of = f" of {quantity(peak['flop_per_second'], 'FLOP/s')} {peak['precision']}, "
        aside[:0] = [strong(data_explain="mfu")[f"MFU {share(speed['mfu'])}"], of]
    named = ", ".join(f"{one.name} {one.text}" for one in segments)
    title = f"What bounds the step of {quantity(answer['step']['seconds'], 's')}"
    return block(title, meter(segments, max(1.0, sum(one.size for one in segments)), named), aside=aside)


def branch_of(node: Answer, whole_size: float, unit: str) -> Branch:
    """A node of a tree of terms, as it is drawn."""
    size = float(node["total"])
    parts = tuple(branch_of(part, whole_size, unit) for part in node["parts"])
    return Branch(node["name"], quantity(size, unit), size / whole_size if whole_size else 0.0, kind_of(node), node["path"], parts)


def step_block(answer: Answer) -> Element:
    """Where a step goes, term by term."""
    step = answer["step"]
    parts = [branch_of(part, step["seconds"], "s") for part in step["tree"]["parts"]]
    stage = f"Term, on the slowest stage ({step['stage']})" if step.get("stage") else "Term"
    return block("Step, term by term", tree(parts, (stage, "Time", "Of step")))


def memory_tree_block(answer: Answer) -> Element:
    """What the fullest accelerator holds, item by item."""
    memory = answer["memory"]
    limit = memory["capacity_bytes"]

    def flat(node: Answer) -> Iterator[Branch]:
        for part in node["parts"]:
            if part["name"] in ("reserved", "allocated"):
                yield from flat(part)
            else:
                yield branch_of(part, limit, "B")

    stage = f"Fullest GPU, stage {memory['stage']}" if memory.get("stage") else "Fullest GPU"
    sums = ", ".join(f"{name} {quantity(memory[name], 'B')}" for name in ("allocated", "reserved", "device"))
    moment = memory.get("moment")
    when = f"; fullest while {moment}" if moment and moment != "step" else ""
    return block(
        "Memory, item by item",
        tree(list(flat(memory["tree"])), (stage, "Size", "Of limit"), 1),
        p(".note")[sums + when],
        aside=f"limit {quantity(limit, 'B')}",
    )


def runs_block(answer: Answer) -> Node:
    """The nearest published runs and how far off their prediction was."""
    runs, band = answer.get("nearest_runs") or [], answer["step"].get("band")
    if not runs:
        return block("Nearest published runs", p(".note")["No published run is near enough to say how wrong this is."])
    seconds = answer["step"]["seconds"]
    low, high = (band[0] / seconds - 1.0, band[1] / seconds - 1.0) if band else (-0.2, 0.2)
    reach = max([abs(low), abs(high), *(abs(run["error"]) for run in runs[:SHOWN])]) * 1.1
    rows = [
        [
            Cell([strong[run["id"]], div(".note")[_kind_of_run(run)]]),
            Cell(quantity(run["measured_seconds"], "s"), True), Cell(quantity(run["predicted_seconds"], "s"), True),
            Cell(strong[change(run["error"])], True), Cell(strip(low, run["error"], high, -reach, reach)),
        ]
        for run in runs[:SHOWN]
    ]  # fmt: skip
    heads = [Cell("Run"), Cell("Measured", True), Cell("Predicted", True), Cell("Error", True), Cell("Error in this band")]
    return block(
        "Nearest published runs", rows_table(heads, rows, caption="Nearest published runs"), aside="predicted without their publisher"
    )


def _kind_of_run(run: Answer) -> str:
    return f"{run['model']}, {whole(run['gpus'])}{FIXED}\u00d7{FIXED}{run['accelerator']}, {run['format']}"


def band_block(answer: Answer) -> Node:
    """Why the band is as wide as it is, and what would make it narrower."""
    band, found = answer["step"].get("band"), answer.get("error_band")
    if not band or not found:
        return block("Why there is no band", p(".note")["No published run of this kind was scored; give one measured step of your own."])
    seconds = answer["step"]["seconds"]
    parts = [(name, part) for name, part in found["parts"].items() if part > 0.0]
    segments = [Segment(f"part-{at % 5}", name, share(part), part) for at, (name, part) in enumerate(parts)]
    named = ", ".join(f"{name} {share(part)}" for name, part in parts)
    narrower = [li[span[one["what"]], span(".cell")[f"\u00b1{FIXED}{share(one['half_width'])}"]] for one in found["narrower"]]
    width = f"{found['coverage'] * 100:.0f}{FIXED}%, {change(band[0] / seconds - 1.0, 0)} to {change(band[1] / seconds - 1.0, 0)}"
    return block(
        "Why the band is this wide",
        meter(segments, sum(one.size for one in segments), named),
        narrower and [p(".label")["Make it narrower"], ul(".pairs")[narrower]],
        aside=width,
    )


def other_plans(answer: Answer) -> Node:
    """Published layouts and the fastest plan without evidence, beside the plan that was chosen."""
    rows = []
    for one in answer.get("published_layouts") or []:
        layout = ", ".join(f"{name} {chosen}" for name, chosen in one["plan"].items() if chosen not in (1, None))
        loss = one["why_not"] or ("the same" if one.get("same") else f"likely {change(one['likely_longer'])}")
        rows.append([Cell([strong[one["title"]], div(".plan")[layout]]), Cell(quantity(one["step_seconds"], "s"), True), Cell(loss)])
    if faster := answer.get("faster_unmeasured"):
        layout = ", ".join(f"{name} {chosen}" for name, chosen in faster["plan"].items() if chosen not in (1, None))
        loss = f"likely {change(-faster['likely_gain'])}; never measured: {', '.join(faster['never_measured'])}"
        rows.append(
            [Cell([strong["fastest without evidence"], div(".plan")[layout]]), Cell(quantity(faster["seconds"], "s"), True), Cell(loss)]
        )
    said = [li[as_sentence(one["text"])] for one in answer["headline"] if one["code"] in OF_OTHERS]
    if not rows and not said:
        return None
    heads = [Cell("Plan"), Cell("Step", True), Cell("Against this plan")]
    listed = rows and rows_table(heads, rows, caption="Other plans to know")
    return block("Other plans to know", listed, said and ul(".further")[said])


def warnings(answer: Answer) -> Node:
    """The warnings, those after the third folded."""
    from htpy import details, summary

    drawn = [_warning(one) for one in answer.get("warnings") or []]
    if len(drawn) <= SHOWN:
        return fragment[drawn]
    return fragment[drawn[:SHOWN], details(".more")[summary[f"{len(drawn) - SHOWN} more warnings"], drawn[SHOWN:]]]


def _warning(one: Any) -> Element:
    """A warning, its first part bold; of an older answer it is a text, of a newer one a record."""
    text = one if isinstance(one, str) else one["sentence"]
    action = None if isinstance(one, str) or str(one.get("action")) in text else one.get("action")
    for mark in (": ", ", ", "; "):
        first, found, rest = text.partition(mark)
        if found and len(first) < 90:
            return warning(f"{first[:1].upper()}{first[1:]}{mark.strip()}", rest, action)
    return warning("", text, action)


ORIGINS = (("given", "Given"), ("chosen", "Chosen by ironlaw"), ("default", "Assumed"))


def question_block(answer: Answer) -> Element:
    """What was given, chosen and assumed; what was not searched; where the values come from."""
    groups = []
    for origin, title in ORIGINS:
        listed = [(str(one["name"]), _shown(one["value"])) for one in answer["assumptions"] if one["origin"] == origin]
        if listed:
            groups.append([p(".label")[title], facts(listed)])
    unsearched = answer.get("not_searched") or []
    return block(
        "Given, chosen, assumed",
        groups,
        unsearched and p(".note")["Not searched: ", ", ".join(str(name).replace("_", " ") for name in unsearched)],
        id="assumptions",
    )


def _shown(given: Any) -> str:
    """A value of the question."""
    if isinstance(given, bool):
        return "on" if given else "off"
    if isinstance(given, (int, float)):
        return str(large(given)) if abs(given) >= 1e6 else f"{given:g}" if isinstance(given, float) else str(given)
    return "" if given is None else str(given)


def sources_block(answer: Answer) -> Node:
    """Every source of the answer, with its grade and the day it was read."""
    listed = answer.get("sources") or {}
    if not listed:
        return None
    rows = [
        [Cell(span(class_=f"grade {one['grade']}")[one["grade"]]), Cell(link(one["title"], one["url"])), Cell(one["read"], True)]
        for one in listed.values()
    ]
    return block(
        "Sources", rows_table([Cell("Grade"), Cell("Source"), Cell("Read", True)], rows, caption="Sources"), aside=f"{len(rows)} records"
    )
