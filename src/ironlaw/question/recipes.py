"""The words with which tables describe a precision: format, recipe of scales, and the format of experts where it differs.

A word that says nothing known is returned unread: the caller refuses the line, or sets it apart, and never takes another precision.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class Recipe(NamedTuple):
    """A precision by the names of options; empty where the words do not say it. ``unread``: words that say nothing known."""

    precision: str = ""
    expert_precision: str = ""
    scaling: str = ""
    unread: tuple[str, ...] = ()


_FORMATS = (  # pattern, precision; the first that matches
    (r"mx[- ]?fp8|fp8[- ]?mx|mx (?:e4m3|e5m2)", "mxfp8"),
    (r"mx[- ]?fp4|fp4[- ]?mx", "mxfp4"),
    (r"nv[- ]?fp4|fp4[- ]?nv|fp4", "nvfp4"),
    (r"fp8|float8|e4m3|e5m2|f8", "fp8"),
    (r"bf16|bfloat16|b16", "bf16"),
    (r"fp16|float16|half|f16", "fp16"),
    (r"tf32", "tf32"),
    (r"fp32|float32|single|f32", "fp32"),
)
_FORMAT = "|".join(pattern for pattern, _ in _FORMATS)
_GRANULARITY = (  # how finely fp8 is scaled -> precision
    (r"row[- ]?wise|per[- ]?row|per[- ]?token(?: per[- ]?channel)?", "fp8-row"),
    (
        r"block[- ]?wise|block[- ]?scal(?:ed|ing)|per[- ]?block|block|sub[- ]?channel|1x128|128x128|deepseek(?:[- ]?v3)?[- ]?style",
        "fp8-block",
    ),
    (r"\brow\b", "fp8-row"),
)
_SCALING = (
    (r"tensor[- ]?wise|per[- ]?tensor|current(?:[- ]?scal(?:ing|ed))?|\bcs\b|dynamic(?:[- ]?scal(?:ing|ed))?", "current"),
    (r"delayed(?:[- ]?scal(?:ing|ed))?|\bds\b", "delayed"),
)
_OF_EXPERTS = r"(?:routed )?(?:experts?|moe|grouped gemms?)"
_EXPERTS = (
    rf"\b(?P<format>{_FORMAT})(?: (?P<how>row[- ]?wise|block[- ]?wise))? (?:(?:only|for|in|on|the|of) )*{_OF_EXPERTS}(?: only)?",
    rf"{_OF_EXPERTS} (?:(?:only|in|at|with|as|use) )*(?P<format>{_FORMAT})\b",
)
_BESIDE = (  # formats of what is kept or summed beside the products
    rf"(?:{_FORMAT}) (?:master|main|accum\w*|reduc\w*|grad\w*|optimizer|states?|router|residual)"
    r"(?: \w*(?:weights?|gradients?|states?|copy))?"
)
_SILENT = frozenset({  # words that change nothing
    "te", "transformer", "engine", "torchao", "torch", "ao", "nn", "linear", "nn.linear", "layers", "layer", "hybrid", "mixed", "precision",
    "amp", "autocast", "training", "train", "compute", "with", "in", "and", "for", "the", "of", "gemm", "gemms", "only", "recipe",
    "scaling", "scaled", "pure", "native", "apex", "o1", "o2", "true", "params", "parameters", "weights", "activations", "dense",
    "megatron", "nemo", "bridge", "jax", "xla", "format", "formats", "auto", "rest", "else", "elsewhere", "attention",
})  # fmt: skip


def read_precision(text: str) -> Recipe:
    """The precision that a cell describes.

    >>> read_precision("fp8 rowwise").precision, read_precision("FP8 (torchao float8, nn.Linear)").precision
    ('fp8-row', 'fp8')
    >>> read_precision("bf16, mxfp8 experts")[:2], read_precision("fp8_cs").scaling
    (('bf16', 'mxfp8'), 'current')
    >>> read_precision("fp8 wavewise").unread
    ('wavewise',)
    """
    rest = " ".join(re.sub(r"[_/:|=?&]", " ", re.sub(r"[,;+()\[\]]", " , ", text.lower())).split())
    rest = re.sub(_BESIDE, " ", rest) if len(re.findall(_FORMAT, rest)) > 1 else rest
    experts = ""
    for pattern in _EXPERTS:
        if found := re.search(pattern, rest):
            groups = found.groupdict()
            experts = _format_of(groups["format"])
            if groups.get("how"):
                experts = next((p for pattern, p in _GRANULARITY if re.search(pattern, groups["how"])), experts)
            rest = rest.replace(found.group(0), " ")
            break
    base = _format_of(rest)
    rest = re.sub(rf"\b(?:{_FORMAT})\b", " ", rest) if base else rest
    precision, scaling = base or ("bf16" if experts else ""), ""
    if base in ("fp8", "mxfp8"):
        for pattern, name in _GRANULARITY:
            if re.search(pattern, rest):
                precision = name if base == "fp8" else base
                rest = re.sub(pattern, " ", rest)
                break
        for pattern, name in _SCALING:
            if re.search(pattern, rest):
                scaling = name if precision == "fp8" else ""
                rest = re.sub(pattern, " ", rest)
    unread = tuple(word for word in (w.strip("-.,") for w in rest.split()) if word and word not in _SILENT)
    return Recipe(precision, experts, scaling, unread)


def _format_of(text: str) -> str:
    return next((name for pattern, name in _FORMATS if re.search(rf"\b(?:{pattern})\b", text)), "")
