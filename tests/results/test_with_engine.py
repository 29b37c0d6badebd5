"""The summary of a real run, computed again from the tables that were written, by plain NumPy."""
import json
from itertools import pairwise

import numpy as np
import pytest

import simulator
from simulator.domain import records

EXPERIMENT = """
seed = 3
model = {name = "llama-3.1-8b"}
hardware = {name = "h100-sxm-80gb"}
topology = {replicas = 2}
engine = {num_gpu_blocks = 400, max_model_len = 4096, max_num_seqs = 32}
latency = {backend = "linear"}
output = {chrome_trace = true, token_times = true}
slo = {ttft_ms = 20.0, tpot_ms = 6.0}
[workload]
type = "synthetic"
num_requests = 400
arrival = {process = "poisson", rate_per_s = 60.0}
prompt_tokens = {distribution = "lognormal", mean = 300, std = 300, max = 2000}
output_tokens = {distribution = "lognormal", mean = 60, std = 60, max = 500}
"""


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    (folder / "experiment.toml").write_text(EXPERIMENT)
    return simulator.run(folder / "experiment.toml", out=folder / "out")


def assert_describes(described, samples):
    assert [described[f"p{p}"] for p in (50, 90, 95, 99)] == np.percentile(samples, (50, 90, 95, 99)).tolist()
    assert (described["min"], described["max"]) == (samples.min(), samples.max())
    assert described["mean"] == pytest.approx(samples.mean())
    assert described["std"] == pytest.approx(samples.std())


def test_latencies_follow_from_the_request_table(result):
    table = result.requests
    ttft = (table["first_token_ns"] - table["arrival_ns"]) / 1e6
    e2el = (table["completed_ns"] - table["arrival_ns"]) / 1e6
    several = table[table["output_tokens"] > 1]
    tpot = (several["completed_ns"] - several["first_token_ns"]) / 1e6 / (several["output_tokens"] - 1)

    assert set(table["status"]) == {records.COMPLETED}
    assert_describes(result.summary["ttft_ms"], ttft)
    assert_describes(result.summary["e2el_ms"], e2el)
    assert_describes(result.summary["tpot_ms"], tpot)


def test_gaps_between_tokens_follow_from_the_token_times(result):
    offsets, times_ns = result.token_times
    gaps_ms = [np.diff(times_ns[first:last]) / 1e6 for first, last in pairwise(offsets)]

    assert_describes(result.summary["itl_ms"], np.concatenate(gaps_ms))


def test_token_times_agree_with_the_request_table(result):
    offsets, times_ns = result.token_times
    table = result.requests

    assert np.array_equal(np.diff(offsets), table["output_tokens"])
    assert np.array_equal(times_ns[offsets[:-1]], table["first_token_ns"])
    assert np.array_equal(times_ns[offsets[1:] - 1], table["completed_ns"])


def test_cache_use_follows_from_the_iterations(result):
    table, cache = result.iterations, result.summary["kv_cache"]
    own = [table[table["replica"] == replica] for replica in range(2)]
    peaks = [int(rows["used_blocks"].max()) for rows in own]
    means = [np.average(rows["used_blocks"], weights=rows["duration_ns"]) for rows in own]

    assert cache["num_blocks"] == 2 * 399           # the null blocks are not counted
    assert cache["peak_used_blocks"] == sum(peaks)
    assert cache["mean_usage"] == pytest.approx(sum(means) / (2 * 399))


def test_iterations_are_counted_and_in_order_of_start(result):
    table = result.iterations

    assert len(table) == result.summary["iterations"]
    assert np.all(np.diff(table["start_ns"]) >= 0)
    assert table["preempted"].sum() == result.summary["preemptions"] == result.requests["preemptions"].sum()


def test_the_trace_has_every_iteration_and_request(result):
    events = json.loads((result.directory / "trace.json").read_text())["traceEvents"]

    assert sum(event["ph"] == "X" and event["pid"] >= 0 for event in events) == result.summary["iterations"]
    assert len({event["id"] for event in events if event["ph"] == "b"}) == 400
