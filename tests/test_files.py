"""One opener and one writer for every file that a user names: one line names what cannot be read, and nothing is replaced by chance."""

from __future__ import annotations

import ast
import os
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import ironlaw
from ironlaw import files
from ironlaw.errors import InputError

ROOT = Path(ironlaw.__file__).parent
DATA = Path(__file__).parent / "data"

# --- what a name may be


def _fifo(path):
    os.mkfifo(path)


def _endless(path):
    path.symlink_to("/dev/zero")


def _silent(path):
    path.symlink_to("/dev/null")


def _folder(path):
    path.mkdir()


def _dangling(path):
    path.symlink_to("gone")


def _loop(path):
    path.symlink_to(path.name)


def _latin(path):
    path.write_bytes(b"caf\xe9")


def _utf16(path):
    path.write_bytes("model,on\n".encode("utf-16"))


STRANGE = {
    "fifo": (_fifo, "a FIFO to which no program writes"),
    "endless device": (_endless, "a device, not a file"),
    "empty device": (_silent, "a device, not a file"),
    "folder": (_folder, "a folder, not a file"),
    "dangling link": (_dangling, "No such file"),
    "link to itself": (_loop, "cannot be read"),
}
PLAIN = ("diagnose", "diagnose log", "--against", "--patterns", "--kernel-names", "runs add", "runs import")  # take no pipes
NO_TEXT = {"latin-1": (_latin, "byte 3 is not UTF-8"), "utf-16": (_utf16, "UTF-16")}

LLAMA = ("llama-3-8b", "--on", "h100-sxm", "--gpus", "8")
READ = {  # every option that names a file, and the suffix that makes it one; {} is the file
    "estimate q.toml": (("estimate", "{}"), ".toml"),
    "estimate run.sh": (("estimate", "{}", "--on", "h100-sxm"), ".sh"),
    "estimate run.args": (("estimate", "{}", "--on", "h100-sxm"), ".args"),
    "estimate config.json": (("estimate", "{}", "--on", "h100-sxm", "--gpus", "8"), ".json"),
    "plan q.toml": (("plan", "{}"), ".toml"),
    "--rows": (("estimate", "--rows", "{}"), ".csv"),
    "--plan": (("estimate", *LLAMA, "--plan", "{}"), ".json"),
    "--space": (("plan", *LLAMA, "--space", "{}"), ".toml"),
    "--lengths csv": (("estimate", *LLAMA, "--lengths", "{}"), ".csv"),
    "--lengths json": (("estimate", *LLAMA, "--lengths", "{}"), ".json"),
    "--lengths jsonl": (("estimate", *LLAMA, "--lengths", "{}"), ".jsonl"),
    "--expert-load csv": (("estimate", "mixtral-8x7b", "--on", "h100-sxm", "--gpus", "8", "--expert-load", "{}"), ".csv"),
    "--expert-load json": (("estimate", "mixtral-8x7b", "--on", "h100-sxm", "--gpus", "8", "--expert-load", "{}"), ".json"),
    "--correction": (("estimate", *LLAMA, "--correction", "{}"), ".toml"),
    "--mine": (("validate", "--mine", "{}"), ".csv"),
    "--runs": (("validate", "--runs", "{}"), ".csv"),
    "--fits": (("validate", "--fits", "{}"), ".csv"),
    "--peaks": (("validate", "--memory", "--peaks", "{}"), ".csv"),
    "--predictions": (("validate", "--predictions", "{}"), ".csv"),
    "--scaling": (("roofline", "--scaling", "{}", "--on", "h100-sxm"), ".csv"),
    "--shapes": (("roofline", "--shapes", "{}", "--on", "h100-sxm"), ".csv"),
    "--census": (("roofline", "--census", "{}", "--on", "h100-sxm"), ".toml"),
    "--carbon-profile": (("sites", *LLAMA, "--sites", "2", "--wan-bandwidth", "1Gb/s", "--tokens", "1T", "--carbon-profile", "{}"), ".csv"),
    "fleet": (("fleet", "{}"), ".toml"),
    "diff": (("diff", "{}", "{}"), ".json"),
    "diagnose": (("diagnose", "{}"), ".json"),
    "diagnose log": (("diagnose", "{}"), ".log"),
    "--against": (("diagnose", "{}", "--against", "{}"), ".json"),
    "--patterns": (("diagnose", str(DATA / "measured" / "a100x2_resnet_collectives.json.gz"), "--patterns", "{}"), ".toml"),
    "--kernel-names": (("diagnose", str(DATA / "measured" / "a100x2_resnet_collectives.json.gz"), "--kernel-names", "{}"), ".toml"),
    "runs add": (("runs", "add", "{}"), ".json"),
    "runs import": (("runs", "import", "{}"), ".json"),
}  # fmt: skip


