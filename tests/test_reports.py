"""Reports: one HTML file that holds the answer, shows its numbers, runs nothing, loads nothing, and is read again."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path

import pytest

import ironlaw
from ironlaw.files import read_saved
from ironlaw.page import words
from ironlaw.page.report import css

HELD = ("--tp", 2, "--pp", 1, "--zero", 1, "--micro-batch-size", 1, "--recompute", "none", "--global-batch-size", 64)
TRACES = Path(__file__).parent / "data" / "measured"
QUESTIONS = [
    ("estimate", "llama-3-8b", "--on", "h100-sxm", "--gpus", 8, "--tokens", "1T", *HELD),
    ("plan", "llama-3-8b", "--on", "h100-sxm", "--gpus", 8, "--global-batch-size", 64, "--tokens", "1T"),
    ("compare", "llama-3-8b", "--on", "h100-sxm,a100-sxm-80gb", "--gpus", 8, "--tokens", "1T", "--global-batch-size", 64),
    ("money", "llama-3-8b", "--on", "h100-sxm", "--gpus", 8, "--tokens", "1T", *HELD),
    (
        "sites", "llama-3-8b", "--sites", "lulea,dublin", "--on", "h100-sxm", "--gpus", 16, "--tokens", "1T", "--wan-bandwidth", "100Gb/s",
        "--inner-steps", 100, "--global-batch-size", 64,
    ),
    ("roofline", "llama-3-8b", "--on", "h100-sxm", "--gpus", 8, *HELD),
    ("diagnose", TRACES / "v100_resnet50_nw0.json.gz"),
    ("goodput", "llama-3-8b", "--on", "h100-sxm", "--gpus", 64, "--tokens", "1T", *HELD),
]  # fmt: skip


@pytest.fixture
def report(ask, tmp_path):
    """Ask a question and give the status, the text of its report and the notes beside it."""

    def asked(*words, name="report.html"):
        status, _, err = ask(*words, "--short", "--html", tmp_path / name)
        return status, (tmp_path / name).read_text(), err

    return asked


def plain(text):
    """The words of a report, spaces that do not break as plain ones."""
    body = re.sub(r"<(style|script)\b.*?</\1>", "", text, flags=re.DOTALL)
    return re.sub(r" +", " ", html.unescape(re.sub(r"<[^>]+>", " ", body)).replace("\u00a0", " ").replace("\u202f", ","))


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question[0])
def test_every_verb_writes_a_report_that_loads_nothing(report, question):
    status, text, err = report(*question)
    assert status == 0 and "the report is in" in err
    assert text.startswith("<!doctype html>") and text.rstrip().endswith("</html>")
    assert re.findall(r"<script[^>]*>", text) == ['<script type="application/json" id="ironlaw-answer">']
    assert not re.search(r"<(link|img|iframe|object|embed|form|base)\b|\son\w+=|@import|url\(", text)
    assert "ironlaw " + question[0] in plain(text)


def test_a_report_shows_the_numbers_of_its_answer(report, tmp_path):
    _, text, _ = report(*QUESTIONS[0])
    answer = read_saved(tmp_path / "report.html", 1 << 24)
    shown = plain(text)
    assert len(re.sub(r"<svg.*?</svg>", "", text, flags=re.DOTALL)) < 150_000  # without its figure
    run = answer["run"]
    expected = [
        words.quantity(answer["step"]["seconds"], "s"), words.quantity(answer["memory"]["device"], "B"),
        str(words.days(run["days_with_failures"])),
        str(words.large(run["usd_with_failures"], "USD")), words.share(answer["throughput"]["mfu"]),
        *(words.share(part) for part in answer["bound"]["shares"].values() if part > 0.0),
    ]  # fmt: skip
    for number in expected:
        assert number.replace("\u00a0", " ").replace("\u202f", ",") in shown
    for one in answer["sources"].values():
        assert one["title"] in re.sub(r"\s+", " ", shown) or len(one["title"]) > 80


def test_a_diagnosis_shows_its_verdict_its_window_and_what_to_try(report, tmp_path):
    _, text, _ = report("diagnose", TRACES / "v100_resnet50_nw0.json.gz")
    answer, shown = read_saved(tmp_path / "report.html", 1 << 24), plain(text)
    file, verdict = answer["files"][0], answer["verdict"]
    assert (
        "Host-bound: the device waits for data." in shown and f"{verdict['gain'][0]:.2f} to {verdict['gain'][1]:.2f} times as fast" in shown
    )
    wall = file["window"]["wall_us"]
    assert sum(part["us"] for part in file["partition"]) == pytest.approx(wall)
    waits = sum(part["us"] for part in file["partition"] if part["kind"] == "data")
    assert f"waits for data {words.share(waits / wall)}".replace("\u00a0", " ") in shown
    assert all(one["advice"] in shown for one in answer["findings"])
    assert text.count('class="gap data waits"') == sum(gap["kind"] == "data" for gap in file["gaps"] if gap["us"] > 0.002 * wall)
    drawn = sum(path.count("M") for path in re.findall(r'<path class="work-\w+" d="([^"]*)"', text))
    assert drawn == sum(len(lane["kind"]) for lane in file["lanes"]) + sum(len(lane["what"]) for lane in file["host_lanes"])


def test_ranks_and_logs_are_drawn(report, tmp_path):
    _, text, _ = report("diagnose", TRACES / "v100x8_dlrm")
    answer = read_saved(tmp_path / "report.html", 1 << 24)
    assert "8 ranks: who waits" in plain(text) and all(f"rank {rank}" in plain(text) for rank in answer["ranks"]["ranks"])
    _, text, _ = report("diagnose", TRACES / "megatron_mixtral_16xh100.log")
    assert "A log cannot name the bottleneck." in plain(text)
    _, text, _ = report("diagnose", "--tokens-per-second", "150k", "--model", "llama-2-7b", "--on", "h100-sxm", "--gpus", 64)
    assert "slower than predicted" in plain(text) and "What to check" in plain(text)
    _, text, _ = report("diagnose", TRACES / "memory_timeline.raw.gz")
    assert "emory alone does not show the bottleneck." in plain(text)


def test_the_answer_in_a_report_is_the_answer(report, tmp_path):
    report(*QUESTIONS[0])
    saved = read_saved(tmp_path / "report.html", 1 << 24)
    again = ironlaw.estimate(
        "llama-3-8b", on="h100-sxm", gpus=8, tokens="1T", tp=2, pp=1, zero=1, micro_batch_size=1, recompute="none", global_batch_size=64
    )
    fresh = json.loads(json.dumps(again.to_dict()))
    assert saved["step"] == fresh["step"] and saved["memory"] == fresh["memory"] and saved["run"] == fresh["run"]


def test_a_report_is_read_again(ask, report, tmp_path):
    report(*QUESTIONS[0])
    status, out, _ = ask("estimate", "--plan", tmp_path / "report.html", "--gpus", 16, "--json")
    assert status == 0 and json.loads(out)["plan"]["tp"] == 2
    status, out, _ = ask("diff", tmp_path / "report.html", tmp_path / "report.html")
    assert status == 0
    (tmp_path / "other.html").write_text("<!doctype html><p>no report</p>")
    status, _, err = ask("estimate", "--plan", tmp_path / "other.html")
    assert status == 3 and "no report of ironlaw" in err and err.count("\n") == 1


def test_what_does_not_fit_is_over_the_limit(report):
    status, text, _ = report(
        "estimate",
        "llama-3-70b",
        "--on",
        "h100-sxm",
        "--gpus",
        8,
        "--tp",
        1,
        "--pp",
        1,
        "--zero",
        1,
        "--micro-batch-size",
        1,
        "--vpp",
        1,
        "--cp",
        1,
        "--recompute",
        "none",
        "--offload",
        "none",
    )
    assert status == 1 and "It does not fit" in plain(text) and "over the limit" in plain(text) and 'class="beyond"' in text


def test_names_of_files_cannot_become_markup(report, tmp_path):
    from ironlaw.catalog.load import SHIPPED

    named = tmp_path / "<img src=x onerror=alert(1)><script>alert(2)<"
    named.mkdir(parents=True)
    text = (SHIPPED / "models" / "llama-3-8b.toml").read_text().replace('title = "', 'title = "</script><script>alert(3)</script>')
    (named / "models").mkdir()
    (named / "models" / "bad.toml").write_text(text)
    _, written, _ = report("estimate", "bad", "--on", "h100-sxm", "--gpus", 8, *HELD, "--catalog", named)
    assert "alert(1)" not in written.replace("&lt;img src=x onerror=alert(1)&gt;", "").replace("\\u003cimg src=x onerror=alert(1)>", "")
    assert written.count("<script") == 1 and written.count("</script>") == 1


def test_a_report_that_cannot_be_written_is_refused_before_the_work(ask, tmp_path):
    status, out, err = ask("estimate", "no-such-model", "--on", "h100-sxm", "--gpus", 8, "--html", tmp_path)
    assert status == 3 and out == "" and "--html" in err and "folder" in err
    status, _, err = ask("estimate", "--rows", "x.csv", "--html", tmp_path / "a.html")
    assert status == 2 and "--html shows one answer" in err
    status, _, err = ask("plan", "llama-3-8b", "--on", "h100-sxm", "--gpus", 8, "--describe-space", "--html", tmp_path / "a.html")
    assert status == 2 and "--html" in err


# --- colours


def themes():
    """The tokens of the light and of the dark theme, as colours."""
    sheet = css("style.css")
    light = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{3,6})\b", sheet.partition("@media")[0]))
    dark = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{3,6})\b", sheet.partition('.ironlaw.themed[data-theme="dark"]')[2].partition("\n}")[0]))
    return {"light": light, "dark": {**light, **dark}}


def luminance(colour):
    """Relative luminance of a colour, WCAG 2.2."""
    digits = colour[1:] if len(colour) == 7 else "".join(2 * c for c in colour[1:])
    parts = [int(digits[i : i + 2], 16) / 255.0 for i in (0, 2, 4)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    """Contrast of two colours, WCAG 2.2."""
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_and_graphics_have_the_contrast_that_people_need(theme):
    tokens = themes()[theme]
    for text in ("ink", "ink2", "ink3", "accent", "good", "warn", "bad"):
        for ground in ("bg", "page", "sunk"):
            assert contrast(tokens[text], tokens[ground]) >= 4.5, (text, ground)
    for name in ("accent", "good", "warn", "bad"):
        assert contrast(tokens[name], tokens[f"{name}-tint"]) >= 4.5
    kinds = [name.removeprefix("on-") for name in tokens if name.startswith("on-") and name != "on-part"]
    assert len(kinds) == 11
    for kind in kinds:
        assert contrast(tokens[kind], tokens["bg"]) >= 3.0, kind
        assert contrast(tokens[kind], tokens[f"on-{kind}"]) >= (4.2 if kind == "dispatch" else 4.5), kind


def test_both_ways_to_the_dark_theme_say_the_same():
    sheet = css("style.css")
    by_system = sheet.partition(':not([data-theme="light"]) {')[2].partition("}")[0]
    by_choice = sheet.partition('.ironlaw.themed[data-theme="dark"] {')[2].partition("}")[0]
    assert re.findall(r"--[\w-]+: [^;]+", by_system) == re.findall(r"--[\w-]+: [^;]+", by_choice)


# --- saved answers


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question[0])
def test_a_saved_answer_makes_the_report_of_its_verb(question, ask, report, tmp_path):
    _, written, _ = report(*question)
    (tmp_path / "answer.json").write_text(ask(*question, "--json")[1])
    status, out, err = ask("open", tmp_path / "answer.json", "--html", tmp_path / "again.html")
    assert (status, out) == (0, "") and "the report is in" in err
    heading = re.compile(r"<h1.*?</h1>")
    assert heading.search((tmp_path / "again.html").read_text())[0] == heading.search(written)[0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{}", "no answer of ironlaw"), ('{"schema_version": 7, "step": 1, "memory": 1, "plan": 1}', "schema version 7"),
        ('{"schema_version": 2, "step": 1, "memory": 1, "plan": 1}', "cannot be shown"),
        ('{"schema_version": 2, "plans": [{}], "space": {}}', "cannot be shown"), ("<html></html>", "no report of ironlaw"),
    ],
)  # fmt: skip
def test_what_is_no_answer_is_not_opened(text, said, ask, tmp_path):
    (tmp_path / "x.json").write_text(text)
    status, out, err = ask("open", tmp_path / "x.json", "--html", tmp_path / "x.html")
    assert (status, out, err.count("\n")) == (3, "", 1) and said in err and not (tmp_path / "x.html").exists()
