"""Families with latent attention, states, or windows with heads of their own; sources: see `families`."""
from simulator.config.huggingface import layers, layouts
from simulator.config.huggingface.attention import (
    block_sparse,
    compressed,
    gated_latent,
    gemma4,
    latent,
    latent_sparse,
    with_value_head_dim,
)
from simulator.config.huggingface.family import BIAS, Family
from simulator.config.huggingface.keys import KV_NAMES, Key
from simulator.config.huggingface.networks import FIRST_DENSE, SHARED, SHARED_SIZE, Experts
from simulator.config.huggingface.rows_dense import LLAMA, OLMO2, QWEN3
from simulator.config.huggingface.rows_experts import DEEPSEEK_MOE, DEEPSEEK_MOE_V3, GROUPS, QWEN2_MOE

DEEPSEEK_V2 = Family(latent, experts=DEEPSEEK_MOE)
DEEPSEEK_V3 = DEEPSEEK_V2._replace(experts=DEEPSEEK_MOE_V3)
DEEPSEEK_V32 = DEEPSEEK_V3._replace(attention=latent_sparse)

GEMMA = Family(tie=Key("tie_word_embeddings", True), head_dim=256, qkv_bias=BIAS, output_bias=BIAS,
               scales_context=False)
GEMMA2 = GEMMA._replace(norms_per_layer=4, layout=layers.alternating(Key("sliding_window", 4096), 2))
GEMMA3 = GEMMA._replace(
    norms_per_layer=4, heads=Key("num_attention_heads", 8), kv_heads=Key("num_key_value_heads", 4),
    vocab=Key("vocab_size", 262208), context=Key("max_position_embeddings", 131072), qk_norm="head",
    layout=layers.alternating(Key("sliding_window", 4096), Key("sliding_window_pattern|_sliding_window_pattern", 6)))
GEMMA3N = GEMMA._replace(
    norms_per_layer=4, qk_norm="head", layout=layers.gemma3n, heads=Key("num_attention_heads", 8),
    kv_heads=Key("num_key_value_heads", 2), vocab=Key("vocab_size", 262400),
    context=Key("max_position_embeddings", 32768))
# Layers with experts: three norms more, a scale of the router's input, and one of each expert.
GEMMA4 = GEMMA._replace(
    attention=gemma4, norms_per_layer=4, qk_norm="head", layout=layers.gemma4,
    experts=Experts(Key("num_experts", 0), Key("top_k_experts|num_experts_per_tok"), dense_beside=True, more_norms=4,
                    router_bias=True),
    modules={"experts": ("experts.0", "moe.experts.0")})

QWEN3_NEXT = QWEN3._replace(
    layout=layers.delta_net, kv_heads=Key("num_key_value_heads", 2), head_dim=256, output_gate=True,
    experts=QWEN2_MOE.experts, num_mtp_layers=Key("num_nextn_predict_layers", 1, least=0))
QWEN3_5_MOE = QWEN3_NEXT._replace(
    output_gate=Key("attn_output_gate", True), num_mtp_layers=Key("mtp_num_hidden_layers", 0, least=0))
QWEN3_5 = QWEN3_5_MOE._replace(experts=None)
MINIMAX = Family(
    layout=layers.lightning, kv_heads=Key(KV_NAMES, 8),
    experts=Experts(Key("num_local_experts"), size=Key("intermediate_size")))
NEMOTRON_H = Family(
    layout=layers.nemotron_h, kv_heads=Key(KV_NAMES, 8), norms_per_layer=1, qkv_bias=BIAS, output_bias=BIAS,
    mlp_gated=False, mlp_bias=Key("mlp_bias", False),
    experts=Experts(Key("n_routed_experts", 0), gated=False, router_bias=True, groups=GROUPS,
                    shared_size=Key("moe_shared_expert_intermediate_size", 0, least=0)),
)
MIMO_V2 = Family(
    with_value_head_dim, layout=layers.mimo, qkv_bias=BIAS, mtp_layer="windowed_dense",
    experts=Experts(Key("n_routed_experts"), router_bias=True, num_shared=Key("n_shared_experts", 0, least=0),
                    groups=GROUPS))
