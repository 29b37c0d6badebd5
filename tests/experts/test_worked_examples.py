"""The worked examples of the published rules, by hand: E1, bytes, DeepEP's times."""
import numpy as np
import pytest

from simulator.domain.experts import Dbo
from simulator.experts import deepep, eplb, placement
from simulator.experts.imbalance import imbalance
from simulator.experts.traffic import GATHER, HIGH_THROUGHPUT, LOW_LATENCY, Site, moved_expert_bytes, sent_bytes
from support.experts import is_split, of_ranks, overlapped_ns

LOADS = np.array([[800.0, 100, 100, 100, 60, 60, 40, 40]])


def ranks_of(slots):
    return of_ranks(slots, LOADS, 4)[0].tolist()


def expected(slots):
    return imbalance(of_ranks(slots, LOADS / LOADS.sum(), 4), np.inf)[0]


def test_linear_placement_leaves_the_hot_rank_with_most_of_the_work():
    slots = placement.initial("linear", 8, 0, 4, 1)

    assert ranks_of(slots) == [900, 200, 120, 80]
    assert expected(slots) == pytest.approx(900 / 325)              # 2.769


def test_four_redundant_experts_all_copy_the_hot_one_and_even_out_the_ranks():
    slots = eplb.rebalance(LOADS, 12, 4)

    assert placement.num_copies(slots, 8)[0].tolist() == [5, 1, 1, 1, 1, 1, 1, 1]
    assert sorted(ranks_of(slots), reverse=True) == [360, 320, 320, 300]
    assert expected(slots) == pytest.approx(360 / 325)              # 1.108


def test_groups_are_packed_to_nodes_and_experts_copied_there():
    slots = eplb.rebalance(LOADS, 12, 4, num_groups=4, num_nodes=2)

    # Groups (0, 1), (2, 3), (4, 5), (6, 7) of 900, 200, 120 and 80: one node gets 900 and 80, the other 200 and 120.
    # In 6 slots the first has 0, 1, 6, 7 and two copies of 0, 800 / 3 each. By load: 0 to A, 0 to B, 0 to A, 1 to B
    # (367 against 533), 6 to B, which is full then, 7 to A. The other has 2, 3, 4, 5 and copies of 2 and of 3, 50 each:
    # 4 and 5 of 60 to C and D, then 2, 3, 2, 3 in turn.
    assert slots.tolist() == [[0, 0, 7, 0, 1, 6, 4, 2, 2, 5, 3, 3]]
    assert ranks_of(slots) == pytest.approx([800 / 3 * 2 + 40, 800 / 3 + 140, 160, 160])
    # the hot group cannot leave its node
    assert expected(slots) > expected(eplb.rebalance(LOADS, 12, 4))


def test_the_example_that_the_balancer_was_published_with():
    # deepseek-ai/EPLB, README.md: 12 experts in 4 groups on 16 slots of 8 ranks in 2 nodes
    loads = np.array([[90.0, 132, 40, 61, 104, 165, 39, 4, 73, 56, 183, 86],
                      [20, 107, 104, 64, 19, 197, 187, 157, 172, 86, 16, 27]])

    assert eplb.rebalance(loads, 16, 8, num_groups=4, num_nodes=2).tolist() == [
        [5, 6, 5, 7, 8, 4, 3, 4, 10, 9, 10, 2, 0, 1, 11, 1], [7, 10, 6, 8, 6, 11, 8, 9, 2, 4, 5, 1, 5, 0, 3, 1]]


def test_round_robin_deals_experts_to_ranks():
    slots = placement.initial("round_robin", 8, 0, 4, 1)

    assert slots.tolist() == [[0, 4, 1, 5, 2, 6, 3, 7]]
    assert ranks_of(slots) == [860, 160, 140, 140]


def test_vllm_begins_with_copies_of_the_first_experts():
    assert placement.initial("linear", 4, 2, 2, 1).tolist() == [[0, 1, 2, 3, 0, 1]]


def test_bytes_of_low_latency_are_a_copy_for_each_expert():
    assert sent_bytes(LOW_LATENCY, "dispatch", 128, Site(7168, 8, 8)) == 7_569_408       # 128 x 8 x (7168 + 224)
    assert sent_bytes(LOW_LATENCY, "combine", 128, Site(7168, 8, 8)) == 14_680_064       # 128 x 8 x 14,336


