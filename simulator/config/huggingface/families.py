"""Rules of each model family on the Hugging Face hub for its config.json, used by `read_config`.

A family names the key that holds a fact, and its default; a plain value is a fact that no key holds. Defaults are
from the configuration classes, huggingface/transformers src/transformers/models/<family>/configuration_<family>.py,
or the model's own repository; structure is from the modeling file beside it, checked by exact parameter counts.
"""
from collections.abc import Callable
from typing import NamedTuple

from simulator.config.huggingface import layers
from simulator.config.huggingface.keys import Key, Keys

Flag = Key | bool
Number = Key | int
HEADS = Key("num_attention_heads")
KV_HEADS = Key("num_key_value_heads", 0)        # 0: equal to the number of query heads
BIAS = Key("attention_bias", False)
GROUPS = Key("n_group", 1)                      # of experts, for the limited routing of DeepSeek


class Experts(NamedTuple):
    """Keys of the routed and shared experts."""

    count: Key = Key("num_experts")             # 0: the model has none
    per_token: Key = Key("num_experts_per_tok")
    size: Key = Key("moe_intermediate_size")
    shared_size: Number = 0                     # of all shared experts; or:
    num_shared: Number = 0                      # shared experts as wide as routed ones
    shared_gate: bool = False
    gated: bool = True
    bias: bool = False
    router_bias: bool = False
    groups: Number = 1
    first_dense: Number = 0
    interval: Number = 1
    dense_layers: str = ""                      # key that lists layers without experts
    moe_layers: str = ""                        # key that lists layers with experts, by index
    layer_marks: str = ""                       # key with a 1 for each layer with experts; or n: every n-th from 0
    dense_beside: bool = False


class Family(NamedTuple):
    """How to read the configurations of one architecture."""

    attention: Callable[[Keys, "Family"], dict]
    layout: layers.Layout = layers.full
    vocab: Key = Key("vocab_size")
    context: Key = Key("max_position_embeddings")
    scales_context: bool = True                 # a rope scaling factor lengthens the context
    tie: Flag = Key("tie_word_embeddings", False)
    norms_per_layer: int = 2
    norm_bias: bool = False
    embedding_norm: bool = False
    lm_head_bias: Flag = False
    heads: Number = HEADS
    kv_heads: Number = KV_HEADS
    head_dim: int | None = None                 # if the key is absent; None: hidden_size / heads
    qkv_bias: Flag = False
    output_bias: Flag = False
    qk_norm: str = "none"
    qk_norm_key: Flag = True                    # whether the model has the norm
    output_gate: Flag = False
    sinks: bool = False
    mlp_size: Key = Key("intermediate_size")
    mlp_divisor: int = 1                        # number of matrices that share the stated width
    mlp_gated: bool = True
    mlp_bias: Flag = False
    experts: Experts | None = None
    num_mtp_layers: Number = 0
    refused: tuple[str, ...] = ()               # keys of unsupported structures, refused unless 0, false or null


def multi_head(keys: Keys, family: Family) -> dict:
    """Read grouped-query attention."""
    heads = keys.number(family.heads)
    return {
        "kind": "multi_head",
        "num_heads": heads,
        "num_kv_heads": keys.number(family.kv_heads) or heads,
        "head_dim": layers.head_dim(keys, heads, family.head_dim),
        "qkv_bias": keys.flag(family.qkv_bias),
        "output_bias": keys.flag(family.output_bias),
        "qk_norm": family.qk_norm if keys.flag(family.qk_norm_key) else "none",
        "output_gate": keys.flag(family.output_gate),
        "sinks": family.sinks,
    }


def latent(keys: Keys, family: Family) -> dict:
    """Read multi-head latent attention."""
    return {
        "kind": "multi_head_latent",
        "num_heads": keys.number(family.heads),
        "query_rank": keys.number(Key("q_lora_rank", 0)),
        "kv_rank": keys.number(Key("kv_lora_rank")),
        "nope_head_dim": keys.number(Key("qk_nope_head_dim")),
        "rope_head_dim": keys.number(Key("qk_rope_head_dim")),
        "value_head_dim": keys.number(Key("v_head_dim")),
    }


