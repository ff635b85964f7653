"""A plan written for each framework is read back as the same plan; what a framework cannot express is named."""

from __future__ import annotations

import json
import tomllib
from functools import partial

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings

import ironlaw
from ironlaw.errors import IronlawError, UnsupportedError
from ironlaw.estimate.answer.as_data import plan_data
from ironlaw.launch.write.emit import emit
from ironlaw.launch.write.launchers import LAUNCHERS
from ironlaw.launch.write.tables import DATA, FRAMEWORKS, table_of
from ironlaw.question.read import read_options
from ironlaw.trainers.read import read_trainer_files
from ironlaw.trainers.tables import DATA as READERS
from ironlaw.trainers.yaml_file import parse_yaml

COMPARED = (
    "tp", "pp", "cp", "dp_replicate", "dp_shard", "zero", "micro_batch_size", "global_batch_size", "seq_len", "recompute", "precision",
    "optimizer", "offload",
)  # fmt: skip
ASKED = ("lora_rank", "frozen_weights", "flash_attention")  # compared where the question gives them
STACKS = {"deepspeed": "deepspeed", "accelerate": "huggingface", "axolotl": "axolotl", "torchtune": "torchtune", "torchtitan": "torchtitan"}
READ = {"deepspeed": "ds_config.sh", "accelerate": "accelerate.sh", "axolotl": "axolotl.yaml", "torchtune": "torchtune.yaml",
        "torchtitan": "train.toml"}  # fmt: skip
CAN = {  # axes of random plans
    "deepspeed": {"zero": [0, 1, 2, 3], "offload": ["none", "optimizer"], "precision": ["bf16", "fp16"]},
    "accelerate": {"zero": [0, 2, 3], "precision": ["bf16"], "offload": ["none", "parameters"], "optimizer": ["adamw", "adam8bit"]},
    "axolotl": {"zero": [0, 2, 3], "cp": [1, 2], "lora_rank": [8, 64], "optimizer": ["adamw", "adam8bit"]},
    "torchtune": {"zero": [2, 3], "offload": ["none", "activations"]},
    "torchtitan": {"zero": [2, 3], "tp": [1, 2], "dp_replicate": [1, 2], "precision": ["bf16", "fp8-row"]},
}
LIKELY = ("zero", "tp", "dp_replicate", "precision", "offload")  # given in every plan


def estimated(options):
    try:
        found = ironlaw.estimate(**options)
    except IronlawError:
        return None
    return found.groups[0] if found.legal[0] else None


def plan(group, options):
    data = plan_data(group, 0)
    if data["dp_shard"] == 1:
        data["zero"] = 0  # nothing is sharded
    return {name: data.get(name) for name in COMPARED} | {name: getattr(group.asked, name) for name in ASKED if name in options}


def assert_comes_back(framework, options, folder):
    written = emit(read_options(options), framework)
    for name, text in written.files.items():
        (folder / name).write_text(text, encoding="utf-8")
    reading = read_trainer_files(str(folder / READ[framework]), options["gpus"])
    assert reading is not None
    assert (reading.refused, reading.unknown) == ((), ())
    again = {**reading.options, "framework": options["framework"], "on": options["on"], "gpus": options["gpus"]}
    assert plan(ironlaw.estimate(**again).groups[0], options) == plan(written.estimate.groups[0], options)


@pytest.mark.parametrize("framework", STACKS)
def test_a_random_legal_plan_comes_back(framework, tmp_path):
    if not (READERS / f"{framework}.toml").exists():
        pytest.skip(f"configurations of {framework} are not read")
    axes = {name: st.sampled_from(values) for name, values in CAN[framework].items()}
    fixed = {
        "model": st.just("llama-3-8b"),
        "gpus": st.sampled_from([8, 16]),
        "micro_batch_size": st.sampled_from([1, 2]),
        "global_batch_size": st.sampled_from([32, 64]),
        "seq_len": st.sampled_from([2048, 8192]),
        "recompute": st.sampled_from(["none", "full"]),
        "tp": st.just(1),
        "pp": st.just(1),
        **{name: values for name, values in axes.items() if name in LIKELY},
    }
    plans = st.fixed_dictionaries(fixed, optional={name: values for name, values in axes.items() if name not in LIKELY})

    @given(plans)
    @settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck), database=None, phases=[Phase.generate])
    def check(options):
        options = {**options, "on": "h100-sxm", "framework": STACKS[framework]}
        assume(estimated(options) is not None)
        assert_comes_back(framework, options, tmp_path)

    check()


