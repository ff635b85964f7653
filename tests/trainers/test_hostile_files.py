"""Files that are broken or made to harm: one line with file and line, and nothing is run."""

from __future__ import annotations

import pytest

BOMB = "\n".join(["a0: &a0 [x, y]", *(f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}, *a{i - 1}, *a{i - 1}, *a{i - 1}]" for i in range(1, 12))])
WRONG = {
    "yaml that ends in a quote": ("t.yaml", 'per_device_train_batch_size: 2\nx: "a\n', "t.yaml:3: not valid YAML"),
    "yaml with tabs": ("t.yaml", "per_device_train_batch_size: 2\n\tx: 1\n", "t.yaml:2: not valid YAML"),
    "yaml of an object": ("t.yaml", "base_model: x\ny: !!python/object/apply:os.system [touch ran]\n", "t.yaml:2: the tag"),
    "yaml of a name": ("t.yaml", "base_model: x\ny: !!python/name:os.system\n", "t.yaml:2: the tag"),
    "yaml of a bomb": ("t.yaml", BOMB + "\n", "more than 20,000 settings"),
    "yaml that holds itself": ("t.yaml", "base_model: &a\n  b: *a\n", "nested deeper"),
    "yaml of two documents": ("t.yaml", "a: 1\n---\nb: 2\n", "not valid YAML"),
    "yaml with a key twice": (
        "t.yaml",
        "base_model: x\nmicro_batch_size: 1\nmicro_batch_size: 2\n",
        "t.yaml:3: micro_batch_size is given twice",
    ),
    "yaml that is deep": ("t.yaml", "a: " + "[" * 3000 + "]" * 3000, "nested"),
    "json that is cut": ("t.json", '{"zero_optimization": {\n "stage": 3', "t.json:2: not valid JSON"),
    "json with a key twice": ("t.json", '{"zero_optimization": {"stage": 2,\n"stage": 3}}', "t.json:2: stage is given twice"),
    "json that is deep": ("t.json", '{"zero_optimization": ' + "[" * 60 + "]" * 60 + "}", "nested deeper"),
    "toml that is cut": ("t.toml", "[training]\nseq_len = \n", "t.toml:2: not valid TOML"),
    "python that is cut": ("t.py", "batch_size = 1\nblock_size = (\n", "t.py:2: not valid Python"),
    "python that is deep": ("t.py", "batch_size = " + "(" * 500 + "1" + ")" * 500, "not valid Python"),
    "a file of two megabytes": ("t.yaml", "x: 1\n" * 400_000, "too large"),
    "a script of five megabytes": ("t.sh", "echo x\n" * 750_000, "too large"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_broken_file_is_one_line_with_its_place(ask, tmp_path, monkeypatch, case):
    name, text, says = WRONG[case]
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_text(text)
    status, out, err = ask("read", name)
    assert (status, out) == (3, "") and says in err and err.count("\n") == 1
    assert not (tmp_path / "ran").exists()


def test_files_that_include_each_other_end(ask, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.sh").write_text("axolotl train b.yaml\n")
    (tmp_path / "b.yaml").write_text("base_model: x\nmicro_batch_size: 1\ndeepspeed: b.yaml\n")
    status, out, err = ask("read", "a.sh")
    assert (status, out) == (3, "") and "include loop" in err


def test_an_include_leaves_the_folder_of_its_file_nowhere(ask, tmp_path, monkeypatch):
    (tmp_path / "ds.json").write_text('{"zero_optimization": {"stage": 3}}')
    inner = tmp_path / "inner"
    inner.mkdir()
    monkeypatch.chdir(inner)
    (inner / "t.yaml").write_text("per_device_train_batch_size: 1\nbf16: true\ndeepspeed: ../ds.json\n")
    status, out, _ = ask("read", "t.yaml", "--gpus", 8)
    assert status == 1 and "t.yaml:3: deepspeed: includes ../ds.json, which is not in the folder" in out


def test_lines_that_end_as_in_windows_are_read(ask, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.yaml").write_bytes(b"base_model: x/y\r\nmicro_batch_size: 2\r\nsequence_len: 128\r\nbf16: true\r\n")
    status, out, _ = ask("read", "t.yaml", "--gpus", 8)
    assert status == 0 and "t.yaml:3 sequence_len" in out


def test_a_value_that_an_environment_gives_is_asked_for(ask, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.yaml").write_text("base_model: x/y\nmicro_batch_size: ${oc.env:MICRO}\n")
    status, out, _ = ask("read", "t.yaml", "--gpus", 8)
    assert status == 1 and "t.yaml:2: micro_batch_size: its value '${oc.env:MICRO}' is known only where it runs" in out


def test_python_is_read_and_never_run(ask, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.py").write_text("import os\nos.mkdir('ran')\nbatch_size = 4\nblock_size = 1024\nn_layer = os.cpu_count()\n")
    status, out, _ = ask("read", "t.py", "--gpus", 8)
    assert status == 1 and "t.py:5: n_layer: its value 'os.cpu_count()'" in out and not (tmp_path / "ran").exists()


def test_a_question_in_toml_stays_a_question(ask, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "q.toml").write_text('model = "gpt-2"\n[cluster]\non = "h100-sxm"\ngpus = 8\n[training]\nseq_len = 1024\n')
    assert ask("estimate", "q.toml", "--short")[0] == 0


def test_a_broken_configuration_of_a_model_is_refused_by_its_own_reader(ask, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sizes = '"hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8, "vocab_size": 1000, "intermediate_size": 2048'
    (tmp_path / "config.json").write_text('{"model_type": "llama", ' + sizes + ', "rms_norm_eps": 1e-5, "max_position_embeddings": 512')
    status, out, err = ask("estimate", "config.json", "--on", "h100-sxm", "--gpus", 1)
    assert (status, out) == (3, "") and "config.json" in err and "config.json:1:" not in err


def test_a_file_that_is_not_there_is_an_error(ask, tmp_path):
    """A check in a hook must not pass because of a wrong name."""
    there, gone = tmp_path / "a.yaml", tmp_path / "gone.yaml"
    there.write_text("base_model: x/y\nmicro_batch_size: 2\nsequence_len: 128\nbf16: true\n")
    assert ask("check", gone)[0] == 1 and ask("read", gone)[0] == ask("read", f"{there},{gone}")[0] == 3
    assert "gone.yaml: cannot be read: No such file" in ask("read", f"{there},{gone}")[2]
