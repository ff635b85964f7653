"""``ironlaw roofline``: worked cases, relations, refusals, the command."""

from __future__ import annotations

import json
from itertools import pairwise

import numpy as np
import pytest

import paths
from ironlaw import roofline
from ironlaw.catalog import load
from ironlaw.cli.main import main
from ironlaw.errors import InputError, IronlawError, QuestionError, UnknownNameError, UnsupportedError, ValueRangeError
from ironlaw.estimate.answer.estimate import estimate
from ironlaw.estimate.fabric import group_links
from ironlaw.law import activations, flops, kernels
from ironlaw.precision import PRECISIONS
from ironlaw.question import defaults
from ironlaw.questions.roofline import options
from ironlaw.questions.roofline.model_step import list_operators

CASES = {case["id"]: case for case in json.loads((paths.DATA / "oracle_roofline.json").read_text(encoding="utf-8"))}


# worked cases


def s002_05(i):
    slow, fast = i["bw"]
    pairs = [(i["fps_h200"], speed) for speed in i["fps_b200"]]
    asked = {"on": "h200-sxm", "against": "b200-sxm", "bandwidth": slow * 1e12, "against_bandwidth": fast * 1e12}
    found = roofline(ratio=pairs, **asked)
    assert found["follows"] == ["HBM bandwidth"]
    return {"ratio_low": found["ratio_low"], "ratio_high": found["ratio_high"], "bw_ratio": found["HBM bandwidth ratio"]}


def s003_11(i):
    return {"mem": activations.batch_memory(i["B"], sum(i["s"]) + sum(i["a"]), 0)}


def s003_32(i):
    """The case lets gradients grow with the batch; errata E003-14 says they do not (see the test of a model's batches)."""
    growing, other, fixed = i["b32"]
    at = {batch: float(activations.batch_memory(batch, (growing + other) / 32, fixed)) for batch in (32, 64)}
    return {"total32": at[32], "pct_a100": 100 * at[32] / 40, "total64": at[64]}


@pytest.mark.parametrize(("case", "answer"), [("S002-05", s002_05), ("S003-11", s003_11), ("S003-32", s003_32)])
def test_worked_case(case, answer):
    found = answer(CASES[case]["inputs"])
    assert found == pytest.approx(CASES[case]["expected"], rel=CASES[case]["rel_tol"])


def test_bytes_flops_and_times_of_a_matrix_product():
    """Worked cases S002-02 and S002-03: bytes, FLOPs, intensity, and both times of [2160 x 5120] x [5120 x 5120] on an H200."""
    square = roofline(gemm="4096,4096,4096", on="h200-sxm")
    assert (square["bytes"], square["FLOP"]) == (100663296.0, 137438953472.0)
    assert float(square["intensity"]) == pytest.approx(1365.3333333)
    row = roofline(gemm=(2160, 5120, 5120), on="h200-sxm")["operators"][0]
    assert row["intensity"] == pytest.approx(1171, abs=1)
    assert row["least_time"] == pytest.approx(115e-6, rel=0.01)
    assert row["roof"] == "compute"


def test_intensities_and_stored_scores_of_attention():
    """Worked cases S003-15b, S003-45, S003-46: intensities, stored scores, and the published bound of flash traffic."""
    found = roofline(attention=(1, 1, 4096, 64), causal=False, on="a100-sxm-80gb", on_chip="100KB")
    flash, standard = found["operators"]
    assert standard["intensity"] == pytest.approx(31.50769230769231)
    assert flash["intensity"] == pytest.approx(2048, rel=0.01)  # the case leaves out the logsumexp
    assert found["scores over inputs"] == pytest.approx(21.333333333)
    assert found["published ratio"] == pytest.approx(12.397766113281248)
    assert found["more_flop"] == pytest.approx(1 / 6)


def test_attention_over_lengths():
    """Flash gains with length: its bytes grow with tokens, those of stored scores with their square."""
    rows = roofline(attention=(8, 16, 1024, 64), lengths="512,1024,2048,4096,8192", on="a100-sxm-80gb")["operators"]
    flash, standard = rows[::2], rows[1::2]
    gain = [slow["expected_time"] / fast["expected_time"] for fast, slow in zip(flash, standard, strict=True)]
    assert all(a < b for a, b in pairwise(gain))
    assert [b["bytes"] / a["bytes"] for a, b in pairwise(flash)] == pytest.approx([2.0] * 4)
    assert standard[-1]["bytes"] / standard[-2]["bytes"] == pytest.approx(4.0, rel=0.05)


