"""A trainer's configuration where a measurement is asked for: the refusal says what it is, and which verbs read it."""

import pytest

FILES = {
    "axolotl": ("a.yml", "base_model: x/y\nadapter: lora\nmicro_batch_size: 2\n"),
    "LLaMA-Factory": ("l.yaml", "model_name_or_path: x/y\nstage: sft\nfinetuning_type: lora\n"),
    "DeepSpeed": ("d.json", '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2}}'),
    "Accelerate": ("c.yaml", "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\n"),
    "torchtune": ("t.yaml", "model:\n  _component_: torchtune.models.llama3.llama3_8b\nbatch_size: 2\n"),
}


@pytest.mark.parametrize("trainer", FILES)
def test_a_configuration_of_a_trainer_is_named(ask, tmp_path, trainer):
    name, text = FILES[trainer]
    (tmp_path / name).write_text(text)
    status, out, err = ask("diagnose", tmp_path / name)
    assert (status, out) == (
        3,
        "",
    ) and f"{tmp_path / name}: a configuration of {trainer}, of a run and no measurement: ironlaw read FILE" in err


@pytest.mark.parametrize("name", ["d.json", "c.yaml"])
def test_an_estimate_of_a_file_that_names_no_model_says_how_to_name_one(ask, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_text(next(text for file, text in FILES.values() if file == name))
    status, out, err = ask("estimate", name, "--on", "h100-sxm", "--gpus", 8)
    assert (status, out) == (2, "") and f"{name} names no model: write MODEL,{name}" in err
    assert ask("estimate", f"gpt-2,{name}", "--on", "h100-sxm", "--gpus", 8, "--short")[0] == 0


def test_an_unknown_name_lists_names_of_the_catalogue(ask):
    err = ask("estimate", "x.yaml", "--on", "h100-sxm", "--gpus", 8)[2]
    assert "unknown model 'x.yaml'; known: apertus-70b, " in err and "/" not in err
