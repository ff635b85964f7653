"""The API against its own description: questions made by schemathesis get an answer that is described, and none a 500."""

from __future__ import annotations

import re
import subprocess
import sys

import hypothesis
import pytest
import schemathesis
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi import checks

from ironlaw import interface

CHECKS = [
    not_a_server_error, checks.status_code_conformance, checks.content_type_conformance, checks.response_schema_conformance,
]  # fmt: skip
SETTINGS = hypothesis.settings(
    deadline=None, max_examples=16, suppress_health_check=list(hypothesis.HealthCheck), derandomize=True, phases=[hypothesis.Phase.generate]
)
FEW = hypothesis.settings(SETTINGS, max_examples=4)
VERBS = (
    "estimate",
    "compare",
    "money",
    "goodput",
    "elastic",
    "solve",
    "sweep",
    "roofline",
    "inference",
    "scaling",
    "optimize",
    "data",
    "sites",
)
SMALL = {"model": "llama-3-8b", "on": "h100-sxm", "gpus": "8", "global_batch_size": "16", "tokens": "1B", "seq_len": "2048"}
BESIDE = {"sites": {"sites": "lulea,dublin", "wan_bandwidth": "100Gb/s", "gpus": "16"}, "solve": {"solve_for": "time"}}


@pytest.fixture(scope="module")
def server():
    with subprocess.Popen([sys.executable, "-m", "ironlaw", "serve", "--port", "0"], stdout=subprocess.PIPE, text=True) as process:
        yield re.search(r"http://127\.0\.0\.1:\d+", process.stdout.readline())[0]
        process.terminate()


@pytest.fixture(scope="module")
def described(server):
    return schemathesis.openapi.from_url(f"{server}/openapi.json")


@pytest.mark.parametrize("verb", VERBS)
def test_questions_of_any_text_are_answered_as_described(described, verb):
    operation = described[f"/api/{verb}"]["GET"]

    @FEW
    @hypothesis.given(case=operation.as_strategy())
    def asked(case):
        case.call_and_validate(checks=CHECKS, timeout=60)

    asked()


@pytest.mark.parametrize("verb", VERBS)
def test_questions_with_a_few_likely_options_are_answered_as_described(described, verb):
    """A small question of the verb with up to three of its options at values that they may have, or one at a value that it has not."""
    operation = described[f"/api/{verb}"]["GET"]
    arguments = {one.name: one for one in interface.arguments(verb)}
    base = {name: value for name, value in {**SMALL, **BESIDE.get(verb, {})}.items() if name in arguments}
    likely = {name: st.sampled_from(one.samples) for name, one in arguments.items() if one.samples and name not in base}
    wrong = dict.fromkeys(arguments, st.sampled_from(["0", "-1", "nan", "1e400", "\u0663", "x" * 50, "a,b", "1..2"]))
    options = st.one_of(
        st.fixed_dictionaries({}), st.sampled_from(sorted(likely)).flatmap(lambda name: st.fixed_dictionaries({name: likely[name]})),
        st.lists(st.sampled_from(sorted(likely)), max_size=3).flatmap(lambda names: st.fixed_dictionaries({n: likely[n] for n in names})),
        st.sampled_from(sorted(wrong)).flatmap(lambda name: st.fixed_dictionaries({name: wrong[name]})),
    )  # fmt: skip

    @SETTINGS
    @hypothesis.given(given=options)
    def asked(given):
        found.append(operation.Case(query={**base, **given}).call_and_validate(checks=CHECKS, timeout=100).status_code)

    found: list[int] = []
    asked()
    assert 200 in found


PAGES = (
    "/", "/{verb}", "/part/{verb}", "/events/{verb}", "/report/{verb}", "/explain", "/column", "/curve", "/offer", "/validation", "/learn",
    "/learn/{topic}", "/catalog", "/catalog/{kind}/{name}", "/names/{kind}", "/static/{name}", "/openapi.json", "/saved", "/saved/{key}",
    "/files", "/diagnose", "/api/diagnose", "/report/diagnose",
)  # fmt: skip


@pytest.mark.parametrize("path", PAGES)
def test_every_page_is_answered_as_described(described, path):
    operation = described[path]["POST" if path == "/files" else "GET"]

    @FEW
    @hypothesis.given(case=operation.as_strategy())
    def asked(case):
        case.call_and_validate(checks=CHECKS, timeout=60, allow_redirects=False)

    asked()


def test_every_address_is_tried(described):
    assert set(described.raw_schema["paths"]) == {*PAGES, "/api/plan", *(f"/api/{verb}" for verb in VERBS)}
