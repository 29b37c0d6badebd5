"""Rolling restarts, on timelines worked out by hand: an iteration takes 10 ms."""
from random import Random

import numpy as np
import pytest
import tomli_w

import simulator
from simulator.domain import records
from simulator.errors import InputErrors

MS = 1_000_000
EXPERIMENT = {
    "topology": {"replicas": 2}, "cluster": {"routing": {"policy": "round_robin"}},
    "engine": {"max_model_len": 200, "num_gpu_blocks": 100, "block_size": 16, "async_scheduling": False},
    "latency": {"backend": "linear", "base_us": 10_000.0, "per_sequence_us": 0.0, "per_prefill_token_us": 0.0,
                "per_context_token_us": 0.0},
    "workload": {"type": "trace", "path": "requests.csv"}}
every_way = pytest.mark.parametrize("fast", [True, False], ids=["fast", "slow"])


DELAYS = {"loading_delay": {"mean_s": 0.03}, "warm_up_delay": {"mean_s": 0.01}}


def serve(folder, rows, restart, fast=True, delays=DELAYS, **tables):
    """Serve rows (s, prompt tokens, output tokens, prompt) with a rolling restart that takes 30 + 10 ms a replica."""
    (folder / "requests.csv").write_text("\n".join(
        ["arrived_at,num_prefill_tokens,num_decode_tokens,prompt", *rows]) + "\n")
    (folder / "experiment.toml").write_text(tomli_w.dumps(
        EXPERIMENT | {"restarts": [{"at_s": 0.025} | delays | restart]} | tables))
    return simulator.run(folder / "experiment.toml", {"engine.fast_forward": fast})


def changes(result, replica):
    """Return [(ms, state)] of a replica after the begin."""
    return [(row["time_ns"] / MS, records.STAGE_NAMES[row["state"]]) for row in result.lifecycle
            if row["replica"] == replica and records.LIFECYCLE_CAUSES[row["cause"]] == "restart"]


def column(result, name):
    return (result.requests[name] / MS).tolist()


PAIR = ["0,20,5,a:20", "0,20,8,b:20"]      # one for each replica: the first ends at 50 ms, the second at 80


@every_way
def test_replicas_restart_one_after_the_other_once_they_have_drained(tmp_path, fast):
    # Replica 0 drains from 25 to 50, loads to 80, warms up to 90. Then replica 1, which is empty: 90, 120, 130.
    # The request at 30 ms goes to replica 1, since 0 is closed; that at 100 ms to replica 0, since 1 is.
    result = serve(tmp_path, [*PAIR, "0.03,20,1,c:20", "0.1,20,1,d:20", "0.2,20,1,e:20"], {}, fast)

    assert changes(result, 0) == [(25, "draining"), (50, "loading"), (80, "warming"), (90, "up")]
    assert changes(result, 1) == [(90, "draining"), (90, "loading"), (120, "warming"), (130, "up")]
    assert result.requests["replica"].tolist()[:4] == [0, 1, 1, 0]
    assert column(result, "completed_ns")[:2] == [50, 80]


@every_way
def test_two_at_once_leave_nobody_to_serve(tmp_path, fast):
    # Both drain at 25: the request at 30 is refused.
    result = serve(tmp_path, [*PAIR, "0.03,20,1,c:20", "0.2,20,1,d:20"], {"at_once": 2}, fast)

    assert changes(result, 0) == [(25, "draining"), (50, "loading"), (80, "warming"), (90, "up")]
    assert changes(result, 1) == [(25, "draining"), (80, "loading"), (110, "warming"), (120, "up")]
    assert result.requests["status"].tolist() == [
        records.COMPLETED, records.COMPLETED, records.REJECTED, records.COMPLETED]


@every_way
def test_requests_left_after_the_grace_are_served_elsewhere(tmp_path, fast):
    # Replica 0 has 10 ms, to 35: with its three tokens (10, 20, 30 ms) its request goes to replica 1, which takes it
    # into the iteration that begins at 40; prompt and tokens are computed there, and the fourth token comes at 50.
    result = serve(tmp_path, [*PAIR, "0.2,20,1,c:20"], {"grace_s": 0.01}, fast)

    assert changes(result, 0) == [(25, "draining"), (35, "loading"), (65, "warming"), (75, "up")]
    assert result.requests["retries"].tolist() == [1, 0, 0]
    assert column(result, "completed_ns")[:2] == [60, 80]
    # Replica 1 drains from 75 to 80, the end of its request.
    assert changes(result, 1)[:2] == [(75, "draining"), (80, "loading")]


@every_way
@pytest.mark.parametrize(("on_stop", "status", "completed_ms"), [
    ("restart", records.COMPLETED, 135), ("lost", records.FAILED, None)])
