"""Blocks with pages of several sizes: groups, bytes, blocks of a request as vLLM 0.33's own planner has them."""
import json

import pytest
from msgspec.structs import replace

from domain.test_kinds_by_hand import (
    GLM_KDA,
    GLM_LATENT,
    K3_KDA,
    K3_LATENT,
    LINEAR_KDA,
    LINEAR_LATENT,
    M3_BLOCKS,
    M3_PLAIN,
    v4,
)
from simulator.domain.drafter_memory import DrafterMemory, of_mtp_modules
from simulator.domain.kv_groups import plan_groups
from simulator.domain.kv_layout import kv_layout
from simulator.domain.layer_groups import GroupRules
from simulator.domain.layer_list import LayerParts, NamedPart
from simulator.domain.layers.networks import Mlp
from simulator.domain.model_spec import ModelSpec
from support.goldens import GOLDENS
from support.small_models import deploy

PLANS = GOLDENS.parent / "data" / "model_configs" / "kv_plans.json"
IN_FLIGHT = 8192


def model_of(layers, attention, linear=None, mtp=0):
    """Return a model with these mixers, by layer."""
    mixers = list(dict.fromkeys(layers))
    parts = {f"mixer_{i}": NamedPart(mixer=mixer) for i, mixer in enumerate(mixers)}
    kinds = tuple(LayerParts(layers=tuple(i for i, each in enumerate(layers) if each == mixer), parts=(name, "mlp"))
                  for name, mixer in zip(parts, mixers, strict=True))
    return ModelSpec(name="made", num_layers=len(layers), hidden_size=4096, vocab_size=1000, dtype="bfloat16",
                     max_position_embeddings=2**20, mlp=Mlp(intermediate_size=64), attention=attention,
                     linear_attention=linear, parts=parts, layer_kinds=kinds, num_mtp_layers=mtp)


FLASH = model_of([v4(0), v4(0)] + [v4(4), v4(128)] * 20 + [v4(4)], v4(4), mtp=1)
PRO_LIKE = model_of([v4(128), v4(128)] + [v4(4), v4(128)] * 29 + [v4(4)], v4(4))
GLM = model_of([GLM_LATENT if i % 4 == 3 else GLM_KDA for i in range(45)], GLM_LATENT, GLM_KDA)


def plan(model, block_size, max_model_len=2**17, rules=None, drafter=None, kv_cache_dtype="auto", **ways):
    return plan_groups(deploy(model, kv_cache_dtype=kv_cache_dtype, **ways), block_size, max_model_len,
                       rules or GroupRules(), drafter)


def described(found, max_model_len):
    """Return (caches, tokens of a block, window, bytes, blocks of a request) of each group."""
    return [(len(pages), group.block_size, group.window, sum(page.num_bytes for page in pages),
             replace(found, layers=replace(found.layers, groups=(group,))).blocks_of_request(max_model_len, IN_FLIGHT))
            for group, pages in zip(found.layers.groups, found.pages, strict=True)]


@pytest.mark.skipif(not PLANS.is_file(), reason="needs ../shared/data/model_configs")
def test_deepseek_v4_flash_is_as_the_planner_has_it():
    expected = json.loads(PLANS.read_text(encoding="utf-8"))["deepseek-v4-flash"]
    longest = expected["max_model_len"]
    found = plan(FLASH, 256, longest)

    assert described(found, longest) == [
        (each["layers"], each["block"], each["window"] or 0, each["page_bytes"], each["blocks"])
        for each in expected["groups"]]
    assert found.block_bytes(range(43)) == expected["block_bytes"]
    assert found.blocks_of_request(longest, IN_FLIGHT) == expected["blocks"]


def test_deepseek_v4_by_hand():
    # Vectors of 584 bytes: 64 in a page of 37,376, rounded to 576s 37,440; 64 keys of 132: 8,640; 2 vectors: 1,728.
    # 43 windows in two groups, since 21 pages of either size of CSA's rings stay together and 22 leave least empty.
    found = plan(FLASH, 256)

    assert found.block_bytes(range(43)) == 21 * (37_440 + 8_640) + 20 * 1_728
    assert [(group.kind, group.window, group.block_size, len(pages))
            for group, pages in zip(found.layers.groups, found.pages, strict=True)] == [
        ("sliding_attention", 128, 64, 22), ("sliding_attention", 128, 64, 21), ("full_attention", 0, 256, 62),
        ("sliding_attention", 8, 4, 42), ("sliding_attention", 128, 8, 20)]
    assert found.explain()[0] == "a block has 1002240 bytes, for the pages of any group:"
    assert kv_layout(deploy(FLASH)).bytes_per_token == 3850.25


def test_ranks_hold_all_of_a_compressed_cache():
    assert plan(FLASH, 256, tensor_parallel=8).pages == plan(FLASH, 256).pages


def test_stages_hold_pages_of_their_layers():
    # of the second stage: layers 22 to 42, 11 CSA and 10 HCA
    assert plan(FLASH, 256).block_bytes(range(22, 43)) == 11 * 46_080 + 10 * 1_728


def test_compressed_tokens_fill_blocks():
    with pytest.raises(ValueError, match="block_size = 64: expected a multiple of 128"):
        plan(FLASH, 64)


def test_a_block_of_several_sizes_is_not_shared_among_ranks():
    with pytest.raises(ValueError, match="decode_context_parallel = 1, found 2: a block holds pages of several sizes"):
        plan(FLASH, 256, tensor_parallel=2, decode_context_parallel=2)


