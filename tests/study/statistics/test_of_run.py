"""What a run says of itself, against the theory of queues."""
from pathlib import Path

import numpy as np
import pytest

from results.test_overload import run_of
from simulator import api
from simulator.config.load import load_experiment
from simulator.domain import records
from simulator.study.statistics.intervals import of_replications
from simulator.study.statistics.of_run import Look

SERVER = """
[engine]
max_num_seqs = 1
max_model_len = 16
num_gpu_blocks = 100
enable_prefix_caching = false
async_scheduling = false

[latency]
backend = "linear"
base_us = 1000.0
per_sequence_us = 0.0
per_prefill_token_us = 0.0
per_context_token_us = 0.0

[workload]
type = "synthetic"
num_requests = 20000
prompt_tokens = {distribution = "constant", value = 1}
output_tokens = {distribution = "constant", value = 1}

[workload.arrival]
process = "poisson"
rate_per_s = 500.0
"""


@pytest.fixture
def run(tmp_path):
    """Run a server of 1 ms a request, one at a time; return the summary and what the run says of itself."""
    file = Path(tmp_path, "server.toml")
    file.write_text(SERVER)

    def run_at(rate_per_s, seed=1, num_requests=20_000, look=None, process="poisson"):
        experiment = load_experiment(file, {
            "workload.arrival.rate_per_s": float(rate_per_s), "seed": seed, "workload.num_requests": num_requests,
            "workload.arrival.process": process})
        look = look or Look("none", ("ttft_ms.mean", "ttft_ms.p99"))
        result = api.run_ordered(api.Order(experiment, None, False, True, settle=look))
        return result.summary, look.extra

    return run_at


class Watching(Look):
    """Notes whether a run kept the times of its iterations, which take far more memory than its requests."""

    def __call__(self, run):
        self.has_log = run.iteration_log is not None
        return super().__call__(run)


@pytest.mark.parametrize(("warmup", "has_log"), [("none", False), ("mser5", True), ({"requests": 50}, True)])
def test_times_of_iterations_are_kept_for_a_warm_up_alone(run, warmup, has_log):
    look = Watching(warmup)

    run(500, num_requests=200, look=look)

    assert look.has_log == has_log


@pytest.mark.parametrize(("status", "backlog"), [(records.REJECTED, "stable"), (records.TIMED_OUT, "stable"),
                                                 (records.WAITING, "growing")])
def test_who_was_refused_or_gave_up_does_not_stay_in_the_queue(status, backlog):
    # every other request of 1,000 ends so, the gaps of the others are 1 ms and they take as long
    arrival_ns = np.arange(1000) * 500_000
    finished = run_of(arrival_ns, arrival_ns + 1_000_000)
    requests = finished.workload.requests
    requests["status"][::2], requests["first_token_ns"][30:], requests["completed_ns"][::2] = status, -1, -1
    finished.workload.demands["deadline_ns"][::2] = arrival_ns[::2] + 1_000_000
    look = Look("none", ())
    look(finished)

    assert look.extra["backlog"] == backlog


def test_stable_server_says_so(run):
    summary, extra = run(500)
    assert (extra["backlog"], extra["warmup_requests"], extra["thin"]) == ("stable", 0, [])
    # M/D/1: 1 + rho / (2 (1 - rho)) = 1.5 ms; the interval of this run holds it.
    assert abs(summary["ttft_ms"]["mean"] - 1.5) <= extra["interval"]["ttft_ms.mean"]


def test_overloaded_server_says_so(run):
    assert run(1100)[1]["backlog"] == "growing"


def test_percentile_of_few_requests_is_thin(run):
    assert run(500, num_requests=4000)[1]["thin"] == ["ttft_ms.p99"]
    assert run(500, num_requests=300)[1]["interval"]["ttft_ms.p99"] is None


def test_beginning_is_cut_from_the_metrics(run):
    # All but the first 500 of 600 requests at once: the means are those of the last hundred, 501 to 600 ms.
    summary, extra = run(1e9, num_requests=600, look=Look({"requests": 500}, ("ttft_ms.mean",)), process="constant")
    assert extra["warmup_requests"] == 500
    assert summary["requests"]["completed"] == 100
    assert summary["ttft_ms"]["mean"] == pytest.approx(550.5, abs=1e-3)


def test_seconds_are_cut(run):
    summary, extra = run(100, num_requests=600, look=Look({"seconds": 2.0}), process="constant")
    assert summary["requests"]["completed"] == 600 - extra["warmup_requests"]
    assert extra["warmup_requests"] in (199, 200)           # 100 a second


def test_empty_server_settles_under_load(run):
    _, extra = run(900, num_requests=50_000, look=Look("mser5", ("ttft_ms.mean",)))
    assert extra["warmup_found"] and extra["warmup_requests"] < 25_000


@pytest.mark.slow
def test_server_meets_the_theory(run):
    # M/D/1 of 1 ms: 1.5 ms at 500/s and 2.5 at 750/s, mean of 8 seeds, 100,000 requests each.
    for rate_per_s, expected_ms in ((500, 1.5), (750, 2.5)):
        means = [run(rate_per_s, seed, 100_000)[0]["ttft_ms"]["mean"] for seed in range(8)]
        estimate = of_replications(means, 0.999)
        assert abs(estimate.mean - expected_ms) <= estimate.half_width


@pytest.mark.slow
def test_common_random_numbers_make_differences_sharp(run):
    # 660 against 650/s: 0.0420 ms by theory. With the same seeds the differences vary far less than the means.
    ours = np.array([run(660, seed, 50_000)[0]["ttft_ms"]["mean"] for seed in range(6)])
    others = np.array([run(650, seed, 50_000)[0]["ttft_ms"]["mean"] for seed in range(6)])
    assert np.std(ours - others, ddof=1) < np.std(ours, ddof=1) / 5
    assert (ours - others).mean() == pytest.approx(0.042, abs=0.01)


@pytest.mark.slow
def test_short_runs_flatter_the_tail(run):
    short, long = (np.mean([run(900, seed, count)[0]["ttft_ms"]["p99"] for seed in range(4)])
                   for count in (2000, 100_000))
    assert short < 0.85 * long
