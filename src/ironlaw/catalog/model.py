"""The base of all records, and the record of a model."""

from __future__ import annotations

from ironlaw.catalog.schema import Schema, list_of, quantity, signed, word
from ironlaw.catalog.sourced import Source, Sourced

NORMS = ("rmsnorm", "layernorm", "layernorm-no-bias", "no-weights")
POSITIONS = ("rope", "learned", "alibi", "relative", "none")


class Record(Schema):
    """Base of all records: name, title, and the source of its plain numbers."""

    name: str
    title: str
    source: Source | None = None


class LayerGroup(Schema):
    """Layers of a model that are alike; a size of 0 is the model's."""

    count: int
    mixer: str = "attention"  # a row of estimate/layer/mixers
    mlp: str = word("dense", "routed", "none", default="dense")
    num_attention_heads: int = 0
    num_key_value_heads: int = 0
    head_dim: int = 0
    intermediate_size: int = 0
    sliding_window: int = 0  # tokens that each of these layers sees; 0: all, also in a model with windows
    attention_k_eq_v: bool = False
    attention_sinks: bool = False
    kv_shared: bool = False  # attends to the keys and values of a layer before it, and projects none
    compress_ratio: int = 0  # tokens that one entry of compressed attention stands for; 0: the window alone
    index_topk: int = 0  # keys that an indexer picks for each query of these layers; 0: they see all


class TowerProduct(Schema):
    """A matrix product of a tower outside its layers: of patches or frames before them, or of a projector behind them."""

    inputs: int
    outputs: int
    rows: float = 1.0  # rows for each token of the tower
    bias: bool = True


class Tower(Schema):
    """Layers with sizes and tokens of their own that feed a model: of images, of audio, or the encoder of an encoder-decoder."""

    name: str  # vision | audio | encoder
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    head_dim: int
    intermediate_size: int
    num_key_value_heads: int = 0  # 0: one for each query head
    gated_mlp: bool = False
    hidden_act: str = "gelu"
    norm: str = word(*NORMS, default="layernorm")
    norms_per_layer: int = 2
    qk_norm: bool = False
    qk_norm_heads: bool = False
    position_embedding: str = word(*POSITIONS, default="learned")
    query_key_value_bias: bool = True
    attention_output_bias: bool = True
    mlp_bias: bool = True
    sliding_window: int = 0  # tokens of the windows that local layers attend inside; 0: every layer sees all
    sliding_window_layers: int = 0
    other_parameters: int = signed(0)  # positions, tables, norms and scales outside the layers and products
    products: tuple[TowerProduct, ...] = list_of(TowerProduct)
    patch_size: int = 0  # pixels of a side of a patch; 0: the tower reads no images
    image_size: int = 0  # pixels of a side of an image, where the question gives none
    merged: int = 1  # tokens of the tower that become one token of the model
    fixed_image: bool = False  # learned positions: every image has image_size
    tiled: bool = False  # a larger image is cut into tiles of image_size, with one of the whole image beside them
    added_tokens: int = 0  # tokens beside the patches of an image
    tokens_per_second: float = 0.0  # tokens of the tower for a second of audio
    longest: int = 0  # tokens of one item at most; 0: no limit
    tokens: float = 0.0  # of one item: an image, a clip, a source sequence
    items: float = 0.0  # for each sequence; 0: the tower takes no part. Set by options, but for an encoder
    frozen: bool = False  # set by --frozen-tower


