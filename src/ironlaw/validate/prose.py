"""Facts that published tables state in prose, as columns: LoRA in a model's name, ``mixed_precision=DEFAULT`` in the notes."""

from __future__ import annotations

import re

from ironlaw.question.defaults import GRAPH_MODULES
from ironlaw.question.recipes import read_precision

Cells = dict[str, str]

ANYWHERE = "*"  # in place of a column: the phrase is distinct enough to be read from all of them
_ON = r"(?:=|:|\s)\s*(?:true|on|1|yes)\b"
PHRASES = (  # column, phrase in it, column to fill, value, rule to report; a rule that later reads the filled column reports itself
    ("notes", r"zero1 (?:shard )?group (?:= )?([1-9]\d{0,5})", "zero_group", r"\1", ""),
    ("notes", "mixed_precision=DEFAULT", "gradient_dtype", "fp32", "mixed_precision=DEFAULT: gradients reduced in fp32"),
    ("notes", "FP8-CS", "fp8_scaling", "current", "label FP8-CS: current scaling"),
    ("enrich_source", "FA1", "attention_kernel", "fa1", "first flash attention, as the row's source says"),
    (
        ANYWHERE,
        rf"(?i)EP A2A 1F1B overlap on|\+1f1b EP a2a overlap|overlap_moe_expert_parallel_comm{_ON}"
        r"|--overlap-moe-expert-parallel-comm|all-to-all of experts beside another micro-batch",
        "ep_comm_overlap", "y", "",
    ),
    (
        ANYWHERE, rf"(?i)delay_wgrad_compute{_ON}|--delay-wgrad-compute", "delay_wgrad_compute", "on",
        "weight gradients delayed, as the row says",
    ),
    (
        ANYWHERE,
        r"(?i)--deterministic-mode|\bdeterministic(?: mode)?\b(?!\s*[=:]?\s*(?:false|off|no)\b)"
        r"|no fused wgrad|--no-gradient-accumulation-fusion",
        "deterministic", "y", "",
    ),
    (ANYWHERE, r"\bCI (?:run|test|job)s?\b|(?i:functional[ _-]tests?|golden[ _]values?|smoke[ _-]tests?)", "deterministic", "y", ""),
    ("notes", r"^(rl|sft) trainer step", "trainer", r"\1", ""),
    ("notes", r"(?i)no DP overlap flags", "overlap", "pp", "gradients and weights are not sent beside computation, as the row says"),
    ("notes", r"(?i)grads reduced in fp32", "gradient_dtype", "fp32", "gradients reduced in fp32, as the row says"),
)  # fmt: skip
# words for how fp8 is scaled, where the precision is only "fp8": pattern, column, value
RECIPES = (
    (r"fp8[ _-]?mx\b|\bmxfp8\b", "precision_filled", "mxfp8"),
    (r"row[ -]?wise\b|per[ -]row scal", "precision_filled", "fp8-row"),
    (r"block[ -]?wise (?:fp8|scal)|fp8 block[ -]?wise|block[ -]?scal(?:ed|ing)|fp8[ _-]sc\b", "precision_filled", "fp8-block"),
    (r"fp8[ _-]?cs\b|current[ -]scaling|tensor[ -]?wise scal", "fp8_scaling", "current"),
    (r"fp8[ _-]ds\b|delayed[ -]scaling", "fp8_scaling", "delayed"),
)
RECIPE_COLUMNS = ("recipe", "notes", "software", "framework", "model_name", "source", "enrich_source")  # the source's own words first


