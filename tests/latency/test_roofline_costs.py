"""Every coefficient of the roofline, worked out by hand on models with round numbers (tests/support/small_models.py).

With the shares below: memory 500 bytes/ns, products 5e5 FLOP/ns in 16 bit and 1e6 in fp8, links 50 bytes/ns.
"""
import numpy as np
import pytest
from msgspec.structs import replace

from simulator.domain.facts import load_model
from simulator.domain.hardware_spec import DenseFlops
from simulator.latency.roofline.model import Roofline
from support.small_models import ACCELERATOR, DENSE, LATENT, MIXTURE, NODE, RECURRENT, SLIDING, deploy

SHARES = {
    "mfu_prefill": 0.5, "mfu_decode": 0.5, "mfu_attention": 0.5, "bandwidth_efficiency": 0.5, "link_efficiency": 0.5,
    "kernel_latency_us": 0.001, "attention_latency_us": 0.01, "collective_latency_us": 0.1}


def costs(model=DENSE, **deployment):
    return Roofline(Roofline.Parameters(**SHARES), deploy(model, **deployment)).costs


def test_dense_products_cost_two_flops_a_weight_or_their_bytes():
    found = costs()

    # 2 layers x (12,288 + 24,576) = 73,728 weights: 147,456 FLOPs / 5e5
    assert found.dense_prefill_ns == found.dense_decode_ns == pytest.approx(0.294912)
    # 2 bytes each, and 5 norms of 64: (147,456 + 640) / 500
    assert found.dense_weights_ns == pytest.approx(296.192)


def test_an_mlp_without_gate_has_two_matrices():
    found = costs(replace(DENSE, mlp=replace(DENSE.mlp, gated=False)))

    # 2 x (12,288 + 2 x 64 x 128) = 57,344 weights
    assert found.dense_decode_ns == pytest.approx(2 * 57_344 / 5e5)


def test_head_dim_is_not_hidden_size_over_heads():
    found = costs(replace(DENSE, attention=replace(DENSE.attention, head_dim=32)))

    # attention doubles: 2 x (24,576 + 24,576) weights; keys and values too: 2 layers x 2 heads x 64 x 2 bytes
    assert found.dense_decode_ns == pytest.approx(2 * 98_304 / 5e5)
    assert found.full_attention.context_kv_ns == pytest.approx(512 / 500)


def test_head_costs_a_row_of_the_vocabulary_or_its_bytes():
    found = costs()

    # 1024 x 64 = 65,536 weights
    assert found.head_sample_ns == pytest.approx(131_072 / 5e5)
    assert found.head_weights_ns == pytest.approx(131_072 / 500)


def test_sampler_moves_ten_bytes_a_logit():
    assert costs().sampler_sample_ns == pytest.approx(10_240 / 500)


def test_attention_costs_two_products_a_pair_or_the_kv_cache():
    found = costs().full_attention

    # 2 layers x 2 FLOPs x 4 heads x (16 + 16)
    assert found.pair_ns == found.context_flops_ns == pytest.approx(512 / 5e5)
    # 2 layers x 2 KV heads x (16 + 16) x 2 bytes
    assert found.prefill_kv_ns == found.context_kv_ns == pytest.approx(256 / 500)
    assert found.expand_ns == 0.0


def test_kv_cache_in_fp8_halves_its_traffic():
    assert costs(kv_cache_dtype="fp8").full_attention.context_kv_ns == pytest.approx(128 / 500)


def test_activations_are_what_moves_between_products():
    # a layer: 2 norms x 4 x 64 = 512; mixer 3 x (64 + 32 + 32 + 64) = 576; MLP 3 x 128 = 384; 2 layers: 2,944 elements,
    # 2 bytes each, and 256 bytes of KV cache written
    assert costs().activation_token_ns == pytest.approx((5_888 + 256) / 500)


def test_kernels_start_one_after_another():
    # 5 an iteration, 4 a mixer and 4 an MLP in 2 layers = 21 of 1 ns; 2 attention kernels of 10 ns
    assert costs().constant_ns == pytest.approx(41.0)


# ---- parallelism

def test_tensor_parallelism_splits_weights_and_heads():
    found = costs(tensor_parallel=2)

    assert found.dense_decode_ns == pytest.approx(0.294912 / 2)
    assert found.dense_weights_ns == pytest.approx((73_728 + 640) / 500)      # norms are whole on each rank
    assert found.head_weights_ns == pytest.approx(131_072 / 2 / 500)
    assert found.full_attention.pair_ns == pytest.approx(256 / 5e5)
    assert found.full_attention.context_kv_ns == pytest.approx(128 / 500)


def test_kv_heads_fewer_than_ranks_are_replicated():
    # 4 ranks, 2 KV heads: one head on each rank, 2 layers x 32 x 2 bytes, as much as with 2 ranks
    assert costs(tensor_parallel=4).full_attention.context_kv_ns == pytest.approx(128 / 500)


