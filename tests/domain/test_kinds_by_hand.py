"""Kinds of mixers and networks as published models have them: parameters to the digit, KV, states, FLOPs by hand."""
import pytest

from simulator.domain.layers.csa_hca import CompressedAttention
from simulator.domain.layers.embeddings import NgramEmbedding, PerLayerEmbedding
from simulator.domain.layers.gated_delta_net import GatedDeltaNet
from simulator.domain.layers.indexer import Indexer
from simulator.domain.layers.kda import KimiDeltaAttention
from simulator.domain.layers.latent import LatentAttention
from simulator.domain.layers.mamba1 import Mamba1
from simulator.domain.layers.mamba2 import Mamba2
from simulator.domain.layers.mixers import Pass
from simulator.domain.layers.msa import BlockSparseAttention
from simulator.domain.layers.multi_head import MultiHeadAttention
from simulator.domain.layers.networks import Linear, Mlp, Moe
from simulator.domain.layers.residuals import AltUp, AttentionResiduals, HyperConnections, PerLayerInput
from simulator.domain.layers.short_conv import ShortConvolution

K3_KDA = KimiDeltaAttention(num_heads=96, head_dim=128, conv_kernel=4, forget_rank=128)
K3_LATENT = LatentAttention(num_heads=96, query_rank=1536, kv_rank=512, nope_head_dim=128, rope_head_dim=64,
                            value_head_dim=128, output_gate="full")
K3_EXPERTS = Moe(num_experts=896, experts_per_token=16, intermediate_size=3072, shared_intermediate_size=6144,
                 latent_size=3584, latent_norm=True, router_bias=True)
LINEAR_KDA = KimiDeltaAttention(num_heads=32, head_dim=128, conv_kernel=4, forget_rank=128, gate_rank=128)
LINEAR_LATENT = LatentAttention(num_heads=32, query_rank=0, kv_rank=512, nope_head_dim=128, rope_head_dim=64,
                                value_head_dim=128)
GLM_KDA = KimiDeltaAttention(num_heads=64, head_dim=128, conv_kernel=4, forget_rank=128, gate_rank=128)
GLM_LATENT = LatentAttention(num_heads=64, query_rank=1536, kv_rank=512, nope_head_dim=256, rope_head_dim=0,
                             value_head_dim=256, indexer=Indexer(num_heads=32, head_dim=128, top_k=2048, pool=16))
JAMBA = Mamba1(inner_size=8192, state_size=16, step_rank=256, conv_kernel=4, inner_norms=True)
OLMO = GatedDeltaNet(num_key_heads=30, num_value_heads=30, key_head_dim=96, value_head_dim=192, conv_kernel=4)
SUPER = Mamba2(num_heads=128, head_dim=64, num_groups=8, state_size=128, conv_kernel=4, state_dtype="float32")
FALCON = Mamba2(num_heads=24, head_dim=64, num_groups=1, state_size=128, conv_kernel=4, output_norm=False)
M3_PLAIN = MultiHeadAttention(num_heads=64, num_kv_heads=4, head_dim=128, qk_norm="head")
M3_BLOCKS = BlockSparseAttention(num_heads=64, num_kv_heads=4, head_dim=128, qk_norm="head", index_heads=4,
                                 index_head_dim=128, top_k_blocks=16)
OWN_KV = MultiHeadAttention(num_heads=8, num_kv_heads=2, head_dim=256, qk_norm="head")
EARLIER_KV = MultiHeadAttention(num_heads=8, num_kv_heads=2, head_dim=256, qk_norm="head", reads_earlier_cache=True)
LONGCAT_LATENT = LatentAttention(num_heads=64, query_rank=1536, kv_rank=512, nope_head_dim=128, rope_head_dim=64,
                                 value_head_dim=128)
LONGCAT = Moe(num_experts=512, experts_per_token=12, intermediate_size=2048, zero_experts=256, router_bias=True)
V4_EXPERTS = Moe(num_experts=256, experts_per_token=6, intermediate_size=2048, shared_intermediate_size=2048)
GEMMA_3N = AltUp(streams=4, laurel_rank=64)
STREAMS = HyperConnections(streams=4)
K3_RESIDUALS = AttentionResiduals(block_size=12, num_layers=93)


def v4(ratio):
    indexer = Indexer(num_heads=64, head_dim=128, top_k=512) if ratio == 4 else None
    return CompressedAttention(num_heads=64, head_dim=512, rope_head_dim=64, query_rank=1024, output_rank=1024,
                               output_groups=8, window=128, ratio=ratio, indexer=indexer)


