"""Ranks that fail, and replicas with ranks that come and go."""
import itertools

import numpy as np
import pytest

import simulator
from simulator.domain import records
from simulator.domain.whole_replicas import added_up
from simulator.errors import InputErrors

# Iterations of 5 ms, 10 us a sequence, 20 us a prompt token, 0.05 us a token of context (../shared/specs, 1.12)
BASE = """
latency = {backend = "linear"}
output = {token_times = true}
topology = {data_parallel = %d, replicas = %d}
[engine]
num_gpu_blocks = 1000
max_model_len = 4000
async_scheduling = %s
"""
DRAWN = """
[workload]
type = "synthetic"
num_requests = %d
arrival = {process = "poisson", rate_per_s = 60}
prompt_tokens = {distribution = "uniform", min = 100, max = 900}
output_tokens = {distribution = "uniform", min = 5, max = 60}
"""
FAILURES = """
[cluster.health]
check_interval_s = 0.02
detection_delay_s = 0.05
reopening_delay_s = 0.03
[[failures]]
kind = "stop"
target = "%s"
mtbf_s = 1.2
mttr_s = 0.2
[[failures]]
kind = "link"
target = "replica"
mtbf_s = 1.5
mttr_s = 0.1
[[failures]]
kind = "slow"
target = "rank"
mtbf_s = 1.0
duration_s = 0.3
slow_factor = 1.7
"""
SCALED = """
[cluster.health]
detection_delay_s = 0.05
[autoscaling]
policy = "queue"
target_waiting = 2
interval_s = 0.2
max_replicas = 4
loading_delay = {mean_s = 0.3, stddev_s = 0.1, law = "normal"}
drains = "least_loaded"
"""
DENSE = "[engine.data_parallel]\nlockstep = false\n"
UP, DOWN, OFF = (records.STAGE_NAMES.index(name) for name in ("up", "down", "off"))


@pytest.fixture
def run(tmp_path):
    """Return a function that runs a TOML text."""
    numbers = itertools.count()

    def run(text, **overrides):
        (tmp_path / "e.toml").write_text(text)
        return simulator.run(tmp_path / "e.toml", out=tmp_path / f"out{next(numbers)}",
                             overrides={key.replace("__", "."): value for key, value in overrides.items()})

    return run


def base(ranks, replicas, is_async=False):
    return BASE % (ranks, replicas, str(is_async).lower())


def trace(folder, *requests):
    """Write a trace, each (arrival in s, prompt tokens, outputs); return the table that names it."""
    rows = ["arrived_at,num_prefill_tokens,num_decode_tokens", *(",".join(map(str, each)) for each in requests)]
    (folder / "trace.csv").write_text("\n".join(rows) + "\n")
    return '[workload]\ntype = "trace"\npath = "trace.csv"\n'


def story(result, replica):
    """Return when a rank entered which state after time 0."""
    rows = result.lifecycle[(result.lifecycle["replica"] == replica) & (result.lifecycle["time_ns"] > 0)]
    return [(int(row["time_ns"]), int(row["state"])) for row in rows]


# ---- any of it, visited one by one

@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("more", [FAILURES % "rank", FAILURES % "replica", SCALED], ids=["rank", "replica", "scaled"])
@pytest.mark.parametrize("kind", ["", DENSE], ids=["lock_step", "dense"])
def test_the_same_visited_one_by_one(run, kind, more, is_async, seed):
    text = base(3, 2, is_async) + kind + DRAWN % 150 + more
    fast, slow = (run(text, seed=seed, engine__fast_forward=is_fast, output__replica_samples_s=0.05)
                  for is_fast in (True, False))

    for table in ("requests", "iterations", "lifecycle", "replica_samples"):
        assert (getattr(fast, table) == getattr(slow, table)).all(), table
    ended = np.isin(fast.requests["status"], [records.STATUS_NAMES.index(name) for name in ("completed", "dropped")])
    assert ended.all()


# ---- failures

