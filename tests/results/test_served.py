"""A run in which few requests are served says so first, and why."""
import numpy as np
import pytest

import simulator
from results.fakes import MS, bounds_of, replicas_of, requests_of, small_run, workload_of
from results.test_overload import run_of
from simulator.core.weighted_samples import WeightedSamples
from simulator.domain import records
from simulator.domain.load import Measure
from simulator.domain.run import Run
from simulator.results import summary_table
from simulator.results.measured import measured_rows, window_of
from simulator.results.overload import load_of
from simulator.results.summary import summary_of

EXPERIMENT = """
name = "rejected"
[engine]
max_model_len = 4096
num_gpu_blocks = 1000
{engine}
[latency]
backend = "linear"
base_us = 5000.0
per_prefill_token_us = 1.0
[workload]
type = "synthetic"
num_requests = 50
arrival = {{process = "poisson", rate_per_s = {rate}}}
prompt_tokens = {{distribution = "{lengths}"}}
output_tokens = {{distribution = "constant", tokens = 10}}
"""


@pytest.fixture
def run(tmp_path):
    def run(lengths='constant", tokens = 8000, unit = "', engine="", rate=5.0, **overrides):
        path = tmp_path / "experiment.toml"
        path.write_text(EXPERIMENT.format(lengths=lengths, engine=engine, rate=rate).replace(', unit = ""', ""))
        return simulator.run(path, overrides).summary
    return run


@pytest.mark.parametrize(("engine", "why"), [
    ("", "50 rejected, of up to 8,000 prompt tokens, which are longer than max_model_len = 4,096 allows"),
    ('scheduler = "tensorrt_llm"', "which are longer than max_model_len = 4,096 allows"),
    ('scheduler = "tensorrt_llm"\nmax_num_tokens = 2048',
     "which are longer than max_model_len = 4,096 allows"),
    ('scheduler = "sglang"', "are longer than the 993 tokens that max_model_len and the KV pool leave a prompt"),
    ('scheduler = "vllm_v0"', "which are longer than max_tokens_in_batch = 4,096"),
])
def test_a_run_that_rejects_all_says_so_first_and_why(run, engine, why):
    summary = run(engine=engine)

    assert summary["verdict"] == "unserved"
    assert summary["diagnosis"][0] == summary["unserved"]
    assert summary["unserved"].startswith("of 50 requests none was served: 50 rejected, of up to 8,000 prompt tokens")
    assert why in summary["unserved"]
    assert summary_table(summary).splitlines()[2].startswith("unserved     of 50 requests none was served:")
    assert "requests/s offered: unserved" in summary_table(summary)


def test_prompts_that_tensorrt_llm_takes_whole_are_told_from_those_that_are_too_long(run):
    summary = run('constant", tokens = 3000, unit = "', 'scheduler = "tensorrt_llm"\nmax_num_tokens = 2048')

    assert summary["unserved"] == (
        "of 50 requests none was served: 50 rejected, of up to 3,000 prompt tokens, which are longer than "
        "max_num_tokens = 2,048, which takes prompts whole, for enable_chunked_context is off")


def test_some_that_are_rejected_are_counted_by_reason(run):
    summary = run('uniform", min = 100, max = 5000, unit = "', **{"workload.num_requests": 100})

    rejected = summary["requests"]["rejected"]
    assert 0 < rejected < 50
    assert summary["unserved"] is None
    assert summary["verdict"] == "stable"
    assert summary["diagnosis"][0].startswith(f"of 100 requests some were not served: {rejected} rejected, of up to ")


def test_a_burst_is_no_rate_however_it_is_drawn(run):
    summary = run(rate=1e9)

    assert summary["offered_throughput"] is None
    assert "load         all at once: unserved\n" in summary_table(summary)


def test_a_full_queue_of_sglang_is_the_reason_of_those_within_all_limits(run):
    summary = run('constant", tokens = 100, unit = "',
                  'scheduler = "sglang"\nmax_running_requests = 1\nmax_queued_requests = 2', rate=1000.0)

    assert "rejected, of up to 100 prompt tokens, which found max_queued_requests = 2 waiting" in summary["unserved"]


@pytest.mark.parametrize(("status", "why"), [
    (records.TIMED_OUT, "2 timed out"), (records.DROPPED, "2 dropped by the engine"), (records.FAILED, "2 failed"),
    (records.WAITING, "2 still waited at the end of the run")])
