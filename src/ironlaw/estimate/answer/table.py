"""Many questions from one CSV: a header of option names (or their aliases), one question a line.

A header may also name a model dimension (``hidden_size``) or be one of the aliases of published-run tables in
``aliases.toml``. A blank cell is an option that is not given. Other columns are ignored.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ironlaw.catalog import load
from ironlaw.catalog.model import Model
from ironlaw.catalog.spellings import find_name
from ironlaw.cautions.record import Caution
from ironlaw.cautions.table import caution
from ironlaw.errors import InputError, IronlawError, QuestionError
from ironlaw.estimate.answer.estimate import Estimate, answer
from ironlaw.estimate.layer.kinds import kinds
from ironlaw.files import read_csv, with_headers
from ironlaw.question.options import OPTIONS
from ironlaw.question.read import read_options
from ironlaw.question.recipes import read_precision
from ironlaw.units import shorten

MAX_BYTES = 64_000_000
MOST_COLUMNS = 1000
MOST_WARNINGS = 8  # about columns that resemble an option
_DIMENSIONS = (
    "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim", "intermediate_size", "vocab_size",
    "gated_mlp", "sliding_window", "tie_word_embeddings", "max_position_embeddings", "num_experts", "num_experts_per_tok",
    "moe_intermediate_size", "shared_expert_intermediate_size", "first_k_dense_replace", "position_embedding",
    "dropout", "query_key_value_bias", "attention_output_bias", "mlp_bias", "expert_bias",
)  # fmt: skip
_YES = {"y": "on", "n": "off"}
_GRAPHS = {"y": "full", "n": "none"}
_KERNELS = {"fa1": "flash-1", "flash-1": "flash-1", "fa2": "flash-2", "fa3": "flash-3", "flash-2": "flash-2", "flash-3": "flash-3"}
_SHARDING = {
    "none": "0", "ddp": "0", "zero0": "0", "zero1": "1", "zero2": "2", "zero3": "3", "fsdp": "3", "fsdp2": "3", "hsdp": "3",
    "full-shard": "3", "hybrid-shard": "3", "shard-grad-op": "2", "no-shard": "0", "zero-1": "1", "zero-2": "2", "zero-3": "3",
    "distributed-optimizer": "1",
}  # fmt: skip


@dataclass(frozen=True)
class RowAnswer:
    """The answer to one line of the file: a row of an Estimate, or the error."""

    line: int
    label: str
    estimate: Estimate | None
    index: int
    error: IronlawError | None


def read_table(path: Path) -> list[tuple[int, dict[str, str]]]:
    """(line number, cells by header) of a CSV with or without BOM, LF or CRLF; surplus cells of a line are under ``""``."""
    lines = read_csv(path, "a table of questions", MAX_BYTES, strict=True)
    headers = [header.strip() for header in lines[0][1]] if lines else []
    _check_header(path, headers)
    if len(lines) < 2:
        raise InputError(f"{path}: has a header and no rows; add one line for each question")
    return [(line, with_headers(headers, cells)) for line, cells in lines[1:]]


def _check_header(path: Path, headers: list[str]) -> None:
    """Refuse a header that is empty, names a column twice, or is separated by something else than commas."""
    if not any(headers):
        raise InputError(f"{path}: is empty, expected a header of option names such as model,on,gpus")
    if len(headers) == 1 and (mark := next((m for m in (";", "\t") if m in headers[0]), "")):
        separator = "tabs" if mark == "\t" else "semicolons"
        raise InputError(f"{path}: cells are separated by {separator}: save it with commas between cells and points for decimals")
    if len(headers) > MOST_COLUMNS:
        raise InputError(f"{path}: {len(headers):,} columns, and at most {MOST_COLUMNS:,} are read")
    seen: set[str] = set()
    for header in headers:
        if header and header in seen:
            raise InputError(f"{path}: the header names {shorten(header)!r} twice")
        seen.add(header)


def strange_headers(table: Sequence[tuple[int, dict[str, str]]], folders: tuple[str, ...] = ()) -> list[Caution]:
    """Warnings about headers of a table that name no option but resemble one."""
    names = {*OPTIONS, *_DIMENSIONS}
    aliases = load.aliases(folders).get("columns", {})
    warnings = []
    for header in table[0][1]:
        folded = header.replace("-", "_").lower()
        if folded and folded not in names and load.fold_name(header) not in aliases:
            near = difflib.get_close_matches(folded, names, n=1, cutoff=0.85)
            if near:
                warnings.append(caution("strange-column", near[0], column=header, nearest=near[0]))
    more = len(warnings) - MOST_WARNINGS
    return warnings if more <= 1 else [*warnings[:MOST_WARNINGS], caution("more-strange-columns", count=more)]


def options_of(cells: dict[str, str], folders: tuple[str, ...]) -> dict[str, Any]:
    """The options of one line, by header, alias and the conventions of published-run tables."""
    aliases = load.aliases(folders).get("columns", {})
    named: dict[str, str] = {}
    for header, cell in cells.items():
        folded = header.replace("-", "_").lower()
        name = folded if folded in OPTIONS or folded in _DIMENSIONS else aliases.get(load.fold_name(header), "")
        if name and cell and (name not in named or folded.endswith("_filled")):
            named[name] = _strip_thousands(name, cell)
    dimensions = {n: _YES.get(named[n], named[n]) for n in _DIMENSIONS if n in named}
    for n in _DIMENSIONS:
        named.pop(n, None)
    catalogued = find_name("models", named.get("model", ""), folders)
    if "model" in named:
        named["model"] = catalogued or named["model"].partition(" (")[0].strip() or named["model"]
    if catalogued and _incomplete(load.record("models", catalogued, folders), dimensions, cells):
        dimensions = {}
    if cells.get("shared_experts", "0") not in ("", "0") and "moe_intermediate_size" in dimensions:
        dimensions["shared_expert_intermediate_size"] = str(
            _parse_whole(cells["shared_experts"]) * _parse_whole(dimensions["moe_intermediate_size"])
        )
    if {"hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size"} <= set(dimensions):
        given: Any = {**dimensions, "name": load.fold_name(named.get("model", "custom")) or "custom"}
        named["model"] = given
        if "gated_mlp" in dimensions and dimensions["gated_mlp"] in ("on", "true", "1"):
            given.setdefault("tie_word_embeddings", "off")
    return _translate_published(named, cells, folders)


_COMPARED = {
    "num_hidden_layers": "layers", "hidden_size": "hidden", "num_attention_heads": "heads", "num_experts": "moe_experts",
    "num_experts_per_tok": "moe_topk",
}  # fmt: skip


def _incomplete(model: Model, dimensions: dict[str, str], cells: dict[str, str]) -> bool:
    """True where columns do not describe the model, whose record then decides: latent attention, routed layers, layers that differ.

    The sizes that the columns give must be the record's. A mixture of other sizes is another model; for other layouts it is an error,
    because no column says how the layers of a shortened hybrid are mixed.
    """
    mixed = kinds(model)
    hybrid = any(not kind.mixer.attends for kind in mixed) or model.layer_groups or model.one_block_layers or model.kv_lora_rank
    told = cells.get("mla") == "y" or _parse_whole(dimensions.get("num_experts", "")) > 1
    if not (hybrid or told or model.num_experts):
        return False
    other = [n for n in _COMPARED if dimensions.get(n) and _parse_whole(dimensions[n]) not in (0, getattr(model, n))]
    if other and hybrid:
        stated = ", ".join(f"{_COMPARED[n]} {dimensions[n]} (there {getattr(model, n)})" for n in other)
        raise QuestionError(f"not the sizes of {model.name} in the catalogue, whose layers differ in kind: {stated}")
    return not other


def _parse_whole(cell: str) -> int:
    """A cell as a whole number; 0 for any other text, which the check of the value refuses."""
    text = without_thousands(cell)
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 16 else 0


def _translate_published(named: dict[str, Any], cells: dict[str, str], folders: tuple[str, ...]) -> dict[str, Any]:
    """Turn the spellings and conventions of published-run tables into options."""
    for name in ("sp", "flash_attention"):
        named[name] = _YES.get(named.get(name, ""), named.get(name))
    named["zero"] = _SHARDING.get(load.fold_name(named.get("zero", "")), named.get("zero"))
    if named.get("sp") == "off" or named.get("tp") == "1":
        named["sp"] = "off"
    if cells.get("attention_kernel") == "unfused":
        named["flash_attention"] = "off"
    named["attention_kernel"] = _KERNELS.get(cells.get("attention_kernel", ""))
    named["cuda_graphs"] = _GRAPHS.get(named.get("cuda_graphs", ""), named.get("cuda_graphs"))
    if named.get("offload") in ("n", "none"):
        named["offload"] = None
    _read_recipe(named)
    _pick_device(named, cells, folders)
    _use_compiled(named, cells, folders)
    _translate_layers(named, cells)
    return {name: value for name, value in named.items() if value is not None}


def _read_recipe(named: dict[str, Any]) -> None:
    """Turn the words of a precision into options; a word that says nothing known is an error, not another precision."""
    text = str(named.get("precision") or "")
    recipe = read_precision(text)
    if not text or not recipe.precision:
        return  # blank, or for the option's own check
    if recipe.unread:
        raise QuestionError(f"precision {text!r}: {' '.join(recipe.unread)!r} is not understood")
    named["precision"] = recipe.precision
    for name, value in (("fp8_scaling", recipe.scaling), ("expert_precision", recipe.expert_precision)):
        named[name] = named.get(name) or value or None


def _pick_device(named: dict[str, Any], cells: dict[str, str], folders: tuple[str, ...]) -> None:
    """The accelerator by one of its spellings; two of one name are told apart by their memory size."""
    memory = cells.get("gpu_mem_gb", "")
    if named.get("on"):
        named["on"] = find_name("accelerators", named["on"], folders, f"{memory}GB" if memory else "") or named["on"]


def _use_compiled(named: dict[str, Any], cells: dict[str, str], folders: tuple[str, ...]) -> None:
    """Name the framework's record for compiled models, where the catalogue has one."""
    framework = named.get("framework")
    if framework and cells.get("compile") == "y":
        compiled = load.fold_name(framework) + "-compile"
        if compiled in load.names("frameworks", folders):
            named["framework"] = compiled


