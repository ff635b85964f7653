"""Configurations of trainers that fine-tune, reconstructed from the keys of their documentation: each is the run that it describes."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from ironlaw.trainers.read import options_of_run, read_trainer_files

LLAMA = "meta-llama/Meta-Llama-3-8B"
CASES = {
    name: case
    for path in sorted(Path(__file__).parent.glob("*.toml"))
    for name, case in tomllib.loads(path.read_text(encoding="utf-8")).items()
}


def reading(tmp_path, name, text, gpus=None):
    (tmp_path / name).write_text(text)
    return read_trainer_files(str(tmp_path / name), gpus)


@pytest.mark.parametrize("case", CASES)
def test_a_configuration_is_the_run_that_it_describes(tmp_path, case):
    found = reading(tmp_path, CASES[case]["file"], CASES[case]["text"], CASES[case].get("gpus"))
    expected = CASES[case]["options"]
    assert (found.refused, found.unknown) == ((), ())
    assert {option: found.options.get(option) for option in expected} == expected


def test_a_setting_names_its_line_and_what_it_says(tmp_path):
    found = reading(tmp_path, "a.yaml", "# run\nper_device_train_batch_size: 4\n\nbf16: true\n", 2)
    fact = found.origin["micro_batch_size"]
    assert (fact.file, fact.line, fact.column, fact.key, fact.written) == ("a.yaml", 2, 1, "per_device_train_batch_size", 4)
    assert found.origin["precision"].line == 4
    assert any("gradient_accumulation_steps by default" in told.why for told in found.assumed)


def test_what_may_change_the_answer_and_is_not_understood_is_no_run(tmp_path):
    text = "per_device_train_batch_size: 4\nexpert_choice: 3\n"
    found = reading(tmp_path, "a.yaml", text)
    assert [(told.key, told.line) for told in found.unknown] == [("expert_choice", 2)]
    with pytest.raises(Exception, match=r"a\.yaml:2: expert_choice: no key of"):
        options_of_run(str(tmp_path / "a.yaml"), 8)


def test_the_files_of_trainer_and_launcher_are_one_run(tmp_path):
    (tmp_path / "a.yaml").write_text(f"model_name_or_path: {LLAMA}\nper_device_train_batch_size: 2\nbf16: true\n")
    (tmp_path / "c.yaml").write_text("distributed_type: FSDP\nmixed_precision: bf16\nnum_processes: 8\n")
    options, said = options_of_run(f"{tmp_path}/a.yaml,{tmp_path}/c.yaml")
    assert (options["gpus"], options["zero"], options["global_batch_size"]) == (8, 3, 16)
    assert any("FSDP's default" in line for line in said)


def test_files_that_contradict_each_other_are_refused_with_both_places(tmp_path):
    (tmp_path / "ds.json").write_text('{"train_micro_batch_size_per_gpu": 4,\n "zero_optimization": {"stage": 2}}')
    found = reading(tmp_path, "a.yaml", "per_device_train_batch_size: 2\ndeepspeed: ds.json\n", 8)
    assert [(told.file, told.line) for told in found.refused] == [("ds.json", 1)] and "a.yaml:1" in found.refused[0].why


@pytest.mark.parametrize("text, says", [
    ('{"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 2, "train_batch_size": 64, "zero_optimization": {"stage": 1}}',
        "2 x 2 x 8 ranks is 32, and the batch is 64"),
    ('{"train_micro_batch_size_per_gpu": 3, "train_batch_size": 64, "zero_optimization": {"stage": 1}}', "no multiple of 3 x 8"),
    ('{"zero_optimization": {"stage": 1}, "tensor_parallel": {"autotp_size": 3}}', "tp 3 does not divide 8"),
    ('{"zero_optimization": {"stage": 2, "zero_quantized_gradients": true}}', "quantised communication"),
    ('{"zero_optimization": {"stage": 5}}', "not understood"),
])  # fmt: skip
def test_what_cannot_run_or_is_not_modelled_is_refused(tmp_path, text, says):
    assert says in reading(tmp_path, "d.json", text, 8).refused[0].why


def test_an_adapter_that_is_off_is_told(tmp_path):
    found = reading(tmp_path, "t.yaml", "per_device_train_batch_size: 1\nlora_r: 64\nmax_length: 2048\n", 1)
    assert "lora_rank" not in found.options
    assert [told.key for told in found.ignored if "never used" in told.why] == ["lora_r"]


def test_a_script_of_megatron_is_still_read_as_one(tmp_path):
    text = "torchrun pretrain_gpt.py --tensor-model-parallel-size 2 --micro-batch-size 1 --num-layers 2\n"
    assert reading(tmp_path, "m.sh", text) is None


@pytest.mark.parametrize(("line", "precision"), [("", "bf16"), ("bf16: false", "fp32"), ("bf16: false\nfp16: true", "fp16")])
def test_a_switch_that_is_off_takes_its_default_away(tmp_path, line, precision):
    """TRL computes in bf16 by default; its switch turns that off."""
    text = f"model_name_or_path: {LLAMA}\nper_device_train_batch_size: 1\nmax_length: 1024\nuse_peft: true\n{line}\n"
    assert reading(tmp_path, "sft.yaml", text, 1).options["precision"] == precision


@pytest.mark.parametrize(("stage", "refused"), [(2, ["weights in host memory need ZeRO stage 3"]), (3, [])])
def test_deepspeed_keeps_weights_in_the_host_with_stage_3_alone(tmp_path, stage, refused):
    text = f'{{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {{"stage": {stage}, "offload_param": {{"device": "cpu"}}}}}}'
    assert [one.why for one in reading(tmp_path, "ds.json", text, 8).refused] == refused
