"""A plan as a framework's configuration: the file, what starts it, and the reason of every line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ironlaw.catalog import load
from ironlaw.errors import IronlawError, UnknownNameError, UnsupportedError, ValueRangeError
from ironlaw.estimate.answer.estimate import Estimate, answer
from ironlaw.estimate.answer.group import Group
from ironlaw.estimate.legality.rules import broken
from ironlaw.files import parse_toml, read_shipped
from ironlaw.frozen import Frozen
from ironlaw.launch.write.facts import facts_of, must_be_said, plan_of, with_recipe
from ironlaw.launch.write.launchers import LAUNCHERS, SUFFIXES, Start, launch_text
from ironlaw.launch.write.lines import Line, Written, applies, lines_of, reason
from ironlaw.launch.write.megatron import megatron_facts, option_of
from ironlaw.launch.write.tables import DATA, YOURS, Table, Variable, keys_of, numbers_of, table_of
from ironlaw.launch.write.text import SYNTAXES


class Configuration(Frozen):
    """What was written: files by name, their lines, and the run that they are of."""

    framework: str
    title: str
    version: str
    url: str
    read: str
    files: Mapping[str, str]
    lines: tuple[Line, ...]
    environment: tuple[Variable, ...]
    estimate: Estimate


def emit(
    options: Mapping[str, Any], framework: str, version: str = "", launcher: str = "torchrun", folders: tuple[str, ...] = (), file: str = ""
) -> Configuration:
    """The configuration of the run that ``options`` ask for, which ``read_options`` has checked; ``framework`` is one of FRAMEWORKS.

    What the framework cannot express is an UnsupportedError that names all of it.
    """
    table = table_of(framework)
    if launcher not in LAUNCHERS:
        raise UnknownNameError("--launcher", launcher, LAUNCHERS)
    version = version or table.version
    _check_version(table, version)
    estimate = estimate_for(options, table, folders)
    group = estimate.groups[0]
    written = written_for(group, table, version)
    if written.unsaid:
        raise UnsupportedError(f"{table.title} {version} cannot express: {'; '.join(written.unsaid)}")
    return _configuration(estimate, table, version, launcher, written, file)


def _check_version(table: Table, version: str) -> None:
    """Refuse a version that is older than every key of the table."""
    if numbers_of(version) and not keys_of(table, version) and table.keys:
        raise ValueRangeError(f"--version {version}: no key of {table.title} is known for it; the table is of {table.version}")


def estimate_for(options: Mapping[str, Any], table: Table, folders: tuple[str, ...]) -> Estimate:
    """The estimate of a plan in the stack of a framework; the plan keeps its own stack where the framework is that stack."""
    given = options.get("framework")
    stacks = (given,) if given in table.stacks else table.stacks
    first: IronlawError | None = None
    for stack in stacks:
        try:
            estimate = answer({**options, "framework": stack}, folders)
        except UnsupportedError as error:
            first = first or error
            continue
        group, at = estimate.place_of(0)
        if why := broken(group.job, group.plan, group.rules, at):
            raise UnsupportedError(f"{table.title} cannot run this plan: {'; '.join(why)}")
        return estimate
    assert first is not None
    raise first


def written_for(group: Group, table: Table, version: str) -> Written:
    """The lines that a table writes for the plan of a row, and what it cannot say."""
    facts = with_recipe(facts_of(group), table.models)
    keys = keys_of(table, version)
    if table.dialect == "plan":
        return lines_of(table, keys, facts, must_be_said(facts, group.job.framework.overlap))
    arguments, unsaid = megatron_facts({**plan_of(group), "framework": "megatron"}, group.job.model)
    if table.syntax == "shell":  # the arguments are the configuration
        own = tuple(Line(name, value, _because(table, name, facts), option_of(name), "program") for name, value in arguments.items())
        written = lines_of(table, keys, {**facts, **arguments}, {})
        return Written((*own, *(line._replace(part="program") for line in written.lines)), (*unsaid, *written.unsaid))
    written = lines_of(table, keys, {**facts, **arguments}, arguments)
    if table.models and not facts["recipe"]:
        unsaid.append(f"the model {facts['model']} (its recipes are of {', '.join(table.models)})")
    part = "program" if table.syntax == "overrides" else "file"
    return Written(tuple(line._replace(part=part) for line in written.lines), (*unsaid, *written.unsaid))


def _because(table: Table, name: str, facts: Mapping[str, Any]) -> str:
    """The reason of an argument of Megatron-LM: that of the table, else the option that it sets."""
    return reason(table.why.get(name, ""), facts) or option_of(name).replace("_", " ")


def _configuration(estimate: Estimate, table: Table, version: str, launcher: str, written: Written, file: str) -> Configuration:
    """The files: the configuration, and what starts it; one file where the arguments are the configuration."""
    facts = with_recipe(facts_of(estimate.groups[0]), table.models)
    head = head_of(estimate, table, version)
    in_file = [line for line in written.lines if line.part == "file"]
    name = file or table.file
    environment = tuple(variable for variable in table.environment if applies(variable.when, facts))
    own = table.syntax in SYNTAXES
    start = Start(
        name=f"{facts['model']}-{facts['gpus']}".replace(".", "-").lower(), by=table.start,
        program=tuple(reason(table.program, {**facts, "file": name}).split()),
        arguments=tuple(line for line in written.lines if line.part == "program"),
        environment=environment, nodes=facts["nodes"], each=facts["gpus_per_node"], config=name if own else "",
        resource=_resource(estimate) if launcher == "kubernetes" else "",
    )  # fmt: skip
    stem = name.rpartition(".")[0] or name
    starts = f"{stem}{SUFFIXES[launcher]}" if own or not file else name
    silent = [f"{line.key} {line.value}: {line.why}" for line in in_file if line.why] if table.syntax == "json" else []
    files = {name: SYNTAXES[table.syntax](in_file, head)} if own else {}
    files[starts] = launch_text(launcher, start, [*head, *silent])
    lines = tuple(written.lines)
    return Configuration(table.name, table.title, version, table.url, table.read, files, lines, environment, estimate)


def _resource(estimate: Estimate) -> str:
    """The resource of Kubernetes that an accelerator is, by its maker."""
    vendor = estimate.groups[0].cluster.accelerator.vendor
    resources = parse_toml(read_shipped(DATA / "kubernetes.toml"), "kubernetes.toml")["resources"]
    if vendor not in resources:
        raise UnsupportedError(f"no resource of Kubernetes is known for accelerators of {vendor}")
    return str(resources[vendor])


def head_of(estimate: Estimate, table: Table, version: str) -> list[str]:
    """What stands on top of a file: the run, what it is predicted to take, and where the keys are from."""
    group, _ = estimate.place_of(0)
    facts = facts_of(group)
    seconds, memory = float(estimate.step_seconds[0]), float(estimate.device_bytes[0])
    framework = load.record("frameworks", facts["framework"]).title
    return [
        f"{group.job.model.title} on {facts['gpus']} x {group.cluster.accelerator.title}, for {table.title} {version}",
        f"predicted ({framework}): step {seconds:.3g} s, MFU {float(estimate.mfu[0]):.1%}, {memory / 2**30:.1f} GiB of each accelerator",
        f"keys: {table.url} ({table.read}); lines that say '{YOURS}' are decided by no plan",
    ]
