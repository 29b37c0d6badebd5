"""What happened in the window that is measured, against the times of tokens and against numbers worked out by hand."""
import numpy as np
import pytest

import simulator
from results.fakes import bounds_of, replicas_of, requests_of, workload_of
from simulator.core.weighted_samples import WeightedSamples
from simulator.domain import records
from simulator.domain.run import Run
from simulator.domain.window import Window
from simulator.results.metrics import summarise

MS = 1_000_000
EXPERIMENT = """
name = "measured"
seed = 1
[engine]
max_model_len = 8192
num_gpu_blocks = {blocks}
{engine}
[latency]
backend = "linear"
base_us = 5000.0
per_prefill_token_us = 10.0
{more}
[workload]
type = "synthetic"
num_requests = 600
prompt_tokens = {{distribution = "constant", tokens = 200}}
output_tokens = {{distribution = "uniform", min = 100, max = 1900}}
load = {{mode = "concurrency", concurrency = 200}}
[workload.measure]
{measure}
"""
VLLM = "max_num_seqs = 256\nmax_num_batched_tokens = 8192"
BY_COUNT = "warmup_requests = 200\ncooldown_requests = 200"
BY_TIME = "warmup_s = 8\ncooldown_s = 8"


@pytest.fixture
def run(tmp_path):
    """Run the closed loop above with these keys of [workload.measure], [engine], and whatever else."""
    def run(measure, engine=VLLM, more="", blocks=100_000, **overrides):
        path = tmp_path / "experiment.toml"
        path.write_text(EXPERIMENT.format(measure=measure, engine=engine, more=more, blocks=blocks))
        return simulator.run(path, overrides)
    return run


def tokens_within(result, window):
    """Return how many tokens of each request came in a window, from the time of each."""
    offsets, times_ns = result.token_times
    inside = np.append(0, np.cumsum(window.holds(times_ns)))
    return inside[offsets[1:]] - inside[offsets[:-1]]


def window_in(result):
    """Return the window that the diagnosis tells, which is rounded to ms."""
    words = next(line for line in result.summary["diagnosis"] if "of the window from" in line).split()
    return [float(words[words.index(name) + 1].replace(",", "")) for name in ("from", "to")]


@pytest.mark.parametrize(("measure", "tokens_per_s", "requests_per_s"), [
    (BY_COUNT, 12_538, 12.28), (BY_TIME, 12_042, 12.68)])
def test_the_throughput_of_a_closed_loop_is_that_of_all_who_share_it(run, measure, tokens_per_s, requests_per_s):
    # 200 sequences run all the time: about 12,000 tokens/s and 12 requests/s, not the 4,501 of the measured ones alone
    summary = run(measure).summary

    assert summary["output_throughput"] == pytest.approx(tokens_per_s, rel=1e-3)
    assert summary["request_throughput"] == pytest.approx(requests_per_s, rel=1e-3)
    assert summary["total_token_throughput"] > summary["output_throughput"]
    assert summary["requests"]["injected"] < 600        # latencies and counts are those of the measured ones


ENGINES = {
    "plain": {}, "stepwise": {"engine": VLLM + "\nfast_forward = false"},
    "a client that sees tokens later": {"more": "host = {output_token_us = 2000.0, completion_us = 900.0}"},
    "prompts alone in their batches": {
        "engine": 'scheduler = "sglang"\nblock_size = 16\nmax_running_requests = 256'},
    "two replicas": {"more": "[topology]\nreplicas = 2"},
}


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("measure", [BY_TIME, BY_COUNT, "warmup_s = 3.3"])
def test_tokens_in_the_window_are_counted_to_the_token(run, name, measure):
    result = run(measure, **ENGINES[name], **{"output.token_times": True})
    window = Window(*(round(time_s * 1e9) for time_s in window_in(result)))     # told to the ms

    error = abs(result.summary["total_output_tokens"] - int(tokens_within(result, window).sum()))

    assert error <= 2 * 200 * (measure != BY_TIME)      # an iteration at each edge, where that is rounded
    assert not any("estimated" in line for line in result.summary["diagnosis"])


@pytest.mark.parametrize(("given", "error"), [
    ({"blocks": 6_000}, 0.02), ({"more": "[topology]\npipeline_parallel = 2"}, 1e-3)])
def test_requests_that_wait_or_take_turns_are_estimated_and_that_is_told(run, given, error):
    result = run(BY_TIME, **given, **{"output.token_times": True})
    window = Window(8_000 * MS, int(result.requests["completed_ns"].max()) - 8_000 * MS)

    assert result.summary["total_output_tokens"] == pytest.approx(int(tokens_within(result, window).sum()), rel=error)
    assert any("are estimated" in line for line in result.summary["diagnosis"])


PRICED = """
[topology]
replicas = 2
[hardware]
name = "h100-sxm-80gb"
[prices.h100-sxm-80gb]
per_gpu_hour = 3.6
currency = "USD"
source = "a contract"
date = "2026-01-01"
[power.h100-sxm-80gb]
idle_w = 100.0
prefill_w = 400.0
decode_w = 400.0
source = "a meter"
"""


