"""Dropped files: read by their content in a process of their own, answered as on the command line, refused in one sentence."""

from __future__ import annotations

import glob
import gzip
import html
import json
import re
import tempfile
from pathlib import Path

import pytest
from starlette.testclient import TestClient

import ironlaw
from ironlaw.files import read_saved
from ironlaw.web import app, uploads

DATA = Path(__file__).parent / "data"
TRACE = DATA / "measured" / "v100_resnet50_nw0.json.gz"
SCRIPT = (
    "torchrun pretrain_gpt.py --num-layers 24 --hidden-size 1024 --num-attention-heads 16 --seq-length 1024 --max-position-embeddings 1024"
    " --micro-batch-size 4 --global-batch-size 64 --vocab-size 50257 --bf16 --tensor-model-parallel-size 2\n"
)
QUESTION = 'model = "llama-3-8b"\n[cluster]\non = "h100-sxm"\ngpus = 8\n[run]\nglobal_batch_size = 64\n'


@pytest.fixture(scope="module")
def client():
    with TestClient(app.make_app()) as made:
        yield made


def drop(client, *files, **given):
    """Send files as the page does, and follow to the answer."""
    return client.post("/files", files=[("file", file) for file in files], data=given)


def plain(reply):
    return html.unescape(re.sub(r"<[^>]+>", " ", reply.text)).replace("\u00a0", " ").replace("\u202f", ",")


def test_a_dropped_trace_is_diagnosed_as_on_the_command_line(client):
    reply = drop(client, ("my trace.json.gz", TRACE.read_bytes()))
    assert reply.status_code == 200 and "Host-bound: the device waits for data." in plain(reply) and "my trace.json.gz" in reply.text
    query = reply.url.query.decode()
    data = client.get(f"/api/diagnose?{query}").json()
    fresh = json.loads(json.dumps(ironlaw.diagnose(TRACE).to_dict()))
    assert data["verdict"] == fresh["verdict"] and data["files"][0]["window"] == fresh["files"][0]["window"]
    assert data["files"][0]["path"] == "my trace.json.gz" and "ironlaw-file" not in json.dumps(data)
    report = client.get(f"/report/diagnose?{query}")
    assert report.text.startswith("<!doctype html>") and "ironlaw diagnose" in report.text


def test_several_traces_are_ranks_and_options_change_the_answer(client):
    ranks = [(f"r{n}.json.gz", (DATA / "measured" / "v100x8_dlrm" / f"worker{n}.json.gz").read_bytes()) for n in range(3)]
    reply = drop(client, *ranks)
    assert "3 ranks: who waits" in plain(reply)
    query = reply.url.query.decode()
    assert client.get(f"/diagnose?{query}&unlinked=drop").status_code == 200
    wrong = client.get(f"/diagnose?{query}&unlinked=maybe")
    assert wrong.status_code == 422 and "--unlinked" in plain(wrong)
    one = dict(pair.split("=", 1) for pair in query.split("&"))["files"].split("%2C")[0]
    again = drop(client, ("r9.json.gz", ranks[1][1]), files=one)
    assert "2 ranks: who waits" in plain(again)


def test_questions_of_other_kinds_are_taken_and_answered(client):
    config = next(path for path in glob.glob(str(DATA / "hf_configs" / "**" / "*.json"), recursive=True) if "meta-llama-3.1-8b" in path)
    reply = drop(client, ("config.json", Path(config).read_bytes()), on="h100-sxm", gpus="16")
    assert reply.status_code == 200 and "taken as a config.json of llama" in plain(reply) and "gpus=16" in str(reply.url)
    address = client.get("/api/estimate?" + reply.url.query.decode().partition("&took=")[0])
    wanted = ironlaw.estimate(config, on="h100-sxm", gpus=16)
    assert address.json()["step"]["seconds"] == float(wanted.step_seconds[0])
    reply = drop(client, ("run.toml", QUESTION.encode()))
    assert reply.url.path == "/estimate" and "global_batch_size=64" in str(reply.url) and "It fits" in plain(reply)
    reply = drop(client, ("start", SCRIPT.encode()), on="a100-sxm-80gb")
    assert "a launch script of Megatron-LM" in plain(reply) and "tp=2" in str(reply.url) and "on=a100-sxm-80gb" in str(reply.url)
    assert "Assumed, as the file does not say: gpus 8." not in plain(reply) or "gpus=8" in str(reply.url)


