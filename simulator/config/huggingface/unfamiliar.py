"""Architectures without a row in `families`, read by keys that most families share, with every assumption named.

Attention is multi-head or latent, networks are MLPs or experts. A key that may describe another structure is a fault.
"""
import re

from simulator.config.huggingface import keys as known
from simulator.config.huggingface import layers, layouts, networks
from simulator.config.huggingface.attention import gated_latent, latent_sparse, multi_head
from simulator.config.huggingface.family import MTP, Family
from simulator.config.huggingface.keys import Key, Keys
from simulator.config.huggingface.networks import Experts
from simulator.config.words import show

SUFFIXES = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")
QKV_BIAS = "attention_bias|use_qkv_bias|add_qkv_bias|qkv_bias|attn_bias|use_bias|bias|add_bias_linear"
OUTPUT_BIAS = "attention_out_bias|attention_bias|use_bias|bias|add_bias_linear"
MLP_BIAS = "mlp_bias|use_bias|bias|add_bias_linear"
QK_NORM = "use_qk_norm|qk_norm|qk_layernorm"
OUTPUT_GATE, HEAD_GATE = "attn_output_gate|attention_output_gate", "use_head_wise_attn_gate"
ROUTER_BIAS = "use_routing_bias|use_moe_router_bias|moe_router_enable_expert_bias|moe_use_aux_free"
EXPERT_SIZE = "moe_intermediate_size|expert_ffn_hidden_size|moe_ffn_hidden_size|expert_hidden_dim"
GROUPS = "n_group|num_expert_group"
ACTIVATION = "hidden_act|hidden_activation|mlp_hidden_act|activation_function"
LAYER_NORM = "layer_norm_eps|layer_norm_epsilon|layernorm_epsilon|norm_epsilon"
LATENT = ("kv_lora_rank|q_lora_rank|qk_nope_head_dim|qk_rope_head_dim|qk_head_dim|v_head_dim|mla_use_output_gate"
          "|index_n_heads|index_head_dim|index_topk|index_topk_freq|index_topk_pattern|index_skip_topk_offset"
          "|indexer_types")
WINDOWS = "sliding_window|sliding_window_size|sliding_window_pattern|use_sliding_window|max_window_layers|layer_types"
PLACES = ("mlp_layer_types|moe_layer_freq|moe_layers_enum|moe_layers|mlp_only_layers|expert_layer_period"
          "|expert_layer_offset|moe_layer_end_index")
WIDTHS = "moe_latent_size|routed_expert_hidden_size|latent_moe_use_norm|multi_query"
TABLES = ("architectures|model_type|dtype|torch_dtype|tie_word_embeddings|rope_scaling|rope_parameters|text_config"
          "|thinker_config|llm_config|language_config|vision_config|audio_config|speech_config|quantization_config"
          "|compression_config|quantization|producer|quant_method|is_causal|use_bidirectional_attention")
READ = frozenset("|".join([
    *(key.names for key in (known.HIDDEN_SIZE, known.VOCABULARY, known.CONTEXT, known.HEADS, MTP, networks.PER_TOKEN,
                            networks.COUNT, networks.SHARED, networks.SHARED_SIZE)),
    known.NUM_LAYERS, known.KV_NAMES, known.HEAD_DIM, known.MLP_SIZE, networks.FIRST_DENSE, networks.INTERVAL,
    QKV_BIAS, OUTPUT_BIAS, MLP_BIAS, QK_NORM, OUTPUT_GATE, HEAD_GATE, ROUTER_BIAS, EXPERT_SIZE, GROUPS, ACTIVATION,
    LAYER_NORM, LATENT, WINDOWS, PLACES, WIDTHS, TABLES]).split("|"))
# Keys without weights, cache or work of their own: positions, constants, training, generation, tokens, placeholders.
PLAIN = re.compile(
    r"_.*|.*(token|tokens|placeholder)(_ids?|_index)?|.*(dropout|pdrop|_eps|epsilon|_theta|_coef|_alpha|_limit|_std)"
    r"|(rope|rotary|initializer|init|logits?|task|image|video|audio|vision|mm|projector|multimodal|spatial|img|router|mtp|return)_.*|.*rotary_factor"
    r"|.*(aux|loss|jitter|scaling_factor|scale_factor|multiplier|softcapping|renormalize|activation_func).*"
    r"|.*rope.*|indexer_rope_interleave|norm_topk_prob|topk_group|topk_method|scoring_func|use_grouped_topk|seq_aux"
    r"|moe_router_dtype|use_cache|use_mrope|use_bfloat16|torchscript|transformers_version|auto_map|tokenizer_class"
    r"|id2label|label2id|prefix|problem_type|finetuning_task|pretraining_tp|ep_size|output_(attentions|hidden_states"
    r"|router_logits|scores)|swiglu_.*|chunk_size_feed_forward|use_mtp|index_share_for_mtp_iteration|is_decoder"
    r"|attn_implementation|gradient_checkpointing|do_sample|early_stopping|(length|repetition|diversity)_penalty"
    r"|m(ax|in)_length|num_(beams|beam_groups|return_sequences|logits_to_keep)|temperature|top_[kp]|typical_p"
    r"|initial_context_length|ignore_index|max_model_len|name_or_path")
