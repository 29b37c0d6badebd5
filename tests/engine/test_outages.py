"""Failures, on timelines worked out by hand: every iteration takes 5 ms, whatever is in it."""
import pytest

from simulator.domain import records
from simulator.domain.failures import Failure, Health
from support import upkeep
from support.scenario import load
from support.upkeep import MS

PRICES = {"base_us": 5000.0, "per_sequence_us": 0.0, "per_prefill_token_us": 0.0, "per_context_token_us": 0.0}
every_way = pytest.mark.parametrize("fast", [True, False], ids=["fast", "slow"])


def serve(requests, failures, *, options=None, host=None, fast=True, replicas=2, **setup):
    """Serve (arrival in ms, prompt tokens, output tokens, more keys) under round robin."""
    described = [{"id": str(i), "arrival": arrival / 1e3, "prompt": [["uniq", prompt]], "output_len": outputs} | more
                 for i, (arrival, prompt, outputs, more) in enumerate(requests)]
    scenario = load({"options": options or {}, "prices": PRICES, "requests": described, "host": host or {}})
    return upkeep.run(scenario, failures=failures, replicas=replicas, fast_forward=fast, **setup)


def stop(at_ms, which=0, **more):
    return Failure(kind="stop", which=which, at_s=at_ms / 1e3, **more)


PAIR = [(0, 10, 10, {}), (0, 10, 10, {})]       # one for each replica; tokens at 5, 10, ..., 50 ms


@every_way
def test_a_retried_request_keeps_its_tokens(fast):
    # Replica 0 stops within 20..25. Replica 1 is in the same iteration; from 25 on it computes the prompt and the four
    # tokens again, and the fifth comes at 30, ten after the fourth.
    outcome = serve(PAIR, [stop(22.5)], fast=fast)
    assert outcome.times_ms(0) == [5, 10, 15, 20, 30, 35, 40, 45, 50, 55]
    assert outcome.times_ms(1) == [5 * i for i in range(1, 11)]
    assert outcome.gaps == {5: 17, 10: 1}
    assert outcome.requests["replica"].tolist() == [1, 1]
    assert outcome.requests["output_tokens"].tolist() == [10, 10]
    assert outcome.journeys["retries"].tolist() == [1, 0]
    assert outcome.retries == {0: [(0, 0, 22.5 * MS)]}
    assert outcome.journeys["downtime_ns"].tolist() == [0, 0]
    assert outcome.changes(0) == [(22.5, "down", "failure"), (22.5, "down", "detection")]


@every_way
def test_an_iteration_that_would_end_at_the_instant_of_a_stop_does_not(fast):
    outcome = serve(PAIR, [stop(20)], fast=fast)
    assert outcome.times_ms(0)[:4] == [5, 10, 15, 25]


@every_way
def test_until_a_stop_is_noticed_requests_are_sent_there_and_stay(fast):
    # Noticed at 42.5, within the iteration 40..45 of replica 1; the round goes 0, 1, 0 and the third came at 30.
    outcome = serve([*PAIR, (30, 10, 1, {})], [stop(22.5)], health=Health(detection_delay_s=0.02), fast=fast)
    assert outcome.times_ms(0)[:5] == [5, 10, 15, 20, 50]
    assert outcome.times_ms(2) == [50]
    assert outcome.retries == {0: [(0, 0, 42.5 * MS)], 2: [(0, 30 * MS, 42.5 * MS)]}
    assert outcome.journeys["downtime_ns"].tolist() == [20 * MS, 0, 12.5 * MS]
    assert outcome.journeys["retries"].tolist() == [1, 0, 1]
    assert outcome.changes(0) == [(22.5, "down", "failure"), (42.5, "down", "detection")]


def test_checks_notice_at_their_next_turn():
    # Asked at 30, certain 5 later.
    outcome = serve(PAIR, [stop(22.5)], health=Health(check_interval_s=0.01, detection_delay_s=0.005))
    assert outcome.changes(0)[1] == (35, "down", "detection")


