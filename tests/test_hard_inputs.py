"""Inputs that ended in a traceback, a wait without a word or a false answer: each kind whole, in every place where it can be given."""

from __future__ import annotations

import contextlib
import copy
import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import ironlaw
from ironlaw.catalog import load
from ironlaw.catalog.records import KINDS
from ironlaw.cli import main as cli
from ironlaw.errors import CatalogError, IronlawError, one_line
from ironlaw.launch.shell import read_command
from ironlaw.measure.read.chrome import _device
from ironlaw.question.options import OPTIONS
from ironlaw.questions.roofline.sized_times import SizedTimes, _merge
from ironlaw.search import answer as search_answer

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))
from attack import toml_of

LLAMA = {"model": "llama-3-8b", "on": "h100-sxm", "gpus": 8}
HUGE = 10**400  # larger than any float
LONG = 10**5000  # too long to print


def refused(status: int, out: str, err: str) -> None:
    """An error of one line, and nothing printed before it."""
    assert (
        status in (2, 3)
        and (out == "" or "code" in json.loads(out)["error"])
        and err.startswith("ironlaw: ")
        and err.count("\n") == 1
        and len(err) < 2100
    )


# --- numbers of hundreds of digits, null characters, nan, other types


IMPOSSIBLE = (HUGE, -HUGE, LONG, [HUGE], {"a": HUGE}, "a\0b", ["\0"], [[[[[[[[[[1]]]]]]]]]], "x" * 300_000)
WORDS = r"digits|null character|nested deeper|characters"
ANY = (float("nan"), float("inf"), -float("inf"), 1e308, -1, object(), b"x", {1: 2}, {"x"}, print, 1j, "", " ", [], [None], [[1], [2, 3]])


@pytest.mark.parametrize("option", [name for name in OPTIONS if name not in LLAMA])
def test_every_option_refuses_what_no_option_can_have(option):
    for value in IMPOSSIBLE:
        with pytest.raises(IronlawError, match=WORDS):
            ironlaw.estimate(**LLAMA, **{option: value})


@pytest.mark.parametrize("option", OPTIONS)
def test_every_option_answers_or_refuses_values_of_any_type(option):
    for value in ANY:
        try:
            ironlaw.estimate(**{**LLAMA, option: value})
        except IronlawError as error:
            assert "\n" not in str(error)


@pytest.mark.parametrize("option", ["price", "pue", "margin", "nic_bandwidth", "mttf", "grid", "tokens", "tp", "seq_len"])
def test_whole_numbers_of_a_question_file_may_have_any_length(ask, tmp_path, option):
    path = tmp_path / "q.toml"
    for digits in (310, 400, 4000, 5000):
        path.write_text(f'model = "mixtral-8x7b"\non = "h100-sxm"\ngpus = 8\n{option} = {"9" * digits}\n', encoding="utf-8")
        refused(*ask("estimate", path))


@pytest.mark.parametrize("option", ["correction", "space", "lengths", "expert_load", "model", "on", "framework", "precision", "recompute"])
def test_a_null_character_in_a_file_of_questions_is_an_error_of_its_line(ask, tmp_path, option):
    path = tmp_path / "q.toml"
    path.write_text(
        'model = "llama-3-8b"\non = "h100-sxm"\ngpus = 8\n'.replace(f"{option} =", "#") + f'{option} = "a\\u0000b"\n', encoding="utf-8"
    )
    refused(*ask("estimate", path))
    table = tmp_path / "q.csv"
    columns = list(dict.fromkeys(["model", "on", "gpus", option]))
    right = {"model": "llama-3-8b", "on": "h100-sxm", "gpus": "8"}
    lines = [",".join(cells.get(name, "") for name in columns) for cells in (right, {**right, option: "a\0b"})]
    table.write_text("\n".join([",".join(columns), *lines]) + "\n", encoding="utf-8")
    status, out, _ = ask("estimate", "--rows", table)
    assert status == 2 and out.startswith("2 ") and "null character" in out.splitlines()[1]  # the right line has its answer