def test_vectors_in_16_bit_have_pages_of_their_own():
    # 1,024 bytes a vector, of which 64 fill 65,536; index keys stay in fp8, 8,448 rounded to 512s: 8,704
    found = plan(FLASH, 256, kv_cache_dtype="bfloat16")

    assert found.block_bytes(range(43)) == 21 * (65_536 + 8_704) + 20 * 2_048


def test_the_drafter_of_deepseek_v4_keeps_the_window_alone():
    drafter = of_mtp_modules(deploy(FLASH))
    found = plan(FLASH, 256, drafter=drafter)

    assert (drafter.kv_bytes_per_token, drafter.num_kv_layers) == (0, 1)
    assert [len(pages) for pages in found.pages] == [22, 22, 62, 42, 20]
    assert found.block_bytes(range(43)) == plan(FLASH, 256).block_bytes(range(43))


def test_a_model_with_other_counts_of_layers():
    # 30 CSA and 31 HCA layers, 61 windows: 31 repeats leave least empty (1 + 0 + 1)
    found = plan(PRO_LIKE, 256)

    assert [(group.block_size, len(pages)) for group, pages in zip(found.layers.groups, found.pages, strict=True)] == [
        (64, 31), (64, 30), (256, 91), (8, 31), (4, 60)]
    assert found.block_bytes(range(61)) == 30 * 46_080 + 31 * 1_728


def test_glm_5_3_flash_is_as_the_planner_has_it():
    # a state of 4,341,760 bytes, 1,024 bytes a token in blocks of 128: 34 of them; with pooled keys of 8.25 a token the
    # widest group has 11 x 4,352 x 1,032.25; 34 states: as many groups as that 11 fit; and the ring of pooled keys
    found = plan(GLM, 16)

    assert found.block_bytes(range(45)) == 49_415_872
    assert [(group.kind, len(pages)) for group, pages in zip(found.layers.groups, found.pages, strict=True)] == [
        ("linear_attention", 9), ("linear_attention", 9), ("linear_attention", 8), ("linear_attention", 8),
        ("full_attention", 22), ("linear_attention", 11)]
    assert found.layers.groups[4].block_size == 4352
    assert found.pages[5][0].own_bytes == 16 * 2 * 128 * 2
    # a ring is one block, whatever the length; states of aligned groups are two
    assert found.blocks_of_request(2**17, IN_FLIGHT) == 4 * 2 + -(-2**17 // 4352) + 1


@pytest.mark.parametrize(("layers", "block_size", "state"), [
    ([K3_KDA] * 3 + [K3_LATENT], 5760, 6_512_640), ([LINEAR_KDA] * 3 + [LINEAR_LATENT], 1920, 2_170_880)])
def test_blocks_of_latent_attention_beside_states_are_multiples_of_128(layers, block_size, state):
    found = plan(model_of(layers, layers[-1], layers[0]), 16)

    assert {group.block_size for group in found.layers.groups} == {block_size}
    assert found.page_bytes == block_size * 1152
    assert state <= found.page_bytes < state + 128 * 1152


def test_ranks_divide_states_and_not_latents():
    # K3 on 8 ranks: 814,080 bytes of state, 1,152 a token: 706.7 tokens, in 128s
    found = plan(model_of([K3_KDA] * 3 + [K3_LATENT], K3_LATENT, K3_KDA), 16, tensor_parallel=8)

    assert {group.block_size for group in found.layers.groups} == {768}


def test_minimax_m3_shares_one_block_table():
    model = model_of([M3_PLAIN] * 3 + [M3_BLOCKS] * 57, M3_BLOCKS)

    assert plan(model, 128) is None
    assert kv_layout(deploy(model)).bytes_per_token * 128 == 17_596_416


def test_layers_without_a_cache_are_in_no_group():
    own = replace(M3_PLAIN, num_heads=8, num_kv_heads=2)
    shared = replace(own, reads_earlier_cache=True)
    slides = {"window": 512}
    model = replace(model_of([own] * 6, own), parts={
        "full": NamedPart(mixer=own), "slides": NamedPart(mixer=own, **slides),
        "full_shared": NamedPart(mixer=shared), "slides_shared": NamedPart(mixer=shared, **slides)}, layer_kinds=(
            LayerParts(layers=(0,), parts=("full", "mlp")), LayerParts(layers=(1, 2), parts=("slides", "mlp")),
            LayerParts(layers=(3,), parts=("full_shared", "mlp")),
            LayerParts(layers=(4, 5), parts=("slides_shared", "mlp"))))

    assert plan(model, 16).members == ((0,), (1,), (2,))


def test_the_cache_is_as_kernels_keep_it_by_default():
    assert deploy(FLASH).kv_cache_format == "fp8"
    assert deploy(FLASH, kv_cache_dtype="bfloat16").kv_cache_format == "bfloat16"
    assert deploy(FLASH).checkpoint_notes() == [
        'the attention of made has a KV cache in fp8: kv_cache_dtype = "auto" stores it so, as vLLM does']


def test_a_drafter_that_says_nothing_attends_to_all():
    drafter = DrafterMemory(weights_bytes=0.0, kv_bytes_per_token=1024.0, num_kv_layers=1)
    found = plan(model_of([K3_KDA] * 3 + [K3_LATENT], K3_LATENT, K3_KDA), 16, drafter=drafter)

    assert found.members[-1] == (4,)