def latent_sparse(keys: Keys, family: Family) -> dict:
    """Read latent attention with an indexer."""
    indexer = {"num_heads": keys.number(Key("index_n_heads")), "head_dim": keys.number(Key("index_head_dim")),
               "top_k": keys.number(Key("index_topk"))}
    return latent(keys, family) | {"indexer": indexer}


def with_value_head_dim(keys: Keys, family: Family) -> dict:
    """Read attention with a separate head_dim of values."""
    attention = multi_head(keys, family)
    value_head_dim = keys.number(Key("v_head_dim", attention["head_dim"]))
    return attention | {"value_head_dim": value_head_dim % attention["head_dim"] and value_head_dim}


def gemma4(keys: Keys, family: Family) -> dict:
    """Read the attention of full layers: own KV heads and head_dim, perhaps no values."""
    attention = multi_head(keys, family)
    return attention | {
        "num_kv_heads": keys.number(Key("num_global_key_value_heads", attention["num_kv_heads"])),
        "head_dim": keys.number(Key("global_head_dim", 512)),
        "key_is_value": keys.flag(Key("attention_k_eq_v", False))}


LLAMA = Family(multi_head, qkv_bias=BIAS, output_bias=BIAS, mlp_bias=Key("mlp_bias", False))
MISTRAL = Family(multi_head, kv_heads=Key("num_key_value_heads", 8), layout=layers.windowed(implied=4096))
MIXTRAL = MISTRAL._replace(
    layout=layers.windowed(implied=0),
    experts=Experts(Key("num_local_experts", 8), Key("num_experts_per_tok", 2), Key("intermediate_size")))
LLAMA4 = Family(
    multi_head, layout=layers.chunked, kv_heads=Key("num_key_value_heads", 8), qkv_bias=BIAS, output_bias=BIAS,
    mlp_size=Key("intermediate_size_mlp", 16384),
    experts=Experts(Key("num_local_experts", 16), Key("num_experts_per_tok", 1), Key("intermediate_size"),
                    num_shared=1, interval=Key("interleave_moe_layer_step", 1), moe_layers="moe_layers"))

QWEN = Family(multi_head, vocab=Key("vocab_size"), context=Key("seq_length|max_position_embeddings"), qkv_bias=True,
              kv_heads=0, mlp_divisor=2)
QWEN2 = Family(multi_head, layout=layers.qwen, kv_heads=Key("num_key_value_heads", 32), qkv_bias=True)
QWEN_EXPERTS = Experts(interval=Key("decoder_sparse_step", 1), dense_layers="mlp_only_layers")
QWEN2_MOE = QWEN2._replace(
    kv_heads=Key("num_key_value_heads", 16),
    experts=QWEN_EXPERTS._replace(shared_size=Key("shared_expert_intermediate_size"), shared_gate=True))
QWEN3 = Family(multi_head, layout=layers.qwen, kv_heads=Key("num_key_value_heads", 32), head_dim=128, qk_norm="head",
               qkv_bias=BIAS, output_bias=BIAS)
QWEN3_MOE = QWEN3._replace(kv_heads=Key("num_key_value_heads", 4), head_dim=None, experts=QWEN_EXPERTS)
QWEN3_NEXT = QWEN3._replace(
    layout=layers.delta_net, kv_heads=Key("num_key_value_heads", 2), head_dim=256, output_gate=True,
    experts=QWEN2_MOE.experts, num_mtp_layers=Key("num_nextn_predict_layers", 1, least=0))
QWEN3_5_MOE = QWEN3_NEXT._replace(
    output_gate=Key("attn_output_gate", True), num_mtp_layers=Key("mtp_num_hidden_layers", 0, least=0))
QWEN3_5 = QWEN3_5_MOE._replace(experts=None)

DEEPSEEK_V2 = Family(
    latent, experts=Experts(Key("n_routed_experts"), num_shared=Key("n_shared_experts", 0, least=0), groups=GROUPS,
                            first_dense=Key("first_k_dense_replace", 0, least=0), layer_marks="moe_layer_freq"))
