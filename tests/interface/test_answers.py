"""What an answer is in Python: its text, its table in a notebook, rows, columns, data frames, plain data."""

from __future__ import annotations

import json
from html.parser import HTMLParser

import pyarrow
import pyarrow.interchange
import pytest

import ironlaw
from ironlaw.questions.answer import Answer, Column, Table
from ironlaw.report.estimate import page

LOG = "tests/data/measured/v100_resnet50_nw0.json.gz"


@pytest.fixture(scope="module")
def one():
    return ironlaw.estimate("llama-3-8b", "h100-sxm", 8, global_batch_size=64, tp=2, pp=1, tokens="10B")


@pytest.fixture(scope="module")
def four():
    return ironlaw.estimate("llama-3-70b", "h100-sxm", 256, tp=[2, 3, 4, 8], pp=4)


@pytest.fixture(scope="module")
def compared():
    return ironlaw.compare("llama-3-8b", on="h100-sxm,a100-sxm-80gb", gpus=8)


class Balanced(HTMLParser):
    """A reader of HTML that checks that every element is closed in order."""

    def __init__(self):
        super().__init__()
        self.open, self.seen = [], set()

    def handle_starttag(self, tag, attrs):
        self.seen.add(tag)
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def read_html(text):
    reader = Balanced()
    reader.feed(text)
    assert reader.open == []
    return reader.seen


def test_the_text_of_an_estimate_is_the_first_lines_of_its_page(one):
    assert page(one).startswith(repr(one) + "\n\n")
    assert "step" in repr(one) and "MFU" in repr(one)


def test_the_text_of_many_rows_is_a_line_a_row_and_says_how_many_are_left_out(four):
    assert len(repr(four).splitlines()) == 5
    assert repr(four[:0]) == "Estimates of 0 rows"
    many = ironlaw.estimate("llama-3-8b", "h100-sxm", 8, tp=1, pp=1, micro_batch_size=[1, 2] * 15, zero=1, recompute="full", vpp=1)
    assert repr(many).splitlines()[-1] == "... 10 more rows" in many._repr_html_().replace("</p>", "").split("<p>")


def test_rows_slices_and_a_loop_give_estimates_of_these_rows(four):
    assert len(four) == 4
    assert [len(row) for row in four] == [1, 1, 1, 1]
    assert four[2].step_seconds == four[-2].step_seconds == four.step_seconds[2:3]
    assert four[2].to_dict() == four.row(2) == four[1:][1].to_dict()
    assert four[::-1].legal.tolist() == four.legal.tolist()[::-1] == [True, True, False, True]
    assert four[1:3].to_dict() == [four.row(1), four.row(2)]
    for row in (4, -5):
        with pytest.raises(IndexError, match="of 4 rows"):
            four[row]


def test_a_name_gives_a_column_and_a_wrong_one_the_nearest(four):
    assert four["tp"] == [2, 3, 4, 8]
    with pytest.raises(ironlaw.IronlawError, match=r"nearest: .*step_seconds"):
        four["step_second"]


def test_columns_have_the_numbers_of_the_json(four, one):
    columns = four.to_columns()
    for at, row in enumerate(four.to_dict()):
        assert columns["legal"][at] is all(kept for name, kept in row["rules"].items() if name != "fits")
        assert columns["step_seconds"][at] == row["step"]["seconds"]
        assert [columns["band_low_seconds"][at], columns["band_high_seconds"][at]] == (row["step"]["band"] or [None] * 2)[:2]
        assert columns["tp"][at] == row["plan"]["tp"]
    data, columns = one.to_dict(), one.to_columns()
    assert columns["mfu"] == [data["throughput"]["mfu"]]
    assert (columns["usd"], columns["days"]) == ([data["run"]["usd"]], [data["run"]["days"]])
    assert set(one.column_units()) == set(columns)
    assert one.column_units()["step_seconds"] == "s"


def test_the_forms_of_an_estimate_are_those_of_the_command(ask, one):
    status, out, _ = ask(
        "estimate",
        "llama-3-8b",
        "--on",
        "h100-sxm",
        "--gpus",
        8,
        "--global-batch-size",
        64,
        "--tp",
        2,
        "--pp",
        1,
        "--tokens",
        "10B",
        "--json",
    )
    assert status == 0
    assert json.loads(out) == one.to_dict() == json.loads(one.to_json())


def test_the_forms_of_an_answer_are_those_of_the_command(ask, compared):
    flags = ("compare", "llama-3-8b", "--on", "h100-sxm,a100-sxm-80gb", "--gpus", 8)
    assert json.loads(ask(*flags, "--json")[1])["estimate"] == compared.to_dict()["estimate"]
    assert ask(*flags, "--format", "csv:estimate")[1] == compared.to_csv("estimate") + "\n" == compared.tables["estimate"].to_csv() + "\n"
    assert ask(*flags, "--format", "markdown:estimate")[1] == compared.tables["estimate"].to_markdown() + "\n"
    assert ask(*flags, "--format", "markdown")[1] == compared.to_markdown() + "\n"


