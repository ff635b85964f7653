"""What trainers' files say of a run: options of ``ironlaw estimate`` with their lines, and all that is not understood."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ironlaw.errors import InputError, MissingOptionError, QuestionError, UnsupportedError, quote
from ironlaw.files import is_file, open_file, read_text
from ironlaw.frozen import Frozen
from ironlaw.question.read import read_options
from ironlaw.trainers.entries import Entry, Parsed, wrong
from ironlaw.trainers.facts_to_options import RULES, Derivation
from ironlaw.trainers.suffixes import SYNTAXES
from ironlaw.trainers.tables import Table, Trainer, recognise, table_of
from ironlaw.trainers.walk import Fact, Told, Walked, walk

READ_ELSEWHERE = (".json", ".toml", ".sh", ".args")  # suffixes of files that other readers take too
MOST_FILES = 12  # that include each other
KIND = "a trainer's configuration"


class Reading(Frozen):
    """What files say: the options with the fact that each comes from, and what is ignored, refused, unknown, assumed and needed."""

    trainer: str
    version: str
    url: str
    read: str
    files: tuple[str, ...]
    options: dict[str, Any]
    origin: dict[str, Fact]
    ignored: tuple[Told, ...]
    refused: tuple[Told, ...]
    unknown: tuple[Told, ...]
    assumed: tuple[Told, ...]
    needed: tuple[str, ...]
    gpus: int | None

    @property
    def understood(self) -> bool:
        """True where no setting is unknown or refused."""
        return not self.refused and not self.unknown


def parse_file(path: Path, recipe: str = "") -> Parsed | None:
    """A file as settings, by its suffix; None for one of another kind."""
    syntax = SYNTAXES.get(path.suffix.lower())
    if syntax is None:
        return None
    text = read_text(path, KIND)
    name = path.name
    if syntax == "yaml":
        from ironlaw.trainers.yaml_file import parse_yaml

        return parse_yaml(text, name)
    if syntax == "python":
        from ironlaw.trainers.python_file import parse_python

        return parse_python(text, name, recipe)
    from ironlaw.trainers import text_files

    return {"json": text_files.parse_json_file, "toml": text_files.parse_toml_file, "shell": text_files.parse_shell}[syntax](text, name)


def trainer_of_file(parsed: Parsed) -> Trainer | None:
    """The trainer that a parsed file is for."""
    return recognise([entry.key for entry in parsed.entries], parsed.syntax, parsed.program)


def split_names(text: str) -> tuple[list[tuple[Path, str]], str]:
    """The files that ``FILE,FILE`` names, each with the recipe behind its colon, and the model among them.

    >>> split_names("llama-3-8b"), split_names("hidden_size=64,vocab_size=100")[0]
    (([], 'llama-3-8b'), [])
    """
    files: list[tuple[Path, str]] = []
    model = ""
    for part in text.split(","):
        name, colon, recipe = part.rpartition(":")
        if colon and name.endswith(".py") and is_file(name):
            files.append((Path(name), recipe))
        elif is_file(part) and Path(part).suffix.lower() in SYNTAXES:
            files.append((Path(part), ""))
        else:
            model = f"{model},{part}" if model else part
    return files, model


def read_trainer_files(text: str, gpus: int | None = None, megatron: bool = False) -> Reading | None:
    """What ``FILE`` or ``FILE,FILE`` says; None where the first of them is no trainer's configuration.

    ``megatron``: read scripts of Megatron-LM too, which ``ironlaw estimate`` reads in its own way.
    """
    files, model = split_names(text)
    for part in model.split(",") if files else [text] if megatron else []:
        if not files or Path(part).suffix.lower() in SYNTAXES:  # a name that is no file here: the error says why
            open_file(part).close()
    if not files:
        return None
    first = parse_file(*files[0])
    trainer = trainer_of_file(first) if first else None
    if first is None or trainer is None:
        return _read_megatron(first, files[0][0], gpus) if megatron and first is not None else None
    reader = _Reader()
    reader.add(first, trainer, files[0][0])
    for path, recipe in files[1:]:
        parsed = parse_file(path, recipe)
        other = trainer_of_file(parsed) if parsed else None
        if parsed is None or other is None:
            raise InputError(f"{path}: no configuration of a trainer that is known: {', '.join(SYNTAXES)} of trainers are read")
        reader.add(parsed, other, path)
    if model:
        for name in [name for name in reader.walked.facts if name == "flavor" or name.startswith("model.")]:
            del reader.walked.facts[name]
        reader.walked.facts["model"] = Fact(model, "", "MODEL", 0)
    return reader.reading(gpus)


def _read_megatron(parsed: Parsed, path: Path, gpus: int | None) -> Reading | None:
    """A script of Megatron-LM; None for any other script."""
    from ironlaw.trainers.megatron import is_megatron, read_script

    if not is_megatron(parsed):
        return None
    url = "https://github.com/NVIDIA/Megatron-LM/blob/main/megatron/training/arguments.py"
    found = read_script(path, gpus)
    return Reading(
        trainer="Megatron-LM", version="0.16", url=url, read="November 2026", files=(str(path),), ignored=(), unknown=(), gpus=gpus, **found
    )


class _Reader:
    """Reads files and those that they include into one set of facts; the first that is more than a launcher's gives the trainer."""

    def __init__(self) -> None:
        self.walked = Walked()
        self.tables: list[Table] = []
        self.files: list[str] = []  # without links, so that an include loop is seen
        self.names: list[str] = []  # as they were given, or as another file names them

    def add(self, parsed: Parsed, trainer: Trainer, path: Path, included: bool = False) -> None:
        """Read one file by the table of its trainer."""
        name = str(path.resolve())
        if name in self.files:
            raise wrong(parsed.name, 1, "is included a second time: an include loop")
        if len(self.files) >= MOST_FILES:
            raise wrong(parsed.name, 1, f"more than {MOST_FILES} files include each other")
        self.files.append(name)
        self.names.append(parsed.name if included else str(path))
        table = table_of(trainer.name)
        if not included:
            self.tables.append(table)
        walk(parsed, table, self.walked, lambda entry, other, walked: self._include(entry, other, walked, path))
        if parsed.launcher or parsed.program:
            launched = parsed.replace(entries=parsed.launcher)
            walk(launched, table_of("launchers"), self.walked, lambda entry, other, walked: self._include(entry, other, walked, path))
            for word in parsed.program:
                if word.endswith((".yaml", ".yml", ".json", ".toml")):
                    self._include(Entry("(its file)", word, 1), trainer.name, self.walked, path)

    def _include(self, entry: Entry, other: str, walked: Walked, path: Path) -> None:
        """Read a file that a setting names, inside the folder of the file that names it."""
        if not isinstance(entry.value, str):
            walked.refused.append(_told(entry, path, f"its value {quote(str(entry.value))} is known only where it runs", "known-when-run"))
            return
        folder = path.parent.resolve()
        target = next((one for one in _candidates(folder, entry.value) if is_file(one)), None)
        if target is None:
            walked.refused.append(_told(entry, path, f"includes {entry.value}, which is not in the folder of {path.name}", "missing-file"))
            return
        parsed = parse_file(target)
        trainer = trainer_of_file(parsed) if parsed else None
        if parsed is None or trainer is None:
            walked.refused.append(_told(entry, path, f"includes {entry.value}, which is no configuration of {table_of(other).title}"))
            return
        self.add(parsed, trainer, target, included=True)

    def reading(self, gpus: int | None) -> Reading:
        """All that was read, by the rules that make options of facts."""
        table = max(self.tables, key=lambda one: one.name not in LAUNCHERS)
        derived = Derivation(self.walked, table, gpus)
        for rule in RULES:
            rule(derived)
        _check_values(derived)
        walked = self.walked
        return Reading(
            trainer=table.title, version=table.version, url=table.url, read=table.read, files=tuple(self.names), options=derived.options,
            origin=derived.origin, ignored=tuple(walked.ignored), refused=tuple(dict.fromkeys(map(_plain, walked.refused))),
            unknown=tuple(walked.unknown), assumed=tuple(walked.assumed), needed=tuple(dict.fromkeys(derived.needed)), gpus=derived.gpus,
        )  # fmt: skip


