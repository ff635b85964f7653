"""``roofline --census``: lists of operators against published counts, and a list of the user."""

from __future__ import annotations

import json

import pytest

from ironlaw import roofline
from ironlaw.cli.main import main
from ironlaw.errors import InputError, QuestionError, UnknownNameError
from ironlaw.questions.roofline.operator_list import LISTS, read_list
from ironlaw.questions.roofline.options import CENSUSES

NAMES = sorted({path.stem for path in LISTS.glob("*.toml")})


def census(name, **more):
    return roofline(census=name, on="a100-sxm-80gb", **more)


def test_every_shipped_list_has_a_name():
    assert set(CENSUSES.values()) == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_parameters_are_the_published_ones(name):
    assert census(name)["parameters"] == read_list(name)["published"]["parameters"]


@pytest.mark.parametrize("name", ["resnet-50", "stable-diffusion-unet"])
def test_flops_of_products_are_the_published_ones(name):
    """Published counts leave out element-wise work and the products of attention."""
    kinds = {row["kind"]: row["flop"] for row in census(name, batch=8)["kinds"]}
    assert (kinds["conv"] + kinds["linear"]) / 8 == pytest.approx(read_list(name)["published"]["forward_flop"], rel=1e-3)


def test_training_is_three_times_the_products():
    row = census("resnet-50", batch=64)["batches"][0]
    assert 2.9 < row["training_flop"] / row["flop"] < 3.0  # the first convolution has no gradient of the image


def test_a_batch_spreads_the_weights():
    one, many = census("dlrm", batch="1,4096")["batches"]
    assert one["flop"] == many["flop"]
    assert one["bytes"] > 10 * many["bytes"]
    assert one["samples_per_second"] < many["samples_per_second"]


def test_look_ups_read_rows_and_not_tables():
    kinds = {row["kind"]: row for row in census("dlrm", batch=1)["kinds"]}
    assert kinds["embedding"]["bytes"] == 26 * 128 * 2 * 2  # read and written once, in 16 bits
    assert kinds["embedding"]["parameters"] == 187_767_399 * 128


def test_a_rate_above_the_roofs_is_impossible():
    assert not census("resnet-50", batch=256, samples_per_second=20000).feasible
    assert census("resnet-50", batch=256, samples_per_second=2500).feasible
    assert census("resnet-50", batch=256, samples_per_second=6000).feasible  # above the roofs without fusion, below the peak


