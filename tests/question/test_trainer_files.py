"""Configurations of trainers are not read: the refusal says what they are, and how to ask."""

import pytest

FILES = {
    "axolotl": ("a.yml", "base_model: x/y\nadapter: lora\nmicro_batch_size: 2\n", "axolotl"),
    "LLaMA-Factory": ("l.yaml", "model_name_or_path: x/y\nstage: sft\nfinetuning_type: lora\n", "huggingface"),
    "DeepSpeed": ("d.json", '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2}}', "deepspeed"),
    "Accelerate": ("c.yaml", "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\n", "huggingface"),
    "torchtune": ("t.yaml", "model:\n  _component_: torchtune.models.llama3.llama3_8b\nbatch_size: 2\n", "torchtune"),
}


@pytest.mark.parametrize("trainer", FILES)
def test_a_configuration_of_a_trainer_is_named(ask, tmp_path, trainer):
    name, text, framework = FILES[trainer]
    (tmp_path / name).write_text(text)
    said = f"{tmp_path / name}: a configuration of {trainer}, which is not read: give its settings as options, with --framework {framework}"
    for words in (("diagnose", tmp_path / name), ("estimate", tmp_path / name, "--on", "h100-sxm", "--gpus", 8)):
        status, out, err = ask(*words)
        assert (status, out) == (3, "") and said in err


def test_an_unknown_name_lists_names_of_the_catalogue(ask):
    err = ask("estimate", "x.yaml", "--on", "h100-sxm", "--gpus", 8)[2]
    assert "unknown model 'x.yaml'; known: apertus-70b, " in err and "/" not in err
