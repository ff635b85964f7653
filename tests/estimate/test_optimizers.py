"""Optimizers: states, products and exchanges against published numbers, and the states of all ranks against the model's."""

from __future__ import annotations

import numpy as np
import pytest

import ironlaw
from ironlaw.catalog import load
from ironlaw.errors import IronlawError
from ironlaw.estimate.layer.counts import common_parameters, total_parameters
from ironlaw.estimate.layer.kinds import kinds
from ironlaw.estimate.layer.matrices import classes, layer_matrices
from ironlaw.estimate.memory.states import optimizer_states
from ironlaw.estimate.pipeline.stages import stages
from ironlaw.law import states

TINY = {
    "hidden_size": 512, "num_hidden_layers": 8, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 64,
    "intermediate_size": 1536, "vocab_size": 4096, "max_position_embeddings": 2048, "tie_word_embeddings": False, "gated_mlp": True,
}  # fmt: skip
ROUTED = TINY | {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 256, "first_k_dense_replace": 1}
ON = {
    "on": "h100-sxm", "gpus": 16, "seq_len": 1024, "global_batch_size": 64, "micro_batch_size": 1, "recompute": "none",
    "framework": "generic",
}  # fmt: skip
NAMES = load.names("optimizers")


def group_of(**asked):
    return ironlaw.estimate(**{"model": TINY, **ON, "tp": 1, "pp": 1, "zero": 1, **asked}).groups[0]


def held_everywhere(group):
    """Bytes of optimizer states on all accelerators, from those of one rank of each stage; parts on every tensor rank count once."""
    job, plan = group.job, group.plan
    every = 0.0
    for stage in stages(job, plan):
        counts = classes(job, stage).values()
        entire, common = (sum(getattr(c, name) for c in counts) for name in ("entire", "common"))
        trained = (common, sum(c.routed for c in counts), entire)
        tree = optimizer_states(job, plan, stage, 1.0, trained)
        for leaf in leaves(tree):
            inside = leaf.name.endswith("experts")
            ranks = plan.expert_ways * plan.expert_shard_ranks if inside else plan.tp * plan.shard_ranks
            ranks = np.where(plan.zero >= 1, ranks, plan.expert_ways if inside else plan.tp)
            every = every + stage.count * ranks * leaf.value
    return float(np.asarray(every).reshape(-1)[0])


def leaves(term):
    return [leaf for part in term.parts for leaf in leaves(part)] if term.parts else [term]


ELEMENTWISE = [name for name in NAMES if all(s.shape == "parameter" for s in load.record("optimizers", name).states.values())]


@pytest.mark.parametrize("name", [n for n in ELEMENTWISE if load.record("optimizers", n).shards == "elements"])
@pytest.mark.parametrize("zero", [0, 1, 2, 3])
@pytest.mark.parametrize("how", [{"tp": 2}, {"pp": 2}, {"model": ROUTED, "ep": 4}, {"model": ROUTED, "ep": 2, "pp": 2}])
def test_states_of_all_ranks_are_those_of_the_model(name, zero, how):
    """Every parameter has its states once, whatever the ranks that share them; norms and routers have them on every tensor rank."""
    if zero == 3 and "pp" in how:
        pytest.skip("ZeRO 3 has no pipeline here")
    group = group_of(optimizer=name, zero=zero, **how)
    rule, job = group.job.optimizer, group.job
    expected = 0.0
    for stage in stages(job, group.plan):
        for part, counts in classes(job, stage).items():
            copies = counts.entire * (group.plan.tp - 1.0)
            expected = expected + stage.count * (counts.common + copies + counts.routed) * rule.of(part).state_bytes
    assert held_everywhere(group) == pytest.approx(float(np.asarray(expected).reshape(-1)[0]), rel=1e-9)


