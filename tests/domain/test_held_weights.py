"""Weights in memory beyond the checkpoint, and layouts that formats forbid."""
import pytest
from msgspec.structs import replace

from simulator.domain.block_shapes import block_faults
from simulator.domain.facts import load_accelerator, load_model
from simulator.domain.kernel_padding import expert_padding, projection_padding
from simulator.domain.latent_copies import copied_bytes
from simulator.domain.model_spec import Quantization
from simulator.domain.rank_weights import rank_weights
from support.small_models import MIXTURE, deploy


def on(accelerator, model, **ways):
    return deploy(model, accelerator=load_accelerator(accelerator), **ways)


def quantised(model, method, dtype, group, bits, scope="experts"):
    return replace(model, quantization=Quantization(
        method=method, weight_dtype=dtype, group_size=group, scale_bits=bits, scope=scope))


def mixture(width):
    return replace(MIXTURE, hidden_size=512, moe=replace(MIXTURE.moe, intermediate_size=width))


def held(deployment):
    counts = rank_weights(deployment)
    return counts.num_bytes + counts.expert_num_bytes * (expert_padding(deployment)[0] - 1)


@pytest.mark.parametrize("accelerator", ["b200-sxm-180gb", "a100-sxm-80gb"])
def test_gpt_oss_takes_more_in_memory_than_in_its_files(accelerator):
    deployment = on(accelerator, load_model("gpt-oss-120b"))

    # experts 2,944 x 3,072 for 2,880 x 2,880: 66.42 GB and 4.33 GB of all else
    assert rank_weights(deployment).num_bytes == pytest.approx(65_248_815_744, rel=1e-5)
    assert held(deployment) == pytest.approx(70.75e9, rel=1e-3)


@pytest.mark.parametrize(("ranks", "width"), [(2, 1536), (4, 768), (8, 384)])
def test_width_of_a_rank_is_rounded(ranks, width):
    ratio, kernel = expert_padding(on("b200-sxm-180gb", load_model("gpt-oss-120b"), tensor_parallel=ranks))

    assert kernel == "FlashInfer TRTLLM"
    assert ratio == pytest.approx(3072 * width / (2880 * 2880 / ranks))


def test_mxfp4_of_other_models_runs_on_marlin_on_hopper():
    model = quantised(mixture(320), "compressed-tensors", "fp4", 32, 8)

    assert expert_padding(on("h100-sxm-80gb", model)) == (pytest.approx(384 / 320), "Marlin")


@pytest.mark.parametrize(("accelerator", "width", "ratio", "kernel"), [
    ("b200-sxm-180gb", 176, 192 / 176, "TRT-LLM, NVFP4"), ("h100-sxm-80gb", 176, 192 / 176, "Marlin, NVFP4"),
    ("b200-sxm-180gb", 704, 1, ""), ("rtx-5090", 176, 1, ""), ("mi300x", 176, 1, "")])
def test_sides_of_experts_in_nvfp4_are_rounded(accelerator, width, ratio, kernel):
    model = quantised(mixture(width), "modelopt", "fp4", 16, 8)

    assert expert_padding(on(accelerator, model)) == (pytest.approx(ratio), kernel)


@pytest.mark.parametrize(("group", "width", "ratio"), [(32, 96, 128 / 96), (32, 128, 1), (128, 192, 1)])
def test_experts_of_packed_integers_have_whole_tiles(group, width, ratio):
    model = quantised(mixture(width), "gptq", "int4", group, 20)

    assert expert_padding(on("h100-sxm-80gb", model))[0] == pytest.approx(ratio)


def test_blocks_of_experts_are_divided_where_the_engine_can():
    model = load_model("qwen3-235b-a22b-fp8")                   # 1,536 wide
    eight, thirty_two = (deploy(model, tensor_parallel=ranks) for ranks in (8, 32))

    assert "1536 over 8 ranks = 192, is no multiple of 128" in block_faults(eight)[0]
    assert not block_faults(eight, refines=True)                # blocks of 64
    assert any("1536 over 32 ranks = 48" in fault for fault in block_faults(thirty_two, refines=True))     # 16 < 32


def test_groups_along_inputs_are_not_cut():
    model = quantised(load_model("qwen2.5-72b"), "awq", "int4", 128, 20, "linear")

    assert block_faults(deploy(model, tensor_parallel=8)) == [
        "qwen2.5-72b: intermediate_size, 29568 over 8 ranks = 3696, is no multiple of 128: groups of 128 weights share "
        "a scale and cannot be cut, which vLLM refuses; the most that goes is 7"]
    assert not block_faults(deploy(quantised(load_model("qwen2.5-72b"), "awq", "int4", 16, 20, "linear"),
                                   tensor_parallel=8))
    assert not block_faults(deploy(model))


@pytest.mark.parametrize(("method", "dtype", "group", "width", "goes"), [
    ("awq", "int4", 128, 192, True), ("compressed-tensors", "int4", 128, 192, False), ("awq", "int4", 128, 144, False),
    ("modelopt", "fp4", 16, 176, True), ("modelopt", "fp4", 16, 88, False), ("mxfp4", "fp4", 32, 360, True)])
def test_groups_of_experts_are_halved_or_padded_or_refused(method, dtype, group, width, goes):
    model = quantised(mixture(width), method, dtype, group, 8)

    assert bool(block_faults(deploy(model))) is not goes


def test_latent_attention_keeps_16_bit_copies_of_a_quantised_up_projection():
    model = load_model("deepseek-v3")
    whole = 61 * 512 * 128 * (128 + 128) * 2

    assert copied_bytes(deploy(model), range(61)) == whole
    assert copied_bytes(deploy(model, tensor_parallel=8), range(10)) == whole / 61 * 10 / 8
    assert copied_bytes(deploy(model, weight_dtype="bfloat16"), range(61)) == 0
    assert copied_bytes(deploy(quantised(model, "compressed-tensors", "int4", 32, 16)), range(61)) == 0     # experts
    assert copied_bytes(deploy(load_model("qwen3-32b-fp8")), range(64)) == 0


@pytest.mark.parametrize(("name", "ranks", "rows"), [
    ("kimi-k3", 1, 0), ("kimi-k3", 4, 8), ("kimi-k3", 8, 4), ("qwen3-8b", 8, 0)])
def test_input_projections_of_kimi_delta_attention_have_whole_tiles(name, ranks, rows):
    # 69 layers of 7168: 4 x 96 x 128 / ranks rows, 128 of the gate that forgets, 96 / ranks of updates; at 8 ranks
    # 6,144 + 128 + 12 = 6,284, and 4 to 6,288 = 393 x 16
    deployment = on("b200-sxm-180gb", load_model(name), tensor_parallel=ranks)
    assert projection_padding(deployment, range(deployment.model.num_layers)) == 69 * rows * 7168 * 2