def test_waves_are_over_multiprocessors():
    """Worked case S003-31; not samples in warps (errata E003-13)."""
    row = roofline(gemm=(4096, 4096, 4096), on="h100-sxm")["operators"][0]
    assert (row["waves"], row["wave_efficiency"]) == (4.0, pytest.approx(0.9696969696969697))
    assert roofline(gemm=(4096, 4096, 4096), on="h100-sxm", multiprocessors=133)["operators"][0]["wave_efficiency"] == pytest.approx(
        512 / 532
    )


def test_every_optimizer_has_a_step():
    for name in load.names("optimizers"):
        found = roofline(optimizer=f"{name},1B", on="h100-sxm")
        rule = load.record("optimizers", name)
        assert (found["bytes"], found["FLOP"]) == (rule.traffic.value * 1e9, rule.flop.value * 1e9)


def test_an_optimizer_moves_28_bytes_a_parameter():
    assert roofline(optimizer="7B", on="h100-sxm")["bytes"] == 28 * 7e9
    assert roofline(optimizer="adamw,7B", on="h100-sxm")["bytes"] == 28 * 7e9


def test_the_first_layer_of_resnet():
    """Output 112 x 112 x 64 is 3.2 MB in fp32 for each image (E003-14)."""
    found = roofline(conv="32,3,224,224,64,7,2,3", dtype="fp32", on="v100-sxm-32gb")
    output = next(part for part in found.terms[1].parts if part.name == "output")
    assert output.value == 4 * 32 * 112 * 112 * 64
    assert found["FLOP"] == 2 * 32 * 112 * 112 * 64 * 3 * 49
    assert roofline(conv="1,1,5,5,1,5", on="h100-sxm")["FLOP"] == 50  # n - k + 1 = 1 position


def test_a_convolution_is_padded_only_where_that_is_asked():
    """224 x 224 under 7 x 7 is 218 x 218 (training chapter); torch.nn.Conv2d(..., stride=2) of it floor((224 - 7) / 2) + 1 = 109."""
    for shape, side in (("64,3,224,224,64,7", 218), ("64,3,224,224,64,7,2", 109), ("64,3,224,224,64,7,2,3", 112)):
        assert roofline(conv=shape, on="h100-sxm")["FLOP"] == 2 * 64 * 64 * 147 * side**2


def test_ridge_points_of_a_device():
    rows = {row["format"]: row for row in roofline(on="h100-sxm")["ridges"]}
    assert rows["bf16"]["hbm"] == pytest.approx(295.2238805970149)
    assert roofline(peak="312 TFLOP/s", bandwidth="2 TB/s", gemm=(1, 1, 1))["ridge point"] == 156.0


def test_bandwidths_of_a_measured_collective():
    """Worked cases S002-01 and S002-10: algorithm and bus bandwidth, and the time of 240 collectives."""
    found = roofline(collective="all_reduce", size=22118400, ranks=2, measured="0.113ms", count=240)
    assert found["algorithm bandwidth"] == pytest.approx(195.73805309734516e9)
    assert found["bus bandwidth"] == pytest.approx(195.73805309734516e9)
    assert found["time of all"] == pytest.approx(27.12e-3)
    eight = roofline(collective="all_reduce", size=22118400, ranks=8, measured="0.113ms")
    assert eight["bus bandwidth"] == pytest.approx(1.75 * float(eight["algorithm bandwidth"]))


# relations


def test_names_of_formats_functions_and_collectives_are_those_of_their_tables():
    assert set(defaults.PRECISIONS) == set(PRECISIONS)
    assert set(options.ACTIVATIONS + options.NORMS) < set(flops.OPERATIONS)
    assert set(options.COLLECTIVES) == set(group_links.COLLECTIVES)


def test_the_default_format_is_one_the_device_has():
    assert roofline(gemm=(64, 64, 64), on="v100-sxm-32gb")["operators"][0]["dtype"] == "fp16"