def test_ranks_in_lock_step_stop_together(run, tmp_path):
    # Rank 1 of replica 0 stops; all its ranks do, and the gateway sends what they had to replica 1 at once.
    table = trace(tmp_path, *[(0.001 * i, 200, 40) for i in range(8)])
    result = run(base(2, 2) + table + """
[[failures]]
kind = "stop"
target = "rank"
which = 1
at_s = 0.1
duration_s = 0.5
""")

    assert story(result, 0)[0] == story(result, 1)[0] == (100_000_000, DOWN)
    assert story(result, 2) == story(result, 3) == []
    assert set(result.requests["replica"].tolist()) == {2, 3}
    assert result.requests["retries"].max() == 1 and result.summary["requests"]["completed"] == 8


@pytest.mark.parametrize(("balancing", "stopped"), [("internal", [0, 1, 2]), ("external", [1])])
def test_a_stop_takes_the_ranks_of_one_front_end_with_it(run, tmp_path, balancing, stopped):
    table = trace(tmp_path, *[(0.001 * i, 200, 40) for i in range(8)])
    text = base(3, 2) + DENSE + f'load_balancing = "{balancing}"\n' + table + """
[[failures]]
kind = "%s"
target = "rank"
which = 1
at_s = 0.1
duration_s = 0.5
"""

    assert [i for i in range(6) if story(run(text % "stop"), i)] == stopped
    assert [i for i in range(6) if story(run(text % "link"), i)] == [1]


def test_replicas_fail_with_all_their_ranks(run, tmp_path):
    table = trace(tmp_path, *[(0.001 * i, 200, 40) for i in range(8)])
    result = run(base(2, 3) + table + '[[failures]]\nkind = "link"\nwhich = 2\nat_s = 0.05\nduration_s = 0.2\n')

    assert [i for i in range(6) if story(result, i)] == [4, 5]
    with pytest.raises(InputErrors, match=r"expected a replica 0 \.\. 2, found 3"):
        run(base(2, 3) + table + '[[failures]]\nkind = "link"\nwhich = 3\nat_s = 0.05\nduration_s = 0.2\n')


def test_a_lost_link_stops_the_step_of_all_ranks(run, tmp_path):
    # The prompts take 5.01 ms and 2 ms; the first decode step, of 5.01 ms and 0.05 us a token of context, is put off.
    table = trace(tmp_path, (0, 100, 3), (0, 100, 3))
    result = run(base(2, 1) + table + """
[cluster.health]
detection_delay_s = 1
[[failures]]
kind = "link"
target = "rank"
which = 0
at_s = 0.008
duration_s = 0.1
""")
    ends = 7_010_000 + 5_015_050 + 5_015_100

    assert result.requests["completed_ns"].tolist() == [ends + 100_000_000] * 2


def test_a_slow_rank_slows_the_step(run, tmp_path):
    # Both ranks have a request; rank 1 takes twice as long, and rank 0 waits for it. Two faults of one rank multiply,
    # of ranks in lock step the slowest counts.
    table = trace(tmp_path, (0, 100, 3), (0, 100, 3))
    slow = '[[failures]]\nkind = "slow"\ntarget = "rank"\nwhich = %d\nat_s = 0\nslow_factor = %g\n'
    plain = 7_010_000 + 5_015_050 + 5_015_100

    assert run(base(2, 1) + table + slow % (1, 2.0)).requests["completed_ns"].tolist() == [2 * plain] * 2
    assert run(base(2, 1) + table + slow % (1, 2.0) + slow % (0, 1.5)).requests["completed_ns"].tolist() == [
        2 * plain] * 2
    assert run(base(2, 1) + table + slow % (1, 2.0) + slow % (1, 1.5)).requests["completed_ns"].tolist() == [
        3 * plain] * 2
    assert run(base(2, 1) + DENSE + table + slow % (1, 2.0)).requests["completed_ns"].tolist() == [plain, 2 * plain]


def test_failures_while_prompts_are_computed_apart(run):
    apart = """
[kv_transfer]
protocol = "nixl"
kv_bytes_per_token = 131072
bandwidth_gb_per_s = 40
[[pools]]
name = "p"
role = "prefill"
topology = {data_parallel = 2, replicas = 2}
[[pools]]
name = "d"
role = "decode"
topology = {data_parallel = 3, replicas = 2}
"""
    text = base(1, 1).replace("topology = {data_parallel = 1, replicas = 1}\n", "") + apart.replace(
        "[[pools]]", DRAWN % 100 + "[[pools]]", 1)
    for seed in range(4):
        fast, slow = (run(text + FAILURES % "rank", seed=seed, engine__fast_forward=is_fast)
                      for is_fast in (True, False))
        assert (fast.requests == slow.requests).all() and (fast.iterations == slow.iterations).all()
        assert (fast.lifecycle == slow.lifecycle).all()
        assert fast.summary["requests"]["completed"] + fast.summary["requests"].get("dropped", 0) == 100


