"""Routers of LiteLLM, production-stack and AIBrix, by examples worked out by hand."""
from collections import Counter

import pytest

from routing.faces import router_of, tell, view_of, workload
from simulator.domain import records
from simulator.routing.parts.quotas import Quota

SECOND, MINUTE = 10**9, 60 * 10**9


def two_pools():
    return view_of(2, pool=[0, 1])


def end(router, requests, row, replica, *, sent_s=0.0, took_s=1.0, tokens=1, ttft_s=None, status=records.COMPLETED):
    """Let a request be sent to a replica and leave it."""
    record = requests.requests[row:row + 1]
    record["status"], record["output_tokens"] = status, tokens
    record["completed_ns"] = round((sent_s + took_s) * SECOND)
    record["first_token_ns"] = -1 if ttft_s is None else round((sent_s + ttft_s) * SECOND)
    router.note_sent(row, replica, round(sent_s * SECOND))
    router.note_left(row, replica, round((sent_s + took_s) * SECOND))


@pytest.mark.parametrize(("quotas", "is_open", "scores"), [
    ([Quota(weight=3), Quota(rpm=9), Quota(weight=1)], [1, 1, 1], [3, 0, 1]),
    ([Quota(weight=3), Quota(rpm=9), Quota(tpm=1)], [0, 1, 1], [None, 9, 0]),       # no weight is open: requests
    ([Quota(weight=3, tpm=5), Quota(tpm=7), Quota(weight=0)], [0, 1, 1], [None, 7, 0]),
    ([Quota(), Quota(), Quota()], [1, 0, 1], [1, None, 1]),
    ([], [1, 1, 1], [1, 1, 1])])
def test_weights_are_the_first_kind_that_an_open_replica_has(quotas, is_open, scores):
    router = router_of("weighted_random", view_of(3, pool=[0, 1, 2], is_routable=is_open), quotas=quotas)

    expected = [float("-inf") if score is None else score for score in scores]
    assert router.scores(0, 0).tolist() == expected


def test_each_replica_of_a_pool_has_its_weight():
    # weights 1, 1, 4: 500, 500 and 2000 of 3000, standard deviations 20 and 26
    router = router_of("weighted_random", view_of(3, pool=[0, 0, 1]), quotas=[Quota(weight=1), Quota(weight=4)])

    found = Counter(router.choose_replica(0, 0) for _ in range(3000))

    assert abs(found[0] - 500) < 4 * 20
    assert abs(found[2] - 2000) < 4 * 26


def test_usage_counts_tokens_of_completed_requests_in_the_minute_of_the_clock():
    requests, view = workload([100, 100, 100]), two_pools()
    router = router_of("litellm_usage", view, requests)
    end(router, requests, 0, 0, sent_s=10.0, took_s=49.9, tokens=20)                    # 120 tokens at 59.9 s
    end(router, requests, 1, 1, sent_s=10.0, took_s=49.0, status=records.TIMED_OUT)     # none

    assert router.scores(2, MINUTE - 1).tolist() == [-120, 0]
    assert router.scores(2, MINUTE).tolist() == [0, 0]


def test_usage_stops_one_request_before_the_limit():
    # rpm 3: after 1 request 1 + 1 < 3, after 2 requests 2 + 1 >= 3
    requests, view = workload([100] * 3), view_of(1)
    router = router_of("litellm_usage", view, requests, quotas=[Quota(rpm=3)])
    chosen = []
    for row in range(3):
        chosen.append(router.choose_replica(row, 0))
        router.note_sent(row, 0, 0)

    assert chosen == [0, 0, -1]
    assert router.choose_replica(0, MINUTE) == 0


def test_usage_lets_the_first_request_of_a_minute_pass_a_limit_of_one():
    assert router_of("litellm_usage", view_of(1), quotas=[Quota(rpm=1)]).choose_replica(0, 0) == 0


def test_usage_leaves_out_replicas_that_the_prompt_would_take_above_tpm():
    requests = workload([100, 101])
    router = router_of("litellm_usage", two_pools(), requests, quotas=[Quota(tpm=100), Quota()])

    assert router.scores(0, 0).tolist() == [0, 0]
    assert router.scores(1, 0).tolist() == [float("-inf"), 0]


def test_a_replica_is_as_fast_as_its_tokens():
    # 2 s for 10 tokens, 1 s for 4: 0.2 and 0.25 s a token
    requests = workload([100] * 3)
    router = router_of("litellm_latency", two_pools(), requests, streams=False)
    end(router, requests, 0, 0, took_s=2.0, tokens=10)
    end(router, requests, 1, 1, took_s=1.0, tokens=4)

    assert router.scores(2, 2 * SECOND).tolist() == [-0.2, -0.25]
    assert router.choose_replica(2, 2 * SECOND) == 0


