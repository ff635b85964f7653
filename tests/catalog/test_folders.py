"""The user's own catalogue folders: absent, empty, read once."""

from __future__ import annotations

import inspect
import json
import os
import tomllib
from collections import Counter
from pathlib import Path

import pytest

import ironlaw
from ironlaw import files
from ironlaw.catalog import load
from ironlaw.catalog.records import KINDS
from ironlaw.errors import CatalogError, InputError
from verbs import QUESTIONS


def test_rows_hash_the_catalogue_once(ask, tmp_path, monkeypatch):
    calls, real = [], files.read_bytes
    load._hash_of.cache_clear()
    monkeypatch.setattr(files, "read_bytes", lambda path, *rest, **more: calls.append(path) or real(path, *rest, **more))
    table = tmp_path / "runs.csv"
    table.write_text("model,on,gpus\n" + "llama-3-8b,h100-sxm,8\n" * 5 + "lama,h100-sxm,8\n")
    status, out, _ = ask("estimate", "--rows", table, "--json")
    rows = json.loads(out)
    assert status == 2 and [row["line"] for row in rows] == [2, 3, 4, 5, 6, 7]
    assert "error" in rows[-1] and out == json.dumps(rows, indent=1) + "\n"
    read = Counter(calls)  # a record that a line asks for is read once more, as a record, and once more for each that is like it
    records = {path: tomllib.loads(path.read_text(encoding="utf-8")) for path in load.SHIPPED.glob("*/*.toml")}
    like = Counter(path.with_name(f"{record['like']}.toml") for path, record in records.items() if record.get("like"))
    assert read[load.SHIPPED / "accelerators" / "tpu-v5p.toml"] == 1 and all(times <= 2 + like[path] for path, times in read.items())


def test_a_folder_without_records_is_refused(ask, tmp_path):
    status, _, err = ask("catalog", "--catalog", tmp_path, "list")
    assert status == 3 and "no records; expected folders" in err
    (tmp_path / "models").mkdir()
    assert ask("catalog", "--catalog", tmp_path, "list")[0] == 0


ASKED_IN_PYTHON = [getattr(ironlaw, verb) for verb in QUESTIONS]


@pytest.mark.parametrize("question", [q for q in ASKED_IN_PYTHON if "catalog" in inspect.signature(q).parameters])
def test_a_catalogue_given_as_text_is_one_folder_that_must_exist(question, tmp_path):
    with pytest.raises(InputError, match="gone: no such folder"):  # a text read letter by letter would name the root folder
        question(catalog=str(tmp_path / "gone"))


@pytest.mark.parametrize("verb", [ironlaw.estimate, ironlaw.search])
def test_python_calls_refuse_a_catalogue_folder_that_does_not_exist(verb, tmp_path):
    for catalog in (str(tmp_path / "gone"), [str(tmp_path / "gone")]):
        with pytest.raises(InputError, match="no such folder"):
            verb("llama-3-8b", on="h100-sxm", gpus=8, catalog=catalog)


ASKED = ("estimate", "llama-3-8b", "--on", "h100-sxm", "--gpus", "8")
NODE = (load.SHIPPED / "nodes" / "dgx-h100.toml").read_text(encoding="utf-8")


@pytest.fixture
def folder(tmp_path):
    """A catalogue folder with one record, which is fine."""
    (tmp_path / "nodes").mkdir()
    (tmp_path / "nodes" / "mine.toml").write_text(NODE, encoding="utf-8")
    load._hash_of.cache_clear()
    return tmp_path


def _make_folder(path):
    path.mkdir()