def _translate_layers(named: dict[str, Any], cells: dict[str, str]) -> None:
    """Read the share of recomputed layers, and count embedding and loss as layers where pp divides the layers only with these two."""
    if named.get("recompute") in ("selective", "full") and (part := cells.get("recompute_fraction", "")) not in ("", "0", "1"):
        named["recompute"] = f"share:{part}"
    layers, pp = cells.get("layers", ""), str(named.get("pp") or "1")
    if layers.isdecimal() and pp.isdecimal() and int(pp) and int(layers) % int(pp) and (int(layers) + 2) % int(pp) == 0:
        named["count_embedding"] = "on"


_THOUSANDS = re.compile(r"^[0-9]{1,3}(?:([,'\u2019 \u00a0\u202f])[0-9]{3}(?:\1[0-9]{3})*)(\.[0-9]+)?$")


def without_thousands(cell: str) -> str:
    """A number without the separators a spreadsheet puts between thousands; anything else unchanged.

    >>> without_thousands("1,536"), without_thousands("2 048.5"), without_thousands("1,53")
    ('1536', '2048.5', '1,53')
    """
    return re.sub(r"[^0-9.]", "", cell) if _THOUSANDS.match(cell) else cell


def _strip_thousands(name: str, cell: str) -> str:
    """A cell of a count without a spreadsheet's thousands separators; lists and prices keep their commas."""
    is_count = name in _DIMENSIONS or (name in OPTIONS and OPTIONS[name].column) or name in ("tokens", "global_batch_tokens")
    return without_thousands(cell) if is_count else cell


