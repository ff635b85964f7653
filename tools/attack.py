"""Attack the program with inputs that nobody should give it, and check that every one is answered or refused in one line.

    python tools/attack.py --count 20000 --seed 7 --kind records,options

An attack is made from its seed and number alone, so that ``--seed 7 --first 1234 --count 1`` makes it again. It runs in a process of its own pool
(one worker, restarted after a failure) with limits of CPU time and memory. It fails where

- a traceback, or a status outside 0 to 4 and 130, comes out,
- it takes more CPU seconds or memory than allowed, or waits,
- an error is more than one line, or an answer in JSON has a number that JSON does not have,
- a file is changed, replaced, or left behind, or anything that a file says was executed.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import importlib
import io
import json
import os
import random
import re
import resource
import shlex
import shutil
import signal
import stat
import sys
import tempfile
import time
import tomllib
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from multiprocessing import get_context
from pathlib import Path
from types import SimpleNamespace
from typing import Any

ROOT = Path(__file__).parents[1]
DATA = ROOT / "tests" / "data"
SECONDS = 20.0  # of CPU time, for one attack
SILENT = 60.0  # seconds in which the process of an attack uses no CPU: it waits
MEMORY = 2 << 30  # bytes that one attack may add
STATUSES = {0, 1, 2, 3, 4, 130}
MARK = "attacked"  # a file that is there if anything was executed

NUMBERS = [
    "nan", "inf", "-inf", "1e308", "1e-308", "1e400", "-1", "0", "-0", "1e12", "999999999989", "1e15", "0.5", "7", "1023", "720720", "9" * 400,
    "9" * 5000, "0x10", "1_000", "1,000", "１２", "+8", "8.0", "1e3", "4k", "1Ti", "5 GiB", "400 Gb/s", "3 h", "0.0001", "1e-30", "1/3", "50%",
]  # fmt: skip
TEXTS = [
    "", " ", "\t", "é", "\u202e", "😀", "\ud800", "\x1b[31m", "a\nb", "\r", "null", "None", "true", "on", "off", "none", "all", "[]", "{}", "a,b",
    ",", ",,", "1..9", "..", "1..1e12", "64..1", "8,8", "h100-sxm", "llama-3-8b", "mixtral-8x7b", "bf16", "fp8", "nvfp4", "full", "uniform",
    f"$(touch {MARK})", f"`touch {MARK}`", f"; touch {MARK}", f"|touch {MARK}", "../../proc/self/status", "/proc/self/status", "/dev/zero", "/dev/null",
    "/", ".", "..", "-", "--", "--gpus", "%s%n", "x" * 10_000, "a=1,b=2", "tp=2", "pp>16", "1x1", "0x0x0", "9x9x9x9", ":", "zipf:nan",
    "lognormal:median=1e9,sigma=99", "fixed:0", "dirichlet:0", "a\0b", "TOML", "fifo", "folder",
]  # fmt: skip
SCALARS: list[Any] = [
    None, True, False, 0, -1, 1, 2**31, 2**63, 10**400, 1e308, -1e308, 1e-308, 0.5, float("nan"), float("inf"), "", "x", [], {}, [[]], [None],
    {"a": None}, [1, "a"], "9" * 400, "9" * 3000, "é", "\x1b[31m", "a\nb", f"$(touch {MARK})",
]  # fmt: skip
PLAIN = {"model": "llama-3-8b", "on": "h100-sxm", "gpus": 8, "tp": 2, "pp": 1, "zero": 1, "micro_batch_size": 1, "global_batch_size": 64}


MADE = SimpleNamespace(
    plain=["llama-3-8b", *"--on h100-sxm --gpus 8 --tp 2 --pp 1 --zero 1 --micro-batch-size 1 --global-batch-size 64".split()]
)


class Attack:
    """One attack: its random numbers, files by name, and either words of a command or a call of the library."""

    def __init__(self, rng: random.Random, folder: Path) -> None:
        self.rng, self.folder = rng, folder
        self.words: list[str] = []
        self.call: tuple[str, dict[str, Any]] | None = None
        self.outputs: set[str] = set()

    def write(self, name: str, content: bytes | str) -> str:
        """Write a file of the attack and return its path."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass"))
        return str(path)

    def output(self, name: str) -> str:
        """The path of a file that the program may write."""
        self.outputs.add(name)
        return str(self.folder / name)

    def value(self) -> str:
        """A value that few options take."""
        return self.rng.choice(NUMBERS if self.rng.random() < 0.5 else TEXTS)