OFF = (None, False, 0, 0.0, "", [], {})
# Activations of networks with a gate, and without, in all known families; "gelu" is either, by the kind of norm.
GATED, PLAIN_ACTIVATIONS, EITHER = ("silu", "swish", "swiglu"), ("relu", "relu2", "squared_relu"), (
    "gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh")
MEANT = ", ".join((*GATED, *PLAIN_ACTIVATIONS, *EITHER))


def is_readable(architecture: str) -> bool:
    """Return whether the name is that of a decoder with a head."""
    return architecture.endswith(SUFFIXES)


def unread_keys(keys: Keys) -> None:
    """Leave a fault for each key that may describe another structure."""
    for name, value in keys.table.items():
        if name not in READ and value not in OFF and not PLAIN.fullmatch(name):
            keys.fault(name, f"found {show(value)}, a key that is not read for architectures without rules of their "
                             "own: it may describe another structure; if it changes neither weights nor KV cache, "
                             "remove it from the file")


def unknown_defaults(keys: Keys) -> None:
    """Leave a fault for each key with an unknown default or meaning."""
    if keys.get("tie_word_embeddings") is None:
        keys.fault("tie_word_embeddings", "required key is missing: the default of an architecture without rules of "
                                          "its own is unknown; expected true or false")
    activation, is_missing = _activation(keys), keys.get(ACTIVATION) is None
    if activation not in (*GATED, *PLAIN_ACTIVATIONS, *EITHER):
        keys.fault(ACTIVATION, f"{'required key is missing' if is_missing else f'found {show(activation)}'}: whether "
                               f"networks have a gate follows from it; expected one of {MEANT}")
    places = "use_sliding_window", "layer_types", "sliding_window_pattern"
    if keys.get("sliding_window") is not None and all(keys.get(name) is None for name in places):
        keys.fault("sliding_window", f"found {show(keys.get('sliding_window'))} and none of {', '.join(places)}: which "
                                     "layers slide is unknown")


def family_of(keys: Keys) -> Family:
    """Return the rules of an unknown architecture; leave assumptions in `keys`."""
    is_latent = keys.get("kv_lora_rank") is not None
    is_sparse = is_latent and keys.get("index_topk") is not None
    is_layer_norm = keys.get("rms_norm_eps") is None and keys.get(LAYER_NORM) is not None
    activation = _activation(keys)
    is_gated = activation in GATED or (activation in EITHER and not is_layer_norm)
    router_bias = keys.get("topk_method") == "noaux_tc"
    _assume(keys, {
        f"{'LayerNorm with bias' if is_layer_norm else 'RMSNorm'}, two a layer": True,
        f"networks {'with a' if is_gated else 'without'} gate, by hidden_act = {show(activation)}": True,
        "as many KV heads as heads": not is_latent and keys.get(known.KV_NAMES) is None and not keys.get("multi_query"),
        "head_dim = hidden_size / heads": not is_latent and keys.get(known.HEAD_DIM) is None,
        "no biases of attention": keys.get(QKV_BIAS) is None,
        "no norm of queries and keys": not is_latent and keys.get(QK_NORM) is None,
        "experts as wide as intermediate_size": keys.get(networks.COUNT.names) and keys.get(EXPERT_SIZE) is None})
    return Family(
        attention=latent_sparse if is_sparse else gated_latent if is_latent else multi_head,
        layout=layouts.indexed if is_sparse else placed,
        norm_bias=is_layer_norm, qkv_bias=Key(QKV_BIAS, False), output_bias=Key(OUTPUT_BIAS, False),
        mlp_bias=Key(MLP_BIAS, False), mlp_gated=is_gated, qk_norm="head", qk_norm_key=Key(QK_NORM, False),
        output_gate=Key(OUTPUT_GATE, False), head_gate=Key(HEAD_GATE, False),
        experts=Experts(Key(networks.COUNT.names, 0, least=0), size=Key(f"{EXPERT_SIZE}|intermediate_size"),
                        shared_size=networks.SHARED_SIZE, num_shared=networks.SHARED, gated=is_gated,
                        router_bias=Key(ROUTER_BIAS, router_bias), groups=Key(GROUPS, 1)))


def _activation(keys: Keys) -> str | None:
    """Return the activation of networks; RMSNorm without it: the one that all known families have then."""
    return keys.get(ACTIVATION) or (None if keys.get("rms_norm_eps") is None else "silu")


def placed(keys: Keys, count: int) -> layers.Layers:
    """Layers slide by layer_types, a pattern, or max_window_layers."""
    window = keys.get("sliding_window|sliding_window_size")
    if window is None or keys.get("use_sliding_window") is False:
        keys.sequence("layer_types", count, ("full_attention", "attention"))
        return layers.full(keys, count)
    if keys.get("layer_types") is not None:
        keys.sequence("layer_types", count, ("full_attention", "attention", "sliding_attention"))
        return layers.standard(keys, count)
    if keys.get("use_sliding_window") is True and keys.get("max_window_layers") is not None:
        return layers.qwen(keys, count)
    return layers.standard(keys, count)


def _assume(keys: Keys, assumptions: dict[str, bool]) -> None:
    keys.assumed += [what for what, holds in assumptions.items() if holds]


def note(architecture: str, keys: Keys) -> str:
    """Return the note on a model that is read so."""
    return (f"{architecture} is no architecture with rules of its own: its config.json is read by standard keys, with "
            f"these assumptions: {'; '.join(keys.assumed)}")
