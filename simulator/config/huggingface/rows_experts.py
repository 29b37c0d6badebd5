"""Families with multi-head attention and experts; source of defaults and structure: see `families`."""
from simulator.config.huggingface import layers
from simulator.config.huggingface.family import BIAS, Family
from simulator.config.huggingface.keys import KV_NAMES, Key
from simulator.config.huggingface.networks import FIRST_DENSE, SHARED, SHARED_SIZE, Experts
from simulator.config.huggingface.rows_dense import COHERE2, LLAMA, MISTRAL, OLMO2, PHI3, QWEN2, QWEN3

GROUPS = Key("n_group", 1)                      # of experts, for the limited routing of DeepSeek
OF_INTERMEDIATE = Key("moe_intermediate_size|intermediate_size")
# DeepSeek's mixture, as other families have it: shared experts as wide as routed ones, first layers dense.
DEEPSEEK_MOE = Experts(Key("n_routed_experts"), num_shared=Key("n_shared_experts", 0, least=0), groups=GROUPS,
                       first_dense=Key(FIRST_DENSE, 0, least=0))
DEEPSEEK_MOE_V3 = DEEPSEEK_MOE._replace(router_bias=True)

MIXTRAL = MISTRAL._replace(
    layout=layers.windowed(implied=0),
    experts=Experts(Key("num_local_experts", 8), Key("num_experts_per_tok", 2), Key("intermediate_size")))
LLAMA4 = Family(
    layout=layers.chunked, kv_heads=Key(KV_NAMES, 8), qkv_bias=BIAS, output_bias=BIAS,
    mlp_size=Key("intermediate_size_mlp", 16384),
    experts=Experts(Key("num_local_experts", 16), Key("num_experts_per_tok", 1), Key("intermediate_size"),
                    num_shared=1, interval=Key("interleave_moe_layer_step", 1)))
QWEN_EXPERTS = Experts(interval=Key("decoder_sparse_step", 1))
QWEN2_MOE = QWEN2._replace(
    kv_heads=Key("num_key_value_heads", 16),
    experts=QWEN_EXPERTS._replace(shared_size=Key("shared_expert_intermediate_size"), shared_gate=True))
QWEN3_MOE = QWEN3._replace(kv_heads=Key("num_key_value_heads", 4), head_dim=None, experts=QWEN_EXPERTS)
PHI_MOE = PHI3._replace(
    kv_heads=Key("num_key_value_heads", 8), qkv_bias=BIAS, output_bias=BIAS, norm_bias=True,
    lm_head_bias=Key("lm_head_bias", False),
    experts=Experts(Key("num_local_experts", 16), Key("num_experts_per_tok", 2), Key("intermediate_size")))
GPT_OSS = Family(
    kv_heads=Key(KV_NAMES, 8), head_dim=64, qkv_bias=Key("attention_bias", True),
    output_bias=Key("attention_bias", True), sinks=True, layout=layers.alternating(Key("sliding_window", 128), 2),
    experts=Experts(Key("num_local_experts|num_experts"), Key("num_experts_per_tok|experts_per_token"),
                    Key("intermediate_size"), bias=True, router_bias=True))
GLM4_MOE = Family(
    kv_heads=Key(KV_NAMES, 8), head_dim=128, qkv_bias=BIAS, qk_norm="head", qk_norm_key=Key("use_qk_norm", False),
    experts=DEEPSEEK_MOE_V3._replace(
        num_shared=Key("n_shared_experts", 1, least=0), first_dense=Key(FIRST_DENSE, 1, least=0)))
MINIMAX_M2 = Family(
    kv_heads=Key(KV_NAMES, 8), layout=layers.full, qk_norm="full", qk_norm_key=Key("use_qk_norm", True),
    experts=Experts(Key("num_local_experts"), size=Key("intermediate_size"), router_bias=True))
ERNIE = LLAMA._replace(
    tie=Key("tie_word_embeddings", True), qkv_bias=Key("use_bias", False), output_bias=Key("use_bias", False),
    mlp_bias=Key("use_bias", False),
    experts=Experts(num_shared=SHARED, router_bias=Key("moe_use_aux_free", True),
                    interval=Key("moe_layer_interval", 1)))
GRANITE_MOE = LLAMA._replace(
    experts=Experts(Key("num_local_experts"), size=Key("intermediate_size"), shared_size=SHARED_SIZE))
HUNYUAN_MOE = LLAMA._replace(
    qk_norm="head", qk_norm_key=Key("use_qk_norm", True),
    experts=Experts(size=OF_INTERMEDIATE, num_shared=SHARED, first_dense=Key("moe_layer_num_skipped", 0, least=0)))
EXAONE_MOE = Family(qk_norm="head", experts=Experts(num_shared=SHARED, router_bias=True, groups=GROUPS,
                                                   first_dense=Key(FIRST_DENSE, 1, least=0)))
