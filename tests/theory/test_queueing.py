"""The engine against queueing theory: one server with a constant service time, and Little's law."""
import numpy as np
import pytest

from simulator.latency.linear import Linear, LinearParameters
from simulator.scheduling.vllm import VllmParameters
from support.engine import record
from support.workloads import plain_workload

CACHE = {"num_gpu_blocks": 4096, "block_size": 16, "enable_prefix_caching": False, "max_model_len": 8192}
SERVICE_NS = 10_000_000


def serve(workload, prices, **parameters):
    return record(workload, VllmParameters(**parameters), latency=Linear(prices), details=False, **CACHE)


def single_server(utilisation, count, seed):
    """Serve Poisson arrivals one at a time, 10 ms each; return (arrivals, waiting times) in ns."""
    gaps = np.random.default_rng(seed).exponential(SERVICE_NS / utilisation, count)
    arrivals = np.rint(np.cumsum(gaps)).astype(np.int64)
    prices = LinearParameters(base_us=SERVICE_NS / 1e3, per_sequence_us=0.0, per_prefill_token_us=0.0)
    requests = serve(plain_workload(arrivals, 100, 1), prices, max_num_seqs=1).requests
    assert (requests["completed_ns"] == requests["scheduled_ns"] + SERVICE_NS).all()
    return arrivals, requests["scheduled_ns"] - arrivals


def test_each_waiting_time_follows_lindleys_recursion():
    # Lindley (1952): W[n+1] = max(0, W[n] + S - gap[n]).
    arrivals, waits = single_server(utilisation=0.9, count=5_000, seed=1)
    expected = np.zeros(len(arrivals), np.int64)
    for n, gap in enumerate(np.diff(arrivals)):
        expected[n + 1] = max(0, expected[n] + SERVICE_NS - gap)
    assert (waits == expected).all()


@pytest.mark.parametrize("utilisation", [0.3, 0.5, 0.7])
def test_mean_wait_is_that_of_an_m_d_1_queue(utilisation):
    # Pollaczek-Khinchine with a constant service time: mean wait = rho * S / (2 * (1 - rho)).
    _, waits = single_server(utilisation, count=100_000, seed=2)
    assert waits.mean() == pytest.approx(utilisation * SERVICE_NS / (2 * (1 - utilisation)), rel=0.03)


def test_littles_law_holds_for_the_batch():
    # Without preemption a request is in the batch from its first iteration to the end of its last one, so
    # sum(running x duration) over iterations = sum(completed - scheduled) over requests, exactly.
    rng = np.random.default_rng(3)
    arrivals = np.sort(rng.integers(0, 10**10, 2_000))
    workload = plain_workload(arrivals, rng.integers(1, 300, 2_000), rng.integers(1, 200, 2_000))
    recording = serve(workload, LinearParameters(), max_num_seqs=64)
    requests, iterations = recording.requests, recording.iterations
    assert requests["preemptions"].sum() == 0
    in_batch = (iterations["running"].astype(np.int64) * iterations["duration_ns"]).sum()
    assert in_batch == (requests["completed_ns"] - requests["scheduled_ns"]).sum()


def test_littles_law_holds_for_the_queue():
    # A request is seen waiting by every iteration that starts after its arrival and before it is scheduled, so
    # sum(waiting x duration) = sum(scheduled - start of the first iteration that sees it).
    rng = np.random.default_rng(4)
    arrivals = np.sort(rng.integers(0, 10**9, 1_000))
    workload = plain_workload(arrivals, rng.integers(1, 300, 1_000), rng.integers(1, 100, 1_000))
    recording = serve(workload, LinearParameters(), max_num_seqs=16)
    requests, iterations = recording.requests, recording.iterations
    starts = iterations["start_ns"]
    seen = starts[np.searchsorted(starts, arrivals)]
    waiting = (iterations["waiting"].astype(np.int64) * iterations["duration_ns"]).sum()
    assert waiting == (requests["scheduled_ns"] - seen).sum()
