"""docs/parameter-counts.md: written again by its tool, with every model of the catalogue in it, and no count that is off."""

import importlib.util

import paths

spec = importlib.util.spec_from_file_location("parameter_counts", paths.ROOT / "tools" / "parameter_counts.py")
tool = importlib.util.module_from_spec(spec)
spec.loader.exec_module(tool)
COUNTS = tool.counts()


def test_every_count_is_the_published_one():
    assert [(c.name, c.what, c.published, c.counted) for c in COUNTS if not c.agrees] == []


def test_every_model_of_the_catalogue_has_a_published_total():
    assert set(tool.names()) <= {c.name for c in COUNTS if c.kind == "catalog" and c.what == "total"}


def test_every_config_with_a_tower_has_a_count_of_the_whole():
    folder = paths.DATA / "hf_configs"
    files = {f"{path.parent.name}/{path.name}" for name in ("towers", "encoders") for path in (folder / name).glob("*.json")}
    assert files <= {c.name for c in COUNTS if c.what == "whole" or c.name.startswith("encoders/")}


def test_the_page_is_what_its_tool_writes():
    assert tool.PAGE.read_text(encoding="utf-8") == tool.page(), "run python tools/parameter_counts.py"


def test_a_count_that_is_off_is_found():
    count = COUNTS[0]._replace(published=100.0, rounding=0.5, counted=100.4)
    assert count.agrees
    assert not count._replace(counted=100.6).agrees
    assert not count._replace(published=1000.0, counted=1006.0).agrees
    assert tool.last_digit("2.2e8") == 1e7