def test_other_fates_at_the_end_of_the_grace(tmp_path, fast, on_stop, status, completed_ms):
    # Begun anew at 40 on replica 1, which is stopped at 85, 10 ms after replica 0 is up: five tokens come there by 135.
    result = serve(tmp_path, [*PAIR, "0.2,20,1,c:20"], {"grace_s": 0.01, "on_stop": on_stop}, fast)

    assert result.requests["status"][0] == status
    assert completed_ms is None or column(result, "completed_ns")[0] == completed_ms


def test_a_restart_empties_the_cache(tmp_path):
    # The same prompt four times, far apart, on one replica, which restarts between the second and the third.
    rows = [f"{at},33,1,p:33" for at in (0, 0.1, 0.3, 0.4)]
    result = serve(tmp_path, rows, {"at_s": 0.2}, topology={"replicas": 1})

    assert result.requests["cached_tokens"].tolist() == [0, 32, 0, 32]


def test_one_pool_restarts_by_the_delays_of_autoscaling(tmp_path):
    # No delay of its own: loading 20, warm-up 5. The pool a is left alone.
    pools = {"pools": [{"name": "a", "replicas": 1}, {"name": "b", "replicas": 2}]}
    scaling = {"autoscaling": {"policy": "queue", "interval_s": 100.0, "target_waiting": 1.0,
                               "loading_delay": {"mean_s": 0.02}, "warm_up_delay": {"mean_s": 0.005}}}
    rows = ["0,20,1,a:20", "0.5,20,1,b:20"]
    result = serve(tmp_path, rows, {"pool": "b"}, delays={}, topology={}, **pools, **scaling)

    assert changes(result, 0) == []
    assert changes(result, 1) == [(25, "draining"), (25, "loading"), (45, "warming"), (50, "up")]
    assert changes(result, 2)[0] == (50, "draining")


@pytest.mark.parametrize(("restart", "tables", "message"), [
    ({"pool": "c"}, {}, 'there is no pool "c"'), ({"on_stop": "lost"}, {}, "on_stop takes grace_s"),
    ({"drain": "migrate"}, {}, "it moves requests"),
    ({}, {"failures": [{"kind": "stop", "at_s": 1.0}]}, "replicas that fail meanwhile")])
def test_restarts_that_cannot_be_are_refused(tmp_path, restart, tables, message):
    with pytest.raises(InputErrors, match=message):
        serve(tmp_path, PAIR, restart, **tables)


def test_a_restart_needs_a_duration(tmp_path):
    (tmp_path / "requests.csv").write_text("arrived_at,num_prefill_tokens,num_decode_tokens\n0,1,1\n")
    (tmp_path / "experiment.toml").write_text(tomli_w.dumps(EXPERIMENT | {"restarts": [{"at_s": 1.0}]}))
    with pytest.raises(InputErrors, match=r"restarts\[0\].loading_delay: missing"):
        simulator.run(tmp_path / "experiment.toml")


@pytest.mark.parametrize("seed", range(12))
def test_each_request_ends_once_however_replicas_restart(tmp_path, seed):
    rng = Random(seed)
    rows = [f"{rng.random():.3f},{rng.randint(1, 90)},{rng.randint(1, 60)}," for _ in range(80)]
    restart = {"at_s": 0.1, "at_once": rng.randint(1, 3)}
    if rng.random() < 0.7:
        restart |= {"grace_s": rng.choice([0.0, 0.02, 0.2]), "on_stop": rng.choice(["retry", "restart", "lost"])}
    tables = {"topology": {"replicas": 4, "data_parallel": rng.choice([1, 1, 2])},
              "cluster": {"routing": {"policy": rng.choice(["least_loaded", "round_robin"]), "retry_timeout_s": 1.0,
                                      "retry_interval_s": 0.01, "latency_s": rng.choice([0.0, 0.004])}}}
    if rng.random() < 0.5:
        tables["autoscaling"] = {"policy": "queue", "interval_s": 0.05, "target_waiting": 1.0, "max_replicas": 6,
                                 "loading_delay": {"mean_s": 0.03}}
    if rng.random() < 0.5:
        tables["workload"] = EXPERIMENT["workload"] | {"client_retry": {"timeout_s": 0.2, "backoff_s": 0.02}}
    runs = [serve(tmp_path, rows, restart, fast, **tables) for fast in (True, False)]

    ends = np.isin(runs[0].requests["status"], (
        records.COMPLETED, records.REJECTED, records.DROPPED, records.TIMED_OUT, records.FAILED))
    assert ends.all()
    done = runs[0].legs["how"] == records.LEG_ENDS.index("completed")
    assert done.sum() == (runs[0].requests["status"] == records.COMPLETED).sum()
    np.testing.assert_array_equal(runs[0].requests, runs[1].requests)
    np.testing.assert_array_equal(runs[0].lifecycle, runs[1].lifecycle)
