"""Which layers share a block table, as vLLM groups them."""
import pytest
from msgspec.structs import replace

from simulator.domain.drafter_memory import DrafterMemory
from simulator.domain.facts import load_model
from simulator.domain.kv_groups import plan_groups
from simulator.domain.layer_groups import GivenGroup, GroupRules
from support.small_models import DENSE, RECURRENT, SLIDING, deploy


def groups_of(model, block_size=16, max_model_len=8192, rules=None, drafter=None, **ways):
    return plan_groups(deploy(model, **ways), block_size, max_model_len, rules or GroupRules(), drafter)


def sorts(plan):
    """Return (kind, window, block_size, layers) of each group."""
    return [(group.kind, group.window, group.block_size, len(members))
            for group, members in zip(plan.layers.groups, plan.members, strict=True)]


def test_a_model_of_one_kind_has_one_block_table():
    assert groups_of(DENSE) is None


def test_a_model_that_slides_everywhere_is_one_group():
    assert sorts(groups_of(load_model("mistral-7b"))) == [("sliding_attention", 4096, 16, 32)]


def test_groups_have_as_many_layers_as_the_rarer_kind():
    # gemma-3-27b: 52 sliding and 10 full layers: 6 groups of 9 and 8 sliding layers, and the full ones; the sliding
    # ones come first in the model. A layer has 16 heads x 2 x 128 x 2 bytes = 8,192 a token.
    plan = groups_of(load_model("gemma-3-27b"))

    assert sorts(plan) == [("sliding_attention", 1024, 16, n) for n in (9, 9, 9, 9, 8, 8)] + [
        ("full_attention", 0, 16, 10)]
    assert plan.block_bytes(range(62)) == 10 * 16 * 8192


def test_layers_of_a_kind_take_turns_in_its_groups():
    # pipeline stages then have their share of each group: layers 0, 2, 4 and 1, 3, 5 of the sliding ones
    plan = groups_of(replace(SLIDING, num_layers=9, layer_pattern="SSF"))

    assert plan.members == ((0, 3, 6), (1, 4, 7), (2, 5, 8))
    assert plan.block_bytes(range(3)) == 16 * 128


def test_kinds_of_nearly_one_size_share_the_larger_ones():
    # 5 full and 6 sliding layers: 6 < 5 x 1.5, so two groups, of 6 and of 5 and a place left empty; with 8 it is not so
    assert sorts(groups_of(replace(SLIDING, num_layers=11, layer_pattern="SF"))) == [
        ("sliding_attention", 100, 16, 6), ("full_attention", 0, 16, 5)]
    assert [size for *_, size in sorts(groups_of(replace(SLIDING, num_layers=12, layer_pattern="SSF")))] == [4, 4, 4]


def test_chunks_of_llama_4_are_a_kind_of_their_own():
    assert sorts(groups_of(load_model("llama-4-scout"))) == [("chunked_attention", 8192, 16, 12)] * 3 + [
        ("full_attention", 0, 16, 12)]


def test_smaller_pages_hold_more_tokens():
    # mimo-v2-flash: 8 KV heads in sliding layers, 4 in full ones
    sizes = {(kind, block_size) for kind, _, block_size, _ in sorts(groups_of(load_model("mimo-v2-flash")))}

    assert sizes == {("sliding_attention", 16), ("full_attention", 32)}


def test_pages_that_do_not_divide_are_padded():
    # 3 KV heads in the sliding layer, 2 in the full one: 16 x 192 bytes for both, 16 tokens
    sliding = replace(SLIDING.sliding_attention, num_kv_heads=3)
    attention = replace(SLIDING.attention, num_heads=6)
    plan = groups_of(replace(SLIDING, sliding_attention=sliding, attention=attention))

    assert [block_size for _, _, block_size, _ in sorts(plan)] == [16, 16]
    assert plan.page_bytes == 16 * 192


@pytest.mark.parametrize(("ranks", "block_size"), [(1, 544), (4, 272)])
def test_blocks_of_attention_are_as_large_as_a_state(ranks, block_size):
    # qwen3-next: a state of 1,048,576 + 49,152 bytes, 2 KV heads x 2 x 256 x 2 bytes a token: 536 tokens, in sixteens;
    # a quarter of the state with one head. vLLM says so when it starts: "Setting attention block size to 544 tokens".
    plan = groups_of(load_model("qwen3-next-80b-a3b"), tensor_parallel=ranks)

    assert sorts(plan) == [("linear_attention", 0, block_size, 12)] * 3 + [("full_attention", 0, block_size, 12)]
    assert plan.layers.chunk_alignment == block_size


def test_without_prefix_caching_a_sequence_has_one_state():
    plan = groups_of(RECURRENT, rules=GroupRules(enable_prefix_caching=False))

    # a state of 2,816 bytes, 128 bytes a token: 22 tokens, in sixteens
    assert sorts(plan) == [("linear_attention", 0, 8192, 1), ("full_attention", 0, 32, 1)]
    assert plan.layers.chunk_alignment == 0
    assert plan.blocks_of_request(8192, 100) == 1 + 8192 // 32