def glm_5_2(is_shared):
    return LatentAttention(num_heads=64, query_rank=2048, kv_rank=512, nope_head_dim=192, rope_head_dim=64,
                           value_head_dim=256, indexer=Indexer(num_heads=32, head_dim=128, top_k=2048,
                                                               is_shared=is_shared))


def hy_v4(is_shared):
    return LatentAttention(num_heads=32, query_rank=1536, kv_rank=512, nope_head_dim=192, rope_head_dim=64,
                           value_head_dim=256, output_gate="full", sinks=True,
                           indexer=Indexer(num_heads=16, head_dim=128, top_k=2048, is_shared=is_shared))


def step(heads):
    return MultiHeadAttention(num_heads=heads, num_kv_heads=8, head_dim=128, qk_norm="head", head_gate=True)


def moe(count, chosen, width, shared=0, **rest):
    return Moe(num_experts=count, experts_per_token=chosen, intermediate_size=width, shared_intermediate_size=shared,
               **rest)


def mlp(width):
    return Mlp(intermediate_size=width)


# Model: published or derived parameters; hidden size, rows of embedding and head, norms of hidden size, (layers, part).
# Sources: the models' config.json files, and Hugging Face's transformers for the classes' defaults.
MODELS = {
    "Kimi-K3": (2_779_484_476_000, 7168, 2 * 163_840, 2 * 93 + 1 + 2, [
        (69, K3_KDA), (24, K3_LATENT), (92, K3_EXPERTS), (1, mlp(33_792)), (93, K3_RESIDUALS)]),
    "Kimi-Linear": (49_122_675_072 + 6656, 2304, 2 * 163_840, 2 * 27 + 1, [
        (20, LINEAR_KDA), (7, LINEAR_LATENT), (26, moe(256, 8, 1024, 1024, router_bias=True)), (1, mlp(9216))]),
    "GLM-5.3-Flash": (313_326_816_766, 4096, 2 * 154_880, 2 * 45 + 1, [
        (34, GLM_KDA), (11, GLM_LATENT), (42, moe(288, 8, 2048, 2048)), (3, mlp(12_288)),
        (45, HyperConnections(streams=4, has_head=False))]),
    "DeepSeek-V4-Flash": (284_332_230_231, 4096, 2 * 129_280, 2 * 43 + 1, [
        (21, v4(4)), (20, v4(128)), (2, v4(0)), (43, V4_EXPERTS), (43, STREAMS)]),
    "MiniMax-M3": (426_174_565_632, 6144, 2 * 200_064, 2 * 60 + 1, [
        (57, M3_BLOCKS), (3, M3_PLAIN), (57, moe(128, 4, 3072, 3072)), (3, mlp(12_288))]),
    "Gemma-3n": (6_835_235_568, 2048, 262_400, 4 * 35 + 1, [
        (20, OWN_KV), (15, EARLIER_KV), (35, mlp(16_384)), (35, GEMMA_3N), (35, PerLayerInput(width=256)),
        (1, PerLayerEmbedding(vocab_size=262_144, width=256, num_layers=35))]),
    "LongCat-Flash": (560_664_980_480, 6144, 2 * 131_072, 4 * 28 + 1, [
        (56, LONGCAT_LATENT), (56, mlp(12_288)), (28, LONGCAT)]),
    "OLMo-Hybrid": (7_430_870_688, 3840, 2 * 100_352, 2 * 32 + 1, [
        (24, OLMO), (8, MultiHeadAttention(num_heads=30, num_kv_heads=30, head_dim=128, qk_norm="full")),
        (32, mlp(11_008))]),
    "Nemotron-3-Super": (120_668_687_360, 4096, 2 * 131_072, 88 + 1, [
        (40, SUPER), (8, MultiHeadAttention(num_heads=32, num_kv_heads=2, head_dim=128)),
        (40, moe(512, 22, 2688, 5376, gated=False, latent_size=1024))]),
    "Falcon-H1-0.5B": (521_411_104, 1024, 2 * 32_784, 2 * 36 + 1, [
        (36, FALCON), (36, MultiHeadAttention(num_heads=8, num_kv_heads=2, head_dim=64)), (36, mlp(2048))]),
    "Jamba-Mini": (51_570_323_328, 4096, 2 * 65_536, 2 * 32 + 1, [
        (28, JAMBA), (4, MultiHeadAttention(num_heads=32, num_kv_heads=8, head_dim=128)),
        (16, moe(16, 2, 14_336)), (16, mlp(14_336))]),
    "Step-3.7-Flash": (196_956_118_272, 4096, 2 * 128_896, 2 * 45 + 1, [
        (12, step(64)), (33, step(96)), (42, moe(288, 8, 1280, 1280)), (3, mlp(11_264))]),
    "GLM-5.2": (743_377_000_704, 6144, 2 * 154_880, 2 * 78 + 1, [
        (21, glm_5_2(False)), (57, glm_5_2(True)), (75, moe(256, 8, 2048, 2048)), (3, mlp(12_288))]),
    "HY-V4": (58_278_193_133, 2816, 2 * 120_832, 2 * 34 + 1, [
        (10, hy_v4(False)), (24, hy_v4(True)), (33, moe(256, 8, 768, 768)), (1, mlp(6912)),
        (34, HyperConnections(streams=4, mixes=False))]),
    "Ling-3-Flash": (124_414_191_072, 2560, 2 * 157_184, 2 * 42 + 1, [
        (35, KimiDeltaAttention(num_heads=32, head_dim=128, conv_kernel=4)),
        (7, LatentAttention(num_heads=32, query_rank=0, kv_rank=512, nope_head_dim=128, rope_head_dim=64,
                            value_head_dim=128, output_gate="head")),
        (40, moe(512, 8, 768, 768)), (2, mlp(6144))]),
}
# Once in a model, beyond what its layers have.
HEADS = {"DeepSeek-V4-Flash": STREAMS, "HY-V4": HyperConnections(streams=4, mixes=False), "Gemma-3n": GEMMA_3N}


