"""Requests share the processes of a front end: when each is through, by hand and beside plain fractions."""
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import simulator

CASE = Path(__file__).parents[3] / "shared/data/cases/ops_04_burst_of_chats/burst.toml"
MS = 1_000_000
EXPERIMENT = """
engine = {max_model_len = 10000, num_gpu_blocks = 10000, max_num_seqs = 4}
latency = {backend = "linear", base_us = 1000}
"""
TRACE = '[workload]\ntype = "trace"\npath = "trace.csv"\ntime_origin = "trace"\n'
LOOP = """
[workload]
type = "synthetic"
num_requests = 40
prompt_tokens = {distribution = "uniform", min = 10, max = 90}
output_tokens = {distribution = "uniform", min = 1, max = 9}
load = {mode = "concurrency", concurrency = 7}
"""
TEN_MS = {"latency.host.front_end_us": 10_000.0}


@pytest.fixture
def through(tmp_path):
    """Return when requests of (arrival in ms, prompt tokens) reach the waiting queue, in ms."""
    def through(arrivals, columns="", **keys):
        write(tmp_path, [(ms / 1e3, tokens, 1) for ms, tokens in arrivals])
        found = simulator.run(tmp_path / "a.toml", TEN_MS | {name.replace("__", "."): keys[name] for name in keys})
        return [time / MS for time in found.requests["enqueued_ns"].tolist()]
    return through


def write(folder, rows, columns=(), text=EXPERIMENT):
    lines = [",".join(("arrived_at", "num_prefill_tokens", "num_decode_tokens", *columns))]
    lines += [",".join(map(str, row)) for row in rows]
    (folder / "trace.csv").write_text("\n".join(lines) + "\n")
    (folder / "a.toml").write_text(text + TRACE)
    return folder / "a.toml"


@pytest.mark.parametrize(("arrivals", "expected"), [
    ([(0, 9)], [10]),
    ([(0, 9), (0, 9), (0, 9)], [30, 30, 30]),           # none of three before three times one
    ([(0, 9), (5, 9)], [15, 20]),                       # half of the first is left at 5, and takes twice as long
    ([(0, 9), (10, 9)], [10, 20]),                      # the second comes when the first is through
    ([(0, 9), (20, 9)], [10, 30])])
def test_all_get_a_step_further_in_turn(through, arrivals, expected):
    assert through(arrivals) == expected


def test_processes_share_them_and_no_request_has_two(through):
    assert through([(0, 9)] * 3, latency__host__api_server_count=2) == [15, 15, 15]
    assert through([(0, 9)] * 2, latency__host__api_server_count=2) == [10, 10]
    assert through([(0, 9)], latency__host__api_server_count=9) == [10]


def test_longer_prompts_take_longer_and_leave_later(through):
    # 10 + 1 and 10 + 2 ms: both halve until the shorter is through at 22; 1 ms is left
    assert through([(0, 100), (0, 200)], latency__host__front_end_per_prompt_token_us=10.0) == [22, 23]


def test_a_delay_that_is_not_shared_comes_behind(through):
    assert through([(0, 9), (0, 9)], latency__host__queue_base_us=3000.0) == [23, 23]


def test_alone_it_is_a_delay(tmp_path):
    path = write(tmp_path, [(each, 50, 5) for each in range(9)])
    shared, delayed = (simulator.run(path, {f"latency.host.{name}": value for name, value in keys.items()}).requests
                       for keys in ({"front_end_us": 7000.0, "front_end_per_prompt_token_us": 2.5},
                                    {"queue_base_us": 7000.0, "queue_per_prompt_token_us": 2.5}))

    assert (shared == delayed).all()


@settings(max_examples=60, deadline=None)
@given(arrivals=st.lists(st.tuples(st.integers(0, 60), st.integers(1, 400)), min_size=1, max_size=25),
       servers=st.integers(1, 4))
def test_it_is_what_fractions_say(tmp_path_factory, arrivals, servers):
    arrivals = sorted(arrivals, key=lambda each: each[0])
    path = write(tmp_path_factory.mktemp("front"), [(ms / 1e3, tokens, 1) for ms, tokens in arrivals])
    found = simulator.run(path, {"latency.host.front_end_us": 1000.0, "latency.host.api_server_count": servers,
                                 "latency.host.front_end_per_prompt_token_us": 7.0}).requests["enqueued_ns"]
    expected = by_fractions([(ms * MS, 1000 * 1000 + 7000 * tokens) for ms, tokens in arrivals], servers)

    assert np.abs(found - expected).max() <= 1 + len(arrivals)      # each instant of an end is rounded up to a ns


