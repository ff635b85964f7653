"""Many questions from one CSV: a header of option names (or their aliases), one question a line.

Besides the options of ``options.OPTIONS`` a column may name a model dimension (``hidden_size``), and the headers of
published-run tables are understood through ``aliases.toml``. Blank cells are not given. Other columns are carried along.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ironlaw.catalog import load
from ironlaw.errors import InputError, IronlawError, QuestionError
from ironlaw.estimate.answer import Estimate, answer
from ironlaw.estimate.options import OPTIONS, read_options

MAX_BYTES = 200_000_000
_DIMENSIONS = (
    "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim", "intermediate_size", "vocab_size",
    "gated_mlp", "sliding_window", "tie_word_embeddings", "max_position_embeddings", "num_experts", "num_experts_per_tok",
    "moe_intermediate_size", "shared_expert_intermediate_size", "first_k_dense_replace",
)  # fmt: skip
_YES = {"y": "on", "n": "off"}
_SHARDING = {"none": "0", "zero1": "1", "zero2": "2", "zero3": "3", "fsdp": "3"}


@dataclass(frozen=True)
class RowAnswer:
    """One line's answer: its number in the file, the columns carried along, and an Estimate or the error."""

    line: int
    label: str
    estimate: Estimate | None
    error: IronlawError | None


def read_table(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    """(line number, cells by header) of a CSV with or without BOM, LF or CRLF."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise InputError(f"{path}: {path.stat().st_size} bytes, more than the {MAX_BYTES} this reads")
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file)
            if not reader.fieldnames:
                raise InputError(f"{path}: is empty, expected a header of option names such as model,on,gpus")
            for cells in reader:
                yield reader.line_num, {str(k).strip(): (v or "").strip() for k, v in cells.items() if k and isinstance(v, str)}
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"{path}: cannot be read as CSV: {reason}") from None


def options_of(cells: dict[str, str], folders: tuple[str, ...]) -> dict[str, Any]:
    """The options one line gives, by header, alias and the rules of published-run tables."""
    aliases = load.aliases(folders).get("columns", {})
    named: dict[str, str] = {}
    for header, cell in cells.items():
        folded = header.replace("-", "_").lower()
        name = folded if folded in OPTIONS or folded in _DIMENSIONS else aliases.get(load.fold_name(header), "")
        if name and cell and (name not in named or folded.endswith("_filled")):
            named[name] = _number(cell)
    dimensions = {n: _YES.get(named[n], named[n]) for n in _DIMENSIONS if n in named}
    for n in _DIMENSIONS:
        named.pop(n, None)
    if "model" in named:
        named["model"] = named["model"].partition(" (")[0].strip() or named["model"]
    if cells.get("mla") == "y":  # a table's columns do not tell latent attention's dimensions: the catalogue does
        dimensions = {}
    if cells.get("shared_experts", "0") not in ("", "0") and "moe_intermediate_size" in dimensions:
        dimensions["shared_expert_intermediate_size"] = str(int(cells["shared_experts"]) * int(dimensions["moe_intermediate_size"]))
    if {"hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size"} <= set(dimensions):
        given: Any = {**dimensions, "name": load.fold_name(named.get("model", "custom")) or "custom"}
        named["model"] = given
        if "gated_mlp" in dimensions and dimensions["gated_mlp"] in ("on", "true", "1"):
            given.setdefault("tie_word_embeddings", "off")
    return _published(named, cells, folders)


def _published(named: dict[str, Any], cells: dict[str, str], folders: tuple[str, ...]) -> dict[str, Any]:
    """Spellings of published-run tables: y and n, sharding words, memory sizes that tell two parts apart."""
    for name in ("sp", "flash_attention"):
        if named.get(name) in _YES:
            named[name] = _YES[named[name]]
    if named.get("zero") in _SHARDING:
        named["zero"] = _SHARDING[named["zero"]]
    if named.get("offload") in ("n", "none"):
        named.pop("offload")
    if named.get("sp") == "off" or named.get("tp") == "1":
        named["sp"] = "off"
    memory = cells.get("gpu_mem_gb", "")
    if named.get("on") and memory:
        spelled = f"{named['on']} {memory}GB"
        if load.fold_name(spelled) in load.aliases(folders)["accelerators"]:
            named["on"] = spelled
    precision = str(named.get("precision", "")).split(" ")[0].rstrip("?")
    if precision:
        named["precision"] = precision
    fraction = cells.get("recompute_fraction", "")
    if named.get("recompute") == "selective" and fraction and 0.0 < float(fraction) < 1.0:
        named["recompute"] = f"every:{round(1.0 / float(fraction))}"
    framework = named.get("framework")
    if framework and cells.get("compile") == "y":
        compiled = load.fold_name(framework) + "-compile"
        if compiled in load.names("frameworks", folders):
            named["framework"] = compiled
    if cells.get("attention_kernel") == "unfused":
        named["flash_attention"] = "off"
    return named


def _number(cell: str) -> str:
    """A cell without a spreadsheet's thousands separators."""
    bare = cell.replace(",", "")
    return bare if bare.replace(".", "", 1).isdigit() else cell


def answer_rows(path: Path, defaults: dict[str, Any], folders: tuple[str, ...] = ()) -> Iterator[RowAnswer]:
    """The answers of a CSV line by line; ``defaults`` are options for what a line leaves blank."""
    for line, cells in read_table(path):
        label = cells.get("id") or cells.get("name") or str(line)
        try:
            asked = {**defaults, **options_of(cells, folders)}
            if not asked:
                raise QuestionError(f"no column names an option; columns are {', '.join(list(cells)[:6])}")
            yield RowAnswer(line, label, answer(read_options(asked, f"line {line} of {path.name}"), folders), None)
        except IronlawError as error:
            yield RowAnswer(line, label, None, error)