DEEPSEEK_V4 = Family(compressed, layout=layouts.ratios, mlp_size=Key("moe_intermediate_size"),
                     experts=DEEPSEEK_MOE_V3)
KIMI_LINEAR = Family(gated_latent, layout=layouts.kimi, experts=Experts(
    num_shared=SHARED, router_bias=True, groups=Key("num_expert_group", 1)))
MINIMAX_M3 = Family(
    block_sparse, layout=layouts.sparse, qk_norm="head", qk_norm_key=Key("use_qk_norm", True),
    output_gate=Key("attention_output_gate", False), mlp_size=Key("dense_intermediate_size"),
    experts=Experts(Key("num_local_experts"), size=Key("intermediate_size"), shared_size=SHARED_SIZE,
                    router_bias=Key("use_routing_bias", True)))
GRANITE_HYBRID = LLAMA._replace(
    layout=layers.granite_hybrid, tie=Key("tie_word_embeddings", True), mlp_size=Key("shared_intermediate_size"),
    experts=Experts(Key("num_local_experts", 0), size=Key("intermediate_size"), shared_size=SHARED_SIZE))

HYBRID = {
    "AXK1ForCausalLM": DEEPSEEK_V3._replace(experts=DEEPSEEK_MOE_V3._replace(more_norms=1)),
    "DeepseekV2ForCausalLM": DEEPSEEK_V2,
    "DeepseekV32ForCausalLM": DEEPSEEK_V32,
    "DeepseekV3ForCausalLM": DEEPSEEK_V3,
    "DeciLMForCausalLM": LLAMA._replace(layout=layouts.blocks),
    "DeepseekV4ForCausalLM": DEEPSEEK_V4,
    "FalconH1ForCausalLM": LLAMA._replace(
        layout=layers.falcon_h1, output_bias=Key("attention_bias", False)),
    "Gemma2ForCausalLM": GEMMA2,
    "Gemma3ForCausalLM": GEMMA3,
    "Gemma3ForConditionalGeneration": GEMMA3,
    "Gemma3nForCausalLM": GEMMA3N,
    "Gemma3nForConditionalGeneration": GEMMA3N,
    "Gemma4ForCausalLM": GEMMA4,
    "Gemma4ForConditionalGeneration": GEMMA4,
    "GemmaForCausalLM": GEMMA,
    "Glm4MoeLiteForCausalLM": DEEPSEEK_V3._replace(experts=DEEPSEEK_MOE_V3._replace(
        num_shared=Key("n_shared_experts", 1, least=0), first_dense=Key(FIRST_DENSE, 1, least=0))),
    "GlmMoeDsaForCausalLM": DEEPSEEK_V32._replace(layout=layouts.indexed),
    "GraniteMoeHybridForCausalLM": GRANITE_HYBRID,
    "KimiK3ForConditionalGeneration": KIMI_LINEAR,
    "KimiLinearForCausalLM": KIMI_LINEAR,
    "LongcatFlashForCausalLM": DEEPSEEK_V2._replace(
        layout=layouts.longcat, mlp_size=Key("ffn_hidden_size|intermediate_size"),
        experts=Experts(size=Key("expert_ffn_hidden_size|moe_intermediate_size"), router_bias=True)),
    "KimiK25ForConditionalGeneration": DEEPSEEK_V3,
    "MiMoV2FlashForCausalLM": MIMO_V2,
    "MiniMaxForCausalLM": MINIMAX,
    "MiniMaxM1ForCausalLM": MINIMAX,
    "MiniMaxM3ForCausalLM": MINIMAX_M3,
    "MiniMaxM3SparseForCausalLM": MINIMAX_M3,
    "MiniMaxM3SparseForConditionalGeneration": MINIMAX_M3,
    "MiniMaxText01ForCausalLM": MINIMAX,
    "NemotronHForCausalLM": NEMOTRON_H,
    "OlmoHybridForCausalLM": OLMO2._replace(layout=layers.delta_net),
    "Qwen3NextForCausalLM": QWEN3_NEXT,
    "Qwen3_5ForCausalLM": QWEN3_5,
    "Qwen3_5ForConditionalGeneration": QWEN3_5,
    "Qwen3_5MoeForCausalLM": QWEN3_5_MOE,
    "Qwen3_5MoeForConditionalGeneration": QWEN3_5_MOE,
}