# --- mutations


def nodes(tree: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of all values of a tree, at most a few thousand."""
    found = [at] if at else []
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in items:
        if len(found) > 3000:
            break
        found += nodes(value, (*at, key))
    return found


def mutate_tree(tree: Any, rng: random.Random, changes: int) -> Any:
    """A tree with some values replaced, removed, renamed, repeated or nested."""
    tree = copy.deepcopy(tree)
    for _ in range(changes):
        places = nodes(tree)
        if not places:
            return rng.choice(SCALARS)
        *path, last = rng.choice(places)
        owner = tree
        for key in path:
            owner = owner[key]
        what = rng.random()
        if what < 0.55:
            owner[last] = copy.deepcopy(rng.choice(SCALARS))
        elif what < 0.7:
            del owner[last]
        elif what < 0.8 and isinstance(owner, dict):
            owner[rng.choice([f"{last}x", "", "é", "a\nb", "source", "value", "__class__", "0"])] = owner.pop(last)
        elif what < 0.9:
            owner[last] = [owner[last]] * rng.choice([1, 2, 50])
        else:
            owner[last] = {"value": owner[last], "a": [owner[last]]}
    return tree


def mutate_text(text: bytes, rng: random.Random, changes: int) -> bytes:
    """Bytes with slices removed, repeated, replaced, and numbers made strange."""
    for _ in range(changes):
        at, what = rng.randrange(len(text) + 1), rng.random()
        end = min(len(text), at + rng.choice([1, 5, 50, 500]))
        strange = (rng.choice(NUMBERS) if rng.random() < 0.6 else rng.choice(TEXTS)).encode("utf-8", "surrogatepass")
        if what < 0.2:
            text = text[:at] + text[end:]
        elif what < 0.3:
            text = text[:at] + text[at:end] * rng.choice([2, 3, 200]) + text[end:]
        elif what < 0.4:
            text = text[:at]
        elif what < 0.5:
            text = text[:at] + bytes(rng.randrange(256) for _ in range(rng.choice([1, 4]))) + text[end:]
        elif what < 0.6:
            text = text[:at] + strange + text[at:]
        else:
            numbers = list(re.finditer(rb"[-\w.]+", text))
            if numbers:
                word = rng.choice(numbers)
                text = text[: word.start()] + strange + text[word.end() :]
    return text


def toml_of(table: Any) -> str:
    """A table as TOML, where TOML can say it; a tree that it cannot say is written as JSON, which is an attack too."""

    def text(value: Any) -> str:
        if isinstance(value, dict):
            return "{" + ", ".join(f"{json.dumps(str(k))} = {text(v)}" for k, v in value.items()) + "}"
        if isinstance(value, list):
            return "[" + ", ".join(map(text, value)) + "]"
        if isinstance(value, float):
            return repr(value)
        if isinstance(value, (bool, int, str)):
            return json.dumps(value)
        return json.dumps(str(value))

    if not isinstance(table, dict):
        return text(table)
    return "\n".join(f"{json.dumps(str(key))} = {text(value)}" for key, value in table.items()) + "\n"


# --- kinds of attacks


def options(attack: Attack) -> None:
    """Options of any verb: examples of its help with values made strange, options added and left out."""
    rng = attack.rng
    verb = rng.choice(MADE.verbs)
    words = (
        list(rng.choice(MADE.examples[verb]))
        if MADE.examples[verb] and rng.random() < 0.8
        else [verb, "llama-3-8b", "--on", "h100-sxm", "--gpus", "8"]
    )
    known = MADE.options_of[verb]
    for _ in range(rng.choice([1, 1, 2, 3])):
        what = rng.random()
        if what < 0.45 and known:
            name, is_switch = rng.choice(known)
            words += [name] if is_switch else [name, attack.value()]
        elif what < 0.85 and len(words) > 1:
            at = rng.randrange(1, len(words))
            words[at] = attack.value()
        elif what < 0.92 and len(words) > 2:
            del words[rng.randrange(1, len(words))]
        else:
            words.insert(rng.randrange(1, len(words) + 1), attack.value())
    if rng.random() < 0.3:
        words.append("--json")
    if words[0] == "plan" and "--time-limit" not in words:
        words += ["--time-limit", "10"]  # a search of a wide range takes as long as it is allowed, and shows how far it is
    attack.words = words


def configs(attack: Attack) -> None:
    """A config.json with fields changed."""
    rng = attack.rng
    tree = json.loads(rng.choice(MADE.configs).read_bytes())
    content = json.dumps(mutate_tree(tree, rng, rng.choice([1, 2, 4])), ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")
    if rng.random() < 0.2:
        content = mutate_text(content, rng, 2)
    name = attack.write("config.json", content)
    plan = ["--tp", "1", "--pp", "1", "--micro-batch-size", "1", "--zero", "1", "--recompute", "none"] if rng.random() < 0.95 else []
    attack.words = ["estimate", name, "--on", "h100-sxm", "--gpus", "8", *plan, *(["--json"] if rng.random() < 0.3 else [])]


def scripts(attack: Attack) -> None:
    """A launch script with words changed."""
    rng = attack.rng
    source = rng.choice(MADE.scripts)
    name = attack.write(f"run{source.suffix}", mutate_text(source.read_bytes(), rng, rng.choice([1, 2, 5])))
    attack.words = ["estimate", name, "--on", "h100-sxm", *(["--gpus", "64"] if rng.random() < 0.5 else [])]


def records(attack: Attack) -> None:
    """A catalogue record with values changed, in a folder of records."""
    rng = attack.rng
    source = rng.choice(MADE.records)
    kind, table = source.parent.name, tomllib.loads(source.read_text(encoding="utf-8"))
    content = toml_of(mutate_tree(table, rng, rng.choice([1, 1, 2, 4]))).encode("utf-8", "surrogatepass")
    if rng.random() < 0.2:
        content = mutate_text(source.read_bytes(), rng, 2)
    attack.write(f"c/{kind}/{source.name}", content)
    folder = str(attack.folder / "c")
    asked = [*MADE.plain] if rng.random() < 0.6 else ["llama-3-8b", "--on", "h100-sxm", "--gpus", "8", "--tp", "2", "--pp", "2"]
    if kind in ("accelerators", "models", "nodes", "fabrics", "frameworks", "grids", "optimizers"):
        option = {"accelerators": "--on", "models": "", "nodes": "--node", "fabrics": "--fabric", "frameworks": "--framework", "grids": "--grid",
                  "optimizers": "--optimizer"}[kind]  # fmt: skip
        asked = [source.stem, *asked[1:]] if not option else [*asked, option, source.stem]
    commands = [["catalog", "--catalog", folder, "check"], ["catalog", "--catalog", folder, "show", source.stem]]
    attack.words = rng.choice(commands) if rng.random() < 0.4 else ["estimate", *asked, "--catalog", folder]


def answers(attack: Attack) -> None:
    """A saved answer or diagnosis with values changed, where one is read."""
    rng = attack.rng
    name, tree = rng.choice(MADE.saved)
    content = json.dumps(mutate_tree(tree, rng, rng.choice([1, 2, 5]))).encode("utf-8", "surrogatepass")
    if rng.random() < 0.2:
        content = mutate_text(content, rng, 2)
    path = attack.write("saved.json", content)
    right = attack.write("right.json", json.dumps(tree))
    commands = [
        ["diff", path, right],
        ["diff", right, path, "--json"],
        ["estimate", "--plan", path],
        ["estimate", "--plan", path, "--gpus", "16"],
    ]
    if name == "diagnosis":
        commands = [["runs", "add", path], ["runs", "import", path], ["diff", path, path]]
    else:
        commands += [["diagnose", str(MADE.logs[0]), "--against", path], ["again", path], ["again", path, "--json"]]
    commands += [["figure", rng.choice(MADE.figures), path], ["figure", rng.choice(MADE.figures), path, "--json"]]
    commands += [["open", path, "--html", attack.output("report.html")]]
    attack.words = rng.choice(commands)


def reports(attack: Attack) -> None:
    """A report with bytes changed, or with another answer embedded, where one is read."""
    rng = attack.rng
    content = rng.choice(MADE.reports)
    if rng.random() < 0.5:
        start = content.index(b"{", content.index(b"application/json"))
        end = content.index(b"</script>", start)
        tree = mutate_tree(json.loads(content[start:end]), rng, rng.choice([1, 2, 5]))
        content = content[:start] + json.dumps(tree).encode() + content[end:]
    else:
        content = mutate_text(content, rng, rng.choice([1, 3, 8]))
    path = attack.write("report.html", content)
    attack.words = rng.choice([
        ["open", path, "--html", attack.output("again.html")], ["again", path], ["again", path, "--json"], ["figure", rng.choice(MADE.figures), path],
        ["estimate", "--plan", path],
    ])  # fmt: skip


def logs(attack: Attack) -> None:
    """A log, trace or timeline with bytes changed."""
    rng = attack.rng
    source = rng.choice(MADE.logs)
    name = attack.write(source.name, mutate_text(source.read_bytes(), rng, rng.choice([1, 3, 8])))
    attack.words = ["diagnose", name, *(["--json"] if rng.random() < 0.3 else [])]


QUESTION = {**PLAIN, "tokens": "1T", "seq_len": 4096, "price": 2.5, "margin": 0.05, "recompute": "none", "precision": "bf16"}
FLEET = {
    "days": 30, "power_limit": "1 MW", "pool": [{"on": "h100-sxm", "gpus": 64}],
    "job": [{"name": "a", "model": "llama-3-8b", "tokens": "10B", "gpus": [8]}, {"name": "b", "model": "llama-3-8b", "tokens": "10B", "gpus": [8]}],
}  # fmt: skip
SPACE = {"title": "mine", "tp": [1, 2], "pp": [1], "micro_batch_size": [1, 2], "zero": [1], "recompute": ["none"]}
RUN = {
    "id": "a", "measured_over_predicted": 1.1, "stack": "megatron", "device": "h100-sxm", "architecture": "hopper", "format": "bf16",
    "mixture": False, "adapters": False, "hybrid": False, "gpus": 8.0, "seq_len": 8192.0, "parameters": 8e9,
}  # fmt: skip
CORRECTION = {"label": "mine", "share": 0.8, "reach": 0.5, "stretch": 1.0, "run": [RUN, {**RUN, "id": "b", "gpus": 64.0}]}


def tomls(attack: Attack) -> None:
    """A question, a fleet, a space or a correction in TOML with values changed."""
    rng = attack.rng
    table, words = rng.choice([
        (QUESTION, ["estimate", "FILE"]), (QUESTION, ["plan", "FILE", "--time-limit", "2"]), (FLEET, ["fleet", "FILE"]),
        (SPACE, ["plan", *MADE.plain[:5], "--global-batch-size", "64", "--space", "FILE"]),
        (CORRECTION, ["estimate", *MADE.plain, "--correction", "FILE"]),
    ])  # fmt: skip
    content = toml_of(mutate_tree(table, rng, rng.choice([1, 1, 2, 4]))).encode("utf-8", "surrogatepass")
    if rng.random() < 0.3:
        content = mutate_text(content, rng, 2)
    name = attack.write("q.toml", content)
    attack.words = [name if word == "FILE" else word for word in words]


TABLES = [
    ("model,on,gpus,tp,pp,micro_batch_size,global_batch_size\nllama-3-8b,h100-sxm,8,1,1,1,64\nllama-3-8b,h100-sxm,16,2,1,1,64\n",
     ["estimate", "--rows", "FILE"]),
    ("size,time,allocated,reserved\n1,10ms,1GiB,2GiB\n2,21ms,2GiB,3GiB\n4,40ms,4GiB,5GiB\n", ["roofline", "--scaling", "FILE"]),
    ("name,operator,shape,dtype,count,measured\na,gemm,4096x4096x4096,bf16,2,1ms\nb,softmax,4096x4096,,,\n",
     ["roofline", "--shapes", "FILE", "--on", "h100-sxm"]),
    ("length,count\n100,5\n2000,7\n8000,1\n", ["estimate", *"llama-3-8b --on h100-sxm --gpus 8 --tp 2 --pp 1 --lengths".split(), "FILE"]),
    ("layer,expert,load\n0,0,5\n0,1,5\n0,2,5\n0,3,5\n0,4,5\n0,5,5\n0,6,5\n0,7,9\n",
     ["estimate", *"mixtral-8x7b --on h100-sxm --gpus 8 --tp 1 --pp 1 --ep 8 --expert-load".split(), "FILE"]),
    ("id,model,on,gpus,tp,pp,global_batch_size,step_time_s\na,llama-3-8b,h100-sxm,8,1,1,64,6.5\n", ["validate", "--mine", "FILE"]),
    ("hour,g\n" + "".join(f"{hour},{300 + hour}\n" for hour in range(24)),
     ["sites", *"llama-3-8b --on h100-sxm --gpus 8 --sites 2 --wan-bandwidth 10Gb/s --tokens 1T --carbon-profile".split(), "FILE"]),
]  # fmt: skip


def tables(attack: Attack) -> None:
    """A CSV with cells changed."""
    rng = attack.rng
    text, words = rng.choice(TABLES)
    if rng.random() < 0.7:
        cells = [line.split(",") for line in text.splitlines()]
        for _ in range(rng.choice([1, 2, 4])):
            line = rng.choice(cells)
            line[rng.randrange(len(line))] = attack.value()
        text = "\n".join(",".join(line) for line in cells) + "\n"
    name = attack.write("t.csv", mutate_text(text.encode("utf-8", "surrogatepass"), rng, rng.choice([0, 0, 1, 3])))
    attack.words = [name if word == "FILE" else word for word in words]


def python(attack: Attack) -> None:
    """Arguments of the library of any type."""
    rng = attack.rng
    verb = rng.choice(
        ["estimate", "estimate", "estimate", "plan", "compare", "solve", "roofline", "money", "goodput", "inference", "data", "diagnose"]
    )
    given: dict[str, Any] = dict(PLAIN) if rng.random() < 0.8 else {}
    if verb == "diagnose":
        given = {"paths": str(MADE.logs[0])}
    if verb not in ("estimate", "diagnose") and rng.random() < 0.5:
        given = {"model": "llama-3-8b", "on": "h100-sxm", "gpus": 8}
    strange = [*SCALARS, *NUMBERS, *TEXTS, object(), b"x", {1: 2}, {"x"}, print, 1j, range(3), (1, 2), [[1], [2, 3]], [8, 16], 10**5000]
    known = [name.removeprefix("--").replace("-", "_") for name, _ in MADE.options_of[verb]]
    for _ in range(rng.choice([1, 1, 2])):
        name = rng.choice([*known, *given, "catalog"])
        given[name] = rng.choice(strange)
    attack.call = (verb, given)


def files(attack: Attack) -> None:
    """A device, FIFO, folder, link or huge file where a file is expected, and the same as an output."""
    rng = attack.rng
    path = attack.folder / f"strange{rng.choice(['.toml', '.json', '.csv', '.sh', '.args', '.log', ''])}"
    kind = rng.choice(["fifo", "zero", "folder", "dangling", "loop", "null", "huge", "deep", "binary"])
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "huge":
        path.write_bytes(b"1," * 600_000)
    elif kind == "deep":
        path.write_bytes(b"[" * 100_000)
    elif kind == "binary":
        path.write_bytes(rng.randbytes(3000))
    else:
        path.symlink_to({"zero": "/dev/zero", "dangling": "gone", "loop": path.name, "null": "/dev/null"}[kind])
    name = str(path)
    llama = ["llama-3-8b", "--on", "h100-sxm", "--gpus", "8"]
    reads = [
        ["estimate", name, "--on", "h100-sxm", "--gpus", "8"], ["plan", name], ["estimate", "--rows", name], ["estimate", "--plan", name],
        ["plan", *llama, "--space", name], ["estimate", *llama, "--lengths", name], ["estimate", *llama, "--correction", name],
        ["estimate", "mixtral-8x7b", *llama[1:], "--expert-load", name], ["validate", "--mine", name], ["validate", "--fits", name],
        ["roofline", "--scaling", name], ["roofline", "--shapes", name, "--on", "h100-sxm"], ["fleet", name], ["diff", name, name],
        ["diagnose", name], ["runs", "add", name], ["runs", "import", name], ["runs", "list", "--store", name], ["estimate", *llama, "--catalog", name],
    ]  # fmt: skip
    attack.words = rng.choice(reads)
    if rng.random() < 0.25 and kind not in ("folder", "loop", "huge", "deep", "binary", "dangling"):
        attack.words = ["plan", *llama, "--global-batch-size", "64", "--tp", "2", "--pp", "1", "--top", "1", "--csv", name]


KINDS: dict[str, tuple[Callable[[Attack], None], float]] = {  # and how often each is drawn
    "options": (options, 0.28), "configs": (configs, 0.14), "scripts": (scripts, 0.1), "records": (records, 0.14), "answers": (answers, 0.08),
    "reports": (reports, 0.04), "logs": (logs, 0.06), "tomls": (tomls, 0.06), "tables": (tables, 0.06), "python": (python, 0.06), "files": (files, 0.02),
}  # fmt: skip


# --- one attack


class TooLongError(BaseException):
    """The attack used up its CPU time."""


def _too_long(*_: Any) -> None:
    raise TooLongError


def seen(folder: Path) -> dict[str, Any]:
    """What the files of a folder are: kind, permissions and content of each."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        content = path.read_bytes() if stat.S_ISREG(status.st_mode) else os.readlink(path) if stat.S_ISLNK(status.st_mode) else None
        found[str(path.relative_to(folder))] = (stat.S_IFMT(status.st_mode), content)
    return found


def make(seed: int, number: int, kinds: list[str], folder: Path) -> tuple[str, Attack]:
    """The attack of a number; its files are written into the folder."""
    rng = random.Random(f"{seed}/{number}")
    kind = rng.choices(kinds, [KINDS[name][1] for name in kinds])[0]
    attack = Attack(rng, folder)
    KINDS[kind][0](attack)
    return kind, attack


def run(attack: Attack) -> tuple[str, float]:
    """What is wrong with how an attack was answered, "" for nothing; and its CPU seconds."""
    from ironlaw.cli.main import main
    from ironlaw.errors import IronlawError

    before, started = seen(attack.folder), time.process_time()
    out, err = io.StringIO(), io.StringIO()
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    fault, status = "", 0
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            if attack.call is not None:
                import ironlaw

                verb, given = attack.call
                try:
                    getattr(ironlaw, verb)(**given)
                except IronlawError as error:
                    fault = "" if "\n" not in str(error) else "an error of several lines"
            else:
                status = main(list(attack.words))
    except TooLongError:
        fault = f"more than {SECONDS:g} CPU seconds"
    except BaseException as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        fault = f"{type(error).__name__}: {str(error)[:100]} at {place.filename.rpartition('ironlaw/')[2]}:{place.lineno}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
    return fault or wrong_with(attack, status, out.getvalue(), err.getvalue(), before), time.process_time() - started


def wrong_with(attack: Attack, status: int, out: str, err: str, before: dict[str, Any]) -> str:
    """What is wrong with an answer and with what it left behind."""
    if status not in STATUSES:
        return f"status {status}"
    if "Traceback" in err or "Traceback" in out:
        return "a traceback in the text"
    lines = [line for line in err.splitlines() if line.strip()]
    if status in (2, 3) and not out and len([line for line in lines if not re.match(r"ironlaw: run\.(sh|args): ", line)]) != 1:
        return f"status {status} with {len(lines)} lines of error"
    if max(map(len, lines), default=0) > 2100:
        return "a line of thousands of characters"
    if "\x1b" in out or "\x1b" in err:
        return "a control character is printed"
    if "--json" in attack.words and status in (0, 1) and not {"--help", "-h", "--help-all", "--describe-space"} & set(attack.words):
        try:
            json.loads(out, parse_constant=lambda word: (_ for _ in ()).throw(ValueError(word)))
        except ValueError as error:
            return f"no JSON: {error}"
    after = seen(attack.folder)
    if MARK in "".join(after) or Path(MARK).exists():
        return "something was executed"
    changed = [
        name
        for name in {*before, *after}
        if before.get(name) != after.get(name) and name not in attack.outputs and not name.startswith("store")
    ]
    return f"files changed: {changed[:3]}" if changed else ""


def work(pipe: Any, seed: int, kinds: list[str]) -> None:
    """Run attacks by their number until the pipe is closed."""
    prepare()
    signal.signal(signal.SIGPROF, _too_long)
    with open("/proc/self/statm", encoding="ascii") as file:
        size = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, resource.RLIM_INFINITY))
    parent = Path(tempfile.mkdtemp(prefix="attack-"))
    os.chdir(parent)
    os.environ |= {"HOME": str(parent), "XDG_DATA_HOME": str(parent), "COLUMNS": "100"}
    try:
        while (number := pipe.recv()) is not None:
            folder = parent / "files"
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            os.environ["IRONLAW_STORE"] = str(folder / "store.sqlite")
            kind, attack = make(seed, number, kinds, folder)
            fault, seconds = run(attack)
            sys.set_int_max_str_digits(0)
            said = repr(attack.call) if attack.call is not None else shlex.join(["ironlaw", *attack.words]).replace(str(folder), "FILES")
            sys.set_int_max_str_digits(4300)
            pipe.send((number, kind, fault, seconds, said[:600].encode("utf-8", "replace").decode()))
            forget()
    finally:
        shutil.rmtree(parent, ignore_errors=True)


