"""KV blocks, and the two numbers that vLLM prints of them, as vLLM's planning code has them."""
import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from simulator.domain.drafter_memory import DrafterMemory
from simulator.domain.facts import load_accelerator, load_model
from simulator.domain.kv_layout import kv_layout
from simulator.domain.kv_size import KvSize, old_vllm_lines, sglang_lines, tensorrt_llm_lines, vllm_lines
from simulator.domain.layer_groups import GroupRules
from simulator.domain.memory_plan import DoesNotFit, EngineLimits, groups_of, plan_within
from simulator.domain.memory_reserve import GIB
from support.small_models import DENSE, NO_RESERVE, RECURRENT, SLIDING, deploy

HOPPER = load_accelerator("h100-sxm-80gb")
RULES = {"0.32": GroupRules(), "0.33": GroupRules(writes_delta_states=True)}


def sized(deployment, kv_bytes, max_model_len, in_flight=16_384, block_size=16, rules=None):
    """Plan a deployment whose accelerators have `kv_bytes` left for KV."""
    limits = EngineLimits(block_size=block_size, max_model_len=max_model_len, max_num_batched_tokens=in_flight // 2,
                          max_num_seqs=1, grouping=rules or GroupRules(), batches_in_flight=2, spared_blocks=1)
    bare = replace(deployment.accelerator, memory_bytes=2**50, usable_memory_bytes=2**50)
    spent = 2**50 - plan_within(replace(deployment, accelerator=bare), limits, groups_of(deployment, limits),
                                NO_RESERVE).kv_cache_bytes
    memory = int(kv_bytes + spent)
    return plan_within(replace(deployment, accelerator=replace(bare, memory_bytes=memory, usable_memory_bytes=memory)),
                       limits, groups_of(deployment, limits), NO_RESERVE)


@pytest.mark.parametrize(("name", "max_model_len", "blocks", "tokens", "concurrency", "options"), [
    ("llama-3.1-8b", 8192, 8857, 141_712, 17.30, {}),
    ("gemma-3-27b", 32_768, 14_172, 54_111, 1.65, {}),
    ("gemma-3-27b", 32_768, 14_172, 84_280, 2.57, {"in_flight": 8192}),
    ("gpt-oss-20b", 131_072, 47_240, 671_202, 5.12, {}),
    ("llama-4-scout", 131_072, 94_481, 967_485, 7.38, {"tensor_parallel": 4}),
    ("qwen3-next-80b-a3b", 32_768, 1389, 679_324, 20.73, {}),
    ("qwen3-next-80b-a3b", 32_768, 1312, 651_388, 19.88, {"rules": RULES["0.33"]}),
    ("qwen3.5-35b-a3b", 32_768, 858, 739_866, 22.58, {}),
    ("nemotron-3-nano-30b-a3b", 32_768, 1442, 1_687_552, 51.50, {}),
    ("deepseek-v3.2", 65_536, 6038, 386_432, 5.90, {"tensor_parallel": 8, "kv_cache_dtype": "fp8", "block_size": 64})])
def test_17_3_gib_hold_what_vllm_prints(name, max_model_len, blocks, tokens, concurrency, options):
    kept = {key: options[key] for key in ("in_flight", "block_size", "rules") if key in options}
    layout = {key: value for key, value in options.items() if key not in kept}
    result = sized(deploy(load_model(name), accelerator=HOPPER, **layout), 17.3 * GIB, max_model_len, **kept)

    assert (result.num_gpu_blocks, result.kv_size.tokens) == (blocks, tokens)
    assert f"{result.kv_size.concurrency:.2f}" == f"{concurrency:.2f}"


# ---- the start check

def test_the_null_block_is_no_one_s():
    # 10 blocks of 16 x 256 bytes, of which a request may have 9
    ten = 10 * 16 * 256
    assert sized(deploy(DENSE), ten, 9 * 16).num_gpu_blocks == 10
    with pytest.raises(DoesNotFit, match="max_model_len <= 144"):
        sized(deploy(DENSE), ten, 9 * 16 + 1)


def test_the_longest_text_is_told_to_the_token():
    # 30 blocks of 16 x 128 bytes: 14 are of the window, which holds 99 + 100 of the tokens, 15 of full attention: 240;
    # with fewer tokens than 199 the window takes fewer blocks, too
    with pytest.raises(DoesNotFit, match=r"max_model_len <= 240[ ;]"):
        sized(deploy(SLIDING), 30 * 16 * 128, 4096, in_flight=100)
    with pytest.raises(DoesNotFit, match=r"max_model_len <= 160[ ;]"):
        sized(deploy(SLIDING), 22 * 16 * 128, 4096, in_flight=100)


def test_a_window_takes_a_block_more_than_the_text_has():
    # 32 tokens: 2 blocks of full attention, 2 + 1 of the window
    assert sized(deploy(SLIDING), 2**20, 32).request_blocks == 5


def test_of_states_there_are_two_and_one_for_a_checkpoint_of_a_kernel():
    nemotron = deploy(load_model("nemotron-3-nano-30b-a3b"), accelerator=HOPPER)

    assert sized(deploy(RECURRENT), 2**24, 32).request_blocks == 2 + 1
    assert sized(nemotron, 2**34, 2096).request_blocks == 4 * 3 + 1
    assert sized(nemotron, 2**34, 2096, rules=GroupRules(enable_prefix_caching=False)).request_blocks == 4 + 1


