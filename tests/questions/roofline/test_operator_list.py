"""``roofline --census``: lists of operators against published counts, and a list of the user."""

from __future__ import annotations

import json

import pytest

from ironlaw.cli.main import main
from ironlaw.errors import InputError, QuestionError, UnknownNameError
from ironlaw.questions.roofline import roofline
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
