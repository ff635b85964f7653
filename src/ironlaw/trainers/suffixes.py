"""The suffixes of files that trainers are configured by; light, so that a question about a plain model imports no reader."""

SYNTAXES = {
    ".yaml": "yaml", ".yml": "yaml", ".json": "json", ".toml": "toml", ".py": "python", ".sh": "shell", ".args": "shell", ".bash": "shell",
    ".slurm": "shell", ".sbatch": "shell",
}  # fmt: skip


def may_be_file(text: str) -> bool:
    """True for a text one of whose parts between commas ends as a trainer's file does.

    >>> may_be_file("llama-3-8b"), may_be_file("train.yaml,fsdp.yaml"), may_be_file("llama-3-8b,ds.json"), may_be_file("recipes.py:small")
    (False, True, True, True)
    """
    return any(part.rpartition(".")[2].partition(":")[0].lower() in _ENDS for part in text.split(",") if "." in part)


_ENDS = {suffix[1:] for suffix in SYNTAXES}