def test_checks_in_a_row_close_and_reopen_a_replica():
    # Each 10 ms, certain 1 later: no answer at 30, 40 and 50; answers from 62.5 on, at 70 and 80.
    health = Health(check_interval_s=0.01, failures=3, successes=2, detection_delay_s=0.001)
    outcome = serve([*PAIR, (100, 1, 1, {})], [stop(22.5, duration_s=0.04)], health=health)
    assert outcome.changes(0) == [(22.5, "down", "failure"), (51, "down", "detection"), (62.5, "up", "recovery"),
                                  (80, "up", "reopening")]
    # Two checks without an answer are not three.
    outcome = serve(PAIR, [stop(22.5, duration_s=0.02)], health=health)
    assert [cause for *_, cause in outcome.changes(0)] == ["failure", "recovery"]


def test_continuous_checks_are_not_counted():
    with pytest.raises(ValueError, match="failures: expected 1 with check_interval_s = 0"):
        Health(failures=3)


@every_way
def test_a_restarted_request_begins_again(fast):
    # Four tokens are void; ten more come from 30 on. Its time to first token is that of the second beginning, and the
    # three gaps of the first stay.
    outcome = serve(PAIR, [stop(22.5, on_failure="restart")], fast=fast)
    assert outcome.requests["first_token_ns"].tolist() == [30 * MS, 5 * MS]
    assert outcome.requests["completed_ns"].tolist() == [75 * MS, 50 * MS]
    assert outcome.requests["output_tokens"].tolist() == [10, 10]
    assert outcome.gaps == {5: 3 + 9 + 9}


@every_way
def test_a_lost_request_has_failed_with_what_it_got(fast):
    outcome = serve(PAIR, [stop(22.5, on_failure="lost")], health=Health(detection_delay_s=0.001), fast=fast)
    assert outcome.requests["status"].tolist() == [records.FAILED, records.COMPLETED]
    assert outcome.requests["output_tokens"].tolist() == [4, 10]
    assert records.CAUSE_NAMES[outcome.journeys["cause"][0]] == "lost"
    assert outcome.journeys["downtime_ns"].tolist() == [1 * MS, 0]


def test_retries_are_limited():
    # To replica 1, then, where one retry is too many, nowhere.
    stops = [stop(22.5, max_retries=1), stop(40, which=1, max_retries=1)]
    outcome = serve([(0, 10, 20, {})], stops, replicas=3)
    assert outcome.journeys["retries"].tolist() == [1]
    assert outcome.requests["status"].tolist() == [records.FAILED]
    outcome = serve([(0, 10, 20, {})], [stop(22.5), stop(40, which=1)], replicas=3)
    assert outcome.journeys["retries"].tolist() == [2]
    assert outcome.retries == {0: [(0, 0, 22.5 * MS), (1, 22.5 * MS, 40 * MS)]}


@every_way
def test_a_lost_request_without_a_token_is_dropped(fast):
    # Its prompt takes until 5.
    outcome = serve([(0, 10, 10, {})], [stop(2, on_failure="lost")], fast=fast)
    assert outcome.requests["status"].tolist() == [records.DROPPED]


def test_a_request_that_began_anew_and_is_lost_has_failed_for_its_client_had_tokens():
    # Two tokens by 12 are void; at 14, before the first token of its second beginning, it is lost.
    stops = [stop(12, on_failure="restart"), stop(14, which=1, on_failure="lost")]
    outcome = serve([(0, 10, 10, {})], stops)
    assert outcome.requests["first_token_ns"].tolist() == [-1]
    assert outcome.requests["status"].tolist() == [records.FAILED]


def test_a_request_that_streamed_and_is_refused_where_it_comes_next_has_failed():
    # The second pool has one block for the 24 tokens of its text by then.
    outcome = serve([(0, 20, 10, {})], [stop(22.5)], pools=[{"replicas": 1}, {"replicas": 1, "num_gpu_blocks": 2}])
    assert outcome.requests["replica"].tolist() == [1]
    assert outcome.requests["output_tokens"].tolist() == [4]
    assert outcome.requests["status"].tolist() == [records.FAILED]


