"""Traces made from an estimate: the diagnosis finds the predicted times and names every change."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

import ironlaw
from ironlaw.cli.main import main
from ironlaw.measure.diagnose import Diagnosis, diagnose
from ironlaw.measure.versus.compare import UNEXPLAINED, Row
from made_traces import Changes, MadeRun, make_run

SHAPE = {
    "hidden_size": 2048, "num_hidden_layers": 4, "num_attention_heads": 16, "num_key_value_heads": 4, "intermediate_size": 5632,
    "vocab_size": 32000, "gated_mlp": True, "tie_word_embeddings": False,
}  # fmt: skip
FSDP = {
    "model": "llama-3-8b", "on": "h100-sxm", "gpus": 8, "framework": "torchtitan", "zero": 3, "seq_len": 8192, "global_batch_size": 16,
    "micro_batch_size": 1, "recompute": "selective", "tp": 1, "pp": 1,
}  # fmt: skip
SMALL = {**FSDP, "model": SHAPE, "seq_len": 4096, "recompute": "full"}
PIPE = {
    "model": {**SHAPE, "num_hidden_layers": 8}, "on": "h100-sxm", "gpus": 4, "framework": "megatron", "tp": 2, "pp": 2, "vpp": 1, "zero": 1,
    "seq_len": 4096, "global_batch_size": 8, "micro_batch_size": 1, "recompute": "none",
}  # fmt: skip
FLAT = {**PIPE, "model": SHAPE, "pp": 1, "dp_shard": 2}
CASES: dict[str, tuple[dict[str, Any], tuple[int, ...] | None]] = {
    "fsdp": (FSDP, (0,)),
    "fsdp, all ranks": (SMALL, None),
    "one micro-batch": ({**FSDP, "global_batch_size": 8, "recompute": "none"}, (0,)),
    "eight micro-batches": ({**SMALL, "global_batch_size": 64}, (0,)),
    "megatron, tp 8, pp 2": ({**PIPE, "model": "llama-3-8b", "gpus": 16, "tp": 8, "seq_len": 8192}, (0, 8)),
    "pipeline": (PIPE, None),
    "pipeline, fp8": ({**PIPE, "precision": "fp8"}, None),
    "zero 1": (FLAT, (0, 1)),
    "zero 0": ({**FLAT, "zero": 0, "dp_shard": 1, "dp_replicate": 2}, (0,)),
    "zero 2, no sequence parallel": ({**FLAT, "zero": 2, "sp": False, "recompute": "full"}, (0,)),
    "overlapped tensor parallel": ({**FLAT, "overlap": "tp"}, (0,)),
    "fp8": ({**FSDP, "precision": "fp8"}, (0,)),
    "one device": ({**FSDP, "model": SHAPE, "gpus": 1, "zero": 0, "seq_len": 4096, "framework": "fsdp", "recompute": "none"}, (0,)),
}
PIPELINES = ("megatron, tp 8, pp 2", "pipeline", "pipeline, fp8")


@dataclass(frozen=True)
class Run:
    """A made run, diagnosed against the estimate it was made from."""

    made: MadeRun
    found: Diagnosis
    row: dict[str, Any]

    @property
    def rows(self) -> dict[str, Row]:
        return {row.term: row for row in self.found.comparison.rows}

    def over(self, term: str) -> float:
        """Milliseconds of a row that were measured and not predicted."""
        return self.rows[term].difference * 1e3

    @property
    def names(self) -> set[str]:
        return {finding.name for finding in self.found.findings}


@cache
def estimated(case: str) -> ironlaw.Estimate:
    return ironlaw.estimate(**CASES[case][0])


def run(case: str, ranks: tuple[int, ...] | None = None, **changes: Any) -> Run:
    """Make the traces of a case, diagnose them, forget the files."""
    options, usual = CASES[case]
    with TemporaryDirectory() as folder:
        made = make_run(estimated(case), Path(folder), ranks or usual, Changes(**changes))
        found = diagnose(folder, question=options)
    return Run(made, found, estimated(case).row(0))


@cache
def unchanged(case: str) -> Run:
    return run(case)


# as predicted


@pytest.mark.parametrize("case", CASES)
def test_a_run_as_predicted_takes_as_long_as_predicted(case):
    one = unchanged(case)
    comparison = one.found.comparison
    assert abs(comparison.difference) < 0.002 * comparison.predicted.seconds, comparison.sentence
    near = 0.001 if case in PIPELINES else 0.0002  # how two stages meet is a formula there and happens here
    for row in comparison.rows:  # calls and their latencies, the norm of the gradients
        assert abs(row.difference) < 60e-6 + near * comparison.predicted.seconds, row
    assert one.rows[UNEXPLAINED].measured < 1e-6
    same = ("not the same", "count differently", "not a transformer", "above 100")
    assert [w for w in one.found.warnings if any(word in w for word in same)] == []


@pytest.mark.parametrize("case", CASES)
def test_window_and_steps_are_recovered_to_the_nanosecond(case):
    one = unchanged(case)
    for profile in one.found.profiles:
        rank = profile.trace.rank
        begins = one.made.steps[rank]
        assert profile.window.wall == one.made.end[rank] - begins[0]
        assert [s.device.start - profile.window.start for s in profile.steps] == [b - begins[0] for b in begins]
        w = profile.window
        assert w.compute + w.exposed_comm + w.exposed_copy + w.idle == w.wall
    measured = one.found.comparison.measured
    assert measured.step_seconds == pytest.approx(one.made.step(measured.rank), abs=1e-12)
    assert sum(measured.parts.values()) == pytest.approx(measured.step_seconds, abs=1e-9)


@pytest.mark.parametrize("case", [c for c in CASES if c not in PIPELINES])
def test_flop_and_utilisation_equal_the_estimate(case):
    one = unchanged(case)
    rates, seconds = one.row["throughput"], one.row["step"]["seconds"]
    peak = rates["peak"]["flop_per_second"]
    full, causal, hardware = (rates[name] * peak * seconds for name in ("mfu_full_square", "mfu", "hfu"))
    attention = full - causal  # what a causal mask leaves out is as much as what it leaves
    profile = one.found.profiles[0]
    by = dict.fromkeys(("gemm", "attention"), 0.0)
    for kernel in profile.kernels:
        if kernel.kind in by:
            by[kernel.kind] += kernel.model_flop / len(profile.steps)
    assert by == pytest.approx({"gemm": causal - attention, "attention": attention}, rel=0.01)
    measured = one.found.comparison.measured
    assert measured.causal
    utilisation = one.found.comparison.data()["comparison"]["utilisation"]
    assert utilisation["mfu"]["measured_by"] == "the trace"
    assert utilisation["mfu"]["measured"] == pytest.approx(rates["mfu"], rel=0.005)
    # the trace counts what runs again under its mask, and that the backward pass of flash attention computes the scores again
    expected = hardware + attention / 6.0
    assert measured.hfu * measured.step_seconds * peak == pytest.approx(expected, rel=0.01)
    assert (measured.recompute_seconds > 0) == (hardware > causal * (1.0 + 1e-9))
    assert measured.recompute_seconds == pytest.approx(one.found.comparison.predicted.recompute_seconds, rel=0.001, abs=1e-6)


# something else than predicted


def test_the_sentence_names_what_was_made_slower_and_by_how_much():
    base = unchanged("fsdp").made.step(0)
    one = run("fsdp", operations={"all_gather": 1.07}, terms={"flash attention": 1.03})
    seconds = one.found.comparison.predicted.seconds
    gathers, attention = (one.rows[t].share * 100 for t in ("exposed all-gather", "attention kernel"))
    assert one.found.comparison.sentence == (
        f"{(one.made.step(0) / seconds - 1) * 100:.1f} % slower than predicted: {gathers:.1f} % exposed all-gather, "
        f"{attention:.1f} % attention kernel"
    )
    kernel = 0.03 * unchanged("fsdp").rows["attention kernel"].predicted
    assert one.over("attention kernel") == pytest.approx(kernel * 1e3, rel=0.001)
    assert one.over("exposed all-gather") == pytest.approx((one.made.step(0) - base - kernel) * 1e3, rel=0.001)
    assert [r.term for r in one.found.comparison.rows[:2]] == ["exposed all-gather", "attention kernel"]


@pytest.mark.parametrize(
    ("terms", "row"),
    [
        ({".*gemm|.*dgrad|.*wgrad": 1.2}, "matrix products"),
        ({"norms|residuals|rotary embedding": 1.5}, "memory-bound operators"),
        ({"optimizer": 2.0}, "optimizer"),
        ({"exposed gather and scatter, backward": 3.0}, None),
        ({"flash attention": 0.7}, "attention kernel"),
    ],
)
def test_one_slow_term_is_one_row(terms, row):
    one, base = run("fsdp", terms=terms), unchanged("fsdp")
    moved = (one.made.step(0) - base.made.step(0)) * 1e3
    rows = [row] if row else ["exposed all-gather", "exposed reduce-scatter"]
    assert sum(one.over(r) for r in rows) == pytest.approx(moved, rel=0.01)
    assert {r.term for r in one.found.comparison.rows[: len(rows)]} == set(rows)
    others = sum(abs(r.difference) for r in one.found.comparison.rows if r.term not in rows)
    assert others < 1e-4


def test_a_loader_that_starves_the_device():
    one = run("fsdp", loader=1.4)
    assert one.over("data loading") == pytest.approx(1400, abs=0.1)
    assert "starved-loader" in one.names
    assert one.found.verdict.roof == "data"
    low, high = one.found.verdict.gain
    assert low <= 1.001 * one.made.step(0) / unchanged("fsdp").made.step(0) <= 1.002 * high
    profile = one.found.profiles[0]
    assert profile.utilisation.mfu == pytest.approx(one.found.comparison.measured.mfu, rel=1e-4)  # of the window as of whole steps


def test_one_loader_that_starves_a_job():
    one = run("fsdp, all ranks", loader={6: 0.05})
    assert one.found.comparison.measured.rank == 6
    assert one.over("data loading") == pytest.approx(50.0, abs=0.05)
    assert one.found.verdict.roof == "data"
    assert {"starved-loader", "straggler-rank"} <= one.names


def test_a_host_that_launches_too_slowly():
    one = run("fsdp, all ranks", ranks=(0,), call=300e-6)
    moved = (one.made.step(0) - unchanged("fsdp, all ranks").made.step(0)) * 1e3
    assert one.over("host launch") + one.over("launch latency") == pytest.approx(moved, rel=0.03)
    assert one.found.comparison.rows[0].term == "host launch"
    assert "launch-bound" in one.names
    assert one.found.verdict.roof == "dispatch"


def test_a_host_that_runs_ahead_hides_its_work():
    one = run("fsdp", sync=False)
    fixed = one.found.comparison.predicted.leaves["fixed per-step overhead"]
    assert one.over("host launch") == pytest.approx(-fixed * 1e3, rel=0.01)
    assert one.found.comparison.measured.step_seconds == pytest.approx(one.made.step(0), abs=1e-12)


# which steps


def test_only_whole_steps_are_compared():
    """Two steps hold one gap between them, one step none: what the host does between steps is a part of each."""
    one, two = run("fsdp", steps=1), run("fsdp", steps=2)
    fixed = one.found.comparison.predicted.leaves["fixed per-step overhead"] * 1e3
    assert two.over("host launch") == pytest.approx(0.0, abs=0.1)
    assert one.over("host launch") == pytest.approx(-fixed, abs=0.1)
    assert any(w.startswith("1 measured step:") for w in one.found.warnings)
    assert two.found.comparison.measured.mfu == pytest.approx(unchanged("fsdp").found.comparison.measured.mfu, rel=1e-6)


def test_kernels_of_the_step_before_are_not_in_the_steps():
    one = run("one micro-batch", early=40)
    assert any("have no launch in the file" in w for w in one.found.warnings)
    for row in one.found.comparison.rows:
        assert abs(row.difference) < 60e-6, row


@pytest.mark.parametrize("last", ["keep", "drop"])
def test_the_last_step_changes_nothing_of_a_steady_run(tmp_path, last):
    make_run(estimated("fsdp"), tmp_path, (0,), Changes(steps=4))
    found = diagnose(tmp_path, last_step=last, question=FSDP)
    assert found.comparison.sentence == "as long as predicted"


# all ranks


def test_transfer_and_waiting_are_as_made():
    for case in ("fsdp, all ranks", "pipeline"):
        one = unchanged(case)
        ranks = one.found.ranks
        assert len(ranks.meetings) == len(one.made.transfer)
        assert sum(m.transfer for m in ranks.meetings) == sum(one.made.transfer.values())
        assert sum(m.skew for m in ranks.meetings) == sum(one.made.skew.values())


def test_a_slow_link_is_the_network():
    one = run("fsdp, all ranks", operations={"all_gather": 2.0})
    base = unchanged("fsdp, all ranks")
    assert one.over("exposed all-gather") == pytest.approx((one.made.step(0) - base.made.step(0)) * 1e3, rel=0.01)
    assert one.found.verdict.roof == "network"
    assert "exposed-gather" in one.names
    assert "straggler-rank" not in one.names
    assert sum(m.transfer for m in one.found.ranks.meetings) == sum(one.made.transfer.values())


def test_a_slow_device_is_the_rank_that_is_compared():
    one = run("fsdp, all ranks", slow={3: 1.2})
    assert one.found.comparison.measured.rank == 3
    kernels = {"matrix products", "attention kernel", "memory-bound operators", "optimizer"}
    for term in kernels:
        assert one.rows[term].measured == pytest.approx(1.2 * one.rows[term].predicted, rel=0.001), term
    assert [f.evidence["rank"] for f in one.found.findings if f.name == "straggler-rank"] == [3]
    assert not any("not the same recomputation" in w for w in one.found.warnings)
    assert one.found.ranks.late_ranking[0].rank == 3
    assert one.found.verdict.data()["side"] == "device"
    assert sum(m.skew for m in one.found.ranks.meetings) == sum(one.made.skew.values())


def test_a_late_host_is_charged_to_its_rank():
    one = run("fsdp, all ranks", stall={5: 0.02})
    assert one.found.comparison.measured.rank == 5
    assert one.over("host launch") == pytest.approx(20.0, abs=0.05)
    late = one.found.ranks.late_ranking[0]
    assert (late.rank, late.made_others_wait) == (5, sum(one.made.skew.values()))
    assert "straggler-rank" in one.names
    assert one.found.verdict.roof == "dispatch"
    victim = run("fsdp, all ranks", ranks=tuple(r for r in range(8) if r != 5), stall={5: 0.02})
    assert any("1 of 8 ranks are missing (5)" in w for w in victim.found.warnings)


def test_the_clock_of_another_host_is_found():
    ahead = 123_456_789
    one = run("fsdp, all ranks", clocks=dict.fromkeys((4, 5, 6, 7), ahead), slow={2: 1.1})
    assert {r: o for r, o in one.found.ranks.offsets.items() if o} == dict.fromkeys((4, 5, 6, 7), ahead)
    assert one.found.ranks.residual_max == 0
    assert sum(m.skew for m in one.found.ranks.meetings) == sum(one.made.skew.values())
    assert one.found.comparison.measured.rank == 2


# pipelines


def test_the_bubble_is_found_where_stages_wait_for_each_other():
    """The last stage waits for the first message, and in the norm of the gradients for the first stage's last backward pass."""
    one = unchanged("pipeline")
    booked = {row.term: row.predicted_terms.get("pipeline bubble", 0.0) for row in one.found.comparison.rows}
    assert (
        booked["exposed send and receive"] + booked["exposed all-reduce"] > 0.95 * one.found.comparison.predicted.leaves["pipeline bubble"]
    )
    assert one.found.comparison.measured.rank in (2, 3)
    assert one.row["step"]["stage"] == "last"
    assert "uneven-stages" in one.names
    roofs = {line["roof"]: line for line in one.found.verdict.ranking}
    waits = sum(m.skew for m in one.found.ranks.meetings if m.operation == "send_recv") / 4 / 1000
    assert roofs["pipeline"]["charged_us"] == pytest.approx(waits, rel=0.02)