@pytest.mark.parametrize("option", READ)
def test_whatever_a_file_is_one_line_names_it_and_nobody_waits(ask, tmp_path, monkeypatch, option):
    """Exit 3, one line with the name of the file, for every option that names one."""
    monkeypatch.setattr(files, "WRITER", 0.05)
    words, suffix = READ[option]
    for kind, (make, says) in STRANGE.items():
        path = tmp_path / f"{kind.replace(' ', '-')}{suffix}"
        make(path)
        started = time.monotonic()
        status, out, err = ask(*(str(path) if word == "{}" else word for word in words))
        assert (status, out) == (3, ""), (kind, err)
        assert err.count("\n") == 1 and path.name in err, (kind, err)
        said = "a FIFO, not a file" if kind == "fifo" and option in PLAIN else says
        assert said.lower() in err.lower() or kind in ("folder", "link to itself"), (kind, err)
        assert time.monotonic() - started < 20.0


@pytest.mark.parametrize("option", ["estimate q.toml", "--rows", "--lengths csv", "--scaling", "--shapes", "--fits", "diff"])
@pytest.mark.parametrize("kind", NO_TEXT)
def test_bytes_that_are_no_utf_8_are_named(ask, tmp_path, option, kind):
    make, says = NO_TEXT[kind]
    words, suffix = READ[option]
    path = tmp_path / f"x{suffix}"
    make(path)
    status, out, err = ask(*(str(path) if word == "{}" else word for word in words))
    assert (status, out, err.count("\n")) == (3, "", 1) and path.name in err and says in err


@pytest.mark.parametrize(
    "option", [name for name in READ if not name.startswith(("estimate", "plan", "diagnose", "runs", "--patterns", "--kernel"))]
)
def test_a_name_with_a_null_character_is_one_line(ask, option):
    words, suffix = READ[option]
    status, out, err = ask(*(f"a\0b{suffix}" if word == "{}" else word for word in words))
    assert status in (2, 3) and out == "" and err.count("\n") == 1
    status, out, err = ask(*(f"a\ud800b{suffix}" if word == "{}" else word for word in words))
    assert status in (2, 3) and out == "" and err.count("\n") == 1


# --- how a file is read


def test_the_limit_is_kept_while_reading(tmp_path):
    """A file that says it is empty, as those of /proc, or grows, is cut at the limit too."""
    path = tmp_path / "a"
    path.write_bytes(b"x" * 100)
    assert files.read_bytes(path, "a note", 100) == b"x" * 100
    with pytest.raises(InputError, match="100 bytes is too large for a note"):
        files.read_bytes(path, "a note", 99)
    if Path("/proc/self/status").exists():
        assert files.read_bytes("/proc/self/status", "a note")
        with pytest.raises(InputError, match="more than 20 bytes is too large for a note"):
            files.read_bytes("/proc/self/status", "a note", 20)


def _write_later(path, parts):
    def write():
        with open(path, "wb", buffering=0) as pipe:
            for part in parts:
                time.sleep(0.05)
                pipe.write(part)

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    return thread


def test_a_pipe_is_read_to_its_end_and_within_the_limit(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    thread = _write_later(path, [b"ab", b"cd"])
    assert files.read_bytes(path, "a note") == b"abcd"
    thread.join()
    with pytest.raises(InputError, match="more than 3 bytes is too large for a note"):
        thread = _write_later(path, [b"ab", b"cd"])
        files.read_bytes(path, "a note", 3)
    thread.join()


def test_a_silent_pipe_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "SILENCE", 0.1)
    path = tmp_path / "pipe"
    os.mkfifo(path)
    number = os.open(path, os.O_RDWR)  # a writer that never writes
    with pytest.raises(InputError, match="into which nothing was written"):
        files.read_bytes(path, "a note")
    os.close(number)


TABLE = "model,on,gpus\nllama-3-8b,h100-sxm,8\n"


