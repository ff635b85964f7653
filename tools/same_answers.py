"""Show that a change moves no predicted number: ask many questions of two versions, and compare every number bit by bit.

    python tools/same_answers.py since main --count 300      this checkout against another commit; one worker for each core
    python tools/same_answers.py questions --count 2400 --out questions.json      the steps of `since`, one by one
    PYTHONPATH=src python tools/same_answers.py answer questions.json --out before.json
    python tools/same_answers.py compare before.json after.json

The questions are every command that the documentation and the help texts show, and random ones from tools/same_answers.toml. Every number
and every true or false of an answer's JSON counts, in the order of the document and not by its key; keys that no answer had before do not count.
Exit status 1 where a number or an exit
status differs. ``--allow FILE`` lists questions that may differ: one index, or one regular expression of their words, a line.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import hashlib
import io
import json
import os
import random
import re
import shlex
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Any

TOOL = Path(__file__).resolve()
WORDS = tomllib.loads(TOOL.with_suffix(".toml").read_text(encoding="utf-8"))
NOT_COMPARED = {
    "schema_version",
    "tool_version",
    "calibration_version",
    "catalog_hash",
    "warnings",
    "headline",
}  # sentences and their values
CLOCK = ("space", "seconds")  # parent and key of the time that a search took

GPUS = (1, 2, 4, 8, 8, 16, 24, 32, 48, 64, 64, 96, 128, 256, 480, 512, 768, 1000, 1024, 2000, 2048, 4096, 8192, 16384)
USUAL = ("h100-sxm", "h100-sxm", "a100-sxm-80gb", "h200-sxm", "b200-sxm", "mi300x", "gb200", "h800-sxm")
WITHOUT_FP8 = ("v100", "a100", "a800", "mi250x", "tpu-v3", "tpu-v4", "tpu-v5")
WITH_FP4 = ("b200", "b300", "gb2", "gb3", "mi35")


def checkout() -> Path:
    """The root of the checkout whose ironlaw is imported."""
    import ironlaw

    return Path(str(ironlaw.__file__)).resolve().parents[2]


def run(words: list[str]) -> tuple[int | str, str]:
    """The exit status of a command, or the name of what it raised, and its standard output."""
    from ironlaw.cli.main import main

    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="", write_through=True)
    status: int | str
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        try:
            status = main(list(words))
        except (Exception, SystemExit) as error:
            status = type(error).__name__
    out.seek(0)
    return status, out.read()


def read_json(*words: str) -> Any:
    """The JSON that a command prints."""
    return json.loads(run(list(words))[1])


# Questions


class Questions:
    """Random questions; a question's model, mesh and batch are drawn together, so that most of them are possible."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        names = read_json("catalog", "list", "--json")
        self.accelerators = names["accelerators"]
        self.models = {n: next(iter(read_json("catalog", "show", n, "--kind", "models", "--json").values())) for n in names["models"]}
        self.small = [n for n, m in self.models.items() if m["num_hidden_layers"] * m["hidden_size"] ** 2 < 1e9]
        families: dict[str, list[str]] = defaultdict(list)
        for name, m in self.models.items():
            hybrid = "hybrid" if m["mamba_layers"] or m["linear_attention_layers"] else ""
            families[hybrid or ("latent" if m["kv_lora_rank"] else "experts" if m["num_experts"] else "dense")].append(name)
        self.families = list(families.values())

    def draw(self, verb: str) -> list[str]:
        """The words of one question of ``verb``."""
        template = self.random.choice(templates("templates", verb))
        values = self.draw_values(self.random.choice(self.small if "<small>" in template else self.random.choice(self.families)))
        words = self.fill(template, values)
        if verb == "estimate":
            chances = {
                "any": 1,
                "experts": 2 * bool(self.models[values["model"]]["num_experts"]),
                "pipeline": 3 * ("--pp" in words and values["pp"] != "1"),
                "context": 4 * ("--cp" in words),
            }
            pool = [extra for name, times in chances.items() for extra in templates("extras", name) * times]
            for extra in self.random.sample(pool, self.random.choice((0, 1, 1, 2, 2, 3, 4))):
                more = self.fill(extra, values)
                words += [] if {w for w in more if w.startswith("--")} & set(words) else more
            words += ["--explain"] if self.random.random() < 0.05 else []
        return [verb, *words, "--json"]

    def fill(self, template: str, values: dict[str, str]) -> list[str]:
        """The words of a template, every choice made."""
        while "[" in template:
            template = re.sub(r"\[([^][]*)\]", lambda found: found[1] if self.random.random() < 0.4 else "", template)
        template = re.sub(r"\{([^{}]*)\}", lambda found: self.random.choice(found[1].split("|")), template)
        return re.sub(r"<([a-z]+)>", lambda found: values[found[1]], template).split()

    def draw_values(self, name: str) -> dict[str, str]:
        """A value for every <name> of a template, around a model; most meshes divide what they have to."""
        choice, chance, model = self.random.choice, self.random.random, self.models[name]
        on = choice(USUAL) if chance() < 0.55 else choice(self.accelerators)
        gpus = left = choice(GPUS)
        layers, experts, mesh, sizes = model["num_hidden_layers"], model["num_experts"], "", {}
        tried = {"tp": (1, 1, 2, 4, 8), "pp": (1, 1, 2, 3, 4, 5, 8, 16), "cp": (1, 1, 1, 1, 2, 4, 8)}
        for axis, whole in (("tp", model["num_attention_heads"] or 8), ("pp", layers), ("cp", 8)):
            sizes[axis] = choice([n for n in tried[axis] if left % n == 0 and (whole % n == 0 or chance() < 0.1)] or [1])
            left //= sizes[axis]
            mesh += f" --{axis} {sizes[axis]}" if sizes[axis] > 1 or chance() < 0.5 else ""
        if experts:
            ranks = left * sizes["cp"] * (sizes["tp"] if chance() < 0.3 else 1)
            mesh += f" --ep {choice([n for n in (1, 2, 4, 8, 16, 32, 64) if experts % n == 0 and ranks % n == 0])}"
            mesh += f" --etp {sizes['tp']}" if chance() < 0.15 else ""
        micro = choice((1, 1, 1, 2, 4))
        mesh += f" --micro-batch-size {micro}" if chance() < 0.8 else ""
        mesh += f" --zero {choice((0, 1, 1, 2, 3))}" if chance() < 0.4 else ""
        pp, each = sizes["pp"], -(-layers // sizes["pp"])
        stages = [layers // pp + (i < layers % pp) for i in range(pp)]
        stages[0], stages[-1] = stages[0] - 1, stages[-1] + 1
        narrow = () if on.startswith(WITHOUT_FP8) else ("fp8", "fp8", "fp8-row", "fp8-block")
        narrow += ("mxfp8", "mxfp8", "nvfp4", "nvfp4") if on.startswith(WITH_FP4) else ()
        values = {
            "other": choice([n for n in USUAL if n != on]),
            "second": choice([n for n in self.small if n != name]),
            "batch": f" --global-batch-size {gpus * choice((1, 2, 4))}",
            "length": choice((2048, 4096, 8192, 32768, 131072)),
            "tokens": choice(("1B", "100B", "1T", "2T", "15T")),
            "precision": choice((*narrow, "bf16", "fp16", "fp32", "tf32")),
            "vpp": choice([n for n in range(1, each + 1) if each % n == 0]),
            "fewer": max(layers - (pp - 1) * each, 0) or 2,
            "stages": ",".join(map(str, stages)),
            "mesh": f"{mesh} --global-batch-size {left * micro * pp * choice((1, 2, 4))}",
        }
        values |= {"model": name, "small": name, "on": on, "gpus": gpus, "pp": pp}
        return {key: str(value) for key, value in values.items()}


def templates(table: str, name: str) -> list[str]:
    """The templates of one name, a line each."""
    return str(WORDS[table][name]).strip().splitlines()


def shown_commands() -> Iterator[tuple[str, str]]:
    """Every command that help texts, pages and folders of examples show, with the page that shows it."""
    root = checkout()
    for path in sorted([*root.glob("src/ironlaw/cli/*.py"), *root.glob("src/ironlaw/questions/*/options.py")]):
        for command in re.findall(r"\bironlaw ([a-z]+ .+)$", path.read_text(encoding="utf-8"), re.MULTILINE):
            yield re.split(r"\s{2,}\(|\"\"\"|`", command)[0], str(path.relative_to(root))
    for path in [root / "README.md", *sorted(root.glob("docs/**/*.md"))]:
        text = path.read_text(encoding="utf-8").replace("\\\n", " ")
        for command in re.findall(r"^\$ ironlaw (.*)$", text, re.MULTILINE) + re.findall(r"`ironlaw ([a-z]+ [^`\n]+)`", text):
            yield command, str(path.relative_to(root))
    for pattern, forms in (
        ("examples/**/*.toml", ["estimate {}", "estimate {} --gpus 1024 --explain", "plan {} --fix cp=1,tp=8"]),
        ("examples/**/*.json", ["estimate {} --on h100-sxm --gpus 64"]),
        ("tests/data/hf_configs/**/*.json", ["estimate {} --on h100-sxm --gpus 64"]),
        ("tests/data/megatron/*.sh", ["estimate {} --on h100-sxm --gpus 64"]),
        ("tests/data/measured/*", ["diagnose {}", "diagnose {} --model llama-3-8b --on h100-sxm --gpus 8 --last-step drop"]),
    ):
        yield from ((form.format(path.relative_to(root)), "") for path in sorted(root.glob(pattern)) for form in forms)
    yield from ((f"validate {words}", "") for words in ("", "--by device --memory", "--by support", "--plans"))
    kinds = read_json("catalog", "list", "--json")
    yield from ((f"catalog show {name}", "") for name in sorted({name for names in kinds.values() for name in names}))
    yield from ((f"catalog list {kind}", "") for kind in ("", *kinds))


def as_question(command: str) -> tuple[str, ...] | None:
    """The words of a shown command, printing JSON; None for a command that writes a store or a fit, or leaves words out."""
    try:
        words = shlex.split(re.sub(r" --format \S+| --markdown", "", command))
    except ValueError:
        return None
    if words[0] not in {*WORDS["shares"], "catalog", "diagnose", "validate"} or words[:2] == ["validate", "fit"]:
        return None
    if {"--keep", "...", "--help", "…"} & set(words):
        return None
    return tuple(words if {"--json", ">", "--csv", "check"} & set(words) else [*words, "--json"])


def make_questions(seed: int, count: int, shown: float) -> dict[str, Any]:
    """``count`` random questions and a share of the shown ones; with the files that a page puts into its folder."""
    pages = {(words, page): None for command, page in shown_commands() if (words := as_question(command))}
    draw, total = Questions(seed), sum(WORDS["shares"].values())
    some = sorted(draw.random.sample(range(len(pages)), round(shown * len(pages))))
    asked = [list(pages)[index] for index in some]
    asked += [(tuple(draw.draw(verb)), "") for verb, share in WORDS["shares"].items() for _ in range(-(-share * count // total))]
    block = re.compile(r"<!-- file (\S+) *-->\n```\w+\n(.*?)^```$", re.DOTALL | re.MULTILINE)
    files = {page: dict(block.findall((checkout() / page).read_text(encoding="utf-8"))) for _, page in asked if page}
    return {"questions": [{"words": words, "page": page} for words, page in asked], "files": files}


# Answers


def exact(value: Any) -> str:
    """A number as text that differs for every float64; anything else as JSON."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value).hex() if number and (isinstance(value, float) or abs(value) <= 2**53) else json.dumps(value)


def flatten(value: Any, path: str, numbers: list[tuple[str, str]], assumptions: list[str]) -> None:
    """Append every number below ``value`` with its path, in the order of the document; assumptions go to their own list."""
    if isinstance(value, dict):
        for key, item in value.items():
            if key == "assumptions" and isinstance(item, list):
                assumptions += [f"{path}: {a.get('name')} = {exact(a.get('value'))} ({a.get('origin')})" for a in item]
            elif key not in NOT_COMPARED and (path.rpartition(".")[2], key) != CLOCK:
                flatten(item, f"{path}.{key}", numbers, assumptions)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            flatten(item, f"{path}[{index}]", numbers, assumptions)
    elif isinstance(value, (bool, int, float)):
        numbers.append((path, exact(value)))


def as_of_before(data: Any) -> Any:
    """An answer in the form that readers of answers bring it into: each plan of a search with its records, which today stand once for all."""
    if not isinstance(data, dict) or not isinstance(data.get("plans"), list) or "records" not in data:
        return data
    try:
        from ironlaw.estimate.answer.saved import whole_plan
    except ModuleNotFoundError:  # a commit before the rooms of estimate/
        whole_plan = import_module("ironlaw.estimate.saved").whole_plan

    rest = {key: value for key, value in data.items() if key not in ("records", "sources")}
    return {**rest, "plans": [whole_plan(data, plan) for plan in data["plans"]]}


def answer_question(words: list[str]) -> dict[str, Any]:
    """The answer of one question, asked in the present folder; ``> FILE`` at its end writes that file."""
    status, text = run(words[:-2] if ">" in words else words)
    if ">" in words:
        Path(words[-1]).write_text(text, encoding="utf-8")
    numbers: list[tuple[str, str]] = []
    assumptions: list[str] = []
    with contextlib.suppress(ValueError):
        flatten(as_of_before(json.loads(text)), "", numbers, assumptions)
    compared = re.sub(r'"(tool_version|catalog_hash|seconds)": .*', "", text)
    return {
        "words": words, "status": status, "numbers": " ".join(n for _, n in numbers), "paths": [path for path, _ in numbers],
        "assumptions": assumptions, "text": hashlib.sha256(compared.encode()).hexdigest()[:16],
    }  # fmt: skip


def answer_page(given: tuple[str, dict[int, list[str]], dict[str, str]]) -> dict[int, dict[str, Any]]:
    """The answers of one page's questions in order, in a folder with its files; other questions are asked at the root."""
    page, questions, files = given
    os.environ["COLUMNS"] = "100"
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            (Path(folder) / name).parent.mkdir(parents=True, exist_ok=True)
            (Path(folder) / name).write_text(text, encoding="utf-8")
        for name in ("examples", "tests"):
            (Path(folder) / name).symlink_to(checkout() / name)
        with contextlib.chdir(folder if page else checkout()):
            return {index: answer_question(words) for index, words in questions.items()}


def answer_all(asked: dict[str, Any], workers: int) -> dict[str, Any]:
    """Every question answered, by ``workers`` processes; equal paths and assumptions are stored once."""
    parts: dict[str, dict[int, list[str]]] = defaultdict(dict)
    for index, question in enumerate(asked["questions"]):
        parts[question["page"] or f"/{index // 25}"][index] = question["words"]
    given = [("" if page[0] == "/" else page, part, asked["files"].get(page, {})) for page, part in parts.items()]
    found: dict[int, dict[str, Any]] = {}
    texts: dict[str, int] = {}
    with ProcessPoolExecutor(workers) as pool:
        for part in (pool.map if workers > 1 else map)(answer_page, given):
            for index, got in part.items():
                found[index] = {**got, **{key: [texts.setdefault(t, len(texts)) for t in got[key]] for key in ("paths", "assumptions")}}
            print(f"\r{len(found)} of {len(asked['questions'])} ", end="", file=sys.stderr, flush=True)
    return {"texts": list(texts), "answers": [found[index] for index in sorted(found)]}


# Comparison


def describe(before: list[str], after: list[str], paths: tuple[list[str], list[str]]) -> str:
    """How two sequences of numbers differ: how many, and the first."""
    at = next((i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), min(len(before), len(after)))
    first = [
        f"{where[at]} = {float.fromhex(numbers[at]) if '0x' in numbers[at] else numbers[at]!r}" if at < len(numbers) else "nothing"
        for where, numbers in zip(paths, (before, after), strict=True)
    ]
    differ = sum(a != b for a, b in zip(before, after, strict=False)) if len(before) == len(after) else "lengths differ:"
    return f"{differ} of {len(before)} (now {len(after)}); first {first[0]} before, {first[1]} after"


def without_new_keys(
    a: dict[str, Any], b: dict[str, Any], old: list[str], new: list[str]
) -> tuple[tuple[list[str], list[str]], dict[str, Any]]:
    """The paths of both answers, and the later answer without the numbers of keys that no answer had before."""
    known = known_keys(tuple(old))
    kept = [(number, new[at]) for number, at in zip(b["numbers"].split(), b["paths"], strict=True) if key_of(new[at]) in known]
    return ([old[i] for i in a["paths"]], [path for _, path in kept]), {**b, "numbers": " ".join(number for number, _ in kept)}


@functools.cache
def known_keys(paths: tuple[str, ...]) -> frozenset[str]:
    """The keys of all numbers of some answers."""
    return frozenset(map(key_of, paths))


def key_of(path: str) -> str:
    """The words of a path without the places in lists; a node of a tree is the same key at every depth."""
    return re.sub(r"(\.parts)+", ".parts", re.sub(r"\[\d+\]", "", path))


def differences(a: dict[str, Any], b: dict[str, Any], old: list[str], new: list[str]) -> Iterator[tuple[str, str]]:
    """(kind, description) of all that differs between two answers of one question."""
    paths, b = without_new_keys(a, b, old, new)
    if a["status"] != b["status"]:
        yield "exit status", f"{a['status']} before, {b['status']} after"
    if a["numbers"] != b["numbers"]:
        yield "numbers", describe(a["numbers"].split(), b["numbers"].split(), paths)
    elif paths[0] != paths[1]:  # equal numbers under other keys
        yield "paths", "; ".join(f"{x} is now {y}" for x, y in zip(*paths, strict=True) if x != y)[:300]
    gone, come = Counter(old[i] for i in a["assumptions"]), Counter(new[i] for i in b["assumptions"])
    if gone != come:
        yield "assumptions", f"gone {sorted(gone - come)[:4]}, new {sorted(come - gone)[:4]}"
    if a["text"] != b["text"]:
        yield "text", ""


def compare(before: dict[str, Any], after: dict[str, Any], allow: list[str], most: int = 20) -> int:
    """Print what differs; 1 where a number or an exit status differs that may not, 2 where the questions do, else 0."""
    if [a["words"] for a in before["answers"]] != [a["words"] for a in after["answers"]]:
        print("the two files answer different questions")
        return 2
    seen: dict[str, list[str]] = {name: [] for name in ("exit status", "numbers", "assumptions", "paths", "text")}
    allowed: Counter[str] = Counter()
    for index, (a, b) in enumerate(zip(before["answers"], after["answers"], strict=True)):
        may = any(str(index) == rule if rule.isdecimal() else re.search(rule, " ".join(a["words"])) for rule in allow)
        for kind, what in differences(a, b, before["texts"], after["texts"]):
            if may:
                allowed[kind] += 1
            else:
                seen[kind].append(f"  {index}: ironlaw {shlex.join(a['words'])}\n      {what}")
    for name in ("exit status", "numbers", "assumptions", "paths"):
        print("\n".join([f"{name}:", *seen[name][:most]]) if seen[name] else f"{name}: no difference")
    print(f"{len(before['answers'])} questions, {sum(len(a['paths']) for a in before['answers'])} numbers; questions that differ:")
    print("\n".join(f"  {len(some):6} in {name}, and {allowed[name]} that may" for name, some in seen.items()))
    return 1 if seen["exit status"] or seen["numbers"] else 0


def since(commit: str, folder: Path, make: list[str], workers: int) -> None:
    """Write ``before.json`` of a commit and ``after.json`` of this checkout; the commit makes the questions."""
    here, there = TOOL.parents[1], folder / "base"
    subprocess.run(["git", "worktree", "add", "--quiet", "--detach", str(there), commit], cwd=here, check=True)
    try:
        for root, words in (
            (there, ["questions", *make, "--out", str(folder / "questions.json")]),
            *((root, ["answer", "questions.json", "--out", f"{name}.json"]) for root, name in ((there, "before"), (here, "after"))),
        ):
            more = ["--workers", str(workers)] if words[0] == "answer" else []
            environment = {**os.environ, "PYTHONPATH": str(root / "src")}
            subprocess.run([sys.executable, str(TOOL), *words, *more], cwd=folder, env=environment, check=True)
    finally:
        subprocess.run(["git", "worktree", "remove", "--force", str(there)], cwd=here, check=True)


def main() -> int:
    """Run one of the four commands."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    options = {name: verbs.add_parser(name) for name in ("since", "questions", "answer", "compare")}
    options["since"].add_argument("commit")
    for name in ("since", "questions"):
        options[name].add_argument("--seed", type=int, default=1)
        options[name].add_argument("--count", type=int, default=300, help="random questions (default: 300)")
        options[name].add_argument("--shown", type=float, default=1.0, help="share of the shown commands to ask (default: 1)")
    options["answer"].add_argument("questions", type=Path)
    for name in ("since", "answer"):
        options[name].add_argument("--workers", type=int, default=os.cpu_count(), help="processes (default: one for each core)")
    for name in ("questions", "answer"):
        options[name].add_argument("--out", type=Path, required=True)
    for name in ("before", "after"):
        options["compare"].add_argument(name, type=Path)
    for name in ("since", "compare"):
        options[name].add_argument("--allow", type=Path, help="file of indexes and regular expressions of questions that may differ")
    given = parser.parse_args()
    if given.verb == "questions":
        given.out.write_text(json.dumps(make_questions(given.seed, given.count, given.shown)), encoding="utf-8")
        return 0
    if given.verb == "answer":
        found = answer_all(json.loads(given.questions.read_text(encoding="utf-8")), given.workers)
        given.out.write_text(json.dumps(found, separators=(",", ":")), encoding="utf-8")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / "before.json", Path(folder) / "after.json"]
        if given.verb == "since":
            make = ["--seed", str(given.seed), "--count", str(given.count), "--shown", str(given.shown)]
            since(given.commit, Path(folder), make, given.workers)
        else:
            files = [given.before, given.after]
        rules = given.allow.read_text(encoding="utf-8").splitlines() if given.allow else []
        before, after = (json.loads(file.read_text(encoding="utf-8")) for file in files)
        return compare(before, after, [rule for rule in rules if rule.strip() and not rule.startswith("#")])


if __name__ == "__main__":
    sys.exit(main())
