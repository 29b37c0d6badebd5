"""Parameters, KV cache and layers of a model follow from its shape."""
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from simulator.domain.deployment import Deployment
from simulator.domain.facts import load_accelerator, load_model, names
from simulator.domain.layers.gated_delta_net import GatedDeltaNet
from simulator.domain.layers.indexer import Indexer
from simulator.domain.layers.latent import LatentAttention
from simulator.domain.layers.lightning import LightningAttention
from simulator.domain.layers.mamba2 import Mamba2
from simulator.domain.layers.multi_head import MultiHeadAttention
from simulator.domain.layers.networks import Mlp, Moe
from simulator.domain.model_spec import ModelSpec
from simulator.domain.parallelism import Parallelism
from support.parameters import active_parameters, mtp_parameters

HIDDEN = 8
ATTENTION = MultiHeadAttention(num_heads=4, num_kv_heads=2, head_dim=3)


def model(**more) -> ModelSpec:
    shape = {"num_layers": 2, "hidden_size": HIDDEN, "vocab_size": 10, "max_position_embeddings": 16,
             "dtype": "bfloat16", "attention": ATTENTION, "mlp": Mlp(intermediate_size=5)}
    return ModelSpec(**shape | more)


def test_attention_counts_projections_biases_and_norms():
    # q 8x12, k 8x6, v 8x6, o 12x8 = 96 + 48 + 48 + 96
    assert ATTENTION.matrix_parameters(HIDDEN) == 288
    # bias of q, k, v: 12 + 6 + 6; of o: 8
    assert replace(ATTENTION, qkv_bias=True, output_bias=True).num_parameters(HIDDEN) == 288 + 24 + 8
    # one weight per dim of a head, for queries and keys; or per dim of every head: (4 + 2) x 3
    assert replace(ATTENTION, qk_norm="head").num_parameters(HIDDEN) == 288 + 6
    assert replace(ATTENTION, qk_norm="full").num_parameters(HIDDEN) == 288 + 18
    # a gate as wide as the queries; one sink a head; no value projection
    assert replace(ATTENTION, output_gate=True).num_parameters(HIDDEN) == 288 + 96
    assert replace(ATTENTION, sinks=True).num_parameters(HIDDEN) == 288 + 4
    assert replace(ATTENTION, key_is_value=True).num_parameters(HIDDEN) == 288 - 48


def test_value_heads_may_be_narrower():
    narrow = replace(ATTENTION, value_head_dim=2)

    # q 96, k 48, v 8x4, o 8x8; a token leaves 2 keys of 3 and 2 values of 2
    assert narrow.matrix_parameters(HIDDEN) == 96 + 48 + 32 + 64
    assert narrow.kv_elements_per_token == 2 * (3 + 2)


def test_latent_attention_counts_down_and_up_projections():
    latent = LatentAttention(num_heads=2, query_rank=5, kv_rank=4, nope_head_dim=3, rope_head_dim=2, value_head_dim=3)

    # down 8x(5+4+2) = 88; q up 5 x 2x(3+2) = 50; kv up 4 x 2x(3+3) = 48; o 2x3 x 8 = 48; norms 5 + 4
    assert latent.matrix_parameters(HIDDEN) == 88 + 50 + 48 + 48
    assert latent.num_parameters(HIDDEN) == 234 + 9
    assert latent.kv_elements_per_token == 4 + 2
    # with the queries projected directly: down 8x6, q 8 x 10
    assert replace(latent, query_rank=0).matrix_parameters(HIDDEN) == 48 + 80 + 48 + 48
    # 5x2x3 queries, 8x3 key, 2x3 key norm, 8x2 head weights
    sparse = replace(latent, indexer=Indexer(num_heads=2, head_dim=3, top_k=4))
    assert sparse.num_parameters(HIDDEN) == 243 + 30 + 24 + 6 + 16