def answer_rows(
    path: Path, defaults: dict[str, Any], folders: tuple[str, ...] = (), table: Sequence[tuple[int, dict[str, str]]] = ()
) -> Iterator[RowAnswer]:
    """The answers of a CSV in its order; ``defaults`` are the options of every line that leaves them blank.

    ``table`` is what ``read_table`` gave for the file, where it was read before. Lines that differ only in the values of column options
    are answered in one call.
    """
    table = table or read_table(path)
    asked: list[dict[str, Any] | IronlawError] = []
    for line, cells in table:
        try:
            asked.append(_read_line(line, cells, path, defaults, folders))
        except IronlawError as error:
            asked.append(error)
    answered, wrong = answer_many(asked, folders)
    for i, (line, cells) in enumerate(table):
        label = cells.get("id") or cells.get("name") or str(line)
        estimate, index = answered.get(i, (None, 0))
        yield RowAnswer(line, label, estimate, index, wrong.get(i))


def answer_many(
    asked: list[dict[str, Any] | IronlawError], folders: tuple[str, ...] = ()
) -> tuple[dict[int, tuple[Estimate, int]], dict[int, IronlawError]]:
    """Answers of checked options by their index, as an Estimate and a row of it, and the errors of the rest.

    Questions that differ only in the values of column options are answered in one call.
    """
    answered: dict[int, tuple[Estimate, int]] = {}
    wrong: dict[int, IronlawError] = {i: a for i, a in enumerate(asked) if isinstance(a, IronlawError)}
    for members in _group_alike(asked).values():
        _answer_together(members, asked, folders, answered, wrong)
    return answered, wrong


