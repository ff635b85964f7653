"""Installed packages with records: found, used, named in the answer, overridden by the user, and refused in one line where broken."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ironlaw.catalog import load, packages
from ironlaw.catalog.audit import stale_prices
from ironlaw.cli.main import main
from ironlaw.errors import CatalogError

RECORD = """like = "adamw"
title = "{title}"
replaces = ["states"]

[states.moments]
bytes = {{ value = "{size} B", source = "lab" }}

[sources.lab]
title = "measured in the laboratory"
url = "https://example.org"
read = 2026-11-23
grade = "measured"
"""


def install(site, module="lab_records", value=None, title="of the package", size=2):
    """A package as an installer leaves it: its folder and its ``.dist-info``."""
    folder = site / module / "optimizers"
    folder.mkdir(parents=True)
    (site / module / "__init__.py").write_text("raise RuntimeError('the code of a package of records is not run')\n")
    (folder / "lab-adamw.toml").write_text(RECORD.format(title=title, size=size))
    info = site / f"{module}-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module.replace('_', '-')}\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(f"[ironlaw.catalog]\nlab = {value or module}\n")


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A folder on ``sys.path`` where packages are installed."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.setattr(sys, "path", [*sys.path, str(folder)])
    (tmp_path / "nobody").mkdir()
    monkeypatch.setenv("IRONLAW_CATALOG", str(tmp_path / "nobody"))
    yield folder
    for cached in (packages._packages, load._record, load.aliases):
        cached.cache_clear()


def test_a_record_of_a_package_is_found_without_running_its_code(site):
    install(site)
    assert load.record("optimizers", "lab-adamw").title == "of the package"
    assert "lab-adamw" in load.names("optimizers")
    assert "lab-records 1.2" in load.overrides("optimizers", "lab-adamw")
    assert "lab_records" not in sys.modules


def test_an_answer_names_the_package(site, capsys):
    install(site)
    question = [
        "estimate",
        "llama-3-8b",
        "--on",
        "h100-sxm",
        "--gpus",
        "8",
        "--tp",
        "1",
        "--pp",
        "1",
        "--zero",
        "3",
        "--micro-batch-size",
        "1",
    ]
    assert main([*question, "--optimizer", "lab-adamw", "--recompute", "full"]) in (0, 1)
    assert "lab-records 1.2" in capsys.readouterr().out


def test_the_user_goes_before_a_package_and_a_package_before_what_ships(site, tmp_path, monkeypatch):
    install(site)
    (site / "lab_records" / "optimizers" / "adamw.toml").write_text((load.SHIPPED / "optimizers" / "lion.toml").read_text())
    assert load.record("optimizers", "adamw").title == "Lion"
    for where, title in (("home", "of the user"), ("given", "given")):
        folder = tmp_path / where / "optimizers"
        folder.mkdir(parents=True)
        (folder / "lab-adamw.toml").write_text(RECORD.format(title=title, size=4).replace('like = "adamw"', 'like = "lion"'))
    monkeypatch.setenv("IRONLAW_CATALOG", str(tmp_path / "home"))
    load._record.cache_clear()
    assert load.record("optimizers", "lab-adamw").title == "of the user"
    assert load.record("optimizers", "lab-adamw", (str(tmp_path / "given"),)).title == "given"


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("nowhere_at_all", "no such folder is installed"),
        ("lab_records.optimizers.none", "cannot be found"),
        ("lab_records:folder", "expected"),
    ],
)
def test_a_broken_package_is_one_line(site, value, says):
    install(site, value=value)
    with pytest.raises(CatalogError, match=says) as caught:
        load.names("optimizers")
    assert "lab-records 1.2" in str(caught.value) and "\n" not in str(caught.value) and packages.SWITCH in str(caught.value)


def test_a_package_without_records_is_refused_and_can_be_switched_off(site, monkeypatch):
    install(site)
    (site / "lab_records" / "optimizers").rename(site / "lab_records" / "notes")
    with pytest.raises(CatalogError, match="has no records"):
        load.names("optimizers")
    monkeypatch.setenv(packages.SWITCH, "off")
    assert "adamw" in load.names("optimizers")


def test_without_such_a_package_its_metadata_is_not_imported():
    code = "import sys; from ironlaw.catalog import load; load.names('models'); print('importlib.metadata' in sys.modules)"
    env = {**os.environ, "PYTHONPATH": str(Path(load.__file__).parents[2])}
    found = subprocess.run(
        [sys.executable, "-S", "-c", "import site; site.main();" + code], capture_output=True, text=True, env=env, check=True
    )
    assert found.stdout.strip() == "False"


def test_stale_prices_are_named_with_date_and_file(tmp_path):
    folder = tmp_path / "prices"
    folder.mkdir()
    rate = 'currency = "USD"\nper_hour = { value = "2 USD/h", source = "s" }\n'
    listed = (("a", "2024-01-01"), ("b", "2024-01-01"), ("a", "2026-11-01"))
    block = '[[price]]\nprovider = "Lab"\nregion = "{r}"\nterm = "on-demand"\ndate = "{d}"\n'
    (folder / "h100-sxm.toml").write_text(
        'title = "H100"\n' + "".join(block.format(r=r, d=d) + rate for r, d in listed)
        + '[sources.s]\ntitle = "t"\nurl = "https://example.org"\nread = 2026-11-23\ngrade = "press"\n'
    )  # fmt: skip
    lines = [line for line in stale_prices(365, "2026-11-23", (str(tmp_path),)) if "toml: Lab on" in line]
    assert len(lines) == 1 and "2024-01-01" in lines[0] and str(folder / "h100-sxm.toml") in lines[0]
    assert "1057 days" in lines[0], "from 2024-01-01 to 2026-11-23: 366 + 365 + 326"
    assert lines[0].count("2 USD/h") == 1, "the price of region a has a newer one"
    assert not [line for line in stale_prices(1057, "2026-11-23", (str(tmp_path),)) if "toml: Lab on" in line]


def test_stale_prices_are_no_problem_unless_strict():
    assert main(["catalog", "check", "--stale-after", "100000", "--strict"]) == 0
    assert main(["catalog", "check", "--stale-after", "1"]) == 0
    assert main(["catalog", "check", "--stale-after", "1d", "--strict"]) == 1
