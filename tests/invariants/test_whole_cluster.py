"""What holds where everything happens at once: gateways, failures, scaling and migration in one cluster."""
from random import Random

import numpy as np
import pytest

import simulator
from invariants.test_pipeline_conservation import ADMISSIONS, WAY, gateway_queue_of, requests_of
from simulator import registry
from simulator.domain import records
from support.random_speculation import as_toml, random_speculation

ROUTERS = sorted(registry.KINDS["router"].entries.keys() - {"split_wise"})      # which takes pools with roles
RESCHEDULERS = (
    'policy = "rebalance", least_difference = 0.05',
    'policy = "llumnix", policies = ["neutral_load", "neutral_failover"], neutral_load_threshold = 0.3, '
    'load_balance_threshold = 0.05, req_select_rule = "NUM_REQ", req_select_order = "LCR", req_select_value = 2')


def failure_of(rng):
    kind = rng.choice(["stop", "stop", "link", "slow", "slow"])
    policies = ["retry", "restart", "lost"] + ["migrate"] * 4 * (kind == "slow")
    times = rng.choice(["at_s = 0.05", "mtbf_s = 0.1", 'mtbf_s = 0.2\nmtbf_law = "weibull"\nmtbf_shape = 0.7'])
    lasting = rng.choice(["duration_s = 0.05", "mttr_s = 0.03"])
    return (f'[[failures]]\nkind = "{kind}"\ntarget = "{rng.choice(["replica", "node"])}"\n'
            f'which = {rng.choice([chr(34) + "any" + chr(34), chr(34) + "each" + chr(34), "0"])}\n'
            f'{fate_of(kind, rng.choice(policies))}\n{times}\n{lasting}')


def fate_of(kind, policy):
    """Return the keys that have an effect on a kind of failure, as TOML."""
    fate = f'on_failure = "{policy}"' if kind != "slow" or policy == "migrate" else ""
    return f"{fate}\nslow_factor = 4.0" if kind == "slow" else fate


def experiment_of(rng):
    """Return a small cluster, as TOML."""
    lines = [
        f"seed = {rng.randint(0, 99)}",
        f"horizon_s = {rng.choice(['inf', 'inf', '0.4'])}",
        f"cluster.admission = {{{rng.choice(ADMISSIONS)}}}",
        f'cluster.routing = {{policy = "{rng.choice(ROUTERS)}", retry_timeout_s = 0.1, retry_interval_s = 0.01}}',
        f'cluster.rescheduling = {{{rng.choice(RESCHEDULERS)}, interval_s = 0.01, latency_s = 0.001, '
        f'mode = "{rng.choice(["live", "blocking", "recompute"])}", kv_bytes_per_token = 1e5, '
        f"bandwidth_gb_per_s = {rng.choice([0.5, 10.0])}, max_migrations_in = 2, max_migrations_out = 3}}",
        f"cluster.health = {{check_interval_s = {rng.choice([0.0, 0.01])}, detection_delay_s = 0.01}}",
        f"engine.num_gpu_blocks = {rng.choice([15, 40])}",
        f"engine.max_num_seqs = {rng.randint(2, 5)}",
        "engine.max_model_len = 128",
        f"topology.replicas = {rng.randint(2, 4)}",
        'workload = {type = "trace", path = "requests.csv"}',
        '[latency]\nbackend = "linear"\nbase_us = 5000.0',
    ]
    if rng.random() < 0.5:
        lines.insert(0, f"cluster.gateway_queue = {{{gateway_queue_of(rng)}}}")
    if rng.random() < 0.4:
        lines.append('[autoscaling]\npolicy = "queue"\ntarget_waiting = 1.0\ninterval_s = 0.03\nmax_replicas = 6\n'
                     f'drain = "{rng.choice(["finish", "migrate"])}"\nloading_delay = {{mean_s = 0.02}}')
    failures = [failure_of(rng) for _ in range(rng.randint(1, 3))]
    lines.insert(0, f"engine.async_scheduling = {str(rng.random() < 0.5).lower()}")
    lines.insert(0, f"topology.pipeline_parallel = {rng.choice([1, 1, 2, 3])}")
    if rng.random() < 0.4:
        lines.insert(0, f"engine.speculative = {as_toml(random_speculation(rng))}")
    return "\n".join(lines + failures) + "\n"


