"""The workload that ``solve`` reasons about: its operations, hardware and price, and its estimate at a count of accelerators."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod
from typing import Any

from ironlaw import units
from ironlaw.catalog.model import Model
from ironlaw.catalog.records import Accelerator
from ironlaw.catalog.sourced import Sourced
from ironlaw.cautions.record import Caution
from ironlaw.cautions.table import caution
from ironlaw.errors import QuestionError, ValueRangeError
from ironlaw.estimate.answer.estimate import Estimate, answer
from ironlaw.estimate.bind.cluster import bind_precision, cluster_of
from ironlaw.estimate.bind.model import bind_model
from ironlaw.estimate.bind.money import bind_price
from ironlaw.estimate.bind.question import sequences_of
from ironlaw.estimate.documents.keys import keys_seen
from ironlaw.estimate.layer.counts import active_parameters, attending_layers, attention_width, matmul_parameters, total_parameters
from ironlaw.estimate.step.rates import model_key_length
from ironlaw.estimate.step.run import time_of_steps
from ironlaw.estimate.what_if import sizing
from ironlaw.estimate.what_if.measured_run import MFU_NAMES, MeasuredRun, measured_run
from ironlaw.estimate.what_if.near_counts import describe_counts, nearest_counts, no_such_plan
from ironlaw.estimate.what_if.offers import describe_offers, offers
from ironlaw.law import cost, flops, run
from ironlaw.precision import precision_of
from ironlaw.question import defaults
from ironlaw.question.assumptions import Assumptions, assume
from ironlaw.questions.solve.options import PASSED
from ironlaw.terms import Term, leaf

OF_THE_RUN = ("on", "tokens", "price")  # options of both verbs that an estimate reads
CONVENTIONS = {"model": "mfu", "full-square": "mfu_full_square", "6n": "mfu_6n"}  # what MFU counts, by --work
VOCABULARY = 32000  # of the model that --parameters stands for


@dataclass(eq=False, repr=False)
class Workload:
    """A model on one kind of accelerator. It records every number it computes as a Term of the answer."""

    title: str
    model: Model
    options: dict[str, Any]  # of estimate, without a count
    parameters: float
    counted: float  # parameters by the dimensions
    given_parameters: float | None
    mfu_key: str  # the convention of the MFU that this workload's operations give: a key of MFU_NAMES
    flop: Term  # operations per token
    peak: Sourced
    price: Sourced
    accelerator: Accelerator
    node: int  # accelerators in a node
    capacity: float  # memory of one accelerator [B]
    usable: float  # of it, what a job may use [B]
    seq_len: float
    batch: float | None  # tokens per step, where given
    asked_batch: float | None  # tokens per step as asked, before they were rounded to whole sequences
    rounding: str | None  # of steps, where given
    folders: tuple[str, ...]
    assumptions: Assumptions
    warnings: list[Caution]
    terms: list[Term]
    _estimates: dict[float, Estimate | None] = field(default_factory=dict)

    @classmethod
    def of(cls, values: dict[str, Any], folders: tuple[str, ...]) -> Workload:
        """The workload of a question; for --parameters alone, a dense model of usual shape."""
        assumptions: Assumptions = []
        asked = values.get("model") or usual_shape(values["parameters"])
        model, left_out = bind_model(asked, folders)
        precision = values.get("precision") or bind_precision(values["on"], folders)
        cluster = cluster_of({"on": values["on"], "precision": precision}, folders, [])
        counted = float(total_parameters(model))
        parameters = values.get("parameters") or counted
        seq_len = values.get("seq_len", defaults.seq_len(model.max_position_embeddings))
        if "model" not in values:
            assume(assumptions, "shape for predictions", f"{asked['num_hidden_layers']} layers of width {asked['hidden_size']}", "default")
        if "seq_len" not in values:
            assume(assumptions, "seq_len", seq_len, "default")
        sequences = values.get("global_batch_size")
        if "global_batch_tokens" in values:
            sequences = sequences_of(values["global_batch_tokens"], seq_len)
        mfu_key = CONVENTIONS["6n" if "parameters" in values else values.get("work", "model")]
        flop = _flop_per_token(model, values.get("parameters") or float(active_parameters(model)), seq_len, mfu_key)
        return cls(
            title=model.title if "model" in values else f"{parameters / 1e9:g} B parameters",
            model=model,
            options={key: values[key] for key in (*OF_THE_RUN, *PASSED) if key in values} | {"model": asked, "seq_len": seq_len},
            parameters=parameters,
            counted=counted,
            given_parameters=values.get("parameters"),
            mfu_key=mfu_key,
            flop=flop,
            peak=cluster.accelerator.peak[precision_of(precision, folders).peak],
            price=bind_price(values.get("price"), cluster, folders, assumptions),
            accelerator=cluster.accelerator,
            node=int(cluster.node.accelerators.value),
            usable=cluster.accelerator.usable_memory,
            capacity=cluster.accelerator.memory_capacity.value,
            seq_len=seq_len,
            batch=sequences * seq_len if sequences else None,
            asked_batch=values.get("global_batch_tokens"),
            rounding=values.get("rounding"),
            folders=folders,
            assumptions=assumptions,
            warnings=[caution("left-out", item=item) for item in left_out],
            terms=[flop, *_passes(values.get("parameters") or float(active_parameters(model)))],
        )

    @property
    def mfu_name(self) -> str:
        """The convention of the MFU, as every answer names it."""
        return MFU_NAMES[self.mfu_key]

    @property
    def sold(self) -> float:
        """Memory of one accelerator as sold, where a GiB is called a GB [B]."""
        return self.capacity / 2.0**30 * 1e9

    def record(self, *terms: Term) -> None:
        """Add Terms to the answer; a Term replaces an earlier one of the same name."""
        names = {term.name for term in terms}
        self.terms = [old for old in self.terms if old.name not in names] + list(terms)

    def compute(self, name: str, law: Callable[..., Any], unit: str, **inputs: Any) -> float:
        """A number by a law, recorded as a Term."""
        term = leaf(name, law, unit, **inputs)
        self.record(term)
        return float(term.value)

    def rent(self, name: str, gpus: float, seconds: float) -> float:
        """USD of accelerators for a time."""
        return self.compute(name, cost.rental, "USD", gpus=gpus, seconds=seconds, price=self.price)

    def affordable_gpus(self, budget: float, seconds: float) -> float:
        """The most accelerators a budget pays for."""
        return self.compute("most GPUs", cost.affordable_gpus, "1", budget=budget, seconds=seconds, price=self.price)

    def affordable_seconds(self, budget: float, gpus: float) -> float:
        """The longest time a budget pays for."""
        return self.compute("longest time", cost.affordable_time, "s", budget=budget, gpus=gpus, price=self.price)

    def gpu_hours(self, gpus: float, seconds: float) -> float:
        """Accelerator hours of a budget."""
        return self.compute("GPU-hours of the budget", cost.gpu_hours, "h", gpus=gpus, seconds=seconds)

    def work(self, tokens: float) -> float:
        """Operations of the run."""
        return self.compute("work", run.operations, "FLOP", flop_per_token=self.flop.value, tokens=tokens)

    def total_peak(self, gpus: float) -> Sourced:
        """The peak of all accelerators together."""
        return Sourced(self.peak.value * gpus, self.peak.unit, f"{gpus:,.0f} x {self.peak.text}", self.peak.source)

    def seconds(self, tokens: float, gpus: float, mfu: float) -> float:
        """Time of the run: steps of the estimated plan at its own MFU, as every verb counts it; by the iron law at another.

        Steps are rounded as the question asks; by default up, and exact at a given MFU, for which no step was estimated.
        """
        name, operations = f"time on {gpus:.0f} GPUs", self.work(tokens)
        step, batch = self.step_of(gpus, mfu)
        if step is None or batch is None:
            return self.compute(name, run.iron_law, "s", operations=operations, peak=self.total_peak(gpus), efficiency=mfu)
        return self.compute(name, time_of_steps, "s", steps=run.steps(tokens, batch, run.ROUNDINGS[self.rounding_of(gpus, mfu)]), step=step)

    def rounding_of(self, gpus: float, mfu: float) -> str:
        """The rounding of steps: as given, else up for a predicted step and exact for one by hand."""
        return self.rounding or (defaults.ROUNDING if self._is_predicted(gpus, mfu) else "exact")

    def step_of(self, gpus: float, mfu: float) -> tuple[float | None, float | None]:
        """Time and tokens of a step: of the estimated plan at its own MFU, else by hand; None where no batch is known."""
        if self._is_predicted(gpus, mfu):
            estimate = self._estimates[gpus]
            assert estimate is not None
            return float(estimate.step_seconds[0]), self.batch_of(gpus)
        batch = self.batch_of(gpus)
        return (None, None) if batch is None else (self.step_seconds(gpus, mfu, batch), batch)

    def _is_predicted(self, gpus: float, mfu: float) -> bool:
        """Whether an MFU is the predicted one of a plan of exactly this count."""
        estimate = self._estimates.get(gpus)
        return estimate is not None and mfu == self.predicted_mfu(gpus) and estimate.place_of(0)[0].plan.gpus[0] == gpus

    def batch_of(self, gpus: float) -> float | None:
        """Tokens of a step: as given, else of the estimated plan."""
        estimate = self._estimates.get(gpus)
        if self.batch is not None or estimate is None or not estimate.legal[0]:
            return self.batch
        plan = estimate.place_of(0)[0].plan
        return float(plan.global_batch_size[0] * plan.seq_len[0])

    def step_seconds(self, gpus: float, mfu: float, batch: float) -> float:
        """Time of a step by hand."""
        inputs = {"operations": float(self.flop.value) * batch, "peak": self.total_peak(gpus), "efficiency": mfu}
        return self.compute("step by hand", run.iron_law, "s", **inputs)

    def measured(self, gpus: float, tokens_per_second: float) -> MeasuredRun:
        """A measured throughput against the estimate of the best plan, or of the given one."""
        estimate = self.plan(gpus)
        if estimate is None or not estimate.legal[0]:
            raise QuestionError(f"no plan of {gpus:,.0f} GPUs to compare the measured throughput with (ironlaw estimate says why)")
        found = measured_run(*estimate.place_of(0), tokens_per_second=tokens_per_second, parameters=self.given_parameters)
        self.record(*found.utilisation.values())
        return found

    def tokens(self, name: str, gpus: float, seconds: float, mfu: float) -> float:
        """Tokens processed in a time."""
        inputs = {"gpus": gpus, "seconds": seconds, "peak": self.peak, "efficiency": mfu, "flop_per_token": self.flop.value}
        return self.compute(name, run.tokens_done, "token", **inputs)

    def tokens_of_flops(self, gpus: float, flops: float) -> float:
        """Tokens of a second on some accelerators that reach ``flops`` [FLOP/s] each."""
        inputs = {"gpus": gpus, "seconds": 1.0, "peak": flops, "efficiency": 1.0, "flop_per_token": self.flop.value}
        return self.compute("measured tokens of a second", run.tokens_done, "token", **inputs)

    def mfu_for(self, name: str, operations: float, gpus: float, seconds: float) -> float:
        """The MFU needed to finish the operations in a time."""
        return self.compute(name, run.mfu, "1", model_flop=operations, seconds=seconds, gpus=gpus, peak=self.peak)

    def flop_rate(self, name: str, operations: float, seconds: float) -> float:
        """The FLOP/s needed to finish the operations in a time."""
        return self.compute(name, run.mfu, "FLOP/s", model_flop=operations, seconds=seconds, gpus=1.0, peak=1.0)

    def fewest(self, tokens: float, seconds: float, mfu: float | None) -> float | None:
        """The fewest accelerators for a deadline: at a given MFU, else by estimates that count failures; None if there is none."""
        if mfu:
            inputs = {"operations": self.work(tokens), "seconds": seconds, "peak": self.peak, "efficiency": mfu, "rounding": run.UP}
            return self.compute("fewest GPUs", run.gpus_needed, "1", **inputs)
        least = sizing.least_count(self.model, self.accelerator, tokens / seconds)
        given = prod(self.options.get(axis) or 1.0 for axis in ("tp", "pp"))
        tried: dict[float, Estimate] = {}

        def reached(gpus: float) -> float:
            tried[gpus] = answer({**self.options, "gpus": gpus}, self.folders)
            return sizing.times_reached(tried[gpus], seconds, None)

        count = sizing.fewest_count(sizing.round_counts(self.node, least, unit=given), self.node, reached)
        if count is not None:
            self._estimates[count] = self._note(tried[count])
        return count

    def run_of(self, gpus: float) -> tuple[float, float] | None:
        """Seconds and USD of the run on so many accelerators with its failures; None where no plan fits."""
        estimate = self.plan(gpus)
        if estimate is None or not estimate.fits[0]:
            return None
        seconds, usd = sizing.seconds_and_usd(estimate.place_of(0)[0])
        return None if seconds is None or usd is None else (seconds, usd)

    def plan(self, gpus: float) -> Estimate | None:
        """The estimate at a count, or at one of the next round counts where no plan divides it; None where estimate has no answer."""
        if not gpus <= units.LARGEST:
            raise ValueRangeError(f"{gpus:.3g} accelerators: the question asks for more than {units.LARGEST:g}, which no run has")
        if gpus not in self._estimates:
            self._estimates[gpus] = self._estimate_near(gpus)
        return self._estimates[gpus]

    def _estimate_near(self, gpus: float) -> Estimate | None:
        """The estimate at a count, or at one of the next round counts that a plan divides."""
        estimate = None
        try:
            for count in [gpus, *(n for n in sizing.round_counts(self.node, gpus) if n > gpus)][:5]:
                estimate = answer({**self.options, "gpus": count}, self.folders)
                if estimate.legal[0]:
                    self._note(estimate)
                    if count != gpus:
                        self.warnings.append(caution("no-plan-divides", gpus=gpus, taken=count))
                    break
            else:
                self.warnings.append(caution("no-plan-by-hand", gpus=gpus))
        except QuestionError as error:
            self.warnings.append(caution("no-estimate", why=str(error)))
        return estimate

    def require_plan(self, gpus: float) -> None:
        """Refuse a given count on which no plan is legal, with the nearest counts that work."""
        try:
            estimate = answer({**self.options, "gpus": gpus}, self.folders)
        except QuestionError:  # what an estimate does not model is computed by hand
            return
        if not estimate.legal[0]:
            raise no_such_plan(estimate)
        self._estimates[gpus] = self._note(estimate)

    def does_not_fit(self, gpus: float) -> str:
        """That no plan fits on a count, with the nearest counts that work; empty where one fits."""
        estimate = self.plan(gpus)
        if estimate is None or not estimate.legal[0] or estimate.fits[0]:
            return ""
        remedies = describe_offers(offers(estimate)) + describe_counts(nearest_counts(estimate))
        return f"no: no plan fits on {gpus:,.0f} GPUs, so no MFU is predicted{remedies}"

    def _note(self, estimate: Estimate) -> Estimate:
        """An estimate whose warnings and assumptions the answer repeats."""
        group = estimate.place_of(0)[0]
        self.warnings += group.warnings
        self.assumptions += [item for item in group.assumptions if item["origin"] == "default" and item not in self.assumptions]
        return estimate

    def predicted_mfu(self, gpus: float) -> float | None:
        """The MFU of the plan at a count, by this workload's operations per token; None where no plan fits."""
        estimate = self.plan(gpus)
        if estimate is None or not estimate.fits[0]:
            return None
        group, _ = estimate.place_of(0)
        rates = (group.throughput["tokens_per_second"], group.throughput["tokens_per_second_per_gpu"])
        self.record(*rates)
        done = float(self.flop.value) * float(rates[1].value.ravel()[0])
        return self.mfu_for("predicted MFU", done, 1.0, 1.0)

    def mfu(self, gpus: float, given: float | None) -> float:
        """The given MFU, else the predicted one."""
        predicted = self.predicted_mfu(gpus)
        if given is None:
            if predicted is None:
                raise QuestionError(f"{self.why_no_mfu(gpus)}, so no MFU is predicted: give more --gpus, or --mfu")
            assume(self.assumptions, "mfu", round(predicted, 4), "chosen")
            return predicted
        if predicted is not None and given > predicted:
            told = {"mfu": given, "quantity": self.mfu_name, "gpus": gpus, "predicted": predicted}
            self.warnings.append(caution("given-above-predicted", **told))
        return given

    def why_no_mfu(self, gpus: float) -> str:
        """Why no MFU is predicted at a count: no plan is legal, or none fits."""
        estimate = self.plan(gpus)
        if estimate is not None and estimate.legal[0]:
            return f"no plan of {gpus:,.0f} GPUs fits in memory"
        return f"no plan divides {gpus:,.0f} GPUs and the batch" if estimate is not None else "estimate has no answer"


