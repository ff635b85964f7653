"""Citations are the sources that an answer used, and no others."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest

import ironlaw
import ironlaw.law
from ironlaw.catalog import load
from ironlaw.catalog.citations import cite, works_of
from ironlaw.catalog.sourced import ASKED, READING, Reading, Source, Sourced, watch_sources
from ironlaw.cli.main import VERBS, command_of
from ironlaw.estimate.answer.as_data import trees_of
from ironlaw.estimate.answer.term_data import term_sources

MODEL = {"model": "llama-3-8b", "gpus": 16, "tp": 2, "pp": 1, "global_batch_size": 64}
DEVICES = ("h100-sxm", "b200", "mi300x", "a100-sxm-80gb")  # each with measurements of its own


def named(citations):
    return {(item.title, item.url) for item in citations}


def sources_in(kind, name):
    return {(s["title"], s["url"]) for s in load.read_file(load.SHIPPED / kind / f"{name}.toml").get("sources", {}).values()}


def sources_of_device(name):
    kinds = [("accelerators", name), ("calibration", load.record("accelerators", name).calibration), ("prices", name)]
    return set().union(*(sources_in(*kind) for kind in kinds if kind[1] in load.names(kind[0])))


@pytest.mark.parametrize("device", DEVICES)
def test_a_device_cites_its_own_sources_and_none_of_another_device(device):
    answer = ironlaw.estimate(**MODEL, on=device, tokens="1T")
    used = named(answer.citations())
    peak = load.record("accelerators", device).peak["bf16"].source
    assert (peak.title, peak.url) in used
    own = sources_of_device(device).union(*(sources_in(*name.split("/")) for name in answer.to_dict()["records"]))
    for other in set(DEVICES) - {device}:
        assert sources_of_device(other) - own and not used & (sources_of_device(other) - own)


def test_the_sources_of_every_input_of_a_term_are_cited():
    answer = ironlaw.estimate(**MODEL, on="h100-sxm", tokens="1T")
    shown = {s for s in term_sources(trees_of(answer.groups[0])) if s is not None and s != ASKED}
    assert shown and {(s.title, s.url) for s in shown} <= named(answer.citations())


def test_every_cited_value_is_of_a_record_of_the_question():
    answer = ironlaw.estimate(**MODEL, on="h100-sxm")
    records = [tuple(name.split("/")) for name in answer.to_dict()["records"]]
    laws = {(item.title, item.url) for item in answer.citations() if not item.read}
    assert named(answer.citations()) - laws <= set().union(*(sources_in(*record) for record in records))


def test_a_run_adds_price_grid_and_failures_and_given_values_take_them_away():
    price, grid = (load.record(*record) for record in (("prices", "h100-sxm"), ("grids", "world")))
    newest = max((p for p in price.price if p.term == "on-demand"), key=lambda p: p.date).per_hour.source
    of_run = {(s.title, s.url) for s in (newest, grid.intensity.source)}
    step = named(ironlaw.estimate(**MODEL, on="h100-sxm").citations())
    run = named(ironlaw.estimate(**MODEL, on="h100-sxm", tokens="1T").citations())
    given = named(ironlaw.estimate(**MODEL, on="h100-sxm", tokens="1T", price=2, grid=100, pue=1.1).citations())
    assert of_run <= run and not of_run & step and not of_run & given and given < run


def test_options_that_a_plan_does_not_use_cite_nothing():
    plain, adapters = (named(ironlaw.estimate(**MODEL, on="h100-sxm", **more).citations()) for more in ({}, {"offload": "optimizer"}))
    memory = load.record("systems", "default").host_bandwidth_fraction.source
    assert (memory.title, memory.url) in adapters - plain


def test_a_record_of_the_user_is_cited_in_place_of_the_one_that_ships(tmp_path):
    (tmp_path / "accelerators").mkdir()
    shipped = load.SHIPPED / "accelerators" / "h100-sxm.toml"
    text = shipped.read_text(encoding="utf-8")
    peak = load.record("accelerators", "h100-sxm").peak["bf16"].source
    assert peak.title in text
    (tmp_path / "accelerators" / "h100-sxm.toml").write_text(text.replace(peak.title, "Our own bench"), encoding="utf-8")
    own = {title for title, _ in named(ironlaw.estimate(**MODEL, on="h100-sxm", catalog=str(tmp_path)).citations())}
    assert "Our own bench" in own and peak.title not in own


def test_rows_cite_what_each_of_them_used():
    both = ironlaw.estimate(**MODEL, on="h100-sxm", offload=[frozenset(), frozenset({"optimizer"})])
    one, two = (named(both[i].citations()) for i in (0, 1))
    assert two > one  # the second needs the memory of the host
    assert named(both.citations()) == one | two


def test_watching_changes_no_number_and_ends_with_its_block():
    asked = {"model": "llama-3-8b", "on": "h100-sxm", "gpus": [8, 16], "tokens": "1T"}
    before = ironlaw.estimate(**asked)
    with watch_sources(reading := Reading()):
        watched = ironlaw.estimate(**asked)
    assert watched.to_dict() == before.to_dict() and reading.sources
    assert READING.get() is None
    assert type(load.record("accelerators", "h100-sxm").tdp) is Sourced  # the shared records stay plain


def test_a_choice_of_a_plan_cites_only_the_plan_it_chose():
    with watch_sources(reading := Reading()):
        ironlaw.estimate("llama-3-8b", "h100-sxm", 64)
    fraction = load.record("systems", "default").host_bandwidth_fraction.source  # read by plans that offload, which lose
    assert fraction not in reading.sources


def test_a_search_cites_the_same_as_the_estimates_of_its_plans():
    found = ironlaw.plan("llama-3-8b", "h100-sxm", 8, global_batch_size=64, fix="tp=2,pp=1,cp=1", top=2)
    plans = set().union(*(named(estimate[row].citations()) for estimate, row in found.explained(found.first(2))))
    assert plans <= named(found.citations()) and "price" in " ".join(title for title, _ in named(found.citations()) - plans)


def test_questions_cite_records_and_laws():
    laws_alone = ironlaw.scaling(compute=5.88e23).citations()
    assert "https://arxiv.org/abs/2203.15556" in {item.url for item in laws_alone} and {item.read for item in laws_alone} == {""}
    money = named(ironlaw.money("llama-3-8b", on="h100-sxm", gpus=8, tokens="10B").citations())
    assert sources_in("ownership", "default") & money and sources_in("prices", "h100-sxm") & money
    assert not sources_of_device("b200") & money - sources_of_device("h100-sxm")


def test_a_diagnosis_cites_the_device_of_the_trace():
    trace = Path(__file__).parents[1] / "data" / "measured" / "v100_resnet50_nw0.json.gz"
    assert sources_in("accelerators", "v100-sxm-32gb") & named(ironlaw.diagnose(trace).citations())


def test_bibtex_has_one_entry_a_source_with_its_own_key():
    citations = ironlaw.estimate(**MODEL, on="h100-sxm").citations()
    keys = re.findall(r"^@misc\{([a-z0-9-]+),$", str(citations), re.MULTILINE)
    assert keys == [item.key for item in citations] and len(set(keys)) == len(keys) == len(named(citations))
    for entry in str(citations).split("\n\n"):
        plain = re.sub(r"\\[{}]", "", entry)
        assert plain.count("{") == plain.count("}") and not re.search(r"(?<!\\)[&%$#]", re.sub(r"\\url\{.*\}", "", plain))


def test_an_entry_has_title_address_year_and_the_day_of_reading():
    source = Source("k", "A 50% rule & more_{x}, 1999", "https://example.org/a_b", "2026-11-20", "paper")
    (only,) = cite([source, source, ASKED])
    assert only.bibtex() == (
        "@misc{a-50-rule-1999,\n  title = {{A 50\\% rule \\& more\\_\\{x\\}, 1999}},\n  howpublished = {\\url{https://example.org/a_b}},\n"
        "  year = {1999},\n  note = {read 2026-11-20},\n}"
    )
    assert cite([source._replace(title="B", read="recalled")])[0].bibtex().endswith("note = {recalled, not opened again},\n}")
    assert cite([source._replace(title="C, issue 2048 of X, arXiv 2407.08608")])[0].year == "2024"


LAWS = sorted(Path(ironlaw.law.__file__).parent.glob("*.py"))


@pytest.mark.parametrize("path", LAWS, ids=lambda p: p.stem)
def test_every_address_of_a_law_s_source_is_a_work_with_a_title(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef) and "Source:" in (doc := ast.get_docstring(node) or ""):
            text = re.split(r"\n\s*(?:Leaves out|Returns|Where|>>>)|\n\s*\n", doc.split("Source:", 1)[1])[0]
            works = list(works_of(doc))
            assert [url for _, url in works] == re.findall(r"https?://[^\s;,)]+[^\s;,).]", re.sub(r"\n\s*", " ", text)), node.name
            for title, _ in works:
                assert re.match(r"[\w(\"]", title) and not re.search(r"https?:|\b(section|equation|table) \d", title), (node.name, title)


def test_every_verb_that_answers_prints_its_sources():
    verbs = {verb for verb, (module, _) in VERBS.items() if module.startswith("questions.")} | {"estimate", "plan", "diagnose"}
    assert verbs <= {verb for verb in VERBS if "--cite" in {opt for param in command_of(verb).params for opt in param.opts}}


@pytest.mark.parametrize("words", [
    ("estimate", "llama-3-8b", "--on", "h100-sxm", "--gpus", "8", "--tp", "2", "--pp", "1"), ("scaling", "--compute", "5.88e23"),
    ("roofline", "--gemm", "1,4096,4096", "--on", "h100-sxm"), ("diagnose", "tests/data/measured/v100_resnet50_nw0.json.gz"),
], ids=lambda words: words[0])  # fmt: skip
def test_the_command_prints_bibtex_or_a_list_in_the_json(ask, words):
    status, text, _ = ask(*words, "--cite")
    assert status == 0 and text.startswith("@misc{")
    status, out, _ = ask(*words, "--cite", "--json")
    listed = json.loads(out)["citations"]
    assert status == 0 and [item["key"] for item in listed] == re.findall(r"@misc\{(.*),", text)
    assert set(listed[0]) == {"key", "title", "url", "year", "read", "grade"}


def test_cite_refuses_forms_without_a_place_for_sources(ask):
    for words in (("scaling", "--compute", "1e23", "--format", "csv"), ("scaling", "--compute", "1e23", "--explain")):
        status, _, err = ask(*words, "--cite")
        assert (status, err.count("\n")) == (2, 1) and "--cite" in err


def test_an_answer_that_is_no_cites_too(ask):
    status, out, _ = ask("estimate", "llama-3-70b", "--on", "h100-sxm", "--gpus", "1", "--cite")
    assert status == 1 and out.startswith("@misc{")
