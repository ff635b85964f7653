"""The run that ``solve`` reasons about: its work, its hardware, its price, and what ``estimate`` says of it at a count of accelerators."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ironlaw.catalog.sourced import Sourced
from ironlaw.errors import QuestionError
from ironlaw.estimate.answer import answer
from ironlaw.estimate.bind.cluster import bind_precision, cluster_of
from ironlaw.estimate.bind.model import bind_model
from ironlaw.estimate.bind.money import bind_price
from ironlaw.estimate.candidates import DEFAULT_SEQ_LEN
from ironlaw.estimate.layer.counts import attending_layers, attention_width, matmul_parameters, total_parameters
from ironlaw.job import PRECISIONS
from ironlaw.law import cost, flops, run
from ironlaw.question.assumptions import assume
from ironlaw.questions.compare.fewest import counts, fewest
from ironlaw.terms import Term, leaf, plain

if TYPE_CHECKING:
    from ironlaw.estimate.answer import Estimate

PASSED_NOT = ("model", "parameters", "solve_for", "gpus", "deadline", "tokens", "mfu", "budget", "price", "work", "checkpoint_layers")
_MONEY = (cost.affordable_gpus, cost.affordable_time, cost.gpu_hours, cost.rental)
LAWS = {law.__name__: law for law in (*_MONEY, run.operations, run.iron_law, run.mfu, run.tokens_done, run.gpus_needed)}


@dataclass(eq=False, repr=False)
class Job:
    """A model on a kind of accelerator; every number it is asked for is kept as a Term."""

    title: str
    record: Any
    asked: dict[str, Any]  # options of estimate, without a count
    parameters: float
    flop: Term  # operations of a token
    peak: Any
    price: Any
    node: int
    capacity: float
    seq_len: float
    batch: float | None  # tokens of a step, where given
    folders: tuple[str, ...]
    terms: list[Term] = field(default_factory=list)
    notes: list[dict[str, Any]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    _plans: dict[float, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, values: dict[str, Any], folders: tuple[str, ...]) -> Job:
        """The job of a question; where only parameters are given, of a dense model of usual shape."""
        notes: list[dict[str, Any]] = []
        shaped = values.get("model") or shape_of(values["parameters"])
        record, left_out = bind_model(shaped, folders)
        given = {"on": values["on"], "precision": values.get("precision") or bind_precision(values["on"], folders)}
        cluster = cluster_of(given, folders, [])
        parameters = values.get("parameters") or float(total_parameters(record))
        seq_len = values.get("seq_len", float(min(record.max_position_embeddings, DEFAULT_SEQ_LEN)))
        by_count = values.get("work") == "6n" or "parameters" in values
        if by_count:
            flop = leaf("FLOP per token", flops.per_token, "FLOP/token", parameters=parameters)
        else:
            flop = leaf(
                "FLOP per token",
                flops.model_per_token,
                "FLOP/token",
                matmul_parameters=matmul_parameters(record),
                num_hidden_layers=attending_layers(record),
                attention_width=attention_width(record),
                seq_len=seq_len,
            )
        if "model" not in values:
            assume(notes, "shape for predictions", f"{shaped['num_hidden_layers']} layers of width {shaped['hidden_size']}", "default")
        if "seq_len" not in values:
            assume(notes, "seq_len", seq_len, "default")
        sequences = values.get("global_batch_size")
        asked = {key: value for key, value in values.items() if key not in PASSED_NOT} | {"model": shaped, "seq_len": seq_len}
        return cls(
            title=record.title if "model" in values else f"{parameters / 1e9:g} B parameters",
            record=record,
            asked=asked,
            parameters=parameters,
            flop=flop,
            peak=cluster.accelerator.peak[PRECISIONS[given["precision"]].peak],
            price=bind_price(values.get("price"), cluster, folders, notes),
            node=int(cluster.node.accelerators.value),
            capacity=cluster.accelerator.memory_capacity.value,
            seq_len=seq_len,
            batch=values.get("global_batch_tokens") or (sequences * seq_len if sequences else None),
            folders=folders,
            terms=[flop],
            notes=notes,
            warnings=[f"left out: {item}" for item in left_out],
        )

    def leaf(self, name: str, law: str, unit: str, **inputs: Any) -> Term:
        """A number of the answer, kept; prices are the job's own."""
        if law in ("affordable_gpus", "affordable_time", "rental"):
            inputs["price"] = self.price
        term = leaf(name, LAWS[law], unit, **inputs)
        self.terms = [old for old in self.terms if old.name != name] + [term]
        return term

    def work(self, tokens: float) -> float:
        """Operations of the run."""
        return float(self.leaf("work", "operations", "FLOP", flop_per_token=self.flop.value, tokens=tokens).value)

    def peaks(self, gpus: float) -> Sourced:
        """The peak of all accelerators together."""
        return Sourced(self.peak.value * gpus, self.peak.unit, f"{gpus:,.0f} x {self.peak.text}", self.peak.source)

    def seconds(self, tokens: float, gpus: float, mfu: float) -> float:
        """Time of the run."""
        inputs = {"operations": self.work(tokens), "peak": self.peaks(gpus), "efficiency": mfu}
        return float(self.leaf(f"time on {gpus:.0f} GPUs", "iron_law", "s", **inputs).value)

    def mfu_needed(self, tokens: float, gpus: float, seconds: float) -> float:
        """The MFU a time needs."""
        inputs = {"model_flop": self.work(tokens), "seconds": seconds, "gpus": gpus, "peak": self.peak}
        return float(self.leaf(f"MFU needed by {gpus:.0f} GPUs", "mfu", "1", **inputs).value)

    def rate(self, gpus: float, mfu: float) -> float:
        """Tokens a second."""
        done = {"gpus": gpus, "seconds": 1.0, "peak": self.peak, "efficiency": mfu, "flop_per_token": self.flop.value}
        return float(self.leaf("tokens of a second", "tokens_done", "token", **done).value)

    def step_by_hand(self, gpus: float, mfu: float) -> float | None:
        """Time of a step, where its tokens are given."""
        if not self.batch:
            return None
        inputs = {"operations": float(self.flop.value) * self.batch, "peak": self.peaks(gpus), "efficiency": mfu}
        return float(self.leaf("step by hand", "iron_law", "s", **inputs).value)

    def fewest(self, tokens: float, seconds: float, mfu: float | None) -> float | None:
        """The fewest accelerators for a deadline: at an MFU that is given, else the fewest whose estimate is fast enough."""
        if mfu:
            inputs = {"operations": self.work(tokens), "seconds": seconds, "peak": self.peak, "efficiency": mfu}
            return float(self.leaf("fewest GPUs", "gpus_needed", "1", **inputs).value)
        least = float(run.gpus_needed(self.work(tokens), seconds, plain(self.peak), 1.0))
        found = fewest(self.asked, tokens / seconds, self.node, max(least, 1.0), self.folders)
        if found is None:
            return None
        return float(found.place_of(0)[0].plan.gpus[0])

    def plan(self, gpus: float) -> Estimate | None:
        """The estimate at a count; at one of the next round counts where no plan divides it; None where estimate has no answer."""
        if gpus not in self._plans:
            self._plans[gpus] = self._plan(gpus)
        found: Estimate | None = self._plans[gpus]
        return found

    def _plan(self, gpus: float) -> Estimate | None:
        found = None
        try:
            for count in [gpus, *(n for n in counts(self.node, gpus) if n > gpus)][:5]:
                found = answer({**self.asked, "gpus": count}, self.folders)
                if self.legal(found):
                    group, _ = found.place_of(0)
                    self.notes += [item for item in group.assumptions if item["origin"] == "default" and item not in self.notes]
                    if count != gpus:
                        self.warnings.append(f"no plan divides {gpus:,.0f} GPUs and the batch: predictions are those of {count:,.0f}")
                    break
            else:
                self.warnings.append(f"no plan divides {gpus:,.0f} GPUs and the batch: steps are by hand")
        except QuestionError as error:
            self.warnings.append(f"estimate has no answer, steps are by hand: {error}")
        return found

    def legal(self, found: Any) -> bool:
        """True where a plan can exist."""
        return found is not None and bool(found.legal[0])

    def predicted(self, gpus: float) -> float | None:
        """The MFU of the plan at a count, in the operations this job counts."""
        found = self.plan(gpus)
        if found is None or not self.legal(found) or not found.fits[0]:
            return None
        group, _ = found.place_of(0)
        rates = (group.throughput["tokens_per_second"], group.throughput["tokens_per_second_per_gpu"])
        self.terms = [old for old in self.terms if old.name not in {rate.name for rate in rates}] + list(rates)
        done = float(self.flop.value) * float(rates[1].value.ravel()[0])
        return float(self.leaf("predicted MFU", "mfu", "1", model_flop=done, seconds=1.0, gpus=1.0, peak=self.peak).value)

    def mfu(self, gpus: float, given: float | None) -> float:
        """The MFU that is given, else the predicted one."""
        predicted = self.predicted(gpus)
        if given is None:
            if predicted is None:
                raise QuestionError(f"no plan of {gpus:,.0f} GPUs holds this job, so no MFU is predicted: give more --gpus, or --mfu")
            assume(self.notes, "mfu", round(predicted, 4), "chosen")
            return predicted
        if predicted is not None and given > predicted:
            self.warnings.append(f"--mfu is {given:.1%}, estimate predicts {predicted:.1%} for its best plan of {gpus:,.0f} GPUs")
        return given


def shape_of(parameters: float) -> dict[str, Any]:
    """A dense model of about this many parameters in the usual shape: width about 128 times the layers, ``N = 12 L h^2``.

    Heads are whole eights and layers whole fours, which plans divide.

    >>> shape_of(30e9)["num_hidden_layers"], shape_of(30e9)["num_attention_heads"]
    (48, 56)
    """
    heads = _multiple((parameters / (12.0 * 128.0**2)) ** (1.0 / 3.0), 8)
    layers = _multiple(parameters / (12.0 * (128.0 * heads) ** 2), 4)
    return {
        "hidden_size": 128 * heads,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "vocab_size": 32000,
        "max_position_embeddings": 8192,
        "title": f"{parameters / 1e9:g} B parameters in the usual shape",
    }


def _multiple(number: float, of: int) -> int:
    """The nearest multiple, at least one."""
    return max(round(number / of), 1) * of
