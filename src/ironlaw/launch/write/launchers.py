"""What starts a run: a script for torchrun or Slurm, or a Kubernetes PyTorchJob, with the environment and the arguments of the program."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ironlaw.frozen import Frozen
from ironlaw.launch.write.lines import Line
from ironlaw.launch.write.tables import Variable
from ironlaw.launch.write.text import with_reason, yaml_value

LAUNCHERS = ("torchrun", "slurm", "kubernetes")  # words of --launcher
IMAGE = "REGISTRY/IMAGE:TAG"


class Start(Frozen):
    """What is started: by which program of the framework, with which arguments, on which machines."""

    name: str  # of the run
    by: str  # torchrun | accelerate | deepspeed | tune | python
    program: tuple[str, ...]
    arguments: tuple[Line, ...]
    environment: tuple[Variable, ...]
    nodes: int
    each: int  # accelerators of a node
    config: str  # the file that the program reads; "" for none
    resource: str = ""  # of Kubernetes


def argument_words(line: Line) -> list[str]:
    """A setting as the words of a command; a switch is its name alone.

    >>> argument_words(Line("--bf16", True, "")), argument_words(Line("--recompute-modules", "core_attn mlp", ""))
    (['--bf16'], ['--recompute-modules', 'core_attn', 'mlp'])
    """
    if line.value is True and "=" not in line.key:
        return [line.key]
    value = str(line.value).lower() if isinstance(line.value, bool) else str(line.value)
    if line.key.endswith("="):
        return [f"{line.key}{value}"]
    return [line.key, *value.split()]


def launch_words(start: Start, rank: str, address: str) -> list[str]:
    """The command of every node, before the program; words that a shell expands are left as they are."""
    nodes, each = str(start.nodes), str(start.each)
    if start.by == "python":
        return ["python3"]
    if start.by == "accelerate":
        many = ["--machine_rank", rank, "--main_process_ip", address, "--main_process_port", "29500"] if start.nodes > 1 else []
        return ["accelerate", "launch", "--config_file", start.config, *many]
    if start.by == "deepspeed":
        many = ["--num_nodes", nodes, "--node_rank", rank, "--master_addr", address, "--master_port", "29500", "--no_ssh"]
        return ["deepspeed", "--num_gpus", each, *(many if start.nodes > 1 else [])]
    first = ["tune", "run"] if start.by == "tune" else ["torchrun"]
    if start.nodes == 1:
        return [*first, "--standalone", "--nnodes", "1", "--nproc-per-node", each]
    return [*first, "--nnodes", nodes, "--nproc-per-node", each, "--rdzv-backend", "c10d", "--rdzv-endpoint", f"{address}:29500"]


def script(start: Start, head: Sequence[str], slurm: bool) -> str:
    """A shell script that starts the run on each node, or under Slurm on all of them."""
    out = ["#!/bin/bash", *(_slurm_lines(start) if slurm else ()), *(f"# {line}".rstrip() for line in head), "set -euo pipefail", ""]
    for variable in start.environment:
        out += with_reason(f"export {variable.name}={shlex.quote(variable.value)}", variable.why)
    rank, address = '"${NODE_RANK:-0}"', '"${MASTER_ADDR:-localhost}"'
    if slurm and start.nodes > 1:
        out.append('export MASTER_ADDR="$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)"')
        rank, address = '"$SLURM_NODEID"', '"$MASTER_ADDR"'
    elif start.nodes > 1 and start.by != "python":
        out.append("# run on every node, with MASTER_ADDR the name of the first and NODE_RANK from 0")
    out += ["", "ARGUMENTS=("] if start.arguments else [""]
    for line in start.arguments:
        out += with_reason(f"    {' '.join(map(shlex.quote, argument_words(line)))}", line.why)
    out += [")", ""] if start.arguments else []
    words = [*launch_words(start, rank, address), *start.program]
    command = " ".join(words)
    if slurm:
        inner = command.replace('"$SLURM_NODEID"', "$SLURM_NODEID")
        command = f"srun {inner}" if "$SLURM_NODEID" not in inner else f"srun bash -c '{inner} \"$@\"' bash"
    return "\n".join([*out, f'{command} \\\n    "${{ARGUMENTS[@]}}"' if start.arguments else command]) + "\n"


def _slurm_lines(start: Start) -> list[str]:
    """One task a node: the launcher starts a process for each accelerator."""
    return [
        f"#SBATCH --job-name={start.name}",
        f"#SBATCH --nodes={start.nodes}",
        "#SBATCH --ntasks-per-node=1",
        f"#SBATCH --gpus-per-node={start.each}",
        "#SBATCH --exclusive",
    ]


def pytorch_job(start: Start, head: Sequence[str]) -> str:
    """A PyTorchJob of the Kubeflow Training Operator: one pod a node, the configuration from a ConfigMap of the run's name."""
    out = [f"# {line}".rstrip() for line in head]
    if start.config:
        out.append(f"# first: kubectl create configmap {start.name} --from-file={start.config}")
    out += ["apiVersion: kubeflow.org/v1", "kind: PyTorchJob", "metadata:", f"  name: {start.name}", "spec:"]
    out += [f'  nprocPerNode: "{start.each}"', "  pytorchReplicaSpecs:"]
    counts = {"Master": 1, "Worker": start.nodes - 1}
    for kind, count in counts.items():
        if count:
            out += [f"    {kind}:", f"      replicas: {count}", "      restartPolicy: OnFailure", "      template:", "        spec:"]
            out += _pod(start)
    return "\n".join(out) + "\n"


def _pod(start: Start) -> list[str]:
    """The container of a pod: its command, environment, accelerators and shared memory; lines of YAML."""
    at = " " * 10
    words = [*launch_words(start, "$(RANK)", "$(MASTER_ADDR)"), *start.program]
    out = [f"{at}containers:", f"{at}  - name: pytorch", f"{at}    image: {IMAGE}  # yours", f"{at}    command:"]
    out += [f"{at}      - {yaml_value(word)}" for word in words]
    for line in start.arguments:
        first, *others = argument_words(line)
        out += with_reason(f"{at}      - {yaml_value(first)}", line.why)
        out += [f"{at}      - {yaml_value(word)}" for word in others]
    if start.environment:
        out.append(f"{at}    env:")
        for variable in start.environment:
            text = f"{at}      - {{name: {variable.name}, value: {yaml_value(variable.value)}}}"
            out += with_reason(text, variable.why)
    out += [f"{at}    resources:", f"{at}      limits: {{{start.resource}: {start.each}}}"]
    mounts = [("shm", "/dev/shm")] + ([("config", "/config")] if start.config else [])
    out.append(f"{at}    volumeMounts:")
    out += [f"{at}      - {{name: {name}, mountPath: {path}}}" for name, path in mounts]
    out += [f"{at}    workingDir: /config"] if start.config else []
    out += [f"{at}volumes:", f"{at}  - {{name: shm, emptyDir: {{medium: Memory}}}}  # NCCL between processes of a node"]
    return [*out, f"{at}  - {{name: config, configMap: {{name: {start.name}}}}}"] if start.config else out


def launch_text(launcher: str, start: Start, head: Sequence[str]) -> str:
    """What starts the run with one of LAUNCHERS."""
    makers: Mapping[str, Callable[[], str]] = {
        "torchrun": lambda: script(start, head, slurm=False),
        "slurm": lambda: script(start, head, slurm=True),
        "kubernetes": lambda: pytorch_job(start, head),
    }
    return makers[launcher]()


SUFFIXES: Mapping[str, Any] = {"torchrun": ".sh", "slurm": ".sbatch", "kubernetes": "-job.yaml"}
