"""Names as tables spell them: "A (B)", a checkpoint's suffix, a memory size in its own column."""

from __future__ import annotations

from functools import cache

from ironlaw.catalog import load


@cache
def known_names(kind: str, folders: tuple[str, ...]) -> frozenset[str]:
    """Names and aliases of a kind of record, folded. Cached, because every line of a table needs them."""
    return frozenset({*(load.fold_name(n) for n in load.names(kind, folders)), *load.aliases(folders)[kind]})


def spellings(text: str) -> list[str]:
    """The names that a cell may mean, the most specific first.

    >>> spellings("TPU v6e (Trillium)")
    ['TPU v6e (Trillium)', 'TPU v6e Trillium', 'TPU v6e', 'Trillium']
    """
    head, bracket, rest = text.partition("(")
    first, second = head.strip(), rest.rpartition(")")[0].strip() or rest.strip()
    return [name for name in (text.strip(), *((f"{first} {second}", first, second) if bracket else ())) if name]


def find_name(kind: str, text: str, folders: tuple[str, ...] = (), beside: str = "") -> str:
    """The first spelling of a cell that names a record of ``kind``; empty if none does.

    ``beside`` is what another column adds to the name, such as "80GB". Then names are read as ``load.other_name`` reads them.

    >>> find_name("accelerators", "TPU v7x (Ironwood)"), find_name("accelerators", "A100", beside="40GB")
    ('TPU v7x', 'A100 40GB')
    >>> find_name("models", "Qwen3-30B-A3B-Thinking-2507"), find_name("models", "My own model")
    ('qwen-3-30b-a3b', '')
    """
    known = known_names(kind, folders)
    tried = spellings(text)
    if beside:
        tried = [*(f"{name} {beside}" for name in tried), *tried]
    for name in tried:
        if load.fold_name(name) in known:
            return name
    for name in tried:
        if other := load.other_name(kind, load.fold_name(name), folders):
            return other
    return ""
