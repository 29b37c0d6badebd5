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


def test_with_one_block_table_a_token_counts_in_every_layer():
    assert kv_layout(deploy(SLIDING)).bytes_per_token == 256
    # gemma-3-27b: 62 layers x 16 heads x 2 x 128 x 2 bytes
    assert kv_layout(deploy(load_model("gemma-3-27b"))).bytes_per_token == 62 * 8192


def test_linear_attention_keeps_a_state_per_sequence():
    layout = kv_layout(deploy(RECURRENT))

    # 1,408 elements of 2 bytes; one attention layer
    assert layout.state_bytes_per_sequence == 2816
    assert layout.bytes_per_token == 128


def test_state_is_split_over_ranks():
    assert kv_layout(deploy(RECURRENT, tensor_parallel=2)).state_bytes_per_sequence == 1408


def test_a_stage_counts_its_own_layers():
    # 3 layers on 2 stages; vLLM gives the odd one to the first
    deployment = deploy(replace(DENSE, num_layers=3), pipeline_parallel=2)
    stages = [deployment.parallelism.layers_of_stage(deployment.model, stage) for stage in (0, 1)]

    assert [kv_layout(deployment, layers).bytes_per_token for layers in stages] == [256, 128]
