"""Check what every command prints with ``--json`` against its JSON Schema, and write the schemas of commands that are no question.

    python tools/check_schemas.py --count 2000 --seed 7     ask random questions of all verbs, wrong ones among them; 1 where an answer breaks its schema
    python tools/check_schemas.py --write                   write the schemas of catalog, runs and validate from their answers

``tools/schemas.py`` writes the schemas of verbs. One question in ten is spoiled: a word of it is misspelled, so that it is refused, and what is
printed then is checked against the schema of errors.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import same_answers
import schemas
from ironlaw.catalog.records import KINDS

ROOT = Path(__file__).resolve().parents[1]
TRACES = (
    "v100_resnet50_nw0.json.gz",
    "megatron_64xv100.log",
    "memory_timeline.raw.gz",
    "mi300x_resnet_step.json.gz",
    "nccl_tests_8_ranks.log",
)
OTHERS: dict[str, tuple[str, ...]] = {  # commands that are no question, by the schema that their answers keep to
    "catalog": (
        "catalog list --json", *(f"catalog list {kind} --json" for kind in (*KINDS, "terms", "options")),
        "catalog show h100-sxm --kind accelerators --json", "catalog show llama-3-8b --json", "catalog show megatron --json",
        "catalog check --json",
    ),
    "options": ("schema --options --json", "schema estimate --options --json", "schema roofline --options --json"),
    "validate": (
        "validate predictions --json", "validate --runs FEW --json", "validate --runs FEW --memory --json",
        f"validate --fits {ROOT / 'src/ironlaw/validate/data/fits_prime_rl.csv'} --json",
        f"validate --predictions {ROOT / 'src/ironlaw/validate/data/predictions/simumax.csv'} --json",
    ),
    "runs": ("runs list --json", "runs show latest --json", "runs compare one two --json", "runs gate one two --json"),
}  # fmt: skip
WORDS = {
    "catalog": "the catalogue: names of records, cards of one kind, records, or what the audit found",
    "validate": "scores of published runs",
    "runs": "stored runs",
}


def prepare(folder: Path) -> None:
    """A store with two runs, and a short table of published runs, in a folder."""
    os.environ["IRONLAW_STORE"] = str(folder / "store")
    table = (ROOT / "src/ironlaw/validate/data/runs.csv").read_text(encoding="utf-8").splitlines(keepends=True)
    (folder / "few.csv").write_text("".join(table[:12]), encoding="utf-8")
    for label, name in (("one", "v100_resnet50_nw0.json.gz"), ("two", "v100_resnet50_nw4.json.gz")):
        same_answers.run(["diagnose", str(ROOT / "tests/data/measured" / name), "--keep", "--label", label])


def ask(command: str, folder: Path) -> Any:
    """The JSON that a command prints, in a folder that ``prepare`` made; None where it prints none."""
    words = [str(folder / "few.csv") if word == "FEW" else word for word in command.split()]
    try:
        return json.loads(same_answers.run(words)[1])
    except ValueError:
        return None


RECORDS = {  # what catalog show prints: records by their kind, whose fields are those of the catalogue
    "type": "object", "minProperties": 1, "additionalProperties": {"type": "object"},
}  # fmt: skip


def form_of(answer: Any) -> tuple[str, ...]:
    """What tells the forms of an answer apart: the keys of one that has a version; else whether it lists names, has cards, or is records."""
    if not isinstance(answer, dict):
        return (type(answer).__name__,)
    if "schema_version" in answer:
        return tuple(sorted(answer))
    if all(isinstance(value, dict) for value in answer.values()):
        return ("records",)
    return ("cards", next(iter(answer))) if "cards" in answer else ("names",)


def other_schema(name: str, answers: list[Any]) -> dict[str, Any]:
    """The schema of a command that is no question: one form for each set of keys that its answers have at the top."""
    forms: dict[tuple[str, ...], schemas.Shape] = {}
    for answer in answers:
        forms.setdefault(form_of(answer), schemas.Shape()).add(answer)
    made = []
    for key, shape in forms.items():
        form = RECORDS if key == ("records",) else schemas.schema_of(shape, (), {}, 1)
        made.append({**form, "required": list(key)} if "schema_version" in key else form)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:ironlaw:schema:{schemas.SCHEMA_VERSION}:{name}",
        "title": f"ironlaw {name} --json",
        "description": f"{WORDS[name]}; written by tools/check_schemas.py",
        "anyOf": made,
        "$defs": schemas.DEFS,
    }


def write() -> None:
    """Write the schemas of commands that are no question."""
    with tempfile.TemporaryDirectory() as name:
        prepare(Path(name))
        for other in schemas.OTHERS:
            commands = OTHERS[other]
            answers = [answer for command in commands if (answer := ask(command, Path(name))) is not None]
            text = json.dumps(other_schema(other, answers), indent=1, ensure_ascii=False)
            (schemas.SCHEMAS / f"{other}.json").write_text(text + "\n", encoding="utf-8")


def spoil(words: list[str], draw: random.Random) -> list[str]:
    """A question with one word misspelled: an option, a name or a number."""
    at = draw.randrange(1, len(words))
    return [*words[:at], words[at] + draw.choice("xq7"), *words[at + 1 :]]


def drawn(count: int, seed: int) -> Iterator[list[str]]:
    """The words of ``count`` random commands of all verbs; one in ten is spoiled."""
    draw, questions = random.Random(seed), same_answers.Questions(seed)
    shares = {verb: share for verb, share in same_answers.WORDS["shares"].items() if share}
    others = [command.split() for commands in OTHERS.values() for command in commands if "FEW" not in command and "--fits" not in command]
    models = list(questions.models)
    for _ in range(count):
        chance = draw.random()
        if chance < 0.06:
            words = ["diagnose", str(ROOT / "tests/data/measured" / draw.choice(TRACES)), "--json"]
        elif chance < 0.12:
            words = ["catalog", "show", draw.choice(models), "--kind", "models", "--json"]
        elif chance < 0.2:
            words = list(draw.choice(others))
        else:
            words = questions.draw(draw.choices(list(shares), list(shares.values()))[0])
        yield spoil(words, draw) if draw.random() < 0.1 else words


def schema_name(words: list[str], answer: Any) -> str:
    """The schema that an answer must keep to."""
    if isinstance(answer, dict) and isinstance(answer.get("error"), dict):
        return "error"
    return "options" if words[0] == "schema" else words[0]


def check(count: int, seed: int) -> int:
    """Ask random commands and name the answers that break their schema; 1 where there is one."""
    from jsonschema.exceptions import best_match

    known, seen, silent, broken = schemas.validators(), Counter[str](), Counter[str](), 0
    with tempfile.TemporaryDirectory() as name:
        prepare(Path(name))
        for words in drawn(count, seed):
            status, text = same_answers.run([str(Path(name) / "few.csv") if word == "FEW" else word for word in words])
            try:
                answer = json.loads(text)
            except ValueError:
                silent[f"{words[0]}: exit status {status}"] += 1
                continue
            which = schema_name(words, answer)
            seen[which] += 1
            if next(known[which].iter_errors(answer), None) is not None:
                broken += 1
                worst = best_match(known[which].iter_errors(answer))
                print(f"ironlaw {' '.join(words)}\n   {which} {worst.json_path}: {worst.message[:200]}", flush=True)
    print(f"{sum(seen.values())} answers, {broken} break their schema: {dict(seen.most_common())}")
    print(f"no JSON: {dict(silent)}")
    return int(broken > 0)


def main(words: list[str]) -> int:
    """Check, or write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args(words)
    if given.write:
        write()
        return 0
    return check(given.count, given.seed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
