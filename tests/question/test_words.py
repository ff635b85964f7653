"""Words of quantity: lengths in binary k, batches in tokens, tokens per parameter, weeks; in every verb, and said in the answer."""

from __future__ import annotations

import json

import pytest

import ironlaw
from ironlaw.cautions.record import sentences
from ironlaw.errors import IronlawError, UnitError, ValueRangeError
from ironlaw.estimate.bind.question import batch_taken, sequences_of
from ironlaw.question.options import OPTIONS
from ironlaw.question.read import read_options
from ironlaw.question.readers import days, duration, grid, price
from ironlaw.question.words import Interpreted, PerParameter, batch_tokens, length, recompute, run_tokens, tokens
from verbs import MODULES, options

SMALL = ("qwen-3-0.6b", "--on", "h100-sxm", "--gpus", "8")
NEEDED = {
    "sites": ["--sites", "2", "--wan-bandwidth", "1GB/s"],
    "plan": ["--fix", "cp=1,zero=1,dp_replicate=1,vpp=1"],
    "solve": ["--solve-for", "time"],
}
RUN = {
    verb: ["--tokens", "1T"] if "tokens" in options(verb) and verb != "compare" else []
    for verb in MODULES
    if verb not in ("diagnose", "textbook", "check")  # check answers with findings
}


def verbs_with(*names):
    return [verb for verb in RUN if {"on", "gpus", *names} <= set(options(verb))]


def answer_of(ask, verb, *more):
    run = [] if "--tokens" in more else RUN[verb]
    status, out, err = ask(verb, *SMALL, *run, *NEEDED.get(verb, []), *more, "--json")
    assert status in (0, 1), err
    return json.loads(out)


def said(answer):
    return [f"{item['name']} {item['value']}" for item in answer["assumptions"]]


@pytest.mark.parametrize("k", [1, 2, 4, 8, 16, 32, 64, 128, 256, 512])
def test_k_of_a_context_length_is_1024(k):
    assert length(f"{k}k", "--seq-len") == length(f"{k} K", "--seq-len") == length(f"{k}Ki", "--seq-len") == 1024 * k


@pytest.mark.parametrize(("text", "count"), [("1M", 2**20), ("1Mi", 2**20), ("10k", 10_000), ("96k", 96_000), ("1.5k", 1500), (4000, 4000)])
def test_other_lengths_are_as_written(text, count):
    assert length(text, "--seq-len") == count


def test_only_a_length_with_two_readings_is_said():
    assert isinstance(length("128k", "--seq-len"), Interpreted)
    assert not any(isinstance(length(text, "--seq-len"), Interpreted) for text in ("131072", "128Ki", "10k", 131072))


@pytest.mark.parametrize("verb", verbs_with("seq_len"))
def test_every_verb_says_how_it_read_a_length(ask, verb):
    found = answer_of(ask, verb, "--seq-len", "2k")
    assert said(found).count("--seq-len 2k read as 2,048 tokens") == 1


@pytest.mark.parametrize("verb", verbs_with("global_batch_tokens"))
def test_every_verb_takes_whole_sequences_and_says_so(ask, verb):
    found = answer_of(ask, verb, "--global-batch-tokens", "1000000", "--seq-len", "8192")
    expected = "--global-batch-tokens 1,000,000 tokens asked, 122 sequences of 8,192 = 999,424 tokens taken"
    assert said(found).count(expected) == 1


@pytest.mark.parametrize("verb", verbs_with("global_batch_tokens"))
def test_a_batch_of_whole_sequences_needs_no_word(ask, verb):
    found = answer_of(ask, verb, "--global-batch-tokens", "1Mi", "--seq-len", "8192")
    assert not any("taken" in line for line in said(found))


@pytest.mark.parametrize(("text", "count"), [("4M", 2**22), ("16M", 2**24), ("512k", 2**19), ("4Mi", 2**22), ("3.2M", 3.2e6), ("3M", 3e6)])
def test_m_of_a_batch_is_binary_where_that_is_a_power_of_two(text, count):
    assert batch_tokens(text, "--global-batch-tokens") == count