def forget() -> None:
    """Forget what was remembered of folders of records, which every attack makes anew."""
    from ironlaw.catalog import load

    for cached in (load._record, load.aliases, load._hash_of):
        cached.cache_clear()


def prepare() -> None:
    """Read once what attacks are made of: verbs with their options and examples, files of tests, and answers to save."""
    import ironlaw
    from ironlaw.catalog import load
    from ironlaw.cli import main as cli
    from ironlaw.cli.main import command_of
    from ironlaw.figures.table import FIGURES

    named = cli.VERBS
    asked = [verb for verb in named if verb not in ("completion", "validate", "schema", "serve", "open", "site")]
    MADE.verbs = [*asked, "estimate", "estimate", "estimate", "roofline", "solve"]
    MADE.options_of = {
        verb: [(one.opts[-1], bool(getattr(one, "is_flag", False))) for one in command_of(verb).params if one.opts[-1].startswith("--")]
        for verb in named
    }
    MADE.examples = {verb: _examples(named[verb][0]) for verb in named}
    MADE.configs = [path for path in sorted((DATA / "hf_configs").rglob("*.json")) if path.name != "truncated.json"]
    MADE.scripts = [path for path in sorted((DATA / "megatron").rglob("*")) if path.suffix in (".sh", ".args")]
    MADE.records = sorted(load.SHIPPED.glob("*/*.toml"))
    logs = [path for path in sorted((DATA / "measured").rglob("*")) if path.is_file() and path.suffix != ".md"]
    MADE.logs = sorted((path for path in logs if path.stat().st_size < 100_000), key=lambda path: path.name != "nanogpt_a100.log")
    small = {"model": "llama-3-8b", "on": "h100-sxm", "gpus": 8}
    saved = [
        ("estimate", ironlaw.estimate(**PLAIN).to_dict()), ("estimate", ironlaw.estimate(**small).to_dict(explain=True)),
        ("roofline", ironlaw.roofline(**PLAIN).to_dict()), ("diagnosis", ironlaw.diagnose(str(MADE.logs[0])).data()),
    ]  # fmt: skip
    MADE.saved = [(name, json.loads(json.dumps(tree, default=str))) for name, tree in saved]
    MADE.figures = list(FIGURES)
    MADE.reports = [_report(["estimate", *MADE.plain]), _report(["diagnose", str(MADE.logs[0])])]