def test_a_plan_that_recomputes_must_do_its_operations():
    asked = {"model": "llama-3-8b", "on": "h100-sxm", "gpus": 64}
    once, twice = (float(roofline(**asked, recompute=how)["FLOP of a step"]) for how in ("none", "full"))
    assert twice == pytest.approx(4 / 3 * once, rel=0.05)
    between = f"{(once + twice) / 2 / 989e12}s"
    assert roofline(**asked, recompute="none", measured=between).feasible
    assert not roofline(**asked, recompute="full", measured=between).feasible


def test_adding_to_c_reads_it():
    plain, added = (roofline(gemm=(64, 128, 256), beta=beta, on="h100-sxm")["bytes"] for beta in ("off", "on"))
    assert added - plain == 2 * 64 * 256


def test_formats_of_operands():
    mixed = roofline(gemm=(64, 128, 256), dtype="fp8,fp8,bf16", on="h100-sxm")
    assert mixed["bytes"] == 64 * 128 + 128 * 256 + 2 * 64 * 256
    assert mixed["operators"][0]["dtype"] == "fp8"
    assert roofline(gemm=(64, 128, 256), dtype="fp8,bf16,bf16", on="h100-sxm")["operators"][0]["dtype"] == "bf16"


def test_batch_raises_intensity_until_the_ridge():
    rows = roofline(gemm=(1, 4096, 4096), batch="1,32,256,1024", on="h100-sxm")["operators"]
    assert [row["roof"] for row in rows] == ["hbm", "hbm", "hbm", "compute"]
    assert all(a["intensity"] < b["intensity"] for a, b in pairwise(rows))
    assert all((row["roof"] == "hbm") == (row["intensity"] < row["ridge_point"]) for row in rows)


def test_every_operator_is_bound_where_its_intensity_says():
    for asked in ({"norm": "4096,4096"}, {"softmax": "4096,4096"}, {"activation": "gelu,4096,16384"}, {"optimizer": "1B"}):
        row = roofline(**asked, on="h100-sxm")["operators"][0]
        assert row["roof"] == "hbm"
        assert row["attainable_rate"] == pytest.approx(row["flop"] / row["least_time"])
        assert row["expected_time"] is None or row["expected_time"] > row["least_time"]


def test_activation_functions_differ_in_operations_not_in_time():
    """Slower functions cost more where software computes them, not where memory sets the time."""
    times = {name: roofline(activation=f"{name},8192,16384", on="a100-sxm-80gb")["operators"][0] for name in ("relu", "gelu", "sigmoid")}
    assert len({row["least_time"] for row in times.values()}) == 1
    assert times["gelu"]["flop"] > times["relu"]["flop"]


@pytest.mark.parametrize(
    ("measured", "verdict", "feasible"),
    [("140us", "compute", True), ("190us", "compute", True), ("1ms", "overhead", True), ("50us", "impossible", False)],
)
def test_verdict_of_a_measured_product(measured, verdict, feasible):
    found = roofline(gemm=(2160, 5120, 5120), on="h200-sxm", measured=measured)
    row = found["operators"][0]
    assert (row["verdict"], found.feasible) == (verdict, feasible)
    assert row["implied_bandwidth"] == pytest.approx(row["bytes"] / row["measured"])
    assert bool(found.warnings) is not feasible


def test_verdict_of_bytes():
    asked = {"norm": "32768,8192", "on": "h200-sxm"}
    assert roofline(**asked, measured="250us")["operators"][0]["verdict"] == "hbm"
    above = roofline(**asked, measured="100us")
    assert not above.feasible
    assert "byte count" in above["operators"][0]["why"]
    assert roofline(norm="8,128", on="h200-sxm", measured="9us")["operators"][0]["verdict"] == "dispatch"


def test_a_measured_rate_above_the_peak_is_flagged():
    """Errata E003-2: 18 samples/s of GPT-2 XL in fp32 on one V100 would be many times its peak."""
    asked = {"model": "gpt2-xl", "on": "v100-sxm-32gb", "gpus": 1, "precision": "fp32", "global_batch_size": 32, "micro_batch_size": 1}
    found = roofline(**asked, samples_per_second=18)
    assert not found.feasible
    assert float(found["measured MFU (attention as computed)"]) > 10
    assert "impossible" in found.warnings[-1]
    assert roofline(**asked, samples_per_second=0.5).feasible


def test_a_measured_step_prints_json(capsys):
    status, out, _ = run(capsys, "gpt2-xl", "--on", "h100-sxm", "--gpus", "8", "--measured", "100s", "--json")
    assert status == 0
    assert json.loads(out)["hidden_wire_bytes"] >= 0


