"""How memory is spent, and what is refused."""
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from simulator.domain.facts import load_accelerator, load_model
from simulator.domain.layer_groups import GroupRules
from simulator.domain.memory_plan import DoesNotFit, plan
from simulator.domain.memory_reserve import GIB
from support.small_models import ACCELERATOR, DENSE, LATENT, MIXTURE, NO_RESERVE, RECURRENT, SLIDING, deploy


def small(memory_bytes, model=DENSE, **deployment):
    """Plan blocks of 16 tokens, 1000 tokens an iteration, 8 sequences, with nothing reserved."""
    accelerator = replace(ACCELERATOR, memory_bytes=memory_bytes)
    return plan(deploy(model, accelerator=accelerator, **deployment), 16, 512, 1000, 8, NO_RESERVE)


def real(model, accelerator, max_model_len=8192, max_num_batched_tokens=8192, max_num_seqs=256, **deployment):
    deployment = deploy(load_model(model), accelerator=load_accelerator(accelerator),
                        **{"gpu_memory_utilization": 0.9, **deployment})
    return plan(deployment, 16, max_model_len, max_num_batched_tokens, max_num_seqs)


# ---- the arithmetic

def test_what_is_left_becomes_blocks():
    result = small(10_000_000)

    # weights 205,120 x 2; activations 1000 x (2 x 64 + MLP 3 x 128) x 2; a block 16 x 256
    assert result.weights_bytes == 410_240
    assert result.activation_bytes == 1_024_000
    assert result.kv_cache_bytes == 10_000_000 - 410_240 - 1_024_000 == 8_565_760
    assert result.block_bytes == 4096
    assert result.num_gpu_blocks == 2091                                      # 8,565,760 / 4096 = 2091.25


def test_utilisation_is_a_share_of_what_the_driver_leaves():
    reserve = replace(NO_RESERVE, driver_bytes=1_000_000, alone_before_hopper_bytes=50_000)
    accelerator = replace(ACCELERATOR, memory_bytes=11_000_000)

    result = plan(deploy(accelerator=accelerator, gpu_memory_utilization=0.5), 16, 512, 1000, 8, reserve)

    assert result.budget_bytes == 5_000_000
    assert result.kv_cache_bytes == 5_000_000 - 410_240 - 1_024_000 - 50_000


@pytest.mark.parametrize(("ways", "changes", "number"), [
    ({}, {"architecture": "Hopper"}, 1), ({}, {"architecture": "Ada"}, 2),
    ({"pipeline_parallel": 2}, {}, 3),                                          # nothing is reduced
    ({"tensor_parallel": 2}, {}, 4), ({"tensor_parallel": 2, "pipeline_parallel": 2}, {}, 4),
    ({"tensor_parallel": 2}, {"scaleup_bytes_per_s": 0}, 5),
    ({"tensor_parallel": 4}, {"scaleup_link": "NVLink3 bridge, pairs"}, 5),     # a bridge reaches one other
    ({"tensor_parallel": 4, "prefill_context_parallel": 4}, {}, 6)])            # 16 in domains of 8
def test_what_lies_outside_pytorch_depends_on_ranks_and_link(ways, changes, number):
    reserve = replace(NO_RESERVE, alone_bytes=1, alone_before_hopper_bytes=2, stages_bytes=3, linked_bytes=4,
                      without_link_bytes=5, beyond_domain_bytes=6)
    deployment = deploy(accelerator=replace(ACCELERATOR, **changes), **ways)

    assert plan(deployment, 16, 512, 1000, 8, reserve).non_torch_bytes == number


def test_sampling_may_be_the_peak():
    # 8 rows x 1024 logits x 200 bytes and 1000 hidden states of 128 bytes: more than the forward pass, 1,024,000
    reserve = replace(NO_RESERVE, sampler_bytes_per_logit=200)

    assert plan(deploy(), 16, 512, 1000, 8, reserve).activation_bytes == 1_638_400 + 128_000


def test_tensor_parallelism_narrows_the_mlp():
    # 1000 x (128 + 3 x 64) x 2; the mixer is narrower: 128 + 32 + ... = (12,288 / 2) / 64 = 96
    assert small(10_000_000, tensor_parallel=2).activation_bytes == 640_000


