"""What every record of the catalogue holds, and the record of a model."""

from __future__ import annotations

from ironlaw.catalog.schema import Schema, list_of, quantity
from ironlaw.catalog.sourced import Source, Sourced


class Record(Schema):
    """What every file holds: its name, a title, and the source that covers its plain numbers."""

    name: str
    title: str
    source: Source | None = None


class LayerGroup(Schema):
    """Layers of a model that are alike, with the sizes they have of their own; a size of 0 is the model's."""

    count: int
    mixer: str = "attention"  # attention | linear | mamba | none
    mlp: str = "dense"  # dense | routed | none
    num_attention_heads: int = 0
    num_key_value_heads: int = 0
    head_dim: int = 0
    intermediate_size: int = 0
    sliding_window: int = 0  # tokens each of these layers sees; 0: all, whatever the model says
    attention_k_eq_v: bool = False
    attention_sinks: bool = False


class Model(Record):
    """A decoder-only transformer, in Hugging Face ``config.json`` spellings."""

    family: str = ""
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int
    max_position_embeddings: int
    tie_word_embeddings: bool
    gated_mlp: bool
    hidden_act: str = "silu"
    norm: str = "rmsnorm"  # rmsnorm | layernorm | layernorm-no-bias | no-weights
    norms_per_layer: int = 2
    embedding_norm: bool = False
    qk_norm: bool = False
    qk_norm_heads: bool = False  # its weights differ from head to head; else all heads share those of one
    position_embedding: str = "rope"  # rope | learned | alibi
    query_key_value_bias: bool = False
    attention_output_bias: bool = False
    mlp_bias: bool = False
    dropout: bool = False
    sliding_window: int = 0  # tokens a local layer sees; 0: every layer sees all
    sliding_window_layers: int = 0  # how many layers are local
    attention_chunk_size: int = 0  # instead of a window: a local layer attends inside chunks of so many tokens
    output_bias: bool = False
    attention_sinks: bool = False  # one learned logit a head
    # mixture of experts; 0 experts: every layer is dense
    num_experts: int = 0
    num_experts_per_tok: int = 0
    n_group: int = 1  # groups the experts are split into
    topk_group: int = 1  # groups a token's experts lie in at most
    moe_intermediate_size: int = 0
    shared_expert_intermediate_size: int = 0  # all shared experts together; 0: none
    shared_expert_gate: bool = False
    first_k_dense_replace: int = 0  # layers at the front that stay dense
    moe_layer_freq: int = 1  # every how many layers behind them one is routed
    router_bias: bool = False  # a learned number an expert (also DeepSeek's correction)
    expert_bias: bool = False
    moe_latent_size: int = 0  # width that routed experts see, a projection in and out of it in each layer; 0: hidden_size
    zero_expert_num: int = 0  # choices of the router beside the experts that compute nothing
    # multi-head latent attention; kv_lora_rank 0: none
    q_lora_rank: int = 0  # 0: queries are not compressed
    kv_lora_rank: int = 0
    qk_nope_head_dim: int = 0
    qk_rope_head_dim: int = 0
    v_head_dim: int = 0
    # of latent attention: an indexer that picks the keys each query sees; index_topk 0: none
    index_n_heads: int = 0
    index_head_dim: int = 0
    index_topk: int = 0
    index_layers: int = 0  # layers with an indexer of their own, the others take the keys of one before them; 0: all
    attention_k_eq_v: bool = False  # values are the keys: no projection of their own
    attention_output_gate: bool = False  # queries come with a gate of their own size
    # layers that mix tokens by a state instead of attention; the rest attend
    linear_attention_layers: int = 0  # gated delta rule, with an MLP as every layer
    linear_num_key_heads: int = 0
    linear_num_value_heads: int = 0
    linear_key_head_dim: int = 0
    linear_value_head_dim: int = 0
    linear_conv_kernel_dim: int = 0
    mamba_layers: int = 0  # Mamba-2
    mamba_num_heads: int = 0
    mamba_head_dim: int = 0
    ssm_state_size: int = 0
    mamba_n_groups: int = 0
    conv_kernel: int = 0
    # one block a layer (Nemotron-H): Mamba, attention, dense MLP or experts, each with one norm; their counts make up the layers
    one_block_layers: bool = False
    attention_layers: int = 0
    mlp_layers: int = 0
    routed_layers: int = 0
    layer_groups: tuple[LayerGroup, ...] = list_of(LayerGroup)  # layers with sizes of their own; their counts make up the layers
    wide_layers_at_start: int = 0  # layers a narrow precision leaves wide; no model's own, set by --bf16-layers-at-start
    wide_layers_at_end: int = 0  # and by --bf16-layers-at-end
    frozen_layers: int = 0  # layers at the front that a job does not train; no model's own, set by --frozen-layers
    # extra layers that predict further tokens
    num_nextn_predict_layers: int = 0
    published_parameters: Sourced | None = quantity("parameter", required=False)
    published_active_parameters: Sourced | None = quantity("parameter", required=False)
