"""Classify a kernel by its name: its class, the usual roof of the class, and its number format.

The patterns are data: files of the user first, then ``data/kernels.toml``. The roof of a class is a guess; the sizes of an operator, where
recorded, decide instead (see ``table``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ironlaw.errors import InputError
from ironlaw.measure.read.toml import read_user_file, shipped

SHIPPED = "kernels.toml"
UNKNOWN = "unclassified"
COMPUTE_CLASSES = ("gemm", "conv", "attention")
ROOFS = ("compute", "memory")
_LONGEST = 400  # characters of a name that are searched; template arguments may fill pages
_MAX_PATTERN = 4_000  # characters


@dataclass(frozen=True)
class KernelClass:
    """A class of kernels: the roof that usually limits it, and why."""

    name: str
    roof: str  # compute | memory | "" if unknown
    why: str


@dataclass(frozen=True)
class Named:
    """The class of a kernel by its name, the reason, and the number format ("" if the name does not contain it)."""

    kind: KernelClass
    why: str
    precision: str = ""


@dataclass(frozen=True)
class KernelNames:
    """The rules, in the order in which they are tried."""

    classes: dict[str, KernelClass]
    rules: tuple[tuple[re.Pattern[str], KernelClass, str], ...]
    precisions: tuple[tuple[re.Pattern[str], str], ...]

    def named(self, name: str) -> Named:
        """Classify a kernel by ``name``."""
        text = name[:_LONGEST].lower()
        for pattern, kind, why in self.rules:
            if pattern.search(text):
                return Named(kind, why, self.precision(text) if kind.name in COMPUTE_CLASSES else "")
        return Named(KernelClass(UNKNOWN, "", "no pattern matches its name"), "no pattern matches", "")

    def precision(self, name: str) -> str:
        """The number format in a name, "" if there is none.

        >>> shipped_names().precision("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64")
        'bf16'
        """
        text = name[:_LONGEST].lower()
        return next((number_format for pattern, number_format in self.precisions if pattern.search(text)), "")


@cache
def shipped_names() -> KernelNames:
    """The shipped rules."""
    return read_names(())


def read_names(files: Iterable[str | Path] = ()) -> KernelNames:
    """Read the rules of the user's files, in order, then the shipped ones."""
    tables = [*((str(path), read_user_file(path)) for path in files), (SHIPPED, shipped(SHIPPED))]
    classes: dict[str, KernelClass] = {}
    for where, table in reversed(tables):
        for name, item in _of(dict, table.get("class", {}), where, "class").items():
            roof = _text(item, "roof", where, f"class.{name}")
            if roof not in ROOFS:
                raise InputError(f"{where}: class.{name}.roof is {roof!r}; write one of {', '.join(ROOFS)}")
            classes[name] = KernelClass(name, roof, _text(item, "why", where, f"class.{name}"))
    rules, precisions = [], []
    for where, table in tables:
        unknown = set(table) - {"class", "rule", "precision"}
        if unknown:
            raise InputError(f"{where}: unknown table {min(unknown)!r}; a file of kernel names has class, rule and precision")
        for i, item in enumerate(_of(list, table.get("rule", []), where, "rule")):
            at = f"rule {i + 1}"
            name = _text(item, "class", where, at)
            if name not in classes:
                raise InputError(f"{where}: {at}: class {name!r} is not declared; known: {', '.join(sorted(classes))}")
            rules.append((_pattern(item, where, at), classes[name], _text(item, "why", where, at)))
        for i, item in enumerate(_of(list, table.get("precision", []), where, "precision")):
            at = f"precision {i + 1}"
            precisions.append((_pattern(item, where, at), _text(item, "is", where, at)))
    return KernelNames(classes, tuple(rules), tuple(precisions))


_PREFIXES = re.compile(r"^(void|std::enable_if<.{0,1000}?>::type|static)\s+")
_LAMBDAS = re.compile(r"\{lambda\([^{}]*\)#\d+\}(::operator\(\)\([^()]*\)( const)?)?(::)?")
_WRAPPERS = (
    "elementwise_kernel",
    "reduce_kernel",
    "multi_tensor_apply_kernel",
    "index_elementwise_kernel",
    "elementwise_kernel_with_index",
)
_FUNCTOR = re.compile(
    r"(?:BinaryFunctor|UnaryFunctor)<.*?(?:::)?(\w+)(?:_kernel_impl|<)|(\w+Functor\w*|\w+_kernel_cuda|\w+_kernel_impl|launch_\w+|\w+Ops)\b"
)


def short_name(name: str) -> str:
    """A short name for tables, without return type, arguments, template arguments and anonymous namespaces.

    >>> short_name("void cutlass::Kernel2<cutlass_75_tensorop_bf16_s1688gemm_bf16_256x128_tn_align1>(Params)")
    'cutlass_75_tensorop_bf16_s1688gemm_bf16_256x128_tn_align1'
    >>> short_name("void at::native::(anonymous namespace)::CatArrayBatchedCopy<float, 2>(float*)")
    'CatArrayBatchedCopy'
    """
    text = _PREFIXES.sub("", name[:2000]).replace("(anonymous namespace)::", "")
    inner = re.match(r"(?:\w+::)*(?:Kernel2?|device_kernel)<([\w:]+)", text)
    if inner:  # CUTLASS: the template argument names the kernel
        return inner.group(1)[:80]
    full_name = text
    text = text.split("(", 1)[0]
    head = text.split("<", 1)[0]
    parts = head.split("::")
    last = "::".join(parts[-2:]) if parts[-1] == "kernel" else parts[-1]
    if last.endswith(_WRAPPERS):  # ATen: the functor in the wrapper names the operation
        arguments = _LAMBDAS.sub("", full_name[len(head) :])
        functor = _FUNCTOR.search(arguments)
        if functor:
            return f"{last}<{functor.group(1) or functor.group(2)}>"[:80]
    return last[:80] or name[:80]


def _of(kind: type, item: Any, where: str, at: str) -> Any:
    if not isinstance(item, kind):
        raise InputError(f"{where}: {at} must be a {'table' if kind is dict else 'list of tables'}")
    return item


def _text(item: Any, key: str, where: str, at: str) -> str:
    """The text under ``key``; InputError where it is missing."""
    value = item.get(key) if isinstance(item, dict) else None
    if not isinstance(value, str) or not value:
        raise InputError(f"{where}: {at} lacks {key!r}, a text")
    return value


def _pattern(item: Any, where: str, at: str) -> re.Pattern[str]:
    """The regular expression of a rule; InputError where it is not one."""
    text = _text(item, "match", where, at)
    try:
        if len(text) > _MAX_PATTERN:
            raise re.error(f"{len(text)} characters, the limit is {_MAX_PATTERN}")
        return re.compile(text, re.IGNORECASE)  # names are searched in lower case
    except (re.error, OverflowError, RecursionError) as error:
        raise InputError(f"{where}: {at}: match is not a regular expression: {error}") from None