CENSUS = {"on": "h100-sxm", "gpus": 64, "tp": 4, "pp": 2, "global_batch_size": 128}


@pytest.mark.parametrize("model", ["llama-3-8b", "mixtral-8x7b"])
def test_a_census_adds_up_to_the_step(model):
    found = roofline(model, **CENSUS)
    step = estimate(model, **CENSUS)
    assert sum(row["time"] for row in found["operators"]) == pytest.approx(float(step.step_seconds[0]))
    assert sum(row["share"] for row in found["operators"]) == pytest.approx(1.0)
    group, at = step.place_of(0)
    for row in found["roofs"]:
        assert row["share"] == pytest.approx(float(group.shares[row["roof"]][at]))
    assert found["wire bytes of a step"] == pytest.approx(sum(found["wire_bytes"].values()))
    assert found["wire_bytes"]["scale-up"] > 0
    assert found["FLOP of a step"] == pytest.approx(sum(item.flop for item in list_operators(group.step.tree, at)))


def test_hand_overs_between_nodes_go_over_the_nic():
    """Eight stages of one node each: tensor parallelism stays on the scale-up links, hand-overs leave the node."""
    found = roofline("llama-3-8b", on="h100-sxm", gpus=64, tp=8, pp=8, vpp=1, overlap="none", global_batch_size=64)
    assert {row["operator"]: row["link"] for row in found["operators"] if row["link"]}["p2p"] == "nic"
    assert 0 < found["wire_bytes"]["nic"] < found["wire_bytes"]["scale-up"]


def test_batches_of_a_model_share_one_plan_and_grow_in_activations():
    found = roofline("llama-3-8b", on="h100-sxm", gpus=8, seq_len=4096, batch="1,2,4")
    one, two, four = found["batches"]
    assert four["allocated"] - two["allocated"] == pytest.approx(2 * (two["allocated"] - one["allocated"]), rel=0.02)
    assert found["memory"] == pytest.approx(four["allocated"])
    fixed = found["memory"] - 4 * float(found["memory of a sequence"])
    assert fixed > 16 * 8e9 / 8  # weights, gradients and states do not depend on the batch (E003-14)
    assert one["intensity"] < two["intensity"] < four["intensity"]


def test_a_list_of_shapes(tmp_path):
    path = tmp_path / "shapes.csv"
    path.write_text(
        "name,operator,shape,dtype,count,measured\n"
        "mlp in,gemm,4096x5120x20480,,48,1.2ms\n"
        'act,activation,"gelu,4096x20480",,48,\n'
        "core,attention,1x40x4096x128,bf16,48,\n"
        "step,optimizer,13B,,,50us\n",
        encoding="utf-8",
    )
    found = roofline(shapes=str(path), on="h100-sxm")
    rows = found["operators"]
    assert [row["operator"] for row in rows] == ["mlp in", "act", "core", "step"]
    assert [row.get("verdict") for row in rows] == ["compute", None, None, "impossible"]
    assert found["least time of all"] == pytest.approx(48 * sum(row["least_time"] for row in rows[:3]) + rows[3]["least_time"])
    assert not found.feasible


def test_a_ratio_may_agree_with_no_roof_or_with_two():
    neither = roofline(ratio="1/1", on="h200-sxm", against="b200-sxm")
    assert not neither.feasible
    both = roofline(ratio="1/1", on="h100-sxm", against="h100-sxm")
    assert len(both["follows"]) == 3
    assert roofline(ratio="10/10", on="h100-sxm", against="h200-sxm")["follows"] == ["bf16 FLOP/s", "scale-up bandwidth"]


def test_baseline():
    asked = {"collective": "all_reduce", "size": "22.1184MB", "ranks": 2, "on": "h200-sxm", "baseline": "0.113ms"}
    assert roofline(**asked, measured="0.115ms").feasible
    assert not roofline(**asked, measured="0.13ms").feasible
    assert roofline(**asked, measured="0.13ms", tolerance="20%").feasible


def test_batch_memory_is_linear():
    batch = np.array([0.0, 1.0, 2.0, 7.0])
    np.testing.assert_allclose(activations.batch_memory(batch, 3.0, 5.0), 5.0 + 3.0 * batch)
    assert kernels.intensity(flops.elementwise(10, 4), 40) == 1.0