def test_states_have_a_format_of_their_own():
    # 4 x 16 x 16 elements of recurrence in float32, 128 x 3 of convolution in the model's 16 bit
    model = replace(RECURRENT, linear_attention=replace(RECURRENT.linear_attention, state_dtype="float32"))

    assert kv_layout(deploy(model)).state_bytes_per_sequence == 1024 * 4 + 384 * 2


@pytest.mark.parametrize(("accelerator", "token_bytes"), [
    ("h100-sxm-80gb", 656 + 132), ("rtx-pro-6000-server", 656 + 132),
    ("b200-sxm-180gb", 576 + 132)])             # FlashInfer's kernels come first, and know no packed format
def test_sparse_attention_packs_fp8_with_its_scales(accelerator, token_bytes):
    model = deploy(load_model("deepseek-v3.2"), accelerator=load_accelerator(accelerator), kv_cache_dtype="fp8")

    assert kv_layout(model).bytes_per_token == 61 * token_bytes


@pytest.mark.parametrize(("accelerator", "checkpoint"), [
    ("h100-sxm-80gb", 576), ("b200-sxm-180gb", 576), ("a100-sxm-80gb", 0), (None, 0)])
def test_gated_delta_net_writes_states_inside_chunks_where_flashinfer_runs(accelerator, checkpoint):
    named = accelerator and load_accelerator(accelerator)
    deployment = deploy(load_model("qwen3-next-80b-a3b"), accelerator=named)
    limits = EngineLimits(block_size=16, max_model_len=4096, max_num_batched_tokens=64, max_num_seqs=1,
                          grouping=RULES["0.33"])

    assert groups_of(deployment, limits).layers.checkpoint == checkpoint
    assert groups_of(deployment, replace(limits, grouping=RULES["0.32"])).layers.checkpoint == 0


# ---- engines' reports

SIZE = KvSize(num_blocks=1001, block_tokens=16, num_groups=2, request_blocks=300, max_model_len=4096,
              kv_bytes=2.5 * GIB)


def test_engines_report_in_their_own_words():
    # 1001 / 300 requests of 4,096 tokens: 13,666.99 tokens; vLLM 0.10: 500 blocks of 16 tokens a group
    assert vllm_lines(SIZE) == [
        "GPU KV cache size: 13,666 tokens, Maximum concurrency for 4,096 tokens per request: 3.34x"]
    assert old_vllm_lines(SIZE) == [
        "GPU KV cache size: 8,000 tokens", "Maximum concurrency for 4,096 tokens per request: 3.34x"]
    assert sglang_lines(48)(SIZE) == ["max_total_num_tokens=16016, max_running_requests=48, context_len=4096"]
    assert tensorrt_llm_lines(SIZE) == ["Allocated 2.50 GiB for max tokens in paged KV cache (16016)."]


def test_a_model_without_kv_has_nothing_to_report():
    assert vllm_lines(SIZE._replace(request_blocks=0)) == []
    assert tensorrt_llm_lines(SIZE._replace(kv_bytes=0.0)) == []         # the blocks are given, not counted


# ---- recorded layouts

LAYOUTS = json.loads((Path(__file__).parent / "vllm_kv_sizes.json").read_text())["layouts"]


@pytest.mark.parametrize("row", LAYOUTS, ids=lambda row: row["id"])
def test_blocks_are_those_of_vllm_s_own_code(row):
    deployment = deploy(load_model(row["model"]), accelerator=load_accelerator(row["accelerator"]),
                        kv_cache_dtype=row["kv_cache_dtype"], **row["ways"])
    rules = GroupRules(enable_prefix_caching=row["prefix_caching"], is_disabled=row["hybrid_manager_off"])
    drafter = row["drafter"] and DrafterMemory(
        weights_bytes=0, num_kv_layers=row["drafter"][0], kv_bytes_per_token=row["drafter"][1])
    limits = EngineLimits(block_size=row["block_size"], max_model_len=row["max_model_len"],
                          max_num_batched_tokens=row["max_num_batched_tokens"], max_num_seqs=1, grouping=rules,
                          batches_in_flight=row["batches_in_flight"], spared_blocks=1, drafter=drafter)
    groups = groups_of(deployment, limits)
    stages = deployment.parallelism.pipeline_parallel
    block_bytes = [_block_bytes(deployment, limits, groups, stage) for stage in range(stages)]
    blocks = min(row["kv_bytes"] // int(each) for each in block_bytes)
    needed = limits.request_blocks(deployment, groups, row["max_model_len"])

    assert block_bytes == row["block_bytes"]
    assert blocks == row["blocks"]
    assert int(blocks / needed * row["max_model_len"]) == row["tokens"]
    assert f"{blocks / needed:.2f}" == row["concurrency"]
    assert [needed + 1 <= row["kv_bytes"] // int(each) for each in block_bytes] == row["starts"]
    assert limits.longest_text(deployment, groups, blocks) == row["longest"]


def _block_bytes(deployment, limits, groups, stage):
    layers = deployment.parallelism.layers_of_stage(deployment.model, stage)
    if groups is not None:
        return groups.block_bytes(layers)
    drafted = limits.drafter.kv_bytes_per_token if limits.drafter else 0
    return (kv_layout(deployment, layers).bytes_per_token + drafted) * limits.block_size
