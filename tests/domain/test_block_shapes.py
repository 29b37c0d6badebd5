"""Layouts that no engine builds: experts that cannot be cut, blocks of weights that cannot be."""
import pytest

from simulator.domain.block_shapes import block_edge, block_faults
from simulator.domain.facts import load_model
from simulator.domain.parallelism import Parallelism
from support.small_models import DENSE, MIXTURE, deploy


def faults(model, **ways):
    return Parallelism(**ways).faults(load_model(model))


@pytest.mark.parametrize(("ways", "product"), [
    ({"tensor_parallel": 2, "data_parallel": 3}, "tensor_parallel x data_parallel = 6"),
    ({"data_parallel": 12}, "data_parallel = 12"), ({"prefill_context_parallel": 3}, "prefill_context_parallel = 3")])
def test_experts_that_ranks_cannot_share_are_refused_with_what_goes(ways, product):
    assert any(f"each expert is cut into {product} parts, which does not divide its intermediate_size = 2048" in fault
               for fault in faults("deepseek-v3", **ways))


def test_the_message_names_the_next_sizes_and_expert_parallelism():
    assert faults("deepseek-v3", tensor_parallel=2, data_parallel=3) == [
        "deepseek-v3: each expert is cut into tensor_parallel x data_parallel = 6 parts, which does not divide its "
        "intermediate_size = 2048; the nearest that go are 4 and 8"]    # nor can 256 experts be dealt out to 6
    assert faults("gpt-oss-20b", data_parallel=128)[0].endswith("the nearest that go are 120 and 144")
    assert faults("gpt-oss-120b", data_parallel=128)[0].endswith(
        "the nearest that go are 120 and 144, or expert_parallel = 128, which deals out whole experts")


def test_whole_experts_are_dealt_out():
    assert not faults("deepseek-v3", tensor_parallel=2, data_parallel=4, expert_parallel=8)
    assert not faults("gpt-oss-120b", data_parallel=128, expert_parallel=128)


def test_experts_shared_by_some_ranks_are_cut_among_these():
    # 16 ranks, 4 to an expert: 2880 / 4
    assert not faults("gpt-oss-120b", tensor_parallel=8, data_parallel=2, expert_parallel=4)
    assert faults("gpt-oss-120b", data_parallel=256, expert_parallel=2)[0].startswith(
        "gpt-oss-120b: each expert is cut into data_parallel / expert_parallel = 128 parts")


@pytest.mark.parametrize(("model", "ways", "words"), [
    ("deepseek-v3", {"tensor_parallel": 32}, "intermediate_size, 18432 over 32 ranks = 576, is no multiple of 128"),
    ("qwen3-235b-a22b-fp8", {"tensor_parallel": 8},
     "intermediate_size of an expert, 1536 over 8 ranks = 192, is no multiple of 128"),
    ("qwen3-32b-fp8", {"tensor_parallel": 16}, "25600 over 16 ranks = 1600, is no multiple of 128")])
def test_blocks_of_128_cannot_be_cut(model, ways, words):
    assert words in block_faults(deploy(load_model(model), **ways))[0]


@pytest.mark.parametrize(("model", "ways"), [
    ("deepseek-v3", {"tensor_parallel": 16}), ("qwen3-235b-a22b-fp8", {"tensor_parallel": 8, "expert_parallel": 8}),
    ("qwen3-235b-a22b-fp8", {"tensor_parallel": 4}), ("llama-3.1-70b-fp8", {"tensor_parallel": 32}),
    ("deepseek-v3", {"data_parallel": 32, "expert_parallel": 32})])
def test_what_goes_passes(model, ways):
    assert not block_faults(deploy(load_model(model), **ways))


def test_the_message_names_what_goes():
    fault = block_faults(deploy(load_model("qwen3-235b-a22b-fp8"), tensor_parallel=8))[0]

    assert fault.endswith("; the most that goes is 6, or expert_parallel = 8")


def test_only_square_blocks_of_fp8_count():
    assert block_edge(deploy(load_model("deepseek-v3")).matrix_quantization) == 128
    assert block_edge(deploy(load_model("llama-3.1-70b-fp8")).matrix_quantization) == 0
    assert block_edge(deploy(load_model("gpt-oss-20b")).expert_quantization) == block_edge(None) == 0
    assert not block_faults(deploy(DENSE, weight_dtype="fp8")) and not block_faults(deploy(MIXTURE))
    assert block_faults(deploy(DENSE, weight_dtype="fp8_block", tensor_parallel=2))         # 128 / 2 = 64