# what is refused


@pytest.mark.parametrize(
    ("asked", "error", "words"),
    [
        ({}, QuestionError, ["MODEL", "gemm", "on"]),
        ({"gemm": "1,2"}, ValueRangeError, ["gemm", "M,K,N"]),
        ({"gemm": "1,0,2", "on": "h100-sxm"}, ValueRangeError, ["gemm", "whole number"]),
        ({"gemm": "1,2,3"}, QuestionError, ["argument on"]),
        ({"gemm": "1,2,3", "softmax": "1,2", "on": "h100-sxm"}, QuestionError, ["one question"]),
        ({"gemm": "1,2,3", "on": "h100-sxm", "ranks": 2}, QuestionError, ["ranks", "gemm"]),
        ({"gemm": "1,2,3", "on": "h100-sxm", "dtype": "bf17"}, UnknownNameError, ["bf17", "bf16"]),
        ({"gemm": "1,2,3", "on": "h100-sxm", "dtype": "fp8,bf16"}, ValueRangeError, ["three"]),
        ({"gemm": "1,2,3", "on": "a100-sxm-80gb", "dtype": "fp8"}, UnsupportedError, ["fp8", "a100"]),
        ({"gemm": "1,2,3", "on": "h100-sxm", "measured": "5"}, ValueRangeError, ["no unit"]),
        ({"gemm": "1,2,3", "on": "h100-sxm", "measured": "5us", "batch": "1,2"}, ValueRangeError, ["one batch"]),
        ({"gemm": "1,2,3", "on": "h100-sxm", "baseline": "5us"}, QuestionError, ["measured"]),
        ({"gemm": "1,2,3", "on": "h100-sxn"}, UnknownNameError, ["h100-sxm"]),
        ({"attention": "1,8,64,64", "kv_heads": 3, "on": "h100-sxm"}, QuestionError, ["kv_heads 3"]),
        ({"activation": "swish,1,2", "on": "h100-sxm"}, UnknownNameError, ["swish"]),
        ({"norm": "layernorm", "on": "h100-sxm"}, ValueRangeError, ["TOKENS,WIDTH"]),
        ({"model": "gpt2-xl", "gemm": "1,2,3", "on": "h100-sxm"}, QuestionError, ["give gemm or a MODEL, not both"]),
        ({"optimizer": "adamw", "on": "h100-sxm"}, QuestionError, ["adamw,7B"]),
        ({"conv": "1,3,4,4,8,5", "on": "h100-sxm"}, QuestionError, ["does not fit"]),
        ({"collective": "all_reduce", "ranks": 2}, QuestionError, ["size"]),
        ({"collective": "all_reduce", "ranks": 1, "size": "1MB", "on": "h100-sxm"}, ValueRangeError, ["ranks is 1"]),
        ({"collective": "all_reduce", "ranks": 2, "size": "1MB"}, QuestionError, ["measured"]),
        ({"ratio": "20", "on": "h100-sxm", "against": "h200-sxm"}, ValueRangeError, ["A/B"]),
        ({"ratio": "20/30", "on": "h100-sxm"}, QuestionError, ["against"]),
        ({"scaling": "1:5ms"}, ValueRangeError, ["two different sizes"]),
        ({"model": "gpt2-xl", "on": "h100-sxm"}, QuestionError, ["gpus"]),
        ({"model": "gpt2-xl", "on": "h100-sxm", "gpus": 8, "tp": 2}, QuestionError, ["tp_divides_heads"]),
        ({"model": "gpt2-xl", "on": "h100-sxm", "gpus": 8, "optimizer": "adamw,7B"}, QuestionError, ["without a number"]),
        ({"shapes": "no such file.csv", "on": "h100-sxm"}, InputError, ["no such file.csv"]),
        ({"gemms": "1,2,3"}, QuestionError, ["gemms", "gemm"]),
    ],
)
def test_wrong_questions_are_refused_in_one_line(asked, error, words):
    with pytest.raises(error) as caught:
        roofline(**asked)
    assert "\n" not in str(caught.value)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    "text", ["", "operator,shape\n", "operator,shape\ngem,1x2x3\n", "operator,form\ngemm,1x2x3\n", "operator,shape\ngemm,\n", "\xff"]
)
def test_a_wrong_file_of_shapes_is_refused(tmp_path, text):
    path = tmp_path / "shapes.csv"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(IronlawError):
        roofline(shapes=str(path), on="h100-sxm")