def read_prose(cells: Cells) -> tuple[Cells, list[str]]:
    """The row with the columns that its prose fills, and a sentence for each; columns with a value do not change."""
    filled, rules = _read_training(cells)
    everything = "; ".join(cell for name, cell in cells.items() if name not in _NAMES)
    for source, phrase, name, value, rule in PHRASES:
        match = re.search(phrase, everything if source == ANYWHERE else cells.get(source, ""))
        if match and not cells.get(name) and not filled.get(name):
            filled[name] = match.expand(value)
            rules += [rule] if rule else []
    offloaded = re.search(r"cpu_offloading_num_layers=(\d+)", cells.get("notes", ""))
    if offloaded and cells.get("offload") == "activations" and not cells.get("offload_layers"):
        filled["offload_layers"] = offloaded[1]
        rules.append("layers that offload, as the recipe's preset says")
    for facts, rule in (_read_scaling({**cells, **filled}), _read_graphs({**cells, **filled}, everything)):
        filled |= facts
        rules += [rule] if facts else []
    return {**cells, **filled}, rules


_NAMES = ("id", "name", "family", "url_or_repo_path")  # columns that identify a row, in which a word is no fact


def _read_scaling(cells: Cells) -> tuple[Cells, str]:
    """The recipe of a row whose precision says only fp8, from the first text column that names one recipe, not several."""
    recipe = read_precision(cells.get("precision_filled") or cells.get("precision", ""))
    if recipe.precision != "fp8" or recipe.scaling or cells.get("fp8_scaling"):
        return {}, ""
    for column in RECIPE_COLUMNS:
        found = {(name, value) for pattern, name, value in RECIPES if re.search(pattern, cells.get(column, ""), re.IGNORECASE)}
        if len(found) == 1:
            name, value = found.pop()
            return {name: value}, f"{value} scaling, as the row's {column} says" if name == "fp8_scaling" else f"{value}, as {column} says"
    return {}, ""


def _read_graphs(cells: Cells, everything: str) -> tuple[Cells, str]:
    """The modules that run as CUDA graphs, where the row lists them; an empty list or full_iteration is a graph of the whole step."""
    if cells.get("cuda_graphs", "").lower() in ("n", "none") or cells.get("graph_scope"):
        return {}, ""
    listed = re.search(r"(?i)cuda[ _-]?graph[^;\[\]]{0,60}\[([^\]]*)\]|--cuda-graph-scope((?: +[a-z_]+)+)", everything)
    modules = re.findall(r"[a-z_]+", (listed[1] or listed[2] or "").lower()) if listed else []
    known = [m for m in modules if m in GRAPH_MODULES]
    if not known:
        return {}, ""
    return {"graph_scope": ",".join(dict.fromkeys(known))}, f"CUDA graphs of {', '.join(known)}, as the row says"


def _read_training(cells: Cells) -> tuple[Cells, list[str]]:
    """The columns for adapters and fine-tuning, and for figures that the source calls early."""
    filled: Cells = {}
    rules: list[str] = []
    name, notes = cells.get("model_name", ""), cells.get("notes", "")
    words = f"{name} {cells.get('task', '')} {notes[:40]}".lower()
    adapters = re.search(r"\bq?lora\b(?: r(\d+))?", words)
    if cells.get("training"):
        return filled, rules
    if adapters:
        filled |= {"training": "adapters", "model_name": re.split(r"\s+q?lora", name, flags=re.IGNORECASE)[0]}
        if adapters[1] and not cells.get("lora_rank"):
            filled["lora_rank"] = adapters[1]
        if "qlora" in words and not cells.get("frozen_weights"):
            filled["frozen_weights"] = "nf4"
            rules.append("QLoRA: frozen weights stored in 4 bits")
        if "fp8_params" in notes and cells.get("precision", "").lower() == "fp8":
            filled["frozen_weights"] = "fp8"
            rules.append("fp8_params: frozen weights stored in fp8, as the recipe says")
    elif re.search(r"\b(sft|fine-tune|finetune|proxy)\b", words):
        filled["training"] = "fine-tuning"
    mixture = "moe" in words or cells.get("moe_experts", "") not in ("", "0", "1")
    if re.search(r"early|untuned", notes, re.IGNORECASE) and (mixture or filled):
        filled["tuned"] = "n"
    return filled, rules
