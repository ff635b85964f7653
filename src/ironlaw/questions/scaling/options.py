"""Options of ``ironlaw scaling``."""

from __future__ import annotations

from ironlaw.question.options import Option
from ironlaw.question.readers import model, none_or_more, one_of, positive, whole
from ironlaw.question.words import batch_tokens, run_tokens, tokens

FITS = ("hoffmann", "besiroglu")  # in the order of the laws' fit: 0, 1


OPTIONS: dict[str, Option] = {
    "model": Option(model, "catalogue name, config.json, or dimensions: sets the parameters, total and active", records="models"),
    "parameters": Option(whole, "parameters, such as 70B, instead of MODEL", excludes={"model": ""}),
    "tokens": Option(run_tokens, "tokens of the run, such as 1.4T, or per parameter: 20x"),
    "compute": Option(positive("FLOP"), "training compute, such as 5.88e23", "FLOP"),
    "fit": Option(one_of(FITS), "published fit of the loss: besiroglu or hoffmann", "NAME", decided="besiroglu"),
    "tokens_per_parameter": Option(positive("1"), "tokens per parameter if neither tokens nor compute is given", "X", decided="20"),
    "inference_tokens": Option(tokens, "tokens the model will read and write during its use"),
    "global_batch_tokens": Option(batch_tokens, "tokens per optimizer step: shows its cost in steps and tokens"),
    "learning_rate": Option(positive("1"), "learning rate that is good at --base-batch-tokens", "X"),
    "base_batch_tokens": Option(batch_tokens, "batch in tokens at which --learning-rate is good"),
    "warmup_steps": Option(none_or_more, "warm-up steps: shows the learning-rate schedule", "STEPS"),
    "final_share": Option(positive("1"), "final learning rate of the cosine, as a share of the highest", "X", decided="0.1"),
}
EXAMPLES = """\
  ironlaw scaling --compute 5.88e23
  ironlaw scaling llama-3-8b --tokens 15T --inference-tokens 10T
  ironlaw scaling --parameters 67B --tokens 2T --global-batch-tokens 18.9M
"""
