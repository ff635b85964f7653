"""Stacks that tests write into a catalogue folder of their own."""

from __future__ import annotations

from pathlib import Path


def without_limits(folder: Path, like: str) -> dict[str, str]:
    """Options that name a stack with the costs of another, which refuses no plan."""
    name = f"{like}-without-limits"
    (folder / "frameworks").mkdir(exist_ok=True)
    (folder / "frameworks" / f"{name}.toml").write_text(
        f'title = "{name}"\nlike = "{like}"\nreplaces = ["can"]\n\n[can]\n', encoding="utf-8"
    )
    return {"framework": name, "catalog": str(folder)}