class Model(Record):
    """A transformer, in Hugging Face ``config.json`` spellings: a decoder, an encoder, or a decoder with the layers that feed it."""

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
    norm: str = word(*NORMS, default="rmsnorm")
    norms_per_layer: int = 2
    embedding_norm: bool = False
    qk_norm: bool = False
    qk_norm_heads: bool = False  # each head has separate weights; else all heads share one set
    position_embedding: str = word(*POSITIONS, default="rope")
    query_key_value_bias: bool = False
    attention_output_bias: bool = False
    mlp_bias: bool = False
    dropout: bool = False
    sliding_window: int = 0  # tokens that a local layer sees; 0: every layer sees all
    sliding_window_layers: int = 0  # how many layers are local
    attention_chunk_size: int = 0  # instead of a window: local layers attend inside chunks of this many tokens
    output_bias: bool = False
    scores: int = 0  # numbers that the output layer predicts of a token; 0: logits of the vocabulary
    attention_sinks: bool = False  # one learned logit for each head
    # mixture of experts; 0 experts: every layer is dense
    num_experts: int = 0
    num_experts_per_tok: int = 0
    n_group: int = 1  # groups the experts are split into
    topk_group: int = 1  # groups that a token's experts may come from
    moe_intermediate_size: int = 0
    shared_expert_intermediate_size: int = 0  # all shared experts together; 0: none
    shared_expert_gate: bool = False
    first_k_dense_replace: int = 0  # layers at the front that stay dense
    moe_layer_freq: int = 1  # one layer in this many, after the dense ones, is routed
    router_bias: bool = False  # a learned number for each expert (also DeepSeek's correction)
    expert_bias: bool = False
    moe_latent_size: int = 0  # width of routed experts' input, with a projection in and out; 0: hidden_size
    moe_latent_norm: bool = False  # a norm on the experts' sum, before it is projected back
    zero_expert_num: int = 0  # choices of the router that compute nothing
    # multi-head latent attention; kv_lora_rank 0: none
    q_lora_rank: int = 0  # 0: queries are not compressed
    kv_lora_rank: int = 0
    qk_nope_head_dim: int = 0
    qk_rope_head_dim: int = 0
    v_head_dim: int = 0
    # an indexer that picks the keys each query sees; index_topk 0: none
    index_n_heads: int = 0
    index_head_dim: int = 0
    index_topk: int = 0
    index_layers: int = 0  # layers with an indexer; the others use the keys of one before them; 0: all layers
    index_block_size: int = 0  # neighbouring keys that the indexer picks as one; 0: single keys
    # compressed attention (DeepSeek-V4): one shared key-value head, an entry for every compress_ratio tokens beside a window; the
    # output goes through o_groups groups of heads of rank o_lora_rank; o_lora_rank 0: none
    compress_ratio: int = 0
    o_lora_rank: int = 0
    o_groups: int = 0
    attention_k_eq_v: bool = False  # values are the keys, without a projection
    kv_shared: bool = False  # keys and values are those of a layer before; set by a group of layers
    attention_output_gate: bool = False  # a gate as wide as the attention's output
    attention_head_gate: bool = False  # a gate of one number a head
    # residual streams and what is added to them
    hc_mult: int = 0  # residual streams that hyper-connections mix; 0: one stream and plain additions
    attn_res_block_size: int = 0  # layers whose sum later layers attend to (attention residuals); 0: plain additions
    hidden_size_per_layer_input: int = 0  # width of a second embedding that each layer adds; 0: none
    vocab_size_per_layer_input: int = 0  # rows of that embedding's table
    # layers that mix tokens by a state; the rest have attention
    linear_attention_layers: int = 0  # gated delta rule, followed by an MLP
    linear_num_key_heads: int = 0
    linear_num_value_heads: int = 0
    linear_key_head_dim: int = 0
    linear_value_head_dim: int = 0
    linear_conv_kernel_dim: int = 0
    linear_gate_rank: int = 0  # rank of the output gate of Kimi Delta Attention; 0: full
    mamba_layers: int = 0  # Mamba-2
    mamba_num_heads: int = 0
    mamba_head_dim: int = 0
    ssm_state_size: int = 0
    mamba_n_groups: int = 0
    conv_kernel: int = 0
    mamba_intermediate_size: int = 0  # channels of a Mamba-1 layer, each with its states
    time_step_rank: int = 0  # rank of the steps of Mamba-1
    mamba_norms: bool = False  # Mamba-1 with norms of step, B and C
    # one block a layer (Nemotron-H): Mamba, attention, dense MLP or experts, each with one norm; the counts add up to all layers
    one_block_layers: bool = False
    attention_layers: int = 0
    mlp_layers: int = 0
    routed_layers: int = 0
    layer_groups: tuple[LayerGroup, ...] = list_of(LayerGroup)  # groups of layers that differ; the counts add up to all layers
    wide_layers_at_start: int = 0  # layers left wide by a narrow precision; set by --bf16-layers-at-start, not by a record
    wide_layers_at_end: int = 0  # set by --bf16-layers-at-end
    wide_parts: tuple[str, ...] = ()  # parts left wide by a narrow precision: shared experts | further-token layers; set by its recipe
    frozen_layers: int = 0  # first layers that a job does not train; set by --frozen-layers, not by a record
    # models other than a decoder of text
    bidirectional: bool = False  # every token sees all tokens of its sequence
    final_norm: bool = True
    head: str = word("tokens", "masked", "class", default="tokens")  # masked: a dense layer and a norm before it; class: one a sequence
    other_parameters: int = signed(0)  # token types, biases of positions, a pooler
    source_tokens: float = 0.0  # of a layer that attends across: tokens of the encoder; set by the program
    source_size: int = 0  # their width; set by the program
    products: tuple[TowerProduct, ...] = list_of(TowerProduct)  # of patches, in place of a table of tokens
    towers: tuple[Tower, ...] = list_of(Tower)
    # layers for multi-token prediction
    num_nextn_predict_layers: int = 0
    published_parameters: Sourced | None = quantity("parameter", required=False)
    published_active_parameters: Sourced | None = quantity("parameter", required=False)
