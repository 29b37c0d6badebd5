"""Families with attention and dense networks alone; source of defaults and structure: see `families`."""
from simulator.config.huggingface import layers
from simulator.config.huggingface.family import BIAS, Family
from simulator.config.huggingface.keys import CONTEXT, KV_NAMES, Key, Keys


def _falcon_norms(keys: Keys) -> int:
    """Parallel blocks have one norm, or two with the new decoder architecture; others two."""
    if not keys.flag(Key("parallel_attn", True)):
        return 2
    norms = keys.get("num_ln_in_parallel_attn", 2 if keys.flag(Key("new_decoder_architecture", False)) else 1)
    return 2 if norms == 2 else 1


def _parallel(name: str, default: bool):
    """Return the norms of blocks that are parallel if a key says so: one, else two."""
    return lambda keys: 1 if keys.flag(Key(name, default)) else 2



LLAMA = Family(qkv_bias=BIAS, output_bias=BIAS, mlp_bias=Key("mlp_bias", False))
TIED_LLAMA = LLAMA._replace(tie=Key("tie_word_embeddings", True))
MISTRAL = Family(kv_heads=Key(KV_NAMES, 8), layout=layers.windowed(implied=4096))
QWEN2 = Family(layout=layers.qwen, kv_heads=Key("num_key_value_heads", 32), qkv_bias=True)
QWEN3 = Family(layout=layers.qwen, kv_heads=Key("num_key_value_heads", 32), head_dim=128, qk_norm="head",
               qkv_bias=BIAS, output_bias=BIAS)
PHI3 = Family(layout=layers.windowed(implied=0))
COHERE = Family(tie=Key("tie_word_embeddings", True), norms_per_layer=1, qkv_bias=BIAS, output_bias=BIAS,
                qk_norm="full", qk_norm_key=Key("use_qk_norm", False))
COHERE2 = COHERE._replace(
    qk_norm="none", layout=layers.alternating(Key("sliding_window", 4096), Key("sliding_window_pattern", 4)))
OLMO = Family(qkv_bias=BIAS, output_bias=BIAS, norms_per_layer=0)
OLMO2 = Family(qkv_bias=BIAS, output_bias=BIAS, qk_norm="full")
OLMO3 = OLMO2._replace(layout=layers.alternating(Key("sliding_window", 4096), 4))
# LayerNorm with bias, learned positions, networks of two matrices.
GPT2 = Family(tie=Key("tie_word_embeddings", True), context=Key("n_positions|n_ctx|max_position_embeddings", 1024),
              kv_heads=0, positions=0, norm_bias=True, qkv_bias=True, output_bias=True, mlp_gated=False, mlp_bias=True,
              mlp_size=Key("n_inner|intermediate_size", 0))
PLAIN_BIASES = Family(norm_bias=True, qkv_bias=True, output_bias=True, mlp_gated=False, mlp_bias=True)