PARSERS = {"yaml": partial(parse_yaml, name="file"), "toml": tomllib.loads, "json": json.loads}
PLANS = {
    "megatron": {"framework": "megatron", "tp": 2, "pp": 2},
    "bridge": {"framework": "megatron-bridge", "tp": 2, "pp": 2},
    "nemo": {"framework": "nemo", "tp": 2, "pp": 2},
    "torchtitan": {"framework": "torchtitan", "tp": 2, "pp": 2, "vpp": 2},
    "maxtext": {"framework": "xla-gpu"},
    **{name: {"framework": STACKS[name]} for name in ("deepspeed", "accelerate", "axolotl", "torchtune")},
}


@pytest.mark.parametrize("launcher", LAUNCHERS)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_every_framework_is_written_with_every_launcher(framework, launcher):
    options = read_options({"model": "llama-3-8b", "on": "h100-sxm", "gpus": 16, "global_batch_size": 64, **PLANS[framework]})
    written = emit(options, framework, launcher=launcher)
    table = table_of(framework)
    for name, text in written.files.items():
        if name == table.file and table.syntax in PARSERS:
            PARSERS[table.syntax](text)
        elif launcher == "kubernetes":
            entries = {entry.key: entry.value for entry in parse_yaml(text, name).entries}
            assert (entries["kind"], entries["spec.pytorchReplicaSpecs.Worker.replicas"], entries["spec.nprocPerNode"]) == (
                "PyTorchJob",
                1,
                "8",
            )
        else:
            assert text.startswith("#!/bin/bash\n")
            assert ("#SBATCH --nodes=2\n" in text) == (launcher == "slurm")
    assert any("predicted" in text for text in written.files.values())


@pytest.mark.parametrize(
    ("framework", "options", "named"),
    [
        ("torchtitan", {"framework": "megatron", "zero": 1}, "ZeRO 1"),
        ("deepspeed", {"framework": "deepspeed", "pp": 2, "tp": 1, "zero": 1}, "--pp 2"),
        ("axolotl", {"framework": "axolotl", "model": "gpt-3-175b", "gpus": 64}, "the model"),
        ("nemo", {"framework": "megatron", "cp": 2, "cp_method": "all-to-all"}, "--cp-comm-type"),
        ("bridge", {"framework": "megatron", "model": "gpt-2-xl"}, "the model gpt-2-xl"),
    ],
)
def test_what_a_framework_cannot_express_is_named(framework, options, named):
    with pytest.raises(UnsupportedError, match=named):
        emit(read_options({"model": "llama-3-8b", "on": "h100-sxm", "gpus": 16, "global_batch_size": 64, **options}), framework)


def test_an_older_version_has_the_key_that_it_reads():
    options = read_options({"model": "llama-3-8b", "on": "h100-sxm", "gpus": 16, "framework": "axolotl", "cp": 2})
    new, old = (emit(options, "axolotl", version=version).files["axolotl.yaml"] for version in ("0.13", "0.11"))
    assert "context_parallel_size: 2" in new and "sequence_parallel_degree" not in new
    assert "sequence_parallel_degree: 2" in old and "context_parallel_size" not in old


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_every_table_says_where_its_keys_are_from(framework):
    data = tomllib.loads((DATA / f"{framework}.toml").read_text(encoding="utf-8"))
    assert {"title", "url", "read", "grade"} <= set(data["source"])
    assert all(key.of or key.value is not None for key in table_of(framework).keys)
