"""Each scorer, by hand."""
import msgspec
import numpy as np
import pytest

from routing.faces import scorer_of, tell, view_of, workload
from simulator.domain.items import items_of
from simulator.routing.base import PoolLabel

CLOSED = float("nan")
BY_LOAD = [     # name, parameters, what replicas say, scores
    # (most - own) / (most - least): (6 - 2) / 4, (6 - 6) / 4, (6 - 3) / 4
    ("queue-depth", {}, {"waiting": [2, 6, 3]}, [1, 0, 0.75]),
    ("queue-depth", {}, {"waiting": [4, 4, 4]}, [1, 1, 1]),
    ("queue-depth", {}, {"waiting": [2, 6, 3], "is_routable": [1, 0, 1]}, [1, CLOSED, 0]),
    # effective: 1 + 2 + 3 = 6, 0 + 1 + 1 = 2, 1 + 1 + 2 = 4
    ("queue-depth", {"load": "effective"}, {"waiting": [1, 0, 1], "running": [2, 1, 1], "in_flight": [3, 1, 2]},
     [0, 1, 0.5]),
    ("running-requests", {}, {"running": [2, 6, 3]}, [1, 0, 0.75]),
    # 4 x 1 + 2 = 6, 4 x 0 + 10 = 10, 4 x 2 + 0 = 8
    ("vllm-dp", {}, {"waiting": [1, 0, 2], "running": [2, 10, 0]}, [1, 0, 0.5]),
    ("kv-utilization", {}, {"used_blocks": [25, 100, 0], "num_blocks": [100, 100, 0]}, [0.75, 0, 1]),
    ("load-balance", {}, {"waiting": [0, 1, 0], "running": [0, 1, 1], "in_flight": [0, 2, 0]}, [1, 0.2, 0.5]),
    ("load-aware", {}, {"waiting": [0, 64, 500]}, [0.5, 0.25, 0]),
    ("load-aware", {"threshold_requests": 10}, {"waiting": [0, 1, 10]}, [0.5, 0.45, 0]),
    ("token-load", {"threshold_tokens": 1000}, {"in_flight_tokens": [0, 250, 4000]}, [1, 0.75, 0]),
    # idle: 1; else (most - own) / most: (4 - 1) / 4, 0
    ("active-requests", {}, {"in_flight": [0, 1, 4]}, [1, 0.75, 0]),
    ("active-requests", {}, {"in_flight": [4, 4, 4]}, [0, 0, 0]),
    ("active-requests", {"idle_threshold": 1, "max_busy_score": 0.5}, {"in_flight": [1, 2, 4]}, [1, 0.25, 0]),
]


@pytest.mark.parametrize(("name", "parameters", "fields", "expected"), BY_LOAD)
def test_score_of_load(name, parameters, fields, expected):
    found = scorer_of(name, view_of(**fields), **parameters).scores(0, 0)

    assert found.tolist() == pytest.approx(expected, nan_ok=True)


def test_prefix_affinity_is_the_share_of_the_prompt_that_was_sent_there():
    # blocks of 16: 64 shared of 80 tokens are 4 of 5 blocks, 64 of 128 are 4 of 8
    requests = workload([[("sys", 64), ("", 16)], [("sys", 64), ("", 64)], 200, 10])
    scorer = scorer_of("prefix-affinity", view_of(), requests)

    scorer.note_sent(0, 1, 0)

    assert scorer.scores(0, 0).tolist() == [0, 1, 0]
    assert scorer.scores(1, 0).tolist() == [0, 0.5, 0]
    assert scorer.scores(2, 0).tolist() == [0, 0, 0]
    assert scorer.scores(3, 0).tolist() == [0, 0, 0]


def test_prefix_affinity_looks_at_the_first_blocks_only_if_asked():
    requests = workload([[("sys", 64), ("", 16)], [("sys", 64), ("", 64)]])
    scorer = scorer_of("prefix-affinity", view_of(), requests, max_blocks=2)

    scorer.note_sent(0, 1, 0)

    assert scorer.scores(1, 0).tolist() == [0, 1, 0]


def test_prefix_affinity_forgets_a_replica_that_closes():
    scorer = scorer_of("prefix-affinity", view_of(), workload([[("sys", 64)]]))
    scorer.note_sent(0, 1, 0)

    scorer.note_closed(1, 0)

    assert scorer.scores(0, 0).tolist() == [0, 0, 0]


def test_caches_that_hold_nothing_score_alike():
    assert scorer_of("precise-prefix-cache", view_of()).scores(0, 0).tolist() == [1, 1, 1]
    assert scorer_of("precise-prefix-cache", view_of(), if_equal="half_if_none").scores(0, 0).tolist() == [0.5] * 3


