"""The pages that teach: which answers each asks, and the frame around its stops. All stops ride in the page: the slider needs no server."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from htpy import Element, a, aside, div, form, fragment, h1, label, li, main, nav, p, span, template, ul
from htpy import input as entry
from markupsafe import Markup

import ironlaw
from ironlaw.catalog import load
from ironlaw.page import learn
from ironlaw.page.learn import Lesson, Reason, Stop
from ironlaw.web import draw

MODEL, DEVICE = "llama-3-70b", "h100-sxm"
TOKENS = (64, 128, 256, 512, 1024, 2048, 4096, 8192)
LENGTHS = (2048, 4096, 8192, 16384, 32768, 65536, 131072)
DEGREES = (1, 2, 4, 8)
SMALL: dict[str, Any] = {"model": "llama-3-8b", "on": DEVICE, "gpus": 8, "tp": 2, "pp": 1, "micro_batch_size": 1}


def _roofline() -> Lesson:
    """Operators of a layer below their roofs, at each number of tokens."""
    model = load.record("models", MODEL)
    hidden, wide = int(model.hidden_size), int(model.intermediate_size)
    heads, kv = int(model.num_attention_heads), int(model.num_key_value_heads)
    head = hidden // heads
    first = TOKENS[0]
    asked: dict[str, dict[str, str]] = {
        "QKV": {"gemm": f"{first},{hidden},{(heads + 2 * kv) * head}"}, "attention out": {"gemm": f"{first},{heads * head},{hidden}"},
        "MLP in": {"gemm": f"{first},{hidden},{2 * wide}"}, "MLP out": {"gemm": f"{first},{wide},{hidden}"},
        "norm": {"norm": f"{first},{hidden}"}, "SwiGLU": {"activation": f"swiglu,{first},{wide}"},
    }  # fmt: skip
    batches = ",".join(str(count // first) for count in TOKENS)
    answers = [(name, ironlaw.roofline(on=DEVICE, batch=batches, **words).to_dict()) for name, words in asked.items()]
    command = f"ironlaw roofline --gemm 256,{hidden},{2 * wide} --on {DEVICE}"
    return Lesson(
        "The roofline",
        "Tokens at a time (batch times sequence)",
        learn.roofline_stops(answers, TOKENS, f"One layer of {MODEL} on one {DEVICE}"),
        2,
        (
            Reason(
                "Why products move right",
                "A product of T tokens reads its weights once and uses them T times. While T is small, FLOP for each byte is about T.",
            ),
            Reason(
                "Why norms never do",
                "They do about one operation for each byte, whatever the batch. Only fusing them into a neighbour helps.",
            ),
            Reason("Try it", "Size of a point: its time. Its stem: the distance to its roof.", command),
        ),
        f"/roofline?gemm=256,{hidden},{2 * wide}&on={DEVICE}",
    )


def _six_nd() -> Lesson:
    """FLOP of a token against the length of the sequence."""
    held: dict[str, Any] = {**SMALL, "gpus": 64, "zero": 1, "recompute": "full", "global_batch_size": 64}
    found = ironlaw.estimate(**held, seq_len=list(LENGTHS))
    answers = [found[at].to_dict() for at in range(found.rows)]
    return Lesson(
        "Where 6ND comes from",
        "Tokens in a sequence",
        learn.six_nd_stops(answers),
        2,
        (
            Reason(
                "Why six",
                "2 FLOP forward for each parameter and token; 2 backward for the gradient of the input, 2 for that of the parameter.",
            ),
            Reason(
                "What the rule leaves out",
                "An embedding is a table and multiplies nothing. Attention multiplies what is no parameter, and grows with the sequence.",
            ),
            Reason(
                "Try it",
                "The count of any run, and the rule beside it.",
                "ironlaw estimate llama-3-8b --on h100-sxm --gpus 8 --explain 6ND",
            ),
        ),
        "/estimate?model=llama-3-8b&on=h100-sxm&gpus=64&seq_len=8192",
    )


def _checkpointing() -> Lesson:
    """Memory and time of each way to recompute."""
    answer = ironlaw.textbook("checkpoints", **SMALL).to_dict()
    return Lesson(
        "What checkpointing saves",
        "What is kept",
        learn.checkpointing_stops(answer),
        1,
        (
            Reason("Why it saves", "A layer keeps many tensors for backward; its input alone, the checkpoint, is a few percent of them."),
            Reason(
                "Why more layers a segment save little",
                "All layers of a segment are in memory at once while it is computed again. With small checkpoints one layer is best.",
            ),
            Reason(
                "Try it",
                "The plan is held, so only recomputation differs.",
                "ironlaw textbook checkpoints llama-3-8b --on h100-sxm --gpus 8 --tp 2 --pp 1",
            ),
        ),
        "/estimate?model=llama-3-8b&on=h100-sxm&gpus=8&tp=2&pp=1&micro_batch_size=1&recompute=full",
    )


def _parallelism() -> Lesson:
    """Memory and roofs at each degree of tensor parallelism."""
    held: dict[str, Any] = {"pp": 8, "vpp": 1, "zero": 1, "micro_batch_size": 1, "recompute": "none", "global_batch_size": 256}
    found = ironlaw.estimate(MODEL, on=DEVICE, gpus=128, tp=list(DEGREES), **held)
    answers = [found[at].to_dict() for at in range(found.rows)]
    asked = "&".join(f"{name}={value}" for name, value in held.items())
    return Lesson(
        "Parallelism",
        "Tensor parallelism",
        learn.parallelism_stops(answers),
        2,
        (
            Reason("Why memory falls", "Weights, gradients and activations of a layer are split tp ways; so are the logits."),
            Reason(
                "Why it is not free", "Two exchanges a layer stand in the way of every pass, and smaller products reach less of the peak."
            ),
            Reason(
                "Try it",
                "A row for each degree.",
                f"ironlaw estimate {MODEL} --on {DEVICE} --gpus 128 --tp 1,2,4,8 --pp 8 --global-batch-size 256",
            ),
        ),
        f"/estimate?model={MODEL}&on={DEVICE}&gpus=128&tp=4&{asked}",
    )


TOPICS: dict[str, tuple[str, Callable[[], Lesson]]] = {
    "roofline": ("The roofline", _roofline),
    "6nd": ("Where 6ND comes from", _six_nd),
    "checkpointing": ("What checkpointing saves", _checkpointing),
    "parallelism": ("Parallelism", _parallelism),
}


@cache
def lesson(topic: str) -> Lesson:
    """A page's stops, asked once in a process."""
    found = TOPICS[topic][1]()
    return found._replace(stops=[stop._replace(content=Markup(str(fragment[stop.content]))) for stop in found.stops])


