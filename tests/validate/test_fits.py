"""Tables of runs that fitted or failed: their readers, their figures, and what the shipped laws say of published rows."""

from __future__ import annotations

import json

import pytest

import paths
from ironlaw.errors import InputError
from ironlaw.validate import fits

TRAINER = paths.DATA / "fits" / "fms_acceleration.csv"
HEADER = "file,device,num_gpus,model,type,lora_rank,seq_len,ac,attention,cp,ep,micro_batches,fits,peak_gib,peak_pct,error"
ROW = "a,NVIDIA H100 80GB HBM3,1,Qwen/Qwen3-0.6B,sft,,65536,Recompute,flash_attention_3,,,2,no,,,CUDA out of memory: 37.09 GiB"


@pytest.fixture(scope="module")
def prime():
    return fits.fits(fits.SHIPPED)


@pytest.fixture(scope="module")
def trainer():
    return fits.fits(TRAINER)


@pytest.fixture
def table(tmp_path):
    def write(*lines, header=HEADER):
        path = tmp_path / "fits.csv"
        path.write_text("\n".join((header, *lines)) + "\n")
        return path

    return write


def test_nothing_that_ran_out_of_memory_is_said_to_fit_and_little_that_ran_is_refused(prime):
    found = fits.counts(prime)
    assert (found["rows"], found["scored"], found["ran"], found["failed"]) == (60, 56, 53, 3)
    assert found["failed_passed"] == 0 and found["failed_without_text"] == 1 and found["failed_without_text_passed"] == 0
    assert found["ran_refused"] <= 0.05 * found["ran"]
    assert found["median_abs_error"] <= 0.05 and found["p90_abs_error"] <= 0.15


def test_a_trainer_that_no_spread_has_seen_is_within_the_same_limits(trainer):
    found = fits.counts(trainer)
    assert (found["rows"], found["scored"]) == (12, 11)
    assert found["ran_refused"] == 0
    assert found["median_abs_error"] <= 0.05 and found["p90_abs_error"] <= 0.15


def test_the_row_that_died_of_its_logits_is_said_not_to_fit(table):
    """65,536 tokens by 151,936 of the vocabulary by 4 bytes are the 37.09 GiB of its message."""
    assert 65536 * 151936 * 4 / 2**30 == pytest.approx(37.09, abs=0.005)
    (row,) = fits.fits(table(ROW))
    assert row.verdict == "failed, said not to fit" and row.out_of_memory and row.probability < 0.01
    (chunked,) = fits.fits(table(ROW.replace(",sft,", ",rl,")))
    assert chunked.probability > 0.99 and row.predicted_bytes - chunked.predicted_bytes > 3 * 37.09 * fits.GIB


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ((",sft,", ",ppo,"), "type is 'ppo', must be rl or sft"),
        (("Recompute", "Some"), "ac is 'Some'"),
        (("Qwen/Qwen3-0.6B", "Qwen/Qwen3-0.7B"), "unknown model 'Qwen/Qwen3-0.7B'"),
        (("NVIDIA H100 80GB HBM3", "NVIDIA Z1"), "unknown accelerator 'NVIDIA Z1'"),
        (("65536", "1e400"), "seq_len is '1e400'"),
        (("65536", "many"), "seq_len is 'many'"),
        ((",no,", ",perhaps,"), "fits is 'perhaps'"),
        ((",no,,", ",yes,-3,"), "peak_gib is '-3'"),
        (("3,,,2", "3,5,,2"), "cp 5 does not divide num_gpus 1"),
    ],
)
def test_a_row_that_cannot_be_asked_says_why(table, change, why):
    assert change[0] in ROW
    (row,) = fits.fits(table(ROW.replace(*change)))
    assert row.probability is None and why in row.reason and row.verdict == "not predicted"


def test_another_table_is_an_error_that_names_its_missing_columns(table):
    with pytest.raises(InputError, match="no table of runs that fitted or failed: add the columns model"):
        fits.fits(table("1,2", header="a,b"))


def test_the_command_prints_a_line_for_every_row(ask, table):
    status, out, err = ask("validate", "--fits", table(ROW), "--json")
    assert (status, err) == (0, "")
    found = json.loads(out)["fits"]
    assert {"rows", "scored", "ran", "ran_refused", "failed", "failed_passed", "median_abs_error", "p90_abs_error"} <= set(found)
    (line,) = found["lines"]
    assert (line["name"], line["verdict"], line["measured_gib"], line["reason"]) == ("a", "failed, said not to fit", None, "")
    assert 0.0 <= line["probability"] < 0.01 and line["predicted_gib"] > 79.0
    status, out, _ = ask("validate", "--fits", table(ROW))
    assert status == 0 and "line 2 (a): failed, said not to fit (0% likely)" in out


def test_bad_files_and_options_are_one_line(ask, table):
    status, _, err = ask("validate", "--fits", table("1,2", header="a,b"))
    assert status in (2, 3) and err.count("\n") == 1
    for other in (["--plans"], ["--memory"], ["--markdown"], ["fit"]):
        status, _, err = ask("validate", "--fits", table(ROW), *other)
        assert status == 2 and err.count("\n") == 1
    status, _, _ = ask("validate", "--fits", table(ROW.replace("H100 80GB HBM3", "Z1")))
    assert status == 1


def test_weights_in_the_type_in_which_they_were_loaded_need_ten_bytes_a_parameter(trainer):
    """2 weights, 2 gradients, 4 moments and 2 for the roots of the second moments: 67.46 GiB of Mistral's 7,241,732,096 parameters."""
    row = next(r for r in trainer if r.line == 3)
    assert 10 * 7241732096 / fits.GIB == pytest.approx(67.46, abs=0.02)
    assert row.predicted_bytes / fits.GIB == pytest.approx(67.46, rel=0.01) and row.error == pytest.approx(0.0, abs=0.01)