def test_without_a_replica_left_a_request_that_streamed_has_failed():
    outcome = serve([(0, 10, 10, {})], [stop(12)], replicas=1)
    assert outcome.requests["status"].tolist() == [records.FAILED]
    assert records.CAUSE_NAMES[outcome.journeys["cause"][0]] == "no_replica"


@every_way
def test_a_stop_that_is_over_before_anybody_noticed_still_loses_the_cache(fast):
    # Alone: stopped from 22.5 to 32.5. The request is sent back there at once and computed again by 37.5.
    outcome = serve([(0, 10, 10, {})], [stop(22.5, duration_s=0.01)], health=Health(detection_delay_s=1.0), replicas=1,
                    fast=fast)
    assert outcome.times_ms(0) == [5, 10, 15, 20, 37.5, 42.5, 47.5, 52.5, 57.5, 62.5]
    assert outcome.journeys[["downtime_ns", "retries"]].tolist() == [(10 * MS, 1)]
    assert outcome.changes(0) == [(22.5, "down", "failure"), (32.5, "up", "recovery")]


@every_way
def test_behind_a_lost_link_a_replica_goes_on_where_it_stood(fast):
    # The iteration 20..25 stands still at 22.5 for ten.
    failure = Failure(kind="link", which=0, at_s=0.0225, duration_s=0.01)
    outcome = serve(PAIR, [failure], health=Health(detection_delay_s=1.0), fast=fast)
    assert outcome.times_ms(0) == [5, 10, 15, 20, 35, 40, 45, 50, 55, 60]
    assert outcome.journeys[["downtime_ns", "retries"]].tolist() == [(10 * MS, 0), (0, 0)]
    assert outcome.gaps == {5: 17, 15: 1}
    assert outcome.replicas["busy_ns"].tolist() == [50 * MS, 50 * MS]
    assert outcome.changes(0) == [(22.5, "cut_off", "failure"), (32.5, "up", "recovery")]


@pytest.mark.parametrize(("kind", "cached"), [("stop", 0), ("link", 32)])
def test_a_stop_loses_the_prefix_cache_and_a_lost_link_keeps_it(kind, cached):
    # Alone, away from 20 to 30; two blocks of 16 of the first prompt, 40 tokens, can be found.
    shared = {"prompt": [["group", "s", 40]]}
    failure = Failure(kind=kind, which=0, at_s=0.02, duration_s=0.01)
    outcome = serve([(0, 40, 1, shared), (40, 40, 1, shared)], [failure], replicas=1)
    assert outcome.requests["cached_tokens"].tolist() == [0, cached]


@every_way
def test_a_straggler_takes_longer_for_what_it_begins(fast):
    # Slow from 22.5 to 40: the iteration 20..25 was begun before, then 25..35, 35..45; from 45 on all is well.
    failure = Failure(kind="slow", which=0, at_s=0.0225, duration_s=0.0175, slow_factor=2.0)
    outcome = serve(PAIR, [failure], fast=fast)
    assert outcome.times_ms(0) == [5, 10, 15, 20, 25, 35, 45, 50, 55, 60]
    assert outcome.changes(0) == [(22.5, "slow", "failure"), (40, "up", "recovery")]


def test_slow_factors_multiply():
    slow = [Failure(kind="slow", which=0, at_s=0.0, duration_s=duration_s, slow_factor=factor)
            for duration_s, factor in ((0.05, 2.0), (0.041, 3.0))]
    # 30 ms for the first, 30..60 for the second, and then 5.
    assert serve([(0, 10, 4, {})], slow).times_ms(0) == [30, 60, 65, 70]


def test_a_repaired_replica_gets_requests_after_a_delay():
    # Down from 10 to 20, open again at 50; the round skips it in between.
    requests = [(arrival, 10, 1, {}) for arrival in (0, 0, 30, 40, 60, 60)]
    outcome = serve(requests, [stop(10, duration_s=0.01)], health=Health(reopening_delay_s=0.03))
    assert outcome.requests["replica"].tolist() == [0, 1, 1, 1, 0, 1]
    assert outcome.changes(0) == [(10, "down", "failure"), (10, "down", "detection"), (20, "up", "recovery"),
                                  (50, "up", "reopening")]