def test_the_text_of_an_answer_is_its_title_and_headline(ask, compared):
    out = ask("compare", "llama-3-8b", "--on", "h100-sxm,a100-sxm-80gb", "--gpus", 8)[1]
    *lines, tables = repr(compared).splitlines()
    assert out.startswith("\n".join(lines)) and tables.startswith("tables: ")


def test_tables_are_found_by_name_and_have_rows(compared):
    table = compared.tables["estimate"]
    assert table is compared.table("estimate") and table is compared.tables[[t.name for t in compared.tables].index("estimate")]
    assert len(table) == 2 and [row["accelerator"] for row in table] == [table[0]["accelerator"], table[1]["accelerator"]]
    with pytest.raises(ironlaw.IronlawError, match="nearest: estimate"):
        compared.tables["estimates"]


def test_headings_of_a_table_are_those_of_its_csv(compared):
    table = compared.tables["estimate"]
    assert ",".join(table.to_columns()) == table.to_csv().splitlines()[0]


def test_a_table_becomes_arrow_with_units_and_any_tool_reads_the_protocols(one, four, compared):
    for table in (one, four, compared.tables["estimate"]):
        arrow = table.to_arrow()
        assert arrow.num_rows == len(table) == pyarrow.table(table).num_rows == pyarrow.interchange.from_dataframe(table).num_rows
        assert arrow.to_pydict().keys() == table.to_columns().keys()
    assert four.to_arrow().schema.field("step_seconds").metadata == {b"unit": b"s"}
    assert four.to_arrow()["step_seconds"].to_pylist()[1] is None


def test_a_column_of_numbers_and_texts_becomes_texts():
    table = Table("mixed", "Mixed", (Column("x", "x"), Column("y", "y")), [{"x": 1, "y": 1}, {"x": "two", "y": 2.5}, {}])
    assert table.to_arrow().to_pydict() == {"x": ["1", "two", None], "y": [1.0, 2.5, None]}


def test_three_lines_give_a_data_frame(four):
    pytest.importorskip("pandas")
    frame = four.to_pandas()
    assert frame["tp"].tolist() == [2, 3, 4, 8] and frame["fits"].dtype == bool
    assert frame.attrs["units"]["device_bytes"] == "B"
    assert frame.dropna(subset="step_seconds").sort_values("step_seconds").iloc[0]["tp"] == 4


def test_a_missing_extra_is_one_line_that_names_it(monkeypatch, one):
    for module, call, extra in (("pandas", one.to_pandas, "pandas"), ("pyarrow", one.to_arrow, "tables")):
        monkeypatch.setitem(__import__("sys").modules, module, None)
        with pytest.raises(ironlaw.IronlawError, match=rf'needs {module}: pip install "ironlaw\[{extra}\]"'):
            call()


def test_html_is_a_table_without_scripts(one, four, compared):
    for answer in (four, four[:0], compared, compared.tables["estimate"]):
        assert "table" in read_html(answer._repr_html_())
    assert read_html(four._repr_html_()) <= {"b", "br", "table", "caption", "thead", "tbody", "tr", "th", "td", "p"}


def test_an_estimate_in_a_notebook_is_its_first_screen(one):
    shown = one._repr_html_()
    assert len(shown) < 40_000 and "script" not in read_html(shown)
    assert "It fits" in shown and 'class="meter"' in shown and one.to_dict()["headline"][0]["text"].split(" x ")[1] in shown


def test_texts_in_html_are_escaped():
    bad = "<script>alert('x')</script>&"
    answer = Answer(bad, [bad], [Table("t", bad, (Column("a", bad),), [{"a": bad}])])
    seen = read_html(answer._repr_html_())
    assert "script" not in seen and "&lt;script&gt;" in answer._repr_html_()
    named = ironlaw.estimate(
        {"name": bad, "hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 1000}, "h100-sxm", 1, seq_len=512
    )
    assert "script" not in read_html(named._repr_html_())


def test_a_search_and_its_plans_show_themselves(ask):
    found = ironlaw.plan("llama-3-8b", "h100-sxm", 8, global_batch_size=64, fix="cp=1,pp=1")
    lines = [line for line in repr(found).splitlines() if "searched in" not in line]
    out = ask("plan", "llama-3-8b", "--on", "h100-sxm", "--gpus", 8, "--global-batch-size", 64, "--fix", "cp=1,pp=1")[1]
    assert [line for line in lines if line in out] == lines and any("Best" in line for line in lines)
    assert found.to_columns()["step_seconds"][0] == found.first(1)[0].seconds
    assert repr(found.first(1)[0]).startswith("8 x h100-sxm, ")
    read_html(found._repr_html_())
    json.dumps(found.to_dict())
    with pytest.raises(ironlaw.IronlawError, match="no form as plain data"):
        found.first(1)[0].to_dict()


def test_a_diagnosis_shows_the_first_lines_of_its_page(ask):
    found = ironlaw.diagnose(LOG)
    assert ask("diagnose", LOG)[1].startswith(repr(found).splitlines()[0])
    assert json.loads(ask("diagnose", LOG, "--json")[1]) == json.loads(found.to_json())
    read_html(found._repr_html_())
