"""Several instances of a gateway, and decisions that take time, in whole experiments with values worked by hand."""
import numpy as np
import pytest

import simulator
from simulator.domain import records
from simulator.errors import InputErrors

MS = 1_000_000
BASE = """
[topology]
replicas = 3
[engine]
num_gpu_blocks = 2000
max_model_len = 4096
max_num_seqs = 8
max_num_batched_tokens = 512
[latency]
backend = "linear"
base_us = 1000
per_prefill_token_us = 10
per_sequence_us = 0
per_context_token_us = 0
[cluster.routing]
policy = "lor"
[workload]
type = "trace"
path = "requests.csv"
"""
FIVE = [(0, 100, 50)] * 5       # at once, and longer than all decisions


def trace(rows, columns=""):
    return f"arrived_at,num_prefill_tokens,num_decode_tokens{columns}\n" + "".join(
        ",".join(map(str, row)) + "\n" for row in rows)


@pytest.fixture
def run(tmp_path):
    """Return a function that runs requests behind gateways."""
    (tmp_path / "gateways.toml").write_text(BASE)

    def run(rows=FIVE, columns="", threads=1, **settings):
        (tmp_path / "requests.csv").write_text(trace(rows, columns))
        return simulator.run(tmp_path / "gateways.toml", {
            key.replace("__", "."): value for key, value in settings.items()}, threads=threads)
    return run


def column(results, name):
    return results.columns("requests", [name])[name].tolist()


def mixed(count=200, seed=5, sessions=6):
    """Return requests of sessions, with shared beginnings and deadlines."""
    draw = np.random.default_rng(seed)
    return [(f"{0.003 * i:.4f}", draw.integers(20, 400), draw.integers(1, 60), f"s{draw.integers(sessions)}",
             draw.choice(["", "0.3"])) for i in range(count)]


MIXED = ",session_id,deadline_s"


def test_instances_do_not_see_what_others_sent(run):
    # Fewest requests in flight, the first among equals. One gateway: 0, 1, 2, 0, 1. Of two in turn, the first sends
    # requests 0, 2, 4 to 0, 1, 2 and the second 1, 3 to 0, 1.
    assert run().requests["replica"].tolist() == [0, 1, 2, 0, 1]
    results = run(cluster__gateways={"count": 2})

    assert results.requests["replica"].tolist() == [0, 0, 1, 1, 2]
    assert column(results, "gateway") == [0, 1, 0, 1, 0]
    found = results.summary["gateways"]
    assert (found["count"], found["fewest"], found["most"], found["decisions"]) == (2, 2, 3, None)


def test_two_least_loaded_choose_the_same_replica(run):
    # Among equals both draw. With one gateway two requests at once never meet; with two they do for some seeds.
    met = {count: [len(set(run(FIVE[:2], seed=seed, cluster__routing__policy="least_loaded", cluster__gateways={
        "count": count}).requests["replica"].tolist())) == 1 for seed in range(8)] for count in (1, 2)}
    assert not any(met[1])
    assert any(met[2])
    assert not all(met[2])


def test_reports_are_seen_by_all_instances(run):
    # Requests that run are in the reports: 3 ms later each instance sees those of the others.
    later = [(0, 100, 50), (0, 100, 50), (0.003, 100, 50), (0.003, 100, 50)]
    results = run(later, cluster__gateways={"count": 2}, cluster__routing={
        "policy": "weighted", "scorers": [{"name": "running-requests", "weight": 1.0}]}, topology__replicas=4)
    first, second = results.requests["replica"].tolist()[:2], results.requests["replica"].tolist()[2:]
    assert not set(first) & set(second)


ONE_EACH = {"order": "fifo", "saturation": {"detector": "concurrency", "max_concurrency": 1}}


IN_TURN = [(f"{0.0001 * i:.4f}", 100, 50) for i in range(5)]


