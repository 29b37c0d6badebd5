"""Each kind of token mixer answers for its weights, its cache, its work and its keys."""
import pytest

from simulator.domain import layer_spec
from simulator.domain.layers.csa_hca import CompressedAttention
from simulator.domain.layers.embeddings import NgramEmbedding, PerLayerEmbedding
from simulator.domain.layers.encoder import EncoderAttention
from simulator.domain.layers.gated_delta_net import GatedDeltaNet
from simulator.domain.layers.indexer import Indexer
from simulator.domain.layers.kda import KimiDeltaAttention
from simulator.domain.layers.latent import LatentAttention
from simulator.domain.layers.lightning import LightningAttention
from simulator.domain.layers.mamba1 import Mamba1
from simulator.domain.layers.mamba2 import Mamba2
from simulator.domain.layers.mixers import Pass
from simulator.domain.layers.msa import BlockSparseAttention
from simulator.domain.layers.multi_head import MultiHeadAttention
from simulator.domain.layers.networks import LatentProjections, Linear, Mlp, Moe
from simulator.domain.layers.residuals import AltUp, AttentionResiduals, HyperConnections, PerLayerInput
from simulator.domain.layers.short_conv import ShortConvolution
from simulator.domain.model_spec import SlidingAttention

PLAIN = MultiHeadAttention(num_heads=8, num_kv_heads=4, head_dim=16, value_head_dim=8)
LATENT = LatentAttention(num_heads=8, query_rank=48, kv_rank=32, nope_head_dim=16, rope_head_dim=8, value_head_dim=16)
SPARSE = LatentAttention(num_heads=8, query_rank=48, kv_rank=32, nope_head_dim=16, rope_head_dim=8, value_head_dim=16,
                         indexer=Indexer(num_heads=4, head_dim=128, top_k=100))
BLOCKS = BlockSparseAttention(num_heads=8, num_kv_heads=4, head_dim=16, index_heads=4, index_head_dim=16,
                              sparse_block=8, top_k_blocks=4)
COMPRESSED = CompressedAttention(
    num_heads=8, head_dim=128, rope_head_dim=64, query_rank=32, output_rank=16, output_groups=4, window=16, ratio=4,
    indexer=Indexer(num_heads=4, head_dim=128, top_k=8))
STATES = (GatedDeltaNet(num_key_heads=4, num_value_heads=8, key_head_dim=16, value_head_dim=16, conv_kernel=4),
          LightningAttention(num_heads=8, head_dim=16),
          Mamba2(num_heads=8, head_dim=16, num_groups=4, state_size=32, conv_kernel=4),
          Mamba1(inner_size=128, state_size=16, step_rank=8, conv_kernel=4),
          KimiDeltaAttention(num_heads=8, head_dim=16, conv_kernel=4, forget_rank=16, state_dtype="bfloat16"),
          ShortConvolution(width=64, conv_kernel=3))
ENCODER = EncoderAttention(num_heads=8, num_kv_heads=8, head_dim=16)
MIXERS = (PLAIN, ENCODER, LATENT, SPARSE, BLOCKS, COMPRESSED, *STATES)
WINDOW = SlidingAttention(window=64, num_kv_heads=2)


def test_the_list_names_each_kind_as_its_files_do():
    listed = layer_spec.ATTENTION | layer_spec.LINEAR_ATTENTION
    classes = {type(mixer) for mixer in MIXERS}

    assert {mixer.kind: f"{type(mixer).__module__}:{type(mixer).__name__}" for mixer in MIXERS} == listed
    assert {*layer_spec.Attention.__args__, *layer_spec.LinearAttention.__args__} == classes


@pytest.mark.parametrize("mixer", MIXERS)
def test_products_hold_all_matrix_parameters(mixer):
    for part in (mixer, mixer.shard(4)):
        assert sum(each.n * each.k for each in part.products(64)) == part.matrix_parameters(64)


@pytest.mark.parametrize("mixer", [*MIXERS, Mlp(intermediate_size=32)])
def test_a_part_says_what_lies_between_its_products(mixer):
    assert mixer.between_kernels > 0
    assert all(small.elements > 0 for small in mixer.small_operators)
    assert 0 < mixer.inner_elements(64) <= mixer.moved_elements(64)


AROUND = (Linear(), LatentProjections(width=16, norm=True), HyperConnections(streams=4), PerLayerInput(width=8),
          AttentionResiduals(block_size=12, num_layers=93), AltUp(streams=4, laurel_rank=8))