def test_times_to_first_token_decide_where_they_are_known():
    requests = workload([100] * 3)
    router = router_of("litellm_latency", two_pools(), requests)
    end(router, requests, 0, 0, took_s=2.0, tokens=10, ttft_s=0.5)
    end(router, requests, 1, 1, took_s=1.0, tokens=4)                   # no token was seen: 0.25 s a token

    assert router.scores(2, 2 * SECOND).tolist() == [-0.5, -0.25]


def test_a_replica_without_samples_is_tried_first_and_its_zero_stays():
    # 0.2 s a token for replica 0; replica 1 is open and unused. Then (0 + 0.3) / 2 = 0.15 < 0.2.
    requests = workload([100] * 3)
    router = router_of("litellm_latency", two_pools(), requests, streams=False)
    end(router, requests, 0, 0, tokens=5)
    assert router.choose_replica(1, 2 * SECOND) == 1
    end(router, requests, 1, 1, sent_s=2.0, took_s=3.0, tokens=10)

    assert router.scores(2, 5 * SECOND).tolist() == [-0.2, -0.15]


def test_no_zero_stays_while_no_replica_has_samples():
    # chosen twice before the first sample; then replica 1 has 0.3 alone
    requests = workload([100] * 3)
    router = router_of("litellm_latency", two_pools(), requests, streams=False)
    assert {router.choose_replica(0, 0) for _ in range(20)} == {0, 1}
    end(router, requests, 1, 1, took_s=3.0, tokens=10)

    assert router.scores(2, 5 * SECOND).tolist() == [0, -0.3]


def test_a_timeout_weighs_a_thousand_seconds_until_samples_push_it_out():
    requests = workload([100] * 5)
    router = router_of("litellm_latency", view_of(1), requests, streams=False, max_latency_list_size=2)
    end(router, requests, 0, 0, tokens=0, status=records.TIMED_OUT)
    end(router, requests, 1, 0, took_s=2.0, tokens=1)
    assert router.scores(4, 5 * SECOND).tolist() == [-501]

    end(router, requests, 2, 0, took_s=4.0, tokens=0)                   # no tokens: whole seconds
    assert router.scores(4, 5 * SECOND).tolist() == [-3]


def test_samples_are_forgotten_after_the_last_of_them():
    requests = workload([100] * 3)
    router = router_of("litellm_latency", view_of(1), requests, streams=False, ttl_s=10.0)
    end(router, requests, 0, 0, took_s=2.0)

    assert router.scores(2, 12 * SECOND - 1).tolist() == [-2]
    assert router.scores(2, 12 * SECOND).tolist() == [0]


def test_the_buffer_makes_near_latencies_equal():
    requests = workload([100] * 5)
    for buffer, expected in ((0.0, {0}), (0.5, {0, 1})):
        router = router_of("litellm_latency", view_of(3), requests, streams=False, lowest_latency_buffer=buffer)
        for replica, took_s in enumerate((2.0, 3.0, 3.1)):
            end(router, requests, replica, replica, took_s=took_s)
        assert {router.choose_replica(4, 5 * SECOND) for _ in range(40)} == expected


@pytest.mark.parametrize(("percentile", "expected"), [(0.5, 2.0), (0.75, 3.0), (0.76, 4.0), (0.0, 1.0)])
def test_a_percentile_is_the_sample_at_its_rank(percentile, expected):
    # of 1, 2, 3, 4: number ceil(4 p) from 1
    requests = workload([100] * 5)
    router = router_of("litellm_latency", view_of(1), requests, ttft_percentile=percentile)
    for row, ttft_s in enumerate((3.0, 1.0, 4.0, 2.0)):
        end(router, requests, row, 0, took_s=5.0, ttft_s=ttft_s)

    assert router.scores(4, 5 * SECOND).tolist() == [-expected]


def test_latencies_leave_out_replicas_at_their_limit():
    requests = workload([100] * 3)
    router = router_of("litellm_latency", two_pools(), requests, quotas=[Quota(rpm=1), Quota(tpm=99)])
    assert router.scores(2, SECOND).tolist() == [0, float("-inf")]

    end(router, requests, 0, 0, tokens=4)

    assert router.choose_replica(2, 2 * SECOND) == -1
    assert router.choose_replica(2, MINUTE) == 0


def test_a_request_that_lost_its_replica_is_no_sample():
    requests = workload([100] * 3)
    router = router_of("litellm_latency", view_of(1), requests, streams=False)
    end(router, requests, 0, 0, status=records.RUNNING)

    assert router.scores(2, 2 * SECOND).tolist() == [0]


