"""The reader of each ``model_type``, and the types that are refused by name. A new architecture is one row here."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ironlaw.catalog.config_json import by_layer, encoders, gpt, hybrids, llama, mixtures, recurrent, sparse
from ironlaw.catalog.config_json.fields import Fields
from ironlaw.catalog.config_json.shared import Kwargs

Reader = Callable[[Fields], Kwargs]

DENSE: dict[str, Reader] = {
    "apertus": llama.apertus,
    "arcee": llama.arcee,
    "baichuan": llama.baichuan,
    "chatglm": llama.chatglm,
    "cohere": llama.cohere,
    "cohere2": llama.cohere2,
    "cwm": llama.cwm,
    "ernie4_5": llama.ernie4_5,
    "exaone": llama.exaone,
    "exaone4": llama.exaone4,
    "gemma": llama.gemma,
    "gemma2": llama.gemma2,
    "gemma3_text": llama.gemma3,
    "glm": llama.glm,
    "glm4": llama.glm4,
    "glm4v_text": llama.glm4,
    "granite": llama.llama,
    "helium": partial(llama.llama, head_dim=128),
    "hunyuan_v1_dense": llama.hunyuan,
    "hyperclovax": llama.hyperclovax,
    "internlm": llama.internlm,
    "internlm2": llama.internlm,
    "internlm3": llama.internlm3,
    "iquestcoder": partial(llama.llama, head_dim=128),
    "jais2": llama.jais2,
    "llama": llama.llama,
    "mimo": llama.mimo,
    "ministral": llama.mistral,
    "ministral3": llama.ministral3,
    "mistral": llama.mistral,
    "nemotron": llama.nemotron,
    "olmo": llama.olmo,
    "olmo2": llama.olmo2,
    "olmo3": llama.olmo3,
    "phi": llama.phi,
    "phi3": llama.phi3,
    "qwen": llama.qwen,
    "qwen2": llama.qwen2,
    "qwen2_5_vl_text": llama.qwen2,
    "qwen2_vl_text": llama.qwen2,
    "qwen3": llama.qwen3,
    "qwen3_vl_text": llama.qwen3,
    "seed_oss": llama.seed_oss,
    "smollm3": llama.smollm3,
    "stablelm": llama.stablelm,
    "starcoder2": llama.starcoder2,
    "vaultgemma": llama.vaultgemma,
    "Yi": llama.llama,
    "bloom": gpt.bloom,
    "codegen": gpt.gptj,
    "falcon": gpt.falcon,
    "gpt2": gpt.gpt2,
    "gpt_bigcode": gpt.gpt_bigcode,
    "gpt_neo": gpt.gpt_neo,
    "gpt_neox": gpt.gpt_neox,
    "gptj": gpt.gptj,
    "mpt": gpt.mpt,
    "opt": gpt.opt,
    "xglm": gpt.xglm,
}
READERS: dict[str, Reader] = DENSE | {
    # mixtures of experts and latent attention
    "afmoe": mixtures.afmoe,
    "arctic": mixtures.arctic,
    "bailing_moe": mixtures.bailing_moe,
    "bailing_moe_v2": mixtures.bailing_moe,
    "dbrx": mixtures.dbrx,
    "deepseek_v2": mixtures.deepseek_v2,
    "deepseek_v3": mixtures.deepseek_v3,
    "deepseek_v32": mixtures.deepseek_v32,
    "dots1": mixtures.dots1,
    "ernie4_5_moe": mixtures.ernie_moe,
    "exaone_moe": mixtures.exaone_moe,
    "flex_olmo": partial(mixtures.olmoe, experts=7, per_token=5),
    "glm4_moe": mixtures.glm4_moe,
    "glm4_moe_lite": mixtures.deepseek_v3,
    "glm4v_moe_text": mixtures.glm4_moe,
    "glm_moe_dsa": mixtures.deepseek_v32,
    "gpt_oss": mixtures.gpt_oss,
    "granitemoe": mixtures.granite_moe,
    "granitemoeshared": mixtures.granite_moe,
    "hunyuan_v1_moe": mixtures.hunyuan_moe,
    "hy_v3": mixtures.hy_v3,
    "kimi_k2": mixtures.deepseek_v3,
    "llama4_text": mixtures.llama4,
    "mellum": mixtures.mellum,
    "minicpm3": mixtures.deepseek_v3,
    "minimax_m2": mixtures.minimax_m2,
    "mistral4": mixtures.deepseek_v2,
    "mixtral": mixtures.mixtral,
    "olmoe": mixtures.olmoe,
    "phimoe": mixtures.phimoe,
    "qwen2_moe": mixtures.qwen2_moe,
    "qwen3_moe": mixtures.qwen3_moe,
    "qwen3_vl_moe_text": mixtures.qwen3_moe,
    "solar_open": mixtures.solar_open,
    "youtu": mixtures.deepseek_v3,
    # hybrids with state-space or linear-attention layers
    "bamba": hybrids.bamba,
    "granitemoehybrid": hybrids.granite_hybrid,
    "nemotron_h": hybrids.nemotron_h,
    "qwen3_5_moe_text": hybrids.qwen3_5_moe,
    "qwen3_5_text": hybrids.qwen3_5,
    "qwen3_next": hybrids.qwen3_next,
    # layers that mostly scan a state
    "falcon_mamba": recurrent.mamba_1,
    "jamba": recurrent.jamba,
    "kimi_linear": recurrent.kimi_linear,
    "mamba": recurrent.mamba_1,
    "mamba2": recurrent.mamba_2,
    "minimax": recurrent.minimax_01,
    "minimax_m1": recurrent.minimax_01,
    "minimax_text_01": recurrent.minimax_01,
    # attention to a part of the keys
    "deepseek_ref": sparse.deepseek_v4,
    "deepseek_v4": sparse.deepseek_v4,
    "minimax_m3": sparse.minimax_m3,
    "minimax_m3_text": sparse.minimax_m3,
    "minimax_m3_vl_text": sparse.minimax_m3,
    "step3p5": sparse.step3p5,
    "step3p7": sparse.step3p5,
    # layers of different sizes
    "gemma4_text": by_layer.gemma4,
    "longcat_flash": by_layer.longcat,
    "mimo_v2_flash": by_layer.mimo_v2,
    "nemotron-nas": by_layer.nemotron_nas,
    "openelm": by_layer.openelm,
    # encoders and encoder-decoders
    "bart": encoders.bart,
    "bert": encoders.bert,
    "modernbert": encoders.modernbert,
    "mt5": encoders.t5,
    "roberta": encoders.roberta,
    "t5": encoders.t5,
    "umt5": encoders.t5,
    "vit": encoders.vit,
    "whisper": encoders.whisper,
    "xlm-roberta": encoders.roberta,
}

# decoders whose layers no Model describes
_GEMMA_3N = "AltUp and Laurel of Gemma 3n; gemma-4-e4b comes near: it has per-layer embeddings and shared keys and values"
NOT_MODELLED = {
    "gemma3n": _GEMMA_3N,
    "gemma3n_text": _GEMMA_3N,
    "recurrent_gemma": "RG-LRU; mamba-2.8b comes near: one scan of a state a layer",
    "video_llava": "a second tower for videos, of the sizes of vision_config",
    "rwkv": "RWKV; a config of type mamba2 with as many heads comes near: a state for each head",
    "rwkv7": "RWKV; kimi-linear-48b-a3b comes near: a delta rule with a decay for each channel",
}
TWO_STACKS = ("bart", "mt5", "t5", "umt5", "whisper")  # of READERS: an encoder and a decoder
_ENCODERS = (
    "albert beit bert-generation camembert clip convbert data2vec-text deberta deberta-v2 deit dinov2 distilbert electra ernie "
    "esm flaubert funnel hubert layoutlm layoutlmv3 longformer mpnet nomic_bert perceiver roformer siglip "
    "squeezebert swin wav2vec2 wavlm xlm xlm-roberta-xl xlnet "
)
ENCODERS = frozenset(_ENCODERS.split())
_ENCODER_DECODERS = (
    "blenderbot encoder-decoder fsmt led longt5 m2m_100 marian mbart mvp nllb-moe pegasus pegasus_x plbart prophetnet "
    "seamless_m4t speech_to_text switch_transformers t5gemma trocr udop vision-encoder-decoder "
)
ENCODER_DECODERS = frozenset(_ENCODER_DECODERS.split())