def page(topic: str, at: int | None) -> str:
    """The page of a topic at a stop; without one, where the lesson begins."""
    found = lesson(topic)
    here = min(at if at is not None else found.first, len(found.stops) - 1)
    stop = found.stops[here]
    left = aside("#topics", aria_label="Lessons")[
        nav(aria_label="Lessons")[
            ul[(li[a(href=f"/learn/{name}", aria_current="page" if name == topic else None)[title]] for name, (title, _) in TOPICS.items())]
        ]
    ]
    right = main("#answer.lesson", tabindex="-1")[
        h1(aria_live="polite")[stop.verdict],
        p(".lead")[stop.lead],
        _slider(topic, found, here),
        div("#stop-content.view")[stop.content],
        learn.reasons_block(found.reasons, found.question),
        (_kept(number, one) for number, one in enumerate(found.stops)),
    ]
    return draw.document("learn", {}, div(".frame.learn")[left, right], f"{found.title}: {stop.verdict.rstrip('.')}")


def _slider(topic: str, found: Lesson, here: int) -> Element:
    """The slider; without a script a button asks for the page of its stop."""
    says = "\n".join(stop.value for stop in found.stops)
    return form("#lesson.block", method="get", action=f"/learn/{topic}")[
        label(for_="lesson-at")[span[found.slider], " ", span("#lesson-value.value-now")[found.stops[here].value]],
        entry(
            "#lesson-at.along", type="range", name="at", min=0, max=len(found.stops) - 1, step=1, value=here,
            aria_valuetext=found.stops[here].value, data_says=says,
        ),
    ]  # fmt: skip


def _kept(number: int, stop: Stop) -> Element:
    """A stop that the slider may show."""
    return template(".stop", data_at=number)[h1[stop.verdict], p(".lead")[stop.lead], div(".view")[stop.content]]