STEP = Family(
    layout=layers.step, qk_norm="head", head_gate=Key("use_head_wise_attn_gate", False), mtp_layer="windowed_dense",
    experts=Experts(Key("moe_num_experts"), shared_size=Key("share_expert_dim", 0, least=0),
                    router_bias=Key("use_moe_router_bias", True)))

EXPERTS = {
    "AfmoeForCausalLM": Family(
        norms_per_layer=4, qk_norm="head", output_gate=True, layout=layers.alternating(
            Key("sliding_window", 1024), Key("global_attn_every_n_layers", 4)),
        experts=Experts(num_shared=SHARED, router_bias=True, first_dense=Key(FIRST_DENSE, 1, least=0))),
    "BailingMoeForCausalLM": LLAMA._replace(
        qkv_bias=Key("use_qkv_bias", False), output_bias=Key("use_bias", False),
        experts=Experts(num_shared=SHARED)),
    "BailingMoeV2ForCausalLM": LLAMA._replace(
        qkv_bias=Key("use_qkv_bias", False), output_bias=Key("use_bias", False), qk_norm="head",
        qk_norm_key=Key("use_qk_norm", True),
        experts=Experts(num_shared=SHARED, groups=GROUPS, router_bias=Key("moe_router_enable_expert_bias", True))),
    "Cohere2MoeForCausalLM": COHERE2._replace(experts=Experts(size=OF_INTERMEDIATE, num_shared=SHARED)),
    "DbrxForCausalLM": Family(
        kv_heads=Key(KV_NAMES, 1), mlp_size=Key("ffn_config.ffn_hidden_size", 3584),
        experts=Experts(Key("ffn_config.moe_num_experts", 4), Key("ffn_config.moe_top_k", 1),
                        Key("ffn_config.ffn_hidden_size", 3584))),
    "DeepseekForCausalLM": LLAMA._replace(experts=DEEPSEEK_MOE),
    "Dots1ForCausalLM": Family(
        qkv_bias=BIAS, output_bias=BIAS, qk_norm="head", experts=DEEPSEEK_MOE_V3),
    "Ernie4_5_MoeForCausalLM": ERNIE,
    "ExaoneMoEForCausalLM": EXAONE_MOE,
    "ExaoneMoeForCausalLM": EXAONE_MOE,
    "FlexOlmoForCausalLM": OLMO2._replace(experts=Experts(size=OF_INTERMEDIATE)),
    "Glm4MoeForCausalLM": GLM4_MOE,
    "GptOssForCausalLM": GPT_OSS,
    "GraniteMoeForCausalLM": GRANITE_MOE,
    "GraniteMoeSWAForCausalLM": GRANITE_MOE,
    "GraniteMoeSharedForCausalLM": GRANITE_MOE,
    "Grok1ForCausalLM": MIXTRAL._replace(
        norms_per_layer=4, experts=Experts(Key("num_local_experts|num_experts", 8), size=Key(
            "moe_intermediate_size|intermediate_size"))),
    "HYV3ForCausalLM": LLAMA._replace(
        qk_norm="head", qk_norm_key=Key("qk_norm|use_qk_norm", True),
        experts=Experts(size=Key("moe_intermediate_size|expert_hidden_dim"), num_shared=SHARED, router_bias=True,
                        first_dense=Key(FIRST_DENSE, 1, least=0))),
    "HunYuanMoEV1ForCausalLM": HUNYUAN_MOE,
    "Kolibri1ForCausalLM": Family(
        norms_per_layer=4, qk_norm="head", experts=Experts(shared_size=SHARED_SIZE)),
    "LagunaForCausalLM": Family(
        heads=Key("num_attention_heads_per_layer|num_attention_heads"), qk_norm="head", qkv_bias=BIAS,
        output_bias=BIAS, head_gate=Key("gating", True),
        experts=Experts(shared_size=SHARED_SIZE, router_bias=True)),
    "Llama4ForCausalLM": LLAMA4,
    "Llama4ForConditionalGeneration": LLAMA4,
    "MellumForCausalLM": Family(qk_norm="head", qkv_bias=BIAS, output_bias=BIAS, experts=Experts()),
    "MiniMaxM2ForCausalLM": MINIMAX_M2,
    "MixtralForCausalLM": MIXTRAL,
    "OlmoeForCausalLM": OLMO2._replace(experts=Experts(size=OF_INTERMEDIATE)),
    "PhiMoEForCausalLM": PHI_MOE,
    "PhimoeForCausalLM": PHI_MOE,
    "Qwen2MoeForCausalLM": QWEN2_MOE,
    "Qwen3MoeForCausalLM": QWEN3_MOE,
    "Qwen3VLMoeForConditionalGeneration": QWEN3_MOE,
    "SolarOpenForCausalLM": Family(
        qkv_bias=BIAS, output_bias=BIAS, qk_norm="head", qk_norm_key=Key("use_qk_norm", False),
        experts=DEEPSEEK_MOE_V3),
    "Step3p5ForCausalLM": STEP,
    "Step3p7ForConditionalGeneration": STEP,
}
