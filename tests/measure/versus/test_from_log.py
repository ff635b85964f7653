"""A log, or a measured throughput, against the estimate of the same run."""

from __future__ import annotations

import json

import pytest

import ironlaw
import paths
from ironlaw.cautions.record import sentences
from ironlaw.cli.main import main
from ironlaw.errors import QuestionError
from ironlaw.measure.diagnose import diagnose
from ironlaw.measure.logs import read_log
from ironlaw.measure.logs.rates import device_of
from ironlaw.measure.logs.reading import log_reading

MIXTRAL = paths.DATA / "measured" / "megatron_mixtral_16xh100.log"
RUN = {"model": "mixtral-8x7b", "on": "h100-sxm", "gpus": "16"}


def asked(**options):
    given = {**RUN, **options}
    return {"on": given["on"], "question": {name: str(value) for name, value in given.items()}}


def test_a_log_without_its_sequence_is_not_compared_with_another_run():
    """The log has 128 sequences a step and no length; its 239.6 TFLOP/s are those of 2,048 tokens a sequence."""
    found = diagnose(MIXTRAL, **asked())
    assert found.comparison is None and found.exit_status == 4
    line = next(line for line in found.warnings if line.startswith("not compared"))
    assert "give --seq-len" in line and "agree with --seq-len 2048" in line and "--global-batch-size" not in line


def test_the_batch_of_the_log_is_taken():
    found = diagnose(MIXTRAL, **asked(seq_len=2048))
    assert found.comparison is not None
    alone = ironlaw.estimate("mixtral-8x7b", on="h100-sxm", gpus=16, seq_len=2048, global_batch_size=128)
    assert found.comparison.predicted.seconds == pytest.approx(float(alone.step_seconds[0]))
    sentence = found.comparison.sentence
    assert sentence.startswith("measured 5.45 s, predicted ") and "slower than predicted" in sentence


def test_suspects_of_a_log_are_ranked_and_a_command_shows_more():
    data = diagnose(MIXTRAL, **asked(seq_len=2048)).data()["comparison"]
    run = data["measured_run"]
    assert run["tokens_per_second"] == pytest.approx(128 * 2048 / 5.4505, rel=1e-3)
    gap = run["measured_seconds"] - run["predicted_seconds"]
    assert all(row["would_take"] == pytest.approx(row["takes"] + gap) for row in run["suspects"])
    assert data["next_command"].startswith("ironlaw roofline mixtral-8x7b --on h100-sxm") and "--measured 5.45s" in data["next_command"]
    assert main(data["next_command"].split()[1:]) in (0, 1)


def test_the_printed_flops_are_a_share_of_the_peak_without_a_model(capsys):
    assert main(["diagnose", str(MIXTRAL), "--on", "h100-sxm"]) == 4
    page = capsys.readouterr().out
    assert "239.60 TFLOP/s per GPU: 24.2% of the dense peak" in page  # 239.6 / 989.4


def test_what_megatron_prints_of_its_plan_is_taken():
    log = read_log(paths.DATA / "measured" / "megatron_64xv100.log")
    run = log_reading(log, on="v100-sxm-32gb").run
    for option, argument in (("tp", "tensor_model_parallel_size"), ("pp", "pipeline_model_parallel_size"), ("micro_batch_size",) * 2):
        assert run[option] == int(log.arguments[argument])
    assert run["recompute"] == "full" and run["seq_len"] == int(log.arguments["seq_length"])
    assert (run["vpp"], run["zero"], run["sp"]) == (
        1,
        1,
        False,
    )  # virtual_pipeline_model_parallel_size None, zero_stage 1, no sequence_parallel


def test_a_log_that_describes_its_model_needs_only_the_accelerator():
    found = diagnose(paths.DATA / "measured" / "megatron_64xv100.log", on="v100-sxm-32gb", question={"on": "v100-sxm-32gb"})
    assert found.comparison is not None and found.comparison.inside
    plan = found.comparison.predicted.plan
    assert (plan["gpus"], plan["tp"], plan["pp"], plan["zero"], plan["sp"]) == (64, 4, 16, 1, False)


def test_a_log_without_model_or_accelerator_says_what_to_give(capsys):
    assert main(["diagnose", str(MIXTRAL)]) == 4
    page = capsys.readouterr().out
    assert "give --model MODEL, --on ACCELERATOR, --gpus N, --seq-len N" in page and "--global-batch-size N" not in page


def write(path, *lines):
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_a_plain_log_of_rates_is_read(tmp_path):
    lines = [f"step {n} loss 2.3 tokens/s {150_000 + n}" for n in range(1, 12)]
    found = diagnose(write(tmp_path / "train.log", *lines), **asked(model="llama-2-7b", gpus=64))
    (log,) = found.logs
    assert log.format == "plain" and log.tokens_per_second == pytest.approx(150_006.5)  # the median without the first line
    assert found.comparison is not None and found.comparison.run is not None
    assert found.comparison.run.rate == pytest.approx(150_006.5)
    assert any("of the whole job" in line for line in found.warnings)