def _report(words: list[str]) -> bytes:
    """The report of an answer."""
    from ironlaw.cli.main import main as answer

    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        path = Path(folder) / "report.html"
        answer([*words, "--html", str(path)])
        return path.read_bytes()


def _examples(module: str) -> list[list[str]]:
    """The examples of a verb's help, as words."""
    found = importlib.import_module(f"ironlaw.{module}")
    text = str(getattr(found, "EXAMPLES", "") or getattr(found, "_EXAMPLES", ""))
    lines = [line.strip() for line in text.splitlines() if line.strip().startswith("ironlaw ")]
    listed = []
    for line in lines:
        with contextlib.suppress(ValueError):
            listed.append(shlex.split(line.partition("   (")[0])[1:])
    return listed


# --- many attacks


def answered(pipe: Any, process: int) -> bool:
    """Wait for the answer of a process; False where it neither answers nor computes. A busy machine makes nothing fail."""

    def cpu() -> int:
        fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])

    last, since = -1, time.monotonic()
    while not pipe.poll(1.0):
        with contextlib.suppress(OSError):
            if (now := cpu()) != last:
                last, since = now, time.monotonic()
        if time.monotonic() - since > SILENT:
            return False
    return True


def attack_all(numbers: Sequence[int], seed: int, kinds: list[str], show: Callable[[str], None] = print) -> Counter[str]:
    """Run attacks, show each failure, and count attacks and failures by kind."""
    counted: Counter[str] = Counter()
    total, slowest, process, pipe = 0.0, (0.0, ""), None, None
    for number in numbers:
        if process is None:
            pipe, other = get_context("spawn").Pipe()
            process = get_context("spawn").Process(target=work, args=(other, seed, kinds), daemon=True)
            process.start()
            other.close()
        assert pipe is not None
        pipe.send(number)
        kind, fault, seconds, said = "unknown", "", 0.0, ""
        try:
            if answered(pipe, process.pid):
                _, kind, fault, seconds, said = pipe.recv()
            else:
                fault = f"waits: no CPU used in {SILENT:g} s"
        except EOFError:
            fault = "the process died"
        counted[kind] += 1
        total += seconds
        slowest = max(slowest, (seconds, f"{number} {said}"))
        if fault:
            counted[f"{kind} failed"] += 1
            show(f"{number} {kind}: {fault}\n    {said}")
            process.kill()
            process.join()
            process = None
        if number and number % 1000 == 0:
            show(f"-- {number} attacks, {total:.0f} CPU seconds, slowest {slowest[0]:.1f} s: {slowest[1][:150]}")
            slowest = (0.0, "")
    if process is not None and pipe is not None:
        pipe.send(None)
        process.join(10)
    return counted


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=None, help="default: drawn, and printed")
    parser.add_argument("--kind", default=",".join(KINDS), help=f"of {', '.join(KINDS)} (default: all)")
    parser.add_argument("--first", type=int, default=0, help="number of the first attack")
    given = parser.parse_args()
    seed = random.SystemRandom().randrange(10**6) if given.seed is None else given.seed
    print(f"seed {seed}", flush=True)
    counted = attack_all(range(given.first, given.first + given.count), seed, given.kind.split(","), lambda text: print(text, flush=True))
    for name in sorted(counted):
        print(f"{name:<20} {counted[name]:>7,}")
    failed = sum(number for name, number in counted.items() if name.endswith("failed"))
    print(f"{sum(counted.values()) - failed:,} attacks, {failed:,} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
