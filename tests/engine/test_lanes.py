"""Threads that serve replicas side by side change nothing but the time it takes."""
import time

import numpy as np
import pytest

import simulator
from simulator.engine import lanes
from simulator.engine.lanes import lanes_for
from simulator.engine.output import recorder
from simulator.results.token_times import TokenTimes

EXPERIMENT = """
engine = {num_gpu_blocks = 400, max_model_len = 2000}
topology = {replicas = 7}
[workload]
type = "synthetic"
num_requests = 600
arrival = {process = "poisson", rate_per_s = 60.0}
prompt_tokens = {distribution = "lognormal", mean = 300.0, std = 300.0, max = 1200}
output_tokens = {distribution = "uniform", min = 1, max = 80}
[latency]
backend = "linear"
base_us = 8000.0
per_sequence_us = 20.0
per_prefill_token_us = 30.0
per_context_token_us = 0.02
[output]
iterations = true
token_times = true
"""
SHARED = {"workload.shared_prefix.num_prefixes": 3, "workload.shared_prefix.tokens": 64}

HOST = {"latency.host.queue_base_us": 3300.0, "latency.host.queue_per_prompt_token_us": 60.0,
        "latency.host.output_token_us": 1800.0}


@pytest.fixture
def experiment(tmp_path, monkeypatch):
    monkeypatch.setattr(lanes, "LEAST_REQUESTS", 1)
    path = tmp_path / "experiment.toml"
    path.write_text(EXPERIMENT)
    return path


@pytest.fixture
def made(monkeypatch):
    """Collect the lanes that runs make; None where one thread served all."""
    found = []

    def noted(*what):
        found.append(lanes_for(*what))
        return found[-1]

    monkeypatch.setattr("simulator.engine.cluster.lanes_for", noted)
    return found


def assert_equal_files(one, other):
    for name in ("results.h5", "summary.json", "resolved.toml"):
        assert (one / name).read_bytes() == (other / name).read_bytes(), name


@pytest.mark.parametrize("overrides", [
    {}, {"engine.num_gpu_blocks": 90}, {"topology.replicas": 2}, {"horizon_s": 4.0},
    {"cluster.routing.policy": "random"}, {"engine.async_scheduling": True}, HOST, HOST | {"horizon_s": 4.0},
    {"topology.pipeline_parallel": 2, "workload.num_requests": 3000, "workload.arrival.rate_per_s": 200.0}],
    ids=["plain", "preemptions", "two", "horizon", "random", "async", "host", "host, horizon", "stages"])
@pytest.mark.parametrize("threads", [2, 3])
def test_the_files_are_the_same_to_the_byte(experiment, tmp_path, made, overrides, threads):
    simulator.run(experiment, overrides=overrides, out=tmp_path / "one", threads=1)
    simulator.run(experiment, overrides=overrides, out=tmp_path / "many", threads=threads)

    assert_equal_files(tmp_path / "one", tmp_path / "many")
    assert (made[0], made[1] is not None) == (None, True)


@pytest.mark.parametrize("backend", ["blackbox", "crossmodel", "step_roofline", "trained_physics"])
def test_backends_with_learned_prices_take_threads(experiment, tmp_path, made, backend):
    text, latency = EXPERIMENT.split("[latency]")
    experiment.write_text(f"""
model = {{name = "llama-3.1-8b"}}
hardware = {{name = "h100-sxm-80gb"}}
latency = {{backend = "{backend}"}}
{text}[output]{latency.split("[output]")[1]}""")
    for threads in (1, 2):
        simulator.run(experiment, out=tmp_path / str(threads), threads=threads)

    assert_equal_files(tmp_path / "1", tmp_path / "2")
    assert (made[0], made[1] is not None) == (None, True)


@pytest.mark.parametrize("overrides", [
    {"cluster.routing.policy": "least_loaded"}, {"topology.replicas": 1},
    {"engine.scheduler": "lanes_lab:InPython", "engine.max_num_seqs": 8, "engine.max_num_batched_tokens": 512}],
    ids=["they see each other", "one replica", "a scheduler in Python"])
def test_one_thread_serves_what_cannot_be_parted(experiment, made, overrides, monkeypatch, tmp_path):
    (tmp_path / "lanes_lab.py").write_text(
        "from simulator.scheduling.python_scheduler import PythonScheduler, PythonSchedulerParameters\n"
        "class InPython(PythonScheduler):\n"
        "    Parameters = PythonSchedulerParameters\n"
        "    def form_batch(self, batch, now_ns):\n"
        "        for request in batch.running:\n"
        "            batch.run(request, min(request.remaining_tokens, batch.budget))\n")
    simulator.run(experiment, overrides=overrides | {"workload.num_requests": 20, "horizon_s": 2.0}, threads=2)

    assert set(made) <= {None}


def test_small_runs_start_no_threads(tmp_path, made):
    path = tmp_path / "experiment.toml"
    path.write_text(EXPERIMENT)
    simulator.run(path, threads=2)

    assert made == [None]


def test_a_fault_in_a_lane_reaches_the_caller(experiment, monkeypatch):
    serve = lanes.Lanes.serve

    def failing(self, work, argument):
        def broken(first, last, given):
            if first > 0:
                raise MemoryError("no memory in this lane")
            return work(first, last, given)
        return serve(self, broken, argument)

    monkeypatch.setattr(lanes.Lanes, "serve", failing)
    with pytest.raises(MemoryError, match="in this lane"):
        simulator.run(experiment, threads=2)


def test_gaps_and_counts_are_those_of_all_lanes(experiment):
    one, many = (simulator.run(experiment, threads=threads) for threads in (1, 4))

    assert one.summary == many.summary
    assert np.array_equal(one.requests, many.requests)


def test_tokens_reach_the_sink_one_lane_at_a_time(experiment, monkeypatch):
    # Each lane passes its tokens on whenever it holds 50; the sink lets other threads in while it takes them.
    busy, overlaps = [], []
    take = TokenTimes.append

    def slow(self, rows):
        overlaps.append(len(busy))
        busy.append(True)
        time.sleep(0.0005)
        take(self, rows)
        busy.pop()

    monkeypatch.setattr(recorder, "CHUNK_TOKENS", 50)
    monkeypatch.setattr(TokenTimes, "append", slow)
    simulator.run(experiment, threads=3)

    assert len(overlaps) > 100
    assert set(overlaps) == {0}


@pytest.mark.parametrize("threads", [0, -1])
def test_a_run_has_one_thread_at_least(experiment, threads):
    with pytest.raises(ValueError, match="threads must be at least 1"):
        simulator.run(experiment, threads=threads)