@pytest.mark.parametrize("digits", [310, 4000])
def test_a_number_of_a_record_or_a_fleet_may_have_any_length(ask, tmp_path, digits):
    number = "9" * digits
    fleet = tmp_path / "f.toml"
    fleet.write_text(
        f'power_limit = {number}\n[[pool]]\non = "h100-sxm"\ngpus = 8\n[[job]]\nname = "a"\nmodel = "llama-3-8b"\n', encoding="utf-8"
    )
    refused(*ask("fleet", fleet))
    loads = tmp_path / "l.json"
    loads.write_text(f"[{number},1,1,1,1,1,1,1]", encoding="utf-8")
    refused(*ask("estimate", "mixtral-8x7b", "--on", "h100-sxm", "--gpus", "8", "--expert-load", loads))


STRANGE = [
    3,
    10**400,
    "x",
    "",
    True,
    [],
    [[]],
    [3],
    ["x", 3],
    [{}],
    {},
    {"a": 3},
    {"a": [{}]},
    {"a": {}},
    [[{"a": [1]}]],
    1e400,
    float("nan"),
]


@pytest.mark.parametrize("kind", KINDS)
def test_every_key_of_every_kind_of_record_is_read_or_refused_whatever_its_value(kind):
    """Also where a list or a table of tables has an item that is no table."""
    name = load.names(kind)[0]
    table = load.read_file(load.SHIPPED / kind / f"{name}.toml")
    for key in KINDS[kind].fields:
        for value in STRANGE:
            for source in (table.get("sources", {}), {}):
                try:
                    load.decode(kind, name, {**table, key: value, "sources": source}, "made.toml")
                except CatalogError as error:
                    assert str(error).startswith("made.toml")


@pytest.mark.parametrize("name", ["llama-3-8b", "deepseek-v2-lite", "nemotron-h-8b", "gemma-3-4b"])
def test_a_model_with_any_size_in_its_record_is_answered_or_refused(tmp_path, name):
    """An `intermediate_size` of 0 gave no number of parameters, and a traceback behind it."""
    path = tmp_path / "models" / f"{name}.toml"
    path.parent.mkdir()
    shipped = (load.SHIPPED / "models" / path.name).read_text(encoding="utf-8")
    sizes = [line for line in shipped.splitlines() if line.partition(" = ")[2].isdecimal()]
    plan = {"tp": 1, "pp": 1, "zero": 1, "micro_batch_size": 1, "recompute": "none"}
    for line in sizes:
        for value in ("0", "1", "999999999999999"):
            path.write_text(shipped.replace(line, f"{line.partition(' = ')[0]} = {value}", 1), encoding="utf-8")
            load._record.cache_clear()
            with contextlib.suppress(IronlawError):
                ironlaw.estimate(name, on="h100-sxm", gpus=8, catalog=str(tmp_path), **plan).to_json()


USED = {  # records of each kind that a question reads, and the question
    "accelerators": ("h100-sxm", {}), "nodes": ("dgx-h100", {}), "fabrics": ("infiniband-ndr", {}), "models": ("deepseek-v2-lite", {}),
    "frameworks": ("megatron", {}), "optimizers": ("muon-moonlight", {"optimizer": "muon-moonlight"}),
    "precisions": ("fp8", {"precision": "fp8"}), "objectives": ("dpo", {"objective": "dpo"}), "systems": ("default", {"tokens": "1B"}),
    "calibration": ("h100-sxm", {}), "prices": ("h100-sxm", {"tokens": "1B"}), "grids": ("france", {"grid": "france", "tokens": "1B"}),
    "bands": ("default", {}), "nodes of a torus": ("trn2-ultra", {"on": "trainium-2", "framework": "generic"}),
}  # fmt: skip


def _texts(tree, at=()):
    """The paths of the texts of a record but those of its sources; of records and lists of one form the first."""
    seen = set()
    for path in _all_texts(tree, at):
        form = (path[0], len(path), path[-1])
        if form not in seen:
            seen.add(form)
            yield path


def _all_texts(tree, at):
    for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree):
        if isinstance(value, (dict, list)) and key != "sources":
            yield from _all_texts(value, (*at, key))
        elif isinstance(value, str) and key not in ("source", "note", "title"):
            yield (*at, key)


