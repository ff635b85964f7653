"""What the server sends: the document, the question at the left, the answer, a term in the drawer, why there is no answer."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from htpy import (
    Element,
    Node,
    a,
    aside,
    body,
    button,
    code,
    datalist,
    details,
    dialog,
    div,
    form,
    fragment,
    h1,
    h2,
    head,
    header,
    html,
    label,
    li,
    link,
    main,
    meta,
    nav,
    p,
    pre,
    script,
    span,
    strong,
    summary,
    template,
    title,
    ul,
)  # fmt: skip
from htpy import input as entry
from markupsafe import Markup

from ironlaw.catalog import load
from ironlaw.interface import arguments
from ironlaw.page import validation, words
from ironlaw.page.estimate import first_screen, sections
from ironlaw.page.figure import live
from ironlaw.page.parts import View
from ironlaw.page.saved import given_texts
from ironlaw.page.views import view_of
from ironlaw.validate.shipped import read_shipped
from ironlaw.web.address import HELD, VERSUS, open_of, options_of
from ironlaw.web.drop import drop_form

VIEWS = (  # of the top bar, in the order of their keys; those that ask share a question
    ("estimate", "Estimate"), ("plan", "Plan"), ("compare", "Compare"), ("sites", "Sites"), ("diagnose", "Diagnose"),
    ("validation", "Validation"), ("catalog", "Catalogue"), ("learn", "Learn"),
)  # fmt: skip
OF_FILES = ("estimate", "plan")  # verbs that read a question in TOML
ASKING = ("estimate", "plan", "compare", "sites")
FIELDS = (  # of the question: name, label, words behind, where the first guesses come from
    ("model", "Model", "a name, or drop config.json", "models"),
    ("gpus", "Accelerators", "GPUs", ""),
    ("on", "Kind", "", "accelerators"),
    ("global_batch_size", "Global batch", "sequences", ""),
    ("seq_len", "Sequence", "tokens", ""),
    ("tokens", "Tokens of the run", "such as 15T", ""),
    ("framework", "Stack", "", "frameworks"),
    ("precision", "Precision", "", "precisions"),
)
FIELDS_OF = {  # of verbs whose question is another
    "sites": (
        FIELDS[0],
        ("sites", "Sites", "cities, regions, lat,lon", ""),
        ("gpus", "Accelerators", "all, or one number a site", ""),
        FIELDS[2],
        ("wan_bandwidth", "Network of each site", "such as 400Gb/s", ""),
        ("global_batch_size", "Batch of all sites", "sequences", ""),
        ("tokens", "Tokens of the run", "such as 15T", ""),
        ("batch_split", "Split of the batch", "gpus, even, balanced", ""),
        ("inner_steps", "Exchange every", "steps", ""),
        ("gradients", "Format sent", "bf16, int8", ""),
        ("exchange", "Exchange", "ring, tree", ""),
    ),
    "compare": (*FIELDS[:2], ("on", "Kinds", "several, with commas", "accelerators"), *FIELDS[3:]),
    "money": (
        *FIELDS[:3],
        FIELDS[5],
        ("price", "Price", "USD an hour each", ""),
        ("reserved_price", "Reserved price", "USD an hour", ""),
        ("spot_price", "Spot price", "USD an hour", ""),
        ("purchase_price", "Purchase price", "USD each", ""),
        ("utilization", "Use of what is owned", "share", ""),
    ),
}
AXES = (
    "tp", "pp", "vpp", "cp", "ep", "etp", "dp_replicate", "dp_shard", "zero", "micro_batch_size", "recompute", "sp", "overlap", "offload",
    "layers_per_stage", "moe_dispatcher", "count_embedding", "schedule",
)  # fmt: skip
EXAMPLES = (
    ("Llama 3 70B on 512 H100", "/estimate?model=llama-3-70b&on=h100-sxm&gpus=512&tokens=15T"),
    ("DeepSeek-V3 on 2,048 H800", "/estimate?model=deepseek-v3&on=h800&gpus=2048&precision=fp8&tokens=14.8T"),
    ("Llama 3 8B on 8 B200", "/estimate?model=llama-3-8b&on=b200-sxm&gpus=8&tokens=1T"),
)
EXAMPLES_OF = {
    "compare": (
        ("Llama 3 70B on 512 of H100, B200 and MI300X", "/compare?model=llama-3-70b&on=h100-sxm,b200-sxm,mi300x&gpus=512&tokens=15T"),
    ),
    "sites": (
        (
            "Llama 3 70B in Lulea, Dublin and Ashburn",
            "/sites?model=llama-3-70b&sites=lulea,dublin,ashburn&on=h100-sxm&gpus=2048,1024,2048&wan_bandwidth=400Gb/s&inner_steps=100"
            "&tokens=15T&global_batch_size=1280",
        ),
    ),
}
RECORDS = {"on": "accelerator", "model": "model"}  # options that name a record, and where an answer has its name
NEXT = (  # what else is asked of a run: a verb, and its question
    ("optimize", "What makes it cheaper or faster?"), ("plan", "Another plan?"), ("compare", "Another accelerator?"),
    ("money", "Rent or buy?"),
)  # fmt: skip
ASKS = {  # the first words of an empty page
    "sites": "Which data centres would you train in?", "compare": "Which accelerators would you compare?",
    "plan": "Which plan would train what, on what?", "money": "What would which run cost?", "optimize": "What would make which run faster?",
}  # fmt: skip
OFFERED = 3  # accelerators that are offered to be compared
CURVED = "global_batch_size"  # the slider with a curve above it
SLIDERS = {"gpus": (8, 16384), "global_batch_size": (16, 16384)}


def link_to(verb: str, given: Mapping[str, Any], **changes: Any) -> str:
    """The address of a question, with options changed or, where the change is None, left out."""
    asked = {**given, **changes}
    return f"/{verb}?" + urlencode({name: value for name, value in asked.items() if value not in (None, "")})


def document(verb: str, given: Mapping[str, str], inside: Node, page_title: str, took: Node = None) -> str:
    """The whole page; ``inside``: the answer, or the empty state; ``took``: what was taken from dropped files."""
    whole: Element = html(lang="en")[
        head[
            meta(charset="utf-8"),
            meta(name="viewport", content="width=device-width, initial-scale=1"),
            title[f"{page_title}, ironlaw"],
            link(rel="icon", href="/static/icon.svg", type="image/svg+xml"),
            link(rel="stylesheet", href="/static/style.css"),
            link(rel="stylesheet", href="/static/app.css"),
            script(type="module", src="/static/app.js"),
        ],
        body(".ironlaw.themed")[
            a(".skip", href="#answer")["Skip to the answer"],
            _bar(verb, given),
            div("#busy", role="status", hidden=True)[span(".track"), span(".words"), button("#stop", type="button")["Stop"]],
            took and div(".frame.of-took")[took],
            div("#page")[inside],
            dialog("#drawer", aria_label="Why this number")[
                div(".drawer-head")[button("#close", type="button")["Close"]], div("#drawer-content")
            ],
        ],
    ]
    return str(whole)


def _views(verb: str, given: Mapping[str, str]) -> Node:
    """The links to the views; those that ask take the question along."""
    return [
        a(href=link_to(name, _known(name, given)) if name in ASKING else f"/{name}", aria_current="page" if name == verb else None)[text]
        for name, text in VIEWS
    ]


def _bar(verb: str, given: Mapping[str, str]) -> Element:
    """The top bar: the views, what can be copied, the theme."""
    return header(".bar-top")[
        a(".brand", href="/")["ironlaw"],
        nav(aria_label="Views")[_views(verb, given)],
        a(".trust", href="/validation")[_trust()[0], span(".runs")[_trust()[1]]],
        div(".tools")[
            button(type="button", id="theme")["Theme"],
            button(type="button", id="copy-as")["Copy as"],
            button(type="button", id="copy-link")["Copy link"],
        ],
    ]


@cache
def _trust() -> tuple[str, str]:
    """The median error, which every page shows; and on how many runs, which a narrow bar leaves out."""
    error, on, runs = validation.trust_line(read_shipped()).partition(" on ")
    return error, on + runs


@cache
def validation_page() -> str:
    """How wrong the predictions were on published runs, as they ship with the calibration."""
    drawn = validation.view(read_shipped(), live)
    inside = main("#answer.wide", tabindex="-1")[p(".subject")[drawn.subject], h1[drawn.verdict], div(".lead")[drawn.lead], drawn.content]
    return document("validation", {}, inside, "How wrong the predictions are")


def _known(verb: str, given: Mapping[str, str]) -> dict[str, str]:
    """The options of a question that another verb has, too."""
    names = {argument.name for argument in arguments(verb)}
    return {name: value for name, value in given.items() if name in names}


def empty(verb: str = "estimate") -> Element:
    """What stands where there is no question yet: examples, and the question."""
    return fragment_page(
        rail(verb, {}, None),
        [
            h1[ASKS.get(verb, "What would you train, and on what?")],
            p(".lead")["Fill in the question, or start from an example."],
            verb == "estimate" and drop_form({}, (), "Drop config.json, a launch script, a trace, a log or a saved answer here"),
            p(".label")["Examples"],
            ul(".examples")[(li[a(href=url, class_="swap")[text]] for text, url in examples_of(verb))],
        ],
    )


def examples_of(verb: str) -> Sequence[tuple[str, str]]:
    """Examples of a verb: its own, or those of an estimate, asked of it."""
    if verb in EXAMPLES_OF:
        return EXAMPLES_OF[verb]
    known = {argument.name for argument in arguments(verb)}
    if not {"model", "on", "gpus", "tokens"} <= known:
        return EXAMPLES
    return [(text, link_to(verb, dict(parse_qsl(urlsplit(url).query)))) for text, url in EXAMPLES]


@cache
def _often_priced() -> tuple[str, ...]:
    """Accelerators whose kernels were measured, those with most prices first."""
    both = [name for name in load.names("prices") if name in load.names("accelerators") and name in load.names("calibration")]
    measured = [name for name in both if load.record("calibration", name).grade == "measured"]
    return tuple(sorted(measured, key=lambda name: -len(load.record("prices", name).price)))


def _rivals(given: Mapping[str, str]) -> Node:
    """Accelerators to compare the only one with."""
    one = given.get("on", "")
    if not one or "," in one:
        return None
    others = [name for name in _often_priced() if name != one][:OFFERED]
    every = ",".join([one, *others])
    ways = [*((name, f"{one},{name}") for name in others), ("all of them", every)]
    return p(".pin")["Compare it with ", [[a(".swap", href=link_to("compare", given, on=on))[text], " "] for text, on in ways]]


def fragment_page(left: Node, right: Node) -> Element:
    """The question beside the answer."""
    return div(".frame")[aside("#rail", aria_label="Question")[left], main("#answer", tabindex="-1")[right]]


def answer(verb: str, data: Mapping[str, Any], given: Mapping[str, str], before: Mapping[str, Any] | None = None) -> tuple[str, Element]:
    """The title of a page, and the question beside the answer of a verb; ``before``: the answer that it is compared with."""
    view: View = view_of(verb, data, live)
    drawn = verb == "estimate" and data.get("step", {}).get("seconds") and before
    return f"{view.subject}: {view.verdict.rstrip('.')}", fragment_page(
        rail(verb, given, data),
        [
            p(".subject")[view.subject],
            h1(aria_live="polite")[view.verdict],
            div(".lead")[view.lead],
            div("#first") if verb != "estimate" else None,
            bool(given.get(HELD)) and p("#offer.note", role="status")["The plan is held."],
            verb == "compare" and _rivals(given),
            verb != "estimate" and _next(verb, given) and p(".pin")[_next(verb, given)],
            verb == "estimate" and "plan" in data and (_pin(given, bool(before)) if data["step"]["seconds"] else _ways_out(given)),
            sections(data, live, before) if drawn else view.content,
            details(".all-sources")[summary["Sources"], view.sources] if view.sources else None,
            _same_question(verb, given),
        ],
    )


Outcome = tuple[float | None, bool]  # seconds of a step, and whether it fits


def offer(held: Outcome, anew: Outcome, least: float, asked: Mapping[str, str]) -> Node:
    """What the search anew found beside the held plan; ``least``: a smaller share of the step cannot be told apart.

    >>> print(str(offer((1.031, True), (1.0, True), 0.02, {"model": "gpt-2"})).replace(words.FIXED, " "))
    A plan that is 3.1 % faster: <a class="swap" href="/estimate?model=gpt-2">take it</a>
    >>> print(offer((1.01, True), (1.0, True), 0.02, {}))
    The held plan is still the best.
    """
    take = a(".swap", href=link_to("estimate", asked))["take it"]
    if anew[1] and not held[1]:
        return fragment["The held plan does not fit here. A plan that fits: " if held[0] else "A plan that is possible here: ", take]
    faster = (held[0] or 0.0) / (anew[0] or 1.0) - 1.0
    if anew[1] == held[1] and faster > least:
        return fragment[f"A plan that is {words.share(faster)} faster: ", take]
    return fragment["The held plan is still the best."]


def _next(verb: str, given: Mapping[str, str]) -> Node:
    """What else can be asked of the same run; nothing where there is none yet, or several."""
    if verb not in ("estimate", *(name for name, _ in NEXT)) or not given.get("model") or "," in given.get("on", ""):
        return None
    asked = open_of(given)
    others = NEXT if verb == "estimate" else [("estimate", "The estimate"), *NEXT]
    return span(".next")[([a(".swap", href=link_to(name, _known(name, asked)))[text], " "] for name, text in others if name != verb)]


def _ways_out(given: Mapping[str, str]) -> Node:
    """Of a plan that breaks a rule: the question with an axis left open, or all of them."""
    held = [name for name in given if name in AXES]
    ways = [("Let ironlaw choose the plan", dict.fromkeys(held))]
    if len(held) > 1:
        ways += [(f"Leave {name.replace('_', ' ')} open", {name: None}) for name in held]
    return held and p(".pin")[([a(".swap", href=link_to("estimate", given, **change))[text], " "] for text, change in ways)]


def _pin(given: Mapping[str, str], pinned: bool) -> Element:
    """What the answer is compared with, or the link that pins it so that the next is compared with it."""
    here = link_to("estimate", given, **{VERSUS: urlencode(options_of(given))})
    if not pinned:
        return p(".pin")[_next("estimate", given), a(".swap", href=here, id="pin")["Compare what follows with this answer"]]
    old, now = dict(parse_qsl(given[VERSUS])), options_of(given)
    changed = [f"{name.replace('_', ' ')} {old.get(name, 'open')}" for name in {**old, **now} if old.get(name) != now.get(name)]
    said = f"Compared with {', '.join(changed)}." if changed else "Pinned: what changes from here is shown beside this answer."
    return p(".pin")[
        span[said, " "],
        a(".swap", href=link_to("estimate", old))["Back to it"],
        bool(changed) and [" ", a(".swap", href=here)["Pin this one"]],
        " ",
        a(".swap", href=link_to("estimate", now))["Unpin"],
    ]


def saved_page(verb: str, data: Mapping[str, Any], name: str, asks: bool) -> str:
    """The page of a saved answer, as it stands in its file; ``asks``: the page asks questions of the verb, too."""
    given = given_texts(data)
    view: View = view_of(verb, data, live)
    made = f"{name}: saved by ironlaw {data.get('tool_version', '')}, calibration {data.get('calibration_version', '')}."
    today = asks and given and a(href=link_to(verb, given))["Ask it again today"]
    inside = [
        p(".note.saved")[made, " ", today, " ", code[f"ironlaw again {shlex.quote(name)}"]],
        p(".subject")[view.subject],
        h1[view.verdict],
        div(".lead")[view.lead],
        view.content,
        details(".all-sources")[summary["Sources"], view.sources] if view.sources else None,
    ]
    whole = fragment_page(rail(verb, given, data), inside) if asks else main("#answer.wide", tabindex="-1")[inside]
    return document(verb, given if asks else {}, whole, f"{name}, saved")


def problem(error: Mapping[str, Any], given: Mapping[str, str], verb: str) -> Element:
    """Why there is no answer, with the nearest names and what would help as links."""
    name = (error.get("option") or "").lstrip("-").replace("-", "_")
    near = [li[a(".swap", href=link_to(verb, given, **{name: one}))[one]] for one in error.get("nearest") or [] if name in given]
    offers = [li[str(one if isinstance(one, str) else one.get("text", one))] for one in error.get("offers") or []]
    return fragment_page(
        rail(verb, given, None, name),
        [
            h1["There is no answer to this question."],
            p(".lead", role="alert")[words.as_sentence(str(error["message"]))],
            near and [p(".label")["Did you mean"], ul(".examples")[near]],
            offers and [p(".label")["What would help"], ul(".examples")[offers]],
            _same_question(verb, given),
        ],
    )


def rail(verb: str, given: Mapping[str, str], data: Mapping[str, Any] | None, wrong: str = "") -> Node:
    """The question: a form that works without scripts, sliders, and the axes of the plan."""
    plan = _plan_of(data)
    others = {name: value for name, value in given.items() if name not in dict.fromkeys(field[0] for field in _fields(verb))}
    return fragment[
        template("#views-now")[_views(verb, given)],
        _sentence(given, plan),
        _form(verb, given, data, plan, others, wrong),
        verb == "estimate" and _dock(given, plan),
    ]


def _sentence(given: Mapping[str, str], plan: Mapping[str, Any]) -> Node:
    """The question in a line, which a narrow screen shows instead of the form until it is edited."""
    taken = {name: given.get(name) or plan.get(name) for name in ("model", "gpus", "on")}
    if not all(taken.values()):
        return entry("#edit", type="checkbox", checked=True, aria_label="Edit the question")
    tokens = f", {given['tokens']} tokens" if given.get("tokens") else ""
    return [
        entry("#edit", type="checkbox", aria_label="Edit the question"),
        label(".sentence", for_="edit")[
            span[strong[taken["model"]], " on ", strong[f"{taken['gpus']} \u00d7 {taken['on']}"], tokens], span(".action")["Edit"]
        ],
    ]


def _form(verb: str, given: Mapping[str, str], data: Any, plan: Mapping[str, Any], others: Mapping[str, str], wrong: str) -> Element:
    """The form of the question."""
    return form(method="get", action=f"/{verb}", id="question", class_="question")[
        h2["Question"],
        (field(one, given, plan, wrong, verb not in FIELDS_OF) for one in _fields(verb)),
        (entry(type="hidden", name=name, value=value) for name, value in others.items()),
        div(".buttons")[button(type="submit", class_="primary")["Answer"]],
        _chips(verb, given, data),
    ]


def _fields(verb: str) -> Sequence[Sequence[str]]:
    """The fields of a verb's question."""
    return FIELDS_OF.get(verb, FIELDS)