def test_each_set_of_open_replicas_has_its_own_round():
    # all open: 0, 1; without 0: 1, 2; all open again: 2, 0
    view = view_of(3)
    router = router_of("round_robin", view, counter="open_set")
    chosen = []
    for is_open in ([1, 1, 1], [0, 1, 1], [1, 1, 1]):
        tell(view, is_routable=is_open)
        chosen += [router.choose_replica(0, 0) for _ in range(2)]

    assert chosen == [0, 1, 1, 2, 2, 0]


def test_a_request_without_session_goes_to_the_first_of_the_lowest_rate():
    # at 0 s: 1, 0 and 0 requests; replica 1 gets another; after a minute all have 0
    view = view_of(3)
    router = router_of("session", view, otherwise="lowest_rate")
    router.note_sent(0, 0, 0)
    assert router.choose_replica(1, 0) == 1
    router.note_sent(1, 1, 0)

    assert router.choose_replica(2, SECOND) == 2
    assert router.choose_replica(2, 62 * SECOND) == 0


@pytest.mark.parametrize(("counts_rest", "chosen"), [(False, 0), (True, 2)])
def test_the_rest_of_a_prompt_may_count_as_a_block(counts_rest, chosen):
    # 40 tokens are 2 blocks of 16 and a rest of 8: 32 < 48 go by rate, to the first without requests; 3 blocks match
    requests = workload([[("sys", 40)], [("sys", 40)], [("sys", 48)]])
    router = router_of("prefixaware", view_of(), requests, min_match_tokens=48, counts_rest=counts_rest, ties="first")
    router.note_sent(0, 2, 0)

    assert router.choose_replica(1, 0) == chosen
    assert router.choose_replica(2, 0) == 0                 # its third block is another


def test_the_rest_of_a_private_prompt_is_found_again():
    # 20 tokens of its own: 2 blocks with the rest
    router = router_of("prefixaware", view_of(), workload([20, 20]), min_match_tokens=32, counts_rest=True,
                       ties="first")
    router.note_sent(0, 2, 0)

    assert router.choose_replica(0, 0) == 2
    assert router.choose_replica(1, 0) == 0


def complete(router, requests, row, replica, *, times_s, outputs):
    """Let a request complete: enqueued, scheduled, first and last token at these times."""
    record = requests.requests[row:row + 1]
    record["status"], record["output_tokens"] = records.COMPLETED, outputs
    for field, time_s in zip(("enqueued_ns", "scheduled_ns", "first_token_ns", "completed_ns"), times_s, strict=True):
        record[field] = round(time_s * SECOND)
    router.note_sent(row, replica, 0)
    router.note_left(row, replica, record["completed_ns"][0])


def test_latency_is_expected_from_means_of_completed_requests():
    # Replica 0: 1 s of queue, 0.5 s for 100 tokens, 2 s for 20; replica 1: 0, 1 s for 300, 1 s for 40. Means of both
    # replicas: 200 prompt tokens, 30 output tokens. 1 + 0.005 x 200 + 0.1 x 30 = 5; 200 / 300 + 0.025 x 30 = 1.41667.
    requests = workload([100, 300, 10])
    router = router_of("least_latency", two_pools(), requests)
    complete(router, requests, 0, 0, times_s=(0, 1, 1.5, 3.5), outputs=20)
    complete(router, requests, 1, 1, times_s=(0, 0, 1, 2), outputs=40)

    assert router.scores(2, 4 * SECOND).tolist() == pytest.approx([-5, -1.4166667])
    assert router.choose_replica(2, 4 * SECOND) == 1


def test_a_replica_that_completed_nothing_has_no_latency():
    requests = workload([100, 10])
    router = router_of("least_latency", two_pools(), requests, window_s=60.0)
    assert router.scores(1, 0).tolist() == [0, 0]
    complete(router, requests, 0, 0, times_s=(0, 1, 1.5, 3.5), outputs=20)

    assert router.scores(1, 4 * SECOND).tolist() == pytest.approx([-3.5, 0])
    assert router.scores(1, 70 * SECOND).tolist() == pytest.approx([0, 0])


def test_throughput_counts_prompts_twice():
    # 100 prompt tokens at replica 0: 200; 50 and 99 output tokens at replica 1: 199; after the window nothing
    requests = workload([100, 50, 10])
    router = router_of("least_throughput", two_pools(), requests)
    router.note_sent(0, 0, 0)
    router.note_sent(1, 1, 0)
    requests.requests["output_tokens"][1] = 99
    router.note_left(1, 1, SECOND)

    assert router.scores(2, SECOND).tolist() == [-200, -199]
    assert router.choose_replica(2, SECOND) == 1
    assert router.scores(2, 12 * SECOND).tolist() == [0, 0]