def test_a_trace_of_another_stage_alone_gives_a_warning():
    one = run("pipeline", ranks=(0, 2))
    first = run("pipeline", ranks=(0,))
    assert one.found.comparison.measured.rank == 2
    assert first.found.comparison.measured.rank == 0
    assert any("rank 0 is compared, and a rank of another stage computes less" in w for w in first.found.warnings)


# kernels of unknown sizes


def test_kernels_without_sizes_widen_the_gain_of_a_roof():
    ranking = {line["roof"]: line for line in unchanged("fsdp, all ranks").found.verdict.ranking}
    low, high = ranking["hbm"]["gain"]
    assert low < high  # the fused optimizer writes no sizes of bytes


def test_a_trace_without_sizes_has_the_same_rows(tmp_path):
    """Names tell the classes; FLOPs are the estimate's then."""
    made = make_run(estimated("fsdp"), tmp_path, (0,), Changes(terms={"flash attention": 1.1}))
    text = made.files[0].read_text(encoding="utf-8")
    bare = tmp_path / "bare" / "rank0.json"
    bare.parent.mkdir()
    bare.write_text(text.replace('"Input Dims"', '"no dims"').replace('"Concrete Inputs"', '"no values"'), encoding="utf-8")
    with_sizes, without = (diagnose(path, question=FSDP).comparison for path in (made.files[0], bare))
    assert without.sentence == with_sizes.sentence
    assert {r.term: r.difference for r in without.rows} == pytest.approx({r.term: r.difference for r in with_sizes.rows}, abs=1e-9)
    rates = without.data()["comparison"]["utilisation"]
    assert rates["mfu_full_square"]["measured_by"] == rates["mfu"]["measured_by"] == "FLOPs of the estimate over the measured step"
    assert rates["mfu"]["measured"] == pytest.approx(with_sizes.measured.mfu, rel=0.001)


