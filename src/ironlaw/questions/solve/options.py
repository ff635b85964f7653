"""Options of ``ironlaw solve``."""

from __future__ import annotations

from ironlaw.question.forms import Form, OneOf
from ironlaw.question.options import OPTIONS as ESTIMATE
from ironlaw.question.options import ROUNDING, TOKENS_PER_SECOND, Option, taken_by
from ironlaw.question.readers import days, money, one_of, positive, price, share, whole
from ironlaw.question.words import run_tokens, tokens

UNKNOWNS = ("gpus", "time", "tokens", "mfu", "budget")
OWN: dict[str, Option] = {
    "model": ESTIMATE["model"],
    "parameters": Option(tokens, "parameters of the model, such as 30B, instead of MODEL or of its exact count", "N"),
    "on": ESTIMATE["on"],
    "solve_for": Option(one_of(UNKNOWNS), "the unknown: gpus, time, tokens, mfu, budget", "WHAT", decided="the first that is not given"),
    "gpus": Option(whole, "total accelerators"),
    "deadline": Option(days, "time the run may take, in days or with a unit"),
    "tokens": Option(run_tokens, "tokens of the whole run, such as 2T, or per parameter: 20x"),
    "mfu": Option(share, "MFU, such as 0.45; with --tokens-per-second, what to compare it with", "X", decided="predicted"),
    "tokens_per_second": TOKENS_PER_SECOND,
    "flops_per_gpu": Option(
        positive("FLOP/s"), "FLOP/s of each accelerator as trainers print it, such as 420TFLOP/s, instead of --tokens-per-second", "RATE"
    ),
    "budget": Option(money, "budget of the run, such as 2M"),
    "price": Option(price, "USD per accelerator hour, or provider/term", decided="newest on-demand price"),
    "work": Option(
        one_of(("model", "full-square", "6n")),
        "FLOP per token, and what MFU counts: model (attention as computed), full-square (all pairs of tokens), 6n (6 per parameter)",
        "HOW",
        decided="model",
    ),
    "rounding": ROUNDING.replace(decided=f"{ROUNDING.decided}; exact at a given --mfu"),
    "checkpoint_layers": Option(whole, "count by hand with an activation checkpoint every K layers", "K", decided="none"),
}
PASSED = tuple(taken_by("solve", OWN))  # passed to estimate unchanged
OPTIONS: dict[str, Option] = {**OWN, **taken_by("solve", OWN)}
FORMS = (Form("ironlaw solve", needs=("on", OneOf(("model", "parameters"), "missing MODEL, or --parameters N"))),)
EXAMPLES = """\
  ironlaw solve llama-3-70b --on h100-sxm --tokens 2T --deadline 60
  ironlaw solve --parameters 30B --on h100-sxm --tokens 2T --deadline 30 --budget 2M --price 4 --mfu 0.45
  ironlaw solve llama-3-8b --on h100-sxm --gpus 256 --tokens 1T --deadline 14 --solve-for mfu
  ironlaw solve --parameters 7B --on h100-sxm --gpus 64 --tokens-per-second 150k --mfu 0.45
"""