def test_a_saved_answer_is_shown_again(client, tmp_path, ask):
    _, out, _ = ask("money", "llama-3-8b", "--on", "h100-sxm", "--gpus", 8, "--tokens", "1T", "--json", "--html", tmp_path / "a.html")
    for name, content in (("a.json", out.encode()), ("report", (tmp_path / "a.html").read_bytes())):
        reply = drop(client, (name, content))
        assert reply.status_code == 200 and reply.url.path.startswith("/saved/") and f"{name}: saved by ironlaw" in plain(reply)
    assert read_saved(tmp_path / "a.html", 1 << 24)["headline"][0]["text"] in plain(reply)
    assert client.get("/saved/no-such").status_code == 404
    broken = drop(client, ("b.json", out.replace('"schema_version": 2', '"schema_version": 99').encode()))
    assert broken.status_code == 422 and "schema version 99" in plain(broken)


@pytest.mark.parametrize(
    ("name", "content", "status", "said"),
    [
        ("x.bin", b"\x00\x01garbage" * 100, 422, "unknown kind of file"),
        ("ds.json", b'{"zero_optimization": {"stage": 3}, "train_batch_size": 64}', 422, "a configuration of DeepSpeed"),
        ("deep.json", b'{"traceEvents": ' + b"[" * 200_000, 422, "deep"),
        ("cut.json.gz", TRACE.read_bytes()[:20_000], 422, "cut.json.gz"),
        ("bomb.json.gz", gzip.compress(b'{"traceEvents":[' + b" " * (100 << 20), 1), 422, "bomb.json.gz"),
        ("p.zip", b"PK\x03\x04" + b"x" * 100, 422, "a zip archive"),
        ("empty", b"", 422, "No file was sent"),
        ("config.json", b'{"model_type": "no-such-model", "hidden_size": 3}', 422, "no-such-model"),
        ("evil.pickle", b"cos\nsystem\n(S'touch /tmp/owned'\ntR.", 422, "evil.pickle"),
    ],
)
def test_what_is_not_understood_is_said_in_one_sentence(client, name, content, status, said):
    reply = drop(client, (name, content))
    assert reply.status_code == status and said in plain(reply)
    assert "Traceback" not in reply.text and "ironlaw-file" not in reply.text
    assert not list(Path(tempfile.gettempdir()).glob("ironlaw-files-*"))


def test_what_is_large_or_late_or_no_form_is_refused(client, monkeypatch):
    reply = client.post("/files", content=b"x" * (uploads.LARGEST + 1), headers={"content-type": "multipart/form-data; boundary=x"})
    assert reply.status_code == 413 and "64 MiB" in plain(reply)
    assert client.post("/files", content=b"x", headers={"content-type": "text/plain"}).status_code == 415
    assert client.get("/files").status_code in (404, 405)
    assert client.post("/estimate", content=b"x" * 10).status_code == 413
    foreign = {"origin": "http://evil.example"}
    assert client.post("/files", files=[("file", ("a", b"b"))], headers=foreign).status_code == 403
    assert client.post("/files", files=[("file", ("a", b"b"))], headers={"sec-fetch-site": "cross-site"}).status_code in (403, 413)
    monkeypatch.setattr(uploads, "READS", 0.05)
    late = client.post("/files", files=[("file", ("a.json.gz", TRACE.read_bytes()))])
    assert late.status_code == 503 and "Not read within" in plain(late)


def test_names_of_files_are_neither_paths_nor_markup(client):
    reply = drop(client, ("../../<img src=x onerror=alert(1)>.log", b"nonsense"))
    assert reply.status_code == 422 and "<img" not in reply.text and ".." not in plain(reply).replace("...", "")
    for path in ("/etc/passwd", "../x", "~/x"):
        assert client.get("/diagnose", params={"files": path}).status_code == 422
    assert client.get("/diagnose?against=/etc/passwd&tokens_per_second=1").status_code == 422
    assert client.get("/diagnose?patterns=x&tokens_per_second=1").status_code == 422


def test_the_oldest_files_are_forgotten_first(monkeypatch):
    monkeypatch.setattr(uploads, "KEPT", 250)
    kept = uploads.Shelf()
    keys = [kept.put(uploads.File(str(at), bytes([at]) * 100)) for at in range(3)]
    assert list(kept.files) == keys[1:]


def test_the_empty_page_asks_for_a_file_and_a_throughput_needs_none(client):
    page = client.get("/diagnose")
    assert page.status_code == 200 and 'enctype="multipart/form-data"' in page.text and "Why was it slow?" in page.text
    asked = client.get("/diagnose?tokens_per_second=150k&model=llama-2-7b&on=h100-sxm&gpus=64&seq_len=4096&global_batch_size=1024")
    assert asked.status_code == 200 and "slower than predicted" in plain(asked)