def test_linear_attention_keeps_a_state_per_sequence():
    delta = GatedDeltaNet(num_key_heads=1, num_value_heads=2, key_head_dim=3, value_head_dim=4, conv_kernel=4)
    # a 3x4 state for each of 2 heads, and 3 past inputs of 2x3 + 8 channels
    assert delta.state_elements == 24 + 3 * 14
    # q, k 3 each, v, gate 8 each, 2 gates for each of 2 heads; out 8 x 8; conv 14 x 4; decay, step 2 each; norm 4
    assert delta.num_parameters(HIDDEN) == 8 * (3 + 3 + 8 + 8 + 4) + 64 + 56 + 4 + 4

    lightning = LightningAttention(num_heads=2, head_dim=3)
    assert lightning.state_elements == 2 * 9
    assert lightning.num_parameters(HIDDEN) == 5 * 8 * 6 + 6

    mamba = Mamba2(num_heads=2, head_dim=3, num_groups=1, state_size=5, conv_kernel=4)
    # inner 6, convolved 6 + 2x5; state 6x5 + 3x16
    # in 8 x (6 + 16 + 2), out 6 x 8, conv 16 x (4 + bias), 3 per head, norm 6
    assert mamba.state_elements == 30 + 48
    assert mamba.num_parameters(HIDDEN) == 192 + 48 + 80 + 6 + 6


def test_moe_counts_all_experts_but_activates_a_few():
    moe = Moe(num_experts=4, experts_per_token=2, intermediate_size=3, shared_intermediate_size=5, router_bias=True)

    # expert 3x8x3 = 72, shared 3x8x5 = 120, router 4 x (8 + 1)
    assert moe.num_parameters(HIDDEN) == 4 * 72 + 120 + 36
    assert moe.matrix_parameters(HIDDEN) == 4 * 72 + 120


def test_model_counts_layers_embedding_head_and_norms():
    # layer: 288 + 3x8x5 + 2 norms of 8 = 424; embedding and head 80 each; final norm 8
    assert model().layer_parameters(0) == 424
    assert model().num_parameters == 2 * 424 + 160 + 8
    assert model(tie_word_embeddings=True).num_parameters == 2 * 424 + 80 + 8
    assert model(norm_bias=True).num_parameters == 2 * (424 + 16) + 160 + 16
    assert model(norms_per_layer=4).num_parameters == 2 * (424 + 16) + 160 + 8


def test_mtp_modules_are_a_layer_a_projection_and_three_norms():
    # DeepSeek-V3's module, from its checkpoint: 11,610,068,224 without the shared embedding and head
    assert mtp_parameters(load_model("deepseek-v3")) == 11_610_068_224


@pytest.mark.parametrize(("name", "kv_bytes_per_token"), [
    ("llama-3.1-8b", 2 * 32 * 8 * 128 * 2),             # k and v, 32 layers, 8 heads of 128, bfloat16
    ("llama-2-7b", 2 * 32 * 32 * 128 * 2),
    ("deepseek-v3", 61 * (512 + 64) * 2),               # one latent a layer
    ("qwen3-next-80b-a3b", 2 * 12 * 2 * 256 * 2),       # 12 of 48 layers keep KV
    ("mimo-v2-flash", 9 * 4 * (192 + 128) * 2 + 39 * 8 * (192 + 128) * 2),      # sliding layers have twice the heads
])
def test_kv_cache_of_a_token(name, kv_bytes_per_token):
    assert 2 * load_model(name).kv_elements_per_token == kv_bytes_per_token


def test_layers_of_mixed_models():
    gemma, next80, nemotron, maverick = map(
        load_model, ["gemma-3-4b", "qwen3-next-80b-a3b", "nemotron-3-nano-30b-a3b", "llama-4-maverick"])

    # 34 layers, every sixth is full: 5
    assert (gemma.num_full_attention_layers, gemma.num_sliding_attention_layers) == (5, 29)
    assert (next80.num_full_attention_layers, next80.num_linear_attention_layers, next80.num_moe_layers) == (12, 36, 48)
    assert nemotron.layer_types[:6] == ("linear_attention", "feed_forward", "linear_attention", "feed_forward",
                                        "linear_attention", "full_attention")
    assert (nemotron.num_full_attention_layers, nemotron.num_linear_attention_layers) == (6, 23)
    assert nemotron.num_moe_layers == 23
    assert maverick.feed_forward_types[:4] == ("dense", "moe", "dense", "moe")
    assert load_model("deepseek-v3").feed_forward_types[:4] == ("dense", "dense", "dense", "moe")


