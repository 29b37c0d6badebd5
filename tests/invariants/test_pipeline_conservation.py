"""No request is lost or counted twice on its way through admission, gateway queue, router and replicas."""
from random import Random

import numpy as np
import pytest

import simulator
from simulator import registry
from simulator.domain import records

MS = 1_000_000
WAY = ("arrival_ns", "admitted_ns", "dispatched_ns", "enqueued_ns", "scheduled_ns", "first_token_ns", "completed_ns")
CAUSE = {name: code for code, name in enumerate(records.CAUSE_NAMES)}
ADMISSIONS = (
    'policy = "always"', 'policy = "always"', 'policy = "reject_all"',
    'policy = "token_bucket", capacity_tokens = 300.0, refill_tokens_per_s = 4000.0',
    'policy = "tier_shed", max_load = 2', 'policy = "saturation_shed"',
    'policy = "tenant_budgets", sheddable_only = false, budgets = [{tenant = "a", share = 0.3}]')
ROUTERS = sorted(registry.KINDS["router"].entries.keys() - {"split_wise"})      # which takes pools with roles
DETECTORS = ('detector = "never"', 'detector = "concurrency", max_concurrency = 3',
             'detector = "utilisation", queue_depth_threshold = 2.0')


def requests_of(rng):
    """Return a trace in bursts, as CSV; some requests give up, some are too long for the engine."""
    lines, now = ["arrived_at,num_prefill_tokens,num_decode_tokens,slo_class,tenant,model,session,deadline_s"], 0.0
    for _ in range(rng.randint(1, 80)):
        now += rng.choice([0.0, 0.0, 0.001, 0.005, 0.05])
        prompt_tokens = rng.choice([1, 16, 40, 90, 150]) if rng.random() < 0.1 else rng.randint(1, 60)
        deadline = rng.choice(["", "", "", "0.001", "0.03", "0.2"])
        lines.append(f"{now:.3f},{prompt_tokens},{rng.randint(0, 25)},{rng.choice(['critical', 'standard', 'batch'])},"
                     f"{rng.choice('abc')},{rng.choice(['x', 'x', 'y'])},{rng.choice('klm')},{deadline}")
    return "\n".join(lines) + "\n"


def gateway_queue_of(rng):
    return ", ".join([
        f'order = "{rng.choice(["fifo", "priority", "slo_deadline"])}"',
        f'fairness = "{rng.choice(["none", "round_robin"])}"', f'dispatch = "{rng.choice(["ticks", "departures"])}"',
        f'shedding = "{rng.choice(["none", "sheddable", "lowest"])}"', f"tick_s = {rng.choice([0.001, 0.02])}",
        f"max_requests = {rng.choice([0, 3, 8])}", f"max_requests_per_band = {rng.choice([0, 0, 2])}",
        f"ttl_s = {rng.choice([0.0, 0.01, 0.1])}", f"in_flight_eviction = {rng.choice(['true', 'false'])}",
        f"saturation = {{{rng.choice(DETECTORS)}}}"])


def experiment_of(rng):
    """Return a small cluster, as TOML."""
    lines = [
        f"seed = {rng.randint(0, 99)}",
        f"horizon_s = {rng.choice(['inf', 'inf', '0.1', '0.4'])}",
        f"cluster.admission = {{{rng.choice(ADMISSIONS)}, latency_s = {rng.choice([0.0, 0.0, 0.002])}}}",
        f'cluster.routing.policy = "{rng.choice(ROUTERS)}"',
        f"cluster.routing.latency_s = {rng.choice([0.0, 0.0, 0.003])}",
        f"cluster.routing.snapshot_refresh_interval_s = {rng.choice([0.0, 0.0, 0.02])}",
        f"engine.num_gpu_blocks = {rng.choice([11, 30])}",
        f"engine.max_num_seqs = {rng.randint(1, 4)}",
        "engine.max_model_len = 128",
        f"topology.replicas = {rng.randint(1, 4)}",
        'workload = {type = "trace", path = "requests.csv"}',
        "output = {decisions = 2, replica_samples_s = 0.01}",
        '[latency]\nbackend = "linear"\nbase_us = 5000.0',
        f"host = {{queue_base_us = {rng.choice([0.0, 0.0, 700.0])}}}",
    ]
    if rng.random() < 0.6:
        lines.insert(0, f"cluster.gateway_queue = {{{gateway_queue_of(rng)}}}")
    if rng.random() < 0.3:
        lines += ['[[pools]]\nname = "p"\nserves = "x"', f'[[pools]]\nname = "q"\nserves = "{rng.choice("yz")}"']
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module", params=range(150))
def result(request, tmp_path_factory):
    rng, folder = Random(7000 + request.param), tmp_path_factory.mktemp("cluster")
    (folder / "requests.csv").write_text(requests_of(rng))
    (folder / "experiment.toml").write_text(experiment_of(rng))
    return simulator.run(folder / "experiment.toml")