def test_experts_need_room_for_each_copy_of_a_token():
    # widest: MLP of layer 0, 384; experts of layer 1: 2 x (max(2 x 32, 64) + 32) + 64 = 256
    assert small(10_000_000, MIXTURE).activation_bytes == 1000 * (128 + 384) * 2
    wide = replace(MIXTURE, moe=replace(MIXTURE.moe, experts_per_token=4))
    assert small(10_000_000, wide).activation_bytes == 1000 * (128 + 4 * 96 + 64) * 2


def test_recurrent_state_is_kept_for_all_sequences():
    # 8 sequences x 2,816 bytes
    assert small(10_000_000, RECURRENT).state_bytes == 22_528


def test_states_of_fewer_sequences_may_fit():
    # room for 6 states of 2,816 bytes; of 4 sequences 5,632 bytes are left, two blocks of 16 x 128
    large = small(10_000_000, RECURRENT)
    memory_bytes = large.weights_bytes + large.activation_bytes + 6 * 2816
    told = "recurrent states of all sequences take 0.0 GB, .* or at most 4 sequences at a time"

    accelerator = replace(ACCELERATOR, memory_bytes=memory_bytes)
    with pytest.raises(DoesNotFit, match=told):
        plan(deploy(RECURRENT, accelerator=accelerator), 16, 16, 1000, 8, NO_RESERVE)


def test_each_data_parallel_rank_has_blocks_of_its_own():
    one, two = small(10_000_000), small(10_000_000, data_parallel=2)

    assert two.num_gpu_blocks == one.num_gpu_blocks
    assert two.num_accelerators == 2


def test_the_fullest_stage_decides():
    # 3 layers on 2 stages: 2 and 1 layers. vLLM gives the odd layer to the first: 16 x 2 layers x 128 bytes a block.
    # Received and sent are a hidden state and a residual of 64 elements each: 1000 x 4 x 64 x 2
    result = small(10_000_000, replace(DENSE, num_layers=3), pipeline_parallel=2)

    assert result.block_bytes == 4096
    assert result.num_gpu_blocks == (10_000_000 - 1_024_000 - 512_000 - 2 * (2 * 36_864 + 4 * 64 + 65_536)) // 4096


def test_concurrency_is_counted_in_longest_requests():
    # 512 tokens are 32 blocks
    assert small(10_000_000).kv_size.concurrency == 2091 / 32


def test_the_explanation_adds_up():
    text = small(10_000_000).explain()

    assert text.splitlines()[-1] == "2091 blocks of 16 tokens, 256 bytes a token, 65.34 requests of 512 tokens"
    assert "- weights" in text
    assert "- recurrent state" not in text


# ---- against the real engine

def test_llama_8b_on_an_h100_has_the_blocks_vllm_reports():
    # vLLM pull request 10511: 71.29 GiB to use, 14.96 of weights, 1.26 of activations; a block has 2 MiB. With the
    # 0.16 GiB outside PyTorch of a single process that leaves 54.91 GiB = 28,100 blocks.
    result = real("llama-3.1-8b", "h100-sxm-80gb")

    assert result.kv_bytes_per_token == 131_072
    assert result.budget_bytes / GIB == pytest.approx(71.29, abs=0.02)
    assert result.weights_bytes / GIB == pytest.approx(14.96, abs=0.01)
    assert result.num_gpu_blocks == pytest.approx(28_100, rel=0.02)


def test_gpt_oss_on_an_a100_has_the_memory_vllm_reports():
    # vLLM 0.19, A100 80 GB at 0.65, 256 sequences: 36.56 GiB of KV cache (myoceane.fr, 2026-04-18)
    result = real("gpt-oss-20b", "a100-sxm-80gb", max_num_batched_tokens=2048, gpu_memory_utilization=0.65)

    assert result.kv_cache_bytes / GIB == pytest.approx(36.56, rel=0.05)


# ---- refusals

def test_weights_that_do_not_fit_are_refused_with_the_arithmetic():
    with pytest.raises(DoesNotFit) as refusal:
        real("llama-3.1-70b", "h100-sxm-80gb")

    # 70.55e9 weights x 2 bytes; 79.19 GiB x 0.9; 8192 x (2 x 8192 + 3 x 28672) x 2, counts of 256 x 128,256 logits,
    # 0.24 GiB: 1.68 + 0.14 + 0.26, no graphs; a block 16 x 320 KiB
    assert str(refusal.value) == (
        "llama-3.1-70b: weights need 141.1 GB, 1 x 85.5 GB at 0.9 leave 76.5 GB, activations and other reserves take "
        "2.1 GB: no room for one KV block of 5.2 MB per 16 tokens; use tensor_parallel >= 2 or dtype = int4")


