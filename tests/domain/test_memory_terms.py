"""Terms of a memory plan: paddings of kernels, activations, exchange of tokens, shares of engines."""
import pytest
from msgspec.structs import replace

from simulator.domain.activations import activation_bytes, exchange_bytes
from simulator.domain.experts import Experts
from simulator.domain.facts import load_accelerator, load_model, names
from simulator.domain.kernel_padding import expert_padding
from simulator.domain.kv_share import KvShare, vllm_share
from simulator.domain.memory_plan import plan
from simulator.domain.memory_reserve import GIB, RESERVES, reserve_of
from simulator.domain.rank_weights import rank_weights
from support.small_models import MIXTURE, NO_RESERVE, deploy


def gpt_oss(accelerator, size="120b", **ways):
    return deploy(load_model(f"gpt-oss-{size}"), accelerator=load_accelerator(accelerator), **ways)


# ---- weights

@pytest.mark.parametrize(("size", "accelerator", "is_old", "gib", "kernel"), [
    ("120b", "h100-sxm-80gb", True, 65.97, "Marlin"),       # vLLM issue 23278
    ("120b", "h100-sxm-80gb", False, 64.38, "Triton"),      # vLLM issue 33155
    ("20b", "a100-sxm-80gb", False, 13.72, "Marlin")])      # log of vLLM 0.19
def test_experts_in_mxfp4_are_as_large_as_their_kernel_has_them(size, accelerator, is_old, gib, kernel):
    deployment = gpt_oss(accelerator, size)
    ratio, found = expert_padding(deployment, is_old)
    counts = rank_weights(deployment)

    assert found == kernel
    assert (counts.num_bytes + counts.expert_num_bytes * (ratio - 1)) / GIB == pytest.approx(gib, rel=0.004)


@pytest.mark.parametrize(("accelerator", "ways", "ratio"), [
    ("b200-sxm-180gb", {}, 3072 * 2944 / 2880**2), ("l40s", {}, 3072 * 2944 / 2880**2),
    ("rtx-5090", {}, 3072 * 2944 / 2880**2),                # Blackwell without NVLink has Marlin's
    ("mi300x", {}, 2944 * 2944 / 2880**2), ("tpu-v5e", {}, 1),
    ("l40s", {"tensor_parallel": 8}, 3072 * 384 / (2880 * 360)),                # each rank's part is rounded
    ("l40s", {"tensor_parallel": 8, "expert_parallel": 8}, 3072 * 2944 / 2880**2)])
def test_the_kernel_goes_by_generation_and_rounds_the_share_of_a_rank(accelerator, ways, ratio):
    assert expert_padding(gpt_oss(accelerator, **ways))[0] == pytest.approx(ratio)


def test_other_formats_are_not_padded():
    assert expert_padding(deploy(load_model("qwen3-235b-a22b-nvfp4"), accelerator=load_accelerator("l40s"))) == (1, "")
    assert expert_padding(deploy(MIXTURE)) == (1, "")


# ---- activations

@pytest.mark.parametrize(("model", "ways", "gib"), [        # logs of vLLM 0.19, H100, 8,192 tokens, 1,024 sequences
    ("llama-3.1-8b", {"tensor_parallel": 2}, 1.89), ("qwen2.5-7b", {}, 2.21), ("gpt-oss-20b", {}, 2.87),
    ("mixtral-8x7b", {"tensor_parallel": 2}, 1.21), ("deepseek-v2-lite", {}, 1.93), ("qwen3-30b-a3b", {}, 2.68)])
def test_activations_are_those_of_the_profile_run(model, ways, gib):
    deployment = deploy(load_model(model), accelerator=load_accelerator("h100-sxm-80gb"), **ways)
    layers = range(deployment.model.num_layers)

    assert sum(activation_bytes(deployment, layers, 8192, 1024, RESERVES["0.19"])) / GIB == pytest.approx(gib, abs=0.03)


def test_a_token_of_a_batch_takes_90_kb_of_qwen3_8b():
    # vLLM issue 48322: (2 x 4096 + 3 x 12288) x 2 bytes = 90,112; between 2,048 and 8,192 tokens 9.3 % of the KV were
    # lost.
    deployment = deploy(load_model("qwen3-8b"), accelerator=load_accelerator("rtx-4090"), gpu_memory_utilization=0.92)
    few, many = (plan(deployment, 16, 4096, tokens, 256) for tokens in (2048, 8192))
    layers, reserve = range(deployment.model.num_layers), reserve_of()

    assert few.num_gpu_blocks / many.num_gpu_blocks == pytest.approx(1 / (1 - 0.093), abs=0.01)
    assert (sum(activation_bytes(deployment, layers, 8193, 1, reserve))
            - sum(activation_bytes(deployment, layers, 8192, 1, reserve))) == 90_112