@pytest.mark.parametrize(
    "word", ["0.5", *(pytest.param(word, marks=pytest.mark.slow) for word in ("", "llama", "fp8", "0", "1e-30", "1e15", "7x9"))]
)
@pytest.mark.parametrize("kind", USED)
def test_a_record_with_any_word_is_answered_or_refused(tmp_path, kind, word):
    """A precision of a product of an optimizer that nobody knows ended in a KeyError."""
    name, more = USED[kind]
    kind = kind.partition(" ")[0]
    table = load.read_file(load.SHIPPED / kind / f"{name}.toml")
    path = tmp_path / kind / f"{name}.toml"
    path.parent.mkdir()
    asked = {
        "model": "deepseek-v2-lite",
        "on": "h100-sxm",
        "gpus": 8,
        "tp": 2,
        "pp": 1,
        "zero": 1,
        "micro_batch_size": 1,
        "framework": "megatron",
    }
    for *place, last in _texts(table):
        changed = copy.deepcopy(table)
        owner = changed
        for key in place:
            owner = owner[key]
        owner[last] = word
        path.write_text(toml_of(changed), encoding="utf-8")
        load._record.cache_clear()
        with contextlib.suppress(IronlawError):
            ironlaw.estimate(**{**asked, **more}, catalog=str(tmp_path)).to_json()


def test_a_name_too_long_for_a_file_is_refused_wherever_a_file_may_be_named():
    for option in ("correction", "space", "lengths", "expert_load", "model", "catalog", "grid", "cp_inner"):
        for verb in (ironlaw.estimate, ironlaw.search):
            with pytest.raises(IronlawError):
                verb(**{**LLAMA, option: "9" * 3000})
    with pytest.raises(IronlawError):
        ironlaw.diagnose("9" * 3000)
    with pytest.raises(IronlawError):
        ironlaw.sites(**LLAMA, sites=2, wan_bandwidth="10Gb/s", tokens="1T", carbon_profile="9" * 3000)


@pytest.mark.parametrize("mfu", ["1e-308", "5e-324", "1e-29"])
def test_a_share_next_to_nothing_asks_for_no_infinite_number_of_accelerators(ask, mfu):
    refused(*ask("solve", *"--parameters 30B --on h100-sxm --tokens 2T --deadline 30 --price 4 --mfu".split(), mfu))


@pytest.mark.parametrize("given", [(1, 2, 3), 5, "1", object(), [[1, 2], 3], [(1, None), (2, 3)]])
def test_measured_times_of_another_form_are_refused(given):
    with pytest.raises(IronlawError):
        ironlaw.roofline(scaling=[given] if isinstance(given, tuple) else given, on="h100-sxm")


@pytest.mark.parametrize("value", [5, [5], {1: 2}, object(), "/nowhere", [b"x"]])
@pytest.mark.parametrize("verb", ["estimate", "search", "roofline", "compare"])
def test_a_catalogue_that_is_no_folder_is_refused(verb, value):
    with pytest.raises(IronlawError, match="catalog"):
        getattr(ironlaw, verb)(**LLAMA, catalog=value)


FILES = (
    {"paths": 5}, {"paths": [5]}, {"paths": "a\0b"}, {"paths": "x", "against": 5}, {"paths": "x", "patterns": 5}, {"paths": []},
    {"paths": "x", "question": 5}, {"paths": "x", "kernel_names": [None]},
)  # fmt: skip


@pytest.mark.parametrize("given", FILES)
def test_files_of_another_type_are_refused(given):
    with pytest.raises(IronlawError):
        ironlaw.diagnose(**given)


def test_a_folder_of_the_environment_that_does_not_exist_is_refused(ask, monkeypatch, tmp_path):
    for name in (str(tmp_path / "nowhere"), os.devnull):
        monkeypatch.setenv("IRONLAW_CATALOG", name)
        status, out, err = ask("estimate", "llama-3-8b", "--on", "h100-sxm", "--gpus", "8")
        assert (status, out) == (3, "") and f"IRONLAW_CATALOG={name}: no such folder" in err


def test_a_message_is_one_short_line_whatever_it_quotes():
    assert one_line("a\nb\x1b[31m\r") == "a b?[31m?"
    assert len(str(IronlawError("x" * 10**6))) == 2000 and str(IronlawError("x" * 10**6)).endswith("x" * 500)