SPECIAL = {
    "fifo": (os.mkfifo, "a FIFO, not a file"),
    "device": (lambda path: path.symlink_to("/dev/zero"), "a device, not a file"),
    "folder": (_make_folder, "a folder, not a file"),
    "huge": (lambda path: path.write_bytes(b"# " + b"x" * 3_000_000), "too large"),
    "dangling link": (lambda path: path.symlink_to("gone.toml"), "No such file"),
    "link to itself": (lambda path: path.symlink_to(path.name), "cannot be read"),
    "not text": (lambda path: path.write_bytes(b'title = "caf\xe9"\n'), "byte 12 is not UTF-8"),
    "not TOML": (lambda path: path.write_text('title = "x\n'), "not valid TOML"),
    "sources as a list": (lambda path: path.write_text(f"sources = []\n{NODE.partition('[sources')[0]}"), "sources expected a table"),
    "a source that is no table": (lambda path: path.write_text('title = "x"\n[sources]\na = 3\n'), "sources.a expected a table"),
}


@pytest.mark.parametrize("kind", SPECIAL)
def test_a_file_that_cannot_be_a_record_is_an_error_that_names_it(ask, folder, kind):
    """The check lists it; asking for it is an error. A pipe, or a device without an end, is never opened."""
    make, reason = SPECIAL[kind]
    path = folder / "nodes" / "a.toml"
    make(path)
    status, out, err = ask("catalog", "--catalog", folder, "check")
    assert (status, err) == (1, "") and any(str(path) in line and reason in line for line in out.splitlines())
    status, out, err = ask(*ASKED, "--catalog", folder, "--node", "a")
    assert (status, out) == (3, "") and str(path) in err and reason in err


@pytest.mark.parametrize("kind", [name for name in SPECIAL if "source" not in name and not name.startswith("not ")])
def test_a_special_file_is_named_where_all_files_are_hashed(ask, folder, kind):
    """The JSON has a hash of every file of the folder, also of those that the question does not use."""
    make, reason = SPECIAL[kind]
    path = folder / "nodes" / "a.toml"
    make(path)
    status, out, err = ask(*ASKED, "--catalog", folder, "--json")
    message = json.loads(out)["error"]["message"]
    assert status == 3 and str(path) in message and reason in message and message in err


@pytest.mark.parametrize("kind", ["fifo", "folder", "dangling link"])
def test_a_special_file_does_not_let_the_shipped_record_take_its_place(ask, folder, kind):
    path = folder / "nodes" / "dgx-h100.toml"
    SPECIAL[kind][0](path)
    status, out, err = ask(*ASKED, "--catalog", folder)
    assert (status, out) == (3, "") and str(path) in err


def test_a_special_file_of_aliases_is_named(ask, folder):
    os.mkfifo(folder / "aliases.toml")
    status, out, err = ask(*ASKED, "--catalog", folder)
    assert (status, out) == (3, "") and str(folder / "aliases.toml") in err


STRANGE = (["x"], {}, [], 1, True, {"a": "b"}, [{}], "no such key")


@pytest.mark.parametrize("kind", ["accelerators", "nodes", "fabrics", "models", "frameworks", "calibration", "sites", "systems"])
def test_any_value_of_any_key_of_a_record_is_read_or_refused(kind):
    """Values, sources and elements of lists of the wrong type are a CatalogError that names the file, never a failure further on."""
    path = sorted((load.SHIPPED / kind).glob("*.toml"))[0]
    table = load.read_file(path)
    for key in [name for name in KINDS[kind].fields if name != "name"]:
        for value in STRANGE:
            changes = [{key: value}]
            if isinstance(table.get(key), dict) and "source" in table[key]:
                changes += [{key: {**table[key], part: value}} for part in ("source", "value", "note")]
            for change in changes:
                try:
                    load.decode(kind, path.stem, {**table, **change}, "there.toml")
                except CatalogError as error:
                    assert "there.toml" in str(error)


@pytest.mark.parametrize("value", [["grad-reduce", 1], [["pp"]], [{}], "pp", 3])
def test_a_list_of_names_is_checked_by_element(value):
    table = load.read_file(load.SHIPPED / "frameworks" / "megatron.toml")
    with pytest.raises(CatalogError, match=r"there: overlap (has|expected)"):
        load.decode("frameworks", "megatron", {**table, "overlap": value}, "there")