def _passes(parameters: float) -> tuple[Term, Term]:
    """The passes of 6N: forward two operations per parameter, backward four."""
    forward = leaf("forward FLOP per token by 2N", flops.forward_per_token, "FLOP/token", parameters=parameters)
    return forward, leaf("backward FLOP per token by 4N", flops.backward_per_token, "FLOP/token", parameters=parameters)


def _flop_per_token(model: Model, parameters: float, seq_len: float, mfu_key: str) -> Term:
    """Operations per token by a convention of MFU: 6 per parameter, or the model's with attention as computed or as the full square."""
    if mfu_key == "mfu_6n":
        return leaf("FLOP per token", flops.per_token, "FLOP/token", parameters=parameters)
    return leaf(
        "FLOP per token",
        flops.model_per_token,
        "FLOP/token",
        matmul_parameters=matmul_parameters(model),
        num_hidden_layers=attending_layers(model),
        attention_width=attention_width(model),
        key_length=seq_len if mfu_key == "mfu_full_square" else model_key_length(model, lambda part: keys_seen(part, seq_len)),
    )


def usual_shape(parameters: float) -> dict[str, Any]:
    """A dense model of about this many parameters: width about 128 times the layers, ``N = 12 L h^2 + V h``.

    Heads are a multiple of eight and layers of four, so that plans divide them.

    >>> usual_shape(30e9)["num_hidden_layers"], usual_shape(30e9)["num_attention_heads"]
    (48, 56)
    """
    heads = _nearest_multiple((parameters / (12.0 * 128.0**2)) ** (1.0 / 3.0), 8)
    table = VOCABULARY * 128.0 * heads  # the embedding, which is the output layer too
    layers = _nearest_multiple((parameters - table) / (12.0 * (128.0 * heads) ** 2), 4)
    return {
        "hidden_size": 128 * heads,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": 8192,
        "title": f"{parameters / 1e9:g} B parameters in the usual shape",
    }


def _nearest_multiple(number: float, divisor: int) -> int:
    """The nearest multiple, at least one."""
    return max(round(number / divisor), 1) * divisor