@pytest.mark.parametrize("name", [n for n in NAMES if n not in ELEMENTWISE])
def test_states_with_the_shape_of_sides_are_counted_from_the_matrices(name):
    """By hand for the tiny dense model without tensor parallelism: its layers' matrices, the two tables and the norms."""
    group = group_of(optimizer=name, zero=0, gpus=1)
    rule = load.record("optimizers", name)
    others = load.record("optimizers", rule.others or name)
    fused = group.job.framework.fused_projections
    mlp = [(3072, 512)] if fused else [(1536, 512), (1536, 512)]
    layer = [(512, 512), (256, 512), (256, 512), (512, 512), *mlp, (512, 1536)]
    tables = [(4096, 512), (4096, 512)]

    def of_matrix(record, m, n):
        low, high, held = min(m, n), max(m, n), 0.0
        for state in record.states.values():
            block = min(record.block.value if record.block else high, high)
            elements = {
                "parameter": m * n, "sides": m + n, "rows": m, "projector": 0.25 * low * low, "projected": 0.25 * low * high,
                "squares": m * m + n * n if block >= high else sum(
                    min(block, m - i) ** 2 + min(block, n - j) ** 2
                    for i in range(0, m, int(block)) for j in range(0, n, int(block))
                ),
            }[state.shape]  # fmt: skip
            held += elements * state.bytes.value
        return held

    of_tables = rule if "tables" in rule.updates else others
    of_vectors = rule if "vectors" in rule.updates else others
    vectors = 8 * 2 * 512 + 512  # of the final norm, which the class of the tables has
    per_element = sum(s.bytes.value * {"parameter": 1, "sides": 1}.get(s.shape, 0) for s in of_vectors.states.values())
    expected = 8 * sum(of_matrix(rule, *shape) for shape in layer) + sum(of_matrix(of_tables, *shape) for shape in tables)
    expected += (vectors - 512) * per_element + 512 * of_tables.state_bytes
    assert held_everywhere(group) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("model", ["llama-3-8b", "deepseek-v3", "qwen-3-next-80b-a3b", "gpt-oss-20b", "nemotron-h-8b", "gemma-3-4b"])
def test_matrices_are_nearly_all_parameters_of_a_layer(model):
    """What is left are norms, biases, convolutions and sinks: less than 1 % of a layer."""
    job = group_of(model=model, gpus=64).job
    for kind in kinds(job.model):
        beside = sum(m.parameters for m in layer_matrices(job, kind) if not m.routed)
        assert 0.985 * common_parameters(job.model, kind) <= beside <= common_parameters(job.model, kind), kind.name


def test_muon_costs_the_share_that_its_post_derives():
    """Overhead of matrix products over model FLOPs: at most T m / B; 0.7 % for the NanoGPT run of the post, m 768, B 524,288."""
    assert float(states.muon_overhead(5, 768, 524288)) == pytest.approx(0.007, abs=0.0005)
    m, n = 768.0, 4 * 768.0
    exact = float(states.newton_schulz(m, n, 5)) / (6 * m * n * 524288)
    assert exact < float(states.muon_overhead(5, 768, 524288)) < 0.01
    square = float(states.newton_schulz(m, m, 5)) / (6 * m * m * 524288)
    assert square == pytest.approx(float(states.muon_overhead(5, 768, 524288)))


def test_the_products_of_a_step_are_newton_schulz_of_every_matrix():
    group = group_of(optimizer="muon", zero=0, gpus=1, framework="megatron")
    term = next(part for part in group.step.tree.parts if part.name == "optimizer")
    flop = sum(
        float(np.asarray(kernel.parts[0].inputs["flop"] * kernel.times).reshape(-1)[0])
        for products in term.parts if products.name == "matrix products of the update"
        for kind in products.parts for kernel in kind.parts
    )  # fmt: skip
    layer = [(512, 512), (256, 512), (256, 512), (512, 512), (512, 3072), (512, 1536)]
    expected = 8 * sum(float(states.newton_schulz(float(m), float(n), 5)) for m, n in layer)
    assert flop == pytest.approx(expected, rel=1e-9)


def test_muon_keeps_half_the_states_of_adamw():
    """Moonlight, section 2.3: Muon has one buffer where AdamW has two; embedding and output layer stay with AdamW."""
    half, full = (held_everywhere(group_of(optimizer=name, zero=0, gpus=1)) for name in ("muon-moonlight", "adamw"))
    group = group_of(zero=0, gpus=1)
    counts = classes(group.job, stages(group.job, group.plan)[0])
    matrices = float(np.asarray(counts["matrices"].common).reshape(-1)[0])
    assert full - half == pytest.approx(4.0 * matrices)
    assert half / full == pytest.approx(0.5 + 0.5 * (1.0 - matrices * 8.0 / full))


def test_distributed_muon_sends_a_quarter_more_than_adamw_at_most():
    """Moonlight: 4 B of gradients scattered and 4 B of weights gathered, and 2 B of momentum gathered: (4 + 2 + 4) / (4 + 4) = 1.25."""
    (sent,) = load.record("optimizers", "muon-moonlight").exchange
    assert (4.0 + sent.bytes.value * sent.times.value + 4.0) / (4.0 + 4.0) == 1.25


PUBLISHED = [
    ("adamw", 8.0, 4.0, "ZeRO, section 3.1: 4 momentum, 4 variance, 4 master"),
    ("lion", 4.0, 4.0, "Lion: momentum alone, half of AdamW"),
    ("adam8bit", 2.03125, 4.0, "8-bit optimizers: 1 B for each moment; 4 B of scale for each 256"),
    ("adamw4bit", 1.0625, 4.0, "torchao: half a byte for each moment; 4 B of scale for each 128"),
    ("adamw-fp8-lm", 3.0, 2.0, "FP8-LM, equation 9: 2 master + 1 gradient + 1 first + 2 second = 6 B, from 16"),
    ("adamw-bf16-moments", 4.0, 4.0, "DeepSeek-V3, section 3.3.3: both moments in bf16, master weights in fp32"),
]