LAUNCHERS = ("accelerate", "deepspeed", "launchers")


def _plain(told: Told) -> Told:
    """A told setting whose value can be a key of a table."""
    return told._replace(value=str(told.value)) if isinstance(told.value, (list, dict)) else told


def _candidates(folder: Path, name: str) -> list[Path]:
    """Where an included file may be: beside the file, in the folders of its name below it, or the part of its name that is there."""
    parts = Path(name).parts
    tried = [folder.joinpath(*parts[at:]) for at in range(len(parts))]
    return [path for path in tried if path.resolve().is_relative_to(folder)]


def _told(entry: Entry, path: Path, why: str, kind: str = "") -> Told:
    return Told(why, entry.key, entry.value, path.name, entry.line, entry.column, kind)


def _check_values(derived: Derivation) -> None:
    """Refuse values that no option has, by the readers of the options."""
    for name, value in list(derived.options.items()):
        try:
            read_options({name: value})
        except QuestionError as error:
            fact = derived.origin.get(name)
            where = (fact.key, fact.written, fact.file, fact.line, fact.column) if fact else (name,)
            derived.walked.refused.append(Told(str(error), *where))


def options_of_run(text: str, gpus: int | None = None, searching: bool = False) -> tuple[dict[str, Any], list[str]] | None:
    """The options of the run that trainers' files describe, and what is told beside the answer; None for any other file.

    A setting that is not understood is an error: it may change the answer. ``ironlaw read`` lists all of them.
    """
    try:
        reading = read_trainer_files(text, gpus)
    except InputError:
        if "," in text or Path(text).suffix.lower() not in READ_ELSEWHERE:
            raise
        return None  # a model's configuration, a question or a script, whose own reader says what is wrong with it
    if reading is None:
        return None
    if not reading.understood:
        raise UnsupportedError(refusal(reading))
    if "model" in reading.needed:
        raise MissingOptionError(f"{_first(reading)} names no model: write MODEL,{text}", option="model")
    if "gpus" in reading.needed and not searching:
        raise MissingOptionError(f"{_first(reading)} does not say how many accelerators run it: give --gpus N", option="gpus")
    source = f"{reading.trainer} {reading.version}"
    said = [f"{place(told)}: {told.key}: {told.why}" if told.key else f"{source}: {told.why}" for told in reading.assumed]
    return reading.options, said


def refusal(reading: Reading) -> str:
    """One line on the settings that are not understood, the first in full."""
    told = [*reading.refused, *reading.unknown]
    first = told[0]
    more = f" (and {len(told) - 1} more settings: ironlaw read lists them)" if len(told) > 1 else ""
    return f"{place(first)}: {first.key}: {first.why}{more}"


def place(told: Told) -> str:
    """``FILE:LINE`` of a setting, or what made it."""
    return f"{told.file}:{told.line}" if told.line else told.file or "rule"


def _first(reading: Reading) -> str:
    return Path(reading.files[0]).name