def test_nothing_that_a_file_says_steers_the_terminal(ask, tmp_path):
    """Colours, titles of windows, deleted lines and text from right to left, from saved answers, records, tables and logs."""
    strange = "a\x1b[2J\x1b]0;t\x07\x9b31m\u202eb\r"
    right = json.loads(ask("roofline", *"gpt-2 --on h100-sxm --gpus 8 --tp 1 --pp 1 --micro-batch-size 1 --json".split())[1])
    for name, tree in (("right", right), ("strange", {**right, strange: [{strange: strange}]})):
        (tmp_path / f"{name}.json").write_text(json.dumps(tree), encoding="utf-8")
    record = tmp_path / "c" / "grids" / "mine.toml"
    record.parent.mkdir(parents=True)
    shipped = (load.SHIPPED / "grids" / f"{load.names('grids')[0]}.toml").read_text(encoding="utf-8")
    title = next(line for line in shipped.splitlines() if line.startswith("title"))
    record.write_text(shipped.replace(title, f"title = {json.dumps(strange)}"), encoding="utf-8")
    table = tmp_path / "q.csv"
    table.write_bytes(f'id,model,on,gpus\n"{strange}",gpt-2,h100-sxm,8\n'.encode())
    for words in (
        ("diff", tmp_path / "right.json", tmp_path / "strange.json"),
        ("catalog", "--catalog", tmp_path / "c", "show", "mine"),
        ("catalog", "--catalog", tmp_path / "c", "list", "grids"),
        ("estimate", "--rows", table),
        ("estimate", "--rows", table, "--format", "csv"),
    ):
        status, out, err = ask(*words)
        assert status in (0, 1) and "a?[2J?]0;t?" in out, (words, out, err)
        assert not set("\x1b\x07\x9b\u202e\r") & set(out + err), words


def test_a_number_of_a_saved_answer_larger_than_any_float_is_refused(ask, tmp_path):
    right = ask("estimate", *"gpt-2 --on h100-sxm --gpus 8 --tp 1 --pp 1 --micro-batch-size 1 --json".split())[1]
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    good.write_text(right, encoding="utf-8")
    for number in ("9" * 400, "-" + "9" * 4000, "1e400", "9" * 5000):
        bad.write_text(right.replace('"step": {', '"step": {"x": ' + number + ",", 1), encoding="utf-8")
        for words in (("diff", good, bad), ("diff", bad, good, "--json"), ("estimate", "--plan", bad), ("runs", "add", bad)):
            refused(*ask(*words))


def test_a_trace_may_name_its_devices_by_anything():
    listed = [{"id": 5, "name": ["x"]}, {"id": 6, "name": {"a": 1}}]
    assert _device({"deviceProperties": listed}, 7) == {}
    assert _device({"deviceProperties": listed[:1]}, 7) == {"device": listed[0]}


# --- work that grew with the square of a file


def cpu() -> float:
    return time.process_time()


def test_long_launch_scripts_take_a_time_that_grows_with_their_length():
    """Each is below the limit of a million characters; at the square of it the first would copy 160 GB."""
    started = cpu()
    assert len(read_command("--x" + " 1" * 200_000)["--x"]) == 200_000
    assert read_command("--x" + " =(" * 50_000 + "1") is not None
    with pytest.raises(IronlawError, match="too often"):
        read_command("A=" + "x" * 500_000 + "\n" + "A+=1\n" * 90_000 + "python t.py --x $A")
    assert cpu() - started < 20.0


@pytest.mark.parametrize("text", ["[0]" + "+[0]" * 200_000, "(" * 400_000, "[" * 400_000, "[0]*2" + "*2" * 200_000, "[" + "0," * 200_000])
def test_long_lists_of_layers_are_refused_in_a_short_line(ask, tmp_path, text):
    path = tmp_path / "run.sh"
    sizes = "--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length 4096 --max-position-embeddings 4096"
    batch = "--micro-batch-size 1 --global-batch-size 64 --num-experts 8"
    path.write_text(f"python pretrain_gpt.py {sizes} {batch} --moe-layer-freq '{text}'\n", encoding="utf-8")
    started = cpu()
    status, out, err = ask("estimate", path, "--on", "h100-sxm", "--gpus", "8")
    refused(status, out, err.splitlines(keepends=True)[-1])
    assert "--moe-layer-freq" in err and cpu() - started < 20.0


def test_many_times_of_one_size_are_joined_once():
    points = [SizedTimes(size, (0.1,)) for size in (1.0, 2.0) for _ in range(100_000)]
    started = cpu()
    assert [len(point.times) for point in _merge(points)] == [100_000, 100_000]
    assert cpu() - started < 5.0