MOE = Moe(num_experts=4, experts_per_token=2, intermediate_size=8, latent_size=16, shared_intermediate_size=24)


@pytest.mark.parametrize("part", [*AROUND, Mlp(intermediate_size=32), MOE, NgramEmbedding(rows=10, longest=3),
                                  PerLayerEmbedding(vocab_size=100, width=8, num_layers=3)])
def test_weights_of_a_part_are_its_matrices_and_small_tensors(part):
    assert part.num_parameters(64) >= part.matrix_parameters(64) >= 0


@pytest.mark.parametrize("part", AROUND)
def test_parts_around_a_layer_are_whole_on_each_rank_but_laurel(part):
    local = part.shard(4)

    assert (local == part) is not isinstance(part, AltUp)
    assert all(each.n * each.k > 0 for each in part.products(64))
    assert part.inner_elements(64) > 0


def test_a_kind_has_its_own_keys_also_where_it_extends_another():
    class Other(MultiHeadAttention, tag_field="kind", tag="other"):
        """A kind with kernels of its own."""

    class Like(MultiHeadAttention, tag_field="kind", tag="like"):
        """A kind with the kernels of another."""

        price_key = "multi_head"

    shape = {"num_heads": 8, "num_kv_heads": 4, "head_dim": 16}
    assert (Other(**shape).price_key, Other(**shape).error_key, Other(**shape).profile_key) == ("other",) * 3
    assert (Like(**shape).price_key, Like(**shape).error_key) == ("multi_head", "like")


def test_a_pass_of_plain_attention_reads_keys_and_values():
    # 2 x 8 heads x (16 + 8) FLOPs a pair; 4 KV heads of 16 + 8 elements of 2 bytes
    assert PLAIN.passes(2.0) == [Pass(0, 384, 384, 192.0)]
    assert PLAIN.passes(1.0, window=64) == [Pass(64, 384, 384, 96.0)]


def test_a_pass_of_latent_attention_expands_prompts_and_reads_latents():
    # prompts 2 x 8 x (24 + 16), decodes 2 x 8 x (32 + 8 + 32); keys and values of a latent: 2 x 32 x 8 x (16 + 16)
    assert LATENT.passes(2.0) == [Pass(0, 640, 1152, 80.0, 16384, 1152)]


def test_an_indexer_reads_all_keys_before_attention_reads_the_best():
    # 2 x 4 heads x 128 FLOPs a pair, keys of 128 bytes and a scale; prompts attend to latents as decodes do
    assert SPARSE.passes(2.0) == [Pass(0, 1024, 1024, 132), Pass(100, 1152, 1152, 80.0)]
    assert SPARSE.token_bytes(2.0) == 80 + 128 + 4      # a float32 scale a key


def test_ranks_share_plain_keys_and_repeat_latents():
    assert PLAIN.shard(4).token_bytes(2.0) == PLAIN.token_bytes(2.0) / 4
    assert LATENT.shard(4).token_bytes(2.0) == LATENT.token_bytes(2.0)
    assert {mixer.kind for mixer in MIXERS if mixer.kv_is_whole} == {"multi_head_latent", "csa_hca"}


@pytest.mark.parametrize(("mixer", "flops"), [*zip(STATES, (
    6 * 8 * 16 * 16, 4 * 8 * 16 * 16, 6 * 8 * 16 * 32, 9 * 128 * 16, 6 * 8 * 16 * 16, 2 * 64 * 3), strict=True)])
def test_a_state_has_a_fixed_size_and_no_kv(mixer, flops):
    assert mixer.token_bytes(2.0) == 0
    assert mixer.state_bytes(2.0) == 2 * mixer.state_elements > 0
    assert mixer.state_flops_per_token == flops


def test_groups_of_blocks_follow_window_and_state():
    chunks = SlidingAttention(window=64, chunked=True)

    assert [PLAIN.group_kind(), PLAIN.group_kind(WINDOW), PLAIN.group_kind(chunks)] == [
        "full_attention", "sliding_attention", "chunked_attention"]
    assert {mixer.group_kind() for mixer in STATES} == {"linear_attention"}


def test_sliding_layers_may_have_heads_of_their_own():
    assert PLAIN.windowed(WINDOW).num_kv_heads == 2
    assert LATENT.windowed(WINDOW) == LATENT