def _plan_of(data: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """The plan that an answer has."""
    if not data:
        return {}
    found: Mapping[str, Any] = data.get("plan") or (
        data["plans"][0]["plan"] if isinstance(data.get("plans"), list) and data["plans"] else {}
    )
    return found if isinstance(found, Mapping) else {}


def field(asked: Sequence[str], given: Mapping[str, str], plan: Mapping[str, Any], wrong: str, slides: bool) -> Element:
    """One option: its value, or what was taken where it is open; a slider where numbers of it are compared, and ``slides``."""
    name, text, unit, kind = asked
    value = given.get(name, "")
    taken = plan.get(name)
    least, most = SLIDERS.get(name, (0, 0))
    number = _number_of(name, given, plan)
    found = plan.get(RECORDS.get(name, ""))
    if found and value and not value.endswith(".json") and found != value:
        unit = f"taken: {found}"  # a name of several, such as A100: which of them
    if name == "global_batch_size" and number and plan.get("seq_len"):
        unit = f"{unit}, {words.large(number * plan['seq_len'])}{words.FIXED}tokens"
    return div(class_=["field", wrong == name and "wrong"])[
        label(for_=f"q-{name}")[text, unit and span(".unit")[unit]],
        entry(
            id=f"q-{name}",
            name=name,
            value=value,
            placeholder="" if taken is None or value else str(taken),
            list=f"list-{kind}" if kind else None,
            autocomplete="off",
            spellcheck="false",
            aria_invalid="true" if wrong == name else None,
        ),
        kind and datalist(id=f"list-{kind}", data_kind=kind),
        bool(slides and most and number) and [name == CURVED and div(".curve", data_curve=name), _slider(name, text, number, least, most)],
    ]  # fmt: skip


def _number_of(name: str, given: Mapping[str, str], plan: Mapping[str, Any]) -> int:
    """The number that an option has, given or taken; 0 where it has none."""
    value, taken = given.get(name, ""), plan.get(name)
    return int(float(value)) if value.replace(".", "", 1).isdigit() else int(taken) if isinstance(taken, (int, float)) else 0


def _dock(given: Mapping[str, str], plan: Mapping[str, Any]) -> Node:
    """The sliders of a narrow screen, at its lower edge: one is shown, a button shows the next."""
    numbers = {name: number for name in ("global_batch_size", "gpus") if (number := _number_of(name, given, plan))}
    titles = {name: text for name, text, _, _ in FIELDS}
    rows = [
        div(class_=f"row of-{name}")[
            div[span[titles[name], " ", strong(data_now=name)[words.whole(number)]], button(type="button", class_="other")[titles[other]]],
            _slider(name, titles[name], number, *SLIDERS[name], docked=True),
        ]
        for (name, number), other in zip(numbers.items(), reversed(numbers), strict=True)
    ]
    return div(".dock", data_shows="global_batch_size")[rows] if len(rows) == 2 else None


def stops_of(name: str, number: int) -> tuple[int, ...]:
    """The stops of a slider: powers of two, one and a half times them, and the number itself."""
    least, most = SLIDERS[name]
    stops = {number}
    size = least
    while size <= max(most, number):
        stops |= {size, size * 3 // 2}
        size *= 2
    return tuple(sorted(stop for stop in stops if least <= stop <= max(most, number) or stop == number))


def _slider(name: str, text: str, number: int, least: int, most: int, docked: bool = False) -> Node:
    """A slider of the question; ``docked``: one that stands beside the form."""
    stops = stops_of(name, number)
    return entry(
        type="range", class_="docked" if docked else "slider", form="question" if docked else None, min=0,
        max=len(stops) - 1, step=1, value=stops.index(number), aria_label=text, data_name=name,
        data_stops=" ".join(map(str, stops)), aria_valuetext=words.whole(number), data_least=least, data_most=most,
    )  # fmt: skip


def _chips(verb: str, given: Mapping[str, str], data: Mapping[str, Any] | None) -> Node:
    """The axes of the plan: a click gives a chosen one, and leaves a given one open."""
    if not data or verb != "estimate" or "assumptions" not in data:
        return None
    chosen = {one["name"]: one["value"] for one in data["assumptions"] if one["origin"] == "chosen" and one["name"] in AXES}
    held = {name: value for name, value in given.items() if name in AXES}
    if not chosen and not held:
        return None
    texts = {name: ("on" if value else "off") if isinstance(value, bool) else str(value) for name, value in chosen.items()}
    hold = link_to(verb, given, **texts)
    anew = link_to(verb, given, **dict.fromkeys(held), **{HELD: None})
    return [
        p(".label")["When the question changes"],
        div(".toggle", role="group")[
            a(".swap", href=hold, aria_current=None if chosen else "true")["Hold the plan"],
            a(".swap", href=anew, aria_current="true" if not held else None)["Choose anew"],
        ],
        ul(".chips.axes")[
            (_axis(name, value, link_to(verb, given, **{name: None}), True) for name, value in held.items()),
            (_axis(name, text, link_to(verb, given, **{name: text}), False) for name, text in texts.items()),
        ],
        p(".note")[f"{len(chosen)} chosen by ironlaw, {len(held)} given. A click gives an axis or leaves it open."],
    ]  # fmt: skip


def _axis(name: str, value: str, address: str, given: bool) -> Element:
    """An axis of the plan: a click leaves a given one open, and gives a chosen one."""
    says = "given; leave it open" if given else "chosen by ironlaw; give it"
    return li(class_="given" if given else None)[a(".swap", href=address, title=says)[f"{name} ", strong[value]]]


def command_words(verb: str, given: Mapping[str, str]) -> list[str]:
    """The same question as words of the command line.

    >>> command_words("estimate", {"model": "llama-3-8b", "on": "h100-sxm", "micro_batch_size": "1"})
    ['estimate', 'llama-3-8b', '--on', 'h100-sxm', '--micro-batch-size', '1']
    """
    model = [given["model"]] if given.get("model") else []
    flags = [word for name, value in options_of(given).items() if name != "model" for word in (f"--{name.replace('_', '-')}", value)]
    return [verb, *model, *flags]


def _same_question(verb: str, given: Mapping[str, str]) -> Element:
    """The same question elsewhere: the command, Python, a question file, JSON, a report."""
    asked = options_of(given)
    command = shlex.join(["ironlaw", *command_words(verb, given)])
    python = f"ironlaw.{verb}({', '.join(f'{name}={value!r}' for name, value in asked.items())})"
    return details(".block.same")[
        summary["The same question elsewhere"],
        p(".label")["Command line"], pre(".command", data_as="command")[command],
        p(".label")["Python"], pre(".command", data_as="Python")[python],
        verb in OF_FILES and [p(".label")["Question in TOML"], pre(".command", data_as="TOML")[toml_text(asked)]],
        p[a(href=link_to(f"api/{verb}", asked), data_as="JSON")["JSON"], " ",
          a(href=link_to(f"report/{verb}", asked), download="ironlaw.html", data_as="report")["Report"]],
    ]  # fmt: skip


def toml_text(given: Mapping[str, str]) -> str:
    """A question as a file of ``ironlaw estimate``.

    >>> print(toml_text({"model": "gpt-2", "gpus": "8", "tokens": "1T"}))
    model = "gpt-2"
    gpus = 8
    tokens = "1T"
    """
    return "\n".join(f"{name} = {value if value.isdigit() else json.dumps(value)}" for name, value in given.items())


def curve(stops: Sequence[int], rates: Sequence[tuple[float, float, float] | None], at: int) -> str:
    """Tokens a second over the stops of a slider, low end, middle and high end; a gap where a stop has no plan.

    Parameters
        stops: of the slider, which are equally far apart
        rates: tokens/s of each stop
        at: the stop where the slider is
    """
    known = [(place, rate) for place, rate in enumerate(rates) if rate]
    if len(known) < 2:
        return ""
    most = max(high for _, (_, _, high) in known)
    across = {place: 100.0 * place / (len(stops) - 1) for place, _ in known}
    points = {place: tuple(32.0 * (1.0 - size / most) for size in rate) for place, rate in known}
    low, middle, high = ([f"{across[place]:.2f},{ends[end]:.2f}" for place, ends in points.items()] for end in range(3))
    now = points.get(stops.index(at))
    says = (
        f"Tokens a second, plan held: {words.whole(known[0][1][1])} at {stops[known[0][0]]}, {words.whole(known[-1][1][1])} at {stops[-1]}"
    )
    places = " ".join(f"{across[place]:.2f},{points[place][1]:.1f}" if place in points else "-" for place in range(len(stops)))
    dot = now and f'<i style="left:{across[stops.index(at)]:.2f}%;top:{now[1]:.1f}px" data-places="{places}"></i>'
    drawn = fragment[
        Markup(
            f'<svg viewBox="0 0 100 32" preserveAspectRatio="none" role="img" aria-label="{says}">'
            f'<polygon points="{" ".join([*high, *reversed(low)])}"/><polyline points="{" ".join(middle)}"/></svg>{dot or ""}'
        ),
        div(".ends")[span[words.whole(stops[0])], span["tokens/s, plan held"], span[words.whole(stops[-1])]],
    ]
    return str(drawn)


def stop_of(data: Mapping[str, Any], stop: int, before: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A stop of a slider: its first screen, beside an answer ``before``, and what its label says."""
    if not (before and before.get("step", {}).get("seconds")):
        before = None
    drawn = view_of("estimate", data)
    return {
        "value": stop,
        "html": str(fragment[first_screen(data, before)]),
        "subject": drawn.subject,
        "verdict": drawn.verdict,
        "lead": str(fragment[drawn.lead]),
        "fits": data["memory"]["fits"],
        "seconds": data["step"]["seconds"],
        "tokens_per_second": data["throughput"]["tokens_per_second"],
    }