def test_many_strange_columns_are_one_line_or_few(ask, tmp_path):
    path = tmp_path / "q.csv"
    path.write_text("model,on,gpus," + ",".join(f"global_batch_siz{i}" for i in range(900)) + "\nllama-3-8b,h100-sxm,8\n", encoding="utf-8")
    status, _, err = ask("estimate", "--rows", path)
    assert status == 0 and err.count("\n") == 9 and "and 892 more such columns" in err
    path.write_text("model,on,gpus," + ",".join(f"c{i}" for i in range(20_000)) + "\nllama-3-8b,h100-sxm,8\n", encoding="utf-8")
    started = cpu()
    refused(*ask("estimate", "--rows", path))
    assert cpu() - started < 20.0


def test_an_expert_that_the_model_lacks_is_refused_before_its_row_is_made(ask, tmp_path):
    path = tmp_path / "l.csv"
    path.write_text("layer,expert,load\n" + "".join(f"{layer},999999,1\n" for layer in range(1000)), encoding="utf-8")
    status, out, err = ask("estimate", "mixtral-8x7b", "--on", "h100-sxm", "--gpus", "8", "--expert-load", path)
    refused(status, out, err)
    assert "line 2: expert 999999" in err and "8 experts" in err


def test_a_correction_with_a_name_of_thousands_of_characters_is_refused(ask, tmp_path):
    run = 'id = "a"\nmeasured_over_predicted = 1.0\ndevice = "d"\narchitecture = "a"\nformat = "bf16"\nmixture = false\nadapters = false\n'
    run += "hybrid = false\ngpus = 8.0\nseq_len = 8192.0\nparameters = 8e9\n"
    path = tmp_path / "c.toml"
    path.write_text(f'share = 0.8\nreach = 0.5\nstretch = 1.0\n[[run]]\nstack = "{"x" * 300_000}"\n{run}', encoding="utf-8")
    status, out, err = ask("estimate", "llama-3-8b", "--on", "h100-sxm", "--gpus", "8", "--correction", path)
    refused(status, out, err)
    assert "stack of run 1" in err and "at most 200 characters" in err


def test_rows_without_an_answer_are_counted_on_standard_error(ask, tmp_path):
    """A status of 2 with nothing on standard error: a script that keeps standard output saw no reason."""
    path = tmp_path / "q.csv"
    path.write_text("model,on,gpus\nnot-a-model,h100-sxm,8\ngpt-2,h100-sxm,8\ngpt-2,not-a-chip,8\n", encoding="utf-8")
    for form in ("table", "json", "csv"):
        status, out, err = ask("estimate", "--rows", path, "--format", form)
        assert status == 2 and "not-a-chip" in out
        assert err.startswith("ironlaw: q.csv: 2 of 3 rows cannot be answered; the first is line 2: ") and "not-a-model" in err


# --- the order of options


@pytest.mark.parametrize("words", [("estimate", "--tp", "2"), ("plan", "--tp", "2"), ("roofline", "--tp", "2"), ("compare",)])
def test_one_question_has_one_answer_however_its_options_are_ordered(ask, words):
    def data(*options):
        tree = json.loads(ask(words[0], "llama-3-8b", *options, "--json")[1])
        for key in ("seconds", "space", "search"):
            tree.pop(key, None)
        return json.dumps(tree)

    options = [words[1:], ("--on", "h100-sxm"), ("--gpus", "8"), ("--seq-len", "4096")]
    first, second = (data(*(word for option in order for word in option)) for order in (options, options[::-1]))
    assert len(first) == len(second)
    assert [a for a, b in zip(first, second, strict=True) if a != b] == []


# --- stopped by hand


def test_a_search_stopped_before_its_first_plan_has_no_answer(ask, monkeypatch):
    """It said "no legal plan", and left with the status of the answer no."""

    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(search_answer.Setting, "run", stop)
    status, out, err = ask("plan", "llama-3-8b", "--on", "h100-sxm", "--gpus", "8", "--global-batch-size", "64")
    assert (status, out, err.strip()) == (130, "", "ironlaw: stopped")


def test_a_search_stopped_later_answers_with_what_it_found(ask, monkeypatch):
    real, calls = search_answer.Setting.run, []

    def stop_second(self, go_on):
        if calls:
            raise KeyboardInterrupt
        calls.append(1)
        return real(self, go_on)

    monkeypatch.setattr(search_answer.Setting, "run", stop_second)
    status, out, _ = ask("plan", "llama-3-8b", "--on", "h100-sxm", "--gpus", "8,16", "--global-batch-size", "64")
    assert status == 0 and "8 x" in out