@pytest.mark.parametrize("model", MODELS)
def test_parts_add_up_to_the_model(model):
    published, hidden, rows, norms, parts = MODELS[model]
    head = HEADS[model].head_parameters(hidden) if model in HEADS else 0

    layers = sum(count * part.num_parameters(hidden) for count, part in parts)
    assert layers + (rows + norms) * hidden + head == published


@pytest.mark.parametrize(("model", "element_bytes", "kv_bytes", "state_bytes"), [
    ("Kimi-K3", 2.0, 27_648, 449_372_160),              # 24 x 576 x 2; 69 x 6,512,640
    ("Kimi-Linear", 2.0, 8064, 43_417_600),
    ("GLM-5.3-Flash", 2.0, 11_354.75, 147_619_840),     # 11 x (1,024 + 132 / 16); 34 x 4,341,760
    ("DeepSeek-V4-Flash", 1.0, 3850.25, 0),             # 21 x (584 + 132) / 4 + 20 x 584 / 128
    ("MiniMax-M3", 2.0, 137_472, 0),                    # 57 x (2,048 + 256) + 3 x 2,048
    ("Gemma-3n", 2.0, 40_960, 0),                       # 20 x 2 x 2 x 256 x 2
    ("LongCat-Flash", 2.0, 64_512, 0),                  # 28 x 2 caches of 1,152
    ("OLMo-Hybrid", 2.0, 122_880, 28_200_960),
    ("Nemotron-3-Super", 2.0, 8192, 170_229_760),
    ("Falcon-H1-0.5B", 2.0, 18_432, 14_542_848),
    ("GLM-5.2", 2.0, 92_628, 0),                        # 78 x 1,152 + 21 x 132
    ("Step-3.7-Flash", 2.0, 184_320, 0)])
def test_caches_and_states_of_a_model(model, element_bytes, kv_bytes, state_bytes):
    parts = [(count, part) for count, part in MODELS[model][4] if hasattr(part, "token_bytes")]

    assert sum(count * part.token_bytes(element_bytes) for count, part in parts) == kv_bytes
    assert sum(count * part.state_bytes(2.0) for count, part in parts) == state_bytes


def test_a_drafted_token_is_one_more_in_the_convolution_and_none_in_the_recurrence():
    # 3 x 96 x 128 channels of 3 tokens in 16 bit and 96 x 128 x 128 elements in float32
    assert K3_KDA.state_bytes(2.0) == 3 * 12_288 * 3 * 2 + 96 * 128 * 128 * 4 == 6_512_640
    assert K3_KDA.state_bytes(2.0, drafts=2) == 3 * 12_288 * 5 * 2 + 96 * 128 * 128 * 4
    assert K3_LATENT.state_bytes(2.0, drafts=2) == 0


@pytest.mark.parametrize(("mixer", "flops"), [
    (K3_KDA, 6 * 96 * 128 * 128), (OLMO, 6 * 30 * 96 * 192), (SUPER, 6 * 8192 * 128), (JAMBA, 9 * 8192 * 16),
    (ShortConvolution(width=2048, conv_kernel=3), 2 * 2048 * 3),
    # the scan of a chunk: each token with the others, 2 x 128 x (8,192 + 8 groups x 128)
    (Mamba2(num_heads=128, head_dim=64, num_groups=8, state_size=128, conv_kernel=4, chunk_size=128),
     6 * 8192 * 128 + 2 * 128 * (8192 + 1024))])
