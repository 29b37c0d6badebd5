"""Regions with latency between them, with values worked out by hand: a prompt takes 2 ms, a further token 1 ms."""
import numpy as np
import pytest

import simulator
from simulator.domain import records
from simulator.errors import InputErrors

MS = 1_000_000
BASE = """
[topology]
replicas = 2
[engine]
num_gpu_blocks = 2000
max_model_len = 4096
max_num_seqs = 8
max_num_batched_tokens = 512
async_scheduling = false
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
TWO = {"names": ["a", "b"], "replicas": [1, 1], "latency_ms": [[0, 20], [30, 0]], "column": "tenant", "spill_at": 1}
THREE = {"names": ["a", "b", "c"], "replicas": [1, 1, 1],
         "latency_ms": [[0, 50, 20], [50, 0, 50], [20, 50, 0]], "column": "tenant", "spill_at": 2}


@pytest.fixture
def run(tmp_path):
    """Return a function that runs requests (s, output tokens, home region), of 100 prompt tokens each."""
    (tmp_path / "regions.toml").write_text(BASE)

    def run(rows, threads=1, columns="tenant", **settings):
        (tmp_path / "requests.csv").write_text(
            f"arrived_at,num_prefill_tokens,num_decode_tokens,{columns}\n"
            + "".join(f"{at},100,{outputs},{more}\n" for at, outputs, more in rows))
        settings = {key.replace("__", "."): value for key, value in settings.items()}
        table = settings.pop("cluster.regions", TWO)
        table = table | {key.rpartition(".")[2]: settings.pop(key) for key in [*settings]
                         if key.startswith("cluster.regions.")}
        return simulator.run(tmp_path / "regions.toml", settings | {"cluster.regions": table}, threads=threads)
    return run


def regions(results):
    found = results.columns("requests", ["home_region", "region"])
    return found["home_region"].tolist(), found["region"].tolist()


def test_a_request_of_a_full_region_is_served_elsewhere(run):
    # The second finds one request at home. It reaches b after 20 ms, at 21, has its first token there 2 ms and the last
    # of three 2 x 1 ms later, and each takes 30 ms on the way back.
    results = run([(0, 50, "a"), (0.001, 3, "a")])

    assert regions(results) == ([0, 0], [0, 1])
    assert results.requests["replica"].tolist() == [0, 1]
    assert results.requests["first_token_ns"].tolist() == [2 * MS, (21 + 2 + 30) * MS]
    assert results.requests["completed_ns"].tolist() == [51 * MS, (21 + 4 + 30) * MS]
    found = results.summary["regions"]
    assert [(found[name]["requests"], found[name]["served"], found[name]["away"], found[name]["guests"])
            for name in "ab"] == [(2, 1, 1, 0), (0, 1, 0, 1)]
    assert found["a"]["network_ms"] == 25.0             # 50 ms for one of two
    assert found["a"]["ttft_ms"]["max"] == 52.0
    assert any("1 of the 2 requests from a are served away from home" in text for text in results.summary["diagnosis"])


def test_reports_of_another_region_are_old(run):
    # The request of b comes at 2 and is known at a from 32 on (b is 30 ms from a); the first of a ends at 51. One at 10
    # goes to b, where it finds another; one at 35 stays.
    latency = [[0, 30], [30, 0]]
    first = [(0, 50, "a"), (0.002, 90, "b")]
    assert regions(run([*first, (0.010, 1, "a")], cluster__regions__latency_ms=latency))[1] == [0, 1, 1]
    assert regions(run([*first, (0.035, 1, "a")], cluster__regions__latency_ms=latency))[1] == [0, 1, 0]


def test_a_gateway_counts_requests_that_it_forwarded_until_they_are_reported(run):
    # The second, of one token, is forwarded at 1, reaches b at 21, ends at 23, and a knows at 43. Until then a counts
    # it: at 41 as reported, before as forwarded. The third stays at 30, and is forwarded at 45.
    first = [(0, 90, "a"), (0.001, 1, "a")]
    assert regions(run([*first, (0.030, 1, "a")], cluster__regions__latency_ms=[[0, 20], [20, 0]]))[1] == [0, 1, 0]
    assert regions(run([*first, (0.042, 1, "a")], cluster__regions__latency_ms=[[0, 20], [20, 0]]))[1] == [0, 1, 0]
    assert regions(run([*first, (0.045, 1, "a")], cluster__regions__latency_ms=[[0, 20], [20, 0]]))[1] == [0, 1, 1]


def test_the_nearest_region_or_that_of_the_lowest_load(run):
    # a has two requests; c, near by, has one, which a knows by 60 ms; b, far away, has none.
    rows = [(0, 400, "a"), (0, 400, "a"), (0, 400, "c"), (0.060, 1, "a")]
    for policy, region in (("local_first", 1), ("lowest_latency", 2)):
        results = run(rows, topology__replicas=3, cluster__regions=THREE | {"policy": policy})
        assert regions(results)[1] == [0, 0, 2, region]


def test_a_region_of_no_replicas_sends_all_away(run):
    results = run([(0, 1, "a"), (0.001, 1, "b")], cluster__regions__replicas=[0, 2])

    assert regions(results) == ([0, 1], [1, 1])


def test_a_full_region_takes_those_of_a_region_that_is_away(run):
    # Replica 0 is away from 50 to 250 ms. The second finds b empty and is on its way; the third finds it full.
    failures = [{"kind": "stop", "which": 0, "at_s": 0.05, "duration_s": 0.2}]
    results = run([(0, 2, "a"), (0.1, 2, "a"), (0.11, 2, "a"), (0.4, 2, "a")], failures=failures)

    assert regions(results)[1] == [0, 1, 1, 0]
    assert results.summary["requests"]["completed"] == 4


def test_pools_are_in_regions(run):
    # b has a pool of two: four requests of 2 each, the last ones in turn.
    results = run([(0, 50, "a"), (0, 50, "b"), (0, 50, "b")], pools=[{"name": "x", "replicas": 1}, {
        "name": "y", "replicas": 2}], cluster__regions={"names": ["a", "b"], "pools": [["x"], ["y"]], "latency_ms": [
            [0, 20], [20, 0]], "column": "tenant"})

    assert results.requests["replica"].tolist() == [0, 1, 2]


COUNTING = {"policy": "weighted", "scorers": [{"name": "active-requests", "weight": 1.0}]}
# A prompt of 100 tokens moves in 1 ms, in 7 blocks.
APART = {"pools": [{"name": f"{role[0]}{region}", "role": role, "replicas": 1} for region in "ab"
                   for role in ("prefill", "decode")],
         "kv_transfer": {"protocol": "nixl", "kv_bytes_per_token": 1e5, "bandwidth_gb_per_s": 11.2, "base_us": 0.0,
                         "answer_hop_us": 0.0, "contention": "none"},
         "cluster__regions": {"names": ["a", "b"], "pools": [["pa", "da"], ["pb", "db"]], "column": "tenant",
                              "latency_ms": [[0, 20], [30, 0]], "spill_at": 0.5}}


@pytest.mark.parametrize("order", ["decode_first", "prefill_first"])
def test_both_legs_of_a_request_are_in_one_region(run, order):
    # The second finds one request for two replicas at home. It reaches b at 21; its prompt is computed at 23 and has
    # moved at 24; the last token of the prompt, and the first answer, take 1.01 ms, a further one 1; 30 ms back.
    results = run([(0, 2, "a"), (0.001, 2, "a"), (0.05, 2, "b")], cluster__disaggregation__stage_order=order, **APART)
    found = results.columns("requests", ["prefill_replica", "replica"])

    assert regions(results) == ([0, 0, 1], [0, 1, 1])
    assert (found["prefill_replica"].tolist(), found["replica"].tolist()) == ([0, 2, 2], [1, 3, 3])
    assert results.requests["first_token_ns"].tolist() == [4_010_000, 55_010_000, 54_010_000]
    assert results.requests["completed_ns"].tolist() == [5_010_000, 56_010_000, 55_010_000]


@pytest.mark.parametrize(("deadline_s", "outputs"), [(0.023, 19), (0.001, 0)])
def test_a_region_stops_either_leg_when_it_learns_that_a_client_gave_up(run, deadline_s, outputs):
    # The second request reaches b at 21. Its client gives up at 24, which b learns at 44: after 25.01 and 18 more
    # tokens; or at 2, which b learns at 22, while the prompt is computed. The third is alone there then: it comes at
    # 100, its first token 4.01 later.
    rows = [(0, 90, "a,9"), (0.001, 90, f"a,{deadline_s}"), (0.1, 2, "b,9")]
    results = run(rows, columns="tenant,deadline_s", cluster__routing=COUNTING, **APART)

    assert regions(results)[1] == [0, 1, 1]
    assert results.requests["status"].tolist() == [records.COMPLETED, records.TIMED_OUT, records.COMPLETED]
    assert results.requests["output_tokens"].tolist() == [90, outputs, 2]
    assert results.requests["first_token_ns"][2] == 104_010_000


def test_a_region_without_a_replica_for_outputs_is_passed_over(run):
    # That of a has stopped when its request comes at 1; b has it at 21, and its first token 4.01 and 30 ms later.
    failures = [{"kind": "stop", "pool": "da", "at_s": 0.0, "duration_s": 9.0}]
    results = run([(0, 1, "b"), (0.001, 1, "a")], failures=failures, **APART)

    assert regions(results) == ([1, 0], [1, 1])
    assert results.requests["first_token_ns"].tolist() == [4_010_000, 55_010_000]


@pytest.mark.parametrize("by", ["request", "session"])
def test_homes_are_drawn_by_share(run, by):
    rows = [(f"{0.2 * i:.1f}", 1, f"s{i % 100}") for i in range(400)]
    table = {"names": ["a", "b"], "replicas": [1, 1], "latency_ms": [[0, 20], [20, 0]], "share": [3.0, 1.0], "by": by}
    homes = np.array(regions(run(rows, columns="session_id", cluster__regions=table))[0])

    assert 0.6 < (homes == 0).mean() < 0.9
    same = [len(set(homes[i::100])) == 1 for i in range(100)]
    assert all(same) if by == "session" else not all(same)


QUEUE = {"dispatch": "departures", "saturation": {"detector": "concurrency", "max_concurrency": 1}}
CLIENTS = {"workload__client_retry": {"timeout_s": 0.12, "backoff_s": 0.004}, "cluster__gateway_queue": QUEUE | {
    "ttl_s": 0.05, "saturation": {"detector": "concurrency", "max_concurrency": 3}}}


@pytest.mark.parametrize("settings", [
    {}, CLIENTS, CLIENTS | {"workload__load": {"mode": "concurrency", "concurrency": 12}},
    CLIENTS | {"workload__load": {"mode": "concurrency", "concurrency": 12}, "horizon_s": 0.5},
    {"cluster__gateways": {"count": 2}}, CLIENTS | {"cluster__gateway_queue": None, "cluster__gateways": {
        "count": 2, "decision_us": 300.0, "assignment": "random"}},
    {"cluster__routing": {"policy": "dynamo", "queue": {"threshold_tokens": 50}}, "cluster__gateways": {"count": 2}},
    APART, APART | {"cluster__routing": COUNTING},
    APART | {"workload__load": {"mode": "concurrency", "concurrency": 12}, "horizon_s": 0.5}])
def test_steps_and_threads_change_nothing(run, settings):
    draw = np.random.default_rng(3)
    rows = [(f"{0.002 * i:.3f}", draw.integers(1, 60), draw.choice(["a", "b"], p=[0.8, 0.2])) for i in range(200)]
    found = [run(rows, threads=threads, engine__fast_forward=fast, cluster__regions__spill_at=4, **settings)
             for fast, threads in ((True, 1), (True, 2), (False, 1))]

    assert 0 < found[0].summary["regions"]["a"]["away"] < 160
    assert all(each.requests.tobytes() == found[0].requests.tobytes() for each in found[1:])
    assert all(regions(each) == regions(found[0]) for each in found[1:])
    requests, (homes, served) = found[0].requests, map(np.array, regions(found[0]))
    done = requests["status"] == records.COMPLETED
    prompts = found[0].replicas["completed"][::2].sum() if "pools" in settings else 0
    assert found[0].replicas["completed"].sum() - prompts == done.sum() > 20
    way_ns = np.array(TWO["latency_ms"])[homes, served] + np.array(TWO["latency_ms"])[served, homes]
    assert (requests["first_token_ns"] - requests["arrival_ns"] >= (way_ns + 2) * MS)[done].all()


@pytest.mark.parametrize(("rows", "settings", "message"), [
    ([(0, 1, "c")], {}, 'column = "tenant": expected names of regions, a, b, found "c"'),
    ([(0, 1, "a")], {"cluster__regions__replicas": [1, 2]}, "expected a sum of topology.replicas = 2, found 3"),
    ([(0, 1, "a")], {"cluster__regions__latency_ms": [[0, 1]]}, "expected 2 rows of 2 numbers"),
    ([(0, 1, "a")], {"cluster__regions__latency_ms": [[0, 1], [1, 5]]}, "expected 0 from a region to itself"),
    ([(0, 1, "a")], {"cluster__regions__share": [1.0, 1.0]}, "leave share and by out"),
    ([(0, 1, "a")], APART | {"cluster__gateway_queue": QUEUE}, "that of the decode replicas of all regions")])
def test_combinations_that_are_not_supported_are_refused(run, rows, settings, message):
    with pytest.raises(InputErrors) as caught:
        run(rows, **settings)
    assert message in str(caught.value)


def test_ranks_of_a_replica_are_in_its_region(run):
    # Two ranks a replica: a has replicas 0 and 1 of the table. The third request finds one at each, and goes to b.
    results = run([(0, 50, "a"), (0.001, 50, "a"), (0.002, 3, "a"), (0.03, 3, "b")], topology__data_parallel=2)
    assert regions(results) == ([0, 0, 0, 1], [0, 0, 1, 1])
    assert [replica // 2 for replica in results.requests["replica"].tolist()] == [0, 0, 1, 1]


def test_each_region_admits_by_itself(run):
    # Each has a bucket of 100 tokens, one prompt: the second of a is refused, that of b is not.
    results = run([(0, 5, "a"), (0.001, 5, "a"), (0.002, 5, "b")], cluster__admission={
        "policy": "token_bucket", "capacity_tokens": 100, "refill_tokens_per_s": 1e-3})
    assert results.requests["replica"].tolist() == [0, -1, 1]


# ---- clients far from the region that serves them

every_way = pytest.mark.parametrize("fast", [True, False], ids=["fast", "slow"])


@every_way
def test_a_closed_loop_goes_on_when_an_answer_has_come_back(run, fast):
    # Two at a time. The second goes to b, is there from 20 on, has its tokens at 22, 23, 24, the client the last at 54.
    # Then the third comes, finds the first at a and none at b: there 20 later, first token 2 later, 30 back; two more.
    results = run([(0, 90, "a"), (0, 3, "a"), (0, 3, "a")], engine__fast_forward=fast,
                  workload__load={"mode": "concurrency", "concurrency": 2})

    assert regions(results)[1] == [0, 1, 1]
    assert results.requests["arrival_ns"].tolist() == [0, 0, 54 * MS]
    assert results.requests["first_token_ns"].tolist() == [2 * MS, 52 * MS, (54 + 20 + 2 + 30) * MS]
    assert results.requests["completed_ns"].tolist() == [91 * MS, 54 * MS, (54 + 20 + 4 + 30) * MS]


@every_way
@pytest.mark.parametrize(("deadline_s", "status", "first_ms"), [
    (0.054, records.COMPLETED, 53), (0.053999, records.TIMED_OUT, 53), (0.051, records.TIMED_OUT, -1)])
def test_a_deadline_counts_from_the_client_to_the_client(run, fast, deadline_s, status, first_ms):
    # Sent at 1, at b at 21, tokens at 23, 24, 25, which come back at 53, 54, 55: 54 after it was sent.
    results = run([(0, 50, "a,9"), (0.001, 3, f"a,{deadline_s}")], columns="tenant,deadline_s",
                  engine__fast_forward=fast)

    assert results.requests["status"].tolist() == [records.COMPLETED, status]
    completed_ns = 55 * MS if status == records.COMPLETED else -1
    assert results.requests["completed_ns"].tolist() == [51 * MS, completed_ns]
    assert results.requests["first_token_ns"][1] == (first_ms * MS if first_ms >= 0 else -1)
    assert results.replicas["completed"].tolist() == [1, int(status == records.COMPLETED)]


@every_way
def test_a_region_works_in_vain_until_it_learns_that_a_client_gave_up(run, fast):
    # The second gives up at 40.5, which b learns at 60.5: it has 38 tokens then, of 23 to 60, one each ms. The third
    # comes to b at 30, when b knows that a is full, too; it runs from the end of the iteration on, at 61.
    results = run([(0, 99, "a,9"), (0.001, 60, "a,0.0395"), (0.030, 1, "b,9")], columns="tenant,deadline_s",
                  engine__max_num_seqs=1, engine__fast_forward=fast)

    assert regions(results)[1] == [0, 1, 1]
    assert results.requests["status"].tolist() == [records.COMPLETED, records.TIMED_OUT, records.COMPLETED]
    assert results.requests["output_tokens"].tolist() == [99, 38, 1]
    assert results.requests["first_token_ns"].tolist() == [2 * MS, -1, 63 * MS]
    assert any("works on a request until it learns" in text for text in results.summary["diagnosis"])


@every_way
@pytest.mark.parametrize(("replicas", "completed"), [([1, 1], 3), ([1, 2], 2)])
def test_more_replicas_elsewhere_can_forward_a_request_that_the_way_makes_late(run, fast, replicas, completed):
    # The third finds a full at 40. With one replica b is full, too: it stays, and has its token at 43. With two it is
    # forwarded: its client gives up at 75, and the way there and back takes until 90.
    results = run([(0, 50, "a,9"), (0, 90, "b,9"), (0.04, 1, "a,0.035")], columns="tenant,deadline_s",
                  engine__fast_forward=fast, topology__replicas=sum(replicas), cluster__regions__replicas=replicas)

    assert (results.requests["status"] == records.COMPLETED).sum() == completed
    assert any("clients of 1 forwarded requests" in text for text in results.summary["diagnosis"]) == (completed == 2)


def test_times_of_tokens_are_those_at_the_client(run):
    # Those of the second come back at 53, 54, 55 and so on, until its client gives up at 60; the third gives up before.
    results = run([(0, 99, "a,9,5"), (0.001, 60, "a,0.059,5"), (0.002, 60, "a,0.04,5")], output__token_times=True,
                  columns="tenant,deadline_s,reasoning_tokens", topology__replicas=3, cluster__regions__replicas=[1, 2])

    assert regions(results)[1] == [0, 1, 1]
    offsets, times_ns = results.token_times
    assert [times_ns[begin] // MS for begin in offsets[:2]] == [2, 53]
    assert np.diff(offsets).tolist() == [99, 8, 0]
    assert results.columns("requests", ["first_answer_ns"])["first_answer_ns"].tolist() == [7 * MS, -1, -1]


@every_way
@pytest.mark.parametrize(("backoff_s", "sent_ms"), [(0.03, 71), (0.015, 62)])
def test_a_client_sends_again_after_its_own_time_out(run, fast, backoff_s, sent_ms):
    # Given up at 41, to be sent again at 71; a home that is empty from 51 on serves it. At 56 b would still serve it:
    # b learns of the time-out at 61 and ends it with the iteration that begins then.
    results = run([(0, 50, "a,9"), (0.001, 60, "a,0.04")], columns="tenant,deadline_s", engine__fast_forward=fast,
                  workload__client_retry={"backoff_s": backoff_s, "jitter": 0.0, "attempts": 1})

    assert regions(results)[1] == [0, 0]
    assert results.requests["client_attempts"].tolist() == [1, 2]
    assert results.requests["client_sent_ns"].tolist() == [0, sent_ms * MS]
    assert results.requests["first_token_ns"].tolist() == [2 * MS, (sent_ms + 2) * MS]


@every_way
def test_a_client_learns_late_that_its_request_was_lost(run, fast):
    # Lost at b at 40, which the client learns at 70; it waits 10 and sends again, to a.
    results = run([(0, 50, "a"), (0.001, 60, "a")], engine__fast_forward=fast, workload__client_retry={
        "backoff_s": 0.01, "jitter": 0.0}, failures=[
            {"kind": "stop", "which": 1, "at_s": 0.04, "duration_s": 9.0, "on_failure": "lost"}])

    assert results.requests["client_sent_ns"].tolist() == [0, 80 * MS]
    assert results.requests["completed_ns"].tolist() == [51 * MS, (80 + 2 + 59) * MS]


@every_way
@pytest.mark.parametrize(("horizon_s", "status", "first_ms"), [
    (0.055, records.COMPLETED, 53), (0.054999, records.RUNNING, 53), (0.052, records.RUNNING, -1)])
def test_a_horizon_cuts_what_has_not_come_back(run, fast, horizon_s, status, first_ms):
    results = run([(0, 50, "a"), (0.001, 3, "a")], horizon_s=horizon_s, engine__fast_forward=fast)

    assert results.requests["status"].tolist() == [records.COMPLETED, status]
    assert results.requests["first_token_ns"][1] == (first_ms * MS if first_ms >= 0 else -1)
    assert results.replicas["completed"].tolist() == [1, int(status == records.COMPLETED)]


# The second waits at a for the first; then a has two. The fourth goes to b, where it comes at 22 and finds the third.
WAITING = [(0, 50, "a"), (0.001, 3, "a"), (0.001, 30, "b"), (0.002, 3, "a")]


@every_way
def test_a_request_waits_in_the_queue_of_its_region(run, fast):
    # The third ends at 32; the fourth has its first token at 34, and its client that and two more 30 later.
    results = run(WAITING, engine__fast_forward=fast, cluster__regions__spill_at=2, cluster__gateway_queue=QUEUE)

    assert regions(results)[1] == [0, 0, 1, 1]
    assert results.requests["first_token_ns"].tolist() == [2 * MS, 53 * MS, 3 * MS, 64 * MS]
    assert results.requests["completed_ns"].tolist() == [51 * MS, 55 * MS, 32 * MS, 66 * MS]


@every_way
def test_a_client_learns_late_that_the_queue_of_a_region_refused_it(run, fast):
    # The fourth waits at b from 22 to 27, which its client learns at 57; it sends again at 67, and the home is empty.
    # The second waits at a from 1 to 6, comes again at 16, and waits to 21.
    results = run(WAITING, engine__fast_forward=fast, cluster__regions__spill_at=2, cluster__gateway_queue=QUEUE | {
        "ttl_s": 0.005}, workload__client_retry={"backoff_s": 0.01, "jitter": 0.0, "attempts": 1})

    assert regions(results)[1] == [0, 0, 1, 0]
    assert results.requests["client_sent_ns"].tolist() == [0, 16 * MS, MS, 67 * MS]
    assert results.requests["completed_ns"].tolist() == [51 * MS, -1, 32 * MS, (67 + 4) * MS]


# ---- with the rest of a cluster

def column(results, name):
    return results.columns("requests", [name])[name].tolist()


@every_way
@pytest.mark.parametrize("by", ["round_robin", "session"])
def test_each_region_has_instances_of_a_gateway_that_do_not_see_what_others_sent(run, fast, by):
    # a has two replicas and instances 0 and 1, each of which sends its first request to replica 0; b has 2 and 3. The
    # sixth finds two requests for each replica at home, comes to the other instance of b at 21, and has its first token
    # 2 + 30 later. A session keeps its place among the instances of each region.
    rows = [(0, 50, f"a,{session}") for session in "stst"] + [(0, 50, "b,s"), (0.001, 1, "a,t")]
    results = run(rows, columns="tenant,session_id", engine__fast_forward=fast, topology__replicas=3,
                  cluster__regions__replicas=[2, 1], cluster__regions__spill_at=2,
                  cluster__gateways={"count": 2, "assignment": by})

    instances = np.array(column(results, "gateway"))
    assert instances.tolist() == [0, 1, 0, 1, 2, 3] or (by == "session" and instances.tolist() == [1, 0, 1, 0, 3, 2])
    assert regions(results)[1] == [0, 0, 0, 0, 1, 1]
    assert results.requests["replica"].tolist() == [0, 0, 1, 1, 2, 2]
    assert results.requests["first_token_ns"][5] == 53 * MS
    found = results.summary["gateways"]
    assert (found["count"], found["fewest"], found["most"]) == (4, 1, 2)


@every_way
def test_workers_of_a_region_decide_about_the_requests_that_reach_it(run, fast):
    # A decision takes 20 ms. The second reaches b at 21, is sent at 41, has a token at 43, its client at 73. The third
    # knows of the first by 30, stays at b, and waits there from 35 to 41.
    results = run([(0, 50, "a"), (0.001, 50, "a"), (0.035, 50, "b")], engine__fast_forward=fast,
                  cluster__gateways={"decision_us": 20_000})

    assert regions(results)[1] == [0, 1, 1]
    assert column(results, "gateway") == [0, 1, 1]
    assert column(results, "gateway_wait_ns") == [0, 0, 6 * MS]
    assert column(results, "gateway_decision_ns") == [20 * MS] * 3
    assert results.requests["first_token_ns"].tolist() == [22 * MS, 73 * MS, 63 * MS]


@every_way
def test_the_wait_for_a_worker_ends_when_its_region_learns_that_a_client_gave_up(run, fast):
    # The worker of b decides until 60. The third comes there at 21; its client gives up at 26, which b learns at 46.
    results = run([(0, 50, "a,9"), (0, 50, "b,9"), (0.001, 50, "a,0.025")], columns="tenant,deadline_s",
                  engine__fast_forward=fast, cluster__gateways={"decision_us": 60_000})

    assert results.requests["status"].tolist() == [records.COMPLETED, records.COMPLETED, records.TIMED_OUT]
    assert column(results, "gateway_wait_ns") == [0, 0, 25 * MS]


@every_way
def test_each_region_has_a_queue_in_front_of_its_router(run, fast):
    # A prompt at a replica keeps all others of its region waiting. The second waits at a until 2; that of b does not.
    # The fourth finds two at a, is at b at 21.5, and runs from 22 to 24; the fifth waits for that at b. 1 ms back. A
    # request that may go when a prompt ends finds the next iteration, of 1, begun.
    results = run([(0, 50, "a"), (0.001, 50, "a"), (0.001, 50, "b"), (0.0015, 50, "a"), (0.0235, 1, "b")],
                  engine__fast_forward=fast, cluster__regions__spill_at=2, cluster__routing={
                      "policy": "dynamo", "queue": {"threshold_tokens": 0}},
                  cluster__regions__latency_ms=[[0, 20], [1, 0]])

    assert regions(results)[1] == [0, 0, 1, 1, 1]
    assert column(results, "enqueued_ns") == [0, 2 * MS, MS, 21.5 * MS, 24 * MS]
    assert results.requests["first_token_ns"].tolist() == [2 * MS, 5 * MS, 3 * MS, 25 * MS, 27 * MS]


RECOMPUTE = {"mode": "recompute", "interval_s": 0.0105, "least_difference": 0.001}


@every_way
def test_requests_move_within_their_region(run, fast):
    # Replica 2 of b has both prompts by 3, replica 3 is idle from 2 on, those of a all the time. The last of replica 2
    # is chosen at 10.5 and goes at 11, with nine tokens; 109 take 1 + 1.09, with the tenth; 50 more are to come.
    results = run([(0, 60, "b"), (0, 1, "b"), (0, 60, "b")], engine__fast_forward=fast, topology__replicas=4,
                  cluster__regions__replicas=[2, 2], cluster__regions__spill_at=9, cluster__rescheduling=RECOMPUTE)

    assert regions(results)[1] == [1, 1, 1]
    assert results.requests["replica"].tolist() == [2, 3, 3]
    assert results.summary["migrations"] == 1
    assert results.requests["completed_ns"].tolist() == [62 * MS, 2 * MS, 63.09 * MS]


@pytest.mark.parametrize("own", [
    {"policy": "rebalance", "least_difference": 0.001},
    {"policy": "llumnix", "policies": ["neutral_load", "neutral_failover"], "neutral_load_threshold": 0.001,
     "load_balance_threshold": 0.0001, "req_select_rule": "NUM_REQ", "req_select_order": "LCR",
     "req_select_value": 1}], ids=["rebalance", "llumnix"])
def test_no_request_leaves_its_region_by_a_move(run, own):
    draw = np.random.default_rng(4)
    rows = [(f"{0.002 * i:.3f}", draw.integers(1, 90), draw.choice(["a", "b"])) for i in range(150)]
    found = [run(rows, engine__fast_forward=fast, topology__replicas=5, cluster__regions__replicas=[2, 3],
                 cluster__regions__spill_at=5, cluster__routing__policy="random", cluster__gateways={"count": 2},
                 failures=[{"kind": "stop", "which": 1, "at_s": 0.1, "duration_s": 0.05}],
                 cluster__rescheduling={"mode": "recompute", "interval_s": 0.005} | own) for fast in (True, False)]

    assert found[0].requests.tobytes() == found[1].requests.tobytes()
    assert found[0].summary["migrations"] > 5
    served, legs = np.array(regions(found[0])[1]), found[0].legs
    assert ((legs["replica"] >= 2) == (served[legs["request"]] == 1)).all()


MODELS = [{"name": name, "serves": serves, "replicas": 1} for name, serves in (("a1", "x"), ("b1", "x"), ("2", "y"))]


@every_way
@pytest.mark.parametrize(("of_y", "region", "ms"), [("a", 0, 72), ("b", 1, 122)])
def test_the_home_sends_a_request_that_another_region_lost_to_the_next_pool(run, fast, of_y, region, ms):
    # Lost at b at 40, which the home learns at 70. The next pool is there, or at b, 20 away and 30 back.
    pools = [["a1", *["2"] * (of_y == "a")], ["b1", *["2"] * (of_y == "b")]]
    table = {"names": ["a", "b"], "pools": pools, "column": "tenant", "latency_ms": [[0, 20], [30, 0]], "spill_at": 1}
    results = run([(0, 90, "a,x"), (0.001, 60, "a,x")], columns="tenant,model", engine__fast_forward=fast,
                  pools=MODELS, cluster__regions=table, cluster__fallbacks=[{"of": "x", "to": ["y"]}], failures=[
                      {"kind": "stop", "pool": "b1", "at_s": 0.04, "duration_s": 9.0, "on_failure": "lost"}])

    assert column(results, "fallbacks") == [0, 1]
    assert regions(results)[1] == [0, region]
    assert results.requests["replica"].tolist() == [0, 2]
    assert results.requests["first_token_ns"].tolist() == [2 * MS, ms * MS]
    assert results.requests["completed_ns"].tolist() == [91 * MS, (ms + 59) * MS]
    assert [results.summary["regions"]["a"][key] for key in ("requests", "served", "away")] == [2, 2 - region, region]


@every_way
def test_each_region_has_windows_of_its_own(run, fast):
    # That of a begins with its first request and ends at 100; that of b at 130.
    results = run([(0, 1, "a"), (0.03, 1, "b"), (0.1, 1, "a"), (0.11, 1, "b")], engine__fast_forward=fast,
                  cluster__regions__spill_at=9, cluster__routing={"policy": "weighted", "scorers": [
                      {"name": "burst-prefix", "weight": 1.0, "window_s": 0.1}]})

    assert results.requests["dispatched_ns"].tolist() == [100 * MS, 130 * MS, 100 * MS, 130 * MS]