# ---- autoscaling

def test_ranks_come_and_go_together(run):
    result = run(base(2, 1) + DRAWN % 300 + SCALED, workload__arrival__rate_per_s=300)
    stories = [story(result, i) for i in range(8)]

    assert stories[0::2] == stories[1::2]
    assert sum(UP in [state for _, state in each] for each in stories[2:]) >= 2
    assert any(each and each[-1][1] == OFF for each in stories)


def test_what_waits_at_the_gateway_spreads_over_the_ranks_of_a_new_replica(run, tmp_path):
    # Nobody serves at first; when the replica is up, the two that wait go to a rank each.
    table = trace(tmp_path, (0, 100, 3), (0, 100, 3))
    result = run(base(2, 1) + table + """
[autoscaling]
policy = "queue"
target_waiting = 2
interval_s = 0.2
min_replicas = 0
loading_delay = {mean_s = 0.3}
[cluster.gateway_queue]
dispatch = "departures"
[[pools]]
name = "only"
replicas = 0
max_replicas = 1
""")

    assert result.requests["replica"].tolist() == [0, 1]
    assert result.requests["scheduled_ns"].tolist() == [500_000_000] * 2


def test_ranks_are_added_up_to_replicas():
    states, accounts = np.zeros(4, records.REPLICA_STATE), np.zeros(4, records.REPLICA_ACCOUNT)
    states["running"], states["time_ns"], states["block_size"] = [1, 2, 3, 4], [5, 9, 2, 1], 16
    accounts["in_flight"], accounts["is_routable"], accounts["pool"] = [1, 2, 3, 4], [1, 0, 0, 0], 1
    both = added_up(states, accounts, 2)

    assert both[0]["running"].tolist() == [3, 7] and both[0]["time_ns"].tolist() == [9, 2]
    assert both[0]["block_size"].tolist() == [16, 16] and both[1]["pool"].tolist() == [1, 1]
    assert both[1]["in_flight"].tolist() == [3, 7] and both[1]["is_routable"].tolist() == [1, 0]


# ---- what ranks of dense models have, and ranks in lock step have not

@pytest.mark.parametrize(("key", "more"), [
    ("topology.pipeline_parallel", {"topology__pipeline_parallel": 2}),
    ("cluster.rescheduling", {"cluster__rescheduling__policy": "rebalance",
                              "cluster__rescheduling__kv_bytes_per_token": 131072,
                              "cluster__rescheduling__bandwidth_gb_per_s": 40})])
def test_engines_by_themselves_have_it_and_ranks_in_lock_step_do_not(run, key, more):
    text = base(2, 2) + "%s" + DRAWN % 60

    with pytest.raises(InputErrors, match=f"{key}: expected"):
        run(text % "", **more)          # without [model] ranks are in lock step unless it is said otherwise
    fast, slow = (run(text % DENSE, engine__fast_forward=is_fast, **more) for is_fast in (True, False))
    assert (fast.requests == slow.requests).all() and (fast.iterations == slow.iterations).all()
    assert fast.summary["requests"]["completed"] == 60


@pytest.mark.parametrize("kind", ["", DENSE], ids=["lock step", "independent"])
@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_ranks_have_tiers(run, kind, is_async):
    text = base(2, 2) + kind + DRAWN % 60
    tiers = {"kv_tiers__protocol": "vllm_offload", "kv_tiers__cpu_gib": 1, "kv_tiers__kv_bytes_per_token": 131072,
             "kv_tiers__d2h_gb_per_s": 20, "kv_tiers__h2d_gb_per_s": 20, "engine__async_scheduling": is_async}
    fast, slow = (run(text, engine__fast_forward=is_fast, **tiers) for is_fast in (True, False))

    assert (fast.requests == slow.requests).all() and (fast.iterations == slow.iterations).all()
    assert (fast.kv_tiers == slow.kv_tiers).all()
    assert fast.kv_tiers["replica"].tolist() == [0, 1, 2, 3]          # one of each rank
    assert (fast.kv_tiers["stores"] > 0).all()