def test_two_all_reduces_a_layer():
    found = costs(tensor_parallel=2)

    # 4 of them; ring volume 2 x 1/2 x 64 x 2 bytes = 128 bytes a token, 50 bytes/ns
    assert found.collective_token_ns == pytest.approx(4 * 128 / 50)
    assert found.constant_ns == pytest.approx(41 + 4 * 100)
    # logits of the other rank: 1024 x 2 bytes x 1/2
    assert found.sampler_sample_ns == pytest.approx(10_240 / 500 + 1_024 / 50)


@pytest.mark.parametrize(("ranks", "bytes_per_ns"), [(4, 100), (8, 10), (16, 1)])
def test_a_wider_group_needs_a_slower_link(ranks, bytes_per_ns):
    # domains of 4, nodes of 8: NVLink, PCIe, network
    model = replace(DENSE, attention=replace(DENSE.attention, num_heads=16))
    found = costs(model, node=NODE, tensor_parallel=ranks)

    volume = 2 * (ranks - 1) / ranks * 128
    assert found.collective_token_ns == pytest.approx(4 * volume / (bytes_per_ns * 0.5))


def test_without_any_link_the_deployment_is_refused():
    alone = replace(ACCELERATOR, scaleup_bytes_per_s=0.0, pcie_bytes_per_s=0.0)

    with pytest.raises(ValueError, match="no link is known between 2 accelerators round"):
        costs(accelerator=alone, tensor_parallel=2)


def test_data_parallel_ranks_share_the_batch_and_repeat_the_weights():
    one, two = costs(), costs(data_parallel=2)

    assert two.dense_decode_ns == pytest.approx(one.dense_decode_ns / 2)
    assert two.dense_weights_ns == pytest.approx(one.dense_weights_ns)
    assert two.full_attention.context_kv_ns == pytest.approx(one.full_attention.context_kv_ns / 2)
    assert two.collective_token_ns == 0.0


def test_pipeline_stages_hand_over_and_add_up():
    one, two = costs(), costs(pipeline_parallel=2)

    assert two.dense_weights_ns == pytest.approx(one.dense_weights_ns)
    assert two.collective_token_ns == pytest.approx(128 / 50)
    assert two.constant_ns == pytest.approx(one.constant_ns + 100)


# ---- mixture of experts

def test_chosen_experts_compute_and_distinct_ones_are_read():
    found = costs(MIXTURE)

    # one layer: 2 chosen x 6,144 weights x 2 FLOPs
    assert found.expert_prefill_ns == found.expert_decode_ns == pytest.approx(24_576 / 5e5)
    # 8 x (1 - (3/4)^n) experts of 12,288 bytes: 0, 2, 3.5, 4.625, ..., 8
    np.testing.assert_allclose(found.expert_weights_ns[:4], np.array([0, 2, 3.5, 4.625]) * 12_288 / 500)
    assert found.expert_weights_ns[-1] == pytest.approx(8 * 12_288 / 500)


def test_the_table_of_experts_ends_where_all_are_needed():
    table = costs(MIXTURE).expert_weights_ns

    assert np.all(np.diff(table) > 0)
    assert table[-2] == pytest.approx(table[-1], rel=1e-6)


def test_shared_experts_dense_layers_and_routers_are_dense():
    found = costs(MIXTURE)

    # attention 2 x 12,288, dense MLP 24,576, shared expert 6,144; router 8 x 64 and norms 320, not quantised
    assert found.dense_decode_ns == pytest.approx(2 * 55_296 / 5e5)
    assert found.dense_weights_ns == pytest.approx((2 * 55_296 + 2 * 832) / 500)


def test_a_model_without_experts_reads_none():
    assert costs().expert_weights_ns.tolist() == [0.0]


def test_all_experts_chosen_are_all_read():
    model = replace(MIXTURE, moe=replace(MIXTURE.moe, experts_per_token=8))

    assert costs(model).expert_weights_ns.tolist() == pytest.approx([0.0, 8 * 12_288 / 500])


@pytest.mark.parametrize("expert_parallel", [1, 4])
def test_experts_are_spread_over_all_ranks_of_a_stage(expert_parallel):
    # by width or by expert: a quarter each
    found = costs(MIXTURE, tensor_parallel=2, data_parallel=2, expert_parallel=expert_parallel)

    assert found.expert_decode_ns == pytest.approx(24_576 / 4 / 5e5)
    assert found.expert_weights_ns[1] == pytest.approx(2 * 12_288 / 4 / 500)


def test_experts_over_data_parallel_ranks_exchange_tokens():
    # dispatch and combine of one layer: a rank holds half the tokens, 2 experts each, half of them on the other rank:
    # 0.5 x 2 x 1/2 x 128 bytes a token of the batch, twice
    found = costs(MIXTURE, data_parallel=2, expert_parallel=2)

    assert found.collective_token_ns == pytest.approx(2 * 64 / 50)
    # kernels: 5 + 2 mixers x 4 + dense 4 + experts 8, 2 attention kernels; 2 collectives
    assert found.constant_ns == pytest.approx(25 + 20 + 200)