@pytest.mark.parametrize("name", names("model"))
def test_layers_and_the_rest_add_up_to_the_model(name):
    spec = load_model(name)
    outside = spec.embedding_parameters + spec.lm_head_parameters + spec.norm_parameters * (1 + spec.embedding_norm)
    outside += spec.position_parameters + spec.around_head_parameters + spec.pooler_parameters
    outside += sum(part.num_parameters(spec.hidden_size) for part in spec.embeddings)

    assert sum(map(spec.layer_parameters, range(spec.num_layers))) + outside == spec.num_parameters
    assert active_parameters(spec) <= spec.num_parameters


@given(st.sampled_from([1, 2, 4, 8]))
def test_shards_of_heads_and_mlp_hold_the_whole_between_them(ways):
    attention = MultiHeadAttention(num_heads=16, num_kv_heads=8, head_dim=4)
    mlp = Mlp(intermediate_size=64)

    assert ways * attention.shard(ways).matrix_parameters(HIDDEN) == attention.matrix_parameters(HIDDEN)
    assert ways * attention.shard(ways).kv_elements_per_token == attention.kv_elements_per_token
    assert ways * mlp.shard(ways).matrix_parameters(HIDDEN) == mlp.matrix_parameters(HIDDEN)


def test_kv_heads_fewer_than_ranks_are_replicated_and_latents_always():
    assert ATTENTION.shard(4).num_kv_heads == 1
    latent = load_model("deepseek-v3").attention

    assert latent.shard(8).kv_elements_per_token == latent.kv_elements_per_token
    assert latent.shard(8).num_heads == 16


@pytest.mark.parametrize(("name", "ways", "message"), [
    ("llama-3.1-8b", {"tensor_parallel": 3}, "num_heads = 32 is not divisible by tensor_parallel = 3"),
    ("phi-4", {"tensor_parallel": 4}, "num_kv_heads = 10 is not divisible by tensor_parallel = 4"),
    ("llama-3.1-8b", {"pipeline_parallel": 33}, "pipeline_parallel = 33 is above the 32 layers of llama-3.1-8b"),
    ("llama-3.1-8b", {"expert_parallel": 2}, "expert_parallel = 2, but llama-3.1-8b has no experts"),
    ("mixtral-8x7b", {"expert_parallel": 16, "tensor_parallel": 16},
     "expert_parallel = 16 does not divide the 8 experts"),
    ("mixtral-8x7b", {"expert_parallel": 4, "tensor_parallel": 2},
     "expert_parallel = 4 does not divide tensor_parallel x data_parallel = 2"),
])
def test_parallelism_that_does_not_divide_is_refused(name, ways, message):
    assert any(message in fault for fault in Parallelism(**ways).faults(load_model(name)))


@pytest.mark.parametrize(("name", "ways"), [
    ("llama-3.1-70b", {"tensor_parallel": 8}), ("deepseek-v3", {"tensor_parallel": 8, "expert_parallel": 8}),
    ("qwen3-235b-a22b", {"tensor_parallel": 4, "data_parallel": 2, "expert_parallel": 8}),
    ("llama-3.1-405b", {"tensor_parallel": 8, "pipeline_parallel": 2}),
])
def test_usual_parallelism_is_accepted(name, ways):
    assert Parallelism(**ways).faults(load_model(name)) == []


def test_left_over_layers_go_to_the_last_stages_but_the_very_last():
    # vLLM splits 61 layers over 4 stages as 15, 15, 16, 15, and 62 as 15, 16, 16, 15
    four = Parallelism(pipeline_parallel=4)

    assert [len(four.layers_of_stage(model(num_layers=61), stage)) for stage in range(4)] == [15, 15, 16, 15]
    assert [len(four.layers_of_stage(model(num_layers=62), stage)) for stage in range(4)] == [15, 16, 16, 15]
    assert four.layers_of_stage(model(num_layers=61), 3) == range(46, 61)