@pytest.mark.parametrize(("name", "kept", "master", "source"), PUBLISHED)
def test_bytes_of_a_parameter_are_as_published(name, kept, master, source):
    rule = load.record("optimizers", name)
    assert (rule.state_bytes, rule.master_bytes.value) == (kept, master), source


def test_soap_keeps_what_its_paper_counts():
    """SOAP, section on space: 2 m^2 + 2 n^2 of factors and bases, and two moments of m n, in fp32."""
    rule = load.record("optimizers", "soap")
    m = n = 1024
    squares = sum(s.bytes.value for s in rule.states.values() if s.shape == "squares") * (m * m + n * n)
    assert squares + rule.state_bytes * m * n == 4 * (2 * m * m + 2 * n * n + 2 * m * n)


def test_galore_keeps_what_its_table_counts():
    """GaLore, table 1: m r + 2 n r elements; the rank is asked, and no more than the smaller side."""
    group = group_of(optimizer="galore", optimizer_rank=128, zero=0, gpus=1)
    (kind,) = kinds(group.job.model)
    sides = [(m.count, min(m.rows, m.columns), max(m.rows, m.columns)) for m in layer_matrices(group.job, kind)]
    held = 8 * sum(2.0 * count * (128 * m + 2 * 128 * n) for count, m, n in sides)
    counts = classes(group.job, stages(group.job, group.plan)[0])
    rest = sum(float(np.asarray(counts[part].common).reshape(-1)[0]) for part in ("tables", "vectors"))
    assert held_everywhere(group) == pytest.approx(held + 4.0 * rest)


def test_a_rank_that_nothing_uses_and_a_name_that_is_unknown_are_refused():
    with pytest.raises(IronlawError, match="projects no gradient"):
        group_of(optimizer="adamw", optimizer_rank=64)
    with pytest.raises(IronlawError, match="muon"):
        group_of(optimizer="muonn")


@pytest.mark.parametrize(
    ("written", "name"),
    [("adamw_torch_fused", "adamw"), ("adamw_bnb_8bit", "adam8bit"), ("paged_adamw_32bit", "paged-adamw"), ("ADAMW_8BIT", "adam8bit"),
     ("galore_adamw", "galore"), ("schedule_free_adamw", "adamw-schedule-free"), ("dist_muon", "muon")],
)  # fmt: skip
def test_names_of_other_tools_are_known(written, name):
    assert group_of(optimizer=written).job.optimizer.name == name


def test_every_optimizer_has_a_step_and_a_memory():
    for name in NAMES:
        for zero in (0, 1, 3):
            group = group_of(optimizer=name, zero=zero)
            assert np.isfinite(group.step.tree.value).all() and np.isfinite(group.memory.device).all(), (name, zero)


def test_ranks_share_the_products_but_not_one_matrix():
    """The busiest of many ranks still multiplies one matrix; with few ranks the products are shared evenly."""

    def products(gpus):
        group = group_of(optimizer="muon", gpus=gpus, global_batch_size=1024)
        term = next(part for part in group.step.tree.parts if part.name == "optimizer")
        return float(np.asarray(next(p for p in term.parts if p.name.startswith("matrix products")).value).reshape(-1)[0])

    one, two, many, more = (products(gpus) for gpus in (1, 2, 512, 1024))
    assert two == pytest.approx(one / 2) and many == pytest.approx(more) and many > one / 512


def test_a_user_adds_an_optimizer(tmp_path):
    folder = tmp_path / "optimizers"
    folder.mkdir()
    (folder / "adamw-mine.toml").write_text(
        'like = "adamw"\ntitle = "AdamW with 1-byte moments"\nreplaces = ["states"]\n'
        '[states.moments]\nbytes = { value = "2 B", source = "me" }\n'
        '[sources.me]\ntitle = "mine"\nurl = "https://example.org"\nread = 2026-11-23\ngrade = "guess"\n'
    )
    mine = ironlaw.estimate(model=TINY, **ON, tp=1, pp=1, zero=0, optimizer="adamw-mine", catalog=str(tmp_path))
    usual = ironlaw.estimate(model=TINY, **ON, tp=1, pp=1, zero=0)
    job = usual.groups[0].job
    fewer = 6.0 * float(total_parameters(job.model)) * (1.0 + job.framework.allocator_slack.value)
    assert usual.device_bytes[0] - mine.device_bytes[0] == pytest.approx(fewer)
