"""Write docs/parameter-counts.md: the parameters that the laws count of every model, beside what is published.

    python tools/parameter_counts.py            write the page
    python tools/parameter_counts.py --check    write nothing; exit with 1 where the page is stale or a count is off

Published counts are those of catalogue records and of the rows of tests/data/published_parameters*.csv.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ironlaw.catalog import load
from ironlaw.catalog.config_json.read import load_config, model_from_config
from ironlaw.catalog.model import Model
from ironlaw.estimate.layer.counts import active_parameters, total_parameters

ROOT = Path(__file__).parent.parent
DATA = ROOT / "tests" / "data"
PAGE = ROOT / "docs" / "parameter-counts.md"
TOLERANCE = 0.005
CLASSES = DATA / "transformers_classes.csv"


class Count(NamedTuple):
    """One published count beside that of the laws."""

    name: str  # of the record, or the file of the config
    kind: str  # catalog | config
    what: str  # total | active | whole, with all towers
    published: float
    rounding: float  # by how much the published figure may be rounded
    counted: float
    title: str
    url: str

    @property
    def off(self) -> float:
        """The count over the published one, less 1."""
        return self.counted / self.published - 1.0

    @property
    def agrees(self) -> bool:
        """Within 0.5 %, or within the rounding of the published figure."""
        return abs(self.counted - self.published) <= max(TOLERANCE * self.published, self.rounding)


def last_digit(text: str) -> float:
    """What one more in the last digit of a number is worth: 1.6e12 -> 1e11, 426174565632 -> 1."""
    mantissa, _, exponent = text.partition("e")
    return float(10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2])))


def _rounding(text: str, what: str) -> float:
    """By how much a figure may be rounded: half of its last digit; an active count may also be cut off, as 2.45 B is to 2.4 B."""
    return last_digit(text) * (1.0 if what == "active" else 0.5)


def whole(model: Model) -> Model:
    """A model with every tower taking part; how much a tower reads does not change its parameters."""
    return model.replace(towers=tuple(tower.replace(items=1.0, tokens=tower.tokens or 256.0) for tower in model.towers))


def count(model: Model, what: str, published: float) -> float:
    """The parameters of a model. Publishers of active counts may leave out one table, or both: the nearest of the three."""
    if what == "whole":
        return float(total_parameters(whole(model)))
    if what == "total":
        return float(total_parameters(model))
    tables = model.vocab_size * model.hidden_size
    counted = [float(active_parameters(model)) - left_out * tables for left_out in (0, 1, 2)]
    return min(counted, key=lambda value: abs(value - published))


def names() -> list[str]:
    """Every model that ships."""
    return sorted(path.stem for path in (load.SHIPPED / "models").glob("*.toml"))


def of_records() -> Iterator[Count]:
    """The counts that catalogue records state."""
    for name in names():
        model = load.record("models", name)
        for what, stated in (("total", model.published_parameters), ("active", model.published_active_parameters)):
            if stated is not None and stated.source is not None:
                counted = count(model, what, stated.value)
                number = stated.text.split()[0]
                rounding = _rounding(number, what) * stated.value / float(number)
                yield Count(name, "catalog", what, stated.value, rounding, counted, stated.source.title, stated.source.url)


def of_tables() -> Iterator[Count]:
    """The counts in the tables of the tests."""
    for path in sorted(DATA.glob("published_parameters*.csv")):
        with path.open(encoding="utf-8", newline="") as opened:
            rows = list(csv.DictReader(opened))
        for row in rows:
            model, published = read(row["kind"], row["file_or_name"]), float(row["published"])
            counted = count(model, row["what"], published)
            rounding = _rounding(row["published"], row["what"])
            yield Count(row["file_or_name"], row["kind"], row["what"], published, rounding, counted, row["title"], row["url"])


def read(kind: str, name: str) -> Model:
    """A model of the catalogue, or of a config among the data of the tests."""
    if kind == "catalog":
        return load.record("models", name)
    path = DATA / "hf_configs" / name
    return model_from_config(load_config(path), name, path.stem)[0]


def counts() -> list[Count]:
    """All counts, records first; a figure that a record and a table both cite stands once."""
    once = {(c.name, c.kind, c.what, c.published, c.url): c for c in (*of_tables(), *of_records())}
    return sorted(once.values(), key=lambda c: c.kind)


def page() -> str:
    """The text of the page."""
    listed = counts()
    records, configs = ([c for c in listed if c.kind == kind] for kind in ("catalog", "config"))
    exact = sum(1 for c in listed if abs(c.off) <= 1e-5)
    lines = [
        "# Parameter counts",
        "",
        "This page is written by `python tools/parameter_counts.py`. A test writes it again, and fails where it differs or a count is off.",
        "",
        f"The laws count {len(listed)} figures of {len(names())} models of the catalogue and {len({c.name for c in configs})} configs. A count"
        " agrees within 0.5 %, or within",
        f"the rounding of the published figure. {exact} agree to a part in a hundred thousand. `whole` is a model with its towers; `total`",
        "leaves towers and layers for further tokens out; `active` may leave out one table of the embedding, or both, as publishers do.",
        "",
        "## Models of the catalogue",
        "",
        *_table(records),
        "",
        "## Configs",
        "",
        *_table(configs),
        "",
        *_classes(),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _table(listed: list[Count]) -> Iterator[str]:
    yield "| model | what | published | counted | off | source |"
    yield "|---|---|--:|--:|--:|---|"
    for c in sorted(listed, key=lambda one: (one.name, one.what, one.published)):
        title = c.title.replace("|", "/")
        yield f"| {c.name} | {c.what} | {c.published:,.0f} | {c.counted:,.0f} | {c.off:+.3%} | [{title}]({c.url}) |"


def _classes() -> Iterator[str]:
    """The table of classes that were built, where it has been measured."""
    if not CLASSES.exists():
        return
    with CLASSES.open(encoding="utf-8", newline="") as opened:
        rows = list(csv.DictReader(opened))
    yield "## Small instances of classes of transformers"
    yield ""
    yield f"Measured by `python tools/transformers_classes.py` with {rows[0]['versions']}. FLOPs are those of one forward pass of two layers, as torch's `FlopCounterMode`"
    yield "counts them with attention in plain products; saved bytes are what autograd keeps of one layer in bf16 with fused attention."
    yield ""
    yield "| class | parameters | ours | FLOP forward | ours | off | saved bytes | ours | off | what the class keeps beside |"
    yield "|---|--:|--:|--:|--:|--:|--:|--:|--:|---|"
    for row in rows:
        parts = [row["class"], f"{float(row['parameters']):,.0f}", f"{float(row['our_parameters']):,.0f}"]
        for theirs, ours in (("flop", "our_flop"), ("saved", "our_saved")):
            if row[theirs]:
                measured, counted = float(row[theirs]), float(row[ours])
                parts += [f"{measured:,.0f}", f"{counted:,.0f}", f"{counted / measured - 1.0:+.1%}"]
            else:
                parts += ["", "", ""]
        yield f"| {' | '.join([*parts, row['why']])} |"


def main(arguments: list[str]) -> int:
    """Write the page, or check it; 1 where a count is off, or with ``--check`` where the page is stale."""
    wrong = [c for c in counts() if not c.agrees]
    for c in wrong:
        sys.stderr.write(f"{c.name}: {c.what} {c.counted:,.0f} is {c.off:+.2%} from the published {c.published:,.0f} ({c.title})\n")
    text = page()
    stale = not PAGE.is_file() or PAGE.read_text(encoding="utf-8") != text
    if "--check" not in arguments:
        PAGE.write_text(text, encoding="utf-8")
    elif stale:
        sys.stderr.write("docs/parameter-counts.md is stale: run python tools/parameter_counts.py\n")
    return 1 if wrong or (stale and "--check" in arguments) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