# the command


def run(capsys, *arguments):
    status = main(["roofline", *arguments])
    out, err = capsys.readouterr()
    return status, out, err


def test_page(capsys):
    status, out, _ = run(capsys, "--gemm", "2160,5120,5120", "--on", "h200-sxm", "--measured", "140us", "--plot", "on")
    assert status == 0
    for word in ("1172 FLOP/B", "ridge", "114.5 us", "scale-up", "dispatch", "near the compute roof", "+---"):
        assert word in out


def test_exit_status(capsys):
    assert run(capsys, "--gemm", "2160,5120,5120", "--on", "h200-sxm", "--measured", "50us")[0] == 1
    assert run(capsys, "--gemm", "2160,5120", "--on", "h200-sxm")[0] == 2
    assert run(capsys, "--shapes", "none.csv", "--on", "h200-sxm")[0] == 3


def test_json(capsys):
    status, out, _ = run(capsys, "gpt2-xl", "--on", "h100-sxm", "--gpus", "8", "--json")
    data = json.loads(out)
    assert status == 0
    assert {"headline", "roofs", "operators", "terms", "assumptions", "warnings", "schema_version", "feasible"} <= set(data)
    assert {"operator", "flop", "bytes", "intensity", "time", "roof"} <= set(data["operators"][0])


def test_explain(capsys):
    _, out, _ = run(capsys, "--gemm", "4096,4096,4096", "--on", "h100-sxm", "--explain")
    assert "peak / bandwidth   [ironlaw.law.kernels.ridge_point]" in out
    assert "3.35 TB/s  <- " in out
    _, out, _ = run(capsys, "--attention", "1,32,4096,128", "--on", "h100-sxm", "--explain", "stored scores")
    assert out.startswith("stored scores: 1 GiB")


def test_help(capsys):
    status, out, _ = run(capsys, "--help")
    assert status == 0
    for name in options.OPTIONS:
        assert f"--{name.replace('_', '-')}" in out or name == "model"


HIDING = {
    "on": "h100-sxm",
    "gpus": 64,
    "tp": 4,
    "pp": 2,
    "dp_shard": 8,
    "zero": 1,
    "vpp": 4,
    "global_batch_size": 128,
    "micro_batch_size": 1,
    "recompute": "none",
}


def test_overlapped_collectives_send_the_same_bytes():
    """Overlap hides time, not bytes."""
    shown = roofline("llama-3-8b", overlap="none", **HIDING)
    names = ("all-gather", "all-gather of gradients", "reduce-scatter")
    waited = sum(row["wire_bytes"] for row in shown["operators"] if row["operator"] in names)
    beside = {row["collective"]: row for row in roofline("llama-3-8b", overlap="all", **HIDING)["hidden"]}
    assert sum(beside[f"{name} in pieces"]["wire_bytes"] for name in names) == pytest.approx(waited)
    # an input is gathered as often again for its weight gradient, a gradient scattered as often as an output
    again, sums = beside["all-gather beside an input gradient"], beside["reduce-scatter beside a weight gradient"]
    assert again["wire_bytes"] == pytest.approx(beside["all-gather in pieces"]["wire_bytes"])
    assert sums["wire_bytes"] == pytest.approx(beside["reduce-scatter in pieces"]["wire_bytes"])
    hops = next(
        row
        for row in shown["operators"]
        if row["operator"] == "stage to stage" or "hand" in row["operator"] or row["where"] == "stage to stage"
    )
    assert beside["stage to stage"]["wire_bytes"] == pytest.approx(hops["wire_bytes"])
    assert beside["stage to stage"]["alone"] == pytest.approx(hops["time"])
    for row in beside.values():
        assert 0.0 <= row["shown"] < row["alone"]


def test_bytes_of_overlapped_gradients_and_weights():
    """Each stage has half of the layers and one table, each rank a quarter of it, and sends 7/8: gradients in fp32, weights in bf16."""
    beside = {row["collective"]: row for row in roofline("llama-3-8b", overlap="all", **HIDING)["hidden"]}
    held = 8.03e9 / 2 / 4
    assert beside["gradient reduction"]["wire_bytes"] == pytest.approx(held * 4 * 7 / 8, rel=2e-2)
    assert beside["weight gather"]["wire_bytes"] == pytest.approx(held * 2 * 7 / 8, rel=2e-2)


