"""What a token and a sequence occupy."""
import pytest
from msgspec.structs import replace

from simulator.domain.facts import load_model
from simulator.domain.kv_layout import kv_layout
from support.small_models import DENSE, LATENT, RECURRENT, SLIDING, deploy


@pytest.mark.parametrize(("model", "kib"), [
    ("llama-3.1-8b", 128),          # 32 layers x 8 heads x 2 x 128 x 2 bytes
    ("llama-3.1-70b", 320),         # 80 layers
    ("llama-2-7b", 512),            # 32 layers x 32 heads: no sharing
])
def test_known_models(model, kib):
    assert kv_layout(deploy(load_model(model))).bytes_per_token == kib * 1024


def test_latent_of_deepseek():
    # 61 layers x (512 + 64) x 2 bytes
    assert kv_layout(deploy(load_model("deepseek-v3"))).bytes_per_token == 70_272


def test_one_head_shared_by_all():
    # 2 layers x 1 head x 32 x 2 bytes
    model = replace(DENSE, attention=replace(DENSE.attention, num_kv_heads=1))
    assert kv_layout(deploy(model)).bytes_per_token == 128


@pytest.mark.parametrize(("ranks", "expected"), [(1, 256), (2, 128), (4, 128)])
def test_heads_are_split_over_ranks_until_each_has_one(ranks, expected):
    assert kv_layout(deploy(tensor_parallel=ranks)).bytes_per_token == expected


def test_latent_is_not_split():
    # 2 layers x 40 x 2 bytes
    assert kv_layout(deploy(LATENT, tensor_parallel=4)).bytes_per_token == 160


def test_cache_dtype_decides_the_bytes():
    assert kv_layout(deploy(kv_cache_dtype="fp8")).bytes_per_token == 128


def test_sparse_attention_keeps_keys_for_its_indexer():
    # 61 layers x (576 x 2 + 128 + 4) bytes
    assert kv_layout(deploy(load_model("deepseek-v3.2"))).bytes_per_token == 61 * 1284


def test_a_sliding_layer_counts_whole_while_the_window_covers_the_context():
    layout = kv_layout(deploy(SLIDING))

    assert (layout.full_bytes_per_token, layout.sliding_bytes_per_token) == (128, 128)
    assert layout.bytes_per_token == 256


def test_a_long_request_holds_only_the_window_in_sliding_layers():
    # 1000 tokens = 63 blocks of 16; window 100 - 1 + chunk 50 = 149 tokens = 10 blocks, and one for a ragged start
    assert kv_layout(deploy(SLIDING)).request_bytes(1000, 16, 50) == 16 * 128 * (63 + 11)


def test_a_short_request_holds_no_more_than_its_tokens():
    assert kv_layout(deploy(SLIDING)).request_bytes(32, 16, 8192) == 16 * 256 * 2


def test_layers_are_padded_to_whole_groups():
    # gemma-3-27b: 10 full and 52 sliding layers become groups of 10: 1 and 6; a layer has 16 heads x 2 x 128 x 2 bytes
    layout = kv_layout(deploy(load_model("gemma-3-27b")))

    assert layout.full_bytes_per_token == 10 * 8192
    assert layout.sliding_bytes_per_token == 60 * 8192


def test_kinds_of_nearly_one_size_share_the_larger_ones():
    # 5 full and 6 sliding layers: 6 < 5 x 1.25, so two groups of 6
    layout = kv_layout(deploy(replace(SLIDING, num_layers=11, layer_pattern="SF")))

    assert layout.full_bytes_per_token == layout.sliding_bytes_per_token == 6 * 128


def test_linear_attention_keeps_a_state_per_sequence():
    layout = kv_layout(deploy(RECURRENT))

    # 1,408 elements of 2 bytes; one attention layer
    assert layout.state_bytes_per_sequence == 2816
    assert layout.bytes_per_token == 128


def test_state_is_split_over_ranks():
    assert kv_layout(deploy(RECURRENT, tensor_parallel=2)).state_bytes_per_sequence == 1408


def test_a_stage_counts_its_own_layers():
    # layer 0 is sliding, layer 1 full
    deployment = deploy(SLIDING, pipeline_parallel=2)
    layouts = [kv_layout(deployment, deployment.parallelism.layers_of_stage(SLIDING, stage)) for stage in (0, 1)]

    assert [layout.full_bytes_per_token for layout in layouts] == [0, 128]
    assert [layout.window for layout in layouts] == [100, 0]
