"""Parameters, tokens and compute of least loss, and the batch and learning rate that go with them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ironlaw.cautions.record import Caution, Sentence
from ironlaw.cautions.table import caution
from ironlaw.errors import MissingOptionError, QuestionError, ValueRangeError
from ironlaw.estimate.bind.model import bind_model, plain_model
from ironlaw.estimate.layer.counts import active_parameters, total_parameters
from ironlaw.law import batches, flops, run
from ironlaw.law import scaling as law
from ironlaw.question.assumptions import Assumptions, assume
from ironlaw.question.forms import need
from ironlaw.questions.answer import Answer, Column, Table
from ironlaw.questions.scaling.options import FITS
from ironlaw.terms import Term, leaf, total
from ironlaw.units import show

FITTED = {"parameter": (70e6, 16e9), "token": (5e9, 500e9)}  # range of both fits of the loss (Hoffmann et al., section 3)
LEAST, MOST = 1e3, 1e15  # parameters outside this range are a typing error; tokens: a thousand times more
FITTED_BATCH = (1e17, 2e19)  # FLOP range of DeepSeek's fits of batch and learning rate (section 3.1)
OPTIMA = (Column("way", "optimum by"), Column("parameters", "parameters", "parameter"), Column("tokens", "tokens", "token"))
SCHEDULE = (Column("step", "step", "1"), Column("rate", "learning rate", "1"))


@dataclass(frozen=True)
class Size:
    """The size of a run: the given values, and the others by C = 6 N D and the rule of tokens per parameter."""

    name: str
    active: float  # parameters
    total: float
    tokens: float
    operations: float
    assumptions: Assumptions


@dataclass(frozen=True)
class Section:
    """A part of the answer: its sentences, Terms and tables."""

    headline: list[str]
    terms: list[Term]
    tables: list[Table] = field(default_factory=list)


def ask(given: dict[str, Any], folders: tuple[str, ...] = ()) -> Answer:
    """The answer to options as the command line gives them."""
    _refuse(given)
    size = bind_size(given, folders)
    name = given.get("fit", "besiroglu")
    fit = float(FITS.index(name))
    sections = [_least_loss(size, name, fit)]
    warnings = _warn_extrapolated(size)
    if size.total > size.active * 1.001:
        dense = leaf("loss of all parameters", law.loss, "1", parameters=size.total, tokens=size.tokens, fit=fit)
        least, most = float(dense.value), float(sections[0].terms[1].value)
        text = f"a mixture of {show(size.total, 'parameter')} in total: loss between {least:.3f} and {most:.3f}"
        sections.append(Section([text], [dense]))
        warnings.append(caution("mixture-outside-fits"))
    if "inference_tokens" in given:
        sections.append(_minimize_lifetime(size, fit, given["inference_tokens"]))
    ratio = float(given.get("tokens_per_parameter", 20.0))
    batch = leaf("best batch", batches.deepseek_batch, "token", operations=size.operations)
    rate = leaf("best learning rate", batches.deepseek_learning_rate, "1", operations=size.operations)
    text = f"batch of {show(batch.value, 'token')} at a learning rate of {float(rate.value):.2e} (DeepSeek's laws of compute)"
    told = {"tokens": float(batch.value), "learning_rate": float(rate.value)}
    sections.append(Section([Sentence(text, "batch", told)], [batch, rate], [_tabulate_optima(size.operations, fit, ratio)]))
    if "global_batch_tokens" in given:
        sections.append(_given_batch(given, size, float(batch.value), float(rate.value)))
    return Answer(
        title=f"scaling of {size.name}",
        headline=[line for section in sections for line in section.headline],
        tables=[table for section in sections for table in section.tables],
        terms=[term for section in sections for term in section.terms],
        values={"fit": name, "total_parameters": size.total},
        assumptions=size.assumptions,
        warnings=warnings,
        folders=folders,
    )


def _refuse(given: dict[str, Any]) -> None:
    """Refuse options that contradict each other or need another one."""
    if "final_share" in given and given["final_share"] > 1:
        raise ValueRangeError(f"--final-share is {given['final_share']:g}, must be at most 1")
    for option, other in (("learning_rate", "base_batch_tokens"), ("base_batch_tokens", "learning_rate")):
        if option in given:
            need(given, other, "global_batch_tokens")
    if "warmup_steps" in given:
        need(given, "global_batch_tokens")


def bind_size(given: dict[str, Any], folders: tuple[str, ...]) -> Size:
    """The size of the run: the given values, and the others by C = 6 N D and the rule of tokens per parameter."""
    assumptions: Assumptions = []
    name, active, all_parameters = "a dense model", given.get("parameters"), given.get("parameters")
    if "model" in given:
        model = plain_model(bind_model(given["model"], folders)[0])
        name, active, all_parameters = model.name, float(active_parameters(model)), float(total_parameters(model))
    tokens, operations, ratio = given.get("tokens"), given.get("compute"), given.get("tokens_per_parameter", 20.0)
    count = sum(value is not None for value in (active, tokens, operations))
    if count == 0:
        raise MissingOptionError("missing MODEL, --parameters, --tokens or --compute: give one or two of them", option="model")
    if count == 3:
        raise QuestionError("a model, --tokens and --compute: any two decide the third (compute is 6 parameters tokens); give two")
    if count == 1:
        assume(assumptions, "tokens_per_parameter", ratio, "given" if "tokens_per_parameter" in given else "default")
    elif "tokens_per_parameter" in given:
        raise QuestionError("--tokens-per-parameter: parameters and tokens are both given; leave one out")
    if active is None:
        if operations is None:
            active = float(tokens / ratio)
        else:
            active = float(operations / 6.0 / tokens if tokens else law.rule_parameters(operations, ratio))
    if tokens is None:
        tokens = float(law.rule_tokens(active, ratio) if operations is None else law.affordable_tokens(operations, active))
    if not (LEAST <= active <= MOST and LEAST <= tokens <= 1e3 * MOST):
        raise ValueRangeError(
            f"{active:.3g} parameters on {tokens:.3g} tokens are outside every fit: none covers less than {LEAST:g} of each or above "
            f"{MOST:g} parameters and {1e3 * MOST:g} tokens; give a size in between"
        )
    return Size(name, active, float(all_parameters or active), tokens, float(flops.training(active, tokens)), assumptions)


def _least_loss(size: Size, name: str, fit: float) -> Section:
    """The loss of the run, the least loss of its compute, and the least compute of its loss."""
    compute = leaf("compute", flops.training, "FLOP", parameters=size.active, tokens=size.tokens)
    loss = leaf("loss", law.loss, "1", parameters=size.active, tokens=size.tokens, fit=fit)
    best = leaf("optimal parameters", law.optimal_parameters, "1", operations=size.operations, fit=fit)
    best_tokens = leaf("optimal tokens", law.affordable_tokens, "token", operations=size.operations, parameters=best.value)
    best_loss = leaf("optimal loss", law.loss, "1", parameters=best.value, tokens=best_tokens.value, fit=fit)
    same = _find_cheapest("same loss", size, fit, 0.0)
    texts = [
        f"{size.name}: {show(size.active, 'parameter')} on {show(size.tokens, 'token')} ({show(size.tokens / size.active, '1')} each) take "
        f"{float(compute.value):.4g} FLOP; loss {float(loss.value):.3f} ({name})",
        f"least loss for that compute: {show(best.value, 'parameter')} on {show(best_tokens.value, 'token')}, "
        f"loss {float(best_loss.value):.3f}",
        f"least compute for that loss: {float(same[-1].value):.4g} FLOP "
        f"({show(same[0].value, 'parameter')} on {show(same[1].value, 'token')}); "
        f"this run takes {show(compute.value / same[-1].value, '1')} times as much",
    ]
    told = (
        ("run", size.active, size.tokens, compute, loss),
        ("least-loss", best.value, best_tokens.value, compute, best_loss),
        ("least-compute", same[0].value, same[1].value, same[-1], loss),
    )
    headline: list[str] = [
        Sentence(text, code, {"parameters": n, "tokens": tokens, "flop": float(flop.value), "loss": float(reached.value)})
        for text, (code, n, tokens, flop, reached) in zip(texts, told, strict=True)
    ]
    return Section(headline, [compute, loss, best, best_tokens, best_loss, *same])


def _minimize_lifetime(size: Size, fit: float, inference: float) -> Section:
    """The least compute of training and inference together for the loss of the run."""
    least = _find_cheapest("lifetime", size, fit, inference)
    asked = _lifetime_compute(size.active, size.tokens, inference)
    text = (
        f"least compute for that loss with {show(inference, 'token')} of inference: {show(least[0].value, 'parameter')} on "
        f"{show(least[1].value, 'token')}, {float(least[-1].value):.4g} FLOP in total; this run takes {float(asked.value):.4g}"
    )
    return Section([text], [*least, asked.named("lifetime compute of this run")])


def _lifetime_compute(parameters: Any, tokens: Any, inference: float) -> Term:
    """Training and inference together: 6 N D and 2 N per token read or written."""
    training = leaf("training compute", flops.training, "FLOP", parameters=parameters, tokens=tokens)
    if not inference:
        return training
    per_token = leaf("compute of a token of inference", flops.forward_per_token, "FLOP", parameters=parameters)
    serving = Term("inference compute", per_token.value * inference, "FLOP", per_token.law, per_token.inputs, (), inference)
    return total("lifetime compute", [training, serving])


def _find_cheapest(what: str, size: Size, fit: float, inference: float) -> list[Term]:
    """Parameters, tokens and compute, inference included, of the cheapest model with the loss of this one.

    The reducible loss is divided between parameters and tokens in many proportions, and the cheapest is taken.
    """
    reducible = float(law.parameter_part(size.active, fit) + law.token_part(size.tokens, fit))
    share = 1.0 / (1.0 + np.exp(-np.linspace(-9.0, 9.0, 20001)))
    for _ in range(2):
        sizes, lengths = law.parameters_of_part(share * reducible, fit), law.tokens_of_part((1.0 - share) * reducible, fit)
        at = int(np.argmin(_lifetime_compute(sizes, lengths, inference).value))
        best = share[at]
        share = np.linspace(share[max(at - 1, 0)], share[min(at + 1, len(share) - 1)], 2001)
    parameters = leaf(f"{what} parameters", law.parameters_of_part, "1", loss_part=best * reducible, fit=fit)
    tokens = leaf(f"{what} tokens", law.tokens_of_part, "token", loss_part=(1.0 - best) * reducible, fit=fit)
    return [parameters, tokens, _lifetime_compute(parameters.value, tokens.value, inference).named(f"{what} compute")]


def _tabulate_optima(operations: float, fit: float, ratio: float) -> Table:
    """The optimum for a compute by each published method; one fit gives all losses, so that they compare."""
    optima = {
        f"rule of thumb, {ratio:g} tokens each": law.rule_parameters(operations, ratio),
        "Hoffmann, approach 1 (curves)": law.frontier_parameters(operations),
        "Hoffmann, approach 3 (loss)": law.optimal_parameters(operations, 0),
        "Besiroglu (its refit)": law.optimal_parameters(operations, 1),
        "Kaplan (superseded)": law.kaplan_parameters(operations),
    }
    rows = []
    for way, parameters in optima.items():
        tokens = law.affordable_tokens(operations, parameters)
        rows.append({
            "way": way, "parameters": float(parameters), "tokens": float(tokens), "ratio": float(tokens / parameters),
            "loss": float(law.loss(parameters, tokens, fit)),
        })  # fmt: skip
    columns = (*OPTIMA, Column("ratio", "tokens each", "1"), Column("loss", f"loss ({FITS[int(fit)]})", "1"))
    return Table("optima", f"Least loss for {operations:.4g} FLOP", columns, rows)


def _given_batch(given: dict[str, Any], size: Size, critical: float, best_rate: float) -> Section:
    """What a given batch costs, the learning rates that go with it, and the schedule."""
    batch = given["global_batch_tokens"]
    steps = leaf("steps", run.steps, "1", tokens=size.tokens, tokens_per_step=batch, rounding=run.UP)
    more_steps = leaf("steps over least", batches.steps_over_least, "1", tokens_per_step=batch, critical_batch=critical)
    more_tokens = leaf("tokens over least", batches.tokens_over_least, "1", tokens_per_step=batch, critical_batch=critical)
    headline = [
        f"with {show(batch, 'token')} a batch: {float(steps.value):,.0f} steps, {float(more_steps.value):.2f} times the fewest possible; "
        f"{float(more_tokens.value):.2f} times the tokens of small batches (if the batch above is the critical one)"
    ]
    terms, tables, peak = [steps, more_steps, more_tokens], [], best_rate
    if "learning_rate" in given:
        base = {"learning_rate": given["learning_rate"], "tokens_per_step": batch, "base_tokens_per_step": given["base_batch_tokens"]}
        linear = leaf("linear learning rate", batches.linear_learning_rate, "1", **base)
        root = leaf("square root learning rate", batches.root_learning_rate, "1", **base)
        terms += [linear, root]
        headline.append(
            f"learning rate: {float(linear.value):.3g} by the linear rule (SGD), {float(root.value):.3g} by the square root (Adam)"
        )
        peak = float(root.value)
    if "warmup_steps" in given:
        tables.append(_tabulate_schedule(given["warmup_steps"], float(steps.value), peak, given.get("final_share", 0.1)))
    return Section(headline, terms, tables)


def _tabulate_schedule(warm: float, last: float, peak: float, final_share: float) -> Table:
    """The learning rate at the start, the middle and the end of the warm-up and of the cosine."""
    if warm >= last:
        raise ValueRangeError(f"--warmup-steps {warm:g}: the run has {last:g} steps; give fewer")
    steps = sorted({0.0, float(warm // 2), warm, float((warm + last) // 2), last})
    rows = [{"step": step, "rate": float(batches.warmup_cosine(step, peak, final_share, warm, last))} for step in steps]
    return Table("schedule", "Warm-up, then cosine", SCHEDULE, rows)


def _warn_extrapolated(size: Size) -> list[Caution]:
    """A warning for each value outside the range of the fits."""
    codes = {"parameter": "loss-extrapolated", "token": "tokens-extrapolated"}
    warnings = [
        caution(codes[unit], value=value, least=low, most=high)
        for (unit, (low, high)), value in zip(FITTED.items(), (size.active, size.tokens), strict=True)
        if not low <= value <= high
    ]
    if not FITTED_BATCH[0] <= size.operations <= FITTED_BATCH[1]:
        warnings.append(caution("batch-extrapolated", least=FITTED_BATCH[0], most=FITTED_BATCH[1]))
    return warnings
