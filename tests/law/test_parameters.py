"""The parameter laws: worked numbers, the domain, and the published count of every dense model in the catalogue."""

import numpy as np
import pytest

from ironlaw.catalog import load
from ironlaw.estimate.layer.counts import total_parameters
from ironlaw.law import parameters

NORM_WEIGHTS = {"rmsnorm": 1, "layernorm-no-bias": 1, "layernorm": 2}
MODELS = {name: load.record("models", name) for name in load.names("models")}
ROUNDED = {"santacoder"}  # published as 1.1 B parameters, which is not precise enough to compare
OTHER = {name for name, m in MODELS.items() if m.one_block_layers or m.linear_attention_layers or m.layer_groups or m.qk_norm_heads}
OTHER |= {name for name, m in MODELS.items() if m.bidirectional or m.towers}  # encoders have other heads, and stacks beside the decoder
DENSE = [name for name, m in MODELS.items() if not (m.num_experts or name in OTHER or name in ROUNDED)]
LLAMA_3_8B = (4096, 32, 32, 8, 128, 14336, 128256, 8192, 0, 0, 1, 1, 2, 0, 0, 0, 0, 0)


def counted(model):
    return float(
        parameters.decoder(
            hidden_size=model.hidden_size,
            num_hidden_layers=model.num_hidden_layers,
            num_attention_heads=model.num_attention_heads,
            num_key_value_heads=model.num_key_value_heads,
            head_dim=model.head_dim,
            intermediate_size=model.intermediate_size,
            vocab_size=model.vocab_size,
            max_position_embeddings=model.max_position_embeddings,
            learned_position_embedding=model.position_embedding == "learned",
            tie_word_embeddings=model.tie_word_embeddings,
            gated_mlp=model.gated_mlp,
            norm_weights=NORM_WEIGHTS[model.norm],
            norms_per_layer=model.norms_per_layer,
            embedding_norm=model.embedding_norm,
            qk_norm=model.qk_norm,
            query_key_value_bias=model.query_key_value_bias,
            attention_output_bias=model.attention_output_bias,
            mlp_bias=model.mlp_bias,
        )
    )


@pytest.mark.parametrize("name", DENSE)
def test_a_catalogued_model_has_its_published_count(name):
    model = load.record("models", name)
    assert model.published_parameters is not None, f"{name} has no published count"
    assert counted(model) == pytest.approx(model.published_parameters.value, rel=0.005)


@pytest.mark.parametrize("name", DENSE)
def test_a_catalogued_model_is_consistent(name):
    model = load.record("models", name)
    assert model.num_attention_heads % model.num_key_value_heads == 0
    assert 0 <= model.sliding_window_layers <= model.num_hidden_layers
    assert (model.sliding_window == 0) == (model.sliding_window_layers == 0)
    assert model.position_embedding in ("rope", "learned", "alibi")


@pytest.mark.parametrize(
    ("name", "count"),
    [("gpt-2", 124_439_808), ("llama-2-7b", 6_738_415_616), ("llama-3.1-405b", 405_853_388_800), ("qwen-3-8b", 8_190_735_360)],
)
def test_well_known_counts_are_exact(name, count):
    assert counted(load.record("models", name)) == count


@pytest.mark.parametrize("name", DENSE)
def test_the_count_of_the_parts_is_the_law_of_the_whole(name):
    model = load.record("models", name)
    assert float(total_parameters(model)) == counted(model)


def test_matmul_weights_are_the_layers_without_biases_norms_and_embedding():
    per_layer = float(parameters.matmul_per_layer(4096, 32, 8, 128, 14336, 1))
    norms = 65 * float(parameters.norm(4096, 1))
    tables = 2 * float(parameters.embedding(128256, 4096))
    assert 32 * per_layer + norms + tables == float(parameters.decoder(*LLAMA_3_8B))


@pytest.mark.parametrize("position", range(len(LLAMA_3_8B)))
@pytest.mark.parametrize("bad", [-1, np.nan, np.inf])
def test_outside_the_domain_is_nan(position, bad):
    values = list(LLAMA_3_8B)
    values[position] = bad
    assert np.isnan(parameters.decoder(*values))


@pytest.mark.parametrize("position", [0, 1, 2, 3, 4, 5, 6, 7, 11, 12])
def test_a_zero_size_is_nan(position):
    values = list(LLAMA_3_8B)
    values[position] = 0
    assert np.isnan(parameters.decoder(*values))


def test_rows_equal_scalars_and_one_bad_row_stays_alone():
    hidden = np.array([4096, 0, 8192])
    rows = parameters.decoder(hidden, *LLAMA_3_8B[1:])
    assert rows.shape == (3,)
    assert rows[0] == parameters.decoder(*LLAMA_3_8B)
    assert np.isnan(rows[1])
    assert rows[2] == parameters.decoder(8192.0, *LLAMA_3_8B[1:])


def test_options_and_meshes_broadcast():
    gated = np.array([[0.0], [1.0]])
    assert parameters.mlp(np.array([1024, 2048, 4096]), 4096, gated, 0).shape == (2, 3)