def deployment(name: str, **more) -> Deployment:
    return Deployment(model=load_model(name), accelerator=load_accelerator("h100-sxm-80gb"), **more)


def test_weights_and_kv_cache_take_the_bytes_of_their_formats():
    plain, fp8 = deployment("llama-3.1-8b"), deployment("llama-3.1-8b", weight_dtype="fp8", kv_cache_dtype="fp8_e4m3")
    gpt, deepseek = deployment("gpt-oss-20b"), deployment("deepseek-v3")

    assert (plain.matrix_bytes, plain.expert_bytes, plain.kv_cache_bytes) == (2, 2, 2)
    assert (fp8.matrix_bytes, fp8.activation_bytes, fp8.kv_cache_bytes) == (1, 2, 1)
    # MXFP4: 4 bits and one 8-bit scale for 32 weights, experts only
    assert (gpt.expert_bytes, gpt.matrix_bytes, gpt.kv_cache_bytes) == (4.25 / 8, 2, 2)
    assert deepseek.matrix_bytes == 1 + 4 / 128**2
    assert (deepseek.matrix_dtype, deepseek.activation_dtype) == ("fp8", "bfloat16")


def test_a_stated_weight_dtype_replaces_that_of_the_checkpoint():
    dequantized = deployment("deepseek-v3", weight_dtype="bfloat16")

    assert dequantized.quantization is None
    assert (dequantized.matrix_bytes, dequantized.expert_bytes) == (2, 2)


@pytest.mark.parametrize(("name", "bits"), [
    ("fp8_block", 8 + 32 / 128**2), ("nvfp4", 4 + 8 / 16), ("awq", 4 + 20 / 128), ("gptq", 4 + 20 / 128),
    ("int4_wo", 4 + 16 / 128),
])
def test_named_formats_count_their_scales(name, bits):
    assert deployment("llama-3.1-8b", weight_dtype=name).matrix_bytes * 8 == bits


def test_mxfp4_is_a_format_of_experts_alone():
    mixture, dense = (deployment(name, weight_dtype="mxfp4") for name in ("qwen3-30b-a3b", "llama-3.1-8b"))

    assert (mixture.expert_bytes * 8, mixture.matrix_bytes * 8) == (4.25, 16)
    assert mixture.format_faults() == []
    assert dense.format_faults() == [
        "dtype: mxfp4 is a format of routed experts, llama-3.1-8b has none; for weights of 4 bits: nvfp4, awq, gptq, "
        "int4_wo"]


def test_checkpoint_in_the_named_format_stays_as_it_is():
    stored = load_model("deepseek-v3").quantization

    assert deployment("deepseek-v3", weight_dtype="fp8_block").quantization == stored
    assert deployment("llama-3.1-70b-fp8", weight_dtype="fp8_block").quantization == stored


def test_auto_kv_cache_is_that_which_the_checkpoint_declares():
    declared, plain = deployment("llama-3.1-70b-fp8"), deployment("llama-3.1-70b")

    assert (declared.kv_cache_bytes, declared.kv_cache_format) == (1, "fp8")
    assert (plain.kv_cache_bytes, plain.kv_cache_format) == (2, "bfloat16")
    assert [note.partition(":")[0] for note in declared.checkpoint_notes()] == [
        "llama-3.1-70b-fp8 declares a KV cache in fp8"]
    assert plain.checkpoint_notes() == []


def test_stated_kv_cache_dtype_wins_over_the_declared_one():
    stated = deployment("llama-3.1-70b-fp8", kv_cache_dtype="bfloat16")

    assert (stated.kv_cache_bytes, stated.checkpoint_notes()) == (2, [])
    # weights that are stored otherwise are another checkpoint, which declares nothing
    assert deployment("llama-3.1-70b-fp8", weight_dtype="bfloat16").kv_cache_bytes == 2