@pytest.mark.parametrize("verb", verbs_with("global_batch_tokens"))
def test_every_verb_says_how_it_read_a_batch(ask, verb):
    found = answer_of(ask, verb, "--global-batch-tokens", "1M", "--seq-len", "8192")
    assert said(found).count("--global-batch-tokens 1M read as 1,048,576 tokens") == 1
    assert not any("taken" in line for line in said(found))


def test_a_batch_in_tokens_is_the_nearest_count_of_sequences():
    assert [sequences_of(t, 8192.0) for t in (8192, 12287, 12289, 1e6, 4 * 2**20)] == [1, 1, 2, 122, 512]
    assert [sequences_of(1e6, 8192.0, n) for n in (1, 2, 3, 64, 500)] == [122, 122, 123, 128, 500]
    with pytest.raises(ValueRangeError, match="less than one sequence of 8192"):
        sequences_of(8191.0, 8192.0)
    assert batch_taken(2**20, 8192.0) == ""


def test_solve_works_a_decimal_batch_through_all_its_steps(ask):
    asked = ("--tokens", "1T", "--global-batch-tokens", "1e6", "--deadline", "8w", "--gpus", "16")
    found = json.loads(ask("solve", "qwen-3-0.6b", "--on", "h100-sxm", *asked, "--json")[1])
    assert ["splits badly over 16 GPUs" in line for line in sentences(found["warnings"])] == [True]
    steps = ["1 memory by hand", "1 memory by estimate", "2 compute", "3 communication", "4 bottleneck", "5 sanity"]
    assert [row["step"] for row in found["steps"]] == steps
    assert any("a step of 999,424 tokens" in line["text"] for line in found["headline"])


@pytest.mark.parametrize("verb", [verb for verb in verbs_with("tokens") if verb != "sweep"])
def test_every_verb_takes_tokens_per_parameter(ask, verb):
    by_words = answer_of(ask, verb, "--tokens", "20x")
    assert sum(line.startswith("--tokens 20x read as 11.9 B tokens, 20 for each of 596 M parameters") for line in said(by_words)) == 1
    count = 20 * 596_049_920
    exact = answer_of(ask, verb, "--tokens", str(count))
    assert without_words(by_words) == without_words(exact)


def without_words(found):
    """An answer without its words on tokens per parameter, without its options as given, and without how long a search took."""
    if isinstance(found, dict):
        return {name: without_words(value) for name, value in found.items() if name not in ("space", "asked")}
    if isinstance(found, list):
        return [without_words(item) for item in found if not (isinstance(item, dict) and "20x" in str(item.get("name")))]
    return found


def test_tokens_per_parameter_count_the_parameters_of_the_question(ask):
    found = json.loads(ask("solve", "--parameters", "30B", "--on", "h100-sxm", "--tokens", "20x", "--deadline", "4w", "--json")[1])
    assert "--tokens 20x read as 600 B tokens, 20 for each of 30 B parameters" in said(found)
    assert ask("money", "--gpu-hours", "1000", "--gpus", "8", "--on", "h100-sxm", "--tokens", "20x")[0] == 2


def test_words_work_in_python_question_files_and_tables(ask, tmp_path):
    question = {"model": "qwen-3-0.6b", "on": "h100-sxm", "gpus": 8}
    words = {"seq_len": "4k", "tokens": "20x", "global_batch_tokens": "1M", "restart_time": "2d"}
    wanted = ironlaw.estimate(**question, seq_len=4096, tokens=20 * 596_049_920, global_batch_size=256, restart_time="48h")
    assert ironlaw.estimate(**question, **words).step_seconds == wanted.step_seconds
    days_of = wanted.row(0)["run"]["days_with_failures"]
    file = tmp_path / "run.toml"
    file.write_text("".join(f'{name} = "{value}"\n' for name, value in {**question, **words, "gpus": "8"}.items()))
    found = json.loads(ask("estimate", file, "--json")[1])
    assert found["run"]["days_with_failures"] == days_of
    assert "seq_len in run.toml 4k read as 4,096 tokens" in said(found)
    table = tmp_path / "runs.csv"
    table.write_text(",".join([*question, *words]) + "\n" + ",".join(str(v) for v in [*question.values(), *words.values()]) + "\n")
    (row,) = json.loads(ask("estimate", "--rows", table, "--json")[1])
    assert row["run"]["days_with_failures"] == days_of
    assert row["plan"]["seq_len"] == 4096


