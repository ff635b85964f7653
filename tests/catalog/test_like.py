"""A record that is like another has what that one has and it does not say."""

from __future__ import annotations

import pytest

import ironlaw
from ironlaw.catalog import audit, load
from ironlaw.errors import CatalogError, UnknownNameError


def written(folder, text, name="mine"):
    path = folder / "frameworks" / f"{name}.toml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return (str(folder),)


def test_megatron_bridge_is_nemo_that_gathers_eight_bits_where_its_recipes_do():
    bridge, nemo = load.record("frameworks", "Megatron-Bridge"), load.record("frameworks", "nemo")
    own = ("name", "title", "like", "default_param_gather", "delays_wgrad")
    assert {name: repr(getattr(bridge, name)) for name in bridge.fields if name not in own} == {
        name: repr(getattr(nemo, name)) for name in nemo.fields if name not in own
    }
    asked = {"on": "h100-sxm", "gpus": 64, "tp": 2, "pp": 1, "global_batch_size": 64}
    for precision, gathers in (("bf16", False), ("fp8", True), ("fp8-block", False)):
        job = ironlaw.estimate("llama-3-8b", **asked, precision=precision, framework="megatron-bridge").groups[0].job
        assert job.fp8_param_gather == gathers, precision
    assert not ironlaw.estimate("llama-3-8b", **asked, precision="fp8", framework="nemo").groups[0].job.fp8_param_gather


def test_own_values_and_sources_win(tmp_path):
    sources = '\n[sources.count]\ntitle = "ours"\nurl = "https://example.org"\nread = 2026-11-23\ngrade = "measured"\n'
    folders = written(tmp_path, f'title = "ours"\nlike = "nemo"\nnorm_bytes = {{ value = "5 B", source = "count" }}\n{sources}')
    mine = load.record("frameworks", "mine", folders)
    assert (mine.norm_bytes.value, mine.norm_bytes.source.title) == (5.0, "ours")
    assert mine.residual_bytes.value == load.record("frameworks", "nemo").residual_bytes.value
    assert audit.audit_file("frameworks", tmp_path / "frameworks" / "mine.toml", folders) == []


def test_a_base_that_is_missing_or_itself_like_another_is_an_error(tmp_path):
    with pytest.raises(UnknownNameError, match="nemmo"):
        load.record("frameworks", "mine", written(tmp_path, 'title = "ours"\nlike = "nemmo"\n'))
    folders = written(tmp_path, 'title = "two steps"\nlike = "megatron-bridge"\n', "two-steps")
    with pytest.raises(CatalogError, match="write like = 'nemo'"):
        load.record("frameworks", "two-steps", folders)


MOMENT = """like = "adamw"
title = "AdamW with a slow momentum"
{how}

[states."slow momentum"]
bytes = {{ value = "4 B", source = "mine" }}

[sources.mine]
title = "ours"
url = "https://example.org"
read = 2026-11-23
grade = "guess"
"""


def optimizer(folder, how):
    (folder / "optimizers").mkdir(exist_ok=True)
    path = folder / "optimizers" / "slow.toml"
    path.write_text(MOMENT.format(how=how), encoding="utf-8")
    return path, (str(folder),)


def test_a_table_of_both_is_added_to_or_replaced_as_the_record_says(tmp_path):
    """AdamW keeps two moments of four bytes: a third makes twelve, one alone four."""
    kept = {}
    for how in ("adds", "replaces"):
        (tmp_path / how).mkdir()
        _, folders = optimizer(tmp_path / how, f'{how} = ["states"]')
        kept[how] = load.record("optimizers", "slow", folders).state_bytes
    assert kept == {"adds": 12.0, "replaces": 4.0}


def test_a_table_of_both_that_the_record_does_not_speak_of_is_refused(tmp_path):
    path, folders = optimizer(tmp_path, "")
    with pytest.raises(CatalogError, match=r"adamw has states too: write adds = \['states'\] .* or replaces = \['states'\]"):
        load.record("optimizers", "slow", folders)
    assert "adamw has states too" in audit.audit_file("optimizers", path, folders)[0]
    for how, fault in (
        ('adds = ["states", "stats"]', "stats"),
        ('adds = ["states"]\nreplaces = ["states"]', "states too"),
        ('adds = ["traffic"]', "states"),
    ):
        path, folders = optimizer(tmp_path, how)
        assert fault in audit.audit_file("optimizers", path, folders)[0]


def test_the_audit_compares_traffic_with_the_bytes_of_the_states(tmp_path):
    """A fused step reads and writes each state: gradient 2, weight 2, and twice the master weight of 4 and the moments."""
    for how, kept, least in (("adds", 16, 36), ("replaces", 8, 20)):
        path, folders = optimizer(tmp_path, f'{how} = ["states"]')
        problems = audit.audit_file("optimizers", path, folders)
        assert any(f"keeps other states: give that of {kept} B, about {least} B" in problem for problem in problems), problems
        path, folders = optimizer(tmp_path, f'{how} = ["states"]\ntraffic = {{ value = "{least} B", source = "mine" }}')
        assert audit.audit_file("optimizers", path, folders) == []
        path, folders = optimizer(tmp_path, f'{how} = ["states"]\ntraffic = {{ value = "{least - 4} B", source = "mine" }}')
        assert f"less than the gradient, the weight, and {kept} B" in audit.audit_file("optimizers", path, folders)[0]