def test_faults_that_overlap_last_as_long_as_one_of_them_does():
    outcome = serve(PAIR, [stop(10, duration_s=0.02), stop(15, duration_s=0.03)])
    assert outcome.changes(0) == [
        (10, "down", "failure"), (10, "down", "detection"), (15, "down", "failure"), (30, "down", "recovery"),
        (45, "up", "recovery"), (45, "up", "reopening")]


def test_a_node_fails_whole():
    # Nodes 0 and 1 of two replicas each.
    outcome = serve([(0, 10, 10, {})] * 4, [stop(12, which=1, target="node")], replicas=4, replicas_per_node=2)
    assert [bool(outcome.changes(replica)) for replica in range(4)] == [False, False, True, True]
    assert outcome.journeys["retries"].tolist() == [0, 0, 1, 1]
    assert set(outcome.requests["replica"].tolist()) == {0, 1}


@every_way
def test_requests_on_the_way_to_the_queue_are_seen_to_when_they_get_there(fast):
    # The host takes 20 ms. Sent to replica 0 at 0, there at 20; noticed at 10, sent on at 20, there at 40.
    outcome = serve([(0, 10, 1, {})], [stop(10)], host={"queue_base_us": 20_000.0}, fast=fast)
    assert outcome.requests[["replica", "first_token_ns"]].tolist() == [(1, 45 * MS)]
    assert outcome.journeys[["downtime_ns", "retries"]].tolist() == [(10 * MS, 1)]


def test_a_client_may_give_up_on_a_replica_that_stands_still():
    # Running and waiting, both at 30; the first could only leave when its replica is given up.
    options = {"max_num_seqs": 1}
    requests = [(0, 10, 10, {"deadline": 0.03}), (1, 10, 10, {"deadline": 0.03})]
    outcome = serve(requests, [stop(12)], health=Health(detection_delay_s=0.04), options=options, replicas=1)
    assert outcome.requests["status"].tolist() == [records.TIMED_OUT, records.TIMED_OUT]
    assert outcome.requests["output_tokens"].tolist() == [2, 0]


@every_way
def test_the_order_on_a_replica_is_kept(fast):
    # One at a time: 0 runs, 2 and 4 wait; on replica 1, 1 runs and 3 waits. They go behind in this order.
    outcome = serve([(0, 10, 4, {})] * 5, [stop(7)], options={"max_num_seqs": 1}, fast=fast)
    first = outcome.requests["scheduled_ns"]
    assert first[0] < first[3] < first[2] < first[4]
    assert outcome.times_ms(0) == [5, 45, 50, 55]       # behind 1, 5..20, and 3, 20..40


@pytest.mark.parametrize("options", [
    {"async_scheduling": True}, {"num_speculative_tokens": 2}], ids=["async", "speculative"])
def test_other_ways_to_iterate_recover_as_well(options):
    outcome = serve(PAIR, [stop(22.5, duration_s=0.01)], options=options)
    assert outcome.requests["output_tokens"].tolist() == [10, 10]
    assert [len(outcome.token_times[row]) for row in range(2)] == [10, 10]


def test_a_pipeline_stands_still_as_a_whole():
    # Two stages of 2.5 ms: iterations of one request follow each other every 5 ms. Away from 11 to 21, in the first
    # stage of the third, 10..12.5, which ends at 22.5, and its second at 25.
    failure = Failure(kind="link", which=0, at_s=0.011, duration_s=0.01)
    outcome = serve([(0, 10, 5, {})], [failure], health=Health(detection_delay_s=1.0), layers=[1, 1])
    assert outcome.times_ms(0) == [5, 10, 25, 30, 35]
    outcome = serve([(0, 10, 5, {}), (0, 10, 5, {})], [stop(11)], layers=[1, 1])
    assert outcome.requests["output_tokens"].tolist() == [5, 5]


def test_a_new_failure_does_not_disturb_the_others():
    requests = [(20 * i, 10, 10, {}) for i in range(50)]
    often = Failure(kind="slow", which="each", mtbf_s=0.1, mttr_s=0.05, slow_factor=2.0)
    once = serve(requests, [often], seed=3)
    again = serve(requests, [often, Failure(kind="slow", which="any", mtbf_s=0.2, duration_s=0.01)], seed=3)
    begun = {row["time_ns"] for row in once.lifecycle[1:]}
    assert len(begun) > 10
    assert begun <= {row["time_ns"] for row in again.lifecycle}