def test_flops_of_a_token_on_a_state(mixer, flops):
    assert mixer.state_flops_per_token == flops


def test_short_convolutions_of_lfm2():
    # 3 h h into gates and x, h h out of them, 3 taps a channel; 2 tokens of 2,048 channels
    layer = ShortConvolution(width=2048, conv_kernel=3)

    assert layer.num_parameters(2048) == 4 * 2048 ** 2 + 3 * 2048
    assert layer.state_bytes(2.0) == 2 * 2048 * 2
    assert layer.shard(2).state_bytes(2.0) == 2 * 1024 * 2


def test_passes_of_compressed_attention():
    # 64 heads x 512: 131,072 FLOPs a pair; compressed tokens count a fourth or a 128th for each token of context
    near = Pass(128, 131_072, 131_072, 584)

    assert v4(0).passes(1.0) == [near]
    assert v4(128).passes(1.0) == [Pass(0, 1024, 1024, 584 / 128), near]
    # 2 x 64 heads x 128 FLOPs to score a compressed token; the best 512 of these stand for 2,048 tokens
    assert v4(4).passes(1.0) == [Pass(0, 4096, 4096, 33), Pass(2048, 32_768, 32_768, 146), near]


def test_a_vector_of_compressed_attention_is_packed_in_fp8_alone():
    assert v4(0).row_bytes(1.0) == 448 + 7 + 1 + 64 * 2
    assert v4(0).row_bytes(2.0) == 1024


def test_rings_of_compressed_attention():
    # key and gate of the tokens not compressed: two windows of 4 side by side, of 512 elements, and of the index keys
    assert v4(4).states == ((2048, 8, 4), (512, 8, 4))
    assert v4(128).states == ((1024, 128, 8),)
    assert v4(0).states == ()


def test_a_rank_of_compressed_attention_splits_heads_and_groups_alone():
    part, local = v4(4), v4(4).shard(8)
    whole = ("q_a", "kv", "compress_kv", "compress_gate", "index_kv", "index_gate", "index_q", "index_heads")
    of = {each.name: each.parameters for each in part.matrices(4096)}

    for each in local.matrices(4096):
        assert each.parameters == (of[each.name] if each.name in whole else of[each.name] / 8), each.name
    with pytest.raises(ValueError, match="output_groups = 8 is not divisible by tensor_parallel = 16"):
        part.shard(16)
    with pytest.raises(ValueError, match="ratio = 128: an indexer goes with ratio = 4"):
        CompressedAttention(num_heads=8, head_dim=64, rope_head_dim=32, query_rank=8, output_rank=8, output_groups=2,
                            window=8, ratio=128, indexer=Indexer(num_heads=4, head_dim=128, top_k=8))


def test_passes_of_blocks():
    # scores of 4 heads of 128 against keys of 256 bytes, then 16 blocks of 128 tokens
    pair = 2 * 64 * (128 + 128)
    assert M3_BLOCKS.passes(2.0) == [Pass(0, 1024, 1024, 256), Pass(2048, pair, pair, 2048)]
    assert M3_BLOCKS.token_bytes(1.0) == 1024 + 256         # the index key stays in 16 bit


def test_shared_and_pooled_indexers():
    own, shared = glm_5_2(False), glm_5_2(True)

    assert own.token_bytes(2.0) - shared.token_bytes(2.0) == 132
    assert shared.passes(2.0) == own.passes(2.0)[1:]        # no scores: the choice of an earlier layer
    assert own.num_parameters(6144) - shared.num_parameters(6144) == (
        2048 * 32 * 128 + 6144 * 128 + 2 * 128 + 6144 * 32)
    assert GLM_LATENT.passes(2.0)[0] == Pass(0, 2 * 32 * 128 / 16, 2 * 32 * 128 / 16, 132 / 16)
    assert Indexer(num_heads=32, head_dim=128, top_k=2048, key_dtype="mxfp4").key_bytes == 68
    assert (GLM_LATENT.indexer.tail_bytes, own.indexer.tail_bytes) == (16 * 2 * 128 * 2, 0)


def test_a_layer_without_a_cache_of_its_own_reads_as_much():
    assert EARLIER_KV.passes(2.0, 512) == OWN_KV.passes(2.0, 512)
    assert OWN_KV.num_parameters(2048) - EARLIER_KV.num_parameters(2048) == 2048 * 2 * 2 * 256 + 256
    assert [each.parameters for each in EARLIER_KV.matrices(2048) if each.name in ("k", "v")] == [0, 0]