def test_wrong_options_give_warnings(tmp_path):
    """Another recomputation, another batch: the sentence is one of another run, and the warnings say so."""
    make_run(estimated("fsdp"), tmp_path, (0,))
    recompute = diagnose(tmp_path, question={**FSDP, "recompute": "full"})
    assert any("not the same recomputation" in w for w in recompute.warnings)
    batch = diagnose(tmp_path, question={**FSDP, "global_batch_size": 32})
    assert any("count differently" in w for w in batch.warnings)
    gpus = diagnose(tmp_path, question={**FSDP, "gpus": 16, "global_batch_size": 32})
    assert any("not the same number of accelerators: measured on 8, predicted for 16" in w for w in gpus.warnings)
    device = diagnose(tmp_path, on="a100-sxm-80gb", question={**FSDP, "on": "a100-sxm-80gb"})
    assert any("but the trace names 'NVIDIA H100 80GB HBM3'" in w for w in device.warnings)


# the command


def test_the_command_against_options_and_against_a_file(tmp_path, capsys):
    make_run(estimated("fsdp"), tmp_path, (0,), Changes(operations={"all_gather": 1.5}))
    saved = tmp_path / "estimate.txt"
    saved.write_text(json.dumps(estimated("fsdp").row(0)), encoding="utf-8")
    options = [word for name, value in FSDP.items() if name != "model" for word in (f"--{name.replace('_', '-')}", str(value))]
    said = []
    for more in (["--model", "llama-3-8b", *options], ["--against", str(saved)]):
        assert main(["diagnose", str(tmp_path / "rank0.json"), "--json", *more]) == 0
        said.append(json.loads(capsys.readouterr().out)["comparison"])
    assert said[0]["sentence"] == said[1]["sentence"]
    assert said[0]["sentence"].endswith("% exposed all-gather")
    assert said[0]["rank"] == 0