def test_sharded_weights_are_gathered_for_every_pass():
    found = roofline("llama-3-8b", on="h100-sxm", gpus=64, zero=3, framework="fsdp", global_batch_size=64, micro_batch_size=1, tp=1, pp=1)
    rows = {row["collective"]: row["wire_bytes"] for row in found["hidden"] if row["where"] == "layers"}
    layers = 8.03e9 - 2 * 128256 * 4096
    assert rows["gather, forward"] == pytest.approx(layers * 2 * 63 / 64, rel=1e-3)
    assert rows["gather and scatter, backward"] == pytest.approx(layers * (2 + 4) * 63 / 64, rel=1e-3)


def test_activation_functions_side_by_side():
    rows = roofline(activation="all,8192,4096", on="h100-sxm")["operators"]
    assert len(rows) == 9
    assert {row["roof"] for row in rows} == {"hbm"}
    ratios = [row["times_relu"] for row in rows]
    assert ratios[0] == 1.0
    assert max(ratios[:-2]) == pytest.approx(1.0)  # ungated: the same bytes
    assert min(ratios[-2:]) > 1.4


def test_generations_of_flash_are_in_order():
    rows = {row["version"]: row for row in roofline(attention=(8, 16, 4096, 128), on="h100-sxm")["versions"]}
    assert rows["unfused"]["times"] == 1.0
    assert rows["flash-1"]["times"] < rows["flash-2"]["times"] < rows["flash-3"]["times"]
    assert rows["flash-3"]["share"] < 1.0


def test_a_device_without_a_generation_does_not_show_it():
    shown = [row["version"] for row in roofline(attention=(8, 16, 4096, 128), on="a100-sxm-80gb")["versions"]]
    assert shown == ["unfused", "flash-1", "flash-2"]


def test_a_measured_throughput_is_the_step_it_implies():
    asked = {"model": "llama-3-8b", "on": "h100-sxm", "gpus": 64, "global_batch_size": 512}
    by_rate = roofline(**asked, tokens_per_second="300k")
    by_step = roofline(**asked, measured=f"{512 * 8192 / 300e3}s")
    assert by_rate["measured"] == by_step["measured"] and by_rate["suspects"] == by_step["suspects"]
    run = by_rate["measured"]
    assert run["mfu_6n"] == pytest.approx(6 * 8.03e9 * 300e3 / (64 * 989.4e12), rel=2e-3)
    assert run["mfu"] > run["mfu_6n"] and any(
        "(attention as computed; full square" in line and ", 6N " in line for line in by_rate.headline
    )


def test_a_fault_that_was_measured_is_ranked_first():
    """The step of the same plan without flash attention, measured: memory-bound work comes first, and its fault explains all of it."""
    asked = {"model": "llama-3-8b", "on": "h100-sxm", "gpus": 64, "tp": 1, "pp": 1, "zero": 2, "recompute": "none", "micro_batch_size": 1}
    for fault, part in (({"flash_attention": "off"}, "memory-bound work"), ({"recompute": "full"}, "recomputation")):
        slow = float(roofline(**asked | fault, global_batch_size=512)["step"])
        first = roofline(**asked, global_batch_size=512, measured=f"{slow}s")["suspects"][0]
        assert first["part"] == part and first["explains"] == pytest.approx(1.0, abs=1e-6)


def test_a_step_as_fast_as_predicted_has_no_suspects():
    asked = {"model": "llama-3-8b", "on": "h100-sxm", "gpus": 64}
    fast = float(roofline(**asked)["step"]) * 0.99
    found = roofline(**asked, measured=f"{fast}s")
    assert found["measured"]["suspects"] == [] and found.feasible


def test_only_one_measurement_is_given():
    with pytest.raises(QuestionError, match="measured and tokens_per_second"):
        roofline(model="llama-3-8b", on="h100-sxm", gpus=64, measured="3s", tokens_per_second="1M")


def test_a_tolerance_needs_a_baseline():
    with pytest.raises(QuestionError, match="tolerance has no effect without"):
        roofline(gemm=(1024, 1024, 1024), on="h100-sxm", measured="20us", tolerance=0.1)