@pytest.mark.parametrize(
    "command",
    [
        "estimate {} --on h100-sxm --gpus 8",
        "estimate llama-3-8b --on {} --gpus 8",
        "plan llama-3-8b --on h100-sxm --gpus 8 --space {}",
        "roofline --census {} --on h100-sxm",
        "catalog show {}",
    ],
)
def test_a_name_longer_than_a_file_may_have_is_an_unknown_name(ask, command):
    name = "a" * 300
    status, out, err = ask(*command.format(name).split())
    assert (status, out) == ((3 if "--space" in command else 2), "") and name[:20] in err and "write" not in err


def test_a_user_without_a_home_has_no_catalogue_of_his_own(ask, monkeypatch):
    """In a container a user id may have no entry in the list of users, and no HOME."""
    monkeypatch.setattr(Path, "home", lambda: (_ for _ in ()).throw(RuntimeError("Could not determine home directory.")))
    assert load.roots() == [load.SHIPPED]
    assert ask(*ASKED)[0] == 0


def test_a_home_that_is_closed_to_the_user_has_no_catalogue(ask, monkeypatch):
    """As where HOME is still /root after the user id has changed."""

    def closed(self, *, follow_symlinks=True):
        if ".config" in self.parts:
            raise PermissionError(13, "Permission denied", str(self))
        return real(self, follow_symlinks=follow_symlinks)

    real = Path.stat
    monkeypatch.setattr(Path, "stat", closed)
    assert load.roots() == [load.SHIPPED]
    assert ask(*ASKED)[0] == 0


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_a_folder_that_cannot_be_read_is_named(ask, folder, monkeypatch, form):
    def closed(self, *, follow_symlinks=True):
        if "nodes" in self.parts and str(folder) in str(self) and self.name != "nodes":
            raise PermissionError(13, "Permission denied", str(self))
        return real(self, follow_symlinks=follow_symlinks)

    real = Path.stat
    monkeypatch.setattr(Path, "stat", closed)
    status, out, err = ask(*ASKED, "--catalog", folder, *form)
    assert (status, bool(out)) == (3, bool(form)) and str(folder / "nodes") in err and "Permission denied" in err and "write" not in err


def test_a_relative_folder_is_that_of_the_working_folder(tmp_path, monkeypatch):
    """Two folders of one name, asked from two places in one process."""
    prices = {}
    for place, usd in (("one", "1.5"), ("two", "2.5")):
        folder = tmp_path / place / "mine" / "prices"
        folder.mkdir(parents=True)
        (folder / "h100-sxm.toml").write_text(
            'title = "ours"\n[[price]]\nprovider = "us"\nregion = "here"\nterm = "on-demand"\ndate = "2026-11-01"\ncurrency = "USD"\n'
            f'per_hour = {{ value = "{usd} USD/h", source = "lease" }}\n'
            '[sources.lease]\ntitle = "Lease"\nurl = "https://example.org/lease"\nread = 2026-11-01\ngrade = "vendor"\n',
            encoding="utf-8",
        )
        monkeypatch.chdir(tmp_path / place)
        prices[place] = load.record("prices", "h100-sxm", ("mine",)).price[0].per_hour.value * 3600.0
    assert prices == pytest.approx({"one": 1.5, "two": 2.5})


@pytest.mark.parametrize(
    ("line", "changed", "said"),
    [
        ('mixer = "cross"', 'mixer = "\\u001bcross"', "mixer is '\\x1bcross', expected one of"),
        ('mlp = "none"', 'mlp = "nothing"', "mlp is 'nothing', expected one of dense, routed, none"),
        ('norm = "rmsnorm"', 'norm = "rms"', "norm is 'rms', expected one of rmsnorm, layernorm"),
    ],
)
def test_a_word_that_no_law_knows_is_refused(ask, tmp_path, line, changed, said):
    text = (load.SHIPPED / "models" / "t5-large.toml").read_text()
    assert line in text
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "t5-large.toml").write_text(text.replace(line, changed, 1))
    status, _, err = ask("estimate", "t5-large", "--on", "h100-sxm", "--gpus", 8, "--catalog", tmp_path)
    assert status == 3 and said in err and err.count("\n") == 1