def test_a_batch_has_no_more_rows_than_tokens():
    deployment = deploy()
    few, many = (activation_bytes(deployment, range(2), 10, rows, RESERVES["0.19"]) for rows in (10, 1000))

    assert few == many


# ---- exchange of tokens

def exchanging(backend, **ways):
    deployment = deploy(load_model("deepseek-v3"), accelerator=load_accelerator("h200-sxm-141gb"), **ways)
    return replace(deployment, experts=Experts(all2all_backend=backend))


def test_deepep_takes_buffers():
    ways = {"data_parallel": 8, "expert_parallel": 8}

    assert exchange_bytes(exchanging(None, **ways)) == 0
    assert exchange_bytes(exchanging("deepep_high_throughput", **ways)) == GIB
    # 4 x 256 experts x 256 tokens x (7168 x 2 + 56 scales x 4) bytes, and what goes over NVLink
    assert exchange_bytes(exchanging("deepep_low_latency", **ways)) == 4 * 256 * 256 * (14_336 + 224) + GIB
    assert exchange_bytes(exchanging(
        "deepep_high_throughput", data_parallel=16, expert_parallel=16)) == 2 * GIB     # over the network, too
    assert exchange_bytes(exchanging("deepep_low_latency", tensor_parallel=8)) == 0     # no rank has tokens of its own


def test_the_buffers_are_those_that_another_server_printed():
    # vLLM issue 57894: 31.94 GiB for 1,840 tokens, 448 experts and 5,120 elements
    buffers = 4 * 448 * 1840 * 5120 * (2 + 4 / 128)

    assert buffers / GIB == pytest.approx(31.94, abs=0.01)


def test_what_is_gathered_of_all_ranks_takes_gigabytes():
    # 8 x 8,192 tokens of 7,168 elements, there and back: 1.9 GB; two buffers of 16,384 x 8 chosen experts: 3.8 GB
    deployment = exchanging(None, data_parallel=8, expert_parallel=8)
    alone = exchanging(None, tensor_parallel=8, expert_parallel=8)
    reserve = replace(RESERVES["0.32"], sampler_bytes_per_logit=0.0)
    gathered, own = (sum(activation_bytes(each, range(61), 8192, 1024, reserve)) for each in (deployment, alone))

    assert 5.5e9 < gathered < 6.5e9 and own < gathered / 2


# ---- shares

def test_each_engine_counts_by_its_own_rule():
    # 100 bytes, 40 of weights and states, 20 of activations and outside PyTorch
    assert vllm_share(0.9).kv_bytes(100, 40, 20) == pytest.approx(30)
    assert KvShare("free_gpu_memory_fraction", "TensorRT-LLM", 0.9, "free").kv_bytes(100, 40, 20) == pytest.approx(36)
    assert KvShare("mem_fraction_static", "SGLang", 0.8, "static").kv_bytes(100, 40, 20) == pytest.approx(40)


# ---- memory of accelerators

def test_memory_has_one_meaning_in_all_files():
    for name in names("hardware"):
        accelerator = load_accelerator(name)
        if accelerator.vendor == "NVIDIA":      # nvidia-smi counts MiB
            assert accelerator.memory_bytes % 2**20 == 0, name
        if used := accelerator.usable_memory_bytes:     # the driver keeps 0.3 to 1 GiB
            assert 0.3 * GIB < accelerator.memory_bytes - used < GIB, name


@pytest.mark.parametrize(("name", "mib"), [     # what nvidia-smi prints
    ("rtx-4090", 24_564), ("h100-sxm-80gb", 81_559), ("h200-sxm-141gb", 143_771), ("a100-sxm-80gb", 81_920),
    ("a100-sxm-40gb", 40_960), ("l40s", 46_068), ("l4", 23_034), ("a10", 23_028), ("b200-sxm-180gb", 183_359),
    ("gb200", 189_471), ("rtx-pro-6000-server", 97_887)])
def test_memory_is_what_the_tool_of_the_driver_prints(name, mib):
    assert load_accelerator(name).memory_bytes == mib * 2**20


def test_the_share_of_the_driver_goes_off_once():
    accelerator = load_accelerator("rtx-4090")
    deployment = deploy(load_model("qwen3-0.6b"), accelerator=accelerator)

    assert plan(deployment, 16, 4096, 2048, 256, NO_RESERVE).total_bytes == accelerator.usable_memory_bytes
    assert accelerator.usable_memory_bytes / GIB == pytest.approx(23.52, abs=0.01)