def test_gathered_tokens_go_to_every_rank_whatever_they_choose():
    # 7/8 of 8 x 128 tokens of 14,336 bytes, either way
    for what in ("dispatch", "combine"):
        for chosen in (1, 8):
            assert sent_bytes(GATHER, what, 128, Site(7168, chosen, 8)) == 7 / 8 * 8 * 128 * 14_336


def test_normal_kernels_send_a_copy_to_each_node():
    # on two nodes 8 experts are expected at 2 (1 - 1/256) of them
    copies = 2 * (1 - 1 / 256)

    assert sent_bytes(HIGH_THROUGHPUT, "dispatch", 10, Site(7168, 8, 16, 2)) == pytest.approx(
        10 * copies * (7168 + 224))


def test_a_moved_expert_of_deepseek_v3_has_44_megabytes():
    assert moved_expert_bytes(7168, 2048, 1.0) == 3 * 7168 * 2048 == 44_040_192


@pytest.mark.parametrize("row", deepep.PUBLISHED, ids=lambda row: f"{row.backend}-{row.what}-{row.ranks}")
def test_every_published_row_is_met_within_five_percent_by_time_and_bandwidth(row):
    found_ns = deepep.kernel_ns(row.backend, row.what, row.tokens, Site(7168, 8, row.ranks))

    assert found_ns == pytest.approx(deepep.published_bytes(row) / row.bytes_per_ns, rel=0.05)
    if row.ns is not None:
        assert found_ns == pytest.approx(row.ns, rel=0.05)


@pytest.mark.parametrize("backend", [LOW_LATENCY, HIGH_THROUGHPUT])
@pytest.mark.parametrize("what", ["dispatch", "combine"])
def test_between_published_numbers_of_ranks_the_time_lies_between_theirs(backend, what):
    for low, high in ((16, 32), (32, 64)):
        ends = [deepep.kernel_ns(backend, what, 4096, Site(7168, 8, ranks)) for ranks in (low, high)]
        between = deepep.kernel_ns(backend, what, 4096, Site(7168, 8, (low + high) // 2))

        if backend == LOW_LATENCY:                      # bytes do not depend on ranks
            assert min(ends) <= between <= max(ends)
        assert between > 0
    assert not deepep.is_beyond(backend, 24, deepep.H800)


def test_beyond_them_the_nearest_speaks_and_is_told():
    args = (LOW_LATENCY, "dispatch", 128)

    assert deepep.kernel_ns(*args, Site(7168, 8, 512)) == deepep.kernel_ns(*args, Site(7168, 8, 256))
    assert deepep.kernel_ns(*args, Site(7168, 8, 4)) == deepep.kernel_ns(*args, Site(7168, 8, 8))
    assert deepep.is_beyond(LOW_LATENCY, 512, deepep.H800)
    assert deepep.is_beyond(LOW_LATENCY, 4, deepep.H800)
    assert not deepep.is_beyond(LOW_LATENCY, 8, deepep.H800)


def test_a_kernel_has_a_start_up_and_faster_links_shorten_the_rest_alone():
    fast = deepep.Links(8, 400.0, 50.0)
    slow_ns, fast_ns = (deepep.kernel_ns(LOW_LATENCY, "dispatch", 128, Site(7168, 8, 8), links)
                        for links in (deepep.H800, fast))

    assert slow_ns == pytest.approx(77_000)
    assert fast_ns == pytest.approx(13_194 + (77_000 - 13_194) / 2)
    assert deepep.kernel_ns(LOW_LATENCY, "dispatch", 0, Site(7168, 8, 8)) == 13_194


def test_two_batches_take_what_the_formula_says():
    dbo = Dbo(enabled=True)                             # 132 / 112 = 1.179

    # 4 layers, half a batch computes 8 us and exchanges 5 us
    assert overlapped_ns(8_000, 5_000, 4, dbo) == pytest.approx(2 * 8_000 * 132 / 112 + 13_000 / 4)
    assert overlapped_ns(3_000, 5_000, 4, dbo) == pytest.approx(2 * 5_000 + 8_000 / 4)


@pytest.mark.parametrize(("tokens", "has_prompts", "padded", "splits"), [
    (32, False, None, True), (31, False, None, False), (511, True, None, False), (512, True, None, True),
    (40, False, 80, False), (41, False, 80, True)])     # the second half begins at 40: it must not be empty
def test_a_batch_is_split_where_all_conditions_hold(tokens, has_prompts, padded, splits):
    assert is_split(tokens, has_prompts, Dbo(enabled=True), padded) is splits
    assert not is_split(tokens, has_prompts, Dbo(), padded)
