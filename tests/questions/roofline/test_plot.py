"""The drawing of the roofline: the roof of every format, ridges, points under their own roof, 80 columns."""

from __future__ import annotations

import itertools

import pytest

from ironlaw import roofline
from ironlaw.cli.main import main
from ironlaw.errors import QuestionError
from ironlaw.questions.roofline.plot import HEIGHT, MARGIN, PlotPoint, draw_roofline

SHAPES = ['layernorm,norm,"layernorm,8192x4096",', "product,gemm,4096x4096x4096,bf16", "small product,gemm,4096x4096x4096,fp8"]


def lines_of(found):
    return [row["line"] for row in found["plot"]]


def drawing(found):
    return lines_of(found)[:HEIGHT]


def test_a_roof_for_every_format_whatever_the_order_of_the_rows(tmp_path):
    pictures = []
    for number, rows in enumerate(itertools.permutations(SHAPES)):
        path = tmp_path / f"{number}.csv"
        path.write_text("\n".join(["name,operator,shape,dtype", *rows]) + "\n", encoding="utf-8")
        found = roofline(shapes=str(path), on="h100-sxm", plot="on")
        text = "\n".join(lines_of(found))
        for roof in ("fp8 roof 1.979 PFLOP/s, ridge + at 591", "bf16 roof 989 TFLOP/s, ridge + at 295", "fp32 roof 67 TFLOP/s"):
            assert roof in text
        assert "product: 1,365 FLOP/B, 989 TFLOP/s, bf16 roof" in text
        pictures.append(["".join("o" if c in "abc" else c for c in line) for line in drawing(found)])
    assert all(picture == pictures[0] for picture in pictures)


def test_a_point_is_at_the_rate_of_its_own_roof():
    """A vector operator far right of its ridge is on the fp32 roof, not on the bf16 one."""
    peaks = {"bf16": 1e15, "fp32": 1e14}
    lines = draw_roofline(peaks, 1e12, [PlotPoint("a product", 5000.0, 1e15, "bf16"), PlotPoint("a sum", 5000.0, 1e14, "fp32")])
    row = {letter: next(number for number, line in enumerate(lines[:HEIGHT]) if letter in line[MARGIN + 2 :]) for letter in "ab"}
    assert "1 PFLOP/s" in lines[row["a"]] and "100 TFLOP/s" in lines[row["b"]]
    assert row["a"] < row["b"]


def test_ridges_are_where_both_roofs_meet():
    lines = draw_roofline({"bf16": 1e15}, 1e12, [PlotPoint("left", 10.0, 1e13, "bf16"), PlotPoint("right", 1e5, 1e15, "bf16")])
    top = lines[0][MARGIN + 2 :]
    assert top.index("+") == round((3.0 - 0.5) / 5.0 * 61)  # 10^0.5 to 10^5.5 over 62 columns
    assert set(top[top.index("+") + 1 :]) == {"-", "b"}
    assert lines[1].strip().endswith("/")


@pytest.mark.parametrize("batch", ["1", "1,16,64,256,1024"])
def test_the_drawing_fits_into_80_columns(capsys, batch):
    assert main(["roofline", "--gemm", "1,4096,4096", "--on", "h100-sxm", "--batch", batch, "--plot"]) == 0
    out = capsys.readouterr().out
    assert max(len(line) for line in out[out.index("\nRoofline\n") : out.index("\nAssumed")].splitlines()) <= 80


def test_points_at_the_same_place_are_a_star():
    lines = draw_roofline({"bf16": 1e15}, 1e12, [PlotPoint("a", 100.0, 1e14, "bf16"), PlotPoint("b", 100.0, 1e14, "bf16")])
    assert "".join(lines[:HEIGHT]).count("*") == 1


def test_the_operators_of_a_model_are_drawn(capsys):
    assert main(["roofline", "gpt2-xl", "--on", "v100-sxm-32gb", "--gpus", "8", "--plot"]) == 0
    out = capsys.readouterr().out
    assert "fp16 roof 125 TFLOP/s, ridge + at 139 FLOP/B" in out and "  a attention batched gemms" in out
    with pytest.raises(QuestionError, match="plot"):
        roofline("gpt2-xl", on="v100-sxm-32gb", gpus=8, batch="1,2", plot="on")