def by_fractions(jobs, servers):
    """Return when each of (arrival, work in ns) is done, all served at the rate min(1, servers / number)."""
    left, done, now, to_come = {}, [0] * len(jobs), Fraction(0), list(range(len(jobs)))
    while left or to_come:
        rate = min(Fraction(1), Fraction(servers, len(left))) if left else Fraction(1)
        ends = now + min(left.values()) / rate if left else None
        comes = Fraction(jobs[to_come[0]][0]) if to_come else None
        until = min(time for time in (ends, comes) if time is not None)
        left = {job: work - (until - now) * rate for job, work in left.items()}
        now = until
        for job in [job for job, work in left.items() if work <= 0]:
            done[job] = float(now)
            del left[job]
        while to_come and jobs[to_come[0]][0] <= now:
            left[to_come[0]] = Fraction(jobs[to_come[0]][1])
            to_come.pop(0)
    return np.array(done)


@pytest.mark.parametrize("load", [
    'load = {mode = "concurrency", concurrency = 7}', 'load = {mode = "lanes", lanes = 3}'])
@pytest.mark.parametrize("routing", ["round_robin", "lor"])
def test_loops_run_alike_stepwise_and_again(tmp_path, load, routing):
    path = tmp_path / "a.toml"
    path.write_text(EXPERIMENT + LOOP.replace('load = {mode = "concurrency", concurrency = 7}', load))
    keys = TEN_MS | {"topology.replicas": 2, "cluster.routing.policy": routing}
    found = [simulator.run(path, keys | more).requests for more in ({}, {}, {"engine.fast_forward": False})]

    assert (found[0] == found[1]).all() and (found[0] == found[2]).all()
    assert (found[0]["enqueued_ns"] - found[0]["arrival_ns"]).min() >= 10 * MS


def test_threads_change_nothing(tmp_path):
    path = tmp_path / "a.toml"
    path.write_text(EXPERIMENT + LOOP.replace("num_requests = 40", "num_requests = 20000").replace(
        'load = {mode = "concurrency", concurrency = 7}', 'arrival = {process = "poisson", rate_per_s = 500.0}'))
    keys = {"topology.replicas": 4, "latency.host.front_end_us": 5000.0}

    one, two = (simulator.run(path, keys, threads=threads).requests for threads in (1, 2))

    assert (one == two).all()


def test_who_gives_up_there_never_reaches_the_engine(tmp_path):
    path = write(tmp_path, [(0, 9, 1, 0.015), (0, 9, 1, "")], ("deadline_s",))

    first, second = simulator.run(path, TEN_MS).requests

    assert first["enqueued_ns"] < 0 and first["completed_ns"] < 0
    assert second["enqueued_ns"] == 20 * MS             # what it needed was not saved: the loop had begun with it


def test_ranks_have_as_many_processes_as_vllm_starts(tmp_path):
    path = write(tmp_path, [(0, 9, 1)] * 4)
    keys = TEN_MS | {"topology.data_parallel": 2}

    def times(**more):
        return (simulator.run(path, keys | more).requests["enqueued_ns"] / MS).tolist()

    assert times() == [20] * 4                          # two ranks, two processes, four requests
    assert times(**{"latency.host.api_server_count": 1}) == [40] * 4
    external = times(**{"engine.data_parallel.load_balancing": "external"})
    assert external == [20] * 4                         # each rank is a server: two requests and a process each


@pytest.mark.parametrize("fast", [True, False])
def test_what_is_on_its_way_to_a_replica_that_dies_begins_anew_elsewhere(tmp_path, fast):
    text = EXPERIMENT + """
topology = {replicas = 2}
[[failures]]
kind = "stop"
which = 0
at_s = 0.005
duration_s = 1.0
"""
    path = write(tmp_path, [(0, 9, 1), (0, 9, 1), (0, 9, 1), (0.5, 9, 1)], text=text)
    found = simulator.run(path, TEN_MS | {"engine.fast_forward": fast}).requests

    # The first and third were at replica 0, and leave it at 5 ms for replica 1, whose own has 5 ms left: of three there
    # it is through at 20, and these, with 5 ms left, at 30. The last comes when replica 0 is still away.
    assert (found["enqueued_ns"] / MS).tolist() == [30, 20, 30, 510]
    assert found["replica"].tolist() == [1, 1, 1, 1]


def test_a_thousand_chats_at_once(tmp_path):
    if not CASE.exists():
        pytest.skip(f"{CASE} is not there")
    # 1,000 of 11 ms: nobody is through before 11 s, as a server's mean TTFT of 19.45 s and end at 26.8 s say
    keys = {"latency": {"backend": "linear", "base_us": 238_000.0, "per_prefill_token_us": 0.0,
                        "per_decode_token_us": 0.0, "per_sequence_us": 0.0, "per_context_token_us": 0.0,
                        "host": {"front_end_us": 11_000.0}},
            "workload.num_requests": 1000, "workload.arrival": {"process": "burst", "size": 1000, "interval_s": 1.0},
            "workload.prompt_tokens.value": 137, "workload.output_tokens.value": 4}
    summary = simulator.run(CASE, keys).summary

    assert summary["duration_s"] - 1.0 == pytest.approx(26.79, rel=0.2)
    assert summary["ttft_ms"]["mean"] == pytest.approx(19_450, rel=0.2)