DENSE = {
    "ApertusForCausalLM": Family(qkv_bias=BIAS, output_bias=BIAS, qk_norm="head", mlp_gated=False,
                                 mlp_bias=Key("mlp_bias", False), activation_weights=2),
    "ArceeForCausalLM": LLAMA._replace(mlp_gated=False),
    "AquilaForCausalLM": LLAMA,
    "BaiChuanForCausalLM": LLAMA,
    "BaichuanForCausalLM": LLAMA,
    "BloomForCausalLM": Family(
        kv_heads=0, context=Key("seq_length|n_positions", 2048), tie=Key("tie_word_embeddings", True), qkv_bias=True,
        output_bias=True, norm_bias=True, embedding_norm=True, mlp_gated=False, mlp_bias=True,
        mlp_size=Key("n_inner", 0)),
    "ChatGLMForConditionalGeneration": Family(
        vocab=Key("padded_vocab_size|vocab_size"), qkv_bias=Key("add_qkv_bias|add_bias_linear", False),
        output_bias=Key("add_bias_linear", False), mlp_bias=Key("add_bias_linear", False),
        mlp_size=Key("ffn_hidden_size")),
    "CohereForCausalLM": COHERE,
    "Cohere2ForCausalLM": COHERE2,
    "CwmForCausalLM": LLAMA._replace(kv_heads=Key(KV_NAMES, 8), head_dim=128),
    "Ernie4_5ForCausalLM": TIED_LLAMA._replace(
        head_dim=128, qkv_bias=Key("use_bias", False), output_bias=Key("use_bias", False),
        mlp_bias=Key("use_bias", False)),
    "ExaoneForCausalLM": LLAMA,
    "Exaone4ForCausalLM": Family(qk_norm="head"),
    "FalconForCausalLM": Family(
        tie=Key("tie_word_embeddings", True), context=Key(CONTEXT.names, 2048), norm_bias=True,
        norms_per_layer=_falcon_norms, qkv_bias=Key("bias", False), output_bias=Key("bias", False), mlp_gated=False,
        mlp_bias=Key("bias", False), mlp_size=Key("ffn_hidden_size", 0)),
    "GPT2LMHeadModel": GPT2,
    "GPTBigCodeForCausalLM": GPT2,
    "GPTJForCausalLM": Family(
        kv_heads=0, context=Key("n_positions|max_position_embeddings", 2048), norms_per_layer=1, norm_bias=True,
        lm_head_bias=True, mlp_gated=False, mlp_bias=True, mlp_size=Key("n_inner", 0)),
    "GPTNeoXForCausalLM": PLAIN_BIASES._replace(
        kv_heads=0, qkv_bias=Key("attention_bias", True), output_bias=Key("attention_bias", True)),
    "GlmForCausalLM": Family(kv_heads=Key(KV_NAMES, 2), head_dim=128, qkv_bias=Key("attention_bias", True)),
    "Glm4ForCausalLM": Family(kv_heads=Key(KV_NAMES, 2), head_dim=128, qkv_bias=BIAS, norms_per_layer=4),
    "GraniteForCausalLM": LLAMA._replace(tie=Key("tie_word_embeddings", True)),
    "GraniteSWAForCausalLM": LLAMA._replace(tie=Key("tie_word_embeddings", True)),
    "HunYuanDenseV1ForCausalLM": LLAMA._replace(qk_norm="head", qk_norm_key=Key("use_qk_norm", True),
                                                tie=Key("tie_word_embeddings", True)),
    "HyperCLOVAXForCausalLM": LLAMA._replace(norms_per_layer=lambda keys: 4 if keys.get("use_post_norm") else 2),
    "InternLMForCausalLM": LLAMA._replace(qkv_bias=Key("bias", True), output_bias=Key("bias", True)),
    "InternLM2ForCausalLM": LLAMA._replace(qkv_bias=Key("bias", False), output_bias=Key("bias", False)),
    "InternLM3ForCausalLM": LLAMA._replace(qkv_bias=Key("qkv_bias", False), output_bias=Key("bias", False),
                                           mlp_bias=Key("bias", False)),
    "Jais2ForCausalLM": Family(norm_bias=True, qkv_bias=Key("attention_bias", True), mlp_gated=False,
                               output_bias=Key("attention_bias", True), mlp_bias=Key("mlp_bias", True)),
    "LLaMAForCausalLM": LLAMA,
    "LlamaForCausalLM": LLAMA,
    "MiMoForCausalLM": QWEN2._replace(qkv_bias=Key("attention_bias", True)),
    "Ministral3ForCausalLM": MISTRAL._replace(layout=layers.windowed(implied=0)),
    "Ministral3ForConditionalGeneration": MISTRAL._replace(layout=layers.windowed(implied=0)),
    "MinistralForCausalLM": MISTRAL,
    "Mistral3ForConditionalGeneration": MISTRAL._replace(layout=layers.windowed(implied=0)),
    "MistralForCausalLM": MISTRAL,
    "MptForCausalLM": Family(
        tie=Key("tie_word_embeddings", True), norm_bias=Key("use_bias", False), qkv_bias=Key("use_bias", False),
        output_bias=Key("use_bias", False), mlp_gated=False, mlp_bias=Key("use_bias", False), mlp_size=Key("", 0),
        mlp_ratio=Key("expansion_ratio", 4)),
    "NemotronForCausalLM": LLAMA._replace(norm_bias=True, mlp_gated=False),
    "OPTForCausalLM": PLAIN_BIASES._replace(
        tie=Key("tie_word_embeddings", True), kv_heads=0, positions=2, norm_bias=True,
        qkv_bias=Key("enable_bias", True), output_bias=Key("enable_bias", True), mlp_bias=Key("enable_bias", True)),
    "OlmoForCausalLM": OLMO,
    "Olmo2ForCausalLM": OLMO2,
    "Olmo3ForCausalLM": OLMO3,
    "OrionForCausalLM": LLAMA._replace(norm_bias=True),
    "PanguEmbeddedForCausalLM": LLAMA._replace(qkv_bias=Key("bias", True), output_bias=Key("bias", True)),
    "Phi3ForCausalLM": PHI3,
    "Phi4MMForCausalLM": PHI3,
    "PhiForCausalLM": PLAIN_BIASES._replace(norms_per_layer=1, lm_head_bias=True),
    "QWenLMHeadModel": Family(context=Key("seq_length|max_position_embeddings"), qkv_bias=True, kv_heads=0,
                              mlp_divisor=2),
    "Qwen2ForCausalLM": QWEN2,
    "Qwen2VLForConditionalGeneration": QWEN2,
    "Qwen2_5_VLForConditionalGeneration": QWEN2,
    "Qwen3ForCausalLM": QWEN3,
    "Qwen3VLForConditionalGeneration": QWEN3,
    "SeedOssForCausalLM": LLAMA._replace(kv_heads=Key(KV_NAMES, 8), head_dim=128, qkv_bias=Key("attention_bias", True),
                                         output_bias=Key("attention_out_bias", False)),
    "SmolLM3ForCausalLM": TIED_LLAMA._replace(kv_heads=Key(KV_NAMES, 4)),
    "SolarForCausalLM": LLAMA,
    "StableLmForCausalLM": Family(
        norm_bias=True, qkv_bias=Key("use_qkv_bias", False), qk_norm="full", qk_norm_key=Key("qk_layernorm", False),
        norms_per_layer=_parallel("use_parallel_residual", False)),
    "Starcoder2ForCausalLM": PLAIN_BIASES._replace(
        tie=Key("tie_word_embeddings", True), kv_heads=Key(KV_NAMES, 2), qkv_bias=Key("use_bias", True),
        output_bias=Key("use_bias", True), mlp_bias=Key("use_bias", True), layout=layers.windowed(implied=0)),
    "TeleChat2ForCausalLM": LLAMA,
    "TeleChat3ForCausalLM": LLAMA,
    "XverseForCausalLM": LLAMA,
}