def _in_shell(command, text=""):
    """A command in bash, where $IRONLAW is the program, with text on its standard input."""
    program = {**os.environ, "IRONLAW": f"{sys.executable} -m ironlaw"}
    done = subprocess.run(["bash", "-c", command], env=program, input=text, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("command", [
    "$IRONLAW estimate --rows <(printf 'model,on,gpus\\nllama-3-8b,h100-sxm,8\\n')",
    "$IRONLAW estimate --rows /dev/stdin",
])  # fmt: skip
def test_rows_come_through_a_pipe(ask, tmp_path, command):
    path = tmp_path / "a.csv"
    path.write_text(TABLE, encoding="utf-8")
    assert _in_shell(command, TABLE) == ask("estimate", "--rows", path)


def test_an_unnamed_pipe_may_be_read_twice():
    """`validate` reads its table for the columns and for the runs."""
    read, write = os.pipe()
    os.write(write, b"abc")
    os.close(write)
    try:
        assert files.read_bytes(f"/dev/fd/{read}", "a note") == files.read_bytes(f"/dev/fd/{read}", "a note") == b"abc"
    finally:
        os.close(read)


@pytest.mark.parametrize("text", ["a = " + "9" * 5000, "a = " + "[" * 100_000, 'a = "', "a = 1\na = 2"])
def test_toml_of_any_kind_is_read_or_one_line(tmp_path, text):
    path = tmp_path / "a.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match="not valid TOML") as refused:
        files.read_toml(path, "a note")
    assert "\n" not in str(refused.value) and len(str(refused.value)) < 400


@pytest.mark.parametrize("text", ["9" * 5000, "[" * 100_000, "[NaN]", "[1", '{"a": "\n"}', ""])
def test_json_of_any_kind_is_read_or_one_line(tmp_path, text):
    path = tmp_path / "a.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as refused:
        files.read_json(path, "a note", 1_000_000)
    assert "\n" not in str(refused.value) and len(str(refused.value)) < 400


def test_a_table_has_a_limit_of_cells_and_of_characters_in_a_cell(tmp_path, monkeypatch):
    path = tmp_path / "a.csv"
    path.write_text("a,b\n1,2\n", encoding="utf-8")
    assert files.read_csv(path, "a table") == [(1, ["a", "b"]), (2, ["1", "2"])]
    monkeypatch.setattr(files, "MOST_CELLS", 5)
    with pytest.raises(InputError, match="more than 5 cells"):
        files.read_csv(path, "a table")
    path.write_text("a" * 200_000, encoding="utf-8")
    with pytest.raises(InputError, match="line 1: field larger than"):
        files.read_csv(path, "a table")


# --- how a file is written


def test_a_file_is_replaced_in_one_step_and_keeps_its_permissions(tmp_path):
    path = tmp_path / "a"
    path.write_text("old")
    path.chmod(0o640)
    before = path.stat().st_ino
    files.write_file(path, b"new")
    assert path.read_bytes() == b"new" and stat.S_IMODE(path.stat().st_mode) == 0o640 and path.stat().st_ino != before
    assert os.listdir(tmp_path) == ["a"]


def test_a_link_is_followed_and_stays(tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "real").write_text("old")
    (tmp_path / "link").symlink_to("there/real")
    (tmp_path / "new").symlink_to("there/made")
    files.write_file(tmp_path / "link", b"new")
    files.write_file(tmp_path / "new", b"made")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "there" / "real").read_bytes() == b"new"
    assert (tmp_path / "new").is_symlink() and (tmp_path / "there" / "made").read_bytes() == b"made"
    assert sorted(os.listdir(tmp_path / "there")) == ["made", "real"]


def test_a_long_name_and_the_name_of_a_part_are_written(tmp_path):
    name = "x" * 255
    (tmp_path / "a.part").write_text("mine")
    (tmp_path / ".a.part").write_text("mine too")
    files.write_file(tmp_path / name, b"1")
    files.write_file(tmp_path / "a", b"2")
    assert (tmp_path / name).read_bytes() == b"1" and (tmp_path / "a").read_bytes() == b"2"
    assert (tmp_path / "a.part").read_text() == "mine" and (tmp_path / ".a.part").read_text() == "mine too"