def test_cold_requests_go_to_the_replica_that_waited_longest_for_one():
    view = view_of(3)
    scorer = scorer_of("no-hit-lru", view)
    assert scorer.scores(0, 0).tolist() == [1, 0.5, 0]          # never used: in order of number

    scorer.note_sent(0, 0, 0)
    assert scorer.scores(1, 0).tolist() == [0, 1, 0.5]
    scorer.note_sent(1, 2, 0)
    assert scorer.scores(2, 0).tolist() == [0.5, 1, 0]

    tell(view, is_routable=[1, 0, 1])
    assert scorer.scores(3, 0).tolist() == pytest.approx([1, CLOSED, 0], nan_ok=True)
    tell(view, is_routable=[0, 0, 1])
    assert scorer.scores(3, 0)[2] == 1


def test_a_cold_request_counts_once_and_only_the_one_that_was_scored():
    scorer = scorer_of("no-hit-lru", view_of(3))
    scorer.scores(0, 0)

    scorer.note_sent(5, 0, 0)

    assert scorer.scores(1, 0).tolist() == [1, 0.5, 0]


def test_a_session_likes_the_replica_it_was_on_last():
    requests = workload([100] * 4, session=[3, 3, 1, -1])
    scorer = scorer_of("session-affinity", view_of(), requests)
    assert scorer.scores(0, 0).tolist() == [0, 0, 0]

    scorer.note_sent(0, 2, 0)

    assert scorer.scores(1, 0).tolist() == [0, 0, 1]
    assert scorer.scores(2, 0).tolist() == [0, 0, 0]
    assert scorer.scores(3, 0).tolist() == [0, 0, 0]


def test_lora_affinity_by_residency():
    requests = workload([100] * 4, adapter=[0, 0, 1, -1])
    scorer = scorer_of("lora-affinity", view_of(), requests, max_loras=1)
    assert scorer.scores(0, 0).tolist() == [1, 1, 1]            # held nowhere

    scorer.note_sent(0, 1, 0)

    assert scorer.scores(1, 0).tolist() == [0, 1, 0]
    assert scorer.scores(3, 0).tolist() == [1, 1, 1]            # no adapter
    scorer.note_sent(2, 1, 0)                                   # room for one: adapter 0 goes
    assert scorer.scores(1, 0).tolist() == [1, 1, 1]
    assert scorer.scores(2, 0).tolist() == [0, 1, 0]


def test_lora_affinity_keeps_the_adapters_used_last():
    requests = workload([100] * 6, adapter=[0, 1, 0, 2, 0, 1])
    scorer = scorer_of("lora-affinity", view_of(2), requests, max_loras=2)
    for row in range(4):                                        # 0, 1, 0 again, 2: 1 is the oldest
        scorer.note_sent(row, 0, 0)

    assert scorer.scores(4, 0).tolist() == [1, 0]
    assert scorer.scores(5, 0).tolist() == [1, 1]


def test_lora_affinity_in_tiers():
    # active 1; room 0.8; held without being active 0.6; neither 0
    requests = workload([100] * 8, adapter=[0, 1, 0, 1, 2, 0, 2, 1])
    scorer = scorer_of("lora-affinity", view_of(), requests, rule="tiers", max_loras=1)
    scorer.note_sent(0, 0, 0)
    scorer.note_sent(1, 1, 0)

    assert scorer.scores(2, 0).tolist() == [1, 0, 0.8]
    scorer.note_left(0, 0, 0)
    assert scorer.scores(2, 0).tolist() == [0.8, 0, 0.8]


def test_latency_headroom_packs_or_spreads_among_those_that_keep_their_targets():
    # TPOT: 1 ms + 1 ms a request: 2, 3 and 11 ms of 10; TTFT: that + 10 us x (tokens there + 100):
    # 2 + 1 = 3, 3 + 2 = 5 and 11 + 1 = 12 ms of 10. h = 0.5 x (1 - TTFT / 10) + 0.5 x (1 - TPOT / 10):
    # 0.35 + 0.4 = 0.75, 0.25 + 0.35 = 0.6, -0.1 - 0.05
    fields = {"running": [0, 1, 10], "waiting_prefill_tokens": [0, 100, 0]}
    prices = {"base_us": 1000.0, "per_sequence_us": 1000.0, "per_prefill_token_us": 10.0, "ttft_slo_ms": 10.0,
              "tpot_slo_ms": 10.0, "ttft_weight": 2.0, "tpot_weight": 2.0}

    def scores(strategy):
        return scorer_of("latency-headroom", view_of(**fields), strategy=strategy, **prices).scores(0, 0).tolist()

    assert scores("least") == [0.5, 1, 0.5]
    assert scores("most") == [1, 0.5, 0.5]


