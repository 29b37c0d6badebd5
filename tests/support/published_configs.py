"""The keys that matter of config.json files on the Hugging Face hub, by the name of the same model in models/."""

FP8_BLOCKS = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}


def _config(architecture: str, layers: int, hidden: int, heads: int, vocab: int, context: int, **more) -> dict:
    common = {"num_hidden_layers": layers, "hidden_size": hidden, "num_attention_heads": heads, "vocab_size": vocab,
              "max_position_embeddings": context, "torch_dtype": "bfloat16"}
    return {"architectures": [architecture]} | common | more


def _yarn(factor: float, original: int) -> dict:
    return {"type": "yarn", "factor": factor, "original_max_position_embeddings": original}


def _nested(architecture: str, text: dict, **top) -> dict:
    return {"architectures": [architecture], "text_config": text} | top


LLAMA = {
    "llama-2-7b": _config("LlamaForCausalLM", 32, 4096, 32, 32000, 4096, intermediate_size=11008, torch_dtype="float16",
                          num_key_value_heads=32, rope_scaling=None, tie_word_embeddings=False),
    "llama-3.1-8b": _config(
        "LlamaForCausalLM", 32, 4096, 32, 128256, 131072, intermediate_size=14336, num_key_value_heads=8,
        rope_scaling={"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192}),
    "llama-3.2-1b": _config("LlamaForCausalLM", 16, 2048, 32, 128256, 131072, intermediate_size=8192,
                            num_key_value_heads=8, head_dim=64, tie_word_embeddings=True),
    "llama-4-scout": _nested(
        "Llama4ForConditionalGeneration",
        {"num_hidden_layers": 48, "hidden_size": 5120, "num_attention_heads": 40, "num_key_value_heads": 8,
         "head_dim": 128, "intermediate_size": 8192, "intermediate_size_mlp": 16384, "vocab_size": 202048,
         "num_local_experts": 16, "num_experts_per_tok": 1, "interleave_moe_layer_step": 1, "no_rope_layers": [],
         "attention_chunk_size": 8192, "max_position_embeddings": 10485760, "torch_dtype": "bfloat16",
         "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192}},
        vision_config={"model_type": "llama4_vision_model", "hidden_size": 1408, "image_size": 336,
                       "intermediate_size": 5632, "num_hidden_layers": 34, "patch_size": 14,
                       "vision_output_dim": 4096}),
    "llama-4-maverick": _nested(
        "Llama4ForConditionalGeneration",
        {"num_hidden_layers": 48, "hidden_size": 5120, "num_attention_heads": 40, "num_key_value_heads": 8,
         "head_dim": 128, "intermediate_size": 8192, "intermediate_size_mlp": 16384, "vocab_size": 202048,
         "num_local_experts": 128, "num_experts_per_tok": 1, "moe_layers": list(range(1, 48, 2)),
         "no_rope_layers": [1, 1, 1, 0] * 12, "max_position_embeddings": 1048576, "torch_dtype": "bfloat16"},
        vision_config={"model_type": "llama4_vision_model", "hidden_size": 1408, "image_size": 336, "patch_size": 14,
                       "vision_output_dim": 4096}),
}
MISTRAL = {
    "mistral-7b": _config("MistralForCausalLM", 32, 4096, 32, 32000, 32768, intermediate_size=14336,
                          num_key_value_heads=8, sliding_window=4096),
    "mistral-nemo-12b": _config("MistralForCausalLM", 40, 5120, 32, 131072, 131072, intermediate_size=14336,
                                num_key_value_heads=8, head_dim=128, sliding_window=None),
    "mixtral-8x7b": _config("MixtralForCausalLM", 32, 4096, 32, 32000, 32768, intermediate_size=14336,
                            num_key_value_heads=8, num_local_experts=8, num_experts_per_tok=2, sliding_window=None),
}
_DELTA_NET = {"linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_key_head_dim": 128,
              "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4}
QWEN = {
    "qwen-72b": _config("QWenLMHeadModel", 80, 8192, 64, 152064, 32768, intermediate_size=49152, seq_length=32768,
                        tie_word_embeddings=False),
    "qwen2.5-0.5b": _config("Qwen2ForCausalLM", 24, 896, 14, 151936, 32768, intermediate_size=4864,
                            num_key_value_heads=2, use_sliding_window=False, sliding_window=32768,
                            max_window_layers=24, tie_word_embeddings=True),
    "qwen2.5-72b": _config("Qwen2ForCausalLM", 80, 8192, 64, 152064, 131072, intermediate_size=29568,
                           num_key_value_heads=8, use_sliding_window=False, sliding_window=131072,
                           max_window_layers=80),
    "qwen3-0.6b": _config("Qwen3ForCausalLM", 28, 1024, 16, 151936, 40960, intermediate_size=3072,
                          num_key_value_heads=8, tie_word_embeddings=True, attention_bias=False, sliding_window=None),
    "qwen3-30b-a3b": _config(
        "Qwen3MoeForCausalLM", 48, 2048, 32, 151936, 40960, intermediate_size=6144, num_key_value_heads=4, head_dim=128,
        num_experts=128, num_experts_per_tok=8, moe_intermediate_size=768, decoder_sparse_step=1, mlp_only_layers=[]),
    "qwen3-next-80b-a3b": _config(
        "Qwen3NextForCausalLM", 48, 2048, 16, 151936, 262144, intermediate_size=5120, num_key_value_heads=2,
        head_dim=256, num_experts=512, num_experts_per_tok=10, moe_intermediate_size=512,
        shared_expert_intermediate_size=512, full_attention_interval=4, mlp_only_layers=[], decoder_sparse_step=1,
        rope_scaling=None, **_DELTA_NET),
    "qwen3.5-27b": _nested(
        "Qwen3_5ForConditionalGeneration",
        {"num_hidden_layers": 64, "hidden_size": 5120, "num_attention_heads": 24, "num_key_value_heads": 4,
         "head_dim": 256, "intermediate_size": 17408, "vocab_size": 248320, "max_position_embeddings": 262144,
         "dtype": "bfloat16", "layer_types": (["linear_attention"] * 3 + ["full_attention"]) * 16,
         "attn_output_gate": True, "mtp_num_hidden_layers": 1, "rope_parameters": {"rope_type": "default"},
         **_DELTA_NET, "linear_num_value_heads": 48, "mamba_ssm_dtype": "float32"},
        tie_word_embeddings=False, vision_config={"depth": 27, "hidden_size": 1152, "out_hidden_size": 5120}),
}
_MLA = {"kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}
_DEEPSEEK_V3 = _config(
    "DeepseekV3ForCausalLM", 61, 7168, 128, 129280, 163840, num_key_value_heads=128, intermediate_size=18432,
    q_lora_rank=1536, moe_intermediate_size=2048, n_routed_experts=256, n_shared_experts=1, num_experts_per_tok=8,
    first_k_dense_replace=3, moe_layer_freq=1, num_nextn_predict_layers=1, quantization_config=FP8_BLOCKS, n_group=8,
    tie_word_embeddings=False, rope_scaling=_yarn(40, 4096),
    **_MLA)
DEEPSEEK = {
    "deepseek-v2": _config(
        "DeepseekV2ForCausalLM", 60, 5120, 128, 102400, 163840, num_key_value_heads=128, intermediate_size=12288,
        q_lora_rank=1536, moe_intermediate_size=1536, n_routed_experts=160, n_shared_experts=2, num_experts_per_tok=6,
        n_group=8, first_k_dense_replace=1, rope_scaling=_yarn(40, 4096), **_MLA),
    "deepseek-v2-lite": _config(
        "DeepseekV2ForCausalLM", 27, 2048, 16, 102400, 163840, num_key_value_heads=16, intermediate_size=10944,
        q_lora_rank=None, moe_intermediate_size=1408, n_routed_experts=64, n_shared_experts=2, num_experts_per_tok=6,
        first_k_dense_replace=1, **_MLA),
    "deepseek-v3": _DEEPSEEK_V3,
    "deepseek-v3.2": _DEEPSEEK_V3 | {"architectures": ["DeepseekV32ForCausalLM"], "index_n_heads": 64,
                                     "index_head_dim": 128, "index_topk": 2048},
    "kimi-k2": _DEEPSEEK_V3 | {
        "num_attention_heads": 64, "vocab_size": 163840, "max_position_embeddings": 131072, "n_routed_experts": 384,
        "n_group": 1,
        "first_k_dense_replace": 1, "num_nextn_predict_layers": 0,
        "rope_scaling": _yarn(32.0, 4096)},
    "glm-5": _config(
        "GlmMoeDsaForCausalLM", 78, 6144, 64, 154880, 202752, intermediate_size=12288, q_lora_rank=2048,
        kv_lora_rank=512, qk_nope_head_dim=192, qk_rope_head_dim=64, v_head_dim=256, index_n_heads=32,
        index_head_dim=128, index_topk=2048, moe_intermediate_size=2048, n_routed_experts=256, n_shared_experts=1,
        num_experts_per_tok=8, first_k_dense_replace=3, num_nextn_predict_layers=1),
}
GEMMA = {
    "gemma-2-9b": _config("Gemma2ForCausalLM", 42, 3584, 16, 256000, 8192, intermediate_size=14336,
                          num_key_value_heads=8, head_dim=256, sliding_window=4096),
    "gemma-3-1b": _config("Gemma3ForCausalLM", 26, 1152, 4, 262144, 32768, intermediate_size=6912,
                          num_key_value_heads=1, head_dim=256, sliding_window=512, sliding_window_pattern=6),
    "gemma-3-4b": _nested(
        "Gemma3ForConditionalGeneration",
        {"hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34, "sliding_window": 1024,
         "rope_scaling": {"factor": 8.0, "rope_type": "linear"}},
        torch_dtype="bfloat16",
        vision_config={"model_type": "siglip_vision_model", "hidden_size": 1152, "image_size": 896,
                       "intermediate_size": 4304, "num_attention_heads": 16, "num_hidden_layers": 27,
                       "patch_size": 14}),
    "gemma-4-26b-a4b": _nested(
        "Gemma4ForConditionalGeneration",
        {"num_hidden_layers": 30, "hidden_size": 2816, "num_attention_heads": 16, "num_key_value_heads": 8,
         "head_dim": 256, "global_head_dim": 512, "num_global_key_value_heads": 2, "attention_k_eq_v": True,
         "intermediate_size": 2112, "vocab_size": 262144, "max_position_embeddings": 262144, "sliding_window": 1024,
         "num_experts": 128, "top_k_experts": 8, "moe_intermediate_size": 704, "enable_moe_block": True,
         "dtype": "bfloat16", "layer_types": (["sliding_attention"] * 5 + ["full_attention"]) * 5},
        vision_config={"model_type": "gemma4_vision", "hidden_size": 1152, "intermediate_size": 4304, "head_dim": 72,
                       "num_attention_heads": 16, "num_hidden_layers": 27, "pooling_kernel_size": 3,
                       "position_embedding_size": 10240, "default_output_length": 280}),
}
PHI = {
    "phi-2": _config("PhiForCausalLM", 32, 2560, 32, 51200, 2048, intermediate_size=10240, num_key_value_heads=32,
                     torch_dtype="float16", partial_rotary_factor=0.4, tie_word_embeddings=False),
    "phi-3-mini": _config("Phi3ForCausalLM", 32, 3072, 32, 32064, 4096, intermediate_size=8192, num_key_value_heads=32,
                          sliding_window=2047),
    "phi-3.5-moe": _config(
        "PhiMoEForCausalLM", 32, 4096, 32, 32064, 131072, intermediate_size=6400, num_key_value_heads=8,
        num_local_experts=16, num_experts_per_tok=2, attention_bias=True, lm_head_bias=True,
        rope_scaling={"type": "longrope", "original_max_position_embeddings": 4096}),
    "phi-4": _config("Phi3ForCausalLM", 40, 5120, 40, 100352, 16384, intermediate_size=17920, num_key_value_heads=10,
                     sliding_window=None, rope_scaling=None),
}
OTHERS = {
    "gpt-oss-20b": _config(
        "GptOssForCausalLM", 24, 2880, 64, 201088, 131072, intermediate_size=2880, num_key_value_heads=8, head_dim=64,
        num_local_experts=32, num_experts_per_tok=4, sliding_window=128, attention_bias=True, torch_dtype=None,
        layer_types=["sliding_attention", "full_attention"] * 12,
        rope_scaling={"rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 4096},
        quantization_config={"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn",
                                                                                 "lm_head"]}),
    "glm-4.5": _config(
        "Glm4MoeForCausalLM", 92, 5120, 96, 151552, 131072, intermediate_size=12288, num_key_value_heads=8,
        head_dim=128, attention_bias=True, use_qk_norm=True, moe_intermediate_size=1536, n_routed_experts=160,
        n_shared_experts=1, num_experts_per_tok=8, first_k_dense_replace=3, num_nextn_predict_layers=1),
    "glm-4.5-air": _config(
        "Glm4MoeForCausalLM", 46, 4096, 96, 151552, 131072, intermediate_size=10944, num_key_value_heads=8,
        head_dim=128, attention_bias=True, use_qk_norm=False, moe_intermediate_size=1408, n_routed_experts=128,
        n_shared_experts=1, num_experts_per_tok=8, first_k_dense_replace=1, num_nextn_predict_layers=1),
    "minimax-m2": _config(
        "MiniMaxM2ForCausalLM", 62, 3072, 48, 200064, 196608, intermediate_size=1536, num_key_value_heads=8,
        head_dim=128, num_local_experts=256, num_experts_per_tok=8, use_qk_norm=True, use_routing_bias=True,
        attn_type_list=[1] * 62, shared_intermediate_size=0, quantization_config=FP8_BLOCKS),
    "minimax-text-01": _config(
        "MiniMaxText01ForCausalLM", 80, 6144, 64, 200064, 10240000, intermediate_size=9216, num_key_value_heads=8,
        head_dim=128, num_local_experts=32, num_experts_per_tok=2, attn_type_list=([0] * 7 + [1]) * 10),
    "bloom-176b": {"architectures": ["BloomForCausalLM"], "n_layer": 70, "n_embed": 14336, "n_head": 112,
                   "num_attention_heads": 112, "vocab_size": 250880, "seq_length": 2048, "torch_dtype": "bfloat16"},
    "command-r-plus": _config("CohereForCausalLM", 64, 12288, 96, 256000, 131072, intermediate_size=33792,
                              num_key_value_heads=8, use_qk_norm=True, torch_dtype="float16"),
    "olmo-2-7b": _config("Olmo2ForCausalLM", 32, 4096, 32, 100352, 4096, intermediate_size=11008,
                         num_key_value_heads=32, torch_dtype="float32"),
    "nemotron-3-nano-30b-a3b": _config(
        "NemotronHForCausalLM", 52, 2688, 32, 131072, 262144, num_key_value_heads=2, head_dim=128, n_groups=8,
        hybrid_override_pattern="MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME", intermediate_size=1856,
        mamba_num_heads=64, mamba_head_dim=64, ssm_state_size=128, conv_kernel=4, use_conv_bias=True,
        n_routed_experts=128, n_shared_experts=1, moe_intermediate_size=1856,
        moe_shared_expert_intermediate_size=3712, num_experts_per_tok=6),
    "mimo-v2-flash": _config(
        "MiMoV2FlashForCausalLM", 48, 4096, 64, 152576, 262144, num_key_value_heads=4, head_dim=192, v_head_dim=128,
        swa_num_key_value_heads=8, swa_head_dim=192, swa_v_head_dim=128, sliding_window_size=128,
        intermediate_size=16384, hybrid_layer_pattern=[0 if i in (0, 5, 11, 17, 23, 29, 35, 41,
                                                                  47) else 1 for i in range(48)],
        add_swa_attention_sink_bias=True, moe_layer_freq=[0] + [1] * 47, n_routed_experts=256, n_shared_experts=None,
        num_experts_per_tok=8, moe_intermediate_size=2048, num_nextn_predict_layers=1, quantization_config=FP8_BLOCKS),
}
CONFIGS = LLAMA | MISTRAL | QWEN | DEEPSEEK | GEMMA | PHI | OTHERS