def conv_outputs(item):
    _, height, width, outputs, side, stride, padding = item["shape"]
    sides = [(extent + 2 * padding - side) // stride + 1 for extent in (height, width)]
    return outputs * sides[0] * sides[1] * item.get("count", 1)


def test_outputs_of_the_convolutions_of_resnet_50_are_the_published_ones():
    """11.1 M activations, the outputs of all convolutions: Radosavovic et al., Designing Network Design Spaces, 2020, table 4a."""
    listed = read_list("resnet-50")["operators"]
    assert sum(conv_outputs(item) for item in listed if item["operator"] == "conv") / 1e6 == pytest.approx(11.1, abs=0.05)


def test_memory_of_resnet_50_by_batch():
    """Errata E003-14: parameters take 102 MB in fp32, gradients as much at every batch; the first output is 3.2 MB for each image."""
    one, many, most = census("resnet-50", batch="1,32,256", dtype="fp32")["memory"]
    for row in (one, many, most):
        assert row["weights"] == row["gradients"] == row["optimizer"] == 4 * 25_557_032
    assert many["activations"] == 32 * one["activations"] and most["activations"] == 256 * one["activations"]
    parts = {part.name: part.value for part in next(t for t in census("resnet-50", dtype="fp32").terms if "activations of" in t.name).parts}
    assert parts["stem"] == 4 * (112 * 112 * 64 + 3 * 224 * 224)  # and the image, which its weight gradient needs
    assert "batch norm 64 at 112" not in parts


def test_the_largest_batch_is_the_last_that_fits():
    for device, dtype in (("a100-sxm-80gb", "bf16"), ("v100-sxm-32gb", "fp32"), ("rtx-4090", "bf16")):
        found = roofline(census="resnet-50", on=device, dtype=dtype, batch=1)
        largest = int(float(found["largest batch that fits"]))
        rows = roofline(census="resnet-50", on=device, dtype=dtype, batch=[largest, largest + 1])["memory"]
        assert [row["fits"] for row in rows] == [True, False]
        assert rows[0]["memory_share"] <= 1.0 < rows[1]["memory_share"]


def test_sixteen_bits_halve_activations_and_keep_a_master_copy():
    wide, half = (census("resnet-50", batch=64, dtype=dtype)["memory"][0] for dtype in ("fp32", "bf16"))
    places = 64 * 8 * 56 * 56 * 64  # of maxima, as int64 in both
    assert half["activations"] - places == pytest.approx((wide["activations"] - places) / 2)
    assert (half["weights"], half["optimizer"]) == (wide["weights"] / 2, 2 * wide["optimizer"])  # momentum, and fp32 weights beside it


def test_tables_that_do_not_fit_leave_no_batch():
    found = roofline(census="dlrm", on="rtx-4090")
    assert found["largest batch that fits"] == 0 and "no batch fits" in found.headline[-1]
    assert not found["memory"][0]["fits"]


def test_outputs_of_a_users_list_are_kept_unless_it_says_otherwise(tmp_path):
    path = tmp_path / "mine.toml"
    for kept, outputs in (("", 2), (", kept = true", 2), (", kept = 1", 1), (", kept = false", 0)):
        text = f'operators = [{{ name = "layer", operator = "linear", shape = [3, 8, 16], count = 2{kept} }}]\n'
        path.write_text(text, encoding="utf-8")
        found = census(str(path), dtype="bf16", batch=5)
        assert found["memory"][0]["activations"] == 5 * outputs * 3 * 16 * 2


OWN = 'name = "mine"\noperators = [{ name = "layer", operator = "linear", shape = [1, 4096, 4096], count = 2 }]\n'


def test_a_list_of_the_user(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(OWN, encoding="utf-8")
    found = census(str(path), batch=1024)
    alone = roofline(gemm=(1024, 4096, 4096), on="a100-sxm-80gb")
    assert found["operators"][0]["flop"] == 2 * alone["operators"][0]["flop"]
    assert found["operators"][0]["bytes"] == 2 * alone["operators"][0]["bytes"]
    assert found["operators"][0]["least_time"] == pytest.approx(2 * alone["operators"][0]["least_time"])


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", InputError),
        ("operators = 3", InputError),
        ("not toml", InputError),
        ('operators = [{ operator = "gem", shape = [1, 2, 3] }]', UnknownNameError),
        ('operators = [{ operator = "linear", shape = [1, 2] }]', InputError),
        ('operators = [{ operator = "linear", shape = [1, 0, 3] }]', InputError),
        ('operators = [{ operator = "linear", shape = [1, -2, 3] }]', InputError),
        ('operators = [{ operator = "linear", shape = [1, 2, 3], count = 0 }]', InputError),
        ('optimizer = "none"\noperators = [{ operator = "linear", shape = [1, 2, 3] }]', UnknownNameError),
        ('operators = [{ operator = "conv", shape = [3, 2, 2, 8, 7, 1, 0] }]', InputError),
        ('operators = [{ operator = "linear", shape = [1, 2, 3], kept = 2 }]', InputError),
        ('operators = [{ operator = "linear", shape = [1, 2, 3], kept = "no" }]', InputError),
        ('operators = [{ operator = "pool", shape = [4, 3], output = [1] }]', InputError),
        ('operators = [{ operator = "pool", shape = [4, 3], index_bytes = 9 }]', InputError),
        ('not_kept = ["nrm"]\noperators = [{ operator = "linear", shape = [1, 2, 3] }]', UnknownNameError),
    ],
)
def test_a_wrong_list_says_where(tmp_path, text, error):
    path = tmp_path / "mine.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(error):
        census(str(path))


@pytest.mark.parametrize(
    ("more", "error"),
    [
        ({"measured": "1ms", "samples_per_second": 3}, QuestionError),
        ({"measured": "1ms", "batch": "1,2"}, QuestionError),
        ({"optimizer": "sgd,7B"}, QuestionError),
        ({"gemm": "1,2,3"}, QuestionError),
        ({"beta": "on"}, QuestionError),
    ],
)
def test_what_is_refused(more, error):
    with pytest.raises(error):
        census("resnet-50", **more)


def test_an_unknown_name():
    with pytest.raises(UnknownNameError, match="resnet"):
        census("resnet51")


def test_the_command_prints_json_and_an_explanation(capsys):
    assert main(["roofline", "--census", "unet", "--on", "h100-sxm", "--batch", "8", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["parameters"] == 859_520_964
    assert found["source"]["url"]
    assert main(["roofline", "--census", "dlrm", "--on", "h100-sxm", "--explain"]) == 0


@pytest.mark.parametrize("verb", ["estimate", "roofline", "plan"])
@pytest.mark.parametrize("name", ["resnet-50", "ResNet50", "unet", "dlrm"])
def test_a_network_without_an_estimate_points_to_its_list(verb, name, capsys):
    assert main([verb, name, "--on", "h100-sxm", "--gpus", "8"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    command = error.partition("ironlaw roofline ")[2].replace("ACCELERATOR", "h100-sxm").replace("N\n", "4")
    assert main(["roofline", *command.split()]) == 0  # the command of the error runs
