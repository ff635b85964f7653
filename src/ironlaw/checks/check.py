"""Check trainers' configurations: what readers refuse, what the rules of plans refuse, what does not fit, what a change would gain."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ironlaw.checks.finding import Finding
from ironlaw.checks.trials import CERTAINTY, LEAST_GAIN, TRIALS, Trial, remedies
from ironlaw.errors import InputError, IronlawError, QuestionError
from ironlaw.estimate.answer.estimate import Estimate, answer
from ironlaw.estimate.legality.rules import broken_rules
from ironlaw.question.options import flag
from ironlaw.question.read import read_options
from ironlaw.trainers.read import Reading, read_trainer_files

GIB = 2.0**30


def check(files: str, flags: Mapping[str, Any], folders: tuple[str, ...] = ()) -> list[Finding]:
    """All findings about the run of ``FILE`` or ``FILE,FILE``; ``flags`` are options that count before the file, ``on`` too."""
    gpus = int(float(flags["gpus"])) if flags.get("gpus") is not None else None
    try:
        reading = read_trainer_files(files, gpus, megatron=True)
    except InputError as error:
        file, line, said = _placed(str(error), files)
        return [Finding("unreadable", said, file, line, 1 if line else 0)]
    if reading is None:
        return [Finding("not-understood", "no configuration of a trainer that is known", files)]
    found = list(_of_settings(reading))
    options = {**reading.options, **{name: value for name, value in flags.items() if value is not None}}
    if not reading.understood:
        return found
    missing = [name for name in ("model", "on", "gpus") if name not in options]
    if missing:
        words = ", ".join({"model": "a model (MODEL,FILE)"}.get(name, flag(name)) for name in missing)
        return [*found, Finding("no-machine", f"only the settings were checked: {words} is missing", reading.files[0])]
    return [*found, *_of_run(reading, options, folders)]


def _placed(message: str, files: str) -> tuple[str, int, str]:
    """File, line and words of an error that names them."""
    file, _, rest = message.partition(":")
    line, _, said = rest.partition(":")
    return (file, int(line), said.strip()) if line.isdigit() else (files, 0, message)


def _of_settings(reading: Reading) -> Iterator[Finding]:
    """What the readers say of single settings."""
    for told in reading.refused:
        yield Finding(told.id or "not-modelled", f"{told.key}: {told.why}", _path(reading, told.file), told.line, told.column)
    for told in reading.unknown:
        yield Finding("unknown-setting", f"{told.key}: {told.why}", _path(reading, told.file), told.line, told.column)
    for told in (*reading.ignored, *reading.assumed):
        if told.id:
            yield Finding(told.id, f"{told.key}: {told.why}", _path(reading, told.file), told.line, told.column)


def _path(reading: Reading, name: str) -> str:
    """The path of a file that was read, as it was given."""
    return next((path for path in reading.files if Path(path).name == name), name or reading.files[0])


def _at(reading: Reading, *options: str) -> tuple[str, int, int]:
    """Where a file gives the first of some options; its first line where none does."""
    fact = next((reading.origin[name] for name in options if name in reading.origin), None)
    return (_path(reading, fact.file), fact.line, fact.column) if fact else (reading.files[0], 0, 0)


def _of_run(reading: Reading, options: Mapping[str, Any], folders: tuple[str, ...]) -> Iterator[Finding]:
    """What the estimate of the run says: rules that it breaks, memory, and changes that pay."""
    try:
        estimate = answer(read_options(options), folders)
    except QuestionError as error:
        yield Finding("illegal-plan", str(error), *_at(reading, *([error.option] if error.option else []), "zero", "framework"))
        return
    group, at = estimate.place_of(0)
    broken = [(name, says) for name, says in broken_rules(group.job, group.plan, group.rules, at) if name not in ("fits", "below_peak")]
    for name, says in broken:
        yield Finding("illegal-plan", f"{name}: {says}", *_at(reading, *_options_of(name)))
    if broken:
        return
    data = estimate.row(0)
    memory = data["memory"]
    likely = memory["fits_probability"] or 0.0
    where = _at(reading, "micro_batch_size", "global_batch_size")
    sizes = f"needs {memory['device'] / GIB:.1f} GiB of {memory['capacity_bytes'] / GIB:.1f} GiB an accelerator; {likely:.0%} likely to fit"
    if not memory["fits"] or likely < CERTAINTY:
        remedy = _remedy(options, data, folders)
        over = memory["device"] - memory["capacity_bytes"]
        yield Finding("may-not-fit" if memory["fits"] else "does-not-fit", sizes, *where, change=remedy, bytes=max(over, 0.0) or None)
    yield from _of_changes(reading, options, estimate, data, folders)


def _options_of(rule: str) -> list[str]:
    """The options that the name of a rule speaks of.

    >>> _options_of("tp_divides_kv_heads"), _options_of("micro_batches_whole")
    (['tp'], ['micro_batch_size', 'global_batch_size'])
    """
    named = [word for word in rule.split("_") if word in ("tp", "pp", "cp", "ep", "zero")]
    return named or OPTIONS_OF.get(rule.split("_", maxsplit=1)[0], ["framework"])


OPTIONS_OF = {  # by the first word of a rule
    "micro": ["micro_batch_size", "global_batch_size"], "stages": ["pp"], "chunks": ["vpp"], "sequence": ["seq_len", "tp"],
    "gpus": ["tp", "pp", "cp"], "stack": ["zero", "recompute", "offload"], "parameters": ["offload", "zero"], "host": ["offload"],
}  # fmt: skip


def _of_changes(
    reading: Reading, options: Mapping[str, Any], estimate: Estimate, data: Mapping[str, Any], folders: tuple[str, ...]
) -> Iterator[Finding]:
    """Changes of one option that make the step faster or free memory; of one kind the one that gains most."""
    group, _ = estimate.place_of(0)
    plan = {**data["plan"], "domain": float(group.cluster.node.scale_up_size.value)}
    plan |= {name: options[name] for name in ("recompute", "offload", "sp", "flash_attention", "gradient_dtype") if name in options}
    best: dict[str, Finding] = {}
    for trial in TRIALS:
        if not trial.when(plan):
            continue
        found = _tried(reading, options, data, trial, trial.change(plan), folders)
        if found is not None and (trial.id not in best or _gain(found) > _gain(best[trial.id])):
            best[trial.id] = found
    yield from best.values()


def _gain(finding: Finding) -> float:
    return (finding.seconds or 0.0) * 1e15 + (finding.bytes or 0.0)


def _tried(
    reading: Reading, options: Mapping[str, Any], before: Mapping[str, Any], trial: Trial, change: dict[str, Any], folders: tuple[str, ...]
) -> Finding | None:
    """The finding of a change, where the changed run is legal, likely to fit, and better by more than noise."""
    try:
        after = answer(read_options({**options, **change}), folders).row(0)
    except IronlawError:
        return None
    kept = all(value for name, value in after["rules"].items() if name != "below_peak")
    if not kept or (after["memory"]["fits_probability"] or 0.0) < CERTAINTY:
        return None
    seconds = before["step"]["seconds"] - after["step"]["seconds"]
    freed = before["memory"]["device"] - after["memory"]["device"]
    noise = LEAST_GAIN * before["step"]["seconds"]
    faster = seconds > noise
    smaller = trial.for_memory and freed > LEAST_GAIN * before["memory"]["capacity_bytes"] and seconds > -noise
    if not (faster or smaller):
        return None
    parts = [f"a step takes {seconds:.3g} s less ({seconds / before['step']['seconds']:.0%})"] if faster else []
    parts += [f"an accelerator needs {freed / GIB:.1f} GiB less"] if smaller else []
    written = ", ".join(f"{name} {value}" for name, value in change.items())
    says = f"with {trial.says} {' and '.join(parts)}, and fits"
    told = seconds if faster else None, freed if smaller else None
    return Finding(trial.id, says, *_at(reading, trial.option), written, *told)


def _remedy(options: Mapping[str, Any], before: Mapping[str, Any], folders: tuple[str, ...]) -> str:
    """The change with which the run is likely to fit and a step is shortest; "" where none of those that are tried does."""
    found: list[tuple[float, str]] = []
    for change in remedies({**before["plan"], **options}):
        try:
            after = answer(read_options({**options, **change}), folders).row(0)
        except IronlawError:
            continue
        kept = all(value for name, value in after["rules"].items() if name != "below_peak")
        if kept and (after["memory"]["fits_probability"] or 0.0) >= CERTAINTY:
            found.append((after["step"]["seconds"], ", ".join(f"{name} {value}" for name, value in change.items())))
    return min(found)[1] if found else ""