DEEPSEEK_V3 = DEEPSEEK_V2._replace(
    experts=DEEPSEEK_V2.experts._replace(router_bias=True), num_mtp_layers=Key("num_nextn_predict_layers", 0, least=0))
DEEPSEEK_V32 = DEEPSEEK_V3._replace(attention=latent_sparse)

GEMMA = Family(multi_head, tie=Key("tie_word_embeddings", True), head_dim=256, qkv_bias=BIAS, output_bias=BIAS,
               scales_context=False)
GEMMA2 = GEMMA._replace(norms_per_layer=4, layout=layers.alternating(Key("sliding_window", 4096), 2))
GEMMA3 = GEMMA._replace(
    norms_per_layer=4, heads=Key("num_attention_heads", 8), kv_heads=Key("num_key_value_heads", 4),
    vocab=Key("vocab_size", 262208), context=Key("max_position_embeddings", 131072), qk_norm="head",
    layout=layers.alternating(Key("sliding_window", 4096), Key("sliding_window_pattern|_sliding_window_pattern", 6)))
GEMMA4 = GEMMA._replace(
    attention=gemma4, norms_per_layer=4, qk_norm="head", layout=layers.gemma4,
    experts=Experts(Key("num_experts", 0), Key("top_k_experts|num_experts_per_tok"), dense_beside=True),
    refused=("hidden_size_per_layer_input", "num_kv_shared_layers", "use_double_wide_mlp"))

PHI = Family(multi_head, qkv_bias=True, output_bias=True, norms_per_layer=1, norm_bias=True, lm_head_bias=True,
             mlp_gated=False, mlp_bias=True)
PHI3 = Family(multi_head, layout=layers.windowed(implied=0))
PHI_MOE = PHI3._replace(
    kv_heads=Key("num_key_value_heads", 8), qkv_bias=BIAS, output_bias=BIAS, norm_bias=True,
    lm_head_bias=Key("lm_head_bias", False),
    experts=Experts(Key("num_local_experts", 16), Key("num_experts_per_tok", 2), Key("intermediate_size")))

GPT_OSS = Family(
    multi_head, kv_heads=Key("num_key_value_heads", 8), head_dim=64, qkv_bias=Key("attention_bias", True),
    output_bias=Key("attention_bias", True), sinks=True, layout=layers.alternating(Key("sliding_window", 128), 2),
    experts=Experts(Key("num_local_experts|num_experts"), Key("num_experts_per_tok|experts_per_token"),
                    Key("intermediate_size"), bias=True, router_bias=True))
GLM = Family(multi_head, kv_heads=Key("num_key_value_heads", 2), head_dim=128, qkv_bias=Key("attention_bias", True))
GLM4 = GLM._replace(norms_per_layer=4, qkv_bias=BIAS)
GLM4_MOE = GLM._replace(
    kv_heads=Key("num_key_value_heads", 8), qkv_bias=BIAS, qk_norm="head", qk_norm_key=Key("use_qk_norm", False),
    experts=DEEPSEEK_V3.experts._replace(
        num_shared=Key("n_shared_experts", 1, least=0), first_dense=Key("first_k_dense_replace", 1, least=0)),
    num_mtp_layers=Key("num_nextn_predict_layers", 0, least=0))

MINIMAX = Family(
    multi_head, layout=layers.lightning, kv_heads=Key("num_key_value_heads", 8),
    experts=Experts(Key("num_local_experts"), size=Key("intermediate_size")))
MINIMAX_M2 = MINIMAX._replace(
    layout=layers.full, qk_norm="full", qk_norm_key=Key("use_qk_norm", True),
    experts=MINIMAX.experts._replace(router_bias=True))

BLOOM = Family(
    multi_head, heads=Key("n_head|num_attention_heads"), kv_heads=0, context=Key("seq_length", 2048),
    tie=Key("tie_word_embeddings", True), qkv_bias=True, output_bias=True, norm_bias=True, embedding_norm=True,
    mlp_gated=False, mlp_bias=True, mlp_size=Key("n_inner", 0))