def test_windows_can_be_kept_whole():
    assert groups_of(load_model("gemma-3-27b"), rules=GroupRules(is_disabled=True)) is None
    assert groups_of(load_model("mistral-7b"), rules=GroupRules(is_disabled=True)) is not None      # as vLLM has it


def test_states_cannot():
    with pytest.raises(ValueError, match="linear attention, which cannot be kept as if"):
        groups_of(RECURRENT, rules=GroupRules(is_disabled=True))


@pytest.mark.parametrize(("num_tokens", "blocks"), [
    (8192, 512 + 12),       # 100 - 1 + 64 = 163 tokens: 11 blocks, and one for a ragged start
    (32, 2 + 2 + 1)])       # of the text, and one for a ragged start all the same
def test_a_request_holds_only_the_window_in_sliding_layers(num_tokens, blocks):
    assert groups_of(SLIDING).blocks_of_request(num_tokens, 64) == blocks


def test_a_request_holds_a_chunk_in_chunked_layers():
    # 64 + 64 tokens of the chunk, 8192 of the whole
    model = replace(SLIDING, sliding_attention=replace(SLIDING.sliding_attention, window=64, chunked=True))

    assert groups_of(model).blocks_of_request(8192, 64) == 512 + 8


def test_groups_that_are_given_take_what_they_leave_out_from_the_engine():
    rules = GroupRules(retention_interval=None, given=(
        GivenGroup(kind="full_attention"), GivenGroup(kind="sliding_attention", window=40, block_size=32),
        GivenGroup(kind="linear_attention")))
    layers = rules.groups_given(16, 4096)

    assert [(group.block_size, group.window, group.aligned) for group in layers.groups] == [
        (16, 0, False), (32, 40, False), (16, 0, True)]
    assert (layers.chunk_alignment, layers.retention_interval) == (16, None)
    without = replace(rules, enable_prefix_caching=False).groups_given(16, 4096)
    assert (without.groups[2].block_size, without.chunk_alignment) == (4096, 0)


@pytest.mark.parametrize("given", [{"kind": "full_attention", "window": 1}, {"kind": "sliding_attention"}])
def test_a_window_belongs_to_the_kinds_that_have_one(given):
    with pytest.raises(ValueError, match="window = "):
        GivenGroup(**given)


def test_drafts_have_states_of_their_own_and_widen_those_of_convolutions():
    # qwen3-next-80b: a convolution over 2 x 16 x 128 + 32 x 128 = 8,192 channels keeps 4 - 1 tokens and one for each
    # draft, in 2 bytes; the recurrence 32 x 128 x 128 elements. 2,048 bytes of KV a token, 16 tokens at a time:
    # (3 x 16,384 + 1,048,576) / 32,768 = 33.5, with 2 drafts (5 x 16,384 + 1,048,576) / 32,768 = 34.5.
    model = load_model("qwen3-next-80b-a3b")
    alone, drafted = (groups_of(model, rules=GroupRules(num_drafts=count)) for count in (0, 2))

    assert [plan.layers.groups[0].block_size for plan in (alone, drafted)] == [544, 560]
    assert [{group.drafts for group in plan.layers.groups if group.kind == "linear_attention"}
            for plan in (alone, drafted)] == [{0}, {2}]
    # three groups of states with two blocks each, one more for each draft; 8,192 tokens in blocks of 544 or 560
    states = [sum(group.kind == "linear_attention" for group in plan.layers.groups) for plan in (alone, drafted)]
    assert states == [3, 3]
    assert alone.blocks_of_request(8192, 100) == 16 + 3 * 2
    assert drafted.blocks_of_request(8192, 100) == 15 + 3 * 4


@pytest.mark.parametrize(("marked", "expected"), [("none", set()), ("all", {"full_attention"}),
                                                  ("last", {"full_attention"})])
def test_groups_with_a_drafter_s_layers_are_marked_as_the_engine_knows_them(marked, expected):
    plan = groups_of(SLIDING, rules=GroupRules(num_drafts=1, marked=marked),
                     drafter=DrafterMemory(weights_bytes=0.0, kv_bytes_per_token=8.0, num_kv_layers=1))

    assert {group.kind for group in plan.layers.groups if group.has_drafter} == expected


@pytest.mark.parametrize(("drafter_bytes", "fits"), [(1152, True), (2 * 1152, True), (576, True), (4096, False)])
def test_pages_of_latent_attention_beside_states_divide_the_largest(drafter_bytes, fits):
    # Kimi-K3: rows of 576 elements, 1,152 bytes; a head with 8 KV heads of 128 has 4,096 bytes a token
    drafter = DrafterMemory(weights_bytes=0.0, kv_bytes_per_token=drafter_bytes, num_kv_layers=1)
    if fits:
        assert groups_of(load_model("kimi-k3"), drafter=drafter, tensor_parallel=8).layers.groups
        return
    with pytest.raises(ValueError, match=r"latent attention has .* bytes, which do not divide the largest of other"):
        groups_of(load_model("kimi-k3"), drafter=drafter, tensor_parallel=8)
