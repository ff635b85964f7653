"""How much to train what: parameters, tokens and compute of least loss, the batch and learning rate that go with them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ironlaw.errors import QuestionError, ValueRangeError
from ironlaw.question.options import Option, model, none_or_more, one_of, positive, tokens, whole
from ironlaw.questions.answer import Answer, Column, Table, need, read

FITS = ("hoffmann", "besiroglu")  # in the order of the laws' fit: 0, 1
FITTED = {"parameters": (70e6, 16e9), "tokens": (5e9, 500e9)}  # what both fits of the loss were made on (Hoffmann et al., section 3)
LEAST, MOST = 1e3, 1e15  # parameters beyond which the question is a slip of the keyboard; tokens: a thousand times more
FITTED_BATCH = (1e17, 2e19)  # FLOP on which DeepSeek's batch and learning rate were (section 3.1)

OPTIONS: dict[str, Option] = {
    "model": Option(model, "catalogue name, config.json, or dimensions: its parameters, the active ones of a mixture too", "MODEL"),
    "parameters": Option(whole, "parameters, such as 70B, instead of a model"),
    "tokens": Option(tokens, "tokens of the run, such as 1.4T", "TOKENS"),
    "compute": Option(positive("FLOP"), "training compute, such as 5.88e23", "FLOP"),
    "fit": Option(one_of(FITS), "published fit of the loss: besiroglu (default) or hoffmann", "NAME"),
    "tokens_per_parameter": Option(
        positive("1"), "tokens for each parameter where neither tokens nor compute are given (default: 20)", "X"
    ),
    "inference_tokens": Option(tokens, "tokens the model will read and write in its life", "TOKENS"),
    "global_batch_tokens": Option(tokens, "tokens of a batch, to say what it costs in steps and tokens", "TOKENS"),
    "learning_rate": Option(positive("1"), "learning rate found good at --base-batch-tokens", "X"),
    "base_batch_tokens": Option(tokens, "tokens of the batch of --learning-rate", "TOKENS"),
    "warmup_steps": Option(none_or_more, "steps of the warm-up: shows the schedule", "STEPS"),
    "final_share": Option(positive("1"), "of the peak learning rate, what the cosine ends at (default: 0.1)", "X"),
    "model_of": Option(one_of(("document-004",)), "also what that document calls the critical batch (its law misapplied)", "NAME"),
}


def scaling(model: Any = None, *, catalog: tuple[str, ...] = (), **options: Any) -> Answer:
    """The answer of ``ironlaw scaling``: ``scaling("llama-3-8b", tokens="15T")``, ``scaling(compute=5.88e23)``."""
    from ironlaw.catalog import load

    return ask({"model": model, **options}, load.given_folders(catalog))


def ask(options: Mapping[str, Any], folders: tuple[str, ...] = ()) -> Answer:
    """The Answer of options as text or numbers."""
    from ironlaw.law import batches, flops
    from ironlaw.law import scaling as law
    from ironlaw.terms import Term, leaf

    given = read(options, OPTIONS, "scaling")
    notes: list[dict[str, Any]] = []
    name, active, whole_model, count, operations = _sizes(given, folders, notes)
    fit = float(FITS.index(given.setdefault("fit", "besiroglu")))
    compute = leaf("compute", flops.training, "FLOP", parameters=active, tokens=count)
    reached = leaf("loss", law.loss, "1", parameters=active, tokens=count, fit=fit)
    best = leaf("optimal parameters", law.optimal_parameters, "1", operations=operations, fit=fit)
    best_tokens = leaf("optimal tokens", law.affordable_tokens, "token", operations=operations, parameters=best.value)
    best_loss = leaf("optimal loss", law.loss, "1", parameters=best.value, tokens=best_tokens.value, fit=fit)
    same = _least("same loss", active, count, fit, 0.0)
    batch = leaf("best batch", batches.deepseek_batch, "token", operations=operations)
    rate = leaf("best learning rate", batches.deepseek_learning_rate, "1", operations=operations)
    headline = [
        f"{name}: {_big(active)} parameters on {_big(count)} tokens ({_times(count / active)} for each) take "
        f"{float(compute.value):.4g} FLOP; loss {float(reached.value):.3f} ({given['fit']})",
        f"least loss for that compute: {_big(best.value)} parameters on {_big(best_tokens.value)} tokens, "
        f"loss {float(best_loss.value):.3f}",
        f"least compute for that loss: {float(same[-1].value):.4g} FLOP "
        f"({_big(same[0].value)} parameters on {_big(same[1].value)} tokens); "
        f"this run takes {_times(compute.value / same[-1].value)} times as much",
    ]
    terms = [compute, reached, best, best_tokens, best_loss, *same]
    tables = [_ways(operations, fit, float(given.get("tokens_per_parameter", 20.0)))]
    warnings = _extrapolated(active, count, operations)
    if whole_model > active * 1.001:
        dense = leaf("loss of all parameters", law.loss, "1", parameters=whole_model, tokens=count, fit=fit)
        terms.append(dense)
        headline.append(
            f"a mixture of {_big(whole_model)} parameters in all: loss between {float(dense.value):.3f} and {float(reached.value):.3f}"
        )
        warnings.append("the fits are of dense models: a mixture lies between a dense model of its active and one of all its parameters")
    if "inference_tokens" in given:
        life = _least("lifetime", active, count, fit, given["inference_tokens"])
        asked = _life(active, count, given["inference_tokens"])
        terms += [*life, Term("lifetime compute of this run", asked.value, "FLOP", asked.law, asked.inputs, asked.parts)]
        headline.append(
            f"least compute for that loss with {_big(given['inference_tokens'])} tokens of inference: {_big(life[0].value)} parameters on "
            f"{_big(life[1].value)} tokens, {float(life[-1].value):.4g} FLOP in all; the run asked takes {float(asked.value):.4g}"
        )
    headline.append(f"batch of {_big(batch.value)} tokens at a learning rate of {float(rate.value):.2e} (DeepSeek's laws of compute)")
    terms += [batch, rate]
    tables += _batch_tables(given, count, float(batch.value), terms, headline)
    return Answer(
        f"scaling of {name}", headline, tables, terms, {"fit": given["fit"], "total_parameters": whole_model}, notes, warnings,
        folders=folders,
    )  # fmt: skip


def _refuse(given: dict[str, Any]) -> None:
    """Options that contradict each other or lack a companion."""
    if "model" in given and "parameters" in given:
        raise QuestionError("give a model or --parameters, not both")
    if "final_share" in given and given["final_share"] > 1:
        raise ValueRangeError(f"--final-share is {given['final_share']:g}, must be at most 1")
    for one, other in (("learning_rate", "base_batch_tokens"), ("base_batch_tokens", "learning_rate")):
        if one in given:
            need(given, other, "global_batch_tokens")
    if "warmup_steps" in given:
        need(given, "global_batch_tokens")


def _sizes(given: dict[str, Any], folders: tuple[str, ...], notes: list[dict[str, Any]]) -> tuple[str, float, float, float, float]:
    """Name, active and all parameters, tokens and compute: what is given, and the rest of it by C = 6 N D and the rule of thumb."""
    from ironlaw.law import flops
    from ironlaw.law import scaling as law
    from ironlaw.question.assumptions import assume

    _refuse(given)
    name, active, whole_model = "a dense model", given.get("parameters"), given.get("parameters")
    if "model" in given:
        from ironlaw.estimate.bind.model import bind_model, plain_model
        from ironlaw.estimate.layer.counts import active_parameters, total_parameters

        record = plain_model(bind_model(given["model"], folders)[0])
        name, active, whole_model = record.name, float(active_parameters(record)), float(total_parameters(record))
    count, operations, ratio = given.get("tokens"), given.get("compute"), given.get("tokens_per_parameter", 20.0)
    if active is None and count is None and operations is None:
        raise QuestionError("the question lacks a MODEL, --parameters, --tokens or --compute: give one or two of them")
    if active is not None and count is not None and operations is not None:
        raise QuestionError("a model, --tokens and --compute: two of the three decide the third (compute is 6 parameters tokens); give two")
    if sum(x is not None for x in (active, count, operations)) == 1:
        assume(notes, "tokens_per_parameter", ratio, "given" if "tokens_per_parameter" in given else "default")
    elif "tokens_per_parameter" in given:
        raise QuestionError("--tokens-per-parameter: the question already says both parameters and tokens; leave one out")
    if active is None:
        active = float(
            count / ratio if operations is None else operations / 6.0 / count if count else law.rule_parameters(operations, ratio)
        )
    if count is None:
        count = float(law.rule_tokens(active, ratio) if operations is None else law.affordable_tokens(operations, active))
    if not (LEAST <= active <= MOST and LEAST <= count <= 1e3 * MOST):
        raise ValueRangeError(
            f"that is {active:.3g} parameters on {count:.3g} tokens: no fit says anything below {LEAST:g} of each or above "
            f"{MOST:g} parameters and {1e3 * MOST:g} tokens; give a size in between"
        )
    return name, active, float(whole_model or active), count, float(flops.training(active, count))


def _life(parameters: Any, count: Any, inference: float) -> Any:
    """Training and inference together: 6 N D and 2 N for each token read or written."""
    from ironlaw.law import flops
    from ironlaw.terms import Term, leaf, total

    training = leaf("training compute", flops.training, "FLOP", parameters=parameters, tokens=count)
    if not inference:
        return training
    each = leaf("compute of a token of inference", flops.forward_per_token, "FLOP", parameters=parameters)
    serving = Term("inference compute", each.value * inference, "FLOP", each.law, each.inputs, (), inference)
    return total("lifetime compute", [training, serving])


def _least(what: str, parameters: float, count: float, fit: float, inference: float) -> list[Any]:
    """Parameters, tokens and compute of the cheapest model with the loss of this one, inference counted in.

    The reducible loss is shared out between parameters and tokens in every proportion, and the cheapest taken.
    """
    import numpy as np

    from ironlaw.law import scaling as law
    from ironlaw.terms import Term, leaf

    reducible = float(law.parameter_part(parameters, fit) + law.token_part(count, fit))
    share = 1.0 / (1.0 + np.exp(-np.linspace(-9.0, 9.0, 20001)))
    for _ in range(2):
        sizes, lengths = law.parameters_of_part(share * reducible, fit), law.tokens_of_part((1.0 - share) * reducible, fit)
        at = int(np.argmin(_life(sizes, lengths, inference).value))
        best = share[at]
        share = np.linspace(share[max(at - 1, 0)], share[min(at + 1, len(share) - 1)], 2001)
    size = leaf(f"{what} parameters", law.parameters_of_part, "1", loss_part=best * reducible, fit=fit)
    length = leaf(f"{what} tokens", law.tokens_of_part, "token", loss_part=(1.0 - best) * reducible, fit=fit)
    cost = _life(size.value, length.value, inference)
    return [size, length, Term(f"{what} compute", cost.value, "FLOP", cost.law, cost.inputs, cost.parts)]


def _ways(operations: float, fit: float, ratio: float) -> Table:
    """The optimum for a compute by each published way; the loss is that of one fit, so that ways compare."""
    from ironlaw.law import scaling as law

    found = {
        f"rule of thumb, {ratio:g} tokens each": law.rule_parameters(operations, ratio),
        "Hoffmann, approach 1 (curves)": law.frontier_parameters(operations),
        "Hoffmann, approach 3 (loss)": law.optimal_parameters(operations, 0),
        "Besiroglu (its refit)": law.optimal_parameters(operations, 1),
        "Kaplan (superseded)": law.kaplan_parameters(operations),
    }
    rows = []
    for way, parameters in found.items():
        count = law.affordable_tokens(operations, parameters)
        rows.append({
            "way": way, "parameters": float(parameters), "tokens": float(count), "ratio": float(count / parameters),
            "loss": float(law.loss(parameters, count, fit)),
        })  # fmt: skip
    columns = (
        Column("way", "optimum by"), Column("parameters", "parameters", "parameter"), Column("tokens", "tokens", "token"),
        Column("ratio", "tokens each", "1"), Column("loss", f"loss ({FITS[int(fit)]})", "1"),
    )  # fmt: skip
    return Table("optima", f"Least loss for {operations:.4g} FLOP", columns, rows)


def _batch_tables(given: dict[str, Any], count: float, critical: float, terms: list[Any], headline: list[str]) -> list[Table]:
    """What a batch costs, the learning rates that go with it, and the schedule."""
    from ironlaw.law import batches, run
    from ironlaw.terms import leaf

    tables: list[Table] = []
    if "model_of" in given:
        wrong = leaf(
            "batch of document 004", batches.batch_of_parameters, "token", parameters=terms[0].inputs["parameters"], seq_len=4096.0
        )
        terms.append(wrong)
        headline.append(f"document 004 says {_big(wrong.value)} tokens: it takes parameters for compute and tokens for sequences")
    if "global_batch_tokens" not in given:
        return tables
    size = given["global_batch_tokens"]
    steps = leaf("steps", run.steps, "1", tokens=count, tokens_per_step=size)
    more_steps = leaf("steps over least", batches.steps_over_least, "1", tokens_per_step=size, critical_batch=critical)
    more_tokens = leaf("tokens over least", batches.tokens_over_least, "1", tokens_per_step=size, critical_batch=critical)
    terms += [steps, more_steps, more_tokens]
    headline.append(
        f"with {_big(size)} tokens a batch: {float(steps.value):,.0f} steps, {float(more_steps.value):.2f} times the fewest possible; "
        f"{float(more_tokens.value):.2f} times the tokens of small batches (that batch taken for the critical one)"
    )
    if "learning_rate" in given:
        for name, law in (("linear", batches.linear_learning_rate), ("square root", batches.root_learning_rate)):
            terms.append(leaf(f"{name} learning rate", law, "1", learning_rate=given["learning_rate"], tokens_per_step=size,
                              base_tokens_per_step=given["base_batch_tokens"]))  # fmt: skip
        headline.append(
            f"learning rate: {float(terms[-2].value):.3g} by the linear rule (SGD), {float(terms[-1].value):.3g} by the square root (Adam)"
        )
    if "warmup_steps" in given:
        warm, last = given["warmup_steps"], float(steps.value)
        if warm >= last:
            raise ValueRangeError(f"--warmup-steps {warm:g}: the run has {last:g} steps; give fewer")
        end, peak = given.get("final_share", 0.1), float(terms[-1].value) if "learning_rate" in given else _peak(terms)
        at = sorted({0.0, float(warm // 2), warm, float((warm + last) // 2), last})
        rows = [{"step": step, "rate": float(batches.warmup_cosine(step, peak, end, warm, last))} for step in at]
        tables.append(Table("schedule", "Warm-up, then cosine", (Column("step", "step", "1"), Column("rate", "learning rate", "1")), rows))
    return tables


def _peak(terms: list[Any]) -> float:
    return next(float(term.value) for term in terms if term.name == "best learning rate")


def _extrapolated(parameters: float, count: float, operations: float) -> list[str]:
    """What lies outside of what was fitted."""
    out = [
        f"{_big(value)} {name} lie outside the {_big(low)} to {_big(high)} that the loss was fitted on: extrapolated"
        for (name, (low, high)), value in zip(FITTED.items(), (parameters, count), strict=True)
        if not low <= value <= high
    ]
    if not FITTED_BATCH[0] <= operations <= FITTED_BATCH[1]:
        out.append(
            f"DeepSeek's batch and learning rate were fitted on {FITTED_BATCH[0]:g} to {FITTED_BATCH[1]:g} FLOP: extrapolated "
            "(at 8.04e23 FLOP they say 19.3 M tokens, 18.9 M were used)"
        )
    return out


def _times(value: Any) -> str:
    """A factor: 1.02, 5.5, 1,868."""
    number = float(value)
    return f"{number:,.0f}" if number >= 1000 else f"{number:.3g}"


def _big(value: Any) -> str:
    """A count as people write it: 70B, 1.4T."""
    number = float(value)
    for scale, letter in ((1e12, "T"), (1e9, "B"), (1e6, "M")):
        if number >= 0.9995 * scale:
            return f"{number / scale:.3g}{letter}"
    return f"{number:,.0f}"