def test_latency_headroom_takes_the_smallest_miss_if_all_miss():
    # TTFT alone: 20, 40 and 30 ms of 10
    view = view_of(waiting_prefill_tokens=[1900, 3900, 2900])
    scorer = scorer_of("latency-headroom", view, base_us=0.0, per_sequence_us=0.0, per_prefill_token_us=10.0,
                       ttft_slo_ms=10.0, ttft_weight=1.0, tpot_weight=0.0)

    assert scorer.scores(0, 0).tolist() == pytest.approx([0.5, 0, 0.25])


def test_latency_headroom_needs_a_weight():
    with pytest.raises(ValueError, match="one of them must be > 0"):
        scorer_of("latency-headroom", view_of(), ttft_weight=0.0, tpot_weight=0.0)


def test_levels_that_change_are_seen():
    view = view_of(waiting=[1, 2, 3])
    scorer = scorer_of("queue-depth", view)
    scorer.scores(0, 0)

    tell(view, waiting=[3, 2, 1])

    np.testing.assert_array_equal(scorer.scores(0, 0), [0, 0.5, 1])


@pytest.mark.parametrize(("tokens", "meant", "score"), [
    (1000, (0, 2048), 0.81417), (1000, (0, 131_072), 0.54313), (9000, (0, 8192), 0.16593), (9000, (0, 2048), 0.03773),
    (1000, (1000, 1000), 1.0), (500, (1000, 2000), 0.2), (1000, (), 0.5)])
def test_context_length_prefers_narrow_ranges_that_hold_the_prompt(tokens, meant, score):
    # examples of llm-d-router's rule; 500 tokens below the range: 0.3 / 1.5
    scorer = scorer_of("context-length", view_of(2, pool=[0, 1]), workload([tokens]),
                       pools=[PoolLabel("a"), PoolLabel("b", meant)])

    assert scorer.scores(0, 0).tolist() == pytest.approx([0.5, score], abs=1e-5)


def test_prefix_affinity_may_count_the_length_of_the_prefix():
    # 100 of 200 blocks of 64: l = (6400 / 8192)^2 = 0.61035; (0.61035 + 0.5) / 2 = 0.55518
    requests = workload([[("doc", 6400), ("", 6400)], [("doc", 6400), ("", 6400)]])
    scorer = scorer_of("prefix-affinity", view_of(2), requests, block_tokens=64, length_weight=0.5)
    scorer.note_sent(0, 1, 0)

    assert scorer.scores(1, 0).tolist() == pytest.approx([0, 0.55518], abs=1e-5)


def test_prefix_affinity_counts_whole_blocks_of_its_own_size():
    requests = workload([[("doc", 96), ("", 32)]] * 2)       # 96 of 128 tokens: 6 of 8 blocks of 16, 1 of 2 of 64
    for block_tokens, share in ((0, 0.75), (64, 0.5)):
        scorer = scorer_of("prefix-affinity", view_of(1), requests, block_tokens=block_tokens)
        scorer.note_sent(0, 0, 0)
        assert scorer.scores(1, 0).tolist() == [share]


@pytest.mark.parametrize(("keys", "scores"), [
    ({}, [1, 0.5, 0, 0]), ({"prefer": "higher"}, [0, 0.5, 1, 0]), ({"value_range": [0.0, 4.0]}, [0.5, 0.25, 0, 0]),
    ({"value_range": [3.0, 4.0], "prefer": "higher"}, [0, 0, 1, 0])])
def test_endpoint_attribute_ranks_between_extremes_or_given_bounds(keys, scores):
    view = view_of(4, running=[2, 3, 4, 0], num_blocks=[9, 9, 9, 0])        # the last never reported

    assert scorer_of("endpoint-attribute", view, attribute="running", **keys).scores(0, 0).tolist() == scores


def test_endpoint_attribute_of_equal_replicas_is_1():
    scorer = scorer_of("endpoint-attribute", view_of(in_flight=3), attribute="in_flight")

    assert scorer.scores(0, 0).tolist() == [1, 1, 1]


def test_latency_headroom_may_leave_all_to_idle_replicas():
    # TTFT: 20, 40 and 30 ms of 10: all miss; the first has requests in flight
    view = view_of(waiting_prefill_tokens=[1900, 3900, 2900], in_flight=[1, 0, 0])
    prices = {"base_us": 0.0, "per_sequence_us": 0.0, "per_prefill_token_us": 10.0, "ttft_weight": 1.0,
              "tpot_weight": 0.0, "prefer_idle": True}

    assert scorer_of("latency-headroom", view, ttft_slo_ms=10.0, **prices).scores(0, 0).tolist() == [0, 0, 0.5]
    assert scorer_of("latency-headroom", view, ttft_slo_ms=25.0, **prices).scores(0, 0).tolist() == [1, 0, 0.5]
    tell(view, in_flight=1)
    assert scorer_of("latency-headroom", view, ttft_slo_ms=10.0, **prices).scores(0, 0).tolist() == [0.5, 0, 0.25]