# In the last ones a replica fails at the instant at which one of its requests is recalled, and several open and close
# between two draws of a router.
@pytest.fixture(scope="module", params=[*range(100), 11291, 20955, 22304])
def experiment(request, tmp_path_factory):
    rng, folder = Random(9100 + request.param), tmp_path_factory.mktemp("whole")
    (folder / "requests.csv").write_text(requests_of(rng))
    (folder / "experiment.toml").write_text(experiment_of(rng))
    return folder / "experiment.toml"


@pytest.fixture(scope="module")
def result(experiment):
    return simulator.run(experiment)


def test_every_request_is_accounted_for(result):
    counts, table = dict(result.summary["requests"]), result.requests
    arrived = table["arrival_ns"] <= result.summary["clock_s"] * 1e9
    assert counts.pop("length_capped") <= counts["completed"]
    assert counts.pop("injected") == sum(counts.values()) == arrived.sum()
    for name, count in counts.items():
        assert (table["status"] == records.STATUS_NAMES.index(name)).sum() == count
    for name in ("rejected", "dropped", "timed_out", "failed"):
        assert sum(result.summary["by_cause"].get(name, {}).values()) == counts[name]
    lost = table["cause"] == records.CAUSE_NAMES.index("lost")
    assert np.isin(table["status"][lost], (records.DROPPED, records.FAILED)).all()
    refused = np.isin(table["status"], (records.REJECTED, records.DROPPED))
    assert (table["first_token_ns"][refused] == records.NEVER_NS).all()         # who streamed has failed
    served = np.bincount(table["replica"][table["status"] == records.COMPLETED],
                         minlength=len(result.summary["replicas"]))
    assert served.sum() == counts["completed"]


def test_no_step_comes_before_the_one_it_follows_from(result):
    table = result.requests
    for row in table[(table["retries"] == 0) & (table["migrations"] == 0)]:
        known = [int(row[name]) for name in WAY if row[name] >= 0]
        assert known == sorted(known)
    done = table[table["status"] == records.COMPLETED]
    assert (done["completed_ns"] >= done["first_token_ns"]).all()
    assert (done["first_token_ns"] > done["arrival_ns"]).all()
    assert (table["downtime_ns"] >= 0).all()
    assert (done["downtime_ns"] <= done["completed_ns"] - done["arrival_ns"]).all()


def test_neither_a_second_run_nor_single_steps_change_anything(experiment, result):
    for overrides in ({}, {"engine.fast_forward": False}):
        again = simulator.run(experiment, overrides)
        np.testing.assert_array_equal(again.requests, result.requests)
        np.testing.assert_array_equal(again.lifecycle, result.lifecycle)
        assert again.summary["itl_ms"] == result.summary["itl_ms"]


def test_everything_happens_here(tmp_path):
    seen = {"retries": 0, "migrations": 0, "rejected": 0, "dropped": 0, "failed": 0, "scaling": 0, "lost": 0}
    for seed in range(40):
        rng = Random(9100 + seed)
        (tmp_path / "requests.csv").write_text(requests_of(rng))
        (tmp_path / "experiment.toml").write_text(experiment_of(rng))
        result = simulator.run(tmp_path / "experiment.toml")
        for name in ("retries", "migrations"):
            seen[name] += result.summary[name]
        for name in ("rejected", "dropped", "failed"):
            seen[name] += result.summary["requests"][name]
        seen["lost"] += int((result.requests["cause"] == records.CAUSE_NAMES.index("lost")).sum())
        seen["scaling"] += int((result.lifecycle["cause"] == records.LIFECYCLE_CAUSES.index("scaling")).sum())
    assert min(seen.values()) > 5, seen