def test_experts_split_by_width_see_all_tokens():
    # gather and scatter of one layer: each rank receives the half of the tokens it lacks, 0.5 x 128 bytes
    found = costs(MIXTURE, data_parallel=2, expert_parallel=1)

    assert found.collective_token_ns == pytest.approx(2 * 64 / 50)


# ---- attention of other kinds

def test_latent_attention_expands_for_prompts_and_absorbs_for_decodes():
    found = costs(LATENT).full_attention

    # a layer: 2 x 4 x (24 + 16) = 320 FLOPs a pair; absorbed 2 x 4 x (32 + 8 + 32) = 576
    assert found.pair_ns == pytest.approx(2 * 320 / 5e5)
    assert found.context_flops_ns == pytest.approx(2 * 576 / 5e5)
    # keys and values of a context token from its latent: 2 x 32 x 4 x (16 + 16) = 8,192 FLOPs
    assert found.expand_ns == pytest.approx(2 * 8_192 / 5e5)
    # 32 + 8 elements of 2 bytes
    assert found.context_kv_ns == pytest.approx(2 * 80 / 500)


def test_latent_is_whole_on_every_rank():
    found = costs(LATENT, tensor_parallel=2).full_attention

    assert found.context_kv_ns == pytest.approx(2 * 80 / 500)
    assert found.context_flops_ns == pytest.approx(2 * 288 / 5e5)


def test_latent_projections_are_low_rank():
    # 64 x (48 + 32 + 8) + 48 x 4 x 24 + 32 x 4 x 32 + 64 x 64 = 18,432 weights a layer, and the MLP
    assert costs(LATENT).dense_decode_ns == pytest.approx(2 * 2 * (18_432 + 24_576) / 5e5)


def test_sliding_layers_are_priced_apart():
    found = costs(SLIDING)

    assert found.full_attention.context_kv_ns == found.window_attention.context_kv_ns == pytest.approx(128 / 500)
    assert found.window_attention.window == 100


def test_sparse_attention_scores_all_and_reads_the_best():
    found = costs(load_model("deepseek-v3.2"))

    # 61 layers, indexer of 64 heads x 128, keys of 128 bytes and a scale; attention sees 2048 tokens of 576
    assert found.full_attention.context_kv_ns == pytest.approx(61 * 132 / 500)
    assert found.full_attention.context_flops_ns == pytest.approx(61 * 2 * 64 * 128 / 5e5)
    assert found.window_attention.window == 2048
    assert found.window_attention.context_kv_ns == pytest.approx(61 * 576 * 2 / 500)


def test_recurrent_state_is_read_and_written_once_a_sequence():
    found = costs(RECURRENT)

    # 1,408 elements x 2 bytes x 2; 6 FLOPs a prompt token and element of the recurrence, 4 x 16 x 16
    assert found.state_sequence_ns == pytest.approx(5_632 / 500)
    assert found.state_token_ns == pytest.approx(6 * 1_024 / 5e5)
    # one attention layer is left
    assert found.full_attention.context_kv_ns == pytest.approx(128 / 500)


# ---- quantised weights

def test_fp8_weights_halve_bytes_and_double_the_rate():
    found = costs(weight_dtype="fp8")

    assert found.dense_weights_ns == pytest.approx((73_728 + 640) / 500)
    assert found.dense_decode_ns == pytest.approx(147_456 / 1e6)
    assert found.head_weights_ns == pytest.approx(131_072 / 500)              # head and embedding keep 16 bits


def test_fp8_weights_without_fp8_units_are_multiplied_in_16_bit():
    old = replace(ACCELERATOR, dense_flops_per_s=DenseFlops(bfloat16=1e15))
    found = costs(weight_dtype="fp8", accelerator=old)

    assert found.dense_weights_ns == pytest.approx((73_728 + 640) / 500)
    assert found.dense_decode_ns == pytest.approx(147_456 / 5e5)


def test_int4_weights_are_multiplied_in_16_bit():
    found = costs(weight_dtype="int4")

    assert found.dense_weights_ns == pytest.approx((73_728 / 2 + 640) / 500)
    assert found.dense_decode_ns == pytest.approx(147_456 / 5e5)


def test_scales_count_as_bytes_and_the_scope_decides_which_weights_shrink():
    # gpt-oss: MXFP4 experts of 4 + 8/32 = 4.25 bits, everything else in 16 bit; 24 layers of 32 x 3 x 2880 x 2880
    found = costs(load_model("gpt-oss-20b"))
    experts = 24 * 32 * 3 * 2880 * 2880

    assert found.expert_weights_ns[-1] == pytest.approx(experts * 4.25 / 8 / 500)
    assert found.dense_weights_ns > 24 * (2 * 2880 * 64 * 64 + 2 * 2880 * 8 * 64) * 2 / 500