@pytest.mark.parametrize(("count", "begun_ms"), [(1, [2, 54, 106]), (2, [2, 4, 55])])
def test_each_instance_has_a_queue_and_limits_of_its_own(run, count, begun_ms):
    # Each lets one request in flight: of a prompt of 2 ms and 49 further tokens, 51 ms. One gateway lets one after the
    # other in, at the first tick after each end, 52 and 104. Of two instances each has one from the beginning: the
    # prompt of the second is computed from 2 to 4, so that the first ends at 52; the third, of the first instance, is
    # in the iteration from 53.
    results = run(IN_TURN[:3], topology__replicas=1, engine__async_scheduling=False,
                  cluster__gateways={"count": count}, cluster__gateway_queue=ONE_EACH)
    assert [round(time_ns / MS) for time_ns in results.requests["first_token_ns"].tolist()] == begun_ms


def test_a_queue_of_an_instance_is_full_by_itself(run):
    # One in flight and one waiting at each: of five in turn at two instances, the last one of the first is refused.
    results = run(IN_TURN, topology__replicas=1, cluster__gateways={"count": 2}, cluster__gateway_queue=ONE_EACH | {
        "max_requests": 1})
    assert results.requests["status"].tolist() == [records.COMPLETED] * 4 + [records.REJECTED]