def test_each_end_of_a_request_is_a_cause(status, why):
    requests = requests_of([(0, 0, None, None, None, 5, 0, status)] * 2)
    run = Run(workload_of(requests), True, 10 * MS, replicas_of({}), WeightedSamples())

    summary = summary_of(run, "lost", 0, bounds_of())

    assert (summary["verdict"], summary["unserved"]) == ("unserved", f"of 2 requests none was served: {why}")


def test_requests_that_run_at_the_end_were_served_as_far_as_anybody_knows():
    requests = requests_of([(0, 0, 0, 1, None, 5, 3, records.RUNNING)] * 3)
    run = Run(workload_of(requests), True, 10 * MS, replicas_of({}), WeightedSamples())

    assert summary_of(run, "on", 0, bounds_of())["unserved"] is None
    assert summary_of(small_run(), "small", 0, bounds_of())["verdict"] == "too short to tell"       # 2 of 4


@pytest.mark.parametrize(("horizon_s", "unserved"), [
    (0.001, "no request came before the run ended, after 0.001 s"), (0.5, None)])
def test_a_run_in_which_nothing_is_complete_is_too_short_to_tell(run, horizon_s, unserved):
    summary = run('constant", tokens = 100, unit = "', horizon_s=horizon_s, **{"workload.output_tokens": {
        "distribution": "constant", "tokens": 500}})

    assert (summary["verdict"], summary["unserved"]) == ("too short to tell", unserved)
    assert summary["diagnosis"][:-1] == [unserved] * (unserved is not None)
    assert summary["diagnosis"][-1].startswith(f"horizon_s cut the run at {horizon_s} s: of 50 requests ")
    assert summary["requests"]["completed"] == 0 and (summary["requests"]["injected"] > 0) == (unserved is None)


def window_run(measure, **columns):
    """Return the summary of 100 requests, one each 100 ms, of 10 ms each; some columns are changed."""
    arrival_ns = np.arange(100) * 100 * MS
    run = run_of(arrival_ns, arrival_ns + 10 * MS)
    for rows, status in columns.values():
        run.workload.requests["status"][rows] = status
        run.workload.requests["completed_ns"][rows] = -1
    run.workload.measured, run.window = measured_rows(run, measure), window_of(run, measure)
    return summary_of(run, "window", 0, bounds_of())


@pytest.mark.parametrize("measure", [Measure(warmup_s=20.0), Measure(warmup_requests=100),
                                     Measure(warmup_requests=60, cooldown_requests=60)])
def test_a_window_with_nobody_in_it_says_so_first(measure):
    summary = window_run(measure)

    assert summary["unserved"] == summary["diagnosis"][0]
    assert summary["unserved"] == (
        "no request is measured: [workload.measure] or a warm-up leaves none of the 100 that came")
    assert summary["verdict"] == "too short to tell"
    assert summary_table(summary).splitlines()[2].startswith("unserved     no request is measured")


def test_those_that_are_measured_decide_whether_a_run_was_served():
    # the first 60 are rejected, the last 40 served: which of them are measured decides
    late = Measure(warmup_requests=60)
    early = Measure(cooldown_requests=40)
    rejected = slice(0, 60), records.REJECTED

    assert window_run(Measure(), rejected=rejected)["unserved"] == "of 100 requests 40 were served: 60 rejected"
    served = window_run(late, rejected=rejected)
    assert (served["unserved"], served["verdict"]) == (None, "stable")
    lost = window_run(early, rejected=rejected)
    assert (lost["unserved"], lost["verdict"]) == ("of 60 requests none was served: 60 rejected", "unserved")


def test_clients_that_give_up_before_the_window_overload_nothing_in_it():
    gave_up = slice(0, 40), records.TIMED_OUT

    assert window_run(Measure(), gave_up=gave_up)["verdict"] == "overloaded"
    assert window_run(Measure(warmup_requests=50), gave_up=gave_up)["verdict"] == "stable"
    assert window_run(Measure(cooldown_requests=50), gave_up=gave_up)["verdict"] == "overloaded"


@pytest.mark.parametrize(("count", "stay_s", "verdict"), [(60, 8.0, "too short to tell"), (600, 8.0, "stable")])
def test_a_run_of_a_few_stays_is_too_short_to_tell(count, stay_s, verdict):
    # 6 a second come and stay for 8 s, a little longer as more of them are there: 60 of them in 18 s, 600 in 108 s
    arrival_ns = np.arange(count) * 1_000_000_000 // 6
    stay_ns = stay_s * 1e9 * (0.5 + 0.5 * np.minimum(arrival_ns / (stay_s * 1e9), 1.0))
    run = run_of(arrival_ns, arrival_ns + stay_ns.astype(np.int64))

    assert load_of(run)["verdict"] == verdict