def test_failures_have_their_mean_time():
    # 10 s of one replica, failures every 10 ms in the mean, over at once: some 1000, within four standard deviations.
    requests = [(10_000, 10, 1, {})]
    for law, shape in (("exponential", 1.0), ("weibull", 2.0), ("constant", 1.0)):
        failure = Failure(kind="slow", which=0, mtbf_s=0.01, mtbf_law=law, mtbf_shape=shape, duration_s=1e-9)
        outcome = serve(requests, [failure], replicas=1)
        num_failures = sum(cause == "failure" for _, _, cause in outcome.changes(0))
        assert abs(num_failures - 1000) < 130


@every_way
@pytest.mark.parametrize(("at_ms", "cached"), [(30, [0, 0, 32]), (52, [0, 32, 32]), (75, [0, 32, 0])])
def test_a_cache_is_emptied_while_the_replica_has_no_request(at_ms, cached, fast):
    # Prompts of 40 equal tokens, two blocks of 16 of which are found; at 52 ms the second one runs.
    requests = [(time_ms, 40, 2, {"prompt": [["group", "a", 40]]}) for time_ms in (0, 50, 100)]
    failure = Failure(kind="cache", which=0, at_s=at_ms / 1e3)
    outcome = serve(requests, [failure], fast=fast, replicas=1)
    assert outcome.requests["cached_tokens"].tolist() == cached
    assert outcome.times_ms(2) == [105, 110]
    assert outcome.changes(0) == []
    assert outcome.diagnosis == ([] if at_ms != 52 else [
        "failures: 1 times a prefix cache was not emptied: its replica had a request, did not serve, or keeps none"])


@pytest.mark.parametrize("keys", [
    {}, {"at_s": 1.0, "mtbf_s": 1.0}, {"at_s": 1.0, "duration_s": 1.0, "mttr_s": 1.0}, {"at_s": 1.0, "target": "pool"}])
def test_contradictions_are_refused(keys):
    with pytest.raises(ValueError, match=r"give|takes"):
        Failure(kind="stop", **keys)
    with pytest.raises(ValueError, match="takes neither duration_s"):
        Failure(kind="cache", at_s=1.0, duration_s=1.0)


@pytest.mark.parametrize(("keys", "named"), [
    ({"kind": "stop", "slow_factor": 3.0}, ["slow_factor"]), ({"kind": "link", "slow_factor": 3.0}, ["slow_factor"]),
    ({"kind": "cache", "on_failure": "lost", "slow_factor": 3.0, "max_retries": 1},
     ["slow_factor", "on_failure", "max_retries"]),
    ({"kind": "slow", "on_failure": "restart", "max_retries": 1}, ["on_failure", "max_retries"]),
    ({"kind": "stop", "on_failure": "lost", "max_retries": 1}, ["max_retries"]),
    ({"kind": "stop", "mtbf_law": "constant", "mtbf_shape": 2.0}, ["mtbf_law", "mtbf_shape"]),
    ({"kind": "stop", "mttr_law": "weibull", "mttr_shape": 2.0}, ["mttr_law", "mttr_shape"]),
    ({"kind": "stop", "mttr_s": 1.0, "mttr_shape": 2.0}, ["mttr_shape"])])
def test_keys_without_an_effect_are_refused_all_at_once(keys, named):
    with pytest.raises(ValueError, match="has an effect only with") as refused:
        Failure(at_s=1.0, **keys)
    assert [fault.split()[0] for fault in str(refused.value).split("; ")] == named


def test_keys_that_an_unread_key_leaves_at_their_defaults_are_no_fault():
    Failure(kind="stop", at_s=1.0, slow_factor=2.0, mtbf_law="exponential", mttr_shape=1.0)
    Failure(kind="slow", at_s=1.0, on_failure="migrate", max_retries=1, slow_factor=3.0)