def _read_line(line: int, cells: dict[str, str], path: Path, defaults: dict[str, Any], folders: tuple[str, ...]) -> dict[str, Any]:
    """The checked options of one line."""
    if cells.get(""):
        raise QuestionError(f"line {line} of {path.name} has more cells than the header: {cells['']}")
    options = {**defaults, **options_of(cells, folders)}
    if not options:
        raise QuestionError(f"no column names an option; columns are {', '.join(list(cells)[:6])}")
    return read_options(options, f"line {line} of {path.name}")


def _group_alike(asked: list[dict[str, Any] | IronlawError]) -> dict[str, list[int]]:
    """Group lines that differ only in the values of column options."""
    groups: dict[str, list[int]] = {}
    for i, options in enumerate(asked):
        if not isinstance(options, IronlawError):
            fixed = {k: v for k, v in options.items() if not OPTIONS[k].column}
            columns = sorted(k for k in options if OPTIONS[k].column)
            groups.setdefault(repr((sorted(fixed.items(), key=lambda item: item[0]), columns)), []).append(i)
    return groups


def _answer_together(
    members: list[int],
    asked: list[Any],
    folders: tuple[str, ...],
    answered: dict[int, tuple[Estimate, int]],
    wrong: dict[int, IronlawError],
) -> None:
    """Answer lines as one batch; if it is refused, answer its halves, so that only the wrong lines fail."""
    first = asked[members[0]]
    batch = {k: [asked[i][k] for i in members] if OPTIONS[k].column and len(members) > 1 else v for k, v in first.items()}
    try:
        estimate = answer(batch, folders)
        answered.update({i: (estimate, at) for at, i in enumerate(members)})
    except IronlawError as error:
        if len(members) == 1:
            wrong[members[0]] = error
            return
        middle = len(members) // 2
        for half in (members[:middle], members[middle:]):
            _answer_together(half, asked, folders, answered, wrong)