def test_money_and_energy_are_those_of_the_window(run):
    # two accelerators at 3.6 an hour: 0.002 a second; 100 W idle, 400 W while they compute
    summary = run(BY_TIME, more=PRICED).summary
    seconds, tokens = summary["duration_s"], summary["total_output_tokens"]
    busy_s = sum(replica["busy_s"] for replica in summary["replicas"])

    assert busy_s <= 2 * seconds
    assert summary["cost"]["total"] == pytest.approx(0.002 * seconds)
    assert summary["cost"]["per_hour"] == pytest.approx(7.2)
    assert summary["cost"]["cost_per_million_output_tokens"] == pytest.approx(0.002 * seconds / tokens * 1e6)
    assert summary["energy"]["energy_j"]["total"] == pytest.approx(400 * busy_s + 100 * (2 * seconds - busy_s))
    assert summary["energy"]["joules_per_output_token"] == summary["energy"]["energy_j"]["total"] / tokens
    assert [replica["up_s"] for replica in summary["replicas"]] == [seconds] * 2


def test_replicas_count_what_came_and_ended_in_the_window(run):
    result = run(BY_TIME, more="[topology]\nreplicas = 2")
    window = Window(8_000 * MS, int(result.requests["completed_ns"].max()) - 8_000 * MS)

    for number, replica in enumerate(result.summary["replicas"]):
        own = result.requests[result.requests["replica"] == number]
        assert replica["completed"] == window.holds(own["completed_ns"]).sum()
        assert replica["requests"] == window.holds(own["enqueued_ns"]).sum()
        assert replica["utilisation"] == replica["busy_s"] / replica["up_s"]


def test_blocks_in_use_are_those_of_the_whole_run_beside_the_busy_time_of_a_window(run):
    whole, measured = (run(measure, more="[topology]\nreplicas = 2").summary for measure in ("", BY_TIME))

    assert [replica["kv_cache"] for replica in measured["replicas"]] == [
        replica["kv_cache"] for replica in whole["replicas"]]
    assert measured["kv_cache"] == whole["kv_cache"]
    assert all(measured["busy_s"] < whole["busy_s"] for measured, whole in zip(
        measured["replicas"], whole["replicas"], strict=True))


def test_a_window_as_long_as_the_run_says_what_the_run_says(run):
    whole, window = run("").summary, run("warmup_s = 1e-9").summary         # all come at 0: none is measured
    window_of_all = run("cooldown_s = 1e-9").summary                         # ends before the last completion

    assert window["total_output_tokens"] == whole["total_output_tokens"]
    assert window["output_throughput"] == pytest.approx(whole["output_throughput"])
    assert window_of_all["total_output_tokens"] == whole["total_output_tokens"] - 1
    assert window_of_all["request_throughput"] == pytest.approx(599 / whole["duration_s"])


@pytest.mark.parametrize("measure", ["warmup_s = 1000", "cooldown_s = 1000", "warmup_s = 30\ncooldown_s = 30"])
def test_an_empty_window_has_no_rates_and_says_so(run, measure):
    summary = run(measure, more=PRICED).summary

    assert (summary["duration_s"], summary["output_throughput"], summary["request_throughput"]) == (0.0, 0.0, 0.0)
    assert (summary["cost"]["total"], summary["energy"]["energy_j"]["total"]) == (0.0, 0.0)
    assert any("is empty" in line for line in summary["diagnosis"])


def test_a_window_without_a_completion_has_tokens(run):
    # all 200 come at 0, and get 2,000 tokens each by the end: nobody ends in between
    summary = run("warmup_s = 1\ncooldown_s = 8", **{
        "workload.output_tokens": {"distribution": "constant", "tokens": 2000}, "workload.num_requests": 200}).summary

    assert summary["request_throughput"] == 0.0
    assert summary["output_throughput"] > 0
    assert summary["ttft_ms"]["mean"] is None


def of_tenants(window):
    """Return a run of two tenants; the only token of b in the window is the last of a request that is not measured."""
    requests = requests_of([
        (0, 0, 0, 10, 40, 7, 4, records.COMPLETED),         # 10, 20, 30, 40
        (0, 0, 0, 10, 20, 7, 2, records.COMPLETED),         # 10, 20
        (15, 15, 20, 30, 50, 9, 3, records.COMPLETED)])     # 30, 40, 50
    run = Run(workload_of(requests, tenant=["a", "b", "a"]), True, 50 * MS, replicas_of({}), WeightedSamples())
    run.window, run.workload.measured = window, np.array([False, False, True])
    return run


def test_tenants_share_the_tokens_of_the_window():
    # within (15, 45]: a has 20, 30, 40 and 30, 40; b has 20. Jain: 36 / (2 x 26)
    found = summarise(of_tenants(Window(15 * MS, 45 * MS)), bounds_of())

    assert {name: part["total_output_tokens"] for name, part in found["by_tenant"].items()} == {"a": 5, "b": 1}
    assert found["total_output_tokens"] == 6
    assert found["total_input_tokens"] == 9             # the first token of one prompt came in it
    assert found["fairness"] == pytest.approx(36 / 52)
    assert found["request_throughput"] == pytest.approx(2 / 0.03)
    assert [found["by_tenant"][name]["requests"]["injected"] for name in "ab"] == [1, 0]