def test_header_label_is_1_for_the_pool_that_a_label_names():
    requests = workload([100] * 3, slo_class=[1, 0, -1], tenant=[0, 0, 0])
    requests.labels = {"slo_class": ["chat", "batch"], "tenant": ["acme"]}
    view, pools = view_of(3, pool=[0, 1, 2]), [PoolLabel("batch"), PoolLabel("chat"), PoolLabel("acme")]
    scorer = scorer_of("header-label", view, requests, pools)

    assert [scorer.scores(row, 0).tolist() for row in range(3)] == [[1, 0, 0], [0, 1, 0], [0, 0, 0]]
    assert scorer_of("header-label", view, requests, pools, label="tenant").scores(2, 0).tolist() == [0, 0, 1]


def with_items(*contents):
    """Return requests with items of these contents."""
    return msgspec.structs.replace(workload([100] * len(contents)), items=items_of(
        np.array([len(each) for each in contents]), np.array([code for each in contents for code in each]),
        np.array([10 * i for each in contents for i in range(len(each))]), np.full(sum(map(len, contents)), 5)))


def test_mm_cache_affinity_is_the_share_of_distinct_items_that_were_sent_there():
    requests = with_items([1, 2], [3], [2, 2, 3, 4], [])
    scorer = scorer_of("mm-cache-affinity", view_of(3), requests)
    scorer.note_sent(0, 0, 0)
    scorer.note_sent(1, 0, 0)
    scorer.note_sent(1, 2, 0)

    # 2, 3 and 4: two of three at 0, one at 2
    assert scorer.scores(2, 0).tolist() == pytest.approx([2 / 3, 0, 1 / 3])
    assert scorer.scores(3, 0).tolist() == [0, 0, 0]
    scorer.note_closed(0, 0)
    assert scorer.scores(2, 0).tolist() == pytest.approx([0, 0, 1 / 3])


def test_mm_cache_affinity_forgets_the_oldest_items_of_a_replica():
    # 1, 2, then 1 again and 3: 2 is the oldest
    requests = with_items([1, 2], [1], [3], [2], [1, 3])
    scorer = scorer_of("mm-cache-affinity", view_of(2), requests, capacity_items=2)
    for row in (0, 1, 2):
        scorer.note_sent(row, 1, 0)

    assert scorer.scores(3, 0).tolist() == [0, 0]
    assert scorer.scores(4, 0).tolist() == [0, 1]


def burst_of(rows, prompts, in_flight=(1, 0), **parameters):
    """Return the replica on which each request of a window is placed; -1: on none."""
    requests = workload(prompts)
    scorer = scorer_of("burst-prefix", view_of(len(in_flight), in_flight=list(in_flight), in_flight_tokens=[
        100 * number for number in in_flight]), requests, **parameters)
    for row in rows:
        scorer.wait(row)
    return [int(np.argmax(scores)) if scores.any() else -1 for scores in (
        scorer.scores(row, 0) for row in range(len(prompts)))]


# Three requests with a prompt of 64 tokens, two with one of 200, and one of its own.
BURST = [[("a", 64)], [("b", 200)], 50, [("a", 64)], [("b", 200)], [("a", 64)]]


@pytest.mark.parametrize(("parameters", "placed"), [
    # b, the longest, on replica 1, which has 0 requests, then 2; a on replica 0: 1, then 4; the last on replica 1
    ({}, [0, 1, 1, 0, 1, 0]),
    # b on 1: 2; two of a on 0: 3; the third on 1: 3; a tie: the other one on 0
    ({"most_together": 2}, [0, 1, 0, 0, 1, 1]),
    # 100 and 0 tokens: b on 1: 400; a on 0: 292; the other one on 0
    ({"balance_by": "tokens"}, [0, 1, 0, 0, 1, 0]),
    # a has 4 blocks: too few. b on 1: 2; then, as they came: a on 0: 2; 50 on 0: 3; a on 1: 3; a on 0
    ({"min_colocate_blocks": 5}, [0, 1, 0, 1, 1, 0]),
])
def test_burst_prefix_places_equal_prompts_of_a_window_together(parameters, placed):
    assert burst_of(range(6), BURST, **parameters) == placed


def test_burst_prefix_places_nothing_without_a_window():
    assert burst_of([], BURST) == [-1] * 6
    assert burst_of([0, 3], BURST) == [1, -1, -1, 1, -1, -1]