def test_a_pipe_and_a_device_are_written_into_and_stay(tmp_path):
    pipe, device = tmp_path / "pipe", tmp_path / "device"
    os.mkfifo(pipe)
    device.symlink_to(os.devnull)
    with pytest.raises(InputError, match="no program reads from it"):
        files.write_file(pipe, b"abc")
    read = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    files.write_file(pipe, b"abc")
    assert os.read(read, 10) == b"abc" and stat.S_ISFIFO(pipe.stat().st_mode)
    os.close(read)
    files.write_file(device, b"abc")
    files.write_file(os.devnull, b"abc")
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode) and device.is_symlink()


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root makes devices")
def test_a_device_node_stays_a_device(ask, tmp_path):
    """What was seen in containers: `plan --csv` and `runs export -o` turned a device into a plain file."""
    device = tmp_path / "null"
    try:
        os.mknod(device, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        with open(device, "wb"):
            pass
    except OSError:
        pytest.skip("no devices may be made here")
    assert ask("plan", *LLAMA, "--global-batch-size", "64", "--top", "1", "--csv", device)[0] == 0
    assert stat.S_ISCHR(device.stat().st_mode)


def test_standard_output_may_be_named(tmp_path):
    """The rows come behind what was printed before, whether standard output is a pipe or a file."""
    write = "from ironlaw import files; print('page'); files.write_file('/dev/stdout', b'rows')"
    command = f'{sys.executable} -c "{write}"'
    assert _in_shell(command) == _in_shell(f"{command} > {tmp_path}/out; cat {tmp_path}/out") == (0, "page\nrows", "")


WRITE = {  # every option that names a file to write
    "--csv": ("plan", *LLAMA, "--csv"),
    "--parquet": ("plan", *LLAMA, "--parquet"),
    "--correction": ("validate", "--mine", str(DATA / "none.csv"), "--correction"),
    "--output": ("runs", "export", "latest", "--output"),
}


@pytest.mark.parametrize("option", WRITE)
def test_a_name_that_cannot_be_written_is_refused_before_the_work(ask, tmp_path, option):
    (tmp_path / "loop").symlink_to("loop")
    for name, says in (
        ("", "empty"), (".", "a folder"), ("/", "a folder"), (str(tmp_path), "a folder"), (f"{tmp_path}/new/", "a folder"),
        (f"{tmp_path}/none/a", "no such folder"), (f"{tmp_path}/{'x' * 300}", "too long"), ("a\0b", "not the name of a file"),
        (f"{tmp_path}/loop", "cannot be written"),
    ):  # fmt: skip
        status, out, err = ask(*WRITE[option], name)
        assert status in (2, 3) and (out, err.count("\n")) == ("", 1) and (option in err or "\0" in name) and says in err, (name, err)
    assert os.listdir(tmp_path) == ["loop"]


# --- nothing else opens a file

OPENERS = {"files.py"}
DEVNULL = {"cli/main.py", "cli/help.py"}  # open os.devnull alone
READS_AND_WRITES = {"read_text", "read_bytes", "write_text", "write_bytes", "fdopen", "NamedTemporaryFile", "mkstemp", "open_code"}


def _opens(call: ast.Call) -> bool:
    """True for a call that opens a file: open, Path.open, os.open, read_text and the like, but not those of ``files``."""
    function = call.func
    if isinstance(function, ast.Name):
        return function.id == "open"
    if not isinstance(function, ast.Attribute):
        return False
    owner = function.value.id if isinstance(function.value, ast.Name) else ""
    if function.attr == "open":
        texts = [argument for argument in call.args if isinstance(argument, ast.Constant) and isinstance(argument.value, str)]
        return owner in ("os", "io", "gzip", "codecs") or bool(texts) or not call.args
    return function.attr in READS_AND_WRITES and owner != "files"


RAISES = {"is_dir", "is_file", "exists", "is_symlink"}  # of Path, where a name is too long: is_there, is_folder and is_file of files do not


def test_no_name_that_a_user_gives_is_looked_up_by_a_call_that_raises():
    for path in (path for path in sorted(ROOT.rglob("*.py")) if str(path.relative_to(ROOT)) not in OPENERS):
        calls = (node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call))
        found = [c for c in calls if isinstance(c.func, ast.Attribute) and c.func.attr in RAISES and ast.unparse(c.func.value) != "os.path"]
        assert not found, f"{path}: line {found[0].lineno}: use is_there, is_folder or is_file of ironlaw.files"


@pytest.mark.parametrize("path", [path for path in sorted(ROOT.rglob("*.py")) if str(path.relative_to(ROOT)) not in OPENERS], ids=str)
def test_only_one_module_opens_files(path):
    calls = [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call) and _opens(node)]
    if str(path.relative_to(ROOT)) in DEVNULL:
        assert all("devnull" in ast.unparse(call.args[0]) for call in calls)
    else:
        assert not calls, f"{path}: line {calls[0].lineno if calls else 0} opens a file: use ironlaw.files"