@pytest.mark.parametrize(("count", "replicas"), [(1, [0, 1, 1, 1, 0]), (2, [0, 0, 1, 0, 0])])
def test_each_instance_keeps_its_own_requests_from_a_replica_that_failed(run, count, replicas):
    # The first is given up in the iteration 5 to 6 ms, and replica 0 cools down for 20 ms where it was sent from; the
    # second is complete by then. Of those of 10 ms one is of each instance; at 40 ms it is over.
    rows = [(0, 100, 50, 0.005), *((at, 100, 1, "") for at in (0, 0.010, 0.010, 0.040))]
    results = run(rows, ",deadline_s", topology__replicas=2, cluster__gateways={"count": count}, cluster__cooldown={
                      "seconds": 0.02, "failed_share": 0.0, "min_requests": 1})
    assert results.requests["replica"].tolist() == replicas
    assert [row["time_ns"] // MS for row in results.lifecycle if row["time_ns"] > 0] == [6, 26]


def test_instances_with_queues_and_breakers_are_the_same_in_steps(run):
    found = [run(mixed(), MIXED, cluster__gateways={"count": 3, "assignment": "session"}, cluster__breaker={
        "failures": 2, "open_s": 0.1}, cluster__gateway_queue={"fairness": "none", "saturation": {
            "detector": "concurrency", "max_concurrency": 2}}, latency__base_us=20_000, engine__fast_forward=fast)
        for fast in (True, False)]
    assert found[0].requests.tobytes() == found[1].requests.tobytes()
    assert len(found[0].lifecycle) > 3


def test_a_gateway_of_slow_decisions_is_saturated(run):
    # A request each 0.5 ms and 1 ms a decision: request k waits k x 0.5 ms.
    rows = [(f"{0.0005 * k:.4f}", 10, 1) for k in range(200)]
    results = run(rows, cluster__gateways={"decision_us": 1000})

    assert column(results, "gateway_wait_ns") == [k * MS // 2 for k in range(200)]
    assert column(results, "gateway_decision_ns") == [MS] * 200
    found = results.summary["gateways"]
    assert (found["utilisation"], found["decisions"]) == (1.0, 200)
    assert found["wait_ms"]["max"] == 99.5
    note = [text for text in results.summary["diagnosis"] if "bottleneck" in text]
    assert len(note) == 1
    assert "instance 0 of 1" in note[0]
    assert "100% of the time" in note[0]


@pytest.mark.parametrize("gateways", [{"workers": 2}, {"count": 2}])
def test_a_second_worker_or_instance_suffices(run, gateways):
    rows = [(f"{0.0005 * k:.4f}", 10, 1) for k in range(200)]
    results = run(rows, cluster__gateways={"decision_us": 1000} | gateways)

    assert column(results, "gateway_wait_ns") == [0] * 200
    assert results.summary["gateways"]["peak_utilisation"] > 0.99
    assert not [text for text in results.summary["diagnosis"] if "bottleneck" in text]


def test_decisions_take_longer_in_larger_fleets(run):
    settings = {"decision_us": 100, "decision_us_per_replica": 50}
    for replicas in (3, 5):
        results = run([(0, 100, 5)], topology__replicas=replicas, cluster__gateways=settings)
        assert column(results, "gateway_decision_ns") == [(100 + 50 * replicas) * 1000]


def test_a_router_sees_the_state_at_the_beginning_of_its_decision(run):
    # Two workers begin at once, before either has sent its request; a single one knows the first when it decides again.
    at_once = run(FIVE[:3], cluster__gateways={"decision_us": 1000, "workers": 2})
    in_turn = run(FIVE[:3], cluster__gateways={"decision_us": 1000})

    assert at_once.requests["replica"].tolist() == [0, 0, 1]
    assert in_turn.requests["replica"].tolist() == [0, 1, 2]
    assert column(at_once, "gateway_wait_ns") == [0, 0, MS]
    # a prefill of 100 tokens, after its decision
    assert in_turn.requests["first_token_ns"].tolist() == [3 * MS, 4 * MS, 5 * MS]


def test_clients_give_up_in_line(run):
    # Decisions of 4 ms; the second client gives up at 3, before its decision, the third at 6, during it.
    rows = [(0, 10, 1, ""), (0, 10, 1, 0.003), (0, 10, 1, 0.006), (0, 10, 1, "")]
    results = run(rows, ",deadline_s", cluster__gateways={"decision_us": 4000})

    assert results.requests["status"].tolist() == [records.COMPLETED, records.TIMED_OUT, records.TIMED_OUT,
                                                   records.COMPLETED]
    assert column(results, "gateway_wait_ns") == [0, 3 * MS, 4 * MS, 8 * MS]
    assert column(results, "gateway_decision_ns") == [4 * MS, 0, 4 * MS, 4 * MS]


def test_a_wait_in_line_ends_when_no_token_could_reach_the_client_in_time(run):
    # A decision of 10 ms. The second has to leave its replica by 5, as a token is 3 ms on its way and it is due at 8.
    results = run([(0, 10, 1, ""), (0, 10, 1, 0.008)], ",deadline_s", cluster__gateways={"decision_us": 10_000},
                  latency__host={"output_token_us": 3000.0, "output_token_accumulates": False})

    assert results.requests["status"].tolist() == [records.COMPLETED, records.TIMED_OUT]
    assert column(results, "gateway_wait_ns") == [0, 5 * MS]


@pytest.mark.parametrize("fast", [True, False])
def test_clients_that_gave_up_in_line_join_its_end(run, fast):
    # Decisions take 10 ms, prompts 1.1. The third is decided from 20 to 30; its client gives up at 25, sends it again
    # at 27, which counts from 30 on. The fourth gives up in line at 25 and is back at 27: it is decided first.
    results = run([(0, 10, 1)] * 4, cluster__gateways={"decision_us": 10_000}, engine__fast_forward=fast,
                  workload__client_retry={"timeout_s": 0.025, "backoff_s": 0.002, "jitter": 0.0})

    assert column(results, "completed_ns") == [11.1 * MS, 21.1 * MS, 51.1 * MS, 41.1 * MS]
    assert column(results, "client_attempts") == [1, 1, 2, 2]
    assert column(results, "gateway_wait_ns") == [0, 10 * MS, 30 * MS - 1, 28 * MS]
    assert column(results, "gateway_decision_ns") == [10 * MS, 10 * MS, 20 * MS, 10 * MS]
    assert results.replicas["requests"].sum() == 4


def test_a_replica_that_closes_meanwhile_is_chosen_anew(run):
    # Replica 0 is chosen at 0 and stops at 1 ms; at 4 ms the decision begins again.
    results = run(FIVE[:1], cluster__gateways={"decision_us": 4000}, failures=[
        {"kind": "stop", "which": 0, "at_s": 0.001, "duration_s": 1.0}])

    assert results.requests["replica"].tolist() == [1]
    assert column(results, "gateway_decision_ns") == [8 * MS]


def test_without_a_replica_the_gateway_decides_again_later(run):
    results = run(FIVE[:1], cluster__gateways={"decision_us": 1000}, topology__replicas=1,
                  cluster__routing__retry_timeout_s=1.0, cluster__routing__retry_interval_s=0.05,
                  failures=[{"kind": "stop", "which": 0, "at_s": 0.0, "duration_s": 0.12}])

    # Decided at 0, retried 50 ms after the end of each decision: at 51, 102 and 153 ms, when it is up.
    assert results.requests["status"].tolist() == [records.COMPLETED]
    assert column(results, "gateway_decision_ns") == [4 * MS]


@pytest.mark.parametrize(("like", "waits_ns"), [
    ("litellm", [0, 0, 0, 0, 3_320_000]), ("llm-d", [0, 500_000, 1_000_000, 1_500_000, 2_000_000])])
def test_measured_costs_have_names(run, like, waits_ns):
    results = run(FIVE, cluster__gateways={"like": like})
    decision_ns = waits_ns[4] // (1 if like == "litellm" else 4)

    assert column(results, "gateway_decision_ns") == [decision_ns] * 5
    assert column(results, "gateway_wait_ns") == waits_ns
    assert [text for text in results.summary["diagnosis"] if text.startswith("[cluster.gateways]")]
    own = run(FIVE, cluster__gateways={"like": like, "decision_us": 7})
    assert column(own, "gateway_decision_ns") == [7000] * 5
    assert not [text for text in own.summary["diagnosis"] if text.startswith("[cluster.gateways]")]


def test_one_gateway_of_instant_decisions_changes_nothing(run):
    without, with_table = run(mixed(), MIXED), run(mixed(), MIXED, cluster__gateways={})
    assert without.requests.tobytes() == with_table.requests.tobytes()
    assert without.summary == with_table.summary


ROUTERS = ({"policy": "lor"}, {"policy": "dynamo"}, {"policy": "cache_aware"}, {"policy": "vtc"},
           {"policy": "weighted", "profile": "llm-d-router", "snapshot_refresh_interval_s": 0.02},
           {"policy": "llumnix"}, {"policy": "prefixaware"}, {"policy": "random"}, {"policy": "litellm_latency"})
UPSETS = {"failures": [{"kind": "stop", "which": 1, "at_s": 0.1, "duration_s": 0.1}],
          "autoscaling": {"policy": "queue", "target_waiting": 1.0, "interval_s": 0.05, "max_replicas": 5}}
ADMITS = [{"cluster__admission": policy} for policy in (
    {"policy": "token_quota", "tokens": 4000}, {"policy": "probabilistic"},
    {"policy": "tier_shed", "max_load": 3, "min_priority": 101})]
MOVES = {"cluster__rescheduling": {"policy": "rebalance", "interval_s": 0.02, "kv_bytes_per_token": 1e4,
                                   "bandwidth_gb_per_s": 10.0}}


CHANGES = {"upkeep": UPSETS, "moves": MOVES, "ranks": {"topology__data_parallel": 2}}


@pytest.mark.parametrize(("routing", "upsets"), [
    *(pytest.param(routing, each, id=f"{routing['policy']}-{name}") for routing in ROUTERS
      for name, each in CHANGES.items() if (routing["policy"], name) != ("llumnix", "ranks")),     # which is refused
    *(pytest.param(ROUTERS[0], each, id=each["cluster__admission"]["policy"]) for each in ADMITS)])
def test_an_instance_with_all_requests_is_a_gateway(run, routing, upsets):
    """All requests are of one session, whose hash is of the first of 17: its account sees all that happens."""
    rows = mixed(100, sessions=1)
    alone = run(rows, MIXED, cluster__routing=routing, **upsets)
    several = run(rows, MIXED, cluster__routing=routing, cluster__gateways={
        "count": 17, "assignment": "session"}, **upsets)

    assert set(column(several, "gateway")) == {0}
    for name in alone.requests.dtype.names:
        assert several.requests[name].tolist() == alone.requests[name].tolist()


@pytest.mark.parametrize("gateways", [{"count": 3}, {"count": 2, "decision_us": 2000, "assignment": "random"},
                                      {"decision_us": 2000, "decision_us_per_replica": 100, "workers": 2}])
@pytest.mark.parametrize("policy", ["least_loaded", "dynamo", "random"])
def test_fast_forward_and_threads_change_nothing(run, gateways, policy):
    found = [run(mixed(), MIXED, cluster__gateways=gateways, cluster__routing__policy=policy, **settings)
             for settings in ({}, {"engine__fast_forward": False}, {"threads": 2})]
    assert len({each.requests.tobytes() for each in found}) == 1
    assert len({str(column(each, "gateway")) for each in found}) == 1
    status = found[0].requests["status"]
    assert np.isin(status, (records.COMPLETED, records.TIMED_OUT)).all()


def test_sessions_stay_at_their_instance(run):
    results = run(mixed(), MIXED, cluster__gateways={"count": 3, "assignment": "session"})
    of_session = {}
    for row, instance in zip(mixed(), column(results, "gateway"), strict=True):
        of_session.setdefault(row[3], set()).add(instance)
    assert all(len(instances) == 1 for instances in of_session.values())
    assert len(set.union(*of_session.values())) > 1


def test_each_instance_has_budgets_of_its_own(run):
    # A bucket holds two prompts of 100 tokens, and gets no third one within the run.
    admission = {"policy": "token_bucket", "capacity_tokens": 200.0, "refill_tokens_per_s": 1.0}
    status = {count: run([(0, 100, 2)] * 6, cluster__admission=admission, cluster__gateways={
        "count": count}).requests["status"].tolist() for count in (1, 2, 3)}

    assert status[1] == [3, 3, 4, 4, 4, 4]
    assert status[2] == [3, 3, 3, 3, 4, 4]
    assert status[3] == [3] * 6


def test_each_model_has_gateways_of_its_own(run):
    rows = [(0, 100, 50, name) for name in ("a", "b", "a", "b")]
    results = run(rows, ",model", cluster__gateways={"count": 2, "decision_us": 1000}, pools=[
        {"name": "p", "serves": "a", "replicas": 2}, {"name": "q", "serves": "b", "replicas": 2}])

    assert column(results, "gateway") == [0, 0, 1, 1]
    assert column(results, "gateway_wait_ns") == [0] * 4
    assert results.requests["replica"].tolist() == [0, 2, 0, 2]
    assert results.summary["gateways"]["count"] == 4


@pytest.mark.parametrize(("settings", "message"), [
    ({"cluster__gateways": {"count": 2}, "cluster__gateway_queue": {
        "dispatch": "departures", "saturation": {"detector": "concurrency"}}},
     r"cluster.gateways.count: expected 1 with cluster.gateway_queue.dispatch = \"departures\", found 2"),
    ({"cluster__gateways": {"decision_us": 5}, "cluster__routing__latency_s": 0.1},
     r"cluster.gateways: expected none with cluster.routing.latency_s = 0.1: both say"),
    ({"cluster__gateways": {"assignment": "random"}}, "assignment: leave it out with count = 1"),
    ({"cluster__gateways": {"workers": 4}}, "workers: leave it out where decisions take no time"),
    ({"cluster__gateways": {"count": 2, "assignment": "session"}}, "no request has a session"),
    ({"cluster__gateways": {"like": "nginx"}}, 'cluster.gateways.like: .*"litellm".*"nginx"'),
])
def test_what_does_not_go_together_is_refused(run, settings, message):
    with pytest.raises(InputErrors, match=message):
        run(**settings)
