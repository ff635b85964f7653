"""Figures in Python: every answer that has one shows it in a notebook, and saves it."""

from __future__ import annotations

import json

import pytest

import ironlaw
from ironlaw.errors import QuestionError, UnknownNameError, UnsupportedError
from ironlaw.figures.picture import SVG, VEGA_LITE
from ironlaw.figures.table import FIGURES

HELD = {"tp": 2, "pp": 2, "vpp": 1, "zero": 1, "micro_batch_size": 1, "recompute": "none", "global_batch_size": 64}
ONE = ironlaw.estimate("llama-3-8b", on="h100-sxm", gpus=8, **HELD)
ANSWERS = {
    "estimate": lambda: ONE,
    "rows": lambda: ironlaw.estimate("llama-3-8b", on="h100-sxm", gpus=[8, 16], **HELD),
    "plan": lambda: ironlaw.plan("llama-3-8b", on="h100-sxm", gpus=8, global_batch_size=64, fix="cp=1"),
    "compare": lambda: ironlaw.compare("llama-3-8b", on="h100-sxm,a100-sxm-80gb", gpus=8, tokens="1T", **HELD),
    "roofline": lambda: ironlaw.roofline(gemm="64,8192,57344", on="h100-sxm"),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_a_notebook_gets_text_html_and_the_first_figure(name):
    answer = ANSWERS[name]()
    bundle = answer._repr_mimebundle_()
    assert set(bundle) == {"text/plain", "text/html", VEGA_LITE} and bundle["text/plain"] == repr(answer)
    assert json.loads(json.dumps(bundle[VEGA_LITE])) == answer.figure().to_dict() and answer.figures()[0] == answer.figure().name
    assert set(answer._repr_mimebundle_(exclude={VEGA_LITE})) == {"text/plain", "text/html"}


def test_an_answer_without_a_figure_has_text_and_html():
    answer = ironlaw.money("llama-3-8b", on="h100-sxm", gpus=8, tokens="1T", **HELD)
    assert set(answer._repr_mimebundle_()) == {"text/plain", "text/html"} and answer.figures() == []
    with pytest.raises(UnsupportedError, match="ironlaw figure --list"):
        answer.figure()
    table = answer.tables["ways"]
    assert set(table._repr_mimebundle_()) == {"text/plain", "text/html"}


def test_a_figure_is_chosen_by_name():
    assert {"memory-bar", "roofs", "waterfall", "pipeline"} <= set(ONE.figures()) <= set(FIGURES)
    picture = ONE.figure("waterfall")
    assert picture.name == "waterfall" and "The MFU is" in repr(picture) and picture.rows[-1]["loss"] == "MFU"
    with pytest.raises(UnknownNameError, match="nearest: waterfall"):
        ONE.figure("waterfal")
    with pytest.raises(QuestionError, match="ironlaw plan"):
        ONE.figure("pareto-memory")


def test_a_figure_is_saved(tmp_path):
    ONE.figure("roofs").save(tmp_path / "roofs.csv")
    assert (tmp_path / "roofs.csv").read_text().startswith("what,kind,share\n")
    with pytest.raises(QuestionError, match="must end in"):
        ONE.figure("roofs").save(tmp_path / "roofs.bmp")


def test_a_figure_comes_as_svg_where_the_extra_is_there():
    pytest.importorskip("vl_convert")
    assert ONE.figure("roofs")._repr_mimebundle_()[SVG].startswith("<svg")
    assert SVG not in ONE.figure("roofs")._repr_mimebundle_(exclude={SVG})