COHERE = Family(multi_head, tie=Key("tie_word_embeddings", True), norms_per_layer=1, qkv_bias=BIAS, output_bias=BIAS,
                qk_norm="full", qk_norm_key=Key("use_qk_norm", False))
OLMO2 = Family(multi_head, qkv_bias=BIAS, output_bias=BIAS, qk_norm="full")
NEMOTRON_H = Family(
    multi_head, layout=layers.nemotron_h, kv_heads=Key("num_key_value_heads", 8), norms_per_layer=1, qkv_bias=BIAS,
    output_bias=BIAS, mlp_gated=False, mlp_bias=Key("mlp_bias", False),
    experts=Experts(Key("n_routed_experts", 0), gated=False, router_bias=True, groups=GROUPS,
                    shared_size=Key("moe_shared_expert_intermediate_size", 0, least=0)),
    refused=("moe_latent_size",))
MIMO_V2 = Family(
    with_value_head_dim, layout=layers.mimo, qkv_bias=BIAS,
    experts=Experts(Key("n_routed_experts"), router_bias=True, num_shared=Key("n_shared_experts", 0, least=0),
                    groups=GROUPS, layer_marks="moe_layer_freq"),
    num_mtp_layers=Key("num_nextn_predict_layers", 0, least=0))

FAMILIES = {
    "BloomForCausalLM": BLOOM,
    "CohereForCausalLM": COHERE,
    "DeepseekV2ForCausalLM": DEEPSEEK_V2,
    "DeepseekV32ForCausalLM": DEEPSEEK_V32,
    "DeepseekV3ForCausalLM": DEEPSEEK_V3,
    "Gemma2ForCausalLM": GEMMA2,
    "Gemma3ForCausalLM": GEMMA3,
    "Gemma3ForConditionalGeneration": GEMMA3,
    "Gemma4ForCausalLM": GEMMA4,
    "Gemma4ForConditionalGeneration": GEMMA4,
    "GemmaForCausalLM": GEMMA,
    "Glm4ForCausalLM": GLM4,
    "Glm4MoeForCausalLM": GLM4_MOE,
    "GlmForCausalLM": GLM,
    "GlmMoeDsaForCausalLM": DEEPSEEK_V32,
    "GptOssForCausalLM": GPT_OSS,
    "KimiK25ForConditionalGeneration": DEEPSEEK_V3,
    "Llama4ForCausalLM": LLAMA4,
    "Llama4ForConditionalGeneration": LLAMA4,
    "LlamaForCausalLM": LLAMA,
    "MiMoV2FlashForCausalLM": MIMO_V2,
    "MiniMaxForCausalLM": MINIMAX,
    "MiniMaxM1ForCausalLM": MINIMAX,
    "MiniMaxM2ForCausalLM": MINIMAX_M2,
    "MiniMaxText01ForCausalLM": MINIMAX,
    "Mistral3ForConditionalGeneration": MISTRAL,
    "MistralForCausalLM": MISTRAL,
    "MixtralForCausalLM": MIXTRAL,
    "NemotronHForCausalLM": NEMOTRON_H,
    "Olmo2ForCausalLM": OLMO2,
    "Phi3ForCausalLM": PHI3,
    "PhiForCausalLM": PHI,
    "PhiMoEForCausalLM": PHI_MOE,
    "QWenLMHeadModel": QWEN,
    "Qwen2ForCausalLM": QWEN2,
    "Qwen2MoeForCausalLM": QWEN2_MOE,
    "Qwen3ForCausalLM": QWEN3,
    "Qwen3MoeForCausalLM": QWEN3_MOE,
    "Qwen3NextForCausalLM": QWEN3_NEXT,
    "Qwen3_5ForCausalLM": QWEN3_5,
    "Qwen3_5ForConditionalGeneration": QWEN3_5,
    "Qwen3_5MoeForCausalLM": QWEN3_5_MOE,
    "Qwen3_5MoeForConditionalGeneration": QWEN3_5_MOE,
}