def test_a_request_that_does_not_fit_is_refused_with_the_longest_that_does():
    # 512 tokens x 256 bytes = 131,072; memory for 31 blocks of 16 tokens and a half
    memory = 410_240 + 1_024_000 + 31 * 4096 + 2048

    with pytest.raises(DoesNotFit, match=r"max_model_len = 512 tokens needs .*; use max_model_len <= 496"):
        small(memory)
    small(memory + 2048)


def test_a_request_may_be_longer_than_the_pool_where_the_window_is_short():
    # Two groups of a layer each. 512 tokens: 32 blocks for the full layer; for the sliding one 100 - 1 + 10 = 109
    # tokens, 7 blocks and one. Memory for just these, beside 410,240 of weights and 10 x 512 x 2 of activations.
    request_bytes = (32 + 8) * 16 * 128
    accelerator = replace(ACCELERATOR, memory_bytes=410_240 + 10_240 + request_bytes)

    result = plan(deploy(SLIDING, accelerator=accelerator), 16, 512, 10, 8, NO_RESERVE, GroupRules())

    assert result.request_bytes == result.kv_cache_bytes == request_bytes
    assert result.num_gpu_blocks == 40
    with pytest.raises(DoesNotFit):
        plan(deploy(SLIDING, accelerator=accelerator), 16, 512, 10, 8, NO_RESERVE)  # one block table: 2 x 32 x 16 x 128


def test_states_are_blocks_of_the_pool_where_groups_share_one():
    # A state of 2,816 bytes is as large as 22 tokens of 128 bytes: blocks of 32 tokens, 4,096 bytes, for either layer
    result = plan(deploy(RECURRENT), 16, 512, 1000, 8, NO_RESERVE, GroupRules())

    assert result.state_bytes == 0
    assert result.block_bytes == 4096
    assert result.request_bytes == (512 / 32 + 2) * 4096        # a state and the one before it


def test_the_explanation_names_the_groups():
    text = plan(deploy(SLIDING), 16, 512, 1000, 8, NO_RESERVE, GroupRules()).explain()

    # 10^9 - 410,240 - 1,024,000 bytes; a request is 32 blocks in either layer
    assert text.splitlines()[-4:] == [
        "487580 blocks of 2048 bytes, 256 bytes a token, 7501.23 requests of 512 tokens",
        "a block has pages of 2048 bytes for 1 layer, those of any group:",
        "1 group of 1 layer: the last 100 tokens, blocks of 16 tokens",
        "1 group of 1 layer: full attention, blocks of 16 tokens"]


def test_what_nothing_can_help_is_refused_without_advice():
    # even split over 128 ranks the heads do not divide, and int4 leaves the activations
    with pytest.raises(DoesNotFit, match=r"per 16 tokens$"):
        small(1000)


def test_a_refusal_is_a_value_error():
    with pytest.raises(ValueError, match="no room for one KV block"):
        small(1000)


# ---- properties

@settings(max_examples=60)
@given(st.sampled_from([DENSE, MIXTURE, LATENT, SLIDING, RECURRENT]), st.integers(4_000_000, 50_000_000),
       st.integers(0, 5_000_000), st.sampled_from([1, 2]))
def test_more_memory_never_gives_fewer_blocks(model, memory, more, ranks):
    smaller, larger = (small(size, model, tensor_parallel=ranks) for size in (memory, memory + more))

    assert smaller.num_gpu_blocks <= larger.num_gpu_blocks


@settings(max_examples=60)
@given(st.sampled_from([DENSE, MIXTURE, LATENT, SLIDING, RECURRENT]), st.integers(1_500_000, 50_000_000))
def test_terms_sum_to_the_budget(model, memory):
    try:
        result = small(memory, model)
    except DoesNotFit:
        return
    spent = result.weights_bytes + result.activation_bytes + result.non_torch_bytes + result.state_bytes

    assert spent + result.kv_cache_bytes == pytest.approx(result.budget_bytes)
    assert 0 <= result.kv_cache_bytes - result.num_gpu_blocks * result.block_bytes < result.block_bytes
