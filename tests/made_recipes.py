"""Recipes of precisions that tests write into a catalogue folder of their own."""

from __future__ import annotations

from pathlib import Path

PRODUCTS = ("forward", "data_gradient", "weight_gradient")


def write_recipe(folder: Path, name: str, like: str, text: str = "") -> Path:
    """Write a record like another into the folder's catalogue; the folder."""
    (folder / "precisions").mkdir(exist_ok=True)
    head = f'like = "{like}"\ntitle = "{name}"\n'
    (folder / "precisions" / f"{name}.toml").write_text(head + text, encoding="utf-8")
    return folder


def recipe_with_wide_products(folder: Path) -> Path:
    """A catalogue with the recipe "alike": as fp8, with the products of bf16."""
    products = "".join(f'[{product}]\noperands = "bf16 x bf16"\npeak = "bf16"\ngemm = "bf16"\nsource = "made"\n\n' for product in PRODUCTS)
    source = '[sources.made]\ntitle = "made by a test"\nurl = "https://example.org"\nread = "2026-11-23"\ngrade = "guess"\n'
    head = f"replaces = {list(PRODUCTS)}\n\n"
    return write_recipe(folder, "alike", "fp8", head + products + source)