@pytest.mark.parametrize(("terminal", "seconds", "says"), [(True, 0.3, "still computing"), (True, 0.0, ""), (False, 0.3, "")])
def test_a_long_wait_is_announced_on_a_terminal(monkeypatch, capsys, terminal, seconds, says):
    monkeypatch.setattr(cli, "PATIENCE", 0.1)
    monkeypatch.setattr(cli.cli, "main", lambda *_, **__: time.sleep(seconds))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    assert cli.main(["estimate"]) == 0
    out, err = capsys.readouterr()
    assert out == "" and (says in err if says else err == "")


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0.05, 0.2, 0.4, 0.7, 1.0, 1.3, 2.0])
def test_a_search_that_is_interrupted_never_says_no(seconds):
    words = ["plan", "llama-3-70b", "--on", "h100-sxm,a100-sxm-80gb", "--gpus", "64..512"]
    child = subprocess.Popen([sys.executable, "-m", "ironlaw", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    time.sleep(seconds)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=120)
    starting = "Traceback" in err and "ironlaw" not in err.replace("python -m ironlaw", "")  # Python itself was starting
    assert (
        starting or child.returncode == -signal.SIGINT or (child.returncode, out) == (130, "") or (child.returncode == 0 and "fits" in out)
    ), err


def test_a_closed_standard_output_is_named():
    child = subprocess.run(["bash", "-c", f"{sys.executable} -m ironlaw catalog list >&-"], capture_output=True, text=True, check=False)
    assert (child.returncode, child.stderr) == (3, "ironlaw: standard output is closed: nothing can be printed\n")


def test_wherever_python_starts_with_few_open_files_so_does_the_command(tmp_path):
    """With four open files Python ends in a traceback of its own before any module of the package is read."""

    def run(most: int, *words: str) -> subprocess.CompletedProcess[str]:
        def limit() -> None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))

        return subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False, preexec_fn=limit)

    fewest = next(most for most in range(3, 20) if run(most, "-c", "").returncode == 0)
    asked = ("-m", "ironlaw", "estimate", "llama-3-8b", "--on", "h100-sxm", "--gpus", "8", "--short")
    assert run(fewest, *asked).returncode == 0
    left = run(fewest, "-m", "ironlaw", "runs", "list", "--store", str(tmp_path / "runs.sqlite"))
    assert left.returncode in (0, 3) and left.stderr.count("\n") <= 1


@pytest.mark.parametrize(
    ("file", "said"), [(".", "a folder, not a file"), ("/", "a folder, not a file"), ("", "the name of the file is empty")]
)
def test_a_table_that_cannot_be_written_is_refused_before_the_search(ask, file, said):
    """A folder ended in a traceback after the whole search; an empty name wrote nothing and said nothing."""
    status, out, err = ask("plan", "gpt-2", "--on", "h100-sxm", "--gpus", 1, "--csv", file)
    assert (status, out) == (3, "") and said in err


@pytest.mark.parametrize(
    "call",
    [
        lambda: ironlaw.roofline(scaling=[(1, 2, 3)]),
        lambda: ironlaw.roofline(scaling=5),
        lambda: ironlaw.diagnose(5),
        lambda: ironlaw.estimate("gpt-2", on="h100-sxm", gpus=1, catalog=5),
    ],
)
def test_arguments_of_a_wrong_type_are_errors_of_the_package(call):
    with pytest.raises(IronlawError, match=r"scaling|paths|catalog"):
        call()


@pytest.mark.parametrize("model", [0, 3.5, [1], b"x", print])
def test_a_model_that_is_no_name_is_refused_by_every_verb(model):
    log = str(Path(__file__).parent / "data/measured/nanogpt_a100.log")
    for ask in (lambda: ironlaw.estimate(model, on="h100-sxm", gpus=8), lambda: ironlaw.diagnose(log, model=model)):
        with pytest.raises(IronlawError, match="must be a name"):
            ask()


def test_a_path_is_a_name():
    by_path, by_name = (ironlaw.estimate(name, on="h100-sxm", gpus=1) for name in (Path("gpt-2"), "gpt-2"))
    assert by_path.step_seconds[0] == by_name.step_seconds[0]