@pytest.mark.parametrize("verb", verbs_with("global_batch_size"))
def test_every_verb_questions_a_batch_of_millions_of_sequences(ask, verb):
    warnings = [
        line for line in sentences(answer_of(ask, verb, "--global-batch-size", "4M")["warnings"]) if "--global-batch-tokens" in line
    ]
    assert len(warnings) == 1
    assert warnings[0].startswith("global_batch_size 4,000,000 counts sequences: ") or verb == "sites"  # a site has its share


def test_a_batch_that_was_ever_used_is_not_questioned(ask):
    def warned(*more):
        return [line for line in sentences(answer_of(ask, "estimate", *more)["warnings"]) if "--global-batch-tokens" in line]

    assert not warned("--global-batch-size", "15360", "--seq-len", "4096")  # DeepSeek-V3's, the largest of published runs
    assert not warned("--global-batch-tokens", "300M")  # meant as tokens


@pytest.mark.parametrize(
    ("text", "seconds"), [("2w", 1209600), ("2 weeks", 1209600), ("1week", 604800), ("30d", 2592000), ("36h", 129600), ("90min", 5400)]
)
def test_weeks_and_days_are_times(text, seconds):
    assert duration(text, "--restart-time") == days(text, "--deadline") == seconds


def test_a_deadline_without_a_unit_is_in_days_and_a_wrong_unit_names_days_and_weeks():
    assert days("14", "--deadline") == days(14, "--deadline") == 14 * 86400
    with pytest.raises(UnitError, match=r"unknown unit 'fn' in '2fn'; nearest: .*\bd, w$"):
        duration("2fn", "--restart-time")
    with pytest.raises(ValueRangeError, match="no unit: give one of s, min, h, d, w"):
        duration("36", "--restart-time")


@pytest.mark.parametrize("text", ["+8", "\uff18", "\uff11\uff12", "8\uff10", "\u0668", "++8", "- 8"])
@pytest.mark.parametrize("read", [OPTIONS["gpus"].read, length, tokens, run_tokens, duration, days, OPTIONS["nic_bandwidth"].read])
def test_a_plus_sign_and_digits_of_other_scripts_are_no_number(read, text):
    with pytest.raises(IronlawError):
        read(text, "--flag")


@pytest.mark.parametrize("text", ["+8", "\uff18"])
def test_a_price_or_grid_of_such_digits_is_a_name(text):
    assert (price(text, "--price"), grid(text, "--grid")) == (text, text)  # which no catalogue has


def test_a_long_line_of_blanks_is_refused_at_once(budget):
    with budget(1.0), pytest.raises(UnitError):
        OPTIONS["nic_bandwidth"].read("1x" + " " * 100_000 + "y", "--nic-bandwidth")


def test_tokens_per_parameter_are_no_number_until_the_model_is_known():
    assert read_options({"tokens": "20x"})["tokens"] == PerParameter(20.0, "--tokens 20x")
    assert run_tokens("15 T tokens", "--tokens") == 15e12
    for text in ("x", "0x", "-2x", "1e9x"):
        with pytest.raises(IronlawError):
            run_tokens(text, "--tokens")


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("selective:core_attn", "selective:attention"),
        ("selective:moe,layernorm,moe_act", "selective:moe,elementwise"),
        ("selective:attention,core_attn,mlp", "selective:attention,mlp"),
        ("selective:half-linear", "selective:half-linear"),
    ],
)
def test_modules_of_megatron_are_the_operators_that_a_script_is_counted_as(written, read):
    assert recompute(written, "--recompute") == read


@pytest.mark.parametrize(("module", "name"), [("mla_up_proj", "up-projection"), ("shared_experts", "shared-experts")])
def test_a_module_may_stand_beside_others(module, name):
    assert recompute(f"selective:mlp,{module}", "--recompute") == f"selective:mlp,{name}"