def test_gates_of_heads_and_of_elements():
    gate = {each.name: each.parameters for each in step(96).matrices(4096)}["gate"]

    assert gate == 4096 * 96
    assert {each.name: each.parameters for each in K3_LATENT.matrices(7168)}["gate"] == 7168 * 96 * 128


@pytest.mark.parametrize(("groups", "ranks", "local"), [(8, 4, 2), (8, 8, 1), (1, 4, 1)])
def test_groups_of_mamba2_on_ranks(groups, ranks, local):
    layer = Mamba2(num_heads=16, head_dim=4, num_groups=groups, state_size=8, conv_kernel=4)

    assert (layer.shard(ranks).num_groups, layer.shard(ranks).num_heads) == (local, 16 // ranks)


def test_several_groups_of_mamba2_are_not_repeated():
    layer = Mamba2(num_heads=16, head_dim=4, num_groups=2, state_size=8, conv_kernel=4)

    with pytest.raises(ValueError, match="num_groups = 2 is not divisible by tensor_parallel = 4"):
        layer.shard(4)


def test_latent_experts_live_in_their_own_width():
    experts = moe(512, 22, 2688, 5376, gated=False, latent_size=1024)

    assert experts.expert_matrix_parameters(4096) == 2 * 1024 * 2688
    assert experts.latent.num_parameters(4096) == 2 * 4096 * 1024
    assert experts.latent.shard(8) == experts.latent        # whole on each rank
    assert K3_EXPERTS.latent.num_parameters(7168) == 2 * 7168 * 3584 + 3584
    assert moe(8, 2, 64).latent is None


def test_experts_that_do_nothing_take_a_share_of_the_choices():
    assert LONGCAT.computed_per_token == 12 * 512 / 768
    assert LONGCAT.router_parameters(6144) == 768 * (6144 + 1)
    assert V4_EXPERTS.computed_per_token == 6


@pytest.mark.parametrize(("rest", "message"), [
    ({"experts_per_token": 9}, "experts_per_token = 9 is above num_experts = 8"),
    ({"latent_norm": True}, "latent_norm = true: expected latent_size"),
    ({"hash_vocabulary": 100, "router_bias": True}, "a table of experts leaves no router_bias")])
def test_experts_that_contradict_themselves_are_refused(rest, message):
    with pytest.raises(ValueError, match=message):
        Moe(**{"num_experts": 8, "experts_per_token": 2, "intermediate_size": 16} | rest)


def test_hashed_experts_have_a_table():
    assert moe(256, 6, 2048, hash_vocabulary=129_280).table_bytes == 129_280 * 6 * 8


def test_a_site_of_hyper_connections():
    # 24 rows of 4 x 4,096; before a part 4 read and 1 written, after it 1 + 4 read and 4 written: 14 h, 28 bytes an h
    site = HyperConnections(streams=4, sites=1)

    assert sum(2 * each.n * each.k for each in site.products(4096)) == 2 * 24 * 4 * 4096
    assert site.moved_elements(4096) == 14 * 4096
    assert STREAMS.moved_elements(4096) == 28 * 4096        # two sites
    assert site.inner_elements(4096) == 4 * 4096


def test_residuals_that_attend_read_a_sum_of_each_block_of_layers():
    # 93 layers in blocks of 12: 12 x (1 + ... + 7) + 9 x 8 sums
    assert K3_RESIDUALS.mean_blocks == (12 * 28 + 9 * 8) / 93
    assert K3_RESIDUALS.head_parameters(7168) == 2 * 7168


def test_rows_of_embeddings():
    layers = PerLayerEmbedding(vocab_size=262_144, width=256, num_layers=35)
    runs = NgramEmbedding(rows=1000, longest=3, splits=2)

    assert (layers.row_elements, layers.table_parameters) == (8960, 262_144 * 8960)
    # runs of 2 and 3 tokens, 2 tables each of a fourth of the width: 1,001, 1,003, 1,005 and 1,007 rows
    assert runs.num_parameters(64) == (1001 + 1003 + 1005 + 1007) * 16 + 4 * 16 * 64
    with pytest.raises(ValueError, match="longest = 1: expected 2 or more"):
        NgramEmbedding(rows=10, longest=1)


def test_a_projection_in_place_of_a_network():
    assert Linear().num_parameters(64) == 64 * 64
    assert [(each.n, each.k) for each in Linear().products(64)] == [(64, 64)]