@pytest.mark.parametrize(
    ("line", "rate", "per"),
    [
        ("step 3 tokens/s 150000", 150e3, "job"), ("iter: 7 | 151,200 tok/s | loss 3", 151200, "job"),
        ("tokens per second: 1.5M", 1.5e6, "job"),
        ("step=9 2343.7 tokens/sec/gpu", 2343.7, "gpu"), ("tokens/s/device = 2.3k", 2300, "gpu"),
    ],
)  # fmt: skip
def test_forms_of_a_printed_rate(tmp_path, line, rate, per):
    log = read_log(write(tmp_path / "a.log", "starting", line, line))
    assert log.format == "plain" and log.tokens_of == per and log.tokens_per_second.tolist() == [rate, rate][: len(log)]


def test_a_plain_log_with_step_times_has_steps(tmp_path):
    lines = [f"step {n} tokens/s 150000 step time 27.9 s" for n in range(1, 8)]
    (log,) = diagnose(write(tmp_path / "a.log", *lines)).logs
    assert log.steps is not None and log.steps.median == pytest.approx(27.9)


def test_a_throughput_alone_is_compared(capsys):
    words = ["diagnose", "--tokens-per-second", "150k", "--model", "llama-2-7b", "--on", "h100-sxm", "--gpus", "64"]
    assert main([*words, "--seq-len", "4096", "--global-batch-size", "1024"]) == 0
    page = capsys.readouterr().out
    mfu = 6 * 6.738e9 * 150e3 / (64 * 989.4e12)  # Llama 2 7B has 6.738 B parameters
    assert f"6N {mfu:.2%})" in page and "(attention as computed; full square" in page and "What could explain the difference" in page
    assert main([*words, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["files"] == [] and data["comparison"]["measured_run"]["tokens_per_second"] == pytest.approx(150e3)
    assert any("give --seq-len and --global-batch-size" in line for line in sentences(data["warnings"]))


def test_a_throughput_without_its_run_is_refused():
    with pytest.raises(QuestionError, match="--model"):
        diagnose((), tokens_per_second="150k")
    with pytest.raises(QuestionError, match="no FILE"):
        diagnose(())


ARGUMENTS = {
    "tensor_model_parallel_size": 4, "pipeline_model_parallel_size": 4, "virtual_pipeline_model_parallel_size": 5, "seq_length": 8192,
    "micro_batch_size": 1, "bf16": True, "sequence_parallel": True, "use_distributed_optimizer": True,
}  # fmt: skip
LINE = (
    " iteration {i:8d}/ 1000 | elapsed time per iteration (ms): {ms:.1f} | throughput per GPU (TFLOP/s/GPU): 306.6 |"
    " global batch size: 256 |"
)


def test_a_megatron_log_at_31_percent_mfu_has_ranked_suspects(tmp_path, capsys):
    """Everything that the log says is taken: 256 sequences of 8,192, tp 4, pp 4, vpp 5, cp 1; 306.6 / 989.4 = 31 % of the peak."""
    flop = 256 * 8192 * (6 * 69.5e9 + 12 * 80 * 8192 * 8192)  # of Llama 3 70B
    lines = [f"  {name} .............. {value}" for name, value in ARGUMENTS.items()]
    lines += [LINE.format(i=10 * i, ms=1e3 * flop / (256 * 306.6e12)) for i in range(1, 12)]
    path = write(tmp_path / "megatron.log", "using world size: 256, data-parallel size: 16", *lines)
    words = ["diagnose", str(path), "--on", "h100-sxm"]
    assert main(words) == 4
    page = capsys.readouterr().out
    assert "306.60 TFLOP/s per GPU: 31.0% of the dense peak" in page and "give --model MODEL" in page
    assert main([*words, "--model", "llama-3-70b"]) == 4
    page = capsys.readouterr().out
    assert "agrees with model FLOP/s" in page and "slower than predicted" in page and "What could explain the difference" in page
    command = next(line for line in page.splitlines() if line.startswith("every operator"))
    for option in ("--tp 4", "--sp on", "--pp 4", "--vpp 5", "--cp 1", "--zero 1", "--seq-len 8192", "--global-batch-size 256"):
        assert option in command


def test_a_device_is_told_by_its_memory():
    """torchtitan prints "NVIDIA H100 with 94.99GiB memory": of the H100 parts of the catalogue one has that much."""
    log = read_log(paths.DATA / "measured" / "torchtitan_llama3_8b_h100.log")
    device, source = device_of(log, None, ())
    assert device is not None and device.name == "h100-sxm-96gb-500w" and "94.99 GiB" in source
    log.claims["memory_capacity"] = 60 * 2.0**30  # no part has it
    assert device_of(log, None, ())[0] is None
