"""Requests that a decode replica is promised: chosen when they arrive, while their prompts are computed elsewhere."""
import pytest

import simulator
from simulator.domain import records
from support.every_key import read

# Iterations of 1 ms, 10 us a prompt token, 100 us a sequence; a prompt of 96 tokens moves in 1 ms.
ACTIVE, TOKENS, QUEUE = ([{"name": name, "weight": 1.0}] for name in ("active-requests", "token-load", "queue-depth"))
EXPERIMENT = {
    "engine": {"num_gpu_blocks": 1000, "max_model_len": 4000, "async_scheduling": False, "max_num_seqs": 1},
    "latency": {"backend": "linear", "base_us": 1000, "per_prefill_token_us": 10, "per_sequence_us": 100,
                "per_context_token_us": 0},
    "kv_transfer": {"protocol": "nixl", "kv_bytes_per_token": 1e5, "bandwidth_gb_per_s": 9.6, "base_us": 0,
                    "contention": "none", "answer_hop_us": 0},
    "cluster": {"routing": {"policy": "weighted", "ties": "number", "scorers": ACTIVE}},
    "pools": [{"name": "p", "role": "prefill", "replicas": 4},
              {"name": "d", "role": "decode", "replicas": 2, "engine": {"max_num_seqs": 8}}]}
COUNTING = {
    "weighted": {"scorers": ACTIVE}, "token load": {"policy": "weighted", "scorers": TOKENS}, "dynamo": {},
    "llumnix": {}, "llumnix lite": {"policy": "llumnix", "mode": "lite"}, "cache_aware": {}, "lmetric": {},
    "manual": {"assignment": "min_load"}}
SEEN_BY_REPORTS = {"least_loaded": {}, "queue": {"policy": "weighted", "scorers": QUEUE},
                   "reported": {"policy": "dynamo", "load": "replicas"}}


@pytest.fixture
def run(tmp_path):
    """Return a function that runs requests (ms, outputs[, deadline in s]) with prompts of 96 tokens."""
    def run(rows, **tables):
        more = ",deadline_s" if len(rows[0]) > 2 else ""
        lines = (f"{row[0] / 1e3},96,{','.join(map(str, row[1:]))}" for row in rows)
        (tmp_path / "rows.csv").write_text("\n".join(
            [f"arrived_at,num_prefill_tokens,num_decode_tokens{more}", *lines]))
        workload = {"type": "trace", "path": str(tmp_path / "rows.csv")}
        return simulator.run(read(EXPERIMENT | {"workload": workload} | tables))
    return run


def places(results, first=4):
    return (results.requests["replica"] - first).tolist()


def test_it_counts_from_the_choice_on(run):
    # Four prompts are computed at 0 to 2.06 ms and move to 3.06. Promised: two for each decode replica, which compute
    # the last token of both prompts in one step of 1.22 ms and a further token in 1.2. As no replica counted them when
    # they came, all four would be at the first, with steps of 1.44 and 1.4.
    results = run([(0, 2)] * 4)

    assert places(results) == [0, 1, 0, 1]
    assert results.requests["first_token_ns"].tolist() == [4_280_000] * 4
    assert results.requests["completed_ns"].tolist() == [5_480_000] * 4


def test_blis_counts_a_request_when_its_kv_has_come(run):
    engine = {key: value for key, value in EXPERIMENT["engine"].items() if key != "async_scheduling"}
    moves = {key: value for key, value in EXPERIMENT["kv_transfer"].items() if key != "answer_hop_us"}
    results = run([(0, 2)] * 4, engine=engine | {"scheduler": "blis"}, kv_transfer=moves | {"protocol": "blis"})

    assert places(results) == [0] * 4
    assert any("chooses a decode replica" in note for note in results.summary["diagnosis"])


@pytest.mark.parametrize("order", ["decode_first", "prefill_first"])
def test_one_that_is_gone_counts_no_more(run, order):
    # The first gives up at 1 ms, while its prompt is computed. Those that come at 1.5 find the first replica without
    # any; the last one finds one at each.
    results = run([(0, 2, 0.001), (1.5, 2, 9), (1.5, 2, 9), (1.6, 2, 9)],
                  cluster=EXPERIMENT["cluster"] | {"disaggregation": {"stage_order": order}})

    assert records.STATUS_NAMES[results.requests["status"][0]] == "timed_out"
    assert places(results)[1:] == [0, 1, 0]


def test_one_that_is_at_its_replica_counts_once(run):
    # The first decodes at replica 0 for 50 ms; of three that come at 10, replica 1 gets two: 1, 0 | 1, 1 | 1, 2.
    assert places(run([(0, 40), (10, 2), (10.1, 2), (10.2, 2)])) == [0, 1, 0, 1]


def test_groups_of_ranks_count_theirs(run):
    # Two front ends with two ranks each: a group counts the promised request, its ranks do not, and the front end
    # chooses between idle ranks when a request comes.
    pools = [EXPERIMENT["pools"][0] | {"topology": {"data_parallel": 2}, "replicas": 2},
             EXPERIMENT["pools"][1] | {"topology": {"data_parallel": 2}}]
    results = run([(0, 2)] * 4, pools=pools)

    assert places(results) == [0, 2, 1, 3]


@pytest.mark.parametrize("name", COUNTING)
def test_routers_that_count_what_they_send_share_a_burst_out(run, name):
    routing = {"policy": name.split()[0], **COUNTING[name]}
    results = run([(0, 2)] * 16, cluster={"routing": routing})

    assert abs(places(results).count(0) - 8) <= 1
    assert not any("chooses a decode replica" in note for note in results.summary["diagnosis"])


def test_an_owner_of_a_hash_is_passed_over_for_those_that_it_is_promised():
    # Sixteen prompts begin alike, and all come while the first is computed. With n promised, the owner is full above
    # 1.25 (n + 1) / 2: requests 2, 5, 8, 10 and 13 (from 0) go to the other.
    fixed = {name: {"distribution": "constant", "value": value} for name, value in (
        ("rounds", 1), ("first_tokens", 96), ("new_tokens", 1), ("output_tokens", 2), ("think_time_s", 1.0))}
    workload = {"type": "sessions", "num_sessions": 16, "arrival": {"process": "poisson", "rate_per_s": 1e5},
                "sessions": fixed | {"prefix_groups": 1, "prefix_tokens": 300}}
    results = simulator.run(read(EXPERIMENT | {
        "workload": workload, "cluster": {"routing": {"policy": "prefix_hash"}}}))

    assert sorted(places(results).count(place) for place in (0, 1)) == [5, 11]


@pytest.mark.parametrize("name", SEEN_BY_REPORTS)
def test_routers_that_see_reports_do_not_and_that_is_named(run, name):
    routing = {"policy": name, **SEEN_BY_REPORTS[name]}
    results = run([(0, 2)] * 16, cluster={"routing": routing})

    assert any("chooses a decode replica" in note for note in results.summary["diagnosis"])