def has_journeys(table):
    return "cause" in table.dtype.names


def test_every_request_that_came_is_in_one_place(result):
    counts, table = dict(result.summary["requests"]), result.requests
    arrived = table["arrival_ns"] <= result.summary["clock_s"] * 1e9
    assert counts.pop("length_capped") <= counts["completed"]
    assert counts.pop("injected") == sum(counts.values()) == arrived.sum()
    assert (table["status"][~arrived] == records.PENDING).all()
    for name, count in counts.items():
        assert (table["status"] == records.STATUS_NAMES.index(name)).sum() == count


def test_so_it_is_cause_by_cause_class_by_class_and_replica_by_replica(result):
    summary, table = result.summary, result.requests
    for name in ("rejected", "dropped", "timed_out", "failed"):
        assert sum(summary["by_cause"].get(name, {}).values()) == summary["requests"][name]
    for breakdown in ("by_slo_class", "by_tenant", "by_model"):
        for name, count in summary["requests"].items():
            assert sum(part["requests"][name] for part in summary[breakdown].values()) == count
    served = np.bincount(table["replica"][table["status"] == records.COMPLETED], minlength=len(summary["replicas"]))
    assert [replica["completed"] for replica in summary["replicas"]] == served.tolist()


def test_a_cause_says_how_far_a_request_came(result):
    table = result.requests
    if not has_journeys(table):
        return
    unserved = np.isin(table["status"], (records.REJECTED, records.DROPPED, records.TIMED_OUT, records.FAILED))
    assert unserved[table["cause"] > 0].all()
    by_engine = (table["status"] == records.REJECTED) & (table["cause"] == 0)
    assert (table["replica"][by_engine] >= 0).all()
    assert (table["admitted_ns"][table["cause"] == CAUSE["admission"]] < 0).all()
    for name in ("queue_full", "shed", "expired"):
        rows = table[table["cause"] == CAUSE[name]]
        assert (rows["admitted_ns"] >= 0).all()
        assert (rows["replica"] < 0).all()
    recalled = table[table["cause"] == CAUSE["recalled"]]
    assert (recalled["dispatched_ns"] >= 0).all()
    assert np.isin(recalled["status"], (records.REJECTED, records.FAILED)).all()


def test_a_request_takes_one_step_after_the_other(result):
    table = result.requests
    for row in table:
        times = [int(row[name]) for name in WAY if name in table.dtype.names]
        known = [time for time in times if time >= 0]
        assert known == sorted(known)
        assert known == times[:len(known)]          # no step is left out
        if has_journeys(table):
            assert (row["replica"] >= 0) == (row["dispatched_ns"] >= 0)


def test_each_request_that_reached_a_router_has_one_decision(result):
    decisions, summary, table = result.decisions, result.summary["decisions"], result.requests
    assert len(np.unique(decisions["request"])) == len(decisions) == summary["total"]
    routed = decisions[decisions["replica"] >= 0]
    assert set(routed["request"].tolist()) == set(np.flatnonzero(table["replica"] >= 0).tolist())
    assert np.array_equal(table["replica"][routed["request"]], routed["replica"])
    assert sum(summary["targets"]) == summary["routed"] == len(routed)


def test_samples_agree_with_the_ways_of_the_requests(result):
    # A sample is taken before all else that happens at its instant. Of requests that left a replica without completing
    # it is not known when.
    table, samples = result.requests, result.replica_samples
    if not has_journeys(table):
        return
    completed = table["status"] == records.COMPLETED
    is_vague = ~completed & ~np.isin(table["status"], (records.WAITING, records.RUNNING))
    for sample in samples:
        sent = ((table["replica"] == sample["replica"]) & (table["dispatched_ns"] >= 0)
                & (table["dispatched_ns"] < sample["time_ns"]))
        there = sent & ~is_vague & (~completed | (table["completed_ns"] >= sample["time_ns"]))
        assert there.sum() <= sample["in_flight"] <= (there | sent & is_vague).sum()
        assert sample["waiting"] + sample["running"] <= sample["in_flight"]
